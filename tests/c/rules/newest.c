/* The additions of CUDA 13.1 to 13.5: copies, host functions and captures as their older kin, and
 * questions. A call that the simulated driver lacks answers that alone.
 */
#include "rules.h"

#define BYTES (4 * MIB)
enum { IN_ORDER = 1, POINTER = 1, RELAXED = CU_STREAM_CAPTURE_MODE_RELAXED, MEMSET_NODE = 2 };

typedef struct {
    int order;
    CUmemLocation from, to;
    unsigned flags;
} attributes;

typedef struct {
    int kind;
    CUdeviceptr at;
    size_t row, layer;
    CUmemLocation hint;
} box_end;

typedef struct {
    box_end from, to;
    size_t width, height, depth;
    int order;
    unsigned flags;
} box_copy;

typedef struct {
    int kind, reserved[3];
    union {
        CUDA_MEMSET_NODE_PARAMS fill;
        unsigned long long words[29];
    };
    long long more;
} node_params;

typedef struct {
    unsigned devices;
    size_t bytes;
    unsigned long long handle_types, flags;
} multicast_params;

typedef CUresult changed(void *data, CUgraphNode node, const node_params *before, const node_params *now, int status);

CUresult cuMemcpyWithAttributesAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes, attributes *how, CUstream stream);
CUresult cuMemcpyWithAttributesAsync_ptsz(CUdeviceptr to, CUdeviceptr from, size_t bytes, attributes *how,
                                          CUstream stream);
CUresult cuMemcpy3DWithAttributesAsync(box_copy *copy, unsigned long long flags, CUstream stream);
CUresult cuMemcpy3DWithAttributesAsync_ptsz(box_copy *copy, unsigned long long flags, CUstream stream);
CUresult cuLaunchHostFunc_v2(CUstream stream, void (*function)(void *), void *data, unsigned mode);
CUresult cuLaunchHostFunc_v2_ptsz(CUstream stream, void (*function)(void *), void *data, unsigned mode);
CUresult cuStreamBeginRecaptureToGraph(CUstream stream, int mode, CUgraph graph, changed *tell, void *data);
CUresult cuStreamBeginRecaptureToGraph_ptsz(CUstream stream, int mode, CUgraph graph, changed *tell, void *data);
CUresult cuStreamBeginCaptureToCig(CUstream stream, void *list);
CUresult cuStreamEndCaptureToCig(CUstream stream);
CUresult cuStreamGetDevResource(CUstream stream, void *resource, int kind);
CUresult cuGraphAddNode_v3(CUgraphNode *node, CUgraph graph, const CUgraphNode *after, const void *edges,
                           size_t count, node_params *params);
CUresult cuGraphNodeSetParams_v2(CUgraphNode node, node_params *params);
CUresult cuGraphNodeGetParams(CUgraphNode node, node_params *params);
CUresult cuGraphNodeGetContainingGraph(CUgraphNode node, CUgraph *graph);
CUresult cuGraphNodeGetLocalId(CUgraphNode node, unsigned *id);
CUresult cuGraphNodeGetToolsId(CUgraphNode node, unsigned long long *id);
CUresult cuGraphGetId(CUgraph graph, unsigned *id);
CUresult cuGraphExecGetId(CUgraphExec exec, unsigned *id);
CUresult cuFuncGetParamCount(CUfunction function, size_t *count);
CUresult cuKernelGetParamCount(CUkernel kernel, size_t *count);
CUresult cuMemAllocManaged(CUdeviceptr *out, size_t bytes, unsigned flags);
CUresult cuMemGetLocationInfo(CUdeviceptr at, size_t bytes, size_t region, size_t sample, CUmemLocation *out);
CUresult cuMulticastCreate(CUmemGenericAllocationHandle *out, const multicast_params *params);
CUresult cuMulticastAddDevice(CUmemGenericAllocationHandle object, CUdevice device);
CUresult cuMulticastUnbind(CUmemGenericAllocationHandle object, CUdevice device, size_t at, size_t bytes);
CUresult cuMulticastBindMem_v2(CUmemGenericAllocationHandle object, CUdevice device, size_t at,
                               CUmemGenericAllocationHandle memory, size_t offset, size_t bytes,
                               unsigned long long flags);
