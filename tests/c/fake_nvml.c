/* NVIDIA's management library, as far as programs ask it for memory: of one GPU of 80 GiB, whose UUID FAKE_NVML_UUID is, and of another.
 *
 * With -DASK, a program that asks it as well as the driver, and obeys lines:
 *
 *     ask_memory LIBRARY
 *
 *     nvml     `nvml TOTAL FREE USED` twice, by both versions of the function, in MiB
 *     other    the same of the other GPU
 *     join     takes the GPU
 *     alloc MIB
 *     driver   `driver TOTAL FREE`, in MiB
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct memory {
    unsigned long long total, free, used;
};
struct memory_v2 {
    unsigned version;
    unsigned long long total, reserved, free, used;
};

enum { INVALID_ARGUMENT = 2, INSUFFICIENT_SIZE = 7, MIB_SHIFT = 20 };

#ifndef ASK

static char devices[2];

int nvmlInit_v2(void) { return 0; }

int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device) {
    if (index > 1) return INVALID_ARGUMENT;
    *device = &devices[index];
    return 0;
}

int nvmlDeviceGetUUID(void *device, char *text, unsigned size) {
    const char *uuid = device == devices ? getenv("FAKE_NVML_UUID") : "GPU-00000000-1111-2222-3333-444444444444";
    if (!uuid || strlen(uuid) >= size) return INSUFFICIENT_SIZE;
    strcpy(text, uuid);
    return 0;
}

int nvmlDeviceGetMemoryInfo(void *device, struct memory *memory) {
    (void)device;
    *memory = (struct memory){80ull << 30, 79ull << 30, 1ull << 30};
    return 0;
}

int nvmlDeviceGetMemoryInfo_v2(void *device, struct memory_v2 *memory) {
    (void)device;
    if (memory->version != (sizeof *memory | 2u << 24)) return INVALID_ARGUMENT;
    *memory = (struct memory_v2){memory->version, 80ull << 30, 512ull << 20, 79ull << 30, 512ull << 20};
    return 0;
}

#else

#include <dlfcn.h>

#include "baton_cuda.h"

#define MIB(bytes) ((unsigned long long)(bytes) >> MIB_SHIFT)

static void *library;

static void ask(unsigned index) {
    void *device = NULL;
    struct memory memory;
    struct memory_v2 memory_v2 = {.version = sizeof memory_v2 | 2u << 24};
    int (*handle)(unsigned, void **), (*info)(void *, struct memory *), (*info_v2)(void *, struct memory_v2 *);
    *(void **)&handle = dlsym(library, "nvmlDeviceGetHandleByIndex_v2");
    *(void **)&info = dlsym(library, "nvmlDeviceGetMemoryInfo");
    *(void **)&info_v2 = dlsym(library, "nvmlDeviceGetMemoryInfo_v2");
    if (!handle || !info || !info_v2 || handle(index, &device) || info(device, &memory) || info_v2(device, &memory_v2)) exit(3);
    printf("nvml %llu %llu %llu, %llu %llu %llu\n", MIB(memory.total), MIB(memory.free), MIB(memory.used),
           MIB(memory_v2.total), MIB(memory_v2.free), MIB(memory_v2.used));
}

int main(int argc, char **argv) {
    char line[256];
    CUcontext context;
    CUdeviceptr at;
    size_t available, total;
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (argc != 2 || !(library = dlopen(argv[1], RTLD_NOW))) {
        printf("usage: ask_memory LIBRARY (%s)\n", argc == 2 ? dlerror() : "none");
        return 1;
    }
    while (fgets(line, sizeof line, stdin)) {
        if (!strcmp(line, "nvml\n")) {
            ask(0);
        } else if (!strcmp(line, "other\n")) {
            ask(1);
        } else if (!strcmp(line, "join\n")) {
            if (cuInit(0) || cuDevicePrimaryCtxRetain(&context, 0) || cuCtxSetCurrent(context)) return 4;
            printf("joined\n");
        } else if (!strncmp(line, "alloc ", 6)) {
            if (cuMemAlloc(&at, (size_t)atoi(line + 6) << MIB_SHIFT)) return 5;
            printf("allocated\n");
        } else if (!strcmp(line, "driver\n")) {
            if (cuMemGetInfo(&available, &total)) return 6;
            printf("driver %llu %llu\n", MIB(total), MIB(available));
        }
    }
    return 0;
}

#endif
