/* Memory is freed while streams wait for the host: a call that waits holds up only its own
 * thread, and one that need not wait does not.
 */
#include "legal.h"

static CUstream waiting, another;
static volatile unsigned *flag;
static CUdeviceptr victim, kept;
static CUevent complete;
static atomic_int freeing;

/* A stream waits for a flag. Another thread makes calls as soon as this one frees, and raises the
 * flag only after them. */
static pthread_t while_another_thread(void *(*calls)(void *)) {
    waiting = stream_new(CU_STREAM_NON_BLOCKING);
    another = stream_new(CU_STREAM_NON_BLOCKING);
    flag = flags_new(1);
    victim = device_alloc(4 * MIB);
    kept = device_alloc(4096);
    CHECK(cuEventCreate(&complete, CU_EVENT_DISABLE_TIMING));
    CHECK(cuEventRecord(complete, another));
    CHECK(cuCtxSynchronize());
    wait_flag(waiting, flag);
    pthread_t thread = go(calls, NULL);
    step("freeing while another thread has something to do first");
    atomic_store(&freeing, 1);
    return thread;
}

/* The other thread has nothing else to see of the one that waits in its call. */
static void until_freeing(void) {
    CHECK(cuCtxSetCurrent(context));
    while (!atomic_load(&freeing)) sleep_ms(1);
    sleep_ms(100);
}

static void capture_another(void) {
    CUgraph graph;
    CHECK(cuStreamBeginCapture(another, CU_STREAM_CAPTURE_MODE_RELAXED));
    CHECK(cuMemsetD8Async(kept, 1, 64, another));
    CHECK(cuStreamEndCapture(another, &graph));
    CHECK(cuGraphDestroy(graph));
}

static void *captures_and_destroys(void *nothing) {
    until_freeing();
    capture_another();
    CHECK(cuStreamDestroy(another));
    raise_flag(flag);
    return nothing;
}

/* Calls that the driver never holds up while another thread waits in it for all work to end. */
static void *asks_and_maps(void *nothing) {
    CUmemAllocationProp properties = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                      .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
    CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_DEVICE, 0},
                              CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUmemGenericAllocationHandle handle;
    CUdeviceptr base, mapped;
    size_t bytes, total;
    int kind;
    until_freeing();
    CHECK(cuStreamQuery(another));
    CHECK(cuEventQuery(complete));
    CHECK(cuStreamSynchronize(another));
    CHECK(cuStreamWaitEvent(another, complete, 0));
    CHECK(cuMemGetInfo(&bytes, &total));
    CHECK(cuMemGetAddressRange(&base, &bytes, kept + 5));
    CHECK(cuPointerGetAttribute(&kind, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, kept));
    CHECK(cuMemCreate(&handle, 2 * MIB, &properties, 0));
    CHECK(cuMemAddressReserve(&mapped, 2 * MIB, 0, 0, 0));
    CHECK(cuMemMap(mapped, 2 * MIB, 0, handle, 0));
    CHECK(cuMemSetAccess(mapped, 2 * MIB, &access, 1));
    CHECK(cuMemUnmap(mapped, 2 * MIB));
    CHECK(cuMemRelease(handle));
    CHECK(cuMemAddressFree(mapped, 2 * MIB));
    CHECK(cuMemFreeAsync(kept, another));
    raise_flag(flag);
    return nothing;
}

/* Freeing waits for all work. */
static void waits_beside(void *(*calls)(void *)) {
    pthread_t thread = while_another_thread(calls);
    CHECK(cuMemFree(victim));
    REQUIRE(*flag == 1, "the memory was freed before the work had ended that may use it");
    join(thread);
    CHECK(cuStreamSynchronize(waiting));
    printf("freed\n");
}

static void beside_questions(void) { waits_beside(asks_and_maps); }

/* Freeing in a stream's order waits for nothing, and holds up no other call. */
static void in_order_beside_destroy(void) {
    pthread_t thread = while_another_thread(captures_and_destroys);
    CHECK(cuMemFreeAsync(victim, waiting));
    join(thread);
    CHECK(cuStreamSynchronize(waiting));
    printf("freed\n");
}

/* One thread: freeing in a stream's order waits for nothing. */
static void in_order(void) {
    waiting = stream_new(CU_STREAM_NON_BLOCKING);
    flag = flags_new(1);
    victim = device_alloc(4 * MIB);
    wait_flag(waiting, flag);
    step("freeing in the order of a stream that waits");
    CHECK(cuMemFreeAsync(victim, waiting));
    raise_flag(flag);
    step("waiting for the stream");
    CHECK(cuStreamSynchronize(waiting));
    printf("freed\n");
}

