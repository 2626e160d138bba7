/* A vector add through one door to the driver.
 *
 * A door is a way by which a program comes by the driver's functions: linking, dlopen and dlsym, or
 * cuGetProcAddress. A program of this folder fills a `struct door` in its own way and runs it. It
 * prints results by number, the same with the bare driver and with a library between.
 */
#ifndef DOOR_H
#define DOOR_H

#include <stdio.h>
#include <string.h>

#include "baton_cuda.h"
#include "kernels_ptx.h"

/* The functions of the add, each with the version at which cuGetProcAddress is asked for it. */
#define DOOR_CALLS(X)                 \
    X(cuInit, 2000)                   \
    X(cuDriverGetVersion, 2020)       \
    X(cuDeviceGetCount, 2000)         \
    X(cuDeviceGet, 2000)              \
    X(cuDevicePrimaryCtxRetain, 7000) \
    X(cuCtxSetCurrent, 4000)          \
    X(cuModuleLoadData, 2000)         \
    X(cuModuleGetFunction, 2000)      \
    X(cuMemAlloc, 3020)               \
    X(cuMemcpyHtoD, 3020)             \
    X(cuLaunchKernel, 4000)           \
    X(cuMemcpyDtoH, 3020)             \
    X(cuMemFree, 3020)

/* The symbol that the macro of a base name picks: "cuMemAlloc_v2" for cuMemAlloc. */
#define SYMBOL_NAME(call) SYMBOL_SPELLED(call)
#define SYMBOL_SPELLED(symbol) #symbol

struct door {
#define DOOR_FIELD(call, version) __typeof__(call) *call;
    DOOR_CALLS(DOOR_FIELD)
#undef DOOR_FIELD
};

/* Names the call that failed and answers 1 for the whole. */
#define DOOR_TRY(door, call, ...)                                          \
    do {                                                                   \
        CUresult result = (door)->call(__VA_ARGS__);                       \
        if (result != CUDA_SUCCESS) {                                      \
            printf("%s -> %d\n", SYMBOL_NAME(call), (int)result);          \
            return 1;                                                      \
        }                                                                  \
    } while (0)

/* Adds two vectors and checks the sum. The exit code of the program that runs it. */
static inline int run_door(const struct door *door) {
    enum { N = 4096 };
    static float a[N], b[N], got[N];
    unsigned n = N;
    int version = 0, devices = 0;
    CUdevice device;
    CUcontext context;
    CUmodule module;
    CUfunction add;
    CUdeviceptr d_a, d_b, d_out;

    DOOR_TRY(door, cuInit, 0);
    DOOR_TRY(door, cuDriverGetVersion, &version);
    DOOR_TRY(door, cuDeviceGetCount, &devices);
    printf("driver %d, devices %d\n", version, devices);
    DOOR_TRY(door, cuDeviceGet, &device, 0);
    DOOR_TRY(door, cuDevicePrimaryCtxRetain, &context, device);
    DOOR_TRY(door, cuCtxSetCurrent, context);
    DOOR_TRY(door, cuModuleLoadData, &module, kernels_ptx);
    DOOR_TRY(door, cuModuleGetFunction, &add, module, "add");
    DOOR_TRY(door, cuMemAlloc, &d_a, sizeof a);
    DOOR_TRY(door, cuMemAlloc, &d_b, sizeof b);
    DOOR_TRY(door, cuMemAlloc, &d_out, sizeof got);
    for (int i = 0; i < N; i++) {
        a[i] = (float)i * 0.5f;
        b[i] = 100.0f - (float)i;
    }
    DOOR_TRY(door, cuMemcpyHtoD, d_a, a, sizeof a);
    DOOR_TRY(door, cuMemcpyHtoD, d_b, b, sizeof b);
    void *params[] = {&d_out, &d_a, &d_b, &n};
    DOOR_TRY(door, cuLaunchKernel, add, N / 256, 1, 1, 256, 1, 1, 0, NULL, params, NULL);
    DOOR_TRY(door, cuMemcpyDtoH, got, d_out, sizeof got);
    DOOR_TRY(door, cuMemFree, d_a);
    DOOR_TRY(door, cuMemFree, d_b);
    DOOR_TRY(door, cuMemFree, d_out);
    for (int i = 0; i < N; i++) {
        if (got[i] != a[i] + b[i]) {
            printf("element %d is %f, not %f\n", i, got[i], a[i] + b[i]);
            return 1;
        }
    }
    printf("vector add ok\n");
    return 0;
}

#endif
