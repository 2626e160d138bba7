/* Adds two vectors in the four ways a kernel can be handed its parameters: an array of pointers, a
 * packed buffer, one struct by value, and a CUkernel of a library in place of a function.
 */
#include "common.h"

/* The layout of add_struct's only parameter. */
struct add_arguments {
    CUdeviceptr out;
    CUdeviceptr a;
    CUdeviceptr b;
    unsigned n;
};

int main(int argc, char **argv) {
    unsigned n = 100000, steps = 3, seed = 1;
    read_options(argc, argv,
                 (struct option_row[]){{"--elements", &n}, {"--steps", &steps}, {"--seed", &seed}},
                 3);
    REQUIRE(n > 0, "--elements must be at least 1");
    printf("adding two vectors of %u floats, %u times, in four ways\n", n, steps);

    start();
    CUmodule module = load_kernels();
    CUfunction add = kernel(module, "add"), add_struct = kernel(module, "add_struct");
    CUlibrary library;
    CUkernel add_kernel;
    CHECK(cuLibraryLoadData(&library, kernels_ptx, NULL, NULL, 0, NULL, NULL, 0));
    CHECK(cuLibraryGetKernel(&add_kernel, library, "add"));

    size_t bytes = n * sizeof(float);
    float *a = host_alloc(bytes), *b = host_alloc(bytes);
    float *want = host_alloc(bytes), *got = host_alloc(bytes);
    CUdeviceptr d_a = device_alloc(bytes), d_b = device_alloc(bytes), d_out = device_alloc(bytes);
    uint64_t sum = CHECKSUM_START;

    for (unsigned step = 0; step < steps; step++) {
        for (unsigned i = 0; i < n; i++) {
            a[i] = random_float(seed + 2 * step, i);
            b[i] = random_float(seed + 2 * step + 1, i);
            want[i] = a[i] + b[i];
        }
        CHECK(cuMemcpyHtoD(d_a, a, bytes));
        CHECK(cuMemcpyHtoD(d_b, b, bytes));

        struct add_arguments packed = {d_out, d_a, d_b, n};
        /* The packed buffer ends with the last parameter, without the padding of the struct. */
        size_t packed_bytes = offsetof(struct add_arguments, n) + sizeof(packed.n);
        void *extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, &packed, CU_LAUNCH_PARAM_BUFFER_SIZE,
                         &packed_bytes, CU_LAUNCH_PARAM_END};
        for (int way = 0; way < 4; way++) {
            CHECK(cuMemsetD32(d_out, 0xffffffffu, n));
            switch (way) {
            case 0: LAUNCH(add, NULL, n, &d_out, &d_a, &d_b, &n); break;
            case 1:
                CHECK(cuLaunchKernel(add, blocks_for(n), 1, 1, 256, 1, 1, 0, NULL, NULL, extra));
                break;
            case 2: LAUNCH(add_struct, NULL, n, &packed); break;
            case 3: LAUNCH((CUfunction)add_kernel, NULL, n, &d_out, &d_a, &d_b, &n); break;
            }
            CHECK(cuMemcpyDtoH(got, d_out, bytes));
            require_same("the sum", got, want, n, sizeof(float));
        }
        sum = checksum(sum, got, bytes);
    }

    CHECK(cuMemFree(d_a));
    CHECK(cuMemFree(d_b));
    CHECK(cuMemFree(d_out));
    CHECK(cuLibraryUnload(library));
    CHECK(cuModuleUnload(module));
    free(a), free(b), free(want), free(got);
    return finish("vector_add", sum);
}
