/* A program that changes its environment before it uses the GPU. The simulated driver's own settings stay.
 *
 *     environment cleared      it has none any more (clearenv)
 *     environment overwritten  its title stands where it was, as `setproctitle` writes it
 *     environment late         it sets BATON_NAME to `late`
 *     environment empty        it sets BATON_NAME to nothing
 *     environment library FILE it opens the library in this file and initialises the driver; says the answer, and whether it runs with
 *                              more rights than its user
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <sys/auxv.h>
#include <unistd.h>

#include "common.h"

extern char **environ;

static const char *const drivers[] = {"SIMCUDA_MEMORY", "SIMCUDA_GPU_FILE", "SIMCUDA_GPUS"};
static char *values[COUNT_OF(drivers)];

static void restore(void) {
    for (size_t i = 0; i < COUNT_OF(drivers); i++) {
        if (values[i]) REQUIRE(!setenv(drivers[i], values[i], 1), "it cannot be set");
    }
}

static void overwrite(char **argv) {
    char *start = argv[0], *end = start;
    for (char **word = argv; *word; word++) end = *word + strlen(*word) + 1;
    for (char **word = environ; *word; word++) end = *word + strlen(*word) + 1;
    static char *none[] = {NULL};
    environ = none;
    memset(start, 'x', (size_t)(end - start) - 1);
}

int main(int argc, char **argv) {
    const char *way = argc > 1 ? argv[1] : "";
    if (argc == 3 && !strcmp(way, "library")) {
        void *library = dlopen(argv[2], RTLD_NOW);
        REQUIRE(library, "%s", dlerror());
        unsigned (*init)(unsigned) = (unsigned (*)(unsigned))dlsym(library, "cuInit");
        printf("%u, secure %lu\n", init(0), getauxval(AT_SECURE));
        return 0;
    }
    for (size_t i = 0; i < COUNT_OF(drivers); i++) {
        const char *value = getenv(drivers[i]);
        values[i] = value ? strdup(value) : NULL;
    }
    if (!strcmp(way, "cleared")) {
        REQUIRE(!clearenv(), "it cannot be cleared");
        restore();
    } else if (!strcmp(way, "overwritten")) {
        overwrite(argv);
        restore();
    } else {
        REQUIRE(!setenv("BATON_NAME", strcmp(way, "late") ? "" : "late", 1), "it cannot be set");
    }
    start();
    CUdeviceptr memory;
    unsigned char byte = 0;
    CHECK(cuMemAlloc(&memory, 4096));
    CHECK(cuMemsetD8(memory, 7, 4096));
    CHECK(cuMemcpyDtoH(&byte, memory, 1));
    REQUIRE(byte == 7, "it reads %d", byte);
    printf("%d\n", byte);
    return 0;
}
