/* The common part of the C examples: errors, options, launches, checks, the line that ends each of them.
 *
 * An example prints what it does, checks its results against the CPU, and ends with
 *
 *     result NAME CHECKSUM ok
 *
 * and exit code 0. Otherwise it says what differs, or which call failed, and exits with 1. The
 * checksum covers the results that came from the GPU, so that two runs can be compared.
 */
#ifndef EXAMPLES_COMMON_H
#define EXAMPLES_COMMON_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef USE_CUDA_H
#include <cuda.h>
#else
#include "baton_cuda.h"
#endif

#include "kernels_ptx.h"

/* --- errors -------------------------------------------------------------------------------- */

/* Calls the driver; anything but success ends the program. */
#define CHECK(call) check_result((call), #call, __FILE__, __LINE__)

static inline void check_result(CUresult result, const char *call, const char *file, int line) {
    if (result == CUDA_SUCCESS) return;
    const char *name = NULL, *text = NULL;
    cuGetErrorName(result, &name);
    cuGetErrorString(result, &text);
    printf("%s:%d: %s answered %d %s: %s\n", file, line, call, (int)result,
           name ? name : "(no name)", text ? text : "(no text)");
    exit(1);
}

/* Ends the program, with a reason in printf's way, when something is not as it should be. */
#define REQUIRE(condition, ...)                               \
    do {                                                      \
        if (!(condition)) {                                   \
            printf("%s:%d: ", __FILE__, __LINE__);            \
            printf(__VA_ARGS__);                              \
            printf("\n");                                     \
            exit(1);                                          \
        }                                                     \
    } while (0)

/* Host memory; the program ends when there is none. */
static inline void *host_alloc(size_t bytes) {
    void *memory = malloc(bytes);
    REQUIRE(memory, "no host memory for %zu bytes", bytes);
    return memory;
}

/* --- options ------------------------------------------------------------------------------- */

struct option_row {
    const char *name;
    unsigned *value; /* holds the default until the option is seen */
};

/* Reads `--name number` pairs. Anything else ends the program with the list of options. */
static inline void read_options(int argc, char **argv, const struct option_row *rows,
                                size_t count) {
    for (int at = 1; at < argc; at += 2) {
        size_t row = 0;
        while (row < count && strcmp(argv[at], rows[row].name) != 0) row++;
        char *end = NULL;
        unsigned long value = at + 1 < argc ? strtoul(argv[at + 1], &end, 10) : 0;
        if (row == count || !end || end == argv[at + 1] || *end || value > UINT32_MAX) {
            printf("usage: %s", argv[0]);
            for (row = 0; row < count; row++) {
                printf(" [%s %u]", rows[row].name, *rows[row].value);
            }
            printf("\n");
            exit(1);
        }
        *rows[row].value = (unsigned)value;
    }
}

#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))

/* --- the device and its kernels ------------------------------------------------------------ */

/* Initialises the driver and makes the primary context of the first device current. */
static inline CUcontext start(void) {
    CUdevice device;
    CUcontext context;
    CHECK(cuInit(0));
    CHECK(cuDeviceGet(&device, 0));
    CHECK(cuDevicePrimaryCtxRetain(&context, device));
    CHECK(cuCtxSetCurrent(context));
    return context;
}

static inline CUmodule load_kernels(void) {
    CUmodule module;
    CHECK(cuModuleLoadData(&module, kernels_ptx));
    return module;
}

static inline CUfunction kernel(CUmodule module, const char *name) {
    CUfunction function;
    CHECK(cuModuleGetFunction(&function, module, name));
    return function;
}

/* Blocks of 256 threads for `elements`, at most 1,024 of them: kernels walk in grid strides. */
static inline unsigned blocks_for(size_t elements) {
    size_t blocks = (elements + 255) / 256;
    return blocks == 0 ? 1 : blocks > 1024 ? 1024 : (unsigned)blocks;
}

/* Launches with the addresses of the parameters, in order: LAUNCH(f, stream, n, &out, &in, &n). */
#define LAUNCH(function, stream, elements, ...)                                              \
    CHECK(cuLaunchKernel((function), blocks_for(elements), 1, 1, 256, 1, 1, 0, (stream),      \
                         (void *[]){__VA_ARGS__}, NULL))

static inline CUdeviceptr device_alloc(size_t bytes) {
    CUdeviceptr address;
    CHECK(cuMemAlloc(&address, bytes));
    return address;
}

/* --- inputs and checks --------------------------------------------------------------------- */

/* The result of the kernel fill_hash for one element. */
static inline uint32_t hash32(uint32_t x) {
    x ^= x >> 16;
    x *= 0x85ebca6bu;
    x ^= x >> 13;
    x *= 0xc2b2ae35u;
    return x ^ x >> 16;
}

/* A number in [-1, 1) that depends on seed and index alone. */
static inline float random_float(uint32_t seed, uint32_t index) {
    return (float)(hash32(seed * 0x9e3779b9u + index) >> 8) / 8388608.0f - 1.0f;
}

/* FNV-1a over some bytes. Begin with CHECKSUM_START and pass on what came back. */
#define CHECKSUM_START 0xcbf29ce484222325ull

static inline uint64_t checksum(uint64_t sum, const void *data, size_t bytes) {
    const unsigned char *byte = data;
    for (size_t i = 0; i < bytes; i++) sum = (sum ^ byte[i]) * 0x100000001b3ull;
    return sum;
}

/* Compares bit for bit, in elements of `size` bytes, and names the first that differs. */
static inline void require_same(const char *what, const void *got, const void *want, size_t count,
                                size_t size) {
    if (memcmp(got, want, count * size) == 0) return;
    const char *left = got, *right = want;
    size_t i = 0;
    while (memcmp(left + i * size, right + i * size, size) == 0) i++;
    uint64_t a = 0, b = 0;
    memcpy(&a, left + i * size, size < 8 ? size : 8);
    memcpy(&b, right + i * size, size < 8 ? size : 8);
    printf("%s differs at %zu of %zu: got %#llx, the CPU computed %#llx\n", what, i, count,
           (unsigned long long)a, (unsigned long long)b);
    exit(1);
}

/* The last line and the exit code of an example whose checks all held. */
static inline int finish(const char *name, uint64_t sum) {
    printf("result %s %016llx ok\n", name, (unsigned long long)sum);
    return 0;
}

#endif
