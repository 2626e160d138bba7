/* Kernels reach memory by addresses that come to the device in every way that the driver allows: late,
 * in parts, at odd places, or past what their launches show.
 *
 * The program has rows of numbers and a table of their addresses. When all memory has gone, the
 * table is made in one of these ways, and a kernel collects the memory that it leads to.
 */
#include "legal.h"

__asm__(".pushsection .rodata\n"
        ".local reach_ptx\n"
        "reach_ptx:\n"
        ".incbin \"reach.ptx\"\n"
        ".byte 0\n"
        ".popsection\n");
extern const char reach_ptx[] __attribute__((visibility("hidden")));

enum { ROWS = 4, LENGTH = 1024, TABLE = ROWS * sizeof(CUdeviceptr) };

/* Each row's, which takes its time to come back. */
static size_t row_bytes = 8 * MIB;

static CUmodule reach;
static CUfunction gather, gather_packed, gather_variable, gather_managed, copy_after, chase;
static CUdeviceptr rows[ROWS], table, out, ballast;
static CUdeviceptr *pinned;
static volatile unsigned *flag;
static CUstream stream;
static unsigned n_rows = ROWS, length = LENGTH;

static CUdeviceptr row_new(uint32_t seed) {
    CUdeviceptr row = device_alloc(row_bytes);
    unsigned words = row_bytes / 4;
    LAUNCH(tools.fill, NULL, words, &row, &seed, &words);
    return row;
}

static void make_all(void) {
    void *memory;
    const char *megabytes = getenv("REACH_MEGABYTES");
    if (megabytes) row_bytes = strtoul(megabytes, NULL, 10) * MIB;
    take_gpu();
    CHECK(cuModuleLoadData(&reach, reach_ptx));
    gather = kernel(load_kernels(), "gather");
    chase = kernel(load_kernels(), "chase");
    gather_packed = kernel(reach, "gather_packed");
    gather_variable = kernel(reach, "gather_variable");
    gather_managed = kernel(reach, "gather_managed");
    copy_after = kernel(reach, "copy_after");
    stream = stream_new(CU_STREAM_NON_BLOCKING);
    out = device_alloc(ROWS * LENGTH * 4);
    table = device_alloc(2 * MIB);
    /* Neighbours come back together: the rows lie far from their table, and come later. */
    ballast = device_alloc(5 * row_bytes);
    CHECK(cuMemsetD32(ballast, 0x5a5a5a5a, 5 * row_bytes / 4));
    for (unsigned i = 0; i < ROWS; i++) rows[i] = row_new(100 + i);
    CHECK(cuMemsetD8(table, 0, 4096));
    CHECK(cuMemsetD8(out, 0, ROWS * LENGTH * 4));
    CHECK(cuMemHostAlloc(&memory, 4096, CU_MEMHOSTALLOC_DEVICEMAP));
    pinned = memset(memory, 0, 4096);
    flag = flags_new(1);
    CHECK(cuCtxSynchronize());
}

static void put(void *to) { memcpy(to, rows, TABLE); }

/* A stream's own doing: after its earlier work. */
static void put_late(void *to) {
    sleep_ms(50);
    put(to);
}

/* The host writes memory that streams were told to read, and lets them come to it. */
static void put_and_go(void) {
    put(pinned);
    raise_flag(flag);
}

static void collect(CUstream in, CUdeviceptr from) { LAUNCH(gather, in, ROWS *LENGTH, &out, &from, &n_rows, &length); }

static void check_rows(unsigned count) {
    uint32_t got[LENGTH];
    step("waiting for the device");
    CUresult answer = cuCtxSynchronize();
    REQUIRE(answer == CUDA_SUCCESS, "the work answers %d", (int)answer);
    for (unsigned i = 0; i < count; i++) {
        CHECK(cuMemcpyDtoH(got, out + i * sizeof got, sizeof got));
        for (unsigned at = 0; at < LENGTH; at++)
            REQUIRE(got[at] == hash32(at + 100 + i), "row %u has %#x at %u", i, got[at], at);
    }
    printf("%u rows are right\n", count);
}

static void check_all(void) { check_rows(ROWS); }

/* --- host memory that is written after the call -------------------------------------------- */

static void late_copy_in(CUstream waits, CUstream copies) {
    wait_for_line();
    wait_flag(waits, flag);
    CHECK(cuMemcpyHtoDAsync(table, pinned, TABLE, copies));
    collect(copies, table);
    put_and_go();
    check_all();
}

