/* A3: what recording and asking cost, which calls wait for a full launch queue, and which for another
 * thread that waits in the driver.
 */
#include <stdio.h>
#include <stdlib.h>

#include "calls.h"

/* --- A3: cost ------------------------------------------------------------------------------- */

static int by_size(const void *a, const void *b) {
    double one = *(const double *)a, two = *(const double *)b;
    return (one > two) - (one < two);
}

struct costs {
    double took[4096];
    int count;
};

static void tell_costs(struct costs *costs, CUresult last) {
    int slow = -1;
    for (int at = 0; at < costs->count && slow < 0; at++)
        if (costs->took[at] > 50e3) slow = at;
    double total = 0;
    for (int at = 0; at < costs->count; at++) total += costs->took[at];
    int count = costs->count;
    qsort(costs->took, (size_t)count, sizeof costs->took[0], by_size);
    char waited[64] = "none waited";
    if (slow >= 0) snprintf(waited, sizeof waited, "number %d waited for the flag", slow + 1);
    answer("median %.2f us, 99th percentile %.1f us, of %d; %s; last answer %d",
           costs->took[count / 2], costs->took[count * 99 / 100], count, waited, (int)last);
}

#define MEASURE(text, times, call)                                                                 \
    do {                                                                                           \
        static struct costs costs;                                                                 \
        CUresult got = CUDA_SUCCESS;                                                               \
        about("%s, %d streams, %s", text, count, spinning ? "each waiting" : "idle");              \
        for (costs.count = 0; costs.count < (times); costs.count++) {                              \
            double start = now_us();                                                               \
            got = call;                                                                            \
            costs.took[costs.count] = now_us() - start;                                            \
            if (costs.took[costs.count] > 50e3) {                                                  \
                costs.count++;                                                                     \
                break;                                                                             \
            }                                                                                      \
        }                                                                                          \
        tell_costs(&costs, got);                                                                   \
    } while (0)

static void costs(const int *variant) {
    int count = variant[0];
    bool spinning = variant[1];
    begin(0);
    CUstream *streams = calloc((size_t)count, sizeof *streams);
    for (int at = 0; at < count; at++) {
        streams[at] = non_blocking();
        mark_in(streams[at], at);
    }
    CUevent event = an_event(), old = old_event();
    int status;
    MUST(cuCtxSynchronize());
    if (spinning)
        for (int at = 0; at < count; at++) wait_in(streams[at], BY_KERNEL, 0);
    MEASURE("cuStreamQuery(one)", 1000, cuStreamQuery(streams[0]));
    MEASURE("cuStreamQuery(legacy)", 1000, cuStreamQuery(LEGACY));
    MEASURE("cuStreamIsCapturing(legacy)", 1000, cuStreamIsCapturing(LEGACY, &status));
    MEASURE("cuEventQuery(complete)", 1000, cuEventQuery(old));
    MEASURE("cuEventRecord(one), up to 300 in a row", 300, cuEventRecord(event, streams[0]));
    MEASURE("cuEventQuery(just recorded)", 1000, cuEventQuery(event));
    if (spinning) raise_flag(0);
    MUST(cuCtxSynchronize());
    world.words[FLAGS] = 0;
    if (spinning)
        for (int at = 0; at < count; at++) wait_in(streams[at], BY_KERNEL, 0);
    MEASURE("cuCtxRecordEvent, up to 300 in a row", 300, cuCtxRecordEvent(world.context, event));
    if (spinning) raise_flag(0);
    MUST(cuCtxSynchronize());
    if (!spinning) {
        MEASURE("cuCtxRecordEvent and cuCtxSynchronize", 300,
                (cuCtxRecordEvent(world.context, event), cuCtxSynchronize()));
        return;
    }
    world.words[FLAGS] = 0;
    for (int at = 0; at < count; at++) wait_in(streams[at], BY_KERNEL, 0);
    raise_after(0, 6000);
    MEASURE("cuCtxRecordEvent, up to 4,000 in a row, flag after 6 s", 4000,
            cuCtxRecordEvent(world.context, event));
    raise_flag(0);
}

