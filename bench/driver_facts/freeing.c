/* C: which calls wait for busy streams; what cuMemFreeAsync does with memory of cuMemAlloc. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "calls.h"

/* --- which calls wait ------------------------------------------------------------------------ */

struct timed {
    int which;
    CUresult got;
    double took;
    bool after_flag;
};

static void make_it(void *data) {
    struct timed *timed = data;
    double start = now_us();
    timed->got = make_call(timed->which);
    timed->took = now_us() - start;
    timed->after_flag = is_raised(0);
}

static void make_it_elsewhere(void *data) {
    MUST(cuCtxSetCurrent(world.context));
    make_it(data);
}

static void does_it_wait(const int *variant) {
    enum who who = (enum who)variant[1];
    enum wait_kind kind = (enum wait_kind)variant[2];
    bool elsewhere = variant[3];
    struct timed timed = {variant[0], CUDA_SUCCESS, 0, false};
    begin(0);
    begin_calls();
    prepare_call(timed.which);
    MUST(cuCtxSynchronize());
    about("%s waits %s until another thread raises the flag after %d ms; %s%s", whos[who],
          wait_kinds[kind], DELAY_MS, call_name(timed.which),
          elsewhere ? ", on another thread" : "");
    subject = busy(who, kind, 0);
    situation_begun();
    sleep_ms(20);
    raise_after(0, DELAY_MS);
    if (elsewhere) on_thread(make_it_elsewhere, &timed);
    else make_it(&timed);
    answer("%s (answers %d after %.*f ms)", timed.after_flag ? "WAITS" : "returns before the flag",
           (int)timed.got, timed.took > 20e3 ? 0 : 2, timed.took / 1e3);
    raise_flag(0);
}

/* --- cuMemFreeAsync of cuMemAlloc memory ------------------------------------------------------ */

static size_t free_memory(void) {
    size_t free_bytes = 0, total;
    MUST(cuMemGetInfo(&free_bytes, &total));
    return free_bytes;
}

/* What the driver says of an address. */
static void tell_address(const char *when, CUdeviceptr at) {
    CUdeviceptr base = 0;
    size_t size = 0;
    int type = 0;
    unsigned word = 0;
    CUresult range = cuMemGetAddressRange(&base, &size, at);
    CUresult attribute = cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, at);
    CUstream stream = non_blocking();
    CUresult copy = cuMemcpyDtoHAsync(&word, at, sizeof word, stream);
    CUresult after = cuStreamSynchronize(stream);
    about("%s: cuMemGetAddressRange, cuPointerGetAttribute(MEMORY_TYPE), a copy from it", when);
    answer("%d (size %zu), %d (type %d), copy %d, synchronize %d, %s", (int)range, size,
           (int)attribute, type, (int)copy, (int)after,
           word == 0x5eed5eed ? "old contents" : "other contents");
}

/* Whether an allocation of the same size gets the same address. */
static void tell_reuse(const char *when, CUdeviceptr old, size_t size) {
    bool same = false;
    CUresult got = CUDA_SUCCESS;
    double start = now_us(), longest = 0;
    for (int at = 0; at < 16 && !got; at++) {
        CUdeviceptr found = 0;
        start = now_us();
        got = cuMemAlloc(&found, size);
        if (now_us() - start > longest) longest = now_us() - start;
        same |= found == old;
    }
    about("%s: 16 times cuMemAlloc of the same size", when);
    answer("%d, the address is %s; the longest took %s", (int)got,
           same ? "GIVEN AGAIN" : "not given again", longest > 100e3 ? "over 100 ms" : "under 100 ms");
}

