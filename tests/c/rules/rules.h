/* The common part of this folder's programs. Each is a list of rules: small functions that make calls
 * and print the driver's answers. A program holds no opinion: a real driver's answers are
 * recorded once, and a simulated driver, or Baton, must answer the same.
 *
 *     program [--wait] [NAME]            plays all rules, or one
 *     program [--wait] --faults [NAME]   plays the rules that may break a context or end a
 *                                        process, each in a process of its own
 *     program --list, --faults --list    names them
 *
 * A line is `RULE what: value`, where a value is the same on every run: an answer's number, a size,
 * a comparison. With --wait, a line `waits` comes before each call, and the program waits for a
 * line on its standard input, for something to be done to its memory meanwhile. It does not wait
 * while a stream of its own is held up, because nothing could be done then.
 *
 * The watchdog of legal.h ends a program that hangs, with exit code 3. A context that a rule broke
 * ends the program with exit code 4.
 */
#ifndef RULES_H
#define RULES_H

#include <spawn.h>
#include <stdarg.h>
#include <sys/wait.h>

#include "../legal/legal.h"
#include "baton_cuda_pools.h"

enum { UNIT = 2 << 20 }; /* of the physical memory that cuMemCreate gives */

extern char **environ;

struct rule {
    const char *name;
    void (*play)(void);
};

#define RULES(list) list, COUNT_OF(list)

static const char *rule_now = "start";
static int waiting; /* a line `waits` before each call */
static int held;    /* how many streams are held up */
static volatile unsigned *gate;

/* --- calls and their answers --------------------------------------------------------------- */

static inline void wait_if_told(void) {
    if (!waiting || held) return;
    wait_for_line();
    step(rule_now);
}

#define CALL(call) (wait_if_told(), (call))

/* Says something in the rule's name, and gives the value back. */
__attribute__((format(printf, 2, 3))) static inline int say(long long value, const char *what,
                                                            ...) {
    va_list rest;
    va_start(rest, what);
    printf("%s ", rule_now);
    vprintf(what, rest);
    printf(": %lld\n", value);
    va_end(rest);
    return (int)value;
}

/* Makes a call and says what it answers: ASK(call, "what %d", 1). */
#define ASK(call, ...) say(CALL(call), __VA_ARGS__)

