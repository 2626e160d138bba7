/* Memory that processes share by descriptors (cuMemExportToShareableHandle), beside memory of their own.
 *
 *     weights --megabytes 16 --seed 1
 *
 * Obeys lines on standard input, one answer each:
 *
 *     give MIB SEED            so much memory, filled, and a descriptor of it for each process that connects to
 *                              the socket that WEIGHTS names; `given`
 *     take                     such a descriptor, imported and mapped; `taken`
 *     check SEED               `right` if the shared memory has these contents, and the own memory its own
 *     touch                    `touched well`, if all memory has the contents that it is known to have
 *     write SEED               other contents for the shared memory; `written`
 *     grow MIB                 more memory of its own; `grown`
 *     zero                     zeros; `zeroed`
 *     turns MINE               in memory of zeros, 20 times: a write to the first word, and a wait on the GPU for another
 *                              process's to the second, or the other way round; `turned`
 *     free MIB                 bytes that the driver says are free, less than MIB of them: `less`, else `more`
 *     drop                     unmaps and releases the shared memory; `dropped`
 *     quit                     `result weights ok`
 *
 * A call that fails is told as `answer CODE`, and the next line is read.
 */
#include "passing.h"

enum { ROUNDS = 20, AT_LEAST = 0 };

static unsigned megabytes = 16, seed = 1;
static struct tools tools;
static struct piece own, more, shared;
static CUmemGenericAllocationHandle handle;

static const char *place(void) {
    const char *path = getenv("WEIGHTS");
    REQUIRE(path, "WEIGHTS names no socket");
    return path;
}

static CUresult map_shared(size_t bytes) {
    CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_DEVICE, 0}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    shared.bytes = bytes;
    TRY(cuMemAddressReserve(&shared.at, bytes, 0, 0, 0));
    TRY(cuMemMap(shared.at, bytes, 0, handle, 0));
    return cuMemSetAccess(shared.at, bytes, &access, 1);
}

static CUresult fill(uint32_t with) {
    unsigned words = (unsigned)(shared.bytes / 4);
    void *parameters[] = {&shared.at, &with, &words};
    TRY(cuLaunchKernel(tools.fill, blocks_for(words), 1, 1, 256, 1, 1, 0, NULL, parameters, NULL));
    return cuCtxSynchronize();
}

static CUresult give(size_t bytes, uint32_t with) {
    int descriptor;
    shared.seed = with;
    TRY(cuMemCreate(&handle, bytes, &exportable, 0));
    TRY(map_shared(bytes));
    TRY(fill(with));
    TRY(cuMemExportToShareableHandle(&descriptor, handle, DESCRIPTOR, 0));
    pass_on(place(), descriptor, bytes);
    return CUDA_SUCCESS;
}

static CUresult take(void) {
    size_t bytes;
    int descriptor = passed_on(place(), &bytes);
    CUresult result = cuMemImportFromShareableHandle(&handle, (void *)(uintptr_t)descriptor, DESCRIPTOR);
    close(descriptor);
    TRY(result);
    return map_shared(bytes);
}

static CUresult sum(const struct piece *piece, CUdeviceptr out, uint64_t *got) {
    unsigned words = (unsigned)(piece->bytes / 4);
    CUdeviceptr at = piece->at;
    void *parameters[] = {&out, &at, &words};
    TRY(cuMemsetD8(out, 0, sizeof *got));
    TRY(cuLaunchKernel(tools.sum, blocks_for(words), 1, 1, 256, 1, 1, 0, NULL, parameters, NULL));
    return cuMemcpyDtoH(got, out, sizeof *got);
}

static CUresult check(uint32_t with, int *right) {
    static CUdeviceptr out;
    struct piece *pieces[] = {&own, &more, &shared};
    if (!out) TRY(cuMemAlloc(&out, sizeof(uint64_t)));
    shared.seed = with;
    *right = 1;
    for (unsigned i = 0; i < COUNT_OF(pieces); i++) {
        uint64_t got;
        if (!pieces[i]->at) continue;
        TRY(sum(pieces[i], out, &got));
        *right &= got == sum_of(pieces[i]->seed, pieces[i]->bytes / 4);
    }
    return CUDA_SUCCESS;
}

