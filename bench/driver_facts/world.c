/* A context, kernels, streams, words that the host and the GPU share. */
#include "world.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* spin_on_flag gives up after 12 s: nothing may stay on a GPU for ever. The other two do what the
 * simulated driver's kernels of these names do, as far as it is asked for here. */
const char *kernels_ptx =
    ".version 7.0\n.target sm_70\n.address_size 64\n"
    ".visible .entry spin_on_flag(.param .u64 out, .param .u64 flag, .param .u32 value)\n"
    "{ .reg .pred %p<3>; .reg .b32 %r<4>; .reg .b64 %rd<6>;\n"
    "  ld.param.u64 %rd1, [out]; ld.param.u64 %rd2, [flag]; ld.param.u32 %r1, [value];\n"
    "  mov.u64 %rd3, %globaltimer; add.u64 %rd4, %rd3, 12000000000;\n"
    "AGAIN: ld.volatile.u32 %r2, [%rd2]; setp.ge.u32 %p1, %r2, %r1; @%p1 bra DONE;\n"
    "  mov.u64 %rd3, %globaltimer; setp.lt.u64 %p2, %rd3, %rd4; @%p2 bra AGAIN;\n"
    "DONE: st.u32 [%rd1], %r2; ret; }\n"
    ".visible .entry fill_hash(.param .u64 out, .param .u32 seed, .param .u32 n)\n"
    "{ .reg .pred %p<2>; .reg .b32 %r<5>; .reg .b64 %rd<4>;\n"
    "  ld.param.u64 %rd1, [out]; ld.param.u32 %r1, [seed]; ld.param.u32 %r2, [n];\n"
    "  mov.u32 %r3, 0;\n"
    "AGAIN: setp.ge.u32 %p1, %r3, %r2; @%p1 bra DONE;\n"
    "  st.volatile.u32 [%rd1], %r1; add.u64 %rd1, %rd1, 4; add.u32 %r3, %r3, 1; bra AGAIN;\n"
    "DONE: ret; }\n"
    ".visible .entry sum_u32(.param .u64 out, .param .u64 in, .param .u32 n)\n"
    "{ .reg .pred %p<2>; .reg .b32 %r<5>; .reg .b64 %rd<6>;\n"
    "  ld.param.u64 %rd1, [out]; ld.param.u64 %rd2, [in]; ld.param.u32 %r1, [n];\n"
    "  ld.u64 %rd3, [%rd1]; mov.u32 %r2, 0;\n"
    "AGAIN: setp.ge.u32 %p1, %r2, %r1; @%p1 bra DONE;\n"
    "  ld.u32 %r3, [%rd2]; cvt.u64.u32 %rd4, %r3; add.u64 %rd3, %rd3, %rd4;\n"
    "  add.u64 %rd2, %rd2, 4; add.u32 %r2, %r2, 1; bra AGAIN;\n"
    "DONE: st.u64 [%rd1], %rd3; ret; }\n";

struct world world;
CUgreenCtx green_context;
const char *const wait_kinds[] = {"in a kernel", "in cuStreamWaitValue32"};
const char *const whos[] = {
    "nobody",
    "a blocking stream",
    "a non-blocking stream",
    "the legacy stream",
    "the own per-thread stream",
    "another thread's per-thread stream",
    "a stream with priority",
    "a stream of another context",
    "a green context's stream",
    "a stream destroyed meanwhile",
    "a non-blocking stream in a host function",
    "a non-blocking stream in a graph",
};

static void load_kernels(struct world *in) {
    MUST(cuModuleLoadData(&in->module, kernels_ptx));
    MUST(cuModuleGetFunction(&in->spinning, in->module, "spin_on_flag"));
    MUST(cuModuleGetFunction(&in->filling, in->module, "fill_hash"));
    MUST(cuModuleGetFunction(&in->summing, in->module, "sum_u32"));
    MUST(cuMemAlloc(&in->scratch, 4096));
    MUST(cuMemsetD8(in->scratch, 0, 4096));
}

