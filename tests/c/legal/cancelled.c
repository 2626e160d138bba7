/* A thread is cancelled (pthread_cancel) in a call that has no cancellation point: the call is made, the thread ends at its own next
 * cancellation point, and the other threads go on.
 *
 *     cancelled closed         the program is off the GPU when the call comes
 *     cancelled ask            the call needs memory that the program does not have yet
 *     cancelled free           the call waits for work
 *     cancelled first          the program's first call, and those that follow until it has memory
 *     cancelled asynchronous   a thread that may be ended at any moment is cancelled while it waits to get in
 *
 * Before the program is to be taken off the GPU it says `waits`, and goes on with the next line that comes.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <string.h>
#include <unistd.h>

#include "common.h"

#define MIB ((size_t)1 << 20)

static CUcontext context;
static CUdeviceptr memory, more;
static CUfunction fill;
static CUstream stream;
static volatile int made, is_about_to;

/* From here on this thread ends at its next cancellation point. */
static void cancel_this(void) { pthread_cancel(pthread_self()); }

static void *closed(void *unused) {
    CHECK(cuCtxSetCurrent(context));
    cancel_this();
    CHECK(cuMemsetD8Async(memory, 1, 64, stream));
    made = 1;
    pthread_testcancel();
    return unused;
}

static void *ask(void *unused) {
    CHECK(cuCtxSetCurrent(context));
    cancel_this();
    CHECK(cuMemAlloc(&more, 6 * MIB));
    made = 1;
    pthread_testcancel();
    return unused;
}

static void *release(void *unused) {
    CHECK(cuCtxSetCurrent(context));
    unsigned count = 8 * MIB / 4, seed = 3;
    for (int i = 0; i < 40; i++) LAUNCH(fill, stream, count, &memory, &seed, &count);
    cancel_this();
    CHECK(cuMemFree(more));
    made = 1;
    pthread_testcancel();
    return unused;
}

static void *first(void *unused) {
    cancel_this();
    context = start();
    CHECK(cuMemAlloc(&memory, 8 * MIB));
    made = 1;
    pthread_testcancel();
    return unused;
}

static void *asynchronous(void *unused) {
    CHECK(cuCtxSetCurrent(context));
    pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, NULL);
    is_about_to = gettid();
    cuMemsetD8Async(memory, 1, 64, stream);
    for (;;) pause();
    return unused;
}

/* True if a thread sleeps: bare because its call is over, else because it waits to get in. */
static int sleeps(pid_t thread) {
    char name[64], state = 0;
    snprintf(name, sizeof name, "/proc/self/task/%d/stat", (int)thread);
    FILE *file = thread ? fopen(name, "r") : NULL;
    if (!file) return 0;
    int count = fscanf(file, "%*d %*s %c", &state);
    fclose(file);
    return count == 1 && state == 'S';
}

static void ended(void *(*what)(void *), int is_cancelled_from_here) {
    pthread_t thread;
    void *end = NULL;
    made = is_about_to = 0;
    pthread_create(&thread, NULL, what, NULL);
    if (is_cancelled_from_here) {
        while (!sleeps(is_about_to)) usleep(100);
        pthread_cancel(thread);
        made = 1;
    }
    REQUIRE(!pthread_join(thread, &end), "the thread cannot be joined");
    REQUIRE(made, "the call was not made");
    REQUIRE(end == PTHREAD_CANCELED, "the thread was not cancelled: %p", end);
}

static void wait_for_line(void) {
    puts("waits");
    fflush(stdout);
    while (getchar() != '\n') {}
}

static void expect(unsigned char wanted) {
    unsigned char bytes[64];
    CHECK(cuMemcpyDtoH(bytes, memory, sizeof bytes));
    for (size_t i = 0; i < sizeof bytes; i++) REQUIRE(bytes[i] == wanted, "byte %zu is %d", i, bytes[i]);
}

int main(int argc, char **argv) {
    REQUIRE(argc == 2, "usage: cancelled closed|ask|free|first|asynchronous");
    const char *which = argv[1];
    if (!strcmp(which, "first")) {
        ended(first, 0);
        CHECK(cuCtxSetCurrent(context));
    } else {
        context = start();
        CHECK(cuMemAlloc(&memory, 8 * MIB));
    }
    fill = kernel(load_kernels(), "fill_hash");
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CHECK(cuMemsetD8(memory, 0, 8 * MIB));
    CHECK(cuCtxSynchronize());
    for (int i = 0; i < 3; i++) {
        if (!strcmp(which, "closed")) {
            wait_for_line();
            ended(closed, 0);
            CHECK(cuCtxSynchronize());
            expect(1);
        } else if (!strcmp(which, "asynchronous")) {
            wait_for_line();
            ended(asynchronous, 1);
            CHECK(cuCtxSynchronize());
        } else {
            ended(ask, 0);
            if (!strcmp(which, "free")) ended(release, 0);
            else CHECK(cuMemFree(more));
        }
        CHECK(cuMemsetD8(memory, (unsigned char)(i + 2), 8 * MIB));
        expect((unsigned char)(i + 2));
    }
    puts("over");
    return 0;
}