static void free_in_a_busy_stream(const int *variant) {
    enum who who = (enum who)variant[0];
    size_t size = variant[1] ? 512 : 64 * MIB;
    const char *large = variant[1] ? "512 bytes" : "64 MiB";
    begin(0);
    CUdeviceptr freed = memory(size);
    MUST(cuMemsetD32(freed, 0x5eed5eed, size / 4));
    MUST(cuCtxSynchronize());
    char when[160];
    size_t before = free_memory();
    CUstream stream = busy(who, BY_KERNEL, 0);
    about("cuMemFreeAsync of %s of cuMemAlloc, %s waiting in a kernel", large, whos[who]);
    double start = now_us();
    CUresult got = cuMemFreeAsync(freed, stream);
    double took = now_us() - start;
    answer("%d in %s, the stream then %s", (int)got, took > 100e3 ? "over 100 ms" : "under 100 ms",
           cuStreamQuery(stream) == CUDA_ERROR_NOT_READY ? "waits still" : "DOES NOT WAIT");
    snprintf(when, sizeof when, "%s freed in %s, which still waits", large, whos[who]);
    about("%s: cuMemGetInfo", when);
    answer("%+lld bytes free", (long long)free_memory() - (long long)before);
    if (who != LEGACY_STREAM) tell_address(when, freed);
    tell_reuse(when, freed, size);
    before = free_memory();
    raise_flag(0);
    about("%s of %s: after the flag, synchronize", large, whos[who]);
    answer("%d", (int)cuStreamSynchronize(stream));
    snprintf(when, sizeof when, "%s freed in %s, after the flag", large, whos[who]);
    about("%s: cuMemGetInfo", when);
    answer("%+lld bytes free", (long long)free_memory() - (long long)before);
    tell_address(when, freed);
    tell_reuse(when, freed, size);
}

static void free_while_capturing(const int *variant) {
    static const char *const modes[] = {"global", "thread-local", "relaxed"};
    const char *mode = modes[variant[0]];
    char when[96];
    begin(0);
    CUdeviceptr freed = memory(4 * MIB);
    MUST(cuMemsetD32(freed, 0x5eed5eed, MIB));
    MUST(cuCtxSynchronize());
    CUstream stream = non_blocking();
    MUST(cuStreamBeginCapture(stream, variant[0]));
    about("cuMemFreeAsync of cuMemAlloc memory in a stream that captures, %s", mode);
    CUresult got = cuMemFreeAsync(freed, stream);
    int status = -1;
    cuStreamIsCapturing(stream, &status);
    CUgraph graph = NULL;
    CUresult ended = cuStreamEndCapture(stream, &graph);
    size_t nodes = 0;
    if (graph) cuGraphGetNodes(graph, NULL, &nodes);
    answer("%d; capture status %d, end %d, %zu nodes", (int)got, status, (int)ended, nodes);
    snprintf(when, sizeof when, "after that capture, %s", mode);
    tell_address(when, freed);
    if (graph) {
        CUgraphExec exec;
        about("instantiate and launch that graph, %s", mode);
        CUresult made = cuGraphInstantiate(&exec, graph, 0);
        CUresult launched = made ? made : cuGraphLaunch(exec, stream);
        answer("%d, %d, synchronize %d", (int)made, (int)launched, (int)cuStreamSynchronize(stream));
        snprintf(when, sizeof when, "after that launch, %s", mode);
        tell_address(when, freed);
    }
    about("cuMemFree of it after that, %s", mode);
    answer("%d", (int)cuMemFree(freed));
}

/* When the memory of a stream-ordered free comes back. */
static void when_it_is_free(const int *variant) {
    bool beside = variant[0];
    const size_t size = 64 * MIB;
    begin(0);
    CUdeviceptr freed = memory(size);
    CUstream stream = non_blocking();
    MUST(cuCtxSynchronize());
    long long before = (long long)free_memory();
    if (beside) {
        busy(NON_BLOCKING, BY_KERNEL, 0);
        about("cuMemFreeAsync of 64 MiB in an idle stream while another waits: 300 ms later, nothing "
              "asked in between, cuMemGetInfo");
    } else {
        wait_in(stream, BY_KERNEL, 0);
        about("cuMemFreeAsync of 64 MiB in a stream, whose flag is then raised: 300 ms later, nothing "
              "asked in between, cuMemGetInfo");
    }
    CUresult got = cuMemFreeAsync(freed, stream);
    if (!beside) raise_flag(0);
    sleep_ms(300);
    answer("%d; %+lld bytes free", (int)got, (long long)free_memory() - before);
    about("… %s: cuStreamQuery, cuStreamSynchronize of the freeing stream", beside ? "beside" : "alone");
    raise_after(0, DELAY_MS);
    CUresult asked = cuStreamQuery(stream);
    got = cuStreamSynchronize(stream);
    bool waited = beside && is_raised(0);
    answer("%d, %d, %s; cuMemGetInfo %+lld bytes free", (int)asked, (int)got,
           waited ? "WAITS for the other stream" : "does not wait", (long long)free_memory() - before);
    raise_flag(0);
    MUST(cuCtxSynchronize());
    about("… %s: after cuCtxSynchronize", beside ? "beside" : "alone");
    answer("%+lld bytes free", (long long)free_memory() - before);
}

static int by_size(const void *a, const void *b) {
    double one = *(const double *)a, two = *(const double *)b;
    return (one > two) - (one < two);
}