/* Loads what is loaded lazily: kernels, the per-thread stream, the way to wait for a word. */
static void warm_up(void) {
    CUstream streams[] = {LEGACY, PER_THREAD};
    for (int at = 0; at < 2; at++) {
        world.words[FLAGS + at] = 1;
        wait_in(streams[at], BY_KERNEL, at);
        mark_in(streams[at], at);
        wait_in(streams[at], BY_WAIT_VALUE, at);
        CUdeviceptr in = world.scratch, out = world.scratch + 1024;
        unsigned n = 1;
        MUST(cuLaunchKernel(world.summing, 1, 1, 1, 1, 1, 1, 0, streams[at],
                            (void *[]){&out, &in, &n}, NULL));
    }
    MUST(cuCtxSynchronize());
    memset((void *)world.words, 0, 4096 * sizeof *world.words);
}

struct world another_world(int gpu, CUcontext context) {
    struct world kept = world, made;
    MUST(cuCtxSetCurrent(context));
    world.device = gpu;
    world.context = context;
    load_kernels(&world);
    warm_up();
    made = world;
    world = kept;
    return made;
}

void begin(int gpu) {
    open_driver();
    about("beginning");
    MUST(cuInit(0));
    MUST(cuDeviceGet(&world.device, gpu));
    MUST(cuDevicePrimaryCtxRetain(&world.context, world.device));
    MUST(cuCtxSetCurrent(world.context));
    void *host;
    MUST(cuMemHostAlloc(&host, 4096 * sizeof *world.words,
                        CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP));
    world.words = host;
    load_kernels(&world);
    warm_up();
}

CUstream blocking(void) {
    CUstream stream;
    MUST(cuStreamCreate(&stream, CU_STREAM_DEFAULT));
    return stream;
}

CUstream non_blocking(void) {
    CUstream stream;
    MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    return stream;
}

