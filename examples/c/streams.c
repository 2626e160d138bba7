/* Work on several streams at once: copies from pinned memory beside kernels, one stream waiting for
 * another, host functions between device work, events that time it, and threads that each use a
 * default stream of their own.
 */
#include <pthread.h>

#include "common.h"

enum { STREAMS = 4, THREADS = 4 };

static unsigned n = 20000, steps = 4, seed = 1;
static CUmodule module;
static CUcontext context;

/* --- part 1: each stream uploads, computes and downloads its own part ---------------------- */

struct lane {
    CUstream stream;
    CUevent begin, end;
    CUdeviceptr x, y;
    float *in, *out; /* pinned */
    unsigned called; /* how often the host function ran */
    int arrived;     /* whether the download was complete each time it ran */
};

static void downloaded(void *data) {
    struct lane *lane = data;
    lane->called++;
    /* The last element of `out` is NAN until the download before this function has ended. */
    if (isnan(lane->out[n - 1])) lane->arrived = 0;
}

static uint64_t independent_lanes(uint64_t sum) {
    CUfunction scale = kernel(module, "scale"), axpy = kernel(module, "axpy");
    struct lane lanes[STREAMS];
    size_t bytes = n * sizeof(float);
    int least, greatest;
    CHECK(cuCtxGetStreamPriorityRange(&least, &greatest));
    for (int s = 0; s < STREAMS; s++) {
        struct lane *lane = &lanes[s];
        *lane = (struct lane){.arrived = 1};
        CHECK(cuStreamCreateWithPriority(&lane->stream, CU_STREAM_NON_BLOCKING,
                                         s % 2 ? greatest : least));
        CHECK(cuEventCreate(&lane->begin, CU_EVENT_DEFAULT));
        CHECK(cuEventCreate(&lane->end, CU_EVENT_BLOCKING_SYNC));
        lane->x = device_alloc(bytes);
        lane->y = device_alloc(bytes);
        CHECK(cuMemHostAlloc((void **)&lane->in, bytes, CU_MEMHOSTALLOC_PORTABLE));
        CHECK(cuMemAllocHost((void **)&lane->out, bytes));
        for (unsigned i = 0; i < n; i++) lane->in[i] = random_float(seed + s, i);
    }
    float twice = 2.0f, half = 0.5f;
    for (unsigned step = 0; step < steps; step++) {
        for (int s = 0; s < STREAMS; s++) {
            struct lane *lane = &lanes[s];
            CHECK(cuStreamSynchronize(lane->stream));
            lane->out[n - 1] = NAN;
            CHECK(cuEventRecord(lane->begin, lane->stream));
            CHECK(cuMemcpyHtoDAsync(lane->x, lane->in, bytes, lane->stream));
            LAUNCH(scale, lane->stream, n, &lane->y, &lane->x, &twice, &n);
            LAUNCH(axpy, lane->stream, n, &lane->y, &lane->x, &half, &n);
            CHECK(cuMemcpyDtoHAsync(lane->out, lane->y, bytes, lane->stream));
            CHECK(cuLaunchHostFunc(lane->stream, downloaded, lane));
            CHECK(cuEventRecord(lane->end, lane->stream));
        }
    }
    for (int s = 0; s < STREAMS; s++) {
        struct lane *lane = &lanes[s];
        float milliseconds = -1;
        CHECK(cuEventSynchronize(lane->end));
        CHECK(cuEventElapsedTime(&milliseconds, lane->begin, lane->end));
        REQUIRE(milliseconds >= 0, "stream %d took %f ms", s, milliseconds);
        REQUIRE(lane->called == steps, "host function ran %u times, not %u", lane->called, steps);
        REQUIRE(lane->arrived, "a host function ran before the copy it follows");
        for (unsigned i = 0; i < n; i++) {
            float want = fmaf(half, lane->in[i], twice * lane->in[i]);
            require_same("a stream's result", &lane->out[i], &want, 1, sizeof want);
        }
        sum = checksum(sum, lane->out, bytes);
        CHECK(cuMemFree(lane->x));
        CHECK(cuMemFree(lane->y));
        CHECK(cuMemFreeHost(lane->in));
        CHECK(cuMemFreeHost(lane->out));
        CHECK(cuEventDestroy(lane->begin));
        CHECK(cuEventDestroy(lane->end));
        CHECK(cuStreamDestroy(lane->stream));
    }
    return sum;
}

/* --- part 2: one stream produces, the others wait for it, and it waits for them ------------ */

static void count_callback(CUstream stream, CUresult status, void *data) {
    (void)stream;
    if (status == CUDA_SUCCESS) ++*(unsigned *)data;
}