CUresult cuMulticastBindAddr_v2(CUmemGenericAllocationHandle object, CUdevice device, size_t at, CUdeviceptr address,
                                size_t bytes, unsigned long long flags);
CUresult cuTensorMapEncodeTiled(void *map, int kind, unsigned rank, void *at, const cuuint64_t *sizes,
                                const cuuint64_t *strides, const unsigned *window, const unsigned *steps,
                                int interleave, int swizzle, int promotion, int fill);
CUresult cuTensorMapSetAllocationClass(void *map, int class, int *now);
CUresult cuDeviceGetFabricClusterUuid(void *uuid, CUdevice device);
CUresult cuDeviceGetCliqueCount(size_t *count, CUdevice device);
CUresult cuDeviceGetCliqueInfo(void *info, size_t *count, CUdevice device);
CUresult cuDevSmResourceSplit(void *result, unsigned groups, const void *input, void *rest, unsigned flags, void *how);
CUresult cuCoredumpRegisterStartCallback(void *function, void *data, void **out);
CUresult cuCoredumpRegisterCompleteCallback(void *function, void *data, void **out);
CUresult cuCoredumpDeregisterStartCallback(void *callback);
CUresult cuCoredumpDeregisterCompleteCallback(void *callback);
CUresult cuCheckpointOperationComplete(void *operation);
CUresult cuFabricCpyBatchAsync(size_t count, void *copies, unsigned long long flags, CUstream stream);
CUresult cuLogicalEndpointIdReserve(unsigned *first, unsigned count);
CUresult cuLogicalEndpointIdRelease(unsigned first, unsigned count);
CUresult cuLogicalEndpointCreate(unsigned endpoint, const void *params);
CUresult cuLogicalEndpointAddDevice(unsigned endpoint, CUdevice device);
CUresult cuLogicalEndpointDestroy(unsigned endpoint);
CUresult cuLogicalEndpointBindAddr(unsigned endpoint, CUdevice device, cuuint64_t at, void *address, cuuint64_t bytes,
                                   unsigned long long flags);
CUresult cuLogicalEndpointBindMem(unsigned endpoint, CUdevice device, cuuint64_t at,
                                  CUmemGenericAllocationHandle memory, cuuint64_t offset, cuuint64_t bytes,
                                  unsigned long long flags);
CUresult cuLogicalEndpointUnbind(unsigned endpoint, CUdevice device, cuuint64_t at, cuuint64_t bytes);
CUresult cuLogicalEndpointExport(void *handle, unsigned endpoint, int kind);
CUresult cuLogicalEndpointImport(unsigned endpoint, const void *handle, int kind);
CUresult cuLogicalEndpointGetLimits(cuuint64_t *alignment, cuuint64_t *most, const void *params);
CUresult cuLogicalEndpointQuery(unsigned endpoint, unsigned count, int *status);

static attributes in_order(void) {
    CUmemLocation device = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
    return (attributes){.order = IN_ORDER, .from = device, .to = device};
}

/* --- copies -------------------------------------------------------------------------------- */

typedef CUresult copy_function(CUdeviceptr, CUdeviceptr, size_t, attributes *, CUstream);

/* From memory that was filled long before into memory that is untouched since, and on to a third. */
static void copy_in(CUstream stream, copy_function *copy, const char *name) {
    CUdeviceptr from, to, last;
    attributes how = in_order();
    NEED(cuMemAlloc(&from, BYTES));
    NEED(cuMemAlloc(&to, BYTES));
    NEED(cuMemAlloc(&last, BYTES));
    NEED(write_words(from, BYTES, 3));
    NEED(write_words(to, BYTES, 4));
    ASK(copy(to, from, BYTES / 2, &how, stream), "%s, half of it", name);
    ASK(copy(last, to, BYTES, &how, stream), "%s, all of that", name);
    ASK(cuStreamSynchronize(stream), "%s, the stream", name);
    say(words_right(from, BYTES, 3), "%s, the source is right", name);
    say(words_right(last, BYTES / 2, 3), "%s, the first half is right", name);
    ASK(copy(to, from, 2 * BYTES, &how, stream), "%s, too much", name);
    ASK(copy(to, from, 4, NULL, stream), "%s, in no way", name);
    TIDY(cuMemFree(from));
    TIDY(cuMemFree(to));
    TIDY(cuMemFree(last));
}

