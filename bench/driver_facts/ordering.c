/* A1: what orders streams. A2: what an event of a whole context covers. A5: events in odd states.
 * B: what cuStreamQuery answers.
 */
#include "world.h"

/* --- A1 ------------------------------------------------------------------------------------- */

enum action {
    NOTHING,
    CTX_RECORD,
    CTX_RECORD_TEN_TIMES,
    CTX_WAIT_EVENT,
    QUERY_LEGACY,
    QUERY_NULL,
    QUERY_PER_THREAD,
    QUERY_WAITING,
    QUERY_TARGET,
    QUERY_EVENT,
    IS_CAPTURING_LEGACY,
    RECORD_LEGACY,
    RECORD_TARGET,
    MEMORY_INFO,
    ALLOCATE,
    ACTIONS
};

static const char *const actions[] = {
    "nothing",
    "cuCtxRecordEvent",
    "cuCtxRecordEvent ten times",
    "cuCtxWaitEvent of an event of the waiting stream",
    "cuStreamQuery(CU_STREAM_LEGACY)",
    "cuStreamQuery(0)",
    "cuStreamQuery(CU_STREAM_PER_THREAD)",
    "cuStreamQuery(the waiting stream)",
    "cuStreamQuery(B)",
    "cuEventQuery(event of the waiting stream)",
    "cuStreamIsCapturing(legacy)",
    "cuEventRecord(legacy)",
    "cuEventRecord(B)",
    "cuMemGetInfo",
    "cuMemAlloc",
};

static CUresult act(enum action action, CUstream waiting, CUstream target, CUevent event,
                    CUevent of_waiting) {
    int status;
    size_t free_bytes, total;
    CUdeviceptr found;
    switch (action) {
    case CTX_RECORD:
        return cuCtxRecordEvent(world.context, event);
    case CTX_RECORD_TEN_TIMES:
        for (int at = 0; at < 10; at++) {
            CUresult got = cuCtxRecordEvent(world.context, event);
            if (got) return got;
        }
        return CUDA_SUCCESS;
    case CTX_WAIT_EVENT:
        return cuCtxWaitEvent(world.context, of_waiting);
    case QUERY_LEGACY:
        return cuStreamQuery(LEGACY);
    case QUERY_NULL:
        return cuStreamQuery(NULL);
    case QUERY_PER_THREAD:
        return cuStreamQuery(PER_THREAD);
    case QUERY_WAITING:
        return cuStreamQuery(waiting);
    case QUERY_TARGET:
        return cuStreamQuery(target);
    case QUERY_EVENT:
        return cuEventQuery(of_waiting);
    case IS_CAPTURING_LEGACY:
        return cuStreamIsCapturing(LEGACY, &status);
    case RECORD_LEGACY:
        return cuEventRecord(event, LEGACY);
    case RECORD_TARGET:
        return cuEventRecord(event, target);
    case MEMORY_INFO:
        return cuMemGetInfo(&free_bytes, &total);
    case ALLOCATE:
        return cuMemAlloc(&found, 4 * MIB);
    default:
        return CUDA_SUCCESS;
    }
}

static void does_it_order(const int *variant) {
    enum who who = (enum who)variant[0];
    enum wait_kind kind = (enum wait_kind)variant[1];
    enum action action = (enum action)variant[2];
    begin(0);
    CUstream target = blocking(), independent = non_blocking();
    CUevent event = an_event(), of_waiting = an_event();
    /* Their first work, before anything waits. */
    mark_in(target, 0);
    mark_in(independent, 1);
    MUST(cuCtxSynchronize());
    about("%s waits %s; then %s; then a kernel in each stream", whos[who], wait_kinds[kind],
          actions[action]);
    CUstream waiting = busy(who, kind, 0);
    MUST(cuEventRecord(of_waiting, waiting));
    double start = now_us();
    CUresult got = act(action, waiting, target, event, of_waiting);
    double took = now_us() - start;
    mark_in(target, 0);
    mark_in(independent, 1);
    bool target_runs = marked(0, 300), independent_runs = marked(1, 300);
    mark_in(PER_THREAD, 2);
    bool own_runs = marked(2, 300);
    mark_in(LEGACY, 3);
    bool legacy_runs = marked(3, 300);
    CUstream last = non_blocking();
    mark_in(last, 4);
    bool last_runs = marked(4, 300);
    raise_flag(0);
    bool all = true;
    for (int at = 0; at < 5; at++) all = marked(at, 2000) && all;
    static const char *const words[] = {"waits", "runs"};
    answer("answers %d in %.0f us; blocking B %s, non-blocking N %s, per-thread %s, legacy %s, a new "
           "non-blocking %s; after the flag %s",
           (int)got, took, words[target_runs], words[independent_runs], words[own_runs],
           words[legacy_runs], words[last_runs], all ? "all have run" : "NOT all have run");
}