/* What allocating and freeing costs in a context that does nothing else. */
static void cost_of_freeing(const int *variant) {
    enum { TIMES = 200 };
    static double took[3][TIMES];
    size_t size = variant[0] ? 4 * MIB : 512;
    bool in_stream = variant[1], waiting = variant[2];
    begin(0);
    CUstream stream = non_blocking();
    mark_in(stream, 0);
    MUST(cuCtxSynchronize());
    about("%zu bytes, %s%s", size, in_stream ? "cuMemFreeAsync" : "cuMemFree",
          waiting ? ", the stream waits" : "");
    if (waiting) wait_in(stream, BY_KERNEL, 0);
    CUresult got = CUDA_SUCCESS;
    double first = 0;
    for (int at = 0; at < TIMES; at++) {
        CUdeviceptr some;
        double start = now_us();
        MUST(cuMemAlloc(&some, size));
        took[0][at] = now_us() - start;
        start = now_us();
        got = in_stream ? cuMemFreeAsync(some, stream) : cuMemFree(some);
        took[1][at] = now_us() - start;
        if (!at) first = took[1][0];
        start = now_us();
        if (!waiting) MUST(cuStreamSynchronize(stream));
        took[2][at] = now_us() - start;
    }
    for (int which = 0; which < 3; which++) qsort(took[which], TIMES, sizeof(double), by_size);
    answer("cuMemAlloc %.1f us, free %.1f us (the first %.0f us, answers %d), cuStreamSynchronize of "
           "the stream %.1f us; medians of %d",
           took[0][TIMES / 2], took[1][TIMES / 2], first, (int)got, took[2][TIMES / 2], TIMES);
    raise_flag(0);
}

static void odd_free(const int *variant) {
    begin(0);
    CUstream stream = non_blocking();
    CUdeviceptr some = memory(4 * MIB), second = 0;
    CUcontext other;
    CUresult one, two;
    MUST(cuCtxSynchronize());
    about("variant %d", variant[0]);
    switch (variant[0]) {
    case 0:
        about("cuMemFreeAsync in an idle stream, synchronize, cuMemFree");
        one = cuMemFreeAsync(some, stream);
        two = cuStreamSynchronize(stream);
        answer("%d, %d, %d", (int)one, (int)two, (int)cuMemFree(some));
        return;
    case 1:
        about("cuMemFreeAsync twice in an idle stream");
        one = cuMemFreeAsync(some, stream);
        two = cuMemFreeAsync(some, stream);
        answer("%d, %d; synchronize %d", (int)one, (int)two, (int)cuStreamSynchronize(stream));
        return;
    case 2:
        wait_in(stream, BY_KERNEL, 0);
        about("cuMemFreeAsync twice in a waiting stream");
        one = cuMemFreeAsync(some, stream);
        two = cuMemFreeAsync(some, stream);
        answer("%d, %d", (int)one, (int)two);
        raise_flag(0);
        about("cuMemFreeAsync twice in a waiting stream, after the flag");
        answer("synchronize %d", (int)cuStreamSynchronize(stream));
        return;
    case 3:
        wait_in(stream, BY_KERNEL, 0);
        one = cuMemFreeAsync(some, stream);
        raise_after(0, 300);
        double start = now_us();
        about("cuMemFree after cuMemFreeAsync in a stream that waits 300 ms more");
        two = cuMemFree(some);
        answer("%d, %d after %.0f ms; synchronize %d", (int)one, (int)two, (now_us() - start) / 1e3,
               (int)cuStreamSynchronize(stream));
        return;
    case 4:
        about("cuMemFreeAsync of an address inside the allocation");
        one = cuMemFreeAsync(some + 256, stream);
        answer("%d; the allocation itself then: %d", (int)one, (int)cuMemFreeAsync(some, stream));
        return;
    case 5:
        MUST(cuCtxCreate(&other, 0, world.device));
        stream = non_blocking();
        MUST(cuCtxSetCurrent(world.context));
        about("cuMemFreeAsync in a stream of another context of the GPU, then cuMemFree");
        one = cuMemFreeAsync(some, stream);
        two = cuStreamSynchronize(stream);
        answer("%d, synchronize %d, cuMemFree %d", (int)one, (int)two, (int)cuMemFree(some));
        return;
    case 6:
        about("cuMemFreeAsync of 0");
        answer("%d", (int)cuMemFreeAsync(0, stream));
        return;
    case 7:
        about("cuMemFreeAsync of pinned host memory");
        answer("%d", (int)cuMemFreeAsync((CUdeviceptr)(uintptr_t)world.words, stream));
        return;
    case 8:
        about("cuMemFreeAsync of freed memory");
        MUST(cuMemFree(some));
        answer("%d", (int)cuMemFreeAsync(some, stream));
        return;
    case 9:
        about("cuMemFreeAsync in legacy (0), legacy (1), per-thread (2)");
        second = memory(4 * MIB);
        one = cuMemFreeAsync(some, NULL);
        two = cuMemFreeAsync(second, LEGACY);
        some = memory(4 * MIB);
        answer("%d, %d, %d; synchronize %d", (int)one, (int)two,
               (int)cuMemFreeAsync(some, PER_THREAD), (int)cuCtxSynchronize());
        return;
    case 10:
        about("cuMemFree of memory of cuMemAllocAsync in the same, idle stream");
        one = cuMemAllocAsync(&second, 4 * MIB, stream);
        two = cuMemFree(second);
        answer("%d, %d", (int)one, (int)two);
        return;
    case 11:
        about("cuMemFree of memory of cuMemAllocAsync, another stream waiting 300 ms in a kernel");
        one = cuMemAllocAsync(&second, 4 * MIB, stream);
        MUST(cuStreamSynchronize(stream));
        wait_in(non_blocking(), BY_KERNEL, 0);
        raise_after(0, 300);
        start = now_us();
        two = cuMemFree(second);
        answer("%d, %d after %.0f ms", (int)one, (int)two, (now_us() - start) / 1e3);
        return;
    case 12: {
        CUstream gone = non_blocking();
        MUST(cuStreamDestroy(gone));
        about("cuMemFreeAsync in a destroyed stream");
        one = cuMemFreeAsync(some, gone);
        answer("%d; cuMemFree %d", (int)one, (int)cuMemFree(some));
        return;
    }
    case 13:
        MUST(cuCtxCreate(&other, 0, world.device));
        about("cuMemFree of memory of the primary context while another is current");
        answer("%d", (int)cuMemFree(some));
        return;
    case 14:
        MUST(cuCtxSetCurrent(NULL));
        about("cuMemFree without a current context");
        one = cuMemFree(some);
        about("cuMemFree, cuMemFreeAsync(stream), cuMemFreeAsync(0) without a current context");
        two = cuMemFreeAsync(some, stream);
        answer("%d, %d, %d", (int)one, (int)two, (int)cuMemFreeAsync(some, NULL));
        return;
    }
}

