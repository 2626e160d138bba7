/* The common part of this folder's programs. Each is a legal program of a kind that is easily
 * forgotten: its threads, streams and captures wait for each other in ways that the driver allows.
 * Its first argument says which of its cases is played.
 *
 * They print the driver's answers and their results, and nothing that depends on time, so that
 * their output alone on a GPU and as one of Baton's programs can be compared. At a line `waits` a
 * program waits for a line on its standard input, for something to be done to it meanwhile.
 *
 * A program that comes no further for LIMIT seconds says so and ends with exit code 3. Seconds are
 * counted by looking: on a loaded machine, the watchdog gets a processor as seldom as the others.
 */
#ifndef LEGAL_H
#define LEGAL_H

#include <limits.h>
#include <stdatomic.h>
#include <sys/mman.h>

#include "../sharing/work.h"

enum { LIMIT = 20 };

/* --- the end of a program that hangs ------------------------------------------------------- */

static _Atomic(const char *) step_now;
static atomic_int looks;

/* From here on the program does this; it must not take long. */
static inline void step(const char *what) {
    atomic_store(&step_now, what);
    atomic_store(&looks, 0);
}

static inline void *watch(void *nothing) {
    (void)nothing;
    for (;;) {
        sleep_ms(10);
        if (atomic_fetch_add(&looks, 1) < LIMIT * 100) continue;
        /* The thread that hangs may hold the streams' locks. */
        dprintf(1, "it hangs: %s\n", atomic_load(&step_now));
        _exit(3);
    }
}

/* Runs something in a thread of its own. */
static inline pthread_t go(void *(*what)(void *), void *data) {
    pthread_t thread;
    REQUIRE(pthread_create(&thread, NULL, what, data) == 0, "no thread");
    return thread;
}

static inline void join(pthread_t thread) { REQUIRE(pthread_join(thread, NULL) == 0, "no end"); }

/* --- work done meanwhile ------------------------------------------------------------------- */

static inline void wait_for_line(void) {
    atomic_store(&looks, INT_MIN); /* for months */
    printf("waits\n");
    for (int c = getchar(); c != '\n' && c != EOF;) c = getchar();
    step("going on");
}

/* --- words that streams and threads wait for ----------------------------------------------- */

/* Words in pinned memory, which host and device have at one address, all 0. */
static inline volatile unsigned *flags_new(unsigned count) {
    void *flags;
    CHECK(cuMemHostAlloc(&flags, count * sizeof(unsigned), CU_MEMHOSTALLOC_PORTABLE));
    memset(flags, 0, count * sizeof(unsigned));
    return flags;
}

static inline CUdeviceptr on_device(volatile unsigned *flag) {
    CUdeviceptr address;
    CHECK(cuMemHostGetDevicePointer(&address, (void *)flag, 0));
    return address;
}

/* The host raises a flag: no call, so nothing can hold it up. */
static inline void raise_flag(volatile unsigned *flag) {
    __atomic_store_n(flag, 1, __ATOMIC_RELEASE);
}

enum { AT_LEAST = 0 };

static inline void wait_flag(CUstream stream, volatile unsigned *flag) {
    CHECK(cuStreamWaitValue32(stream, on_device(flag), 1, AT_LEAST));
}

static inline void write_flag(CUstream stream, volatile unsigned *flag) {
    CHECK(cuStreamWriteValue32(stream, on_device(flag), 1, 0));
}

static inline CUstream stream_new(unsigned flags) {
    CUstream stream;
    CHECK(cuStreamCreate(&stream, flags));
    return stream;
}

/* --- calls that the examples do not need --------------------------------------------------- */

CUresult cuGraphExecChildGraphNodeSetParams(CUgraphExec exec, CUgraphNode node, CUgraph child);
CUresult cuGraphNodeSetEnabled(CUgraphExec exec, CUgraphNode node, unsigned enabled);

/* --- the cases of a program ---------------------------------------------------------------- */

struct legal_case {
    const char *name;
    void (*play)(void);
};

CUresult cuCtxCreate_v2(CUcontext *context, unsigned flags, CUdevice device);

/* One more context on a GPU, by the function that all drivers have. */
static inline CUcontext context_new(CUdevice device) {
    CUcontext made;
    CHECK(cuCtxCreate_v2(&made, 0, device));
    return made;
}

static CUcontext context;
static struct tools tools;

/* Has each kernel run once: a first launch may have to load code, which waits for all that runs. */
static inline struct tools warm_tools(CUmodule module) {
    struct tools ready = tools_from(module);
    struct piece piece = piece_new(&ready, 4096, 1, NULL);
    CUdeviceptr sum = device_alloc(8);
    piece_sum(&ready, &piece, sum, NULL);
    CHECK(cuCtxSynchronize());
    CHECK(cuMemFree(piece.at));
    CHECK(cuMemFree(sum));
    return ready;
}

/* Takes the first GPU. */
static inline void take_gpu(void) {
    context = start();
    tools = warm_tools(load_kernels());
}

/* Plays the case that the first argument names, after something that all need. */
static inline int play(int argc, char **argv, void (*first)(void), const struct legal_case *cases,
                       size_t count) {
    setvbuf(stdout, NULL, _IOLBF, 0);
    for (size_t i = 0; i < count; i++) {
        if (argc != 2 || strcmp(argv[1], cases[i].name) != 0) continue;
        step("starting");
        pthread_detach(go(watch, NULL));
        first();
        cases[i].play();
        step("ending");
        printf("the end\n");
        return 0;
    }
    printf("usage: %s", argv[0]);
    for (size_t i = 0; i < count; i++) printf(" %s%s", i ? "| " : "", cases[i].name);
    printf("\n");
    return 2;
}

#endif
