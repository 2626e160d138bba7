/* A4: what a call answers while a stream captures, and whether the capture bears it. */
#include <stdio.h>
#include <string.h>

#include "calls.h"

enum { GLOBAL, THREAD_LOCAL, RELAXED, MODES };

static const char *const modes[] = {"global", "thread-local", "relaxed"};
static const char *const subjects[] = {"a blocking stream", "a non-blocking stream",
                                       "the per-thread stream"};

struct caller {
    int which;
    bool relaxed;
    CUresult got;
};

static void call_it(void *data) {
    struct caller *caller = data;
    int mode = RELAXED;
    if (caller->relaxed) MUST(cuThreadExchangeStreamCaptureMode(&mode));
    caller->got = make_call(caller->which);
    if (caller->relaxed) MUST(cuThreadExchangeStreamCaptureMode(&mode));
}

static void call_it_elsewhere(void *data) {
    MUST(cuCtxSetCurrent(world.context));
    call_it(data);
}

/* One capture with the call in its middle: what it answered and what became of the capture. */
static void one_capture(char *text, size_t room, int which, int mode, bool elsewhere, bool relaxed) {
    prepare_call(which);
    MUST(cuStreamBeginCapture(subject, mode));
    mark_in(subject, 0);
    situation_begun();
    struct caller caller = {which, relaxed, CUDA_SUCCESS};
    if (elsewhere) on_thread(call_it_elsewhere, &caller);
    else call_it(&caller);
    int status = -1;
    CUresult asked = cuStreamIsCapturing(subject, &status);
    CUresult more = try_mark_in(subject, 1);
    CUgraph graph = NULL;
    CUresult ended = cuStreamEndCapture(subject, &graph);
    size_t nodes = 0;
    if (graph) {
        cuGraphGetNodes(graph, NULL, &nodes);
        cuGraphDestroy(graph);
    }
    bool valid = !asked && status == CU_STREAM_CAPTURE_STATUS_ACTIVE && !more && !ended;
    if (valid) snprintf(text, room, "%d, capture valid (%zu nodes)", (int)caller.got, nodes);
    else
        snprintf(text, room, "%d, capture BROKEN (status %d, launch %d, end %d)", (int)caller.got,
                 status, (int)more, (int)ended);
    cuCtxSynchronize();
}

static void during_captures(const int *variant) {
    int which = variant[0], mode = variant[1];
    begin(0);
    begin_calls();
    for (int kind = 0; kind < 3; kind++) {
        subject = kind == 0 ? blocking() : kind == 1 ? non_blocking() : PER_THREAD;
        char found[4][96];
        about("%s captures, %s; %s", subjects[kind], modes[mode], call_name(which));
        for (int at = 0; at < 4; at++)
            one_capture(found[at], sizeof found[at], which, mode, at >= 2, at % 2);
        answer("same thread: %s; same thread, relaxed: %s; another thread: %s; another thread, "
               "relaxed: %s",
               found[0], found[1], found[2], found[3]);
    }
}

/* --- captures in other contexts --------------------------------------------------------------- */

enum { OF_OTHER, OF_GREEN, OF_PRIMARY };

static CUresult record(CUcontext context, CUevent event, bool relaxed) {
    int mode = RELAXED;
    if (relaxed) MUST(cuThreadExchangeStreamCaptureMode(&mode));
    CUresult got = cuCtxRecordEvent(context, event);
    if (relaxed) MUST(cuThreadExchangeStreamCaptureMode(&mode));
    return got;
}

static void across_contexts(const int *variant) {
    static const char *const owners[] = {"another context", "a green context", "the primary context"};
    int owner = variant[0], mode = variant[1];
    begin(0);
    CUcontext other, view;
    CUevent of_primary = an_event();
    MUST(cuCtxCreate(&other, 0, world.device));
    CUevent of_other = an_event();
    CUstream in_other = non_blocking();
    MUST(cuCtxSetCurrent(world.context));
    CUstream in_primary = non_blocking();
    about("a stream of %s captures, %s", owners[owner], modes[mode]);
    CUstream in_green = busy(GREEN_CONTEXT, BY_KERNEL, 0);
    MUST(cuCtxFromGreenCtx(&view, green_context));
    CUevent of_green = an_event();
    raise_flag(0);
    MUST(cuStreamSynchronize(in_green));
    CUstream capturing = owner == OF_OTHER ? in_other : owner == OF_GREEN ? in_green : in_primary;
    struct {
        const char *name;
        CUcontext context;
        CUevent event;
    } recorded[] = {{"the primary context", world.context, of_primary},
                    {"another context", other, of_other},
                    {"a green context", view, of_green}};
    for (int at = 0; at < 3; at++)
        for (int relaxed = 0; relaxed < 2; relaxed++) {
            about("a stream of %s captures, %s; cuCtxRecordEvent of %s, by %s", owners[owner],
                  modes[mode], recorded[at].name, relaxed ? "a relaxed thread" : "the same thread");
            MUST(cuStreamBeginCapture(capturing, mode));
            CUresult got = record(recorded[at].context, recorded[at].event, relaxed);
            int status = -1;
            cuStreamIsCapturing(capturing, &status);
            CUgraph graph = NULL;
            CUresult ended = cuStreamEndCapture(capturing, &graph);
            if (graph) cuGraphDestroy(graph);
            answer("%d, capture %s (status %d, end %d)", (int)got, ended ? "BROKEN" : "valid", status,
                   (int)ended);
        }
}

void add_capture(void) {
    for (int owner = OF_OTHER; owner <= OF_PRIMARY; owner++)
        for (int mode = 0; mode < MODES; mode++)
            add("A4 contexts", ONE_GPU, across_contexts, owner, mode, 0, 0);
    for (int which = 0; call_name(which); which++)
        for (int mode = 0; mode < MODES; mode++)
            add("A4", ONE_GPU, during_captures, which, mode, 0, 0);
}
