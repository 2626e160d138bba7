/* Cases for drivers that cannot record an event behind all work of a context, and have no numbers for contexts: streams
 * and contexts go while others wait for their work.
 */
#include "legal.h"

static CUstream busy;
static volatile unsigned *flag;
static atomic_int destroying;

static void *destroys(void *nothing) {
    CHECK(cuCtxSetCurrent(context));
    sleep_ms(100);
    atomic_store(&destroying, 1);
    CHECK(cuStreamDestroy(busy));
    return nothing;
}

static void *raises(void *nothing) {
    while (!atomic_load(&destroying)) sleep_ms(1);
    sleep_ms(200);
    raise_flag(flag);
    return nothing;
}

/* Memory is freed, which waits for all work. Meanwhile another thread destroys the stream whose work uses it. */
static void freed_while_its_stream_goes(void) {
    for (unsigned round = 0; round < 3; round++) {
        CUdeviceptr sum = device_alloc(sizeof(uint64_t));
        uint64_t got = 0;
        busy = stream_new(CU_STREAM_NON_BLOCKING);
        flag = flags_new(1);
        atomic_store(&destroying, 0);
        struct piece piece = piece_new(&tools, 4 * MIB, round + 1, busy);
        CHECK(cuMemsetD8Async(sum, 0, sizeof(uint64_t), busy));
        CHECK(cuStreamSynchronize(busy));
        wait_flag(busy, flag);
        piece_sum(&tools, &piece, sum, busy);
        step("freeing memory that the work of a stream uses which another thread destroys");
        pthread_t destroyer = go(destroys, NULL), raiser = go(raises, NULL);
        CHECK(cuMemFree(piece.at));
        REQUIRE(*flag == 1, "the memory was freed before the work had ended that uses it");
        /* The next owner of the memory writes to it. */
        struct piece next = piece_new(&tools, 4 * MIB, 1000 + round, NULL);
        join(destroyer);
        join(raiser);
        CHECK(cuCtxSynchronize());
        CHECK(cuMemcpyDtoH(&got, sum, sizeof got));
        REQUIRE(got == sum_of(round + 1, 4 * MIB / 4), "what was freed adds up to %#llx", (unsigned long long)got);
        CHECK(cuMemFree(next.at));
        CHECK(cuMemFree(sum));
    }
    printf("freed\n");
}

/* A stream is destroyed with work in it, and the program is wanted off the GPU before that has ended. */
static void leaves_while_its_stream_is_gone(void) {
    struct piece piece = piece_new(&tools, 8 * MIB, 1, NULL);
    CUdeviceptr sum = device_alloc(sizeof(uint64_t));
    uint64_t got = 0;
    CHECK(cuMemsetD8(sum, 0, sizeof(uint64_t)));
    flag = flags_new(1);
    busy = stream_new(CU_STREAM_NON_BLOCKING);
    CHECK(cuStreamSynchronize(busy));
    wait_flag(busy, flag);
    piece_sum(&tools, &piece, sum, busy);
    CHECK(cuStreamDestroy(busy));
    atomic_store(&destroying, 1);
    wait_for_line();
    pthread_t raiser = go(raises, NULL);
    CHECK(cuCtxSynchronize());
    REQUIRE(*flag == 1, "the work has ended before the flag was raised");
    join(raiser);
    CHECK(cuMemcpyDtoH(&got, sum, sizeof got));
    REQUIRE(got == sum_of(1, 8 * MIB / 4), "what was away adds up to %#llx", (unsigned long long)got);
    piece_check(&tools, &piece, "what was away", 0);
    CHECK(cuMemFree(piece.at));
    printf("it has left and come back\n");
}

/* It is taken off the GPU while it captures, while a context is left, and between the two. */
static void captures_and_contexts(unsigned flags) {
    enum { ROUNDS = 2 };
    struct piece piece = piece_new(&tools, 8 * MIB, 1, NULL);
    for (unsigned round = 0; round < ROUNDS; round++) {
        CUgraph graph;
        CUgraphExec exec;
        step("capturing");
        CUstream stream = stream_new(flags);
        piece_write(&tools, &piece, 10 + round, stream);
        CHECK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
        piece_write(&tools, &piece, 20 + round, stream);
        wait_for_line();
        CHECK(cuStreamEndCapture(stream, &graph));
        CHECK(cuGraphInstantiate(&exec, graph, 0));
        CHECK(cuGraphDestroy(graph));
        wait_for_line();
        step("launching a graph, and using a context that goes");
        CHECK(cuGraphLaunch(exec, stream));
        CUcontext second = context_new(0);
        struct piece other = {.bytes = 2 * MIB};
        CHECK(cuMemAlloc(&other.at, other.bytes));
        CUstream inner = stream_new(CU_STREAM_NON_BLOCKING);
        CHECK(cuMemsetD8Async(other.at, 7, other.bytes, inner));
        CHECK(cuStreamSynchronize(inner));
        wait_for_line();
        unsigned char byte = 0;
        CHECK(cuMemcpyDtoH(&byte, other.at + other.bytes - 1, 1));
        REQUIRE(byte == 7, "memory of the second context holds %d", byte);
        CHECK(cuCtxDestroy(second));
        CHECK(cuCtxSetCurrent(context));
        wait_for_line();
        CHECK(cuStreamSynchronize(stream));
        CHECK(cuGraphExecDestroy(exec));
        CHECK(cuStreamDestroy(stream));
        piece_check(&tools, &piece, "what the graph has written", 0);
    }
    CHECK(cuMemFree(piece.at));
}

static void captures(void) { captures_and_contexts(CU_STREAM_NON_BLOCKING); }
static void captures_of_blocking(void) { captures_and_contexts(CU_STREAM_DEFAULT); }

int main(int argc, char **argv) {
    static const struct legal_case cases[] = {{"freed", freed_while_its_stream_goes},
                                              {"leaves", leaves_while_its_stream_is_gone},
                                              {"captures", captures},
                                              {"captures-blocking", captures_of_blocking}};
    return play(argc, argv, take_gpu, cases, COUNT_OF(cases));
}
