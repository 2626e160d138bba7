/* A driver in which making or ending an object waits for all work that is queued. A stream waits for a flag that the program raises only
 * later; until then the program makes calls that wait for nothing, more of them than there are prepared objects.
 */
#include "baton_cuda_pools.h"
#include "legal.h"

enum { PIECES = 200 };

static CUstream waiting, other;
static volatile unsigned *flag;
static CUevent event;
static struct piece kept, written;
static CUdeviceptr pieces[PIECES];

static atomic_int is_made;
static pthread_t maker;

/* Waits for the flag: that is how this driver is. */
static void *makes_an_event(void *nothing) {
    CUevent made;
    CHECK(cuCtxSetCurrent(context));
    CHECK(cuEventCreate(&made, CU_EVENT_DISABLE_TIMING));
    atomic_store(&is_made, 1);
    CHECK(cuEventDestroy(made));
    return nothing;
}

/* All objects that the program needs, and then a stream that waits. */
static void begin(void) {
    take_gpu();
    waiting = stream_new(CU_STREAM_NON_BLOCKING);
    other = stream_new(CU_STREAM_NON_BLOCKING);
    flag = flags_new(1);
    CHECK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    kept = piece_new(&tools, 8 * MIB, 1, other);
    written = piece_new(&tools, 4 * MIB, 2, other);
    for (unsigned i = 0; i < PIECES; i++) pieces[i] = device_alloc(4096);
    CHECK(cuStreamSynchronize(other));
    wait_flag(waiting, flag);
    piece_write(&tools, &written, 3, waiting);
    maker = go(makes_an_event, NULL);
}

static void end(void) {
    REQUIRE(cuStreamQuery(waiting) == CUDA_ERROR_NOT_READY, "the stream does not wait");
    REQUIRE(!atomic_load(&is_made), "an event is made while a stream waits");
    step("raising the flag");
    raise_flag(flag);
    join(maker);
    CHECK(cuStreamSynchronize(waiting));
    CHECK(cuCtxSynchronize());
    piece_check(&tools, &kept, "what was written meanwhile", 0);
    piece_check(&tools, &written, "what was written in the stream that waited", 0);
    CHECK(cuMemFree(kept.at));
    CHECK(cuMemFree(written.at));
    CHECK(cuStreamDestroy(waiting));
    CHECK(cuEventDestroy(event));
}

static void frees(unsigned from, unsigned to) {
    for (unsigned i = from; i < to; i++) {
        CUstream stream = i % 2 ? waiting : other;
        CHECK(cuMemsetD8Async(pieces[i], 1, 4096, stream));
        CHECK(cuMemFreeAsync(pieces[i], stream));
    }
}

static void uses_pools(unsigned times) {
    for (unsigned i = 0; i < times; i++) {
        CUdeviceptr at;
        CUstream stream = i % 2 ? waiting : other;
        CHECK(cuMemAllocAsync(&at, 64 * 1024, stream));
        CHECK(cuMemsetD8Async(at, 1, 64 * 1024, stream));
        CHECK(cuMemFreeAsync(at, stream));
    }
}

static void works(uint32_t seed) {
    for (unsigned i = 0; i < 20; i++) piece_write(&tools, &kept, seed + i, other);
    CHECK(cuEventRecord(event, other));
    CHECK(cuStreamWaitEvent(waiting, event, 0));
    CHECK(cuEventSynchronize(event));
    CHECK(cuStreamSynchronize(other));
}

static void asks_and_maps(void) {
    CUmemAllocationProp properties = {.type = CU_MEM_ALLOCATION_TYPE_PINNED, .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
    CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_DEVICE, 0}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUmemGenericAllocationHandle handle;
    CUdeviceptr base, mapped;
    size_t bytes, total;
    int kind;
    CHECK(cuStreamQuery(other));
    CHECK(cuEventQuery(event));
    CHECK(cuMemGetInfo(&bytes, &total));
    CHECK(cuMemGetAddressRange(&base, &bytes, kept.at + 5));
    CHECK(cuPointerGetAttribute(&kind, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, kept.at));
    CHECK(cuMemCreate(&handle, 2 * MIB, &properties, 0));
    CHECK(cuMemAddressReserve(&mapped, 2 * MIB, 0, 0, 0));
    CHECK(cuMemMap(mapped, 2 * MIB, 0, handle, 0));
    CHECK(cuMemSetAccess(mapped, 2 * MIB, &access, 1));
    CHECK(cuMemUnmap(mapped, 2 * MIB));
    CHECK(cuMemRelease(handle));
    CHECK(cuMemAddressFree(mapped, 2 * MIB));
}

/* The test acts on it at `waits`, while the stream waits. */
static void play_calls(void) {
    begin();
    for (unsigned round = 0; round < 2; round++) {
        step("working beside a stream that waits");
        works(10 + 100 * round);
        step("asking and mapping beside a stream that waits");
        asks_and_maps();
        step("freeing beside a stream that waits");
        frees(round * PIECES / 2, (round + 1) * PIECES / 2);
        step("using a pool beside a stream that waits");
        uses_pools(PIECES);
        if (round == 0) wait_for_line();
    }
    works(30);
    end();
}

/* A module goes, a stream goes, a capture begins: in another context than that with the work. */
static void play_contexts(void) {
    begin();
    CUcontext second = context_new(0);
    step("making and ending objects beside a context that waits");
    for (unsigned i = 0; i < 100; i++) {
        CUstream stream = stream_new(CU_STREAM_DEFAULT);
        CUgraph graph;
        CUmodule module = load_kernels();
        CUdeviceptr at = device_alloc(4096);
        CHECK(cuMemsetD8Async(at, 1, 4096, stream));
        CHECK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
        CHECK(cuMemsetD8Async(at, 1, 64, stream));
        CHECK(cuStreamEndCapture(stream, &graph));
        CHECK(cuGraphDestroy(graph));
        CHECK(cuMemFree(at));
        CHECK(cuModuleUnload(module));
        CHECK(cuStreamDestroy(stream));
    }
    CHECK(cuCtxDestroy(second));
    CHECK(cuCtxSetCurrent(context));
    works(20);
    end();
}

static void nothing(void) {}

int main(int argc, char **argv) {
    static const struct legal_case cases[] = {{"calls", play_calls}, {"contexts", play_contexts}};
    return play(argc, argv, nothing, cases, COUNT_OF(cases));
}