static void late_copy(void) { late_copy_in(stream, stream); }

/* Work in the legacy stream waits for blocking ones, and they for it. So the documentation has it; NVIDIA's driver 580 reads a
 * source as small as this for either during the call (measured), so on a GPU these two end with 700 also without Baton. */
static void late_in_legacy(void) { late_copy_in(stream_new(CU_STREAM_DEFAULT), NULL); }
static void late_behind_legacy(void) { late_copy_in(NULL, stream_new(CU_STREAM_DEFAULT)); }

static void late_behind_event(void) {
    CUstream first = stream_new(CU_STREAM_NON_BLOCKING);
    CUevent event;
    CHECK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    wait_for_line();
    wait_flag(first, flag);
    CHECK(cuEventRecord(event, first));
    CHECK(cuStreamWaitEvent(stream, event, 0));
    CHECK(cuMemcpyHtoDAsync(table, pinned, TABLE, stream));
    collect(stream, table);
    put_and_go();
    check_all();
}

/* A kernel that another stream lets go on keeps the copy from beginning. */
static void late_behind_kernel(void) {
    unsigned one = 1;
    CUdeviceptr seen = out, at = on_device(flag);
    wait_for_line();
    LAUNCH(tools.linger, stream, 1, &seen, &at, &one);
    CHECK(cuMemcpyHtoDAsync(table, pinned, TABLE, stream));
    collect(stream, table);
    put_and_go();
    check_all();
}

static void late_2d(void) {
    CUDA_MEMCPY2D copy = {.srcMemoryType = CU_MEMORYTYPE_HOST,
                          .srcHost = pinned,
                          .srcPitch = 16,
                          .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                          .dstDevice = table,
                          .dstPitch = 16,
                          .WidthInBytes = 16,
                          .Height = ROWS / 2};
    wait_for_line();
    wait_flag(stream, flag);
    CHECK(cuMemcpy2DAsync(&copy, stream));
    collect(stream, table);
    put_and_go();
    check_all();
}

static void late_by_host_function(void) {
    wait_for_line();
    CHECK(cuLaunchHostFunc(stream, put_late, pinned));
    CHECK(cuMemcpyHtoDAsync(table, pinned, TABLE, stream));
    collect(stream, table);
    check_all();
}

/* The call waits for the stream, and only then reads its source. */
static void late_synchronous(void) {
    wait_for_line();
    CHECK(cuLaunchHostFunc(NULL, put_late, pinned));
    CHECK(cuMemcpyHtoD(table, pinned, TABLE));
    collect(NULL, table);
    check_all();
}

static void late_registered(void) {
    CUdeviceptr *own = aligned_alloc(4096, 4096);
    CHECK(cuMemHostRegister(own, 4096, CU_MEMHOSTREGISTER_DEVICEMAP));
    memset(own, 0, 4096);
    wait_for_line();
    wait_flag(stream, flag);
    CHECK(cuMemcpyHtoDAsync(table, own, TABLE, stream));
    collect(stream, table);
    put(own);
    raise_flag(flag);
    check_all();
}

/* The kernel reads the host's table itself, until it has ended. */
static void direct(void) {
    wait_for_line();
    wait_flag(stream, flag);
    collect(stream, on_device((volatile unsigned *)pinned));
    put_and_go();
    check_all();
}

/* A table that lies deep in a large buffer. */
static void direct_deep(void) {
    enum { LARGE = 40 << 20 };
    void *large;
    CHECK(cuMemHostAlloc(&large, LARGE, CU_MEMHOSTALLOC_DEVICEMAP));
    memset(large, 0, LARGE);
    CUdeviceptr base, *at = (CUdeviceptr *)((char *)large + LARGE - 4096);
    put(at);
    CHECK(cuMemHostGetDevicePointer(&base, large, 0));
    wait_for_line();
    CUdeviceptr from = base + LARGE - 4096;
    CUdeviceptr first = base;
    unsigned long long skip = (from - base) / 4;
    LAUNCH(copy_after, stream, TABLE / 4, &table, &first, &skip, &(unsigned){TABLE / 4});
    collect(stream, table);
    check_all();
}

