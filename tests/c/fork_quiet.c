/* A program that never uses CUDA: it starts threads, forks and executes itself, and counts the
 * threads and descriptors that each process has. A preloaded library must not change the counts.
 */
#include <dirent.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static int entries(const char *folder) {
    DIR *open_folder = opendir(folder);
    int count = 0;
    if (!open_folder) return -1;
    for (struct dirent *entry; (entry = readdir(open_folder));) count += entry->d_name[0] != '.';
    closedir(open_folder);
    return count;
}

static void count(const char *where) {
    /* The folder being read is itself a descriptor. */
    printf("%s: %d threads, %d descriptors\n", where, entries("/proc/self/task"),
           entries("/proc/self/fd") - 1);
    fflush(stdout);
}

static void *add_one(void *data) {
    ++*(int *)data;
    return NULL;
}

/* Waits for a child and passes its failure on. */
static void wait_for(pid_t child) {
    int status = 0;
    if (child < 0 || waitpid(child, &status, 0) != child || !WIFEXITED(status) ||
        WEXITSTATUS(status) != 0) {
        printf("the child failed\n");
        exit(1);
    }
}

int main(int argc, char **argv) {
    if (argc > 1 && strcmp(argv[1], "executed") == 0) {
        count("executed");
        return 0;
    }
    count("start");

    pthread_t threads[4];
    int numbers[4] = {0, 1, 2, 3}, sum = 0;
    for (int i = 0; i < 4; i++) {
        if (pthread_create(&threads[i], NULL, add_one, &numbers[i])) return 1;
    }
    for (int i = 0; i < 4; i++) {
        pthread_join(threads[i], NULL);
        sum += numbers[i];
    }
    printf("threads gave %d\n", sum);
    fflush(stdout);

    pid_t child = fork();
    if (child == 0) {
        count("forked");
        _exit(0);
    }
    wait_for(child);

    child = fork();
    if (child == 0) {
        execl("/proc/self/exe", argv[0], "executed", (char *)NULL);
        _exit(127);
    }
    wait_for(child);
    count("end");
    return 0;
}
