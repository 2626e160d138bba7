/* Making and ending things again and again leaves nothing behind: no objects in the driver,
 * and no state in which its calls or those of others have to wait.
 */
#include <dlfcn.h>

#include "legal.h"

CUresult cuMemAllocManaged(CUdeviceptr *address, size_t bytes, unsigned flags);
CUresult cuTensorMapEncodeTiled(void *map, int type, unsigned rank, void *address,
                                const cuuint64_t *sizes, const cuuint64_t *strides,
                                const unsigned *window, const unsigned *steps, int interleave,
                                int swizzle, int promotion, int fill);

/* --- events in the driver ------------------------------------------------------------------ */

/* The simulated driver tells how many there are. */
static size_t count_events(void) {
    size_t count;
    void *driver = dlopen(getenv("LEGAL_DRIVER"), RTLD_NOW | RTLD_LOCAL);
    REQUIRE(driver, "no driver: %s", dlerror());
    CUresult (*tell)(size_t *) = (CUresult(*)(size_t *))dlsym(driver, "simcudaCountEvents");
    REQUIRE(tell, "this driver does not tell");
    CHECK(tell(&count));
    return count;
}

/* Does something some times and then more often: all that it needs is there by then. */
static void leaves_no_events(void (*what)(void)) {
    enum { FIRST = 8, MORE = 24 };
    for (unsigned i = 0; i < FIRST; i++) what();
    size_t before = count_events();
    for (unsigned i = 0; i < MORE; i++) what();
    size_t after = count_events();
    if (after < before + MORE / 2) printf("no events are left behind\n");
    else printf("%zu events are left behind\n", after - before);
}

static void capture_and_destroy(void) {
    CUgraph graph;
    CUstream stream = stream_new(CU_STREAM_NON_BLOCKING);
    CHECK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    CHECK(cuStreamEndCapture(stream, &graph));
    CHECK(cuGraphDestroy(graph));
    CHECK(cuStreamDestroy(stream));
}

static void captured_streams(void) { leaves_no_events(capture_and_destroy); }

static struct piece piece;
static CUstream shared;

static void *launch(void *nothing) {
    CHECK(cuCtxSetCurrent(context));
    for (unsigned i = 0; i < 64; i++) piece_write(&tools, &piece, i, shared);
    return nothing;
}

static void launch_in_a_thread(void) { join(go(launch, NULL)); }

/* While another program waits for the GPU, which this program has while a stream of its waits. */
static void threads(void) {
    CUstream waiting = stream_new(CU_STREAM_NON_BLOCKING);
    volatile unsigned *flag = flags_new(1);
    shared = stream_new(CU_STREAM_NON_BLOCKING);
    piece = piece_new(&tools, 4096, 1, shared);
    CHECK(cuStreamSynchronize(shared));
    wait_flag(waiting, flag);
    wait_for_line();
    leaves_no_events(launch_in_a_thread);
    raise_flag(flag);
    CHECK(cuStreamSynchronize(waiting));
}

/* --- captures that never end --------------------------------------------------------------- */

static void wait_for_an_event(void) {
    static CUevent event;
    if (!event) CHECK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    CUstream stream = stream_new(CU_STREAM_NON_BLOCKING);
    CHECK(cuEventRecord(event, shared));
    CHECK(cuStreamWaitEvent(stream, event, 0));
    CHECK(cuStreamDestroy(stream));
}

/* A context goes while streams of its capture. The rest of the program is as before. */
static void lost_captures(void) {
    CUcontext second;
    shared = stream_new(CU_STREAM_NON_BLOCKING);
    struct piece kept = piece_new(&tools, 8 * MIB, 1, shared);
    CHECK(cuStreamSynchronize(shared));
    second = context_new(0);
    CHECK(cuStreamBeginCapture(stream_new(CU_STREAM_NON_BLOCKING), CU_STREAM_CAPTURE_MODE_RELAXED));
    CHECK(cuStreamBeginCapture(stream_new(CU_STREAM_DEFAULT), CU_STREAM_CAPTURE_MODE_GLOBAL));
    CHECK(cuCtxDestroy(second));
    CHECK(cuCtxSetCurrent(context));
    leaves_no_events(wait_for_an_event);
    wait_for_line();
    piece_check(&tools, &kept, "after an eviction", 0);
    CHECK(cuMemFree(kept.at));
}

/* --- streams that are made while a context might go ----------------------------------------- */

static atomic_int over;

