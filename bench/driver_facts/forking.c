/* F: which descriptors of the GPU's files NVML opens, and whether a forked child may use NVML. */
#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "world.h"

typedef int (*Nvml)(void);
static int (*nvml_init)(void), (*nvml_shutdown)(void), (*nvml_count)(unsigned *),
    (*nvml_device)(unsigned, void **), (*nvml_memory)(void *, unsigned long long *),
    (*nvml_name)(void *, char *, unsigned), (*nvml_use)(void *, unsigned *),
    (*nvml_processes)(void *, unsigned *, void *);

static bool open_nvml(void) {
    void *library = dlopen("libnvidia-ml.so.1", RTLD_NOW);
    if (!library) {
        answer("no libnvidia-ml.so.1");
        return false;
    }
    nvml_init = (int (*)(void))dlsym(library, "nvmlInit_v2");
    nvml_shutdown = (int (*)(void))dlsym(library, "nvmlShutdown");
    nvml_count = (int (*)(unsigned *))dlsym(library, "nvmlDeviceGetCount_v2");
    nvml_device = (int (*)(unsigned, void **))dlsym(library, "nvmlDeviceGetHandleByIndex_v2");
    nvml_memory = (int (*)(void *, unsigned long long *))dlsym(library, "nvmlDeviceGetMemoryInfo");
    nvml_name = (int (*)(void *, char *, unsigned))dlsym(library, "nvmlDeviceGetName");
    nvml_use = (int (*)(void *, unsigned *))dlsym(library, "nvmlDeviceGetUtilizationRates");
    nvml_processes = (int (*)(void *, unsigned *, void *))dlsym(
        library, "nvmlDeviceGetComputeRunningProcesses_v3");
    return nvml_init && nvml_shutdown && nvml_count && nvml_device && nvml_memory && nvml_name &&
           nvml_use && nvml_processes;
}

enum { MOST = 256 };
struct links {
    int descriptors[MOST];
    char names[MOST][32];
    int count;
};

static struct links links_now(void) {
    struct links found = {.count = 0};
    DIR *folder = opendir("/proc/self/fd");
    for (struct dirent *entry; folder && (entry = readdir(folder)) && found.count < MOST;) {
        char path[64], to[256];
        snprintf(path, sizeof path, "/proc/self/fd/%.20s", entry->d_name);
        ssize_t length = readlink(path, to, sizeof to - 1);
        if (length <= 0) continue;
        to[length] = 0;
        if (strncmp(to, "/dev/nvidia", 11)) continue;
        found.descriptors[found.count] = atoi(entry->d_name);
        snprintf(found.names[found.count++], sizeof found.names[0], "%.31s", to + 5);
    }
    if (folder) closedir(folder);
    return found;
}

static bool in(const struct links *links, int descriptor) {
    for (int at = 0; at < links->count; at++)
        if (links->descriptors[at] == descriptor) return true;
    return false;
}

static void tell_links_since(const char *when, const struct links *before) {
    struct links now = links_now();
    char text[2048] = "", added[2048] = "";
    for (int at = 0; at < now.count; at++) {
        char *to = in(before, now.descriptors[at]) ? text : added;
        size_t used = strlen(to);
        snprintf(to + used, 2048 - used, "%s%s (%d)", used ? ", " : "", now.names[at],
                 now.descriptors[at]);
    }
    about("descriptors of /dev/nvidia*, %s", when);
    answer("%d; new: %s; as before: %s", now.count, *added ? added : "none", *text ? text : "none");
}

/* What NVML answers in this process, as text. */
static void tell_nvml(const char *where) {
    unsigned count = 0, use[2] = {0}, processes = 0;
    unsigned long long bytes[3] = {0};
    char name[96] = "";
    void *device = NULL;
    about("%s: nvmlDeviceGetCount", where);
    int counted = nvml_count(&count);
    int handled = nvml_device(0, &device);
    answer("%d (%u), handle %d", counted, count, handled);
    about("%s: nvmlDeviceGetMemoryInfo, name, utilization, processes", where);
    int told = nvml_memory(device, bytes), named = nvml_name(device, name, sizeof name);
    int used = nvml_use(device, use), listed = nvml_processes(device, &processes, NULL);
    answer("%d (%s), %d, %d, %d", told, bytes[0] ? "bytes" : "no bytes", named, used, listed);
    about("%s: nvmlInit_v2 again, the memory by the old handle, a new handle, the memory", where);
    int again = nvml_init(), by_old = nvml_memory(device, bytes);
    handled = nvml_device(0, &device);
    bytes[0] = 0;
    told = nvml_memory(device, bytes);
    answer("%d, %d, %d, %d (%s)", again, by_old, handled, told, bytes[0] ? "bytes" : "no bytes");
    about("%s: nvmlShutdown twice, nvmlInit_v2, count", where);
    int down = nvml_shutdown(), down_too = nvml_shutdown(), up = nvml_init();
    answer("%d, %d, %d, %d", down, down_too, up, nvml_count(&count));
}

