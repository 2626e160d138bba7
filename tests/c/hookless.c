/* Copies of a process that has initialised the driver call every function that Baton has a hook for. Says how many of these calls come
 * to the driver from a hook, and not from this program, and how much is allocated meanwhile: another thread of the parent may have held
 * the allocator's lock.
 *
 *     hookless WAY DRIVER [FIRST]    a copy by `fork`, `_Fork` or `clone`, which calls FIRST before all others: one of them, or
 *                                    an unknown one
 *
 * DRIVER is tests/c/witness_driver.c. The copy is made in a thread that has made no call.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MOST = 1024, TOO_LONG_S = 20 };

typedef int function(long, long, long, long, long, long, long, long, long, long, long, long);

extern char __executable_start, etext;
void *__libc_malloc(size_t bytes);
void *__libc_calloc(size_t count, size_t bytes);
void *__libc_memalign(size_t alignment, size_t bytes);

static function *functions[MOST];
static int count;
static const char *way;
static function *first;
static void **caller;
static volatile int is_copy, allocations;

void *malloc(size_t bytes) {
    allocations += is_copy;
    return __libc_malloc(bytes);
}

void *calloc(size_t count, size_t bytes) {
    allocations += is_copy;
    return __libc_calloc(count, bytes);
}

int posix_memalign(void **memory, size_t alignment, size_t bytes) {
    allocations += is_copy;
    *memory = __libc_memalign(alignment, bytes);
    return *memory ? 0 : ENOMEM;
}

static int call(function *what) { return what(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0); }

/* How many calls come from elsewhere than here; their answers are added up. */
static int hooked(int *answers) {
    int others = 0;
    for (int i = 0; i < count; i++) {
        *answers += call(functions[i]);
        others += (char *)*caller < &__executable_start || (char *)*caller >= &etext;
    }
    return others;
}

static pid_t copied(void) {
    if (!strcmp(way, "fork")) return fork();
    if (!strcmp(way, "_Fork")) return _Fork();
    return (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
}

static void *copy(void *nothing) {
    pid_t child = copied();
    if (child == 0) {
        int answers = 0, others;
        alarm(TOO_LONG_S);
        is_copy = 1;
        if (first) answers = call(first) - 3;
        others = hooked(&answers);
        is_copy = 0;
        printf("in the copy: %d from hooks, %d allocations, ", others, allocations);
        printf("%s\n", answers == 3 * count ? "all refused" : "not all refused");
        fflush(stdout);
        _exit(0);
    }
    int status = 0;
    if (child < 0 || waitpid(child, &status, 0) != child || status) printf("the copy ends with %x\n", status);
    return nothing;
}

int main(int argc, char **argv) {
    if (argc < 3) return 2;
    way = argv[1];
    void *library = dlopen("libcuda.so.1", RTLD_NOW), *driver = dlopen(argv[2], RTLD_NOW);
    const char *(*name)(int) = NULL;
    int (*init)(unsigned) = NULL, (*find)(const char *, void **, int, unsigned long long, int *) = NULL;
    if (!library || !driver) return 1;
    *(void **)&name = dlsym(library, "baton_hooked");
    *(void **)&init = dlsym(library, "cuInit");
    *(void **)&find = dlsym(library, "cuGetProcAddress_v2");
    caller = dlsym(driver, "witness_caller");
    if (!name || !init || !find || !caller) return 1;
    for (int i = 0; name(i); i++) {
        if (!strcmp(name(i), "cuInit")) continue;
        *(void **)&functions[count++] = dlsym(library, name(i));
    }
    int answers = 0;
    printf("%s hooks\n", count > 200 && hooked(&answers) == count ? "all calls come from" : "not all calls come from");
    printf("cuInit -> %d\n", init(0));
    if (argc > 3 && !(*(void **)&first = dlsym(library, argv[3])) && find(argv[3], (void **)&first, 99990, 0, NULL)) return 1;
    fflush(stdout);
    pthread_t thread;
    if (pthread_create(&thread, NULL, copy, NULL)) return 1;
    pthread_join(thread, NULL);
    return 0;
}
