/* Allocates many pieces of device memory, frees them in another order, and says how long both took.
 *
 *     allocations COUNT BYTES [handles | stream | default-stream]
 *
 * With `handles` the memory grows as PyTorch's expandable segments do: each piece is a handle that could be exported, mapped
 * behind the one before. With `stream` each piece is allocated and freed at once in a stream's order, from a pool that keeps its
 * memory: steady use, as of PyTorch's backend:cudaMallocAsync; with `default-stream` in stream 0.
 */
#include "baton_cuda_pools.h"
#include "common.h"

#include <stdlib.h>
#include <time.h>

static double seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

/* The next piece of a segment. */
static void grow(CUdeviceptr at, size_t bytes) {
    CUmemLocation device = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
    CUmemAllocationProp kind = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                                .location = device};
    CUmemAccessDesc access = {device, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUmemGenericAllocationHandle handle;
    CHECK(cuMemCreate(&handle, bytes, &kind, 0));
    CHECK(cuMemMap(at, bytes, 0, handle, 0));
    CHECK(cuMemSetAccess(at, bytes, &access, 1));
    CHECK(cuMemRelease(handle));
}

/* Pairs of an allocation and a free. */
static void pairs(size_t count, size_t bytes, int with_stream) {
    unsigned long long keep = ~0ull;
    CUmemoryPool pool;
    CUstream stream = NULL;
    CUdeviceptr piece;
    CHECK(cuDeviceGetDefaultMemPool(&pool, 0));
    CHECK(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &keep));
    if (with_stream) CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    double start = 0;
    for (size_t i = 0; i < count + 100; i++) {
        /* After the first ones. */
        if (i == 100) start = seconds();
        CHECK(cuMemAllocAsync(&piece, bytes, stream));
        CHECK(cuMemFreeAsync(piece, stream));
    }
    printf("pairs %.6f s\n", seconds() - start);
}

int main(int argc, char **argv) {
    const char *how = argc == 4 ? argv[3] : "";
    int handles = strcmp(how, "handles") == 0, with_stream = strcmp(how, "stream") == 0;
    int in_pairs = with_stream || strcmp(how, "default-stream") == 0;
    if (argc != 3 && !handles && !in_pairs) {
        fprintf(stderr, "usage: allocations COUNT BYTES [handles | stream | default-stream]\n");
        return 2;
    }
    size_t count = strtoull(argv[1], NULL, 10), bytes = strtoull(argv[2], NULL, 10);
    CUdeviceptr *pieces = calloc(count, sizeof *pieces);
    CUcontext context;
    CHECK(cuInit(0));
    CHECK(cuDevicePrimaryCtxRetain(&context, 0));
    CHECK(cuCtxSetCurrent(context));
    if (in_pairs) {
        pairs(count, bytes, with_stream);
        free(pieces);
        return 0;
    }
    CUdeviceptr segment = 0;
    if (handles) CHECK(cuMemAddressReserve(&segment, count * bytes, 0, 0, 0));
    double start = seconds();
    for (size_t i = 0; i < count; i++) {
        pieces[i] = segment + i * bytes;
        if (handles) grow(pieces[i], bytes);
        else CHECK(cuMemAlloc(&pieces[i], bytes));
    }
    double middle = seconds();
    /* Every seventh first, then every seventh of the others, and so on. */
    for (size_t first = 0; first < 7; first++)
        for (size_t i = first; i < count; i += 7) {
            if (handles) CHECK(cuMemUnmap(pieces[i], bytes));
            else CHECK(cuMemFree(pieces[i]));
        }
    double end = seconds();
    printf("allocated %.6f s, freed %.6f s\n", middle - start, end - middle);
    free(pieces);
    return 0;
}