CUevent an_event(void) {
    CUevent event;
    MUST(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    return event;
}

CUevent old_event(void) {
    CUevent event = an_event();
    CUstream stream = non_blocking();
    MUST(cuEventRecord(event, stream));
    MUST(cuStreamSynchronize(stream));
    return event;
}

CUdeviceptr memory(size_t bytes) {
    CUdeviceptr found;
    MUST(cuMemAlloc(&found, bytes));
    return found;
}

static CUdeviceptr word(int at) {
    return (CUdeviceptr)(uintptr_t)(world.words + at);
}

void wait_in(CUstream stream, enum wait_kind kind, int at) {
    CUdeviceptr flag = word(FLAGS + at), out = world.scratch;
    unsigned value = 1;
    if (kind == BY_WAIT_VALUE)
        MUST(cuStreamWaitValue32(stream, flag, 1, CU_STREAM_WAIT_VALUE_GEQ));
    else
        MUST(cuLaunchKernel(world.spinning, 1, 1, 1, 1, 1, 1, 0, stream,
                            (void *[]){&out, &flag, &value}, NULL));
}

void raise_flag(int at) {
    __atomic_store_n(&world.words[FLAGS + at], 1, __ATOMIC_SEQ_CST);
}

bool is_raised(int at) {
    return __atomic_load_n(&world.words[FLAGS + at], __ATOMIC_SEQ_CST);
}

struct later {
    int at;
    unsigned ms;
};

static void raise_later(void *data) {
    struct later *later = data;
    sleep_ms(later->ms);
    raise_flag(later->at);
    free(later);
}

void raise_after(int at, unsigned ms) {
    struct later *later = malloc(sizeof *later);
    *later = (struct later){at, ms};
    start_thread(raise_later, later);
}

CUresult try_mark_in(CUstream stream, int at) {
    CUdeviceptr out = word(MARKS + at);
    unsigned seed = 1, n = 1;
    return cuLaunchKernel(world.filling, 1, 1, 1, 1, 1, 1, 0, stream, (void *[]){&out, &seed, &n},
                          NULL);
}

void mark_in(CUstream stream, int at) {
    world.words[MARKS + at] = 0;
    MUST(try_mark_in(stream, at));
}

bool marked(int at, unsigned within_ms) {
    for (double until = now_us() + within_ms * 1e3; !world.words[MARKS + at]; sleep_ms(1))
        if (now_us() > until) return false;
    return true;
}

bool ready(CUevent event, unsigned within_ms) {
    for (double until = now_us() + within_ms * 1e3; cuEventQuery(event); sleep_ms(1))
        if (now_us() > until) return false;
    return true;
}

/* --- threads -------------------------------------------------------------------------------- */

struct start {
    void (*run)(void *);
    void *data;
};

static void *run_thread(void *data) {
    struct start start = *(struct start *)data;
    free(data);
    start.run(start.data);
    return NULL;
}

static pthread_t started(void (*run)(void *), void *data) {
    struct start *start = malloc(sizeof *start);
    *start = (struct start){run, data};
    pthread_t thread;
    if (pthread_create(&thread, NULL, run_thread, start)) abort();
    return thread;
}

void start_thread(void (*run)(void *), void *data) {
    pthread_detach(started(run, data));
}

void on_thread(void (*run)(void *), void *data) {
    pthread_join(started(run, data), NULL);
}

/* --- streams that can be busy ---------------------------------------------------------------- */

struct waiting {
    enum wait_kind kind;
    int at;
    volatile bool queued;
};

/* A thread's per-thread default stream lives as long as the thread. */
static void wait_in_own_stream(void *data) {
    struct waiting *waiting = data;
    MUST(cuCtxSetCurrent(world.context));
    wait_in(PER_THREAD, waiting->kind, waiting->at);
    waiting->queued = true;
    for (;;) sleep_ms(1000);
}

static void wait_on_host(void *data) {
    volatile unsigned *flag = data;
    while (!*flag) sleep_ms(1);
}

static CUstream green_stream(void) {
    CUdevResource all, part;
    unsigned groups = 1;
    CUdevResourceDesc description;
    CUstream stream;
    MUST(cuDeviceGetDevResource(world.device, &all, DEV_RESOURCE_TYPE_SM));
    MUST(cuDevSmResourceSplitByCount(&part, &groups, &all, NULL, 0, 16));
    MUST(cuDevResourceGenerateDesc(&description, &part, 1));
    MUST(cuGreenCtxCreate(&green_context, description, world.device, GREEN_CTX_DEFAULT_STREAM));
    MUST(cuGreenCtxStreamCreate(&stream, green_context, CU_STREAM_NON_BLOCKING, 0));
    return stream;
}

CUstream busy(enum who who, enum wait_kind kind, int at) {
    CUstream stream = NULL;
    switch (who) {
    case NOBODY:
        return NULL;
    case BLOCKING:
        stream = blocking();
        break;
    case NON_BLOCKING:
        stream = non_blocking();
        break;
    case LEGACY_STREAM:
        stream = LEGACY;
        break;
    case OWN_PER_THREAD:
        stream = PER_THREAD;
        break;
    case OTHERS_PER_THREAD: {
        struct waiting *waiting = calloc(1, sizeof *waiting);
        *waiting = (struct waiting){kind, at, false};
        start_thread(wait_in_own_stream, waiting);
        while (!waiting->queued) sleep_ms(1);
        return NULL;
    }
    case WITH_PRIORITY:
        MUST(cuStreamCreateWithPriority(&stream, CU_STREAM_NON_BLOCKING, -1));
        break;
    case OTHER_CONTEXT: {
        CUcontext other;
        MUST(cuCtxCreate(&other, 0, world.device));
        struct world kept = world;
        world = another_world(world.device, other);
        stream = blocking();
        wait_in(stream, kind, at);
        world = kept;
        MUST(cuCtxSetCurrent(world.context));
        return stream;
    }
    case GREEN_CONTEXT:
        stream = green_stream();
        break;
    case DESTROYED:
        stream = non_blocking();
        wait_in(stream, kind, at);
        MUST(cuStreamDestroy(stream));
        return NULL;
    case HOST_FUNCTION:
        stream = non_blocking();
        MUST(cuLaunchHostFunc(stream, wait_on_host, (void *)(world.words + FLAGS + at)));
        return stream;
    case GRAPH: {
        CUgraph graph;
        CUgraphExec exec;
        stream = non_blocking();
        MUST(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
        wait_in(stream, BY_KERNEL, at);
        MUST(cuStreamEndCapture(stream, &graph));
        MUST(cuGraphInstantiate(&exec, graph, 0));
        MUST(cuGraphLaunch(exec, stream));
        return stream;
    }
    }
    wait_in(stream, kind, at);
    return stream;
}