static void copies(void) {
    CUstream own = stream_new(CU_STREAM_NON_BLOCKING);
    copy_in(NULL, cuMemcpyWithAttributesAsync, "default stream");
    copy_in(own, cuMemcpyWithAttributesAsync, "own stream");
    copy_in(own, cuMemcpyWithAttributesAsync_ptsz, "by the twin");
    TIDY(cuStreamDestroy(own));
}

/* Pinned memory that is written by one copy and read by another. */
static void copies_of_host(void) {
    CUdeviceptr at, other;
    attributes how = in_order();
    void *pinned;
    NEED(cuMemAlloc(&at, BYTES));
    NEED(cuMemAlloc(&other, BYTES));
    NEED(cuMemAllocHost(&pinned, BYTES));
    NEED(write_words(at, BYTES, 5));
    ASK(cuMemcpyWithAttributesAsync((CUdeviceptr)pinned, at, BYTES, &how, NULL), "to the host");
    ASK(cuMemcpyWithAttributesAsync(other, (CUdeviceptr)pinned, BYTES, &how, NULL), "from the host");
    ASK(cuStreamSynchronize(NULL), "the stream");
    say(words_right(other, BYTES, 5), "its contents are right");
    TIDY(cuMemFreeHost(pinned));
    TIDY(cuMemFree(at));
    TIDY(cuMemFree(other));
}

static void boxes(void) {
    enum { ROW = 4096 };
    CUdeviceptr from, to;
    NEED(cuMemAlloc(&from, BYTES));
    NEED(cuMemAlloc(&to, BYTES));
    NEED(write_words(from, BYTES, 6));
    box_copy copy = {.from = {.kind = POINTER, .at = from, .row = ROW, .hint = in_order().from},
                     .to = {.kind = POINTER, .at = to, .row = ROW, .hint = in_order().to},
                     .width = ROW,
                     .height = BYTES / ROW,
                     .depth = 1,
                     .order = IN_ORDER};
    ASK(cuMemcpy3DWithAttributesAsync(&copy, 0, NULL), "a box");
    say(words_right(to, BYTES, 6), "its contents are right");
    NEED(write_words(from, BYTES, 7));
    ASK(cuMemcpy3DWithAttributesAsync_ptsz(&copy, 0, NULL), "a box by the twin");
    ASK(cuCtxSynchronize(), "the context");
    say(words_right(to, BYTES, 7), "its contents are right");
    ASK(cuMemcpy3DWithAttributesAsync(&copy, 1, NULL), "with flags");
    ASK(cuMemcpy3DWithAttributesAsync(NULL, 0, NULL), "no box");
    TIDY(cuMemFree(from));
    TIDY(cuMemFree(to));
}

/* --- work for streams ---------------------------------------------------------------------- */

static void count(void *counter) { atomic_fetch_add((atomic_int *)counter, 1); }

static void host_functions(void) {
    static atomic_int counter;
    CUdeviceptr at;
    NEED(cuMemAlloc(&at, BYTES));
    for (unsigned mode = 0; mode < 3; mode++) {
        ASK(cuMemsetD32Async(at, mode, BYTES / 4, NULL), "a fill before it");
        ASK(cuLaunchHostFunc_v2(NULL, count, &counter, mode), "mode %u", mode);
        ASK(cuLaunchHostFunc_v2_ptsz(NULL, count, &counter, mode), "mode %u by the twin", mode);
        ASK(cuCtxSynchronize(), "the context");
        say(atomic_load(&counter), "called");
        say(filled_with(at, BYTES, mode), "its contents are right");
    }
    ASK(cuLaunchHostFunc_v2(NULL, NULL, NULL, 0), "no function");
    TIDY(cuMemFree(at));
}