/* --- A2 ------------------------------------------------------------------------------------- */

static void does_it_cover(const int *variant) {
    enum who who = (enum who)variant[0];
    enum wait_kind kind = (enum wait_kind)variant[1];
    begin(0);
    CUevent event = an_event();
    about("%s waits %s; then cuCtxRecordEvent of the primary context", whos[who], wait_kinds[kind]);
    busy(who, kind, 0);
    CUresult recorded = cuCtxRecordEvent(world.context, event);
    bool early = ready(event, 300);
    CUresult asked = cuEventQuery(event);
    CUstream later = non_blocking();
    wait_in(later, BY_KERNEL, 1);
    raise_flag(0);
    bool complete = ready(event, 1000);
    answer("answers %d; the event is %s (cuEventQuery %d); after the flag, later work still waiting, "
           "it is %s",
           (int)recorded, early ? "ready at once" : "not ready", (int)asked,
           complete ? "ready" : "NOT ready");
    raise_flag(1);
}

static void does_green_cover(const int *variant) {
    (void)variant;
    begin(0);
    CUevent of_green = an_event(), of_view = an_event(), of_primary = an_event();
    about("a green context's stream waits");
    busy(GREEN_CONTEXT, BY_KERNEL, 0);
    CUcontext view;
    MUST(cuCtxFromGreenCtx(&view, green_context));
    about("a green context's stream waits; cuGreenCtxRecordEvent");
    CUresult got = cuGreenCtxRecordEvent(green_context, of_green);
    answer("%d, %s", (int)got, ready(of_green, 300) ? "ready at once" : "not ready");
    about("a green context's stream waits; cuCtxRecordEvent(cuCtxFromGreenCtx)");
    got = cuCtxRecordEvent(view, of_view);
    answer("%d, %s", (int)got, ready(of_view, 300) ? "ready at once" : "not ready");
    about("a non-blocking stream of the primary context waits; cuCtxRecordEvent(cuCtxFromGreenCtx)");
    raise_flag(0);
    MUST(cuCtxSynchronize());
    busy(NON_BLOCKING, BY_KERNEL, 1);
    got = cuCtxRecordEvent(view, of_primary);
    answer("%d, %s", (int)got, ready(of_primary, 300) ? "ready at once" : "not ready");
    raise_flag(1);
}

/* --- A5 ------------------------------------------------------------------------------------- */

struct asked {
    CUevent event;
    CUresult got;
};

static void ask_without_context(void *data) {
    struct asked *asked = data;
    asked->got = cuEventQuery(asked->event);
}

static void record_without_context(void *data) {
    struct asked *asked = data;
    asked->got = cuCtxRecordEvent(world.context, asked->event);
}

static void synchronize_without_context(void *data) {
    struct asked *asked = data;
    asked->got = cuEventSynchronize(asked->event);
}