/* A call without which the rule makes no sense: when it fails, the rule says so and ends. */
#define NEED(call)                                                                                 \
    do {                                                                                           \
        int answer_of_need = (int)CALL(call);                                                      \
        if (answer_of_need) {                                                                      \
            say(answer_of_need, "needs %s", #call);                                                \
            return;                                                                                \
        }                                                                                          \
    } while (0)

/* A call that cleans up: worth a line only when it fails. */
#define TIDY(call)                                                                                 \
    do {                                                                                           \
        int answer_of_tidy = (int)CALL(call);                                                      \
        if (answer_of_tidy) say(answer_of_tidy, "tidies up with %s", #call);                       \
    } while (0)

/* --- contents ------------------------------------------------------------------------------ */

/* Writes words that depend on the seed and on their place. */
static inline CUresult write_words(CUdeviceptr at, size_t bytes, uint32_t seed) {
    uint32_t *words = host_alloc(bytes);
    for (size_t i = 0; i < bytes / 4; i++) words[i] = hash32((uint32_t)i + seed);
    CUresult answer = CALL(cuMemcpyHtoD(at, words, bytes));
    free(words);
    /* The call may return before the words are there, and other streams and processes read them. */
    return answer ? answer : cuStreamSynchronize(NULL);
}

/* 1 if these words are there, 0 if others are, minus the answer if they cannot be read. */
static inline int words_right(CUdeviceptr at, size_t bytes, uint32_t seed) {
    uint32_t *words = host_alloc(bytes);
    int right = 1;
    memset(words, 0x55, bytes);
    CUresult answer = CALL(cuMemcpyDtoH(words, at, bytes));
    for (size_t i = 0; i < bytes / 4; i++) right &= words[i] == hash32((uint32_t)i + seed);
    free(words);
    return answer ? -(int)answer : right;
}

/* The same for memory that one word fills. */
static inline int filled_with(CUdeviceptr at, size_t bytes, uint32_t word) {
    uint32_t *words = host_alloc(bytes);
    int right = 1;
    memset(words, ~word & 0xff, bytes);
    CUresult answer = CALL(cuMemcpyDtoH(words, at, bytes));
    for (size_t i = 0; i < bytes / 4; i++) right &= words[i] == word;
    free(words);
    return answer ? -(int)answer : right;
}

/* --- attributes of an address -------------------------------------------------------------- */

enum { ATTRIBUTES = 20 };

/* Asks for an attribute, and makes of its value something that is the same on every run. Of an
 * address, its distance from the one that was asked for; of a handle, 1 if it is the expected one
 * and 2 if it is another; of a running number, 1 if it is there.
 */
static inline CUresult attribute_of(CUdeviceptr at, int attribute, CUmemoryPool pool,
                                    unsigned long long *value) {
    unsigned long long room[4] = {0}, got;
    CUcontext own = context;
    CUresult answer = cuPointerGetAttribute(room, (CUpointer_attribute)attribute, at);
    got = room[0];
    switch (attribute) {
    case 1: /* context */ got = !got ? 0 : got == (uintptr_t)own ? 1 : 2; break;
    case 3: /* device and host address */
    case 4: got = !got ? 0 : got == at ? 1 : 2; break;
    case 5: /* tokens for another driver */ got = 0; break;
    case 7: /* number of the buffer and of the block */
    case 20: got = got != 0; break;
    case 11: /* where the range and the mapping start */
    case 19: got = got ? at - got : 77; break;
    case 17: /* pool */ got = !got ? 0 : got == (uintptr_t)pool ? 1 : 2; break;
    }
    *value = answer ? 0 : got;
    return answer;
}

static inline void say_attributes(const char *what, CUdeviceptr at, CUmemoryPool pool) {
    for (int i = 1; i <= ATTRIBUTES; i++) {
        unsigned long long value;
        CUresult answer = CALL(attribute_of(at, i, pool, &value));
        printf("%s %s, attribute %d: %d, %llu\n", rule_now, what, i, (int)answer, value);
    }
}

/* Prints the range of memory in which an address lies, as the driver says. */
static inline void say_range(const char *what, CUdeviceptr at) {
    CUdeviceptr base = 0;
    size_t bytes = 0;
    CUresult answer = CALL(cuMemGetAddressRange(&base, &bytes, at));
    printf("%s %s, range: %d, %llu before, %zu in all\n", rule_now, what, (int)answer,
           answer ? 0 : at - base, answer ? 0 : bytes);
}

/* --- streams that are held up -------------------------------------------------------------- */

/* Work put into the stream from here on waits for let_go. One stream at a time. */
static inline int hold(CUstream stream) {
    raise_flag(gate);
    *gate = 0;
    CUresult answer = cuStreamWaitValue32(stream, on_device(gate), 1, AT_LEAST);
    if (answer) say(answer, "needs a stream that waits for a word");
    held += !answer;
    return answer == CUDA_SUCCESS;
}

static inline void let_go(void) {
    raise_flag(gate);
    CUresult answer = cuCtxSynchronize();
    if (answer) say(answer, "the context once nothing is held up");
    held = 0;
}

static inline void *raise_gate_later(void *nothing) {
    sleep_ms(300);
    raise_flag(gate);
    return nothing;
}

/* Tells if a stream comes to its end within a while: 0 or 600, or another answer. */
static inline CUresult ends_soon(CUstream stream) {
    CUresult answer = CUDA_ERROR_NOT_READY;
    for (int i = 0; i < 30 && answer == CUDA_ERROR_NOT_READY; i++) {
        sleep_ms(10);
        answer = cuStreamQuery(stream);
    }
    return answer;
}

/* --- playing ------------------------------------------------------------------------------- */

static inline void play_rule(const struct rule *rule) {
    rule_now = rule->name;
    step(rule->name);
    rule->play();
    if (held) let_go();
    CHECK(cuCtxSetCurrent(context));
    CUresult answer = cuCtxSynchronize();
    if (!answer) return;
    say(answer, "leaves the context with");
    exit(4);
}

/* Plays a rule in a process of its own, and says how that ended. */
static inline void play_apart(const struct rule *rule) {
    char *args[] = {"rules", "--faults", (char *)rule->name, waiting ? "--wait" : NULL, NULL};
    int status = 0;
    pid_t child;
    rule_now = rule->name;
    fflush(stdout);
    REQUIRE(posix_spawn(&child, "/proc/self/exe", NULL, NULL, args, environ) == 0, "no process");
    REQUIRE(waitpid(child, &status, 0) == child, "no end");
    if (WIFSIGNALED(status)) say(WTERMSIG(status), "ended by signal");
    else if (WEXITSTATUS(status)) say(WEXITSTATUS(status), "ended with exit code");
}

static inline int play_rules(int argc, char **argv, const struct rule *rules, size_t count,
                             const struct rule *faults, size_t fault_count) {
    const char *name = NULL;
    int list = 0, with_faults = 0;
    size_t played = 0;
    setvbuf(stdout, NULL, _IOLBF, 0);
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--wait") == 0) waiting = 1;
        else if (strcmp(argv[i], "--list") == 0) list = 1;
        else if (strcmp(argv[i], "--faults") == 0) with_faults = 1;
        else if (argv[i][0] != '-' && !name) name = argv[i];
        else {
            printf("usage: %s [--wait] [--faults] [--list | NAME]\n", argv[0]);
            return 2;
        }
    }
    if (with_faults) rules = faults, count = fault_count;
    if (!list && (name || !with_faults)) {
        step("starting");
        pthread_detach(go(watch, NULL));
        context = start();
        gate = flags_new(1);
    }
    for (size_t i = 0; i < count; i++) {
        if (name && strcmp(name, rules[i].name) != 0) continue;
        played++;
        if (list) printf("%s\n", rules[i].name);
        else if (with_faults && !name) play_apart(&rules[i]);
        else play_rule(&rules[i]);
    }
    REQUIRE(played, "there is no such rule");
    if (!list && !(with_faults && name)) {
        step("ending");
        printf("the end\n");
    }
    return 0;
}

#endif
