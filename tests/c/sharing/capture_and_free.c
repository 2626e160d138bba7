/* One thread begins and ends captures as fast as it can; another allocates, writes and frees. Each
 * capture is its thread's own (CU_STREAM_CAPTURE_MODE_THREAD_LOCAL), so neither disturbs the other.
 *
 *     capture_and_free --rounds 4000
 */
#include <stdatomic.h>

#include "work.h"

static unsigned rounds = 4000;
static CUcontext context;
static atomic_int over;

static void *capture(void *data) {
    CUstream stream;
    CUdeviceptr at = *(CUdeviceptr *)data;
    CHECK(cuCtxSetCurrent(context));
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    for (unsigned round = 0; round < rounds; round++) {
        CUgraph graph;
        CHECK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
        CHECK(cuMemsetD8Async(at, (unsigned char)round, 64, stream));
        CHECK(cuStreamEndCapture(stream, &graph));
        CHECK(cuGraphDestroy(graph));
    }
    atomic_store(&over, 1);
    return NULL;
}

int main(int argc, char **argv) {
    struct option_row options[] = {{"--rounds", &rounds}};
    read_options(argc, argv, options, COUNT_OF(options));
    context = start();
    pthread_t thread;
    CUstream stream;
    CUdeviceptr captured = device_alloc(64);
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    REQUIRE(pthread_create(&thread, NULL, capture, &captured) == 0, "no thread");
    unsigned freed = 0;
    while (!atomic_load(&over)) {
        CUdeviceptr at = device_alloc(4096);
        CHECK(cuMemsetD8Async(at, 1, 4096, stream));
        CHECK(cuMemFree(at));
        freed++;
    }
    REQUIRE(pthread_join(thread, NULL) == 0, "no end");
    REQUIRE(freed > 0, "nothing was freed meanwhile");
    CHECK(cuMemFree(captured));
    printf("result capture_and_free %u ok\n", rounds);
    return 0;
}