static uint64_t fan_out_and_in(uint64_t sum) {
    CUfunction fill = kernel(module, "fill_hash"), add_up = kernel(module, "sum_u32");
    CUstream producer, readers[STREAMS];
    CUevent produced, read[STREAMS];
    CUdeviceptr data = device_alloc(n * sizeof(uint32_t));
    CUdeviceptr sums = device_alloc(STREAMS * sizeof(uint64_t));
    unsigned callbacks = 0;
    CHECK(cuStreamCreate(&producer, CU_STREAM_NON_BLOCKING));
    CHECK(cuEventCreate(&produced, CU_EVENT_DISABLE_TIMING));
    for (int s = 0; s < STREAMS; s++) {
        CHECK(cuStreamCreate(&readers[s], CU_STREAM_DEFAULT));
        CHECK(cuEventCreate(&read[s], CU_EVENT_DISABLE_TIMING));
    }
    CHECK(cuMemsetD8Async(sums, 0, STREAMS * sizeof(uint64_t), producer));
    for (unsigned step = 0; step < steps; step++) {
        unsigned first = seed + step;
        LAUNCH(fill, producer, n, &data, &first, &n);
        CHECK(cuEventRecord(produced, producer));
        for (int s = 0; s < STREAMS; s++) {
            /* Each reader adds up its own quarter. */
            unsigned begin = n / STREAMS * s, count = s + 1 < STREAMS ? n / STREAMS : n - begin;
            CUdeviceptr out = sums + s * sizeof(uint64_t), in = data + begin * sizeof(uint32_t);
            CHECK(cuStreamWaitEvent(readers[s], produced, 0));
            LAUNCH(add_up, readers[s], count, &out, &in, &count);
            CHECK(cuEventRecord(read[s], readers[s]));
            CHECK(cuStreamWaitEvent(producer, read[s], 0));
        }
        CHECK(cuStreamAddCallback(producer, count_callback, &callbacks, 0));
    }
    uint64_t got[STREAMS], want[STREAMS] = {0};
    CHECK(cuStreamSynchronize(producer));
    REQUIRE(callbacks == steps, "the callback ran %u times, not %u", callbacks, steps);
    CHECK(cuStreamQuery(producer));
    CHECK(cuMemcpyDtoH(got, sums, sizeof got));
    for (unsigned step = 0; step < steps; step++) {
        for (unsigned i = 0; i < n; i++) {
            unsigned reader = i / (n / STREAMS);
            want[reader < STREAMS ? reader : STREAMS - 1] += hash32(i + seed + step);
        }
    }
    require_same("the readers' sums", got, want, STREAMS, sizeof *got);
    for (int s = 0; s < STREAMS; s++) {
        CHECK(cuEventDestroy(read[s]));
        CHECK(cuStreamDestroy(readers[s]));
    }
    CHECK(cuEventDestroy(produced));
    CHECK(cuStreamDestroy(producer));
    CHECK(cuMemFree(data));
    CHECK(cuMemFree(sums));
    return checksum(sum, got, sizeof got);
}

/* --- part 3: a default stream for each thread ---------------------------------------------- */

struct worker {
    pthread_t thread;
    unsigned index;
    float *out;
};

static void *work(void *data) {
    struct worker *worker = data;
    CHECK(cuCtxSetCurrent(context));
    CUfunction busy = kernel(module, "busy");
    size_t bytes = n * sizeof(float);
    unsigned rounds = 5;
    CUdeviceptr buffer = device_alloc(bytes);
    for (unsigned i = 0; i < n; i++) worker->out[i] = random_float(seed + worker->index, i);
    CHECK(cuMemcpyHtoDAsync(buffer, worker->out, bytes, CU_STREAM_PER_THREAD));
    for (unsigned step = 0; step < steps; step++) {
        LAUNCH(busy, CU_STREAM_PER_THREAD, n, &buffer, &n, &rounds);
    }
    CHECK(cuMemcpyDtoHAsync(worker->out, buffer, bytes, CU_STREAM_PER_THREAD));
    CHECK(cuStreamSynchronize(CU_STREAM_PER_THREAD));
    CHECK(cuMemFree(buffer));
    for (unsigned i = 0; i < n; i++) {
        float want = random_float(seed + worker->index, i);
        for (unsigned round = 0; round < steps * rounds; round++) want = fmaf(want, 0.999f, 0.5f);
        require_same("a thread's result", &worker->out[i], &want, 1, sizeof want);
    }
    return NULL;
}

static uint64_t thread_streams(uint64_t sum) {
    struct worker workers[THREADS];
    for (unsigned t = 0; t < THREADS; t++) {
        workers[t] = (struct worker){.index = t, .out = host_alloc(n * sizeof(float))};
        REQUIRE(pthread_create(&workers[t].thread, NULL, work, &workers[t]) == 0, "no thread");
    }
    for (unsigned t = 0; t < THREADS; t++) {
        pthread_join(workers[t].thread, NULL);
        sum = checksum(sum, workers[t].out, n * sizeof(float));
        free(workers[t].out);
    }
    return sum;
}

int main(int argc, char **argv) {
    read_options(argc, argv,
                 (struct option_row[]){{"--elements", &n}, {"--steps", &steps}, {"--seed", &seed}},
                 3);
    REQUIRE(n >= STREAMS && steps > 0, "--elements must be at least %d, --steps 1", STREAMS);
    printf("%u floats on each of %d streams, %u times, then %d threads with a stream each\n", n,
           STREAMS, steps, THREADS);
    context = start();
    module = load_kernels();
    uint64_t sum = independent_lanes(CHECKSUM_START);
    sum = fan_out_and_in(sum);
    sum = thread_streams(sum);
    CHECK(cuModuleUnload(module));
    return finish("streams", sum);
}