/* The device finds the host's memory by an address in its own, and its own by one in the host's. */
static void chain_through(void *host) {
    struct node {
        CUdeviceptr next, value;
    } nodes[3] = {{(CUdeviceptr)host, 1}, {rows[1], 20}, {0, 300}}, last = nodes[2];
    unsigned hops = 3;
    CUdeviceptr got = 0, sum = table + 64;
    memcpy(host, &nodes[1], sizeof nodes[1]);
    CHECK(cuMemcpyHtoD(rows[0], &nodes[0], sizeof nodes[0]));
    CHECK(cuMemcpyHtoD(rows[1], &last, sizeof last));
    wait_for_line();
    LAUNCH(chase, stream, 1, &sum, &rows[0], &hops);
    step("waiting for the device");
    CUresult answer = cuCtxSynchronize();
    REQUIRE(answer == CUDA_SUCCESS, "the work answers %d", (int)answer);
    CHECK(cuMemcpyDtoH(&got, sum, sizeof got));
    printf("the chain adds to %llu\n", (unsigned long long)got);
}

static void chain(void) { chain_through(pinned); }

/* The same in pages that the program has not told the driver about. */
static void chain_pageable(void) { chain_through(aligned_alloc(4096, 4096)); }

static void direct_pageable(void) {
    CUdeviceptr *own = aligned_alloc(4096, 4096);
    memset(own, 0, 4096);
    wait_for_line();
    wait_flag(stream, flag);
    collect(stream, (CUdeviceptr)own);
    put(own);
    raise_flag(flag);
    check_all();
}

static void variable(void) {
    CUdeviceptr at;
    size_t bytes;
    CHECK(cuModuleGetGlobal(&at, &bytes, reach, "rows_variable"));
    CHECK(cuMemcpyHtoD(table, rows, TABLE));
    wait_for_line();
    wait_flag(stream, flag);
    CHECK(cuMemcpyHtoDAsync(at, pinned + ROWS, sizeof *pinned, stream));
    LAUNCH(gather_variable, stream, ROWS * LENGTH, &out, &n_rows, &length);
    pinned[ROWS] = table;
    put_and_go();
    check_all();
}

static void managed(void) {
    CUdeviceptr at;
    size_t bytes;
    CHECK(cuModuleGetGlobal(&at, &bytes, reach, "rows_managed"));
    CHECK(cuMemcpyHtoD(table, rows, TABLE));
    wait_for_line();
    wait_flag(stream, flag);
    LAUNCH(gather_managed, stream, ROWS * LENGTH, &out, &n_rows, &length);
    *(volatile CUdeviceptr *)at = table;
    raise_flag(flag);
    check_all();
}

/* --- graphs -------------------------------------------------------------------------------- */

static CUDA_KERNEL_NODE_PARAMS collecting(CUdeviceptr *from, void **params) {
    void *all[] = {&out, from, &n_rows, &length};
    memcpy(params, all, sizeof all);
    return (CUDA_KERNEL_NODE_PARAMS){.func = gather,
                                     .gridDimX = blocks_for(ROWS * LENGTH),
                                     .gridDimY = 1,
                                     .gridDimZ = 1,
                                     .blockDimX = 256,
                                     .blockDimY = 1,
                                     .blockDimZ = 1,
                                     .kernelParams = params};
}

/* Copies so and collects. */
static CUgraphExec copy_and_collect(const CUDA_MEMCPY3D *copy) {
    CUgraph graph;
    CUgraphNode first, second;
    CUgraphExec exec;
    void *params[4];
    CUDA_KERNEL_NODE_PARAMS node = collecting(&table, params);
    CHECK(cuGraphCreate(&graph, 0));
    CHECK(cuGraphAddMemcpyNode(&first, graph, NULL, 0, copy, context));
    CHECK(cuGraphAddKernelNode(&second, graph, &first, 1, &node));
    CHECK(cuGraphInstantiate(&exec, graph, 0));
    return exec;
}

static void late_graph(void) {
    CUDA_MEMCPY3D copy = {.srcMemoryType = CU_MEMORYTYPE_HOST,
                          .srcHost = pinned,
                          .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                          .dstDevice = table,
                          .WidthInBytes = TABLE,
                          .Height = 1,
                          .Depth = 1};
    CUgraphExec exec = copy_and_collect(&copy);
    wait_for_line();
    wait_flag(stream, flag);
    CHECK(cuGraphLaunch(exec, stream));
    put_and_go();
    check_all();
}

/* The table lies in another row and plane of the host's memory than where that begins. */
static void graph_rows(void) {
    CUDA_MEMCPY3D copy = {.srcXInBytes = 32,
                          .srcY = 3,
                          .srcZ = 2,
                          .srcMemoryType = CU_MEMORYTYPE_HOST,
                          .srcHost = pinned,
                          .srcPitch = 128,
                          .srcHeight = 8,
                          .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                          .dstDevice = table,
                          .WidthInBytes = TABLE,
                          .Height = 1,
                          .Depth = 1};
    put((char *)pinned + (2 * 8 + 3) * 128 + 32);
    CUgraphExec exec = copy_and_collect(&copy);
    wait_for_line();
    CHECK(cuGraphLaunch(exec, stream));
    check_all();
}

