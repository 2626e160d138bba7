/* Host memory that a call or a graph once named and that is not there any more, or that is not the
 * host's: a reader of its contents has to ask first if it can be read.
 */
#include "legal.h"

enum { SOURCE = 1 << 20 };

/* So much memory that it takes a while to come back, and a little that is asked for first. */
static struct piece ballast, target;

static void make_memory(void) {
    target = piece_new(&tools, SOURCE, 1, NULL);
    ballast = piece_new(&tools, 40 * MIB, 2, NULL);
    CHECK(cuCtxSynchronize());
}

static void check_memory(void) {
    step("checking all memory");
    piece_check(&tools, &target, "what was copied", 0);
    piece_check(&tools, &ballast, "the rest of the memory", 0);
}

/* --- graphs -------------------------------------------------------------------------------- */

/* Host memory with the contents of a piece of that seed, in pages of its own. */
static uint32_t *source_new(uint32_t seed) {
    int readable = PROT_READ | PROT_WRITE, anonymous = MAP_PRIVATE | MAP_ANONYMOUS;
    uint32_t *source = mmap(NULL, SOURCE, readable, anonymous, -1, 0);
    REQUIRE(source != MAP_FAILED, "no host memory");
    for (unsigned i = 0; i < SOURCE / 4; i++) source[i] = hash32(i + seed);
    return source;
}

static void source_free(uint32_t *source) {
    REQUIRE(munmap(source, SOURCE) == 0, "it stays mapped");
}

static CUgraph graph_of_copy(const uint32_t *source, CUgraphNode *node) {
    CUDA_MEMCPY3D copy = {.srcMemoryType = CU_MEMORYTYPE_HOST,
                          .srcHost = source,
                          .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                          .dstDevice = target.at,
                          .WidthInBytes = SOURCE,
                          .Height = 1,
                          .Depth = 1};
    CUgraph graph;
    CHECK(cuGraphCreate(&graph, 0));
    CHECK(cuGraphAddMemcpyNode(node, graph, NULL, 0, &copy, context));
    return graph;
}

/* A graph inside of a graph is replaced, and the program frees the source of the old one. */
static void child(void) {
    uint32_t *first = source_new(3), *second = source_new(4);
    CUgraph whole;
    CUgraphNode copy, inside;
    CUgraphExec exec;
    make_memory();
    CUgraph children[] = {graph_of_copy(first, &copy), graph_of_copy(second, &copy)};
    CHECK(cuGraphCreate(&whole, 0));
    CHECK(cuGraphAddChildGraphNode(&inside, whole, NULL, 0, children[0]));
    CHECK(cuGraphInstantiate(&exec, whole, 0));
    CHECK(cuGraphExecChildGraphNodeSetParams(exec, inside, children[1]));
    source_free(first);
    wait_for_line();
    CHECK(cuGraphLaunch(exec, NULL));
    CHECK(cuCtxSynchronize());
    target.seed = 4;
    check_memory();
}

/* A node that copies is left out, and the program frees its source. */
static void disabled(void) {
    uint32_t *source = source_new(3);
    CUgraphNode copy, fill;
    CUgraphExec exec;
    make_memory();
    CUgraph graph = graph_of_copy(source, &copy);
    unsigned words = SOURCE / 4;
    uint32_t seed = 5;
    CUDA_KERNEL_NODE_PARAMS params = {.func = tools.fill,
                                      .gridDimX = blocks_for(words),
                                      .gridDimY = 1,
                                      .gridDimZ = 1,
                                      .blockDimX = 256,
                                      .blockDimY = 1,
                                      .blockDimZ = 1,
                                      .kernelParams = (void *[]){&target.at, &seed, &words}};
    CHECK(cuGraphAddKernelNode(&fill, graph, &copy, 1, &params));
    CHECK(cuGraphInstantiate(&exec, graph, 0));
    CHECK(cuGraphNodeSetEnabled(exec, copy, 0));
    source_free(source);
    wait_for_line();
    CHECK(cuGraphLaunch(exec, NULL));
    CHECK(cuCtxSynchronize());
    target.seed = 5;
    check_memory();
}

/* --- calls --------------------------------------------------------------------------------- */

/* Addresses of the device in the place of the host's: the driver knows their kind. */
static void device_address(void) {
    const void *source;
    make_memory();
    source = (const void *)ballast.at;
    wait_for_line();
    CHECK(cuMemcpyHtoD(target.at, source, SOURCE));
    target.seed = 2;
    piece_check(&tools, &target, "copied as if from the host", 0);
    printf("a copy over the end of it answers %d\n",
           (int)cuMemcpyHtoD(target.at, (const char *)source + ballast.bytes - 64, 128));
    wait_for_line();
    piece_write(&tools, &ballast, 3, NULL);
    CHECK(cuMemcpyHtoDAsync(target.at, source, SOURCE, NULL));
    CHECK(cuCtxSynchronize());
    target.seed = 3;
    piece_check(&tools, &target, "copied so in a stream", 0);
    wait_for_line();
    CHECK(cuMemcpyDtoH((void *)ballast.at, target.at, SOURCE));
    CHECK(cuCtxSynchronize());
    check_memory();
}

/* Pinned memory that comes and goes. */
enum { PINNED = 8 << 20 };
static _Atomic(char *) pinned;
static atomic_int over;

static char *pin(void) {
    void *memory;
    CHECK(cuMemHostAlloc(&memory, PINNED, CU_MEMHOSTALLOC_PORTABLE));
    memset(memory, 1, PINNED);
    return memory;
}

static void *comes_and_goes(void *nothing) {
    CHECK(cuCtxSetCurrent(context));
    while (!atomic_load(&over)) {
        char *before = atomic_exchange(&pinned, pin());
        sleep_ms(1);
        CHECK(cuMemFreeHost(before));
    }
    return nothing;
}

/* A kernel is given addresses that it does not use: the memory there may be gone. */
static void pinned_freed(void) {
    enum { LAUNCHES = 60 };
    CUfunction add = kernel(load_kernels(), "add");
    make_memory();
    atomic_store(&pinned, pin());
    wait_for_line();
    pthread_t thread = go(comes_and_goes, NULL);
    unsigned none = 0;
    for (unsigned i = 0; i < LAUNCHES; i++) {
        CUdeviceptr left_over = (CUdeviceptr)atomic_load(&pinned);
        sleep_ms(1);
        LAUNCH(add, NULL, 1, &target.at, &left_over, &left_over, &none);
    }
    atomic_store(&over, 1);
    join(thread);
    CHECK(cuCtxSynchronize());
    check_memory();
}

int main(int argc, char **argv) {
    static const struct legal_case cases[] = {{"child", child},
                                              {"disabled", disabled},
                                              {"device-address", device_address},
                                              {"pinned-freed", pinned_freed}};
    return play(argc, argv, take_gpu, cases, COUNT_OF(cases));
}