/* Kinds of the nodes whose parameters differ. */
static CUresult note(void *data, CUgraphNode node, const node_params *before, const node_params *now, int status) {
    (void)node;
    *(long long *)data = *(long long *)data * 1000 + before->kind * 100 + now->kind * 10 + status;
    return CUDA_SUCCESS;
}

typedef CUresult begin_again(CUstream, int, CUgraph, changed *, void *);

/* A graph of a fill and a copy gets another word to fill with. */
static void again(begin_again *begin, const char *name) {
    CUdeviceptr filled, copied;
    CUgraph graph, same = NULL;
    CUgraphExec exec;
    long long kinds = 0;
    CUstream stream = stream_new(CU_STREAM_NON_BLOCKING);
    NEED(cuMemAlloc(&filled, BYTES));
    NEED(cuMemAlloc(&copied, BYTES));
    /* No call waits in a capture. */
    NEED(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    CHECK(cuMemsetD32Async(filled, 3, BYTES / 4, stream));
    CHECK(cuMemcpyDtoDAsync(copied, filled, BYTES, stream));
    CHECK(cuStreamEndCapture(stream, &graph));
    ASK(begin(stream, RELAXED, graph, note, &kinds), "%s", name);
    ASK(cuMemsetD32Async(filled, 4, BYTES / 4, stream), "%s, a fill", name);
    ASK(cuMemcpyDtoDAsync(copied, filled, BYTES, stream), "%s, a copy", name);
    ASK(cuStreamEndCapture(stream, &same), "%s, the end", name);
    say(same == graph, "%s, it is the same graph", name);
    say(kinds, "%s, what differs", name);
    NEED(cuGraphInstantiate(&exec, graph, 0));
    ASK(cuGraphLaunch(exec, stream), "%s, a launch", name);
    ASK(cuStreamSynchronize(stream), "%s, the stream", name);
    say(filled_with(copied, BYTES, 4), "%s, its contents are right", name);
    TIDY(cuGraphExecDestroy(exec));
    ASK(begin(stream, RELAXED, graph, note, &kinds), "%s once more", name);
    ASK(cuMemcpyDtoDAsync(copied, filled, BYTES, stream), "%s, what was not there", name);
    ASK(cuStreamEndCapture(stream, &same), "%s, the end of that", name);
    TIDY(cuGraphDestroy(graph));
    TIDY(cuStreamDestroy(stream));
    TIDY(cuMemFree(filled));
    TIDY(cuMemFree(copied));
}

static void captures(void) {
    again(cuStreamBeginRecaptureToGraph, "recapture");
    again(cuStreamBeginRecaptureToGraph_ptsz, "recapture by the twin");
    ASK(cuStreamBeginRecaptureToGraph(NULL, RELAXED, NULL, NULL, NULL), "of no graph");
}

/* --- graphs -------------------------------------------------------------------------------- */

static void nodes(void) {
    CUdeviceptr at;
    CUgraph graph, of = NULL;
    CUgraphNode node;
    CUgraphExec exec;
    unsigned ids[3] = {0};
    unsigned long long tools_id = 0;
    node_params told = {0};
    NEED(cuMemAlloc(&at, BYTES));
    NEED(write_words(at, BYTES, 3));
    node_params fill = {.kind = MEMSET_NODE, .fill = {.dst = at, .value = 1, .elementSize = 4, .width = BYTES / 4, .height = 1}};
    NEED(cuGraphCreate(&graph, 0));
    ASK(cuGraphAddNode_v3(&node, graph, NULL, NULL, 0, &fill), "a fill");
    fill.fill.value = 2;
    ASK(cuGraphNodeSetParams_v2(node, &fill), "with another value");
    ASK(cuGraphNodeGetParams(node, &told), "what it does");
    say(told.kind == MEMSET_NODE && told.fill.dst == at && told.fill.value == 2, "that is right");
    ASK(cuGraphNodeGetParams(NULL, &told), "what no node does");
    ASK(cuGraphNodeGetContainingGraph(node, &of), "where it is");
    say(of == graph, "that is the graph");
    NEED(cuGraphInstantiate(&exec, graph, 0));
    ASK(cuGraphNodeGetLocalId(node, &ids[0]), "the node's number");
    ASK(cuGraphGetId(graph, &ids[1]), "the graph's number");
    ASK(cuGraphExecGetId(exec, &ids[2]), "the instance's number");
    ASK(cuGraphNodeGetToolsId(node, &tools_id), "the node's number for tools");
    say(ids[0] && ids[1] && ids[2] && tools_id, "all are there");
    ASK(cuGraphLaunch(exec, NULL), "a launch");
    say(filled_with(at, BYTES, 2), "its contents are right");
    TIDY(cuGraphExecDestroy(exec));
    TIDY(cuGraphDestroy(graph));
    TIDY(cuMemFree(at));
}

/* --- questions ----------------------------------------------------------------------------- */

static void questions(void) {
    CUdeviceptr at, managed;
    CUmemLocation where[4] = {{0}};
    size_t functions = 0;
    NEED(cuMemAlloc(&at, BYTES));
    NEED(write_words(at, BYTES, 3));
    NEED(cuMemAllocManaged(&managed, BYTES, 1));
    ASK(cuMemGetLocationInfo(managed, BYTES, BYTES / 4, 0, where), "where managed memory is");
    say(where[3].type, "that is");
    ASK(cuMemGetLocationInfo(managed, BYTES, 0, 0, where), "where no part of it is");
    ASK(cuMemGetLocationInfo(at, BYTES, BYTES / 4, 0, where), "where an allocation is");
    CUmodule module = load_kernels();
    CUfunction function;
    NEED(cuModuleGetFunction(&function, module, "axpy"));
    ASK(cuFuncGetParamCount(function, &functions), "a function's parameters");
    say((long long)functions, "they are");
    ASK(cuKernelGetParamCount(NULL, &functions), "no kernel's parameters");
    TIDY(cuModuleUnload(module));
    say(words_right(at, BYTES, 3), "its contents are right");
    TIDY(cuMemFree(managed));
    TIDY(cuMemFree(at));
}

static void tensor_maps(void) {
    static _Alignas(64) unsigned char map[128], plain[128];
    cuuint64_t sizes[] = {64, 32}, strides[] = {256};
    unsigned window[] = {16, 8}, steps[] = {1, 1};
    CUdeviceptr at;
    int now = 77;
    NEED(cuMemAlloc(&at, BYTES));
    NEED(cuTensorMapEncodeTiled(map, 7, 2, (void *)at, sizes, strides, window, steps, 0, 0, 0, 0));
    memcpy(plain, map, sizeof map);
    for (int class = 0; class < 4; class++) {
        ASK(cuTensorMapSetAllocationClass(map, class, &now), "class %d", class);
        say(now, "it is");
    }
    ASK(cuTensorMapSetAllocationClass(map, 1, NULL), "small again");
    say(!memcmp(plain, map, sizeof map), "as it was");
    TIDY(cuMemFree(at));
}

/* --- memory that others reach -------------------------------------------------------------- */

static void multicast(void) {
    multicast_params of_one = {.devices = 1, .bytes = 2 * UNIT};
    CUmemAllocationProp kind = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
    CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_DEVICE, 0}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUmemGenericAllocationHandle object, memory;
    CUdeviceptr at, allocated;
    NEED(cuMulticastCreate(&object, &of_one));
    NEED(cuMulticastAddDevice(object, 0));
    NEED(cuMemCreate(&memory, 2 * UNIT, &kind, 0));
    NEED(cuMemAddressReserve(&at, 2 * UNIT, 0, 0, 0));
    NEED(cuMemMap(at, 2 * UNIT, 0, memory, 0));
    NEED(cuMemSetAccess(at, 2 * UNIT, &access, 1));
    NEED(write_words(at, 2 * UNIT, 8));
    NEED(cuMemAlloc(&allocated, UNIT));
    ASK(cuMulticastBindMem_v2(object, 0, 0, memory, 0, UNIT, 0), "a handle");
    ASK(cuMulticastBindMem_v2(object, 7, 0, memory, 0, UNIT, 0), "for a GPU that is not there");
    ASK(cuMulticastBindAddr_v2(object, 0, UNIT, at + UNIT, UNIT, 0), "a mapping");
    ASK(cuMulticastBindAddr_v2(object, 0, UNIT, allocated, UNIT, 0), "an allocation");
    say(words_right(at, 2 * UNIT, 8), "its contents are right");
    ASK(cuMulticastUnbind(object, 0, 0, UNIT), "no more");
    ASK(cuMulticastUnbind(object, 0, UNIT, UNIT), "nor the other");
    TIDY(cuMemRelease(object));
    TIDY(cuMemUnmap(at, 2 * UNIT));
    TIDY(cuMemRelease(memory));
    TIDY(cuMemAddressFree(at, 2 * UNIT));
    TIDY(cuMemFree(allocated));
}

