/* Makes known calls of the driver, for tests that count them: cuInit once, cuDriverGetVersion five
 * times, and cuCtxSynchronize three times without a context, which answers 201.
 *
 *     known_calls            that
 *     known_calls fork       and one more cuDriverGetVersion in a forked child
 *     known_calls elsewhere  and leaves its working folder and BATON_TRACE_FILE behind
 */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "baton_cuda.h"

int main(int argc, char **argv) {
    const char *mode = argc > 1 ? argv[1] : "";
    int version = 0, status = 0, wrong = 0;
    wrong += cuInit(0) != CUDA_SUCCESS;
    for (int i = 0; i < 5; i++) wrong += cuDriverGetVersion(&version) != CUDA_SUCCESS;
    for (int i = 0; i < 3; i++) wrong += cuCtxSynchronize() != CUDA_ERROR_INVALID_CONTEXT;
    if (strcmp(mode, "fork") == 0) {
        pid_t child = fork();
        /* Ends as a process does, not by _exit: it has something to report. */
        if (child == 0) exit(cuDriverGetVersion(&version) != CUDA_SUCCESS);
        wrong += waitpid(child, &status, 0) != child || status != 0;
    }
    if (strcmp(mode, "elsewhere") == 0) {
        wrong += chdir("/") != 0;
        unsetenv("BATON_TRACE_FILE");
    }
    return wrong;
}
