/* A wait in one context, stream or GPU holds up no thread in another one, where the driver does
 * not.
 */
#include "baton_cuda_pools.h"
#include "legal.h"

static CUcontext other;
static CUmodule spare;
static volatile unsigned *flag;
static CUstream waiting, another;
static atomic_int done;

/* --- a thread that waits in the other context ------------------------------------------------ */

/* Enters a context in which work waits for the flag. */
static void have_it_wait(void) {
    CHECK(cuCtxSetCurrent(other));
    CHECK(cuModuleLoadData(&spare, kernels_ptx));
    flag = flags_new(1);
    waiting = stream_new(CU_STREAM_NON_BLOCKING);
    wait_flag(waiting, flag);
}

static void *unloads(void *nothing) {
    CHECK(cuCtxSetCurrent(other));
    CHECK(cuModuleUnload(spare));
    atomic_store(&done, 1);
    return nothing;
}

/* Something that the first context has to do first. */
static pthread_t begin(void) {
    have_it_wait();
    pthread_t thread = go(unloads, NULL);
    sleep_ms(200);
    CHECK(cuCtxSetCurrent(context));
    another = stream_new(CU_STREAM_NON_BLOCKING);
    return thread;
}

static void end(pthread_t thread) {
    REQUIRE(!atomic_load(&done), "code went while work ran");
    raise_flag(flag);
    step("waiting for the thread that waited");
    join(thread);
    CHECK(cuCtxSetCurrent(other));
    CHECK(cuCtxSynchronize());
    CHECK(cuCtxSetCurrent(context));
    printf("nobody waited\n");
}

/* Frees in a stream's order, and allocates as much again. */
static void frees_in_order(void) {
    enum { PIECES = 40 };
    CUdeviceptr pieces[PIECES];
    pthread_t thread = begin();
    for (unsigned round = 0; round < 3; round++) {
        step("freeing in a stream's order beside a context that waits");
        for (unsigned i = 0; i < PIECES; i++) pieces[i] = device_alloc(2 * MIB);
        for (unsigned i = 0; i < PIECES; i++) {
            CHECK(cuMemsetD8Async(pieces[i], 1, 2 * MIB, another));
            CHECK(cuMemFreeAsync(pieces[i], another));
        }
        CHECK(cuStreamSynchronize(another));
    }
    end(thread);
}

/* Frees while a kernel runs: that one is waited for, and nothing else. */
static void frees(void) {
    struct piece piece = piece_new(&tools, 8 * MIB, 1, NULL);
    CUdeviceptr victim = device_alloc(4 * MIB);
    pthread_t thread = begin();
    step("freeing beside a context that waits");
    for (unsigned i = 0; i < 20; i++) piece_write(&tools, &piece, i, another);
    CHECK(cuMemFree(victim));
    CHECK(cuMemFree(piece.at));
    end(thread);
}

static void first_and_another_context(void) {
    take_gpu();
    other = context_new(0);
    CHECK(cuCtxSetCurrent(context));
}

static void two_contexts_frees(void) { first_and_another_context(); frees(); }
static void two_contexts_in_order(void) { first_and_another_context(); frees_in_order(); }

static void two_gpus(void) {
    take_gpu();
    CHECK(cuDevicePrimaryCtxRetain(&other, 1));
}

static void two_gpus_frees(void) { two_gpus(); frees(); }
static void two_gpus_in_order(void) { two_gpus(); frees_in_order(); }

/* Another program wants the first GPU, while a thread waits on the second one. */
static void two_gpus_leaves(void) {
    two_gpus();
    struct piece piece = piece_new(&tools, 8 * MIB, 1, NULL);
    CHECK(cuCtxSynchronize());
    pthread_t thread = begin();
    wait_for_line();
    piece_check(&tools, &piece, "after others had the GPU", 0);
    end(thread);
}

/* --- a GPU that is taken later --------------------------------------------------------------- */

static CUdeviceptr held;

static void *frees_held(void *nothing) {
    CHECK(cuCtxSetCurrent(other));
    CHECK(cuMemFree(held));
    atomic_store(&done, 1);
    return nothing;
}

static void *copies_held(void *nothing) {
    unsigned word;
    CHECK(cuCtxSetCurrent(other));
    /* In the legacy stream, which waits for the blocking one. */
    CHECK(cuMemcpyDtoH(&word, held, sizeof word));
    atomic_store(&done, 1);
    return nothing;
}

