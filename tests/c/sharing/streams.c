/* Threads that each drive a blocking and a non-blocking stream and their own default stream, with
 * events between the streams and from each thread's work to the next thread's.
 *
 *     streams --megabytes 32 --threads 4 --rounds 6 --gap-ms 0 --seed 1
 */
#include "work.h"

enum { MAX_THREADS = 16 };

static unsigned megabytes = 32, threads = 4, rounds = 6, gap_ms = 0, seed = 1;
static CUcontext context;
static CUmodule module;
static pthread_barrier_t all;

struct worker {
    pthread_t thread;
    unsigned index;
    struct piece front, back; /* written in turns; the neighbour reads the piece not written */
    CUevent written, read;
    uint64_t sum;
};

static struct worker workers[MAX_THREADS];

static void add_one(void *data) { __atomic_fetch_add((unsigned *)data, 1, __ATOMIC_RELAXED); }

static void *work(void *data) {
    struct worker *self = data, *left = &workers[(self->index + threads - 1) % threads];
    CHECK(cuCtxSetCurrent(context));
    struct tools tools = tools_from(module);
    CUstream blocking, free_one, own = CU_STREAM_PER_THREAD;
    CUevent copied;
    uint64_t *sums;
    unsigned called = 0;
    CHECK(cuStreamCreate(&blocking, CU_STREAM_DEFAULT));
    CHECK(cuStreamCreate(&free_one, CU_STREAM_NON_BLOCKING));
    CHECK(cuEventCreate(&copied, CU_EVENT_DISABLE_TIMING));
    CHECK(cuEventCreate(&self->written, CU_EVENT_DISABLE_TIMING));
    CHECK(cuEventCreate(&self->read, CU_EVENT_DISABLE_TIMING));
    CHECK(cuMemHostAlloc((void **)&sums, 2 * sizeof *sums, CU_MEMHOSTALLOC_PORTABLE));
    CUdeviceptr out = device_alloc(2 * sizeof *sums);
    size_t bytes = (megabytes * MIB / threads / 2 - 8192) / 4096 * 4096;
    self->front = piece_new(&tools, bytes, seed + self->index, own);
    self->back = piece_new(&tools, bytes, seed + 100 + self->index, own);
    CHECK(cuStreamSynchronize(own));
    self->sum = CHECKSUM_START;
    struct dice dice = {seed + self->index};

    for (unsigned round = 0; round < rounds; round++) {
        /* New contents on one stream; on another, after it, a copy of them. */
        piece_write(&tools, &self->front, seed * 31 + round * 64 + self->index, free_one);
        CHECK(cuEventRecord(self->written, free_one));
        CHECK(cuStreamWaitEvent(blocking, self->written, 0));
        CHECK(cuMemcpyDtoDAsync(self->back.at, self->front.at, bytes, blocking));
        self->back.seed = self->front.seed;
        CHECK(cuEventRecord(copied, blocking));
        CHECK(cuLaunchHostFunc(blocking, add_one, &called));
        pthread_barrier_wait(&all);

        /* The sum of the neighbour's new contents, after its event, and of the own copy. */
        CHECK(cuStreamWaitEvent(own, left->written, 0));
        CHECK(cuStreamWaitEvent(own, copied, 0));
        CHECK(cuMemsetD8Async(out, 0, 2 * sizeof *sums, own));
        piece_sum(&tools, &left->front, out, own);
        piece_sum(&tools, &self->back, out + sizeof *sums, own);
        CHECK(cuEventRecord(self->read, own));
        CHECK(cuMemcpyDtoHAsync(sums, out, 2 * sizeof *sums, own));
        if (roll(&dice, 2)) sleep_ms(roll(&dice, 4));
        CHECK(cuStreamSynchronize(own));
        uint64_t want[2] = {sum_of(left->front.seed, bytes / 4), sum_of(self->back.seed, bytes / 4)};
        require_same("a sum", sums, want, 2, sizeof *sums);
        self->sum = digest(self->sum, sums, 2 * sizeof *sums);
        if (round % 3 == 2) self->sum = piece_check(&tools, &self->back, "a copy", self->sum);
        pthread_barrier_wait(&all);

        /* The neighbour to the right has read: the stream that writes next waits for it. */
        CHECK(cuStreamWaitEvent(free_one, workers[(self->index + 1) % threads].read, 0));
        if (gap_ms) {
            CHECK(cuCtxSynchronize());
            sleep_ms(gap_ms);
        }
    }
    CHECK(cuStreamSynchronize(blocking));
    REQUIRE(called == rounds, "the host function ran %u times, not %u", called, rounds);
    self->sum = piece_check(&tools, &self->front, "the end", self->sum);
    self->sum = piece_check(&tools, &self->back, "the end", self->sum);
    pthread_barrier_wait(&all);
    CHECK(cuMemFree(self->front.at));
    CHECK(cuMemFree(self->back.at));
    CHECK(cuMemFree(out));
    CHECK(cuMemFreeHost(sums));
    CHECK(cuStreamDestroy(blocking));
    CHECK(cuStreamDestroy(free_one));
    CHECK(cuEventDestroy(copied));
    return NULL;
}

int main(int argc, char **argv) {
    struct option_row options[] = {{"--megabytes", &megabytes}, {"--threads", &threads},
                                   {"--rounds", &rounds},       {"--gap-ms", &gap_ms},
                                   {"--seed", &seed}};
    read_options(argc, argv, options, COUNT_OF(options));
    REQUIRE(threads > 0 && threads <= MAX_THREADS && megabytes >= threads,
            "--threads is at most %d, with 1 MiB each", MAX_THREADS);
    context = start();
    module = load_kernels();
    pthread_barrier_init(&all, NULL, threads);
    for (unsigned t = 0; t < threads; t++) {
        workers[t].index = t;
        REQUIRE(pthread_create(&workers[t].thread, NULL, work, &workers[t]) == 0, "no thread");
    }
    uint64_t sum = CHECKSUM_START;
    for (unsigned t = 0; t < threads; t++) {
        pthread_join(workers[t].thread, NULL);
        sum = checksum(sum, &workers[t].sum, sizeof sum);
    }
    return finish("streams", sum);
}
