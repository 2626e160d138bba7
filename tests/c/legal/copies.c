/* Copies of a process that uses the GPU make calls, as a data loader's workers do which have inherited objects of the GPU: the driver
 * refuses them. Other threads of the parent are in calls meanwhile.
 *
 *     copies WAY COUNT        so many copies, made by `fork`, `_Fork` (without handlers), or `clone` (past the C library)
 *     copies WAY COUNT early  the same before the parent has initialised the driver: each copy uses the GPU itself
 *     copies WAY COUNT run    so many children that run another program, which uses the GPU itself; also `vfork` and `spawn`
 *
 * Where there are two GPUs, the parent uses both. Each copy begins with another call. Prints the answers, and any copy's differences.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "baton_cuda_pools.h"
#include "common.h"

static CUcontext context;
static CUdeviceptr memory, pooled;
static CUevent event;
static CUstream stream;
static void *host;
static volatile int stop;

static void *work(void *own_pool) {
    CHECK(cuCtxSetCurrent(context));
    CUstream own;
    CHECK(cuStreamCreate(&own, CU_STREAM_NON_BLOCKING));
    CUmemoryPool pool = NULL;
    if (own_pool) {
        CUmemPoolProps properties = {.allocType = 1, .location = {1, 0}};
        CHECK(cuMemPoolCreate(&pool, &properties));
    }
    CUevent behind;
    CHECK(cuEventCreate(&behind, 2));
    while (!stop) {
        CUdeviceptr at[8];
        for (int i = 0; i < 8; i++) {
            if (pool) CHECK(cuMemAllocFromPoolAsync(&at[i], 4096, pool, own));
            else CHECK(cuMemAlloc(&at[i], i ? 4096 : 2 << 20));
        }
        unsigned kind;
        CHECK(cuPointerGetAttribute(&kind, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, at[0]));
        for (int i = 0; i < 8; i++) {
            if (pool) CHECK(cuMemFreeAsync(at[i], own));
            else CHECK(cuMemFree(at[i]));
        }
        CHECK(cuMemsetD8Async(memory, 1, 64, own));
        CHECK(cuEventRecord(behind, own));
        CHECK(cuStreamSynchronize(own));
    }
    return NULL;
}

enum { CALLS = 23 };
static const char *const names[CALLS] = {"free",      "freeasync", "range", "attribute", "copy",    "set",    "event", "destroy",
                                         "free host", "wait",      "alloc", "async",     "stream",  "memory", "reset", "init",
                                         "handle",    "reserve",   "host",  "pool",      "context", "total",  "set async"};

static int call(int which) {
    CUdeviceptr at = 0;
    size_t bytes = 0, total = 0;
    char buffer[64];
    unsigned kind = 0;
    void *pinned = NULL;
    switch (which) {
    case 0: return cuMemFree(memory);
    case 1: return cuMemFreeAsync(pooled, stream);
    case 2: return cuMemGetAddressRange(&at, &bytes, memory);
    case 3: return cuPointerGetAttribute(&kind, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, memory);
    case 4: return cuMemcpyDtoH(buffer, memory, sizeof buffer);
    case 5: return cuMemsetD8(memory, 1, 64);
    case 6: return cuEventRecord(event, stream);
    case 7: return cuEventDestroy(event);
    case 8: return cuMemFreeHost(host);
    case 9: return cuCtxSynchronize();
    case 10: return cuMemAlloc(&at, 4096);
    case 11: return cuMemAllocAsync(&at, 4096, stream);
    case 12: return cuStreamCreate(&(CUstream){0}, 0);
    case 13: return cuMemGetInfo(&bytes, &total);
    case 14: return cuDevicePrimaryCtxReset(0);
    case 15: return cuInit(0);
    case 16: {
        CUmemAllocationProp properties = {.type = 1, .location = {1, 0}};
        return cuMemCreate(&(CUmemGenericAllocationHandle){0}, 2 << 20, &properties, 0);
    }
    case 17: return cuMemAddressReserve(&at, 2 << 20, 0, 0, 0);
    case 18: return cuMemHostAlloc(&pinned, 4096, 0);
    case 19: {
        CUmemPoolProps properties = {.allocType = 1, .location = {1, 0}};
        return cuMemPoolCreate(&(CUmemoryPool){0}, &properties);
    }
    case 20: return cuCtxCreate(&(CUcontext){0}, NULL, 0, 0);
    case 21: return cuDeviceTotalMem(&bytes, 0);
    default: return cuMemsetD8Async(memory, 1, 64, stream);
    }
}

static pid_t copied(const char *way) {
    if (!strcmp(way, "fork")) return fork();
    if (!strcmp(way, "_Fork")) return _Fork();
    return (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
}

/* Uses the GPU. */
static void use(void) {
    unsigned char byte = 0;
    start();
    CHECK(cuMemAlloc(&memory, 4096));
    CHECK(cuMemsetD8(memory, 7, 4096));
    CHECK(cuMemcpyDtoH(&byte, memory, 1));
    REQUIRE(byte == 7, "it reads %d", byte);
}

