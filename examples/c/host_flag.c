/* A kernel that waits for the host: it spins on a flag while other streams work, and goes on when
 * the flag is raised. The flag lies in pinned memory, in registered memory, and on the device.
 */
#include <unistd.h>

#include "common.h"

static unsigned n = 20000, steps = 3, seed = 1;

/* Runs work on `other` from start to end while `spinning` is held by its kernel. */
static uint64_t work_meanwhile(CUfunction add, CUstream spinning, CUstream other, float *a,
                               CUdeviceptr out, CUdeviceptr in, uint64_t sum) {
    size_t bytes = n * sizeof(float);
    for (unsigned step = 0; step < steps; step++) {
        for (unsigned i = 0; i < n; i++) a[i] = random_float(seed + step, i);
        CHECK(cuMemcpyHtoDAsync(in, a, bytes, other));
        LAUNCH(add, other, n, &out, &in, &in, &n);
        CHECK(cuMemcpyDtoHAsync(a, out, bytes, other));
        CHECK(cuStreamSynchronize(other));
        for (unsigned i = 0; i < n; i++) {
            float x = random_float(seed + step, i), want = x + x;
            require_same("the work beside the waiting kernel", &a[i], &want, 1, sizeof want);
        }
        sum = checksum(sum, a, bytes);
        CUresult state = cuStreamQuery(spinning);
        REQUIRE(state == CUDA_ERROR_NOT_READY, "the waiting kernel's stream answered %d",
                (int)state);
    }
    return sum;
}

int main(int argc, char **argv) {
    read_options(argc, argv,
                 (struct option_row[]){{"--elements", &n}, {"--steps", &steps}, {"--seed", &seed}},
                 3);
    REQUIRE(n > 0, "--elements must be at least 1");
    printf("a kernel waits for a flag in pinned, registered and device memory, while another "
           "stream adds %u floats %u times\n",
           n, steps);
    start();
    CUmodule module = load_kernels();
    CUfunction spin = kernel(module, "spin_on_flag"), add = kernel(module, "add");
    CUstream spinning, other;
    CHECK(cuStreamCreate(&spinning, CU_STREAM_NON_BLOCKING));
    CHECK(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));

    volatile unsigned *pinned, *raise;
    long page = sysconf(_SC_PAGESIZE);
    volatile unsigned *registered = aligned_alloc((size_t)page, (size_t)page);
    REQUIRE(registered, "no host memory");
    CHECK(cuMemHostAlloc((void **)&pinned, sizeof(unsigned), CU_MEMHOSTALLOC_DEVICEMAP));
    CHECK(cuMemHostAlloc((void **)&raise, sizeof(unsigned), 0));
    CHECK(cuMemHostRegister((void *)registered, (size_t)page, CU_MEMHOSTREGISTER_DEVICEMAP));
    CUdeviceptr flags[3], seen = device_alloc(sizeof(unsigned));
    CHECK(cuMemHostGetDevicePointer(&flags[0], (void *)pinned, 0));
    CHECK(cuMemHostGetDevicePointer(&flags[1], (void *)registered, 0));
    flags[2] = device_alloc(sizeof(unsigned));

    float *a;
    size_t bytes = n * sizeof(float);
    CHECK(cuMemHostAlloc((void **)&a, bytes, 0));
    memset(a, 0, bytes);
    CUdeviceptr out = device_alloc(bytes), in = device_alloc(bytes);

    /* Each kernel runs once before one of them waits: a first launch may have to load code, and
     * loading may wait for all that runs. */
    unsigned zero = 0;
    CHECK(cuMemsetD32(flags[2], 0, 1));
    LAUNCH(spin, spinning, 1, &seen, &flags[2], &zero);
    LAUNCH(add, other, n, &out, &in, &in, &n);
    CHECK(cuCtxSynchronize());

    uint64_t sum = CHECKSUM_START;
    for (unsigned way = 0; way < 3; way++) {
        unsigned value = 7 + way, got = 0;
        *pinned = *registered = 0;
        LAUNCH(spin, spinning, 1, &seen, &flags[way], &value);
        CUresult state = cuStreamQuery(spinning);
        REQUIRE(state == CUDA_ERROR_NOT_READY, "the waiting kernel's stream answered %d",
                (int)state);
        sum = work_meanwhile(add, spinning, other, a, out, in, sum);
        switch (way) {
        case 0: *pinned = value; break;
        case 1: *registered = value; break;
        case 2:
            *raise = value;
            CHECK(cuMemcpyHtoDAsync(flags[2], (void *)raise, sizeof(unsigned), other));
            break;
        }
        CHECK(cuStreamSynchronize(spinning));
        CHECK(cuMemcpyDtoH(&got, seen, sizeof got));
        require_same("the flag that the kernel saw", &got, &value, 1, sizeof got);
        sum = checksum(sum, &got, sizeof got);
    }

    CHECK(cuMemFree(out));
    CHECK(cuMemFree(in));
    CHECK(cuMemFree(seen));
    CHECK(cuMemFree(flags[2]));
    CHECK(cuMemHostUnregister((void *)registered));
    CHECK(cuMemFreeHost((void *)pinned));
    CHECK(cuMemFreeHost((void *)raise));
    CHECK(cuMemFreeHost(a));
    CHECK(cuStreamDestroy(spinning));
    CHECK(cuStreamDestroy(other));
    CHECK(cuModuleUnload(module));
    free((void *)registered);
    return finish("host_flag", sum);
}