static void odd_event(const int *variant) {
    begin(0);
    CUevent event = NULL, second = NULL;
    CUcontext other;
    struct asked asked = {0};
    CUresult got;
    float ms = 0;
    about("variant %d", variant[0]);
    static const struct {
        const char *text;
        unsigned flags;
    } kinds[] = {{"timing", 0}, {"no timing", 2}, {"blocking, no timing", 3}, {"interprocess", 6}};
    switch (variant[0]) {
    case 0:
        for (int at = 0; at < 4; at++) {
            about("cuCtxRecordEvent of an event with: %s", kinds[at].text);
            MUST(cuEventCreate(&event, kinds[at].flags));
            got = cuCtxRecordEvent(world.context, event);
            CUresult query = cuEventQuery(event), wait = cuEventSynchronize(event);
            answer("%d; query at once %d, synchronize %d, query %d", (int)got, (int)query, (int)wait,
                   (int)cuEventQuery(event));
        }
        return;
    case 1:
        for (int of_context = 0; of_context < 2; of_context++) {
            MUST(cuEventCreate(&event, 0));
            MUST(cuEventCreate(&second, 0));
            about("two events of %s, 20 ms apart: cuEventElapsedTime, cuEventElapsedTime_v2",
                  of_context ? "cuCtxRecordEvent" : "cuEventRecord");
            for (int at = 0; at < 2; at++) {
                MUST(of_context ? cuCtxRecordEvent(world.context, at ? second : event)
                                : cuEventRecord(at ? second : event, LEGACY));
                sleep_ms(20);
            }
            MUST(cuEventSynchronize(second));
            float newer = 0;
            got = cuEventElapsedTime(&ms, event, second);
            CUresult two = cuEventElapsedTime_v2(&newer, event, second);
            answer("%d, %.0f ms; %d, %.0f ms", (int)got, (double)ms, (int)two, (double)newer);
        }
        return;
    case 2:
        about("cuCtxRecordEvent of a destroyed event");
        event = an_event();
        MUST(cuEventDestroy(event));
        answer("%d", (int)cuCtxRecordEvent(world.context, event));
        return;
    case 3:
        about("cuCtxRecordEvent of a null event");
        answer("%d", (int)cuCtxRecordEvent(world.context, NULL));
        return;
    case 4:
        about("cuCtxRecordEvent(primary) of an event of another context of the GPU");
        MUST(cuCtxCreate(&other, 0, world.device));
        event = an_event();
        MUST(cuCtxSetCurrent(world.context));
        answer("%d", (int)cuCtxRecordEvent(world.context, event));
        return;
    case 5:
        about("cuCtxRecordEvent(another context) while the primary is current, event of the other");
        MUST(cuCtxCreate(&other, 0, world.device));
        event = an_event();
        MUST(cuCtxSetCurrent(world.context));
        answer("%d", (int)cuCtxRecordEvent(other, event));
        return;
    case 6:
        about("cuCtxRecordEvent of a null context");
        answer("%d", (int)cuCtxRecordEvent(NULL, an_event()));
        return;
    case 7:
        about("cuCtxRecordEvent of a destroyed context");
        event = an_event();
        MUST(cuCtxCreate(&other, 0, world.device));
        MUST(cuCtxSetCurrent(world.context));
        MUST(cuCtxDestroy(other));
        answer("%d", (int)cuCtxRecordEvent(other, event));
        return;
    case 8:
        asked.event = an_event();
        busy(NON_BLOCKING, BY_KERNEL, 0);
        about("cuCtxRecordEvent on a thread without a current context");
        on_thread(record_without_context, &asked);
        answer("%d", (int)asked.got);
        MUST(cuCtxRecordEvent(world.context, asked.event));
        about("cuEventQuery on a thread without a current context, not ready");
        on_thread(ask_without_context, &asked);
        answer("%d", (int)asked.got);
        raise_flag(0);
        MUST(cuCtxSynchronize());
        about("cuEventQuery on a thread without a current context, ready");
        on_thread(ask_without_context, &asked);
        answer("%d", (int)asked.got);
        about("cuEventSynchronize on a thread without a current context");
        on_thread(synchronize_without_context, &asked);
        answer("%d", (int)asked.got);
        return;
    case 9: {
        about("cuStreamWaitEvent(B, event of cuCtxRecordEvent while N waits)");
        event = an_event();
        CUstream target = blocking();
        mark_in(target, 0);
        MUST(cuCtxSynchronize());
        busy(NON_BLOCKING, BY_KERNEL, 0);
        MUST(cuCtxRecordEvent(world.context, event));
        got = cuStreamWaitEvent(target, event, 0);
        mark_in(target, 0);
        bool early = marked(0, 300);
        raise_flag(0);
        answer("%d; a kernel in B %s, after the flag it has %s", (int)got, early ? "runs" : "waits",
               marked(0, 1000) ? "run" : "NOT run");
        return;
    }
    case 10: {
        about("an event recorded by cuCtxRecordEvent, recorded again by cuEventRecord in an idle "
              "stream while N waits");
        event = an_event();
        CUstream idle = non_blocking();
        busy(NON_BLOCKING, BY_KERNEL, 0);
        MUST(cuCtxRecordEvent(world.context, event));
        got = cuEventRecord(event, idle);
        answer("%d, %s", (int)got, ready(event, 300) ? "ready" : "not ready");
        raise_flag(0);
        return;
    }
    }
}