static void wait_for(pid_t child, int number) {
    int status;
    REQUIRE(child > 0 && waitpid(child, &status, 0) == child, "no child");
    REQUIRE(WIFEXITED(status) && WEXITSTATUS(status) == 0, "copy %d ends with %x", number, status);
}

/* A child that runs this program to use the GPU. */
static __attribute__((noinline)) pid_t running(const char *way, char *name) {
    extern char **environ;
    char *const words[] = {name, "use", NULL};
    pid_t child = -1;
    if (!strcmp(way, "spawn")) {
        REQUIRE(!posix_spawn(&child, "/proc/self/exe", NULL, NULL, words, environ), "it cannot be started");
        return child;
    }
    child = !strcmp(way, "vfork") ? vfork() : copied(way);
    if (child == 0) {
        execv("/proc/self/exe", words);
        _exit(127);
    }
    return child;
}

/* Children that do not need their parent's objects. */
static void others(char **argv, int is_run) {
    for (int i = 0; i < atoi(argv[2]); i++) {
        pid_t child = is_run ? running(argv[1], argv[0]) : copied(argv[1]);
        if (child == 0) {
            use();
            _exit(0);
        }
        wait_for(child, i);
    }
}

int main(int argc, char **argv) {
    if (argc == 2 && !strcmp(argv[1], "use")) {
        use();
        return 0;
    }
    REQUIRE(argc >= 3, "usage: copies fork|_Fork|clone COUNT [early|run]");
    int count = atoi(argv[2]), is_early = argc > 3 && !strcmp(argv[3], "early");
    if (is_early) {
        int version;
        CHECK(cuDriverGetVersion(&version));
        others(argv, 0);
        return 0;
    }
    context = start();
    CUcontext second;
    int gpus;
    CHECK(cuDeviceGetCount(&gpus));
    if (gpus > 1) CHECK(cuDevicePrimaryCtxRetain(&second, 1));
    CHECK(cuMemAlloc(&memory, 4096));
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CHECK(cuMemAllocAsync(&pooled, 4096, stream));
    CHECK(cuCtxSynchronize());
    CHECK(cuEventCreate(&event, 2));
    CHECK(cuMemHostAlloc(&host, 4096, 0));
    struct answers {
        int of[CALLS];
    } *answers = mmap(NULL, sizeof *answers, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0), first;
    pthread_t threads[3];
    for (long i = 0; i < 3; i++) pthread_create(&threads[i], NULL, work, (void *)(i & 1));
    if (argc > 3) {
        others(argv, 1);
        count = 0;
    }
    for (int i = 0; i < count; i++) {
        memset(answers, -1, sizeof *answers);
        pid_t child = copied(argv[1]);
        if (child == 0) {
            /* A call that hangs ends it, and its answer stays -1. */
            alarm(10);
            for (int at = 0; at < CALLS; at++) answers->of[(at + i) % CALLS] = call((at + i) % CALLS);
            _exit(0);
        }
        int status = 0;
        REQUIRE(child > 0 && waitpid(child, &status, 0) == child, "no child");
        if (i == 0) first = *answers;
        for (int at = 0; at < CALLS; at++) {
            if (answers->of[at] != first.of[at]) printf("copy %d: %s answers %d\n", i, names[at], answers->of[at]);
        }
        REQUIRE(WIFEXITED(status) && WEXITSTATUS(status) == 0, "copy %d ends with %x", i, status);
    }
    for (int at = 0; count && at < CALLS; at++) printf("%s: %d\n", names[at], first.of[at]);
    stop = 1;
    for (int i = 0; i < 3; i++) pthread_join(threads[i], NULL);
    unsigned char byte = 0;
    CHECK(cuMemsetD8(memory, 7, 4096));
    CHECK(cuMemcpyDtoH(&byte, memory, 1));
    REQUIRE(byte == 7, "the parent goes on");
    CHECK(cuMemFree(memory));
    return 0;
}
