/* driver_facts: what NVIDIA's driver answers where its documentation says nothing.
 *
 * Baton's shim makes calls of its own between a program's calls, and frees, maps and shares memory
 * in its place. This program asks the driver what those calls order, wait for, disturb and answer:
 * whether recording an event orders streams, which calls wait for a busy stream or a full launch
 * queue, what a capture bears, what the memory calls answer for each kind of memory, what a second
 * GPU may do, what survives a fork.
 *
 * Build, at the top of the repository, with no toolkit:
 *     gcc -O2 -Wall -Wextra -Iinclude/c -o driver_facts bench/driver_facts/[a-z]*.c -ldl -pthread
 * Run, on a machine whose GPUs nobody else uses (5 minutes; questions E need two GPUs):
 *     ./driver_facts --json driver_facts.json --jobs 12
 *     ./driver_facts --only A1 --only E --json some.json
 * Take the rows into bench/results, where the newest answer to a question counts:
 *     python3 bench/driver_facts/join.py driver_facts.json some.json
 * It runs on the simulated driver too (LD_LIBRARY_PATH, SIMCUDA_GPU_FILE). An answer of 9999 means
 * that the driver has no such call. It changes no setting of the GPU and makes no multicast object;
 * a few questions make a kernel fail, which the kernel's log shows as Xid 31.
 *
 * The questions: A1 what orders streams, A2 what an event of a context covers, A3 what waits for a
 * full launch queue or for another thread, A4 what a capture bears, A5 events in odd states, B what
 * cuStreamQuery answers, C what waits for busy streams and what stream-ordered frees do, D the
 * memory calls for each kind of memory, E two GPUs, F NVML and forks, G the default streams, H what
 * takes channels off the GPU.
 * Answers that begin with a number are CUresults (in F: nvmlReturn_t). "WAITS" means that the call
 * returned only after the flag was raised for which the busy stream waits.
 *
 * This file runs the checks. The kernels and streams that they share are in world.c, the calls that
 * several questions make in calls.c, the questions in the other files.
 */
#include "harness.h"

#include <dlfcn.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { MOST_CHECKS = 4096, MOST_ROWS = 16384, MOST_JOBS = 64, LIMIT_SECONDS = 12 };

struct check {
    const char *question;
    enum needs needs;
    Run run;
    int variant[4];
};

struct row {
    int check, order;
    char *situation, *answer;
};

struct job {
    int check, pipe, got;
    pid_t process;
    char *situation; /* shared with the process: what it is asking */
    char text[8192];
    size_t length;
};

static struct check checks[MOST_CHECKS];
static struct row rows[MOST_ROWS];
static int check_count, row_count, gpu_count;
static double last_start_us = 1e300; /* no check starts later */
static char gpu_names[1024], driver_version[64];

/* In a check's process. */
static char *situation;
static int result_pipe;
enum { SITUATION = 512 };

void add(const char *question, enum needs needs, Run run, int a, int b, int c, int d) {
    if (check_count == MOST_CHECKS) abort();
    checks[check_count++] = (struct check){question, needs, run, {a, b, c, d}};
}

void about(const char *format, ...) {
    va_list list;
    va_start(list, format);
    vsnprintf(situation, SITUATION, format, list);
    va_end(list);
}

void answer(const char *format, ...) {
    char line[4096];
    va_list list;
    va_start(list, format);
    int length = snprintf(line, sizeof line, "%s\t", situation);
    length += vsnprintf(line + length, sizeof line - (size_t)length - 1, format, list);
    va_end(list);
    if (length > (int)sizeof line - 2) length = (int)sizeof line - 2;
    line[length++] = '\n';
    if (write(result_pipe, line, (size_t)length) != length) _exit(3);
}

void must(CUresult got, const char *call, int line) {
    if (got == CUDA_SUCCESS) return;
    char asked[SITUATION];
    snprintf(asked, sizeof asked, "%s", situation);
    about("%s", asked);
    answer("could not be asked: %s answered %d (line %d)", call, (int)got, line);
    _exit(4);
}

double now_us(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e6 + (double)now.tv_nsec / 1e3;
}

void sleep_ms(unsigned ms) {
    struct timespec rest = {ms / 1000, (long)(ms % 1000) * 1000000};
    while (nanosleep(&rest, &rest) && errno == EINTR) { }
}

static void keep(int check, const char *asked, const char *answered) {
    if (row_count == MOST_ROWS) abort();
    rows[row_count] = (struct row){check, row_count, strdup(asked), strdup(answered)};
    row_count++;
    printf("%s\t%s\t%s\n", check < 0 ? "-" : checks[check].question, asked, answered);
    fflush(stdout);
}