static void graph_direct(void) {
    CUgraph graph;
    CUgraphNode only;
    CUgraphExec exec;
    void *params[4];
    CUdeviceptr from = on_device((volatile unsigned *)pinned);
    CUDA_KERNEL_NODE_PARAMS node = collecting(&from, params);
    CHECK(cuGraphCreate(&graph, 0));
    CHECK(cuGraphAddKernelNode(&only, graph, NULL, 0, &node));
    CHECK(cuGraphInstantiate(&exec, graph, 0));
    for (int i = 0; i < 2; i++) {
        *flag = 0;
        memset(pinned, 0, TABLE);
        wait_for_line();
        wait_flag(stream, flag);
        CHECK(cuGraphLaunch(exec, stream));
        put_and_go();
        check_all();
    }
}

/* --- words that are written by streams and fills, whole and in parts ----------------------- */

static void write_words(void) {
    wait_for_line();
    for (unsigned i = 0; i < ROWS; i++) CHECK(cuStreamWriteValue64(stream, table + 8 * i, rows[i], 0));
    collect(stream, table);
    check_all();
}

static void write_halves(void) {
    wait_for_line();
    for (unsigned i = 0; i < 2 * ROWS; i++)
        CHECK(cuStreamWriteValue32(stream, table + 4 * i, (uint32_t)(rows[i / 2] >> 32 * (i % 2)), 0));
    collect(stream, table);
    check_all();
}

/* Only the lower halves change: the upper ones are those of other addresses. */
static void write_lower_halves(void) {
    CUdeviceptr others[ROWS];
    for (unsigned i = 0; i < ROWS; i++) {
        /* Rows may lie on both sides of a multiple of 4 GiB: then it is an address in the row itself. */
        CUdeviceptr next = rows[(i + 1) % ROWS], here = rows[i] + 4;
        others[i] = !((out ^ rows[i]) >> 32) ? out : !((next ^ rows[i]) >> 32) ? next : here;
    }
    CHECK(cuMemcpyHtoD(table, others, TABLE));
    wait_for_line();
    for (unsigned i = 0; i < ROWS; i++) CHECK(cuStreamWriteValue32(stream, table + 8 * i, (uint32_t)rows[i], 0));
    CHECK(cuStreamWriteValue32(stream, table + 4, (uint32_t)(rows[0] >> 32), 0));
    collect(stream, table);
    check_all();
}

static void fill_halves(void) {
    wait_for_line();
    for (unsigned i = 0; i < 2 * ROWS; i++)
        CHECK(cuMemsetD32Async(table + 4 * i, (uint32_t)(rows[i / 2] >> 32 * (i % 2)), 1, stream));
    collect(stream, table);
    check_all();
}

static void fill_quarters(void) {
    wait_for_line();
    for (unsigned i = 0; i < 4 * ROWS; i++)
        CHECK(cuMemsetD16Async(table + 2 * i, (uint16_t)(rows[i / 4] >> 16 * (i % 4)), 1, stream));
    collect(stream, table);
    check_all();
}

static void fill_bytes(void) {
    wait_for_line();
    for (unsigned i = 0; i < 8 * ROWS; i++)
        CHECK(cuMemsetD8Async(table + i, (uint8_t)(rows[i / 8] >> 8 * (i % 8)), 1, stream));
    collect(stream, table);
    check_all();
}

/* Every second word of four bytes, row by row. */
static void fill_2d(void) {
    n_rows = 1;
    wait_for_line();
    CHECK(cuMemsetD2D32Async(table, 8, (uint32_t)rows[0], 1, ROWS, stream));
    CHECK(cuMemsetD2D32Async(table + 4, 8, (uint32_t)(rows[0] >> 32), 1, ROWS, stream));
    collect(stream, table);
    check_rows(1);
}

/* --- copies of parts of words -------------------------------------------------------------- */

/* In pieces that end anywhere, from memory that begins anywhere. */
static void copy_parts(void) {
    char odd[TABLE + 3];
    memcpy(odd + 3, rows, TABLE);
    wait_for_line();
    for (unsigned at = 0, next; at < TABLE; at = next) {
        next = at + 3 + at % 3;
        next = next < TABLE ? next : TABLE;
        CHECK(cuMemcpyHtoDAsync(table + at, odd + 3 + at, next - at, stream));
    }
    collect(stream, table);
    check_all();
}

