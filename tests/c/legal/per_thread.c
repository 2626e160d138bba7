/* A program whose stream 0 is the thread's own: it waits for no other stream, and none for it. */
#define CUDA_API_PER_THREAD_DEFAULT_STREAM
#include "legal.h"

#include "baton_cuda_pools.h"

enum { LAUNCHES = 100, THREADS = 8, BYTES = 1 << 16 };

/* A blocking stream waits for work given to the thread's own stream behind many launches. */
static void launches(void) {
    CUstream blocking = stream_new(CU_STREAM_DEFAULT);
    volatile unsigned *flag = flags_new(1);
    struct piece piece = piece_new(&tools, 4096, 1, NULL);
    CHECK(cuStreamSynchronize(NULL));
    wait_flag(blocking, flag);
    wait_for_line();
    for (unsigned i = 0; i < LAUNCHES; i++) piece_write(&tools, &piece, i, NULL);
    write_flag(NULL, flag);
    step("waiting for a stream that waits for this thread's launches");
    CHECK(cuStreamSynchronize(blocking));
    CHECK(cuStreamSynchronize(NULL));
    piece_check(&tools, &piece, "what the last launch wrote", 0);
    printf("launched\n");
}

static atomic_int ready;

/* Allocates from a pool in the thread's own order, as soon as all threads are there. */
static void *allocate(void *pool) {
    CHECK(cuCtxSetCurrent(context));
    atomic_fetch_add(&ready, 1);
    while (atomic_load(&ready) < THREADS) sched_yield();
    CUdeviceptr at;
    CHECK(pool ? cuMemAllocFromPoolAsync(&at, BYTES, pool, NULL) : cuMemAllocAsync(&at, BYTES, NULL));
    CHECK(cuStreamSynchronize(NULL));
    return NULL;
}

/* Threads are the first to allocate from a pool, or from the GPU's, all at once. */
static void allocate_at_once(CUmemoryPool own, CUmemoryPool pool) {
    pthread_t threads[THREADS];
    for (unsigned i = 0; i < THREADS; i++) threads[i] = go(allocate, own);
    for (unsigned i = 0; i < THREADS; i++) join(threads[i]);
    unsigned long long used, reserved;
    CHECK(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &used));
    CHECK(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &reserved));
    printf("used %llu of %llu\n", used, reserved);
}

static void first_pool(void) {
    CUdevice device;
    CUmemoryPool pool;
    CHECK(cuCtxGetDevice(&device));
    CHECK(cuDeviceGetDefaultMemPool(&pool, device));
    allocate_at_once(NULL, pool);
}

/* The pool can grow once. */
static void small_pool(void) {
    CUmemPoolProps kind = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                           .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE},
                           .maxSize = 1 << 20};
    CUmemoryPool pool;
    CHECK(cuMemPoolCreate(&pool, &kind));
    allocate_at_once(pool, pool);
}

int main(int argc, char **argv) {
    static const struct legal_case cases[] = {{"launches", launches}, {"first-pool", first_pool}, {"small-pool", small_pool}};
    return play(argc, argv, take_gpu, cases, COUNT_OF(cases));
}
