/* Two threads and the driver's first call.
 *
 *     first_call constructor LIBRARY    a thread opens LIBRARY, whose constructor calls the driver;
 *                                       meanwhile this one makes its first call
 *     first_call fork                   a thread is in its first call when this one forks; the child
 *                                       calls the driver too
 *
 * With -DLIB, that library. It tells by a byte in the pipe that FIRST_CALL_PIPE names that its
 * constructor has begun. All a program can do wrong here is to wait for ever, so there is an alarm.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "baton_cuda.h"

/* Long enough for another thread to get into its call meanwhile. */
enum { A_WHILE_US = 200 * 1000, TOO_LONG_S = 20 };

#ifdef LIB

__attribute__((constructor)) static void call_the_driver(void) {
    const char *pipe = getenv("FIRST_CALL_PIPE");
    if (!pipe || write(atoi(pipe), "x", 1) != 1) abort();
    usleep(A_WHILE_US);
    int version = 0;
    cuDriverGetVersion(&version);
}

#else

static void *open_library(void *path) {
    return dlopen(path, RTLD_NOW);
}

static void *call(void *unused) {
    int version = 0;
    cuDriverGetVersion(&version);
    return unused;
}

static int with_constructor(char *path) {
    int ends[2];
    char byte, number[16];
    pthread_t thread;
    if (pipe(ends)) return 1;
    snprintf(number, sizeof number, "%d", ends[1]);
    setenv("FIRST_CALL_PIPE", number, 1);
    if (pthread_create(&thread, NULL, open_library, path)) return 1;
    if (read(ends[0], &byte, 1) != 1) return 1;
    int version = 0;
    printf("cuDriverGetVersion -> %d\n", cuDriverGetVersion(&version));
    void *library = NULL;
    pthread_join(thread, &library);
    printf("the library was %s\n", library ? "opened" : "not opened");
    return 0;
}

static int with_fork(void) {
    pthread_t thread;
    if (pthread_create(&thread, NULL, call, NULL)) return 1;
    usleep(A_WHILE_US);
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        alarm(TOO_LONG_S);
        int version = 0;
        _exit(cuDriverGetVersion(&version) ? 1 : 0);
    }
    int status = -1;
    waitpid(child, &status, 0);
    printf("the child %s %d\n", WIFEXITED(status) ? "exits with" : "is killed by",
           WIFEXITED(status) ? WEXITSTATUS(status) : WTERMSIG(status));
    pthread_join(thread, NULL);
    return 0;
}

int main(int argc, char **argv) {
    alarm(2 * TOO_LONG_S);
    if (argc == 3 && strcmp(argv[1], "constructor") == 0) return with_constructor(argv[2]);
    if (argc == 2 && strcmp(argv[1], "fork") == 0) return with_fork();
    printf("usage: first_call constructor LIBRARY | fork\n");
    return 1;
}

#endif