/* --- A3: a full launch queue ----------------------------------------------------------------- */

static volatile int launched;

static void fill_queue(void *data) {
    (void)data;
    MUST(cuCtxSetCurrent(world.context));
    while (launched < 30000 && try_mark_in(subject, 200) == CUDA_SUCCESS) launched++;
    for (;;) sleep_ms(1000);
}

static void does_it_wait_for_a_queue(const int *variant) {
    int which = variant[0];
    enum who who = (enum who)variant[1];
    begin(0);
    begin_calls();
    prepare_call(which);
    MUST(cuCtxSynchronize());
    about("the launch queue of %s is full, a launch of another thread waits in it; %s", whos[who],
          call_name(which));
    subject = busy(who, BY_KERNEL, 0);
    situation_begun();
    start_thread(fill_queue, NULL);
    int before;
    do {
        before = launched;
        sleep_ms(250);
    } while (launched != before || launched == 0);
    raise_after(0, DELAY_MS);
    double start = now_us();
    CUresult got = make_call(which);
    double took = now_us() - start;
    answer("%s (answers %d after %.*f ms; %d launches had been taken)",
           is_raised(0) ? "WAITS" : "returns before the flag", (int)got, took > 20e3 ? 0 : 2,
           took / 1e3, before);
    raise_flag(0);
}

/* --- A3: another thread waits in the driver --------------------------------------------------- */

enum waiting_call { CTX_SYNCHRONIZE, STREAM_SYNCHRONIZE, MEM_FREE, MODULE_LOAD };
static const char *const waiting_calls[] = {"cuCtxSynchronize", "cuStreamSynchronize(that stream)",
                                            "cuMemFree", "cuModuleLoadData"};
static CUdeviceptr to_free;

static void wait_in_the_driver(void *data) {
    CUmodule module;
    MUST(cuCtxSetCurrent(world.context));
    switch (*(enum waiting_call *)data) {
    case CTX_SYNCHRONIZE:
        cuCtxSynchronize();
        break;
    case STREAM_SYNCHRONIZE:
        cuStreamSynchronize(subject);
        break;
    case MEM_FREE:
        cuMemFree(to_free);
        break;
    case MODULE_LOAD:
        cuModuleLoadData(&module, kernels_ptx);
        break;
    }
    for (;;) sleep_ms(1000);
}

static void does_it_wait_for_a_thread(const int *variant) {
    int which = variant[0];
    enum waiting_call call = (enum waiting_call)variant[1];
    begin(0);
    begin_calls();
    prepare_call(which);
    to_free = memory(4 * MIB);
    MUST(cuCtxSynchronize());
    about("a non-blocking stream waits, another thread waits for it in %s; %s", waiting_calls[call],
          call_name(which));
    subject = busy(NON_BLOCKING, BY_KERNEL, 0);
    situation_begun();
    start_thread(wait_in_the_driver, &call);
    sleep_ms(200);
    raise_after(0, DELAY_MS);
    double start = now_us();
    CUresult got = make_call(which);
    double took = now_us() - start;
    answer("%s (answers %d after %.*f ms)", is_raised(0) ? "WAITS" : "returns before the flag",
           (int)got, took > 20e3 ? 0 : 2, took / 1e3);
    raise_flag(0);
}

void add_waiting(void) {
    static const int counts[] = {1, 8, 64};
    for (int at = 0; at < 3; at++)
        for (int spinning = 0; spinning < 2; spinning++)
            add("A3 cost", ALONE, costs, counts[at], spinning, 0, 0);
    for (int which = 0; call_name(which); which++)
        add("A3 full queue", ONE_GPU, does_it_wait_for_a_queue, which, NON_BLOCKING, 0, 0);
    for (int which = 0; which < 20; which++)
        add("A3 full queue", ONE_GPU, does_it_wait_for_a_queue, which, BLOCKING, 0, 0);
    for (int call = CTX_SYNCHRONIZE; call <= MODULE_LOAD; call++)
        for (int which = 0; call_name(which); which++)
            add("A3 waiting thread", ONE_GPU, does_it_wait_for_a_thread, which, call, 0, 0);
}