/* The first GPU is taken while a thread waits in a call on the second one. */
static void taken_while(void *(*waits)(void *)) {
    CHECK(cuInit(0));
    CHECK(cuDevicePrimaryCtxRetain(&other, 1));
    CHECK(cuCtxSetCurrent(other));
    held = device_alloc(4 * MIB);
    flag = flags_new(1);
    waiting = stream_new(CU_STREAM_DEFAULT);
    wait_flag(waiting, flag);
    pthread_t thread = go(waits, NULL);
    sleep_ms(200);
    step("taking a GPU while a thread waits on another one");
    take_gpu();
    struct piece piece = piece_new(&tools, 4 * MIB, 3, NULL);
    piece_check(&tools, &piece, "what was written", 0);
    end(thread);
}

static void taken_while_freeing(void) { taken_while(frees_held); }
static void taken_while_copying(void) { taken_while(copies_held); }

/* --- a thread that is stuck with a full queue ------------------------------------------------ */

static CUstream full;
static struct piece behind;
static atomic_int queued;

static void *launches_many(void *nothing) {
    CHECK(cuCtxSetCurrent(context));
    for (unsigned i = 0; i < 1500; i++) {
        piece_write(&tools, &behind, i, full);
        atomic_fetch_add(&queued, 1);
    }
    return nothing;
}

/* A queue that is full behind a flag. */
static pthread_t fill_a_queue(void) {
    wait_flag(full, flag);
    pthread_t thread = go(launches_many, NULL);
    for (int before = -1; before != atomic_load(&queued);) {
        before = atomic_load(&queued);
        sleep_ms(200);
    }
    REQUIRE(atomic_load(&queued) < 1500, "the queue takes everything");
    return thread;
}

static void stuck_begins(void) {
    take_gpu();
    flag = flags_new(1);
    full = stream_new(CU_STREAM_NON_BLOCKING);
    another = stream_new(CU_STREAM_NON_BLOCKING);
    behind = piece_new(&tools, 4096, 1, full);
    CHECK(cuCtxSynchronize());
}

static void stuck_ends(pthread_t thread) {
    raise_flag(flag);
    step("waiting for the thread that was stuck");
    join(thread);
    CHECK(cuCtxSynchronize());
    piece_check(&tools, &behind, "what was launched last", 0);
    printf("nobody waited\n");
}

/* More frees in a stream's order than Baton has made ready for. */
static void stuck_frees(void) {
    enum { PIECES = 64 };
    CUdeviceptr pieces[PIECES];
    stuck_begins();
    for (unsigned i = 0; i < PIECES; i++) pieces[i] = device_alloc(64 << 10);
    CHECK(cuCtxSynchronize());
    volatile unsigned *later = flags_new(1);
    wait_flag(another, later);
    pthread_t thread = fill_a_queue();
    step("freeing much in a stream's order beside a full queue");
    for (unsigned i = 0; i < PIECES; i++) CHECK(cuMemFreeAsync(pieces[i], another));
    raise_flag(later);
    CHECK(cuStreamSynchronize(another));
    stuck_ends(thread);
}

/* Another stream wants memory that the stream with the full queue has freed. */
static void stuck_pool(void) {
    struct piece first = {.bytes = 4 * MIB}, second = {.bytes = 4 * MIB};
    stuck_begins();
    CHECK(cuMemAllocAsync(&first.at, first.bytes, full));
    CHECK(cuMemFreeAsync(first.at, full));
    pthread_t thread = fill_a_queue();
    step("allocating in a stream's order beside a full queue");
    CHECK(cuMemAllocAsync(&second.at, second.bytes, another));
    piece_write(&tools, &second, 5, another);
    CHECK(cuStreamSynchronize(another));
    CHECK(cuMemFreeAsync(second.at, another));
    stuck_ends(thread);
}

/* The legacy stream orders blocking streams, also when memory is freed in it. */
static void stuck_legacy(void) {
    struct piece piece = {.bytes = 4 * MIB};
    CUstream blocking;
    stuck_begins();
    blocking = stream_new(CU_STREAM_DEFAULT);
    CHECK(cuMemAllocAsync(&piece.at, piece.bytes, NULL));
    piece_write(&tools, &piece, 1, NULL);
    CHECK(cuStreamSynchronize(blocking));
    pthread_t thread = fill_a_queue();
    step("freeing in the legacy stream beside a full queue");
    CHECK(cuMemFreeAsync(piece.at, NULL));
    stuck_ends(thread);
}

static void nothing_first(void) {}

int main(int argc, char **argv) {
    static const struct legal_case cases[] = {
        {"contexts-free", two_contexts_frees},
        {"contexts-in-order", two_contexts_in_order},
        {"gpus-free", two_gpus_frees},
        {"gpus-in-order", two_gpus_in_order},
        {"gpus-leave", two_gpus_leaves},
        {"taken-freeing", taken_while_freeing},
        {"taken-copying", taken_while_copying},
        {"stuck-frees", stuck_frees},
        {"stuck-pool", stuck_pool},
        {"stuck-legacy", stuck_legacy},
    };
    return play(argc, argv, nothing_first, cases, COUNT_OF(cases));
}
