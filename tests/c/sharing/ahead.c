/* One range of several handles that the program has mapped side by side, as frameworks do, and kernels over it in a stream of one
 * kind. It obeys lines on standard input, one answer each.
 *
 *     ahead --megabytes 40 --stream 0 --extra 0 --graph 0 --seed 1
 *
 * The stream is one that the program made (0), the legacy default stream (1) or the thread's own (2). Each launch is of one
 * slice of the range; `--extra` are further ones of little work. With `--graph 1` a graph holds them all, which was made ready when
 * the memory was there.
 *
 *     poke                     adds up a slice, and drops the sum; `poked`
 *     launch                   adds up the whole range and writes new contents, without waiting; `launched`
 *     wait                     waits for that, and compares the sums; `done CHECKSUM`
 *     alloc                    `allocated` or `answer CODE`
 *     free                     frees what `alloc` allocated; `freed`
 *     query                    tells if the stream has work; `busy` or `idle`
 *     again                    destroys the stream and makes another one; `made`
 *     destroy                  destroys the context, with all its work, and begins anew; `destroyed`
 *     quit                     reads all back and ends with `result ahead CHECKSUM ok`
 */
#include "work.h"

enum { HANDLE = 8, SLICES = 20, STREAMS = 3 };

static unsigned megabytes = 40, which, extra, graph, seed = 1;
static struct tools tools;
static CUstream stream;
static struct piece slices[SLICES];
static uint64_t *sums, want[SLICES], folded = CHECKSUM_START;
static CUdeviceptr range, sums_at, more;

/* Either way to launch. */
static void launch(CUfunction function, unsigned words, void **parameters) {
    static unsigned count;
    if (count++ % 2) {
        CUlaunchConfig config = {blocks_for(words), 1, 1, 256, 1, 1, 0, stream, NULL, 0};
        CHECK(cuLaunchKernelEx(&config, function, parameters, NULL));
    } else {
        CHECK(cuLaunchKernel(function, blocks_for(words), 1, 1, 256, 1, 1, 0, stream, parameters, NULL));
    }
}

static void fill(struct piece *slice, uint32_t with, unsigned words) {
    void *parameters[] = {&slice->at, &with, &words};
    slice->seed = with;
    launch(tools.fill, words, parameters);
}

static void launch_all(void) {
    unsigned words = (unsigned)(slices[0].bytes / 4);
    for (unsigned i = 0; i < SLICES; i++) {
        struct piece *slice = &slices[i];
        CUdeviceptr out = sums_at + i * sizeof *sums;
        void *parameters[] = {&out, &slice->at, &words};
        sums[i] = 0;
        want[i] = sum_of(slice->seed, words);
        launch(tools.sum, words, parameters);
        fill(slice, hash32(slice->seed), words);
    }
    for (unsigned i = 0; i < extra; i++) fill(&slices[i % SLICES], slices[i % SLICES].seed, 64);
}

/* With --graph: the graph to launch next. */
static CUgraphExec next;

static void make_next(void) {
    CUgraph recorded;
    CUstream before = stream;
    if (next) CHECK(cuGraphExecDestroy(next));
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CHECK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    launch_all();
    CHECK(cuStreamEndCapture(stream, &recorded));
    CHECK(cuGraphInstantiate(&next, recorded, 0));
    CHECK(cuGraphDestroy(recorded));
    CHECK(cuStreamDestroy(stream));
    stream = before;
}

static void wait_for_all(void) {
    CHECK(cuStreamSynchronize(stream));
    for (unsigned i = 0; i < SLICES; i++) {
        REQUIRE(sums[i] == want[i], "slice %u adds up to %#llx, not %#llx", i, (unsigned long long)sums[i],
                (unsigned long long)want[i]);
    }
    folded = checksum(folded, sums, SLICES * sizeof *sums);
    if (graph) make_next();
    printf("done %016llx\n", (unsigned long long)folded);
}

