/* G: the handles of the default streams, and which stream a plain symbol's 0 is. */
#include <stdio.h>

#include "world.h"

static void tell_handles(const int *variant) {
    (void)variant;
    begin(0);
    struct {
        const char *name;
        CUstream stream;
    } streams[] = {{"0", NULL}, {"CU_STREAM_LEGACY", LEGACY}, {"CU_STREAM_PER_THREAD", PER_THREAD},
                   {"a blocking stream", blocking()}, {"a non-blocking stream", non_blocking()},
                   {"3", (CUstream)3}};
    for (int at = 0; at < 5; at++) {
        unsigned long long id = 0, twin = 0;
        CUcontext context = NULL;
        unsigned flags = 99;
        int priority = 99;
        CUdevice device = 99;
        about("cuStreamGetId, its _ptsz twin, of %s", streams[at].name);
        CUresult got = cuStreamGetId(streams[at].stream, &id);
        CUresult other = cuStreamGetId_ptsz(streams[at].stream, &twin);
        answer("%d (%llu), %d (%llu)", (int)got, id, (int)other, twin);
        about("cuStreamGetCtx of %s", streams[at].name);
        got = cuStreamGetCtx(streams[at].stream, &context);
        answer("%d, %s", (int)got, context == world.context ? "the current context" : "another");
        about("cuStreamGetFlags, cuStreamGetPriority, cuStreamGetDevice of %s", streams[at].name);
        got = cuStreamGetFlags(streams[at].stream, &flags);
        other = cuStreamGetPriority(streams[at].stream, &priority);
        CUresult third = cuStreamGetDevice(streams[at].stream, &device);
        answer("%d (%u), %d (%d), %d (%d)", (int)got, flags, (int)other, priority, (int)third, device);
    }
    about("cuStreamQuery of the handle 3");
    answer("%d", (int)cuStreamQuery(streams[5].stream));
}

static void tell_without_context(const int *variant) {
    begin(0);
    CUstream stream = non_blocking();
    CUcontext context = NULL;
    unsigned long long id = 0;
    MUST(cuCtxSetCurrent(NULL));
    CUstream asked = variant[0] == 0 ? NULL : variant[0] == 1 ? LEGACY : variant[0] == 2 ? PER_THREAD : stream;
    static const char *const names[] = {"0", "CU_STREAM_LEGACY", "CU_STREAM_PER_THREAD",
                                        "a stream of the program's own"};
    about("no current context: cuStreamQuery, cuStreamGetCtx, cuStreamGetId of %s", names[variant[0]]);
    CUresult query = cuStreamQuery(asked), of = cuStreamGetCtx(asked, &context);
    answer("%d, %d, %d", (int)query, (int)of, (int)cuStreamGetId(asked, &id));
}

/* Which stream is meant: the per-thread stream waits (the legacy one then waits for it, so that its
 * events are not ready either), or another thread's, or a non-blocking one. */
static void where_records_go(const int *variant) {
    begin(0);
    enum who who = variant[0] ? OTHERS_PER_THREAD : OWN_PER_THREAD;
    CUevent events[6];
    for (int at = 0; at < 6; at++) events[at] = an_event();
    busy(who, BY_KERNEL, 0);
    /* The per-thread ones first: a record in the legacy stream makes later ones wait for it. */
    CUresult got[] = {
        cuEventRecord(events[0], PER_THREAD), cuEventRecord_ptsz(events[1], NULL),
        cuEventRecord_ptsz(events[2], PER_THREAD), cuEventRecord_ptsz(events[3], LEGACY),
        cuEventRecord(events[4], NULL), cuEventRecord(events[5], LEGACY)};
    static const char *const names[] = {
        "cuEventRecord(CU_STREAM_PER_THREAD)", "cuEventRecord_ptsz(0)",
        "cuEventRecord_ptsz(CU_STREAM_PER_THREAD)", "cuEventRecord_ptsz(CU_STREAM_LEGACY)",
        "cuEventRecord(0)", "cuEventRecord(CU_STREAM_LEGACY)"};
    for (int at = 0; at < 6; at++) {
        about("%s waits; then in this order six records; %s", whos[who], names[at]);
        answer("%d, %s", (int)got[at], ready(events[at], 200) ? "ready" : "not ready");
    }
    raise_flag(0);
}

