/* Takes steps towards using a GPU, in the order of its arguments, and prints the driver's answer to each. Nothing is
 * flushed before the end: no output may be lost if the program is ended.
 */
#include "baton_cuda_types.h"
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static void *driver;
/* The GPU that is taken. */
static CUdevice device;

/* The driver's function of this name. */
static void *found(const char *name)
{
    void *function = dlsym(driver, name);
    if (!function) {
        fprintf(stderr, "no %s\n", name);
        exit(2);
    }
    return function;
}

#define CALL(name, types, ...) (((CUresult(*) types)found(#name))(__VA_ARGS__))

static int step(const char *name)
{
    CUcontext context = NULL;
    if (!strcmp(name, "init"))
        return CALL(cuInit, (unsigned), 0);
    if (!strcmp(name, "count")) {
        int count = -1;
        int answer = CALL(cuDeviceGetCount, (int *), &count);
        printf("%d GPUs ", count);
        return answer;
    }
    if (!strcmp(name, "total")) {
        size_t bytes = 0;
        int answer = CALL(cuDeviceTotalMem_v2, (size_t *, CUdevice), &bytes, 0);
        printf("%zu bytes ", bytes);
        return answer;
    }
    if (!strcmp(name, "context"))
        return CALL(cuCtxCreate_v2, (CUcontext *, unsigned, CUdevice), &context, 0, device);
    if (!strcmp(name, "retain"))
        return CALL(cuDevicePrimaryCtxRetain, (CUcontext *, CUdevice), &context, device);
    if (!strcmp(name, "second"))
        return CALL(cuDeviceGet, (CUdevice *, int), &device, 1);
    if (!strcmp(name, "create")) {
        /* CUmemAllocationProp: pinned, on device 0. */
        unsigned properties[8] = {1, 0, 1, 0};
        unsigned long long handle = 0;
        return CALL(cuMemCreate, (unsigned long long *, size_t, const void *, unsigned long long), &handle,
                    2 << 20, properties, 0);
    }
    if (!strcmp(name, "pool")) {
        /* CUmemPoolProps begins in the same way. */
        unsigned properties[32] = {1, 0, 1, 0};
        void *pool = NULL;
        return CALL(cuMemPoolCreate, (void **, const void *), &pool, properties);
    }
    if (!strcmp(name, "alloc")) {
        CUdeviceptr address = 0;
        return CALL(cuMemAlloc_v2, (CUdeviceptr *, size_t), &address, 4 << 20);
    }
    if (!strcmp(name, "behind")) {
        /* A context that is made past every door. */
        void *real = dlopen(getenv("JOINING_DRIVER"), RTLD_NOW | RTLD_LOCAL);
        CUresult (*create)(CUcontext *, unsigned, CUdevice) = dlsym(real, "cuCtxCreate_v2");
        return create(&context, 0, 0);
    }
    if (!strcmp(name, "wait")) {
        puts("waiting");
        fflush(stdout);
        return getchar() == EOF;
    }
    fprintf(stderr, "no step %s\n", name);
    exit(2);
}

int main(int count, char **names)
{
    driver = dlopen("libcuda.so.1", RTLD_NOW);
    if (!driver) {
        fprintf(stderr, "%s\n", dlerror());
        return 2;
    }
    for (int at = 1; at < count; at++) {
        if (!strcmp(names[at], "fork")) {
            fflush(stdout);
            pid_t child = fork();
            if (child) {
                int status = 0;
                waitpid(child, &status, 0);
                printf("child %d\n", WIFEXITED(status) ? WEXITSTATUS(status) : -1);
                return 0;
            }
        } else {
            int answer = step(names[at]);
            printf("%s %d\n", names[at], answer);
        }
    }
    return 0;
}
