/* Graphs: one captured from two streams and replayed with new inputs, one built node by node whose
 * kernel gets another parameter between launches, and one that is replaced as a whole by update.
 */
#include "common.h"

static unsigned n = 20000, steps = 10, seed = 1;
static CUmodule module;
static CUcontext context;

/* --- captured ------------------------------------------------------------------------------ */

struct buffers {
    CUstream main, side;
    CUevent fork, join;
    CUdeviceptr x, y, z;
    float *in, *out; /* pinned: the graph copies from and to these addresses each time */
};

/* out = k * in + busy(in), with the product on the side stream. */
static CUgraph capture(struct buffers *b, float k) {
    CUfunction scale = kernel(module, "scale"), busy = kernel(module, "busy");
    CUfunction add = kernel(module, "add");
    CUstreamCaptureStatus status;
    CUgraph graph;
    unsigned rounds = 3;
    size_t bytes = n * sizeof(float);
    CHECK(cuStreamBeginCapture(b->main, CU_STREAM_CAPTURE_MODE_GLOBAL));
    CHECK(cuMemcpyHtoDAsync(b->x, b->in, bytes, b->main));
    CHECK(cuEventRecord(b->fork, b->main));
    CHECK(cuStreamWaitEvent(b->side, b->fork, 0));
    CHECK(cuStreamIsCapturing(b->side, &status));
    REQUIRE(status == CU_STREAM_CAPTURE_STATUS_ACTIVE, "the side stream did not join the capture");
    LAUNCH(scale, b->side, n, &b->y, &b->x, &k, &n);
    CHECK(cuEventRecord(b->join, b->side));
    CHECK(cuMemcpyDtoDAsync(b->z, b->x, bytes, b->main));
    LAUNCH(busy, b->main, n, &b->z, &n, &rounds);
    CHECK(cuStreamWaitEvent(b->main, b->join, 0));
    LAUNCH(add, b->main, n, &b->z, &b->y, &b->z, &n);
    CHECK(cuMemcpyDtoHAsync(b->out, b->z, bytes, b->main));
    CHECK(cuStreamEndCapture(b->main, &graph));
    return graph;
}

/* Launches with fresh inputs, several times, and checks each result. */
static uint64_t replay(struct buffers *b, CUgraphExec exec, float k, uint64_t sum) {
    for (unsigned step = 0; step < steps; step++) {
        for (unsigned i = 0; i < n; i++) b->in[i] = random_float(seed + step, i);
        memset(b->out, 0xff, n * sizeof(float));
        CHECK(cuGraphLaunch(exec, b->main));
        CHECK(cuStreamSynchronize(b->main));
        for (unsigned i = 0; i < n; i++) {
            float x = b->in[i];
            for (int round = 0; round < 3; round++) x = fmaf(x, 0.999f, 0.5f);
            x = k * b->in[i] + x;
            require_same("the captured graph's result", &b->out[i], &x, 1, sizeof x);
        }
        sum = checksum(sum, b->out, n * sizeof(float));
    }
    return sum;
}

static uint64_t captured(uint64_t sum) {
    struct buffers b;
    size_t bytes = n * sizeof(float), nodes = 0;
    CHECK(cuStreamCreate(&b.main, CU_STREAM_NON_BLOCKING));
    CHECK(cuStreamCreate(&b.side, CU_STREAM_NON_BLOCKING));
    CHECK(cuEventCreate(&b.fork, CU_EVENT_DISABLE_TIMING));
    CHECK(cuEventCreate(&b.join, CU_EVENT_DISABLE_TIMING));
    b.x = device_alloc(bytes), b.y = device_alloc(bytes), b.z = device_alloc(bytes);
    CHECK(cuMemHostAlloc((void **)&b.in, bytes, 0));
    CHECK(cuMemHostAlloc((void **)&b.out, bytes, 0));

    CUgraphExec exec;
    CUgraph graph = capture(&b, 2.0f);
    CHECK(cuGraphGetNodes(graph, NULL, &nodes));
    REQUIRE(nodes == 6, "the captured graph has %zu nodes, not 6", nodes);
    CHECK(cuGraphInstantiate(&exec, graph, 0));
    CHECK(cuGraphUpload(exec, b.main));
    sum = replay(&b, exec, 2.0f, sum);

    /* The same shape with another factor: the instance takes it over without a new one. */
    CUgraphExecUpdateResultInfo update;
    CUgraph other = capture(&b, -0.75f);
    CHECK(cuGraphExecUpdate(exec, other, &update));
    REQUIRE(update.result == CU_GRAPH_EXEC_UPDATE_SUCCESS, "the update answered %d",
            (int)update.result);
    sum = replay(&b, exec, -0.75f, sum);

    CHECK(cuGraphExecDestroy(exec));
    CHECK(cuGraphDestroy(graph));
    CHECK(cuGraphDestroy(other));
    CHECK(cuMemFree(b.x));
    CHECK(cuMemFree(b.y));
    CHECK(cuMemFree(b.z));
    CHECK(cuMemFreeHost(b.in));
    CHECK(cuMemFreeHost(b.out));
    CHECK(cuEventDestroy(b.fork));
    CHECK(cuEventDestroy(b.join));
    CHECK(cuStreamDestroy(b.main));
    CHECK(cuStreamDestroy(b.side));
    return sum;
}

