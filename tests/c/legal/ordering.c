/* Streams wait for each other through words in memory: an added order between them that the
 * program did not ask for makes them wait for ever.
 */
#include "legal.h"

/* Two blocking streams, of which one waits for later work of the other one. A third
 * one, which has nothing to do with them, is captured in between. */
static void around_a_capture(CUstreamCaptureMode mode) {
    CUgraph graph;
    CUstream first = stream_new(CU_STREAM_DEFAULT), second = stream_new(CU_STREAM_DEFAULT);
    CUstream third = stream_new(CU_STREAM_NON_BLOCKING);
    volatile unsigned *flag = flags_new(1);
    struct piece piece = piece_new(&tools, MIB, 1, NULL);
    CHECK(cuCtxSynchronize());
    step("two streams that wait for each other");
    wait_flag(first, flag);
    CHECK(cuStreamBeginCapture(third, mode));
    piece_write(&tools, &piece, 2, third);
    CHECK(cuStreamEndCapture(third, &graph));
    write_flag(second, flag);
    step("waiting for the first, for which the second has written");
    CHECK(cuStreamSynchronize(first));
    CHECK(cuStreamSynchronize(second));
    CHECK(cuGraphDestroy(graph));
    CHECK(cuStreamDestroy(first));
    CHECK(cuStreamDestroy(second));
    CHECK(cuStreamDestroy(third));
}

static void capture(void) {
    around_a_capture(CU_STREAM_CAPTURE_MODE_GLOBAL);
    printf("global\n");
    around_a_capture(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
    printf("of a thread\n");
    around_a_capture(CU_STREAM_CAPTURE_MODE_RELAXED);
    printf("relaxed\n");
}

/* As above, but the device asks for the waiting work, by a kernel. */
static void capture_kernel(void) {
    CUgraph graph;
    CUstream first = stream_new(CU_STREAM_DEFAULT), second = stream_new(CU_STREAM_DEFAULT);
    CUstream third = stream_new(CU_STREAM_NON_BLOCKING);
    CUfunction spin = kernel(load_kernels(), "spin_on_flag");
    CUdeviceptr word = device_alloc(sizeof(unsigned)), seen = device_alloc(sizeof(unsigned));
    unsigned value = 0, got = 0;
    CHECK(cuMemsetD32(word, 0, 1));
    /* Once before anything waits: a first launch may have to load code. */
    LAUNCH(spin, first, 1, &seen, &word, &value);
    CHECK(cuCtxSynchronize());
    value = 7;
    step("two streams that wait for each other");
    LAUNCH(spin, first, 1, &seen, &word, &value);
    CHECK(cuStreamBeginCapture(third, CU_STREAM_CAPTURE_MODE_RELAXED));
    CHECK(cuStreamEndCapture(third, &graph));
    CHECK(cuStreamWriteValue32(second, word, value, 0));
    step("waiting for the first, for which the second has written");
    CHECK(cuStreamSynchronize(first));
    CHECK(cuMemcpyDtoH(&got, seen, sizeof got));
    printf("saw %u\n", got);
}

/* A stream captures for long, and beside it a blocking one again and again, which has work that does
 * not end before that. */
static void side_by_side(void) {
    CUgraph graph;
    CUstream outer = stream_new(CU_STREAM_NON_BLOCKING), inner = stream_new(CU_STREAM_DEFAULT);
    volatile unsigned *flag = flags_new(1);
    wait_flag(inner, flag);
    wait_for_line();
    CHECK(cuStreamBeginCapture(outer, CU_STREAM_CAPTURE_MODE_RELAXED));
    for (int i = 0; i < 100; i++) {
        step("a capture beside another one");
        CHECK(cuStreamBeginCapture(inner, CU_STREAM_CAPTURE_MODE_RELAXED));
        sleep_ms(5);
        CHECK(cuStreamEndCapture(inner, &graph));
        CHECK(cuGraphDestroy(graph));
    }
    CHECK(cuStreamEndCapture(outer, &graph));
    raise_flag(flag);
    CHECK(cuStreamSynchronize(inner));
    printf("captured\n");
}

/* --- a full queue -------------------------------------------------------------------------- */

static struct piece behind;
static CUstream full;

static void *launches_many(void *nothing) {
    CHECK(cuCtxSetCurrent(context));
    for (unsigned i = 0; i < 1500; i++) piece_write(&tools, &behind, i, full);
    return nothing;
}

/* A thread launches more than fits in behind waiting work; others go on beside it. */
static void full_queue(void) {
    CUstream other = stream_new(CU_STREAM_NON_BLOCKING);
    volatile unsigned *flag = flags_new(2), *word = flag + 1;
    struct piece piece = piece_new(&tools, 4096, 1, other);
    CUdeviceptr freed = device_alloc(4096);
    CUevent event;
    full = stream_new(CU_STREAM_NON_BLOCKING);
    behind = piece_new(&tools, 4096, 1, full);
    CHECK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    CHECK(cuCtxSynchronize());
    wait_flag(full, flag);
    wait_for_line();
    pthread_t thread = go(launches_many, NULL);
    sleep_ms(100);
    step("launches beside one into a full queue");
    for (unsigned i = 0; i < 100; i++) piece_write(&tools, &piece, i, other);
    CHECK(cuStreamSynchronize(other));
    step("an event and a copy beside a launch into a full queue");
    CHECK(cuEventRecord(event, other));
    CHECK(cuEventSynchronize(event));
    CHECK(cuMemcpyDtoHAsync((void *)word, piece.at, sizeof *word, other));
    CHECK(cuStreamSynchronize(other));
    step("freeing beside a launch into a full queue");
    CHECK(cuMemFreeAsync(freed, other));
    CHECK(cuStreamSynchronize(other));
    REQUIRE(*word == hash32(99), "the last launch wrote %#x", *word);
    raise_flag(flag);
    step("waiting for the thread that was stuck");
    join(thread);
    CHECK(cuCtxSynchronize());
    piece_check(&tools, &behind, "what was launched last", 0);
    printf("launched\n");
}

int main(int argc, char **argv) {
    static const struct legal_case cases[] = {{"capture", capture},
                                              {"capture-kernel", capture_kernel},
                                              {"side-by-side", side_by_side},
                                              {"full-queue", full_queue}};
    return play(argc, argv, take_gpu, cases, COUNT_OF(cases));
}
