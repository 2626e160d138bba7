/* E: jobs that span two GPUs. What it costs to change their memory while they are off, whether two
 * GPUs are served at the same time, and what other processes on other GPUs can open.
 */
#include <signal.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "channels.h"
#include "mapped.h"

enum { GPUS = 2, MOST_ROUNDS = 200, PIECES = 16 };

/* What the processes of a check share. */
struct board {
    volatile int ready, go, over;
    volatile bool cannot; /* there are no channels to pause, or too many */
    double took[GPUS][MOST_ROUNDS];
    char handle[64], event[64];
};

static struct board *board;

static void make_board(void) {
    board = mmap(NULL, sizeof *board, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (board == MAP_FAILED) abort();
}

/* Starts a process that runs this and stays until the check has ended. */
static void beside(void (*run)(int), int with) {
    if (fork()) return;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    alarm(60);
    run(with);
    for (;;) pause();
}

static void await(volatile int *word, int value) {
    while (*word < value && !board->cannot) sleep_ms(1);
}

static int by_size(const void *one, const void *other) {
    double a = *(const double *)one, b = *(const double *)other;
    return (a > b) - (a < b);
}

static const char *quartiles(double *took, int rounds) {
    static char text[96];
    qsort(took, (size_t)rounds, sizeof *took, by_size);
    snprintf(text, sizeof text, "median %.0f us (quartiles %.0f and %.0f, most %.0f; %d rounds)",
             took[rounds / 2], took[rounds / 4], took[rounds * 3 / 4], took[rounds - 1], rounds);
    return text;
}

/* --- a process on two GPUs --------------------------------------------------------------------- */

static struct world worlds[GPUS];
static const struct object *channels[GPUS];
static int channel_counts[GPUS];

/* Begins on both GPUs, and knows which channels are on which. */
static void begin_both(void) {
    const struct object *all;
    begin(0);
    int first = channels_made(&all);
    worlds[0] = world;
    CUcontext context;
    MUST(cuDevicePrimaryCtxRetain(&context, 1));
    worlds[1] = another_world(1, context);
    int both = channels_made(&all);
    channels[0] = all;
    channel_counts[0] = first;
    channels[1] = all + first;
    channel_counts[1] = both - first;
}

static void enter(int gpu) {
    world = worlds[gpu];
    MUST(cuCtxSetCurrent(world.context));
}

static uint32_t change_on(bool disable, int gpu) {
    return change(disable, channels[gpu], channel_counts[gpu]);
}

/* --- E9: mapping and unmapping while the process is off, beside a neighbour ---------------------- */

static void works(int unused) {
    (void)unused;
    enum { BYTES = 256 << 20 };
    begin_both();
    CUdeviceptr places[GPUS];
    for (int gpu = 0; gpu < GPUS; gpu++) {
        enter(gpu);
        places[gpu] = memory(BYTES);
    }
    for (board->ready = 1;;)
        for (int gpu = 0; gpu < GPUS; gpu++) {
            enter(gpu);
            MUST(cuMemsetD32(places[gpu], 1, BYTES / 4));
            MUST(cuCtxSynchronize());
        }
}

enum off { ON, ONE_OFF, BOTH_OFF };
static const char *const offs[] = {"its work runs", "it is paused on GPU 0", "it is paused on both"};

static void memory_for_both(const int *variant) {
    enum { ROUNDS = 9 };
    size_t size = (size_t)variant[0] * MIB;
    enum off off = (enum off)variant[1];
    bool neighbour = variant[2];
    char what[160];
    snprintf(what, sizeof what, "%d imported pieces of %d MiB; %s; %s", PIECES, variant[0], offs[off],
             neighbour ? "a neighbour works on both" : "no neighbour");
    about("%s", what);
    make_board();
    if (neighbour) {
        beside(works, 0);
        await(&board->ready, 1);
    }
    start_exporter(0, PIECES, size);
    begin_both();
    enter(0);
    CUmemGenericAllocationHandle handles[PIECES];
    for (int at = 0; at < PIECES; at++) handles[at] = imported(take_descriptor());
    CUdeviceptr place = reserved(size * PIECES);
    CUmemAccessDesc both[] = {access_of(0), access_of(1)};
    for (int gpu = 0; gpu < GPUS; gpu++) {
        enter(gpu);
        busy(NON_BLOCKING, BY_KERNEL, gpu);
    }
    enter(0);
    sleep_ms(20);
    about("%s", what);
    uint32_t status = 0;
    for (int gpu = 0; gpu < (int)off; gpu++) status |= change_on(true, gpu);
    static double map[2][ROUNDS], access[2][ROUNDS], unmap[2][ROUNDS];
    for (int round = 0; round < ROUNDS; round++)
        for (int gpus = 0; gpus < 2; gpus++) {
            double start = now_us();
            for (int at = 0; at < PIECES; at++)
                MUST(cuMemMap(place + size * (size_t)at, size, 0, handles[at], 0));
            double mapped = now_us();
            MUST(cuMemSetAccess(place, size * PIECES, both, (size_t)gpus + 1));
            double reached = now_us();
            MUST(cuMemUnmap(place, size * PIECES));
            map[gpus][round] = (mapped - start) / PIECES;
            access[gpus][round] = (reached - mapped) / PIECES;
            unmap[gpus][round] = (now_us() - reached) / PIECES;
        }
    for (int gpu = 0; gpu < (int)off; gpu++) status |= change_on(false, gpu);
    for (int gpus = 0; gpus < 2; gpus++) {
        const char *who = gpus ? "both GPUs" : "GPU 0";
        double first = unmap[gpus][0];
        about("%s: cuMemMap of each", what);
        if (!gpus) answer("status %#x; each %s", status, quartiles(map[gpus], ROUNDS));
        about("%s: access for %s, one call", what, who);
        answer("each %s", quartiles(access[gpus], ROUNDS));
        about("%s: unmapped, %s had access, one call", what, who);
        answer("each %s; the first time %.0f us", quartiles(unmap[gpus], ROUNDS), first);
    }
    raise_flag(0);
    raise_flag(1);
    for (int gpu = 0; gpu < GPUS; gpu++) {
        enter(gpu);
        MUST(cuCtxSynchronize());
    }
}

/* --- E10: both links at once ---------------------------------------------------------------------- */

static void both_links(const int *variant) {
    bool to_host = variant[0] != 0, to_gpu = variant[0] != 1;
    const size_t size = (size_t)1 << 30;
    static const char *const ways[] = {"host to GPU", "GPU to host", "both ways"};
    about("copies of 1 GiB, %s", ways[variant[0]]);
    begin_both();
    CUdeviceptr places[GPUS][2];
    void *hosts[GPUS][2];
    CUstream streams[GPUS][2];
    for (int gpu = 0; gpu < GPUS; gpu++) {
        enter(gpu);
        for (int way = 0; way < 2; way++) {
            places[gpu][way] = memory(size);
            MUST(cuMemHostAlloc(&hosts[gpu][way], size, CU_MEMHOSTALLOC_PORTABLE));
            memset(hosts[gpu][way], 1, size);
            streams[gpu][way] = non_blocking();
        }
    }
    for (int which = 0; which < 3; which++) { /* GPU 0, GPU 1, both */
        double best = 0;
        for (int round = 0; round < 5; round++) {
            double start = now_us();
            for (int gpu = 0; gpu < GPUS; gpu++) {
                if (which != 2 && gpu != which) continue;
                enter(gpu);
                for (int copy = 0; copy < 4; copy++) {
                    if (to_gpu) MUST(cuMemcpyHtoDAsync(places[gpu][0], hosts[gpu][0], size, streams[gpu][0]));
                    if (to_host) MUST(cuMemcpyDtoHAsync(hosts[gpu][1], places[gpu][1], size, streams[gpu][1]));
                }
            }
            for (int gpu = 0; gpu < GPUS; gpu++) {
                enter(gpu);
                MUST(cuCtxSynchronize());
            }
            double rate = 4.0 * (double)size / (now_us() - start) / 1e3;
            if (rate > best) best = rate;
        }
        static const char *const names[] = {"GPU 0 alone", "GPU 1 alone", "both GPUs at once"};
        about("copies of 1 GiB, %s: %s", ways[variant[0]], names[which]);
        answer("%.1f GB/s for each GPU and way", best);
    }
}

/* --- E11: two that pause at once ------------------------------------------------------------------ */

static void pauses(int gpu) {
    const struct object *all;
    begin(gpu);
    int made = channels_made(&all);
    if (!made || made > MOST_CHANNELS) {
        board->cannot = true;
        return;
    }
    busy(NON_BLOCKING, BY_KERNEL, 0);
    sleep_ms(20);
    __atomic_add_fetch(&board->ready, 1, __ATOMIC_SEQ_CST);
    for (int phase = 1; phase <= 3; phase++) { /* GPU 0 alone, GPU 1 alone, both */
        await(&board->go, phase);
        for (int round = 0; phase == 3 || phase - 1 == gpu; round++) {
            if (round == MOST_ROUNDS / 2) break;
            double start = now_us();
            change(true, all, made);
            board->took[gpu][round + (phase == 3 ? MOST_ROUNDS / 2 : 0)] = now_us() - start;
            change(false, all, made);
            if (phase != 3) sleep_ms(1);
        }
        __atomic_add_fetch(&board->over, 1, __ATOMIC_SEQ_CST);
    }
    raise_flag(0);
    MUST(cuCtxSynchronize());
}

static void two_pausers(const int *variant) {
    enum { ROUNDS = MOST_ROUNDS / 2 };
    (void)variant;
    make_board();
    for (int gpu = 0; gpu < GPUS; gpu++) beside(pauses, gpu);
    about("two processes that pause their own work");
    await(&board->ready, GPUS);
    for (int phase = 1; phase <= 3; phase++) {
        board->go = phase;
        await(&board->over, GPUS * phase);
    }
    if (board->cannot) return answer("its channels cannot be seen");
    for (int gpu = 0; gpu < GPUS; gpu++) {
        about("a process pauses its work on GPU %d, the other one does nothing", gpu);
        answer("%s", quartiles(board->took[gpu], ROUNDS));
        about("… the other one pauses its own on GPU %d, again and again", 1 - gpu);
        answer("%s", quartiles(board->took[gpu] + ROUNDS, ROUNDS));
    }
}

/* One process that pauses its work on both GPUs: one after the other, or by two threads. */
static volatile double second_took;

static void pause_second(void *unused) {
    (void)unused;
    await(&board->go, 1);
    double start = now_us();
    change_on(true, 1);
    second_took = now_us() - start;
}

static void one_pauser_of_two(const int *variant) {
    enum { ROUNDS = 40 };
    (void)variant;
    make_board();
    begin_both();
    for (int gpu = 0; gpu < GPUS; gpu++) {
        enter(gpu);
        busy(NON_BLOCKING, BY_KERNEL, gpu);
    }
    sleep_ms(20);
    about("a process pauses its work on both GPUs");
    if (!channel_counts[0] || !channel_counts[1])
        return answer("%d and %d channels: cannot be tried", channel_counts[0], channel_counts[1]);
    static double one_after_other[ROUNDS], at_once[ROUNDS];
    uint32_t status = 0;
    for (int round = 0; round < ROUNDS; round++) {
        double start = now_us();
        for (int gpu = 0; gpu < GPUS; gpu++) status |= change_on(true, gpu);
        one_after_other[round] = now_us() - start;
        for (int gpu = 0; gpu < GPUS; gpu++) status |= change_on(false, gpu);
        sleep_ms(1);
        board->go = 0;
        second_took = 0;
        start_thread(pause_second, NULL);
        sleep_ms(2);
        board->go = 1;
        start = now_us();
        status |= change_on(true, 0);
        while (!second_took) sched_yield();
        at_once[round] = now_us() - start;
        for (int gpu = 0; gpu < GPUS; gpu++) status |= change_on(false, gpu);
        sleep_ms(1);
    }
    about("a process pauses its work on both GPUs, one after the other");
    answer("status %#x; %s", status, quartiles(one_after_other, ROUNDS));
    about("… by two threads (one may begin up to 1 ms later)");
    answer("%s", quartiles(at_once, ROUNDS));
    raise_flag(0);
    raise_flag(1);
}

/* --- E12: legacy handles across GPUs ---------------------------------------------------------------- */

static void exports_legacy(int unused) {
    (void)unused;
    begin(0);
    CUdeviceptr at = memory(4 * MIB);
    CUevent event;
    MUST(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS));
    MUST(cuMemsetD32(at, 7, MIB));
    MUST(cuCtxSynchronize());
    MUST(cuIpcGetMemHandle((CUipcMemHandle *)board->handle, at));
    MUST(cuIpcGetEventHandle((CUipcEventHandle *)board->event, event));
    board->ready = 1;
}

