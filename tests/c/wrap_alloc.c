/* A preloadable library that wraps a function of the driver, as memory limiters do, and counts its
 * calls. It finds the driver's own through cuGetProcAddress_v2, which it looks up behind itself.
 */
#define _GNU_SOURCE /* RTLD_NEXT */
#include <dlfcn.h>
#include <stddef.h>

#include "baton_cuda.h"
#include "wrap_log.h"

#undef cuMemAlloc
#undef cuGetProcAddress

typedef CUresult (*alloc_function)(CUdeviceptr *, size_t);
typedef CUresult (*find_function)(const char *, void **, int, cuuint64_t, CUdriverProcAddressQueryResult *);

static unsigned long calls;

CUresult cuMemAlloc_v2(CUdeviceptr *out, size_t bytes) {
    find_function find = (find_function)dlsym(RTLD_NEXT, "cuGetProcAddress_v2");
    void *found = NULL;
    if (!find || find("cuMemAlloc", &found, 12000, 0, NULL) != CUDA_SUCCESS || !found) return CUDA_ERROR_UNKNOWN;
    /* Its own address would mean a call without end. */
    if (found == (void *)cuMemAlloc_v2) return CUDA_ERROR_INVALID_HANDLE;
    calls++;
    return ((alloc_function)found)(out, bytes);
}

__attribute__((destructor)) static void report(void) { write_count("cuMemAlloc_v2", calls); }