void add_freeing(void) {
    static const enum who waiters[] = {BLOCKING, NON_BLOCKING};
    for (int which = 0; call_name(which); which++) {
        const char *name = call_name(which);
        bool is_free = !strncmp(name, "cuMemFree(", 10);
        for (int at = 0; at < 2; at++) add("C waits", ONE_GPU, does_it_wait, which, waiters[at], 0, 0);
        if (!is_free) continue;
        for (int who = NOBODY; who <= GRAPH; who++)
            for (int kind = 0; kind < 2; kind++) {
                if (kind == BY_WAIT_VALUE && (who == NOBODY || who >= HOST_FUNCTION)) continue;
                if (who > NON_BLOCKING || kind || who == NOBODY)
                    add("C waits", ONE_GPU, does_it_wait, which, who, kind, 0);
                if (who == BLOCKING || who == NON_BLOCKING)
                    add("C waits", ONE_GPU, does_it_wait, which, who, kind, 1);
            }
    }
    static const enum who streams[] = {BLOCKING, NON_BLOCKING, LEGACY_STREAM, OWN_PER_THREAD};
    for (int at = 0; at < 4; at++)
        for (int small = 0; small < 2; small++)
            add("C FreeAsync", ALONE, free_in_a_busy_stream, streams[at], small, 0, 0);
    for (int mode = 0; mode < 3; mode++)
        add("C FreeAsync", ONE_GPU, free_while_capturing, mode, 0, 0, 0);
    for (int beside = 0; beside < 2; beside++)
        add("C FreeAsync", ALONE, when_it_is_free, beside, 0, 0, 0);
    for (int large = 0; large < 2; large++)
        for (int way = 0; way < 3; way++)
            add("C cost", ALONE, cost_of_freeing, large, way > 0, way > 1, 0);
    for (int odd = 0; odd <= 14; odd++) add("C FreeAsync", ONE_GPU, odd_free, odd, 0, 0, 0);
}