/* --- built node by node -------------------------------------------------------------------- */

static void count_run(void *data) { ++*(unsigned *)data; }

static CUDA_KERNEL_NODE_PARAMS axpy_node(CUfunction axpy, void **params) {
    return (CUDA_KERNEL_NODE_PARAMS){.func = axpy,
                                     .gridDimX = blocks_for(n),
                                     .gridDimY = 1,
                                     .gridDimZ = 1,
                                     .blockDimX = 256,
                                     .blockDimY = 1,
                                     .blockDimZ = 1,
                                     .kernelParams = params};
}

/* y is set to zero bits, y = a * x + y, y is copied out, a host function counts. The factor `a` of
 * the instance changes from launch to launch. */
static uint64_t explicit_nodes(uint64_t sum) {
    size_t bytes = n * sizeof(float), edges = 0;
    CUdeviceptr x = device_alloc(bytes), y = device_alloc(bytes);
    float *host = host_alloc(bytes), *out, a = 0.0f;
    unsigned runs = 0;
    CUstream stream;
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CHECK(cuMemHostAlloc((void **)&out, bytes, 0));
    for (unsigned i = 0; i < n; i++) host[i] = random_float(seed, i);
    CHECK(cuMemcpyHtoD(x, host, bytes));
    /* The copy may return with the data only staged, and `stream` does not wait for it. */
    CHECK(cuCtxSynchronize());

    CUgraph graph;
    CUgraphNode zero, compute, copy_out, call;
    void *params[] = {&y, &x, &a, &n};
    CUDA_KERNEL_NODE_PARAMS launch = axpy_node(kernel(module, "axpy"), params);
    CUDA_MEMSET_NODE_PARAMS fill = {.dst = y, .elementSize = 4, .width = n, .height = 1};
    CUDA_MEMCPY3D copy = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                          .srcDevice = y,
                          .dstMemoryType = CU_MEMORYTYPE_HOST,
                          .dstHost = out,
                          .WidthInBytes = bytes,
                          .Height = 1,
                          .Depth = 1};
    CUDA_HOST_NODE_PARAMS count = {count_run, &runs};
    CHECK(cuGraphCreate(&graph, 0));
    CHECK(cuGraphAddMemsetNode(&zero, graph, NULL, 0, &fill, context));
    CHECK(cuGraphAddKernelNode(&compute, graph, &zero, 1, &launch));
    CHECK(cuGraphAddMemcpyNode(&copy_out, graph, &compute, 1, &copy, context));
    CHECK(cuGraphAddHostNode(&call, graph, &copy_out, 1, &count));
    CHECK(cuGraphGetEdges(graph, NULL, NULL, NULL, &edges));
    REQUIRE(edges == 3, "the graph has %zu edges, not 3", edges);

    CUgraphExec exec;
    CHECK(cuGraphInstantiate(&exec, graph, 0));
    for (unsigned step = 0; step < steps; step++) {
        a = (float)step - 1.5f;
        CHECK(cuGraphExecKernelNodeSetParams(exec, compute, &launch));
        /* The values were taken at the call: changing them now changes nothing. */
        a = 1e30f;
        CHECK(cuGraphLaunch(exec, stream));
        CHECK(cuStreamSynchronize(stream));
        for (unsigned i = 0; i < n; i++) {
            float want = fmaf((float)step - 1.5f, host[i], 0.0f);
            require_same("the explicit graph's result", &out[i], &want, 1, sizeof want);
        }
        sum = checksum(sum, out, bytes);
    }
    REQUIRE(runs == steps, "the host node ran %u times, not %u", runs, steps);

    CHECK(cuGraphExecDestroy(exec));
    CHECK(cuGraphDestroy(graph));
    CHECK(cuStreamDestroy(stream));
    CHECK(cuMemFree(x));
    CHECK(cuMemFree(y));
    CHECK(cuMemFreeHost(out));
    free(host);
    return sum;
}

int main(int argc, char **argv) {
    read_options(argc, argv,
                 (struct option_row[]){{"--elements", &n}, {"--steps", &steps}, {"--seed", &seed}},
                 3);
    REQUIRE(n > 0, "--elements must be at least 1");
    printf("graphs over %u floats: captured from two streams, updated, built by hand; "
           "%u launches each\n",
           n, steps);
    context = start();
    module = load_kernels();
    uint64_t sum = captured(CHECKSUM_START);
    sum = explicit_nodes(sum);
    CHECK(cuModuleUnload(module));
    return finish("graph", sum);
}
