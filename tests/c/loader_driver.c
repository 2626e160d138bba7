/* A driver that is a loader: it opens the driver proper by its path and hands each call on to that, as WSL's does.
 *
 * LOADER_OPENS names the library, and LOADER_WHEN says when it is opened, and by whom:
 *
 *     constructor    as soon as the loader itself is opened
 *     init           in cuInit
 *     call           in whichever call comes first
 *     thread         in a thread that cuInit starts
 *     helper         in cuInit, by another library, which LOADER_HELPER names
 *
 * With -DHELPER, that other library.
 *
 * With -DOPENS=LIBRARY, a driver that hands on the names of an older CUDA only: it opens that library as soon as it is opened itself.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#ifdef HELPER

void *open_for_the_loader(const char *path) {
    /* No tail call: a search for the caller has to find this library. */
    void *volatile library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    return library;
}

#else

/* A slot for each function, and the function, which jumps to where the slot says. */
static int not_initialised(void) { return 3; }
#define NAME(name)                                                                      \
    __attribute__((visibility("hidden"))) void *slot_##name = (void *)not_initialised;  \
    __attribute__((naked)) void name(void) { __asm__("jmp *slot_" #name "(%rip)"); }
#include "driver_names.h"
#undef NAME

static int (*init)(unsigned);
static int (*version_of)(int *);
static int (*find_v1)(const char *, void **, int, unsigned long long);
static int (*find_v2)(const char *, void **, int, unsigned long long, int *);

static int is_when(const char *word) {
    const char *when = getenv("LOADER_WHEN");
    return when && strcmp(when, word) == 0;
}

static void *opened;

#ifdef OPENS
enum { IS_OLDER = 1 };
#else
#define OPENS getenv("LOADER_OPENS")
enum { IS_OLDER = 0 };
#endif

static void *open_itself(void *path) {
    opened = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    return NULL;
}

static void open_by_helper(char *path) {
    void *helper = dlopen(getenv("LOADER_HELPER"), RTLD_NOW | RTLD_LOCAL);
    void *(*open)(const char *) = NULL;
    if (helper) *(void **)&open = dlsym(helper, "open_for_the_loader");
    if (!open) abort();
    opened = open(path);
}

static void load(void) {
    char *path = OPENS;
    pthread_t thread;
    if (opened) return;
    if (!path) abort();
    if (is_when("thread")) {
        if (pthread_create(&thread, NULL, open_itself, path)) abort();
        pthread_join(thread, NULL);
    } else if (is_when("helper")) {
        open_by_helper(path);
    } else {
        open_itself(path);
    }
    if (!opened) abort();
#define NAME(name)                                   \
    if (dlsym(opened, #name)) slot_##name = dlsym(opened, #name);
#include "driver_names.h"
#undef NAME
    *(void **)&init = dlsym(opened, "cuInit");
    *(void **)&version_of = dlsym(opened, "cuDriverGetVersion");
    *(void **)&find_v1 = dlsym(opened, "cuGetProcAddress");
    *(void **)&find_v2 = dlsym(opened, "cuGetProcAddress_v2");
    if (!init || !version_of || !find_v1 || !find_v2) abort();
}

__attribute__((constructor)) static void begin(void) {
    if (IS_OLDER || is_when("constructor")) load();
}

int cuInit(unsigned flags) {
    load();
    return init(flags);
}

int cuDriverGetVersion(int *version) {
    if (is_when("call")) load();
    return opened ? version_of(version) : 3;
}

int cuGetProcAddress(const char *name, void **function, int version, unsigned long long flags) {
    if (is_when("call")) load();
    return opened ? find_v1(name, function, version, flags) : 3;
}

#ifndef BEFORE_12
int cuGetProcAddress_v2(const char *name, void **function, int version, unsigned long long flags, int *status) {
    if (is_when("call")) load();
    return opened ? find_v2(name, function, version, flags, status) : 3;
}
#endif

#endif