static void map_all(void) {
    size_t bytes = HANDLE * MIB, all = megabytes * MIB;
    CUdevice device;
    CHECK(cuCtxGetDevice(&device));
    CUmemAllocationProp properties = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                      .location = {CU_MEM_LOCATION_TYPE_DEVICE, device}};
    CUmemAccessDesc access = {properties.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CHECK(cuMemAddressReserve(&range, all, 0, 0, 0));
    for (size_t at = 0; at < all; at += bytes) {
        CUmemGenericAllocationHandle handle;
        CHECK(cuMemCreate(&handle, bytes, &properties, 0));
        CHECK(cuMemMap(range + at, bytes, 0, handle, 0));
        CHECK(cuMemSetAccess(range + at, bytes, &access, 1));
        CHECK(cuMemRelease(handle));
    }
    for (unsigned i = 0; i < SLICES; i++) {
        slices[i] = (struct piece){.at = range + i * (all / SLICES), .bytes = all / SLICES};
        fill(&slices[i], seed * 1000 + i, (unsigned)(all / SLICES / 4));
    }
}

static void make_stream(void) {
    if (which == 0) CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    if (which == 2) stream = CU_STREAM_PER_THREAD;
}

static void begin(void) {
    start();
    tools = tools_from(load_kernels());
    make_stream();
    CHECK(cuMemHostAlloc((void **)&sums, (SLICES + 1) * sizeof *sums, CU_MEMHOSTALLOC_DEVICEMAP));
    CHECK(cuMemHostGetDevicePointer(&sums_at, sums, 0));
    map_all();
    CHECK(cuStreamSynchronize(stream));
}

static void poke(void) {
    unsigned words = (unsigned)(slices[0].bytes / 4);
    CUdeviceptr nobody = sums_at + SLICES * sizeof *sums;
    void *parameters[] = {&nobody, &slices[0].at, &words};
    launch(tools.sum, words, parameters);
}

static void obey(const char *line) {
    if (strcmp(line, "poke\n") == 0) {
        poke();
        printf("poked\n");
    } else if (strcmp(line, "launch\n") == 0) {
        if (graph)
            CHECK(cuGraphLaunch(next, stream));
        else
            launch_all();
        printf("launched\n");
    } else if (strcmp(line, "wait\n") == 0) {
        wait_for_all();
    } else if (strcmp(line, "alloc\n") == 0) {
        CUresult result = cuMemAlloc(&more, 2 * MIB);
        result ? printf("answer %d\n", (int)result) : printf("allocated\n");
    } else if (strcmp(line, "free\n") == 0) {
        CHECK(cuMemFree(more));
        printf("freed\n");
    } else if (strcmp(line, "query\n") == 0) {
        printf(cuStreamQuery(stream) ? "busy\n" : "idle\n");
    } else if (strcmp(line, "again\n") == 0) {
        if (which == 0) CHECK(cuStreamDestroy(stream));
        make_stream();
        printf("made\n");
    } else if (strcmp(line, "destroy\n") == 0) {
        CHECK(cuDevicePrimaryCtxReset(0));
        CHECK(cuMemUnmap(range, megabytes * MIB));
        CHECK(cuMemAddressFree(range, megabytes * MIB));
        begin();
        printf("destroyed\n");
    } else if (strcmp(line, "quit\n") == 0) {
        uint64_t sum = folded;
        if (graph) CHECK(cuGraphLaunch(next, stream));
        CHECK(cuCtxSynchronize());
        for (unsigned i = 0; i < SLICES; i++) sum = piece_check(&tools, &slices[i], "the end", sum);
        exit(finish("ahead", sum));
    } else {
        printf("what is %s", line);
    }
}

int main(int argc, char **argv) {
    struct option_row options[] = {{"--megabytes", &megabytes}, {"--stream", &which}, {"--extra", &extra},
                                    {"--graph", &graph}, {"--seed", &seed}};
    read_options(argc, argv, options, COUNT_OF(options));
    REQUIRE(megabytes % HANDLE == 0 && which < STREAMS, "--megabytes has to be a multiple of 8, --stream 0 to 2");
    setvbuf(stdout, NULL, _IOLBF, 0);
    begin();
    if (graph) make_next();
    printf("ready %d\n", (int)getpid());
    char line[64];
    while (fgets(line, sizeof line, stdin)) obey(line);
    return 0;
}
