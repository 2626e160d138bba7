/* The simulated driver, on which contexts, arrays and managed memory take memory of the GPU, as on the device. It has no contents:
 * no program copies to or from its arrays.
 *
 * A program reaches this library as its driver. The loader finds the rest in libsimcuda.so, which this library needs.
 * COSTLY_CONTEXT_MIB is the size of a primary context.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#define MIB ((size_t)1 << 20)

enum { SUCCESS = 0, INVALID_VALUE = 1, OUT_OF_MEMORY = 2, INVALID_HANDLE = 400 };

struct location {
    int kind, id;
};
struct properties {
    int kind, handle_types;
    struct location location;
    void *windows;
    unsigned char flags[8];
};

static int (*create)(uint64_t *, size_t, const struct properties *, unsigned long long);
static int (*release)(uint64_t);
static int (*retain_primary)(void **, int);
static int (*primary_state)(int, unsigned *, int *);
static int (*release_primary)(int);
static int (*alloc_managed)(uint64_t *, size_t, unsigned);
static int (*free_memory)(uint64_t);
static int (*current)(void **);

/* An object that takes memory, by an address or a number of its own. */
struct cost {
    struct cost *next;
    uint64_t what, handle;
};
static struct cost *costs;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

__attribute__((constructor)) static void find(void) {
    void *driver = dlopen("libsimcuda.so", RTLD_NOW | RTLD_NOLOAD);
    if (!driver) abort();
    *(void **)&create = dlsym(driver, "cuMemCreate");
    *(void **)&release = dlsym(driver, "cuMemRelease");
    *(void **)&retain_primary = dlsym(driver, "cuDevicePrimaryCtxRetain");
    *(void **)&primary_state = dlsym(driver, "cuDevicePrimaryCtxGetState");
    *(void **)&release_primary = dlsym(driver, "cuDevicePrimaryCtxRelease_v2");
    *(void **)&alloc_managed = dlsym(driver, "cuMemAllocManaged");
    *(void **)&free_memory = dlsym(driver, "cuMemFree_v2");
    *(void **)&current = dlsym(driver, "cuCtxGetCurrent");
}

/* So much of the GPU is taken. */
static int take(struct cost **out, size_t bytes) {
    const struct properties properties = {.kind = 1, .location = {1, 0}};
    struct cost *cost = malloc(sizeof *cost);
    int result = create(&cost->handle, (bytes + 2 * MIB - 1) / (2 * MIB) * (2 * MIB), &properties, 0);
    if (result) {
        free(cost);
        return result;
    }
    *out = cost;
    return SUCCESS;
}

static void keep(struct cost *cost, uint64_t what) {
    pthread_mutex_lock(&lock);
    cost->what = what;
    cost->next = costs;
    costs = cost;
    pthread_mutex_unlock(&lock);
}

static int give(uint64_t what) {
    pthread_mutex_lock(&lock);
    struct cost **at = &costs, *found;
    while (*at && (*at)->what != what) at = &(*at)->next;
    if ((found = *at)) *at = found->next;
    pthread_mutex_unlock(&lock);
    if (!found) return INVALID_HANDLE;
    release(found->handle);
    free(found);
    return SUCCESS;
}

static size_t context_bytes(void) {
    const char *set = getenv("COSTLY_CONTEXT_MIB");
    return (set ? strtoul(set, NULL, 10) : 20) * MIB;
}

enum { PRIMARY = 1 };

int cuDevicePrimaryCtxRetain(void **out, int device) {
    unsigned flags;
    int active = 0;
    struct cost *cost = NULL;
    if (primary_state(device, &flags, &active) || active || !context_bytes()) return retain_primary(out, device);
    int result = take(&cost, context_bytes());
    if (result) return result;
    result = retain_primary(out, device);
    keep(cost, PRIMARY);
    if (result) give(PRIMARY);
    return result;
}

int cuDevicePrimaryCtxRelease_v2(int device) {
    unsigned flags;
    int active = 0, result = release_primary(device);
    if (!primary_state(device, &flags, &active) && !active) give(PRIMARY);
    return result;
}

static size_t of_format(unsigned format) { return format == 1 ? 1 : format == 0x10 ? 2 : 4; }

static int make(void **out, size_t bytes) {
    struct cost *cost;
    void *context = NULL;
    if (!out || !bytes) return INVALID_VALUE;
    if (current(&context) || !context) return 201;
    int result = take(&cost, bytes);
    if (result) return result;
    keep(cost, (uint64_t)(uintptr_t)cost);
    *out = cost;
    return SUCCESS;
}

struct flat {
    size_t width, height;
    unsigned format, channels;
};
struct deep {
    size_t width, height, depth;
    unsigned format, channels, flags;
};

static size_t or_one(size_t side) { return side ? side : 1; }

int cuArrayCreate_v2(void **out, const struct flat *shape) {
    return shape ? make(out, shape->width * or_one(shape->height) * of_format(shape->format) * shape->channels)
                 : INVALID_VALUE;
}

int cuArray3DCreate_v2(void **out, const struct deep *shape) {
    return shape ? make(out, shape->width * or_one(shape->height) * or_one(shape->depth) *
                                 of_format(shape->format) * shape->channels)
                 : INVALID_VALUE;
}

int cuMipmappedArrayCreate(void **out, const struct deep *shape, unsigned levels) {
    size_t bytes = 0;
    if (!shape) return INVALID_VALUE;
    for (unsigned level = 0; level < levels && level < 32; level++)
        bytes += or_one(shape->width >> level) * or_one(shape->height >> level) * or_one(shape->depth >> level) *
                 of_format(shape->format) * shape->channels;
    return make(out, bytes);
}

int cuArrayDestroy(void *array) { return give((uint64_t)(uintptr_t)array); }
int cuMipmappedArrayDestroy(void *array) { return give((uint64_t)(uintptr_t)array); }

/* Imported memory is there already. */
int cuImportExternalMemory(void **out, const void *handle) {
    if (!out || !handle) return INVALID_VALUE;
    *out = malloc(1);
    return SUCCESS;
}

int cuDestroyExternalMemory(void *memory) {
    free(memory);
    return SUCCESS;
}

int cuMemAllocManaged(uint64_t *out, size_t bytes, unsigned flags) {
    struct cost *cost;
    int result = take(&cost, bytes);
    if (result) return result;
    result = alloc_managed(out, bytes, flags);
    if (result) {
        release(cost->handle);
        free(cost);
    } else {
        keep(cost, *out);
    }
    return result;
}

int cuMemFree_v2(uint64_t address) {
    int result = free_memory(address);
    if (!result && address) give(address);
    return result;
}