static void fabric(void) {
    CUdeviceptr at;
    cuuint64_t limits[2];
    unsigned endpoint = 0, params[64] = {0};
    size_t count = 0;
    int status;
    NEED(cuMemAlloc(&at, BYTES));
    NEED(write_words(at, BYTES, 9));
    ASK(cuDeviceGetFabricClusterUuid(params, 0), "the cluster");
    ASK(cuDeviceGetCliqueCount(&count, 0), "how many cliques");
    ASK(cuDeviceGetCliqueInfo(params, &count, 0), "which cliques");
    ASK(cuLogicalEndpointGetLimits(&limits[0], &limits[1], params), "limits");
    ASK(cuLogicalEndpointIdReserve(&endpoint, 1), "a number");
    ASK(cuLogicalEndpointCreate(endpoint, params), "an endpoint");
    ASK(cuLogicalEndpointAddDevice(endpoint, 0), "for a GPU");
    ASK(cuLogicalEndpointQuery(endpoint, 1, &status), "whether it is ready");
    ASK(cuLogicalEndpointBindAddr(endpoint, 0, 0, (void *)at, BYTES, 0), "an allocation");
    ASK(cuLogicalEndpointBindMem(endpoint, 0, 0, 0, 0, BYTES, 0), "no handle");
    ASK(cuLogicalEndpointExport(params, endpoint, 1), "for others");
    ASK(cuLogicalEndpointImport(endpoint, params, 1), "of others");
    ASK(cuFabricCpyBatchAsync(0, NULL, 0, NULL), "copies");
    ASK(cuLogicalEndpointUnbind(endpoint, 0, 0, BYTES), "unbound");
    ASK(cuLogicalEndpointDestroy(endpoint), "no endpoint any more");
    ASK(cuLogicalEndpointIdRelease(endpoint, 1), "no number any more");
    say(words_right(at, BYTES, 9), "its contents are right");
    TIDY(cuMemFree(at));
}