/* A non-blocking stream waits for nothing of the legacy stream: work in the legacy stream alone. */
static void where_plain_zero_goes(const int *variant) {
    (void)variant;
    begin(0);
    CUevent plain = an_event(), twin = an_event();
    busy(LEGACY_STREAM, BY_KERNEL, 0);
    about("the legacy stream waits; cuStreamQuery(0), cuStreamQuery_ptsz(0), per-thread by plain symbol");
    answer("%d, %d, %d", (int)cuStreamQuery(NULL), (int)cuStreamQuery_ptsz(NULL),
           (int)cuStreamQuery(PER_THREAD));
    about("the legacy stream waits; cuEventRecord_ptsz(0), then cuEventRecord(0)");
    CUresult one = cuEventRecord_ptsz(twin, NULL), two = cuEventRecord(plain, NULL);
    answer("%d %s, %d %s", (int)one, ready(twin, 200) ? "ready" : "not ready", (int)two,
           ready(plain, 200) ? "ready" : "not ready");
    raise_flag(0);
}

static void mark_in_own(void *data) {
    (void)data;
    MUST(cuCtxSetCurrent(world.context));
    mark_in(PER_THREAD, 1);
    /* The stream goes with its thread, so the thread stays. */
    marked(1, 300);
}

static void whose_per_thread(const int *variant) {
    (void)variant;
    begin(0);
    busy(OTHERS_PER_THREAD, BY_KERNEL, 0);
    about("another thread's per-thread stream waits; a kernel in CU_STREAM_PER_THREAD of this thread");
    mark_in(PER_THREAD, 0);
    answer("%s", marked(0, 300) ? "runs" : "waits");
    about("… of a third thread");
    on_thread(mark_in_own, NULL);
    answer("%s", marked(1, 300) ? "runs" : "waits");
    about("… cuStreamSynchronize(CU_STREAM_PER_THREAD) here");
    answer("%d", (int)cuStreamSynchronize(PER_THREAD));
    raise_flag(0);
}

static void use_and_end(void *data) {
    (void)data;
    MUST(cuCtxSetCurrent(world.context));
    wait_in(PER_THREAD, BY_KERNEL, 0);
}

static void thread_that_ended(const int *variant) {
    (void)variant;
    begin(0);
    double start = now_us();
    raise_after(0, 500);
    on_thread(use_and_end, NULL);
    about("a thread ends whose per-thread stream waits 500 ms more; how long until it has ended");
    answer("%s", now_us() - start > 400e3 ? "until the work is done" : "at once");
    CUevent event = an_event();
    about("… cuCtxRecordEvent then, and cuStreamQuery(legacy)");
    CUresult got = cuCtxRecordEvent(world.context, event), legacy = cuStreamQuery(LEGACY);
    answer("%d %s, %d", (int)got, ready(event, 100) ? "ready" : "not ready", (int)legacy);
}

void add_handles(void) {
    add("G", ONE_GPU, tell_handles, 0, 0, 0, 0);
    for (int which = 0; which < 4; which++) add("G", ONE_GPU, tell_without_context, which, 0, 0, 0);
    for (int others = 0; others < 2; others++) add("G", ONE_GPU, where_records_go, others, 0, 0, 0);
    add("G", ONE_GPU, where_plain_zero_goes, 0, 0, 0, 0);
    add("G", ONE_GPU, whose_per_thread, 0, 0, 0, 0);
    add("G", ONE_GPU, thread_that_ended, 0, 0, 0, 0);
}