/* Takes the whole lines that a check has written so far. */
static void take_lines(struct job *job) {
    char *start = job->text, *end;
    while ((end = memchr(start, '\n', job->length - (size_t)(start - job->text)))) {
        *end = 0;
        char *tab = strchr(start, '\t');
        if (tab) {
            *tab = 0;
            keep(job->check, start, tab + 1);
            job->got++;
        }
        start = end + 1;
    }
    job->length -= (size_t)(start - job->text);
    memmove(job->text, start, job->length);
}

static void start_job(struct job *job, int check, int gpu) {
    int ends[2];
    if (pipe(ends)) abort();
    *job = (struct job){.check = check, .pipe = ends[0]};
    job->situation = mmap(NULL, SITUATION, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    fflush(stdout);
    job->process = fork();
    if (job->process) {
        close(ends[1]);
        return;
    }
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    close(ends[0]);
    result_pipe = ends[1];
    situation = job->situation;
    if (checks[check].needs == ONE_GPU) {
        char number[16];
        snprintf(number, sizeof number, "%d", gpu);
        setenv("CUDA_VISIBLE_DEVICES", number, 1);
    }
    alarm(checks[check].needs == ALONE ? 3 * LIMIT_SECONDS : LIMIT_SECONDS);
    checks[check].run(checks[check].variant);
    _exit(0);
}

static void end_job(struct job *job) {
    int status;
    waitpid(job->process, &status, 0);
    char how[128];
    if (WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM)
        keep(job->check, job->situation, "hung: nothing came within the check's time");
    else if (WIFSIGNALED(status)) {
        snprintf(how, sizeof how, "the process was ended by signal %d", WTERMSIG(status));
        keep(job->check, job->situation, how);
    } else if (WEXITSTATUS(status) != 0 && WEXITSTATUS(status) != 4) {
        snprintf(how, sizeof how, "the process ended with status %d", WEXITSTATUS(status));
        keep(job->check, job->situation, how);
    } else if (!job->got)
        keep(job->check, job->situation, "no answer");
    close(job->pipe);
    munmap(job->situation, SITUATION);
    job->process = 0;
}

/* Runs the chosen checks that are (or are not) to run alone, several at a time. */
static void run_checks(const bool *chosen, bool alone, int most) {
    static struct job jobs[MOST_JOBS];
    int next = 0, running = 0;
    for (;;) {
        for (int at = 0; at < most && next < check_count;) {
            if (jobs[at].process) {
                at++;
                continue;
            }
            if (now_us() > last_start_us) next = check_count;
            while (next < check_count &&
                   (!chosen[next] || (checks[next].needs == ALONE) != alone))
                next++;
            if (next == check_count) break;
            start_job(&jobs[at], next, gpu_count > 1 ? next % gpu_count : 0);
            next++;
            running++;
        }
        if (!running) return;
        struct pollfd waits[MOST_JOBS];
        int from[MOST_JOBS], count = 0;
        for (int at = 0; at < most; at++)
            if (jobs[at].process) {
                waits[count] = (struct pollfd){jobs[at].pipe, POLLIN, 0};
                from[count++] = at;
            }
        poll(waits, (nfds_t)count, -1);
        for (int i = 0; i < count; i++) {
            struct job *job = &jobs[from[i]];
            if (!waits[i].revents) continue;
            ssize_t got = read(job->pipe, job->text + job->length, sizeof job->text - job->length);
            if (got > 0) {
                job->length += (size_t)got;
                take_lines(job);
            } else {
                end_job(job);
                running--;
            }
        }
    }
}

/* --- which machine -------------------------------------------------------------------------- */

static void tell_machine(const int *variant) {
    (void)variant;
    open_driver();
    MUST(cuInit(0));
    int count = 0, version = 0;
    MUST(cuDeviceGetCount(&count));
    cuDriverGetVersion(&version);
    about("GPUs");
    answer("%d", count);
    for (int at = 0; at < count; at++) {
        char name[128] = "";
        CUdevice device;
        MUST(cuDeviceGet(&device, at));
        MUST(cuDeviceGetName(name, sizeof name, device));
        about("GPU %d", at);
        answer("%s", name);
    }
    about("version of the interface");
    answer("%d", version);
    char text[64] = "unknown";
    void *nvml = dlopen("libnvidia-ml.so.1", RTLD_NOW);
    int (*init)(void) = nvml ? (int (*)(void))dlsym(nvml, "nvmlInit_v2") : NULL;
    int (*told)(char *, unsigned) =
        nvml ? (int (*)(char *, unsigned))dlsym(nvml, "nvmlSystemGetDriverVersion") : NULL;
    if (init && told && init() == 0) told(text, sizeof text);
    about("driver");
    answer("%s", text);
}

static void learn_machine(void) {
    int first = check_count;
    add("machine", TWO_GPUS, tell_machine, 0, 0, 0, 0);
    static bool chosen[MOST_CHECKS];
    chosen[first] = true;
    run_checks(chosen, false, 1);
    for (int at = 0; at < row_count; at++) {
        if (!strcmp(rows[at].situation, "GPUs")) gpu_count = atoi(rows[at].answer);
        if (!strncmp(rows[at].situation, "GPU ", 4)) {
            size_t used = strlen(gpu_names);
            snprintf(gpu_names + used, sizeof gpu_names - used, "%s%s", used ? "\n" : "",
                     rows[at].answer);
        }
        if (!strcmp(rows[at].situation, "driver"))
            snprintf(driver_version, sizeof driver_version, "%s", rows[at].answer);
    }
}

/* --- the result file ------------------------------------------------------------------------ */

static void quoted(FILE *file, const char *text) {
    fputc('"', file);
    for (; *text; text++) {
        if (*text == '"' || *text == '\\') fputc('\\', file);
        fputc((unsigned char)*text < 32 ? ' ' : *text, file);
    }
    fputc('"', file);
}

static int in_order(const void *a, const void *b) {
    const struct row *one = a, *two = b;
    if (one->check != two->check) return one->check < two->check ? -1 : 1;
    return one->order - two->order;
}

static void write_json(const char *path, const char *command) {
    FILE *file = fopen(path, "w");
    if (!file) {
        perror(path);
        exit(1);
    }
    char date[32];
    time_t now = time(NULL);
    strftime(date, sizeof date, "%Y-%m-%dT%H:%M:%SZ", gmtime(&now));
    fprintf(file, "{\n \"kind\": \"driver_facts\",\n \"machine\": {\n  \"date\": \"%s\",\n  \"command\": ",
            date);
    quoted(file, command);
    fprintf(file, ",\n  \"gpus\": [");
    char *saved = NULL, *names = strdup(gpu_names);
    const char *between = "";
    for (char *name = strtok_r(names, "\n", &saved); name; name = strtok_r(NULL, "\n", &saved)) {
        fprintf(file, "%s\n   {\n    \"name\": ", between);
        quoted(file, name);
        fprintf(file, ",\n    \"driver_version\": \"%s\"\n   }", driver_version);
        between = ",";
    }
    free(names);
    fprintf(file, "\n  ],\n  \"cores\": %ld\n },\n \"rows\": [", sysconf(_SC_NPROCESSORS_ONLN));
    qsort(rows, (size_t)row_count, sizeof rows[0], in_order);
    between = "";
    for (int at = 0; at < row_count; at++) {
        if (!strcmp(checks[rows[at].check].question, "machine")) continue;
        fprintf(file, "%s\n  {\n   \"question\": ", between);
        quoted(file, checks[rows[at].check].question);
        fprintf(file, ",\n   \"situation\": ");
        quoted(file, rows[at].situation);
        fprintf(file, ",\n   \"answer\": ");
        quoted(file, rows[at].answer);
        fprintf(file, "\n  }");
        between = ",";
    }
    fprintf(file, "\n ]\n}\n");
    fclose(file);
}

int main(int argc, char **argv) {
    const char *json = NULL, *only[16];
    int jobs = 8, only_count = 0;
    char command[1024] = "driver_facts";
    for (int at = 1; at < argc; at += 2) {
        const char *value = at + 1 < argc ? argv[at + 1] : NULL;
        if (value && !strcmp(argv[at], "--json")) json = value;
        else if (value && !strcmp(argv[at], "--only") && only_count < 16) only[only_count++] = value;
        else if (value && !strcmp(argv[at], "--limit") && atoi(value) > 0)
            last_start_us = now_us() + atoi(value) * 1e6;
        else if (value && !strcmp(argv[at], "--jobs") && atoi(value) > 0) jobs = atoi(value);
        else {
            fprintf(stderr, "usage: driver_facts [--json FILE] [--only QUESTION]... [--jobs N] "
                            "[--limit SECONDS]\n");
            return 2;
        }
        const char *name = strrchr(value, '/');
        size_t used = strlen(command);
        snprintf(command + used, sizeof command - used, " %s %s", argv[at], name ? name + 1 : value);
    }
    if (jobs > MOST_JOBS) jobs = MOST_JOBS;
    learn_machine();
    add_ordering();
    add_waiting();
    add_capture();
    add_freeing();
    add_memory();
    if (gpu_count > 1) add_peers();
    add_forking();
    add_handles();
    add_channels();
    add_spanning();
    static bool chosen[MOST_CHECKS];
    for (int at = 0; at < check_count; at++) {
        chosen[at] = only_count == 0 && strcmp(checks[at].question, "machine");
        for (int i = 0; i < only_count; i++)
            chosen[at] |= !strncmp(checks[at].question, only[i], strlen(only[i]));
    }
    double start = now_us();
    run_checks(chosen, false, jobs);
    run_checks(chosen, true, 1);
    printf("%d rows of %d checks in %.1f s\n", row_count, check_count, (now_us() - start) / 1e6);
    if (json) write_json(json, command);
    return 0;
}