/* Memory freed in a stream's order keeps its contents until the stream is there. */
static void in_order_contents(void) {
    enum { OTHERS = 3 };
    uint64_t got = 0;
    waiting = stream_new(CU_STREAM_NON_BLOCKING);
    another = stream_new(CU_STREAM_NON_BLOCKING);
    flag = flags_new(1);
    struct piece piece = piece_new(&tools, 8 * MIB, 1, NULL), others[OTHERS];
    CUdeviceptr sum = device_alloc(sizeof got);
    CHECK(cuMemcpyHtoD(sum, &got, sizeof got));
    CHECK(cuCtxSynchronize());
    wait_flag(waiting, flag);
    piece_sum(&tools, &piece, sum, waiting);
    step("freeing in the order of a stream that waits");
    CHECK(cuMemFreeAsync(piece.at, waiting));
    step("allocating as much, before the stream has come to that");
    for (unsigned i = 0; i < OTHERS; i++) {
        others[i] = piece_new(&tools, piece.bytes, 2 + i, another);
    }
    CHECK(cuStreamSynchronize(another));
    wait_for_line();
    raise_flag(flag);
    step("waiting for the stream");
    CHECK(cuStreamSynchronize(waiting));
    CHECK(cuMemcpyDtoH(&got, sum, sizeof got));
    REQUIRE(got == sum_of(1, piece.bytes / 4), "what was freed later adds up to %#llx",
            (unsigned long long)got);
    for (unsigned i = 0; i < OTHERS; i++) {
        piece_check(&tools, &others[i], "what was allocated meanwhile", 0);
    }
    printf("freed\n");
}

/* --- while a stream is captured ------------------------------------------------------------ */

static CUgraph end_of_capture(CUstream stream) {
    CUgraph graph;
    CUgraphExec exec;
    CHECK(cuStreamEndCapture(stream, &graph));
    CHECK(cuGraphInstantiate(&exec, graph, 0));
    CHECK(cuGraphLaunch(exec, stream));
    CHECK(cuStreamSynchronize(stream));
    CHECK(cuGraphExecDestroy(exec));
    return graph;
}

/* By the thread that captures. */
static void captured(void) {
    CUstream blocking = stream_new(CU_STREAM_DEFAULT);
    struct piece piece = piece_new(&tools, MIB, 1, NULL);
    victim = device_alloc(4 * MIB);
    CHECK(cuStreamBeginCapture(blocking, CU_STREAM_CAPTURE_MODE_RELAXED));
    piece_write(&tools, &piece, 2, blocking);
    step("freeing while this thread captures a blocking stream in relaxed mode");
    CHECK(cuMemFree(victim));
    victim = device_alloc(4 * MIB);
    CHECK(cuMemFree(victim));
    step("ending the capture");
    CHECK(cuGraphDestroy(end_of_capture(blocking)));
    piece_check(&tools, &piece, "what the graph wrote", 0);
    printf("freed\n");
}

static void *frees_relaxed(void *nothing) {
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    CHECK(cuCtxSetCurrent(context));
    CHECK(cuThreadExchangeStreamCaptureMode(&mode));
    CHECK(cuMemFree(victim));
    return nothing;
}

/* By another thread, which knows of the capture; that one goes on when this one has done it. */
static void captured_elsewhere(void) {
    CUstream blocking = stream_new(CU_STREAM_DEFAULT);
    struct piece piece = piece_new(&tools, MIB, 1, NULL);
    victim = device_alloc(4 * MIB);
    CHECK(cuStreamBeginCapture(blocking, CU_STREAM_CAPTURE_MODE_GLOBAL));
    piece_write(&tools, &piece, 2, blocking);
    step("freeing while another thread captures a blocking stream");
    join(go(frees_relaxed, NULL));
    step("ending the capture");
    CHECK(cuGraphDestroy(end_of_capture(blocking)));
    piece_check(&tools, &piece, "what the graph wrote", 0);
    printf("freed\n");
}

int main(int argc, char **argv) {
    static const struct legal_case cases[] = {
        {"beside-questions", beside_questions},
        {"in-order-beside-destroy", in_order_beside_destroy},
        {"in-order", in_order},
        {"in-order-contents", in_order_contents},
        {"captured", captured},
        {"captured-elsewhere", captured_elsewhere},
    };
    return play(argc, argv, take_gpu, cases, COUNT_OF(cases));
}
