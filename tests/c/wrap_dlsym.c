/* A preloadable library that wraps dlsym, as tracers and overlays do, and counts lookups of the
 * driver's names. It calls the real dlsym and returns, which is no tail call: glibc then takes this
 * library for the caller, and RTLD_NEXT from elsewhere means "after this library". Programs live
 * with that, and so must other preloaded libraries.
 */
#define _GNU_SOURCE /* RTLD_NEXT, dlvsym */
#include <dlfcn.h>
#include <stdatomic.h>
#include <stddef.h>
#include <string.h>

#include "wrap_log.h"

static atomic_ulong lookups;

typedef void *(*dlsym_function)(void *, const char *);

/* The C library moved dlsym from libdl to libc at 2.34, and kept the old version's name. */
static dlsym_function real_dlsym(void) {
    static _Atomic(dlsym_function) known;
    dlsym_function found = atomic_load(&known);
    if (!found) {
        static const char *const versions[] = {"GLIBC_2.34", "GLIBC_2.2.5", "GLIBC_2.17"};
        for (size_t i = 0; !found && i < sizeof versions / sizeof *versions; i++) {
            found = (dlsym_function)dlvsym(RTLD_NEXT, "dlsym", versions[i]);
        }
        atomic_store(&known, found);
    }
    return found;
}

void *dlsym(void *restrict handle, const char *restrict name) {
    dlsym_function next = real_dlsym();
    if (strncmp(name, "cu", 2) == 0) atomic_fetch_add(&lookups, 1);
    return next ? next(handle, name) : NULL;
}

__attribute__((destructor)) static void report(void) { write_count("dlsym", lookups); }