static CUresult turns(int begins) {
    CUdeviceptr mine = begins ? shared.at : shared.at + 4, others = begins ? shared.at + 4 : shared.at;
    CUstream stream;
    TRY(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    for (unsigned round = 1; round <= ROUNDS; round++) {
        if (begins) TRY(cuStreamWriteValue32(stream, mine, round, 0));
        TRY(cuStreamWaitValue32(stream, others, round, AT_LEAST));
        if (!begins) TRY(cuStreamWriteValue32(stream, mine, round, 0));
        TRY(cuStreamSynchronize(stream));
    }
    return cuStreamDestroy(stream);
}

static CUresult drop(void) {
    TRY(cuMemUnmap(shared.at, shared.bytes));
    TRY(cuMemAddressFree(shared.at, shared.bytes));
    shared.at = 0;
    return cuMemRelease(handle);
}

static CUresult obey(char *line, const char **said) {
    char *word = strtok(line, " \n"), *first = strtok(NULL, " \n"), *second = strtok(NULL, " \n");
    unsigned number = first ? (unsigned)strtoul(first, NULL, 10) : 0;
    if (strcmp(word, "give") == 0) {
        *said = "given";
        return give(number * MIB, (uint32_t)strtoul(second, NULL, 10));
    }
    if (strcmp(word, "take") == 0) {
        *said = "taken";
        return take();
    }
    if (strcmp(word, "check") == 0) {
        int right = 0;
        TRY(check(number, &right));
        *said = right ? "right" : "wrong";
        return CUDA_SUCCESS;
    }
    if (strcmp(word, "touch") == 0) {
        int right = 0;
        TRY(check(shared.seed, &right));
        *said = right ? "touched well" : "wrong";
        return CUDA_SUCCESS;
    }
    if (strcmp(word, "write") == 0) {
        *said = "written";
        shared.seed = number;
        return fill(number);
    }
    if (strcmp(word, "zero") == 0) {
        *said = "zeroed";
        TRY(cuMemsetD8(shared.at, 0, shared.bytes));
        return cuCtxSynchronize();
    }
    if (strcmp(word, "grow") == 0) {
        CUdeviceptr at;
        /* The answer is the program's to see. */
        TRY(cuMemAlloc(&at, number * MIB));
        TRY(cuMemFree(at));
        more = piece_new(&tools, number * MIB, seed + 1, NULL);
        *said = "grown";
        return cuCtxSynchronize();
    }
    if (strcmp(word, "turns") == 0) {
        *said = "turned";
        return turns(number);
    }
    if (strcmp(word, "free") == 0) {
        size_t free, total;
        TRY(cuMemGetInfo(&free, &total));
        *said = free < number * MIB ? "less" : "more";
        return CUDA_SUCCESS;
    }
    REQUIRE(strcmp(word, "drop") == 0, "no such word: %s", word);
    *said = "dropped";
    return drop();
}

int main(int argc, char **argv) {
    struct option_row options[] = {{"--megabytes", &megabytes}, {"--seed", &seed}};
    read_options(argc, argv, options, COUNT_OF(options));
    start();
    tools = tools_from(load_kernels());
    own = piece_new(&tools, megabytes * MIB, seed, NULL);
    CHECK(cuCtxSynchronize());
    setvbuf(stdout, NULL, _IOLBF, 0);
    printf("ready %d\n", (int)getpid());
    char line[512];
    while (fgets(line, sizeof line, stdin) && strcmp(line, "quit\n") != 0) {
        const char *said = NULL;
        CUresult result = obey(line, &said);
        if (result) printf("answer %d\n", (int)result);
        else puts(said);
    }
    puts("result weights ok");
    return 0;
}
