/* One thread captures graphs all the time, in global and in relaxed mode, and launches them. It
 * rests in the middle of some captures. Other threads work and allocate meanwhile, in the way a
 * program does that knows of the capture: in relaxed mode and in streams of their own.
 *
 *     capture --megabytes 24 --rounds 12 --rest-ms 4 --seed 1
 */
#include "work.h"

enum { WORKERS = 2 };

static unsigned megabytes = 24, rounds = 12, rest_ms = 4, seed = 1;
static CUcontext context;
static CUmodule module;

/* --- the captures -------------------------------------------------------------------------- */

/* A node writes the piece, another adds it up into a number that a third has cleared, a fourth
 * copies the number out. */
static CUgraphExec record(struct tools *tools, struct piece *piece, CUdeviceptr out, uint64_t *host,
                          CUstream main_stream, CUstream side, unsigned round) {
    CUevent fork, join;
    CUgraph graph;
    CUgraphExec exec;
    CUstreamCaptureStatus status;
    CHECK(cuEventCreate(&fork, CU_EVENT_DISABLE_TIMING));
    CHECK(cuEventCreate(&join, CU_EVENT_DISABLE_TIMING));
    CHECK(cuStreamBeginCapture(main_stream, round % 2 ? CU_STREAM_CAPTURE_MODE_RELAXED
                                                      : CU_STREAM_CAPTURE_MODE_GLOBAL));
    CHECK(cuEventRecord(fork, main_stream));
    CHECK(cuStreamWaitEvent(side, fork, 0));
    piece_write(tools, piece, seed * 17 + round, main_stream);
    if (round % 3 == 0) sleep_ms(rest_ms);
    CHECK(cuMemsetD8Async(out, 0, sizeof *host, side));
    CHECK(cuEventRecord(join, side));
    CHECK(cuStreamWaitEvent(main_stream, join, 0));
    CHECK(cuStreamIsCapturing(main_stream, &status));
    REQUIRE(status == CU_STREAM_CAPTURE_STATUS_ACTIVE, "round %u: the capture is in state %d", round,
            (int)status);
    piece_sum(tools, piece, out, main_stream);
    if (round % 3 == 1) sleep_ms(rest_ms);
    CHECK(cuMemcpyDtoHAsync(host, out, sizeof *host, main_stream));
    CHECK(cuStreamEndCapture(main_stream, &graph));
    CHECK(cuGraphInstantiate(&exec, graph, 0));
    CHECK(cuGraphDestroy(graph));
    CHECK(cuEventDestroy(fork));
    CHECK(cuEventDestroy(join));
    return exec;
}

static void *capture_all_the_time(void *data) {
    uint64_t *sum = data, *host, want;
    CUstream main_stream, side;
    CHECK(cuCtxSetCurrent(context));
    struct tools tools = tools_from(module);
    CHECK(cuStreamCreate(&main_stream, CU_STREAM_NON_BLOCKING));
    CHECK(cuStreamCreate(&side, CU_STREAM_NON_BLOCKING));
    CHECK(cuMemHostAlloc((void **)&host, sizeof *host, CU_MEMHOSTALLOC_PORTABLE));
    CUdeviceptr out = device_alloc(sizeof *host);
    struct piece piece = piece_new(&tools, (megabytes / 2) * MIB, seed, main_stream);
    *sum = CHECKSUM_START;
    for (unsigned round = 0; round < rounds; round++) {
        CUgraphExec exec = record(&tools, &piece, out, host, main_stream, side, round);
        want = sum_of(piece.seed, piece.bytes / 4);
        for (int launch = 0; launch < 2; launch++) {
            *host = 1;
            CHECK(cuGraphLaunch(exec, main_stream));
            CHECK(cuStreamSynchronize(main_stream));
            REQUIRE(*host == want, "round %u: the graph gave %#llx, not %#llx", round,
                    (unsigned long long)*host, (unsigned long long)want);
            *sum = checksum(*sum, host, sizeof *host);
        }
        CHECK(cuGraphExecDestroy(exec));
        if (round % 2 == 0) sleep_ms(rest_ms);
    }
    *sum = piece_check(&tools, &piece, "what the last graph wrote", *sum);
    CHECK(cuMemFree(piece.at));
    CHECK(cuMemFree(out));
    CHECK(cuMemFreeHost(host));
    return NULL;
}

/* --- the others ---------------------------------------------------------------------------- */

struct worker {
    pthread_t thread;
    unsigned index;
    uint64_t sum;
};

static void *work(void *data) {
    struct worker *self = data;
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    CHECK(cuThreadExchangeStreamCaptureMode(&mode));
    CHECK(cuCtxSetCurrent(context));
    struct tools tools = tools_from(module);
    struct dice dice = {seed + self->index};
    CUstream stream;
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CUdeviceptr out = device_alloc(sizeof(uint64_t));
    uint64_t *got;
    CHECK(cuMemHostAlloc((void **)&got, sizeof *got, CU_MEMHOSTALLOC_PORTABLE));
    size_t room = megabytes * MIB / 2 / WORKERS - 2 * MIB;
    self->sum = CHECKSUM_START;
    for (unsigned round = 0; round < rounds * 2; round++) {
        size_t bytes = room / 4 + roll(&dice, (uint32_t)(room - room / 4));
        struct piece piece = piece_new(&tools, bytes, roll(&dice, 1u << 31), stream);
        CHECK(cuMemsetD8Async(out, 0, sizeof *got, stream));
        piece_sum(&tools, &piece, out, stream);
        CHECK(cuMemcpyDtoHAsync(got, out, sizeof *got, stream));
        CHECK(cuStreamSynchronize(stream));
        REQUIRE(*got == sum_of(piece.seed, bytes / 4), "round %u: the sum is %#llx", round,
                (unsigned long long)*got);
        self->sum = checksum(self->sum, got, sizeof *got);
        unsigned char *host = tools_room(&tools, bytes);
        CHECK(cuMemcpyDtoHAsync(host, piece.at, bytes, stream));
        CHECK(cuStreamSynchronize(stream));
        self->sum = digest(self->sum, host, bytes);
        CHECK(cuMemFree(piece.at));
        if (roll(&dice, 3) == 0) sleep_ms(roll(&dice, rest_ms + 1));
    }
    CHECK(cuMemFree(out));
    CHECK(cuMemFreeHost(got));
    return NULL;
}

int main(int argc, char **argv) {
    struct option_row options[] = {
        {"--megabytes", &megabytes}, {"--rounds", &rounds}, {"--rest-ms", &rest_ms}, {"--seed", &seed}};
    read_options(argc, argv, options, COUNT_OF(options));
    REQUIRE(megabytes >= 12, "--megabytes has to be at least 12");
    context = start();
    module = load_kernels();
    /* Loading code at its first use may need memory, which no thread should want while another captures. */
    struct worker workers[WORKERS];
    pthread_t capturing;
    uint64_t sum = 0;
    /* This thread makes the captures' streams and memory before the others' work can disturb it. */
    REQUIRE(pthread_create(&capturing, NULL, capture_all_the_time, &sum) == 0, "no thread");
    for (unsigned t = 0; t < WORKERS; t++) {
        workers[t].index = t;
        REQUIRE(pthread_create(&workers[t].thread, NULL, work, &workers[t]) == 0, "no thread");
    }
    pthread_join(capturing, NULL);
    for (unsigned t = 0; t < WORKERS; t++) {
        pthread_join(workers[t].thread, NULL);
        sum = checksum(sum, &workers[t].sum, sizeof sum);
    }
    return finish("capture", sum);
}