enum { ON_SECOND, ON_BOTH, SEES_SECOND };

static void opens_legacy(const int *variant) {
    static const char *const opener[] = {"a process with a context on GPU 1 alone",
                                         "a process with contexts on both, GPU 1's current",
                                         "a process that sees GPU 1 alone"};
    about("%s opens another one's IPC handle of GPU 0", opener[variant[0]]);
    make_board();
    if (variant[0] == SEES_SECOND) setenv("CUDA_VISIBLE_DEVICES", "0", 1);
    beside(exports_legacy, 0);
    await(&board->ready, 1);
    if (variant[0] == SEES_SECOND) setenv("CUDA_VISIBLE_DEVICES", "1", 1);
    if (variant[0] == ON_BOTH) {
        begin_both();
        enter(1);
    } else {
        begin(variant[0] == SEES_SECOND ? 0 : 1);
    }
    CUipcMemHandle handle;
    CUipcEventHandle event_handle;
    memcpy(&handle, board->handle, sizeof handle);
    memcpy(&event_handle, board->event, sizeof event_handle);
    CUdeviceptr at = 0;
    unsigned word = 0;
    about("%s opens another one's IPC handle of GPU 0 (flags 0)", opener[variant[0]]);
    CUresult got = cuIpcOpenMemHandle(&at, handle, 0);
    answer("%d", (int)got);
    if (got) {
        about("… (CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS)");
        got = cuIpcOpenMemHandle(&at, handle, 1);
        answer("%d", (int)got);
    }
    if (!got) {
        about("… cuMemcpyDtoH; a kernel on GPU 1 that adds up 1,024 words");
        CUresult copied = cuMemcpyDtoH(&word, at, sizeof word);
        unsigned long long sum = 0;
        unsigned n = 1024;
        CUdeviceptr out = world.scratch;
        MUST(cuMemsetD8(out, 0, 8));
        CUresult launched = cuLaunchKernel(world.summing, 1, 1, 1, 1, 1, 1, 0, NULL,
                                           (void *[]){&out, &at, &n}, NULL);
        CUresult ended = cuCtxSynchronize();
        if (!ended) cuMemcpyDtoH(&sum, out, 8);
        answer("%d%s; launch %d, synchronize %d%s", (int)copied, word == 7 ? ", right" : ", NOT right",
               (int)launched, (int)ended, sum == 7ull * n ? ", reads it right" : "");
        int device = -1;
        about("… cuPointerGetAttribute(DEVICE_ORDINAL)");
        CUresult asked = cuPointerGetAttribute(&device, 9, at);
        answer("%d, value %d", (int)asked, device);
    }
    CUevent event = NULL;
    about("%s opens another one's IPC event of GPU 0", opener[variant[0]]);
    answer("%d", (int)cuIpcOpenEventHandle(&event, event_handle));
}

void add_spanning(void) {
    static const int sizes[] = {2, 32, 128, 512};
    for (int size = 0; size < 4; size++)
        for (int off = ON; off <= BOTH_OFF; off++)
            for (int neighbour = 0; neighbour < 2; neighbour++)
                add("E9", ALONE, memory_for_both, sizes[size], off, neighbour, 0);
    for (int way = 0; way < 3; way++) add("E10", ALONE, both_links, way, 0, 0, 0);
    add("E11", ALONE, two_pausers, 0, 0, 0, 0);
    add("E11", ALONE, one_pauser_of_two, 0, 0, 0, 0);
    for (int which = ON_SECOND; which <= SEES_SECOND; which++)
        add("E12", TWO_GPUS, opens_legacy, which, 0, 0, 0);
}