/* One of several that use the primary context, and the first to have done so. */
static void *retain_and_release(void *nothing) {
    while (!atomic_load(&over)) {
        CUcontext again;
        CHECK(cuDevicePrimaryCtxRetain(&again, 0));
        CHECK(cuDevicePrimaryCtxRelease(0));
    }
    return nothing;
}

/* Work in each of them keeps the GPU for this program while others wait for it: with nothing else
 * to do, one after the other waits for a flag. */
static void streams_beside_release(void) {
    enum { STREAMS = 24 };
    CUstream streams[STREAMS], last = stream_new(CU_STREAM_NON_BLOCKING);
    volatile unsigned *flags = flags_new(STREAMS + 1);
    CUdeviceptr at = device_alloc(64);
    pthread_t thread = go(retain_and_release, NULL);
    for (unsigned i = 0; i < STREAMS; i++) {
        streams[i] = stream_new(CU_STREAM_NON_BLOCKING);
        sleep_ms(1);
    }
    atomic_store(&over, 1);
    join(thread);
    wait_flag(last, &flags[STREAMS]);
    wait_for_line();
    for (unsigned i = 0; i < STREAMS; i++) {
        step("a call while one stream waits");
        wait_flag(streams[i], &flags[i]);
        CUstream before = i ? streams[i - 1] : last;
        raise_flag(&flags[i ? i - 1 : STREAMS]);
        while (cuStreamQuery(before) == CUDA_ERROR_NOT_READY) sleep_ms(1);
        sleep_ms(20);
        CHECK(cuMemsetD8Async(at, 1, 64, before));
        CHECK(cuStreamSynchronize(before));
    }
    raise_flag(&flags[STREAMS - 1]);
    CHECK(cuCtxSynchronize());
    printf("all streams were waited for\n");
}

/* --- memory that is counted ---------------------------------------------------------------- */

/* Memory that could not be freed is still there. */
static void managed(void) {
    CUdeviceptr memory;
    CUgraph graph;
    CUstream stream = stream_new(CU_STREAM_NON_BLOCKING);
    CHECK(cuMemAllocManaged(&memory, 8 * MIB, 1));
    CHECK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    printf("freeing during a capture answers %d\n", (int)cuMemFree(memory));
    printf("the end of the capture answers %d\n", (int)cuStreamEndCapture(stream, &graph));
    wait_for_line();
    CHECK(cuMemFree(memory));
    wait_for_line();
}

/* --- tensor maps --------------------------------------------------------------------------- */

/* Of one tensor after the other, all of which are freed; after that a launch that has nothing to do
 * with any of them. */
static void make_maps(unsigned count) {
    struct piece small = piece_new(&tools, 4096, 1, NULL);
    struct piece ballast = piece_new(&tools, 32 * MIB, 2, NULL);
    CUdeviceptr tensor = 0, sum = device_alloc(8);
    uint64_t got = 0;
    for (unsigned i = 0; i < count; i++) {
        if (i % 1024 == 0) {
            step("making tensor maps");
            if (tensor) CHECK(cuMemFree(tensor));
            tensor = device_alloc(2 * MIB);
        }
        _Alignas(64) unsigned char map[128];
        cuuint64_t sizes[] = {16 + i, 16}, strides[] = {1 << 16};
        unsigned window[] = {16, 16}, steps[] = {1, 1};
        CHECK(cuTensorMapEncodeTiled(map, 7, 2, (void *)tensor, sizes, strides, window, steps, 0, 0,
                                     0, 0));
    }
    CHECK(cuMemFree(tensor));
    CHECK(cuMemsetD8(sum, 0, 8));
    CHECK(cuCtxSynchronize());
    wait_for_line();
    piece_sum(&tools, &small, sum, NULL);
    CHECK(cuMemcpyDtoH(&got, sum, sizeof got));
    REQUIRE(got == sum_of(1, small.bytes / 4), "the sum is %#llx", (unsigned long long)got);
    wait_for_line();
    piece_check(&tools, &ballast, "the rest of the memory", 0);
}

static void few_maps(void) { make_maps(1 << 10); }
static void many_maps(void) { make_maps((1 << 16) + (1 << 12)); }

int main(int argc, char **argv) {
    static const struct legal_case cases[] = {
        {"captured-streams", captured_streams},
        {"threads", threads},
        {"lost-captures", lost_captures},
        {"streams-beside-release", streams_beside_release},
        {"managed", managed},
        {"few-maps", few_maps},
        {"many-maps", many_maps},
    };
    return play(argc, argv, take_gpu, cases, COUNT_OF(cases));
}