static void others(void) {
    unsigned room[256] = {0};
    void *callback = NULL;
    ASK(cuStreamBeginCaptureToCig(NULL, NULL), "into a list of graphics");
    ASK(cuStreamEndCaptureToCig(NULL), "the end of that");
    ASK(cuStreamGetDevResource(NULL, room, 1), "a stream's part of the GPU");
    ASK(cuDevSmResourceSplit(room, 1, room, room, 0, room), "parts of the GPU");
    ASK(cuCoredumpRegisterStartCallback((void *)count, room, &callback), "told of a dump");
    ASK(cuCoredumpDeregisterStartCallback(callback), "not any more");
    ASK(cuCoredumpRegisterCompleteCallback((void *)count, room, &callback), "told of its end");
    ASK(cuCoredumpDeregisterCompleteCallback(callback), "not any more");
    ASK(cuCheckpointOperationComplete(NULL), "no checkpoint");
}

static const struct rule rules[] = {
    {"copies", copies},       {"copies-of-host", copies_of_host}, {"boxes", boxes},
    {"host-functions", host_functions}, {"captures", captures},   {"nodes", nodes},
    {"questions", questions}, {"tensor-maps", tensor_maps},       {"multicast", multicast},
    {"fabric", fabric},       {"others", others},
};

int main(int argc, char **argv) {
    return play_rules(argc, argv, RULES(rules), NULL, 0);
}
