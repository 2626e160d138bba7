/* Allocates many small pieces of device memory, frees them in another order, and says how long both took.
 *
 *     allocations COUNT BYTES
 */
#include "common.h"

#include <stdlib.h>
#include <time.h>

static double seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

int main(int argc, char **argv) {
    if (argc != 3) {
        fprintf(stderr, "usage: allocations COUNT BYTES\n");
        return 2;
    }
    size_t count = strtoull(argv[1], NULL, 10), bytes = strtoull(argv[2], NULL, 10);
    CUdeviceptr *pieces = calloc(count, sizeof *pieces);
    CUcontext context;
    CHECK(cuInit(0));
    CHECK(cuDevicePrimaryCtxRetain(&context, 0));
    CHECK(cuCtxSetCurrent(context));
    double start = seconds();
    for (size_t i = 0; i < count; i++) CHECK(cuMemAlloc(&pieces[i], bytes));
    double middle = seconds();
    /* Every seventh first, then every seventh of the others, and so on. */
    for (size_t first = 0; first < 7; first++)
        for (size_t i = first; i < count; i += 7) CHECK(cuMemFree(pieces[i]));
    double end = seconds();
    printf("allocated %.6f s, freed %.6f s\n", middle - start, end - middle);
    free(pieces);
    return 0;
}