/* --- B: what the queries answer -------------------------------------------------------------- */

struct query {
    CUstream stream;
    CUresult got;
};

static void query_elsewhere(void *data) {
    struct query *query = data;
    MUST(cuCtxSetCurrent(world.context));
    query->got = cuStreamQuery(query->stream);
}

static void what_queries_answer(const int *variant) {
    enum who who = (enum who)variant[0];
    enum wait_kind kind = (enum wait_kind)variant[1];
    begin(0);
    CUstream idle = blocking(), independent = non_blocking();
    mark_in(idle, 0);
    mark_in(independent, 1);
    MUST(cuCtxSynchronize());
    about("%s waits %s; cuStreamQuery of each stream", whos[who], who == NOBODY ? "" : wait_kinds[kind]);
    busy(who, kind, 0);
    CUresult null = cuStreamQuery(NULL), legacy = cuStreamQuery(LEGACY),
             own = cuStreamQuery(PER_THREAD), b = cuStreamQuery(idle),
             n = cuStreamQuery(independent);
    struct query elsewhere = {PER_THREAD, 0}, legacy_elsewhere = {LEGACY, 0};
    on_thread(query_elsewhere, &elsewhere);
    on_thread(query_elsewhere, &legacy_elsewhere);
    answer("0: %d, legacy: %d (asked by another thread: %d), per-thread: %d (another thread's: %d), "
           "idle blocking B: %d, idle non-blocking N: %d",
           (int)null, (int)legacy, (int)legacy_elsewhere.got, (int)own, (int)elsewhere.got, (int)b,
           (int)n);
    raise_flag(0);
}

void add_ordering(void) {
    static const enum who waiters[] = {BLOCKING, NON_BLOCKING, LEGACY_STREAM, OWN_PER_THREAD};
    for (int at = 0; at < 4; at++)
        for (int action = 0; action < ACTIONS; action++)
            for (int kind = 0; kind < 2; kind++)
                if (kind == BY_KERNEL || action == NOTHING || action == CTX_RECORD ||
                    action == CTX_WAIT_EVENT || action == QUERY_LEGACY || action == RECORD_LEGACY)
                    add("A1", ONE_GPU, does_it_order, waiters[at], kind, action, 0);
    for (int who = NOBODY; who <= GRAPH; who++)
        for (int kind = 0; kind < 2; kind++)
            if (kind == BY_KERNEL || (who != NOBODY && who < HOST_FUNCTION))
                add("A2", ONE_GPU, does_it_cover, who, kind, 0, 0);
    add("A2", ONE_GPU, does_green_cover, 0, 0, 0, 0);
    for (int odd = 0; odd <= 10; odd++)
        add("A5", ONE_GPU, odd_event, odd, 0, 0, 0);
    for (int who = NOBODY; who <= GRAPH; who++)
        for (int kind = 0; kind < 2; kind++)
            if (kind == BY_KERNEL || (who != NOBODY && who < HOST_FUNCTION))
                add("B", ONE_GPU, what_queries_answer, who, kind, 0, 0);
}