static void copy_odd(void) {
    char all[TABLE + 5];
    memset(all, 0, sizeof all);
    memcpy(all + 5, rows, TABLE);
    wait_for_line();
    /* So that its addresses lie at odd places of the copied range. */
    CHECK(cuMemcpyHtoD(table + 3, all, sizeof all));
    collect(stream, table + 8);
    check_all();
}

static void move_halves_so(int in_rows) {
    uint32_t halves[2 * ROWS];
    CUdeviceptr from = table + MIB;
    for (unsigned i = 0; i < 2 * ROWS; i++) halves[i] = (uint32_t)(rows[i % ROWS] >> (i < ROWS ? 0 : 32));
    CHECK(cuMemcpyHtoD(from, halves, sizeof halves));
    wait_for_line();
    for (unsigned half = 0; half < 2; half++) {
        CUDA_MEMCPY2D copy = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                              .srcDevice = from + half * 4 * ROWS,
                              .srcPitch = 4,
                              .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                              .dstDevice = table + 4 * half,
                              .dstPitch = 8,
                              .WidthInBytes = 4,
                              .Height = ROWS};
        if (in_rows) CHECK(cuMemcpy2DAsync(&copy, stream));
        for (unsigned i = 0; !in_rows && i < ROWS; i++)
            CHECK(cuMemcpyDtoDAsync(table + 4 * half + 8 * i, from + half * 4 * ROWS + 4 * i, 4, stream));
    }
    collect(stream, table);
    check_all();
}

static void move_halves(void) { move_halves_so(0); }
static void move_rows_of_halves(void) { move_halves_so(1); }

/* --- parameters ---------------------------------------------------------------------------- */

static void packed(void) {
    struct __attribute__((packed)) {
        char tag;
        CUdeviceptr out, rows;
        unsigned n_rows, length;
    } all = {1, out, table, ROWS, LENGTH};
    CHECK(cuMemcpyHtoD(table, rows, TABLE));
    wait_for_line();
    LAUNCH(gather_packed, stream, ROWS * LENGTH, &all);
    check_all();
}

/* Addresses from which kernels go on to their data. */
static void before(void) {
    /* The last one lies before all memory of the program. */
    size_t distances[ROWS] = {8, 4096, 200 << 10, rows[ROWS - 1] - (table & ~(CUdeviceptr)(2 * MIB - 1)) + 16 * MIB};
    unsigned words = LENGTH;
    if (distances[ROWS - 1] > 512 * MIB) distances[ROWS - 1] = 16;
    for (unsigned i = 0; i < ROWS; i++) {
        CUdeviceptr from = rows[i] - distances[i], to = out + i * LENGTH * 4;
        unsigned long long first = distances[i] / 4;
        wait_for_line();
        LAUNCH(copy_after, stream, words, &to, &from, &first, &words);
        CHECK(cuStreamSynchronize(stream));
    }
    check_all();
}

static const struct legal_case cases[] = {
    {"late-copy", late_copy},
    {"late-in-legacy", late_in_legacy},
    {"late-behind-legacy", late_behind_legacy},
    {"late-behind-event", late_behind_event},
    {"late-behind-kernel", late_behind_kernel},
    {"late-2d", late_2d},
    {"late-by-host-function", late_by_host_function},
    {"late-synchronous", late_synchronous},
    {"late-registered", late_registered},
    {"late-graph", late_graph},
    {"graph-rows", graph_rows},
    {"graph-direct", graph_direct},
    {"direct", direct},
    {"direct-deep", direct_deep},
    {"chain", chain},
    {"variable", variable},
    {"managed", managed},
    {"direct-pageable", direct_pageable},
    {"chain-pageable", chain_pageable},
    {"write-words", write_words},
    {"write-halves", write_halves},
    {"write-lower-halves", write_lower_halves},
    {"fill-halves", fill_halves},
    {"fill-quarters", fill_quarters},
    {"fill-bytes", fill_bytes},
    {"fill-2d", fill_2d},
    {"copy-parts", copy_parts},
    {"copy-odd", copy_odd},
    {"move-halves", move_halves},
    {"move-rows-of-halves", move_rows_of_halves},
    {"packed", packed},
    {"before", before},
};

int main(int argc, char **argv) {
    return play(argc, argv, make_all, cases, sizeof cases / sizeof *cases);
}
