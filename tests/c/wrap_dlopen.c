/* A preloadable library that wraps dlopen, as tracers and container tools do, and counts the times
 * the driver is opened.
 */
#define _GNU_SOURCE /* RTLD_NEXT */
#include <dlfcn.h>
#include <stdatomic.h>
#include <string.h>

#include "wrap_log.h"

static atomic_ulong opened;

typedef void *(*dlopen_function)(const char *, int);

void *dlopen(const char *file, int flags) {
    dlopen_function next = (dlopen_function)dlsym(RTLD_NEXT, "dlopen");
    if (file && strstr(file, "libcuda.so")) atomic_fetch_add(&opened, 1);
    return next ? next(file, flags) : NULL;
}

__attribute__((destructor)) static void report(void) { write_count("dlopen", opened); }