static void with_cuda_first(const int *variant) {
    bool with_cuda = variant[0];
    struct links before = {.count = 0};
    about("NVML");
    if (with_cuda) {
        begin(0);
        tell_links_since("after cuInit and a context", &before);
        before = links_now();
    }
    if (!open_nvml()) return;
    const char *with = with_cuda ? "CUDA first" : "no CUDA";
    char when[96];
    snprintf(when, sizeof when, "%s, after dlopen of NVML", with);
    tell_links_since(when, &before);
    about("%s: nvmlInit_v2", with);
    answer("%d", nvml_init());
    snprintf(when, sizeof when, "%s, after nvmlInit_v2", with);
    tell_links_since(when, &before);
    tell_nvml(with);
    snprintf(when, sizeof when, "%s, after NVML's calls", with);
    tell_links_since(when, &before);
}

enum { AS_IS, NVML_NULL, ALL_NULL, CLOSED, CUDA_NULL, ALL_BUT_CONTROL };

static void forked(const int *variant) {
    static const char *const kinds[] = {
        "a forked child", "a forked child, NVML's descriptors now /dev/null",
        "a forked child, all descriptors of the GPU now /dev/null",
        "a forked child, NVML's descriptors closed",
        "a forked child, all but NVML's descriptors now /dev/null",
        "a forked child, all but NVML's nvidiactl now /dev/null"};
    bool nvml_first = variant[1];
    char where[128];
    snprintf(where, sizeof where, "%s (%s)", kinds[variant[0]],
             nvml_first ? "NVML first, then CUDA" : "CUDA first, then NVML");
    about("%s", where);
    struct links before = {.count = 0}, after;
    if (!open_nvml()) return;
    if (nvml_first) {
        int got = nvml_init();
        unsigned count;
        if (!got) nvml_count(&count);
        after = links_now();
        begin(0);
    } else {
        begin(0);
        before = links_now();
        nvml_init();
        unsigned count;
        nvml_count(&count);
        after = links_now();
    }
    pid_t child = fork();
    if (child) {
        int status;
        waitpid(child, &status, 0);
        about("%s: how it ended", where);
        answer("%s %d", WIFSIGNALED(status) ? "signal" : "status",
               WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
        about("%s: the parent's cuCtxSynchronize afterwards", where);
        mark_in(LEGACY, 0);
        answer("%d", (int)cuCtxSynchronize());
        unsigned counted = 0;
        about("%s: the parent's nvmlDeviceGetCount afterwards", where);
        answer("%d", nvml_count(&counted));
        return;
    }
    alarm(6);
    struct links now = links_now();
    int null = open("/dev/null", O_RDWR), changed = 0;
    for (int at = 0; at < now.count; at++) {
        bool of_nvml = in(&after, now.descriptors[at]) && !in(&before, now.descriptors[at]);
        bool control = of_nvml && !strcmp(now.names[at], "nvidiactl");
        if (variant[0] == ALL_NULL || (variant[0] == NVML_NULL && of_nvml) ||
            (variant[0] == CUDA_NULL && !of_nvml) || (variant[0] == ALL_BUT_CONTROL && !control)) {
            dup2(null, now.descriptors[at]);
            changed++;
        } else if (variant[0] == CLOSED && of_nvml) {
            close(now.descriptors[at]);
            changed++;
        }
    }
    about("%s: descriptors changed, of how many", where);
    answer("%d of %d", changed, now.count);
    tell_nvml(where);
    about("%s: cuInit, cuMemGetInfo", where);
    size_t free_bytes, total;
    CUresult init = cuInit(0);
    answer("%d, %d", (int)init, (int)cuMemGetInfo(&free_bytes, &total));
    _exit(0);
}

void add_forking(void) {
    add("F", ONE_GPU, with_cuda_first, 1, 0, 0, 0);
    add("F", ONE_GPU, with_cuda_first, 0, 0, 0, 0);
    add("F", TWO_GPUS, with_cuda_first, 1, 0, 0, 0);
    for (int kind = AS_IS; kind <= ALL_BUT_CONTROL; kind++)
        for (int first = 0; first < 2; first++) add("F", ONE_GPU, forked, kind, first, 0, 0);
}
