/* A program that changes its environment before it uses the GPU. The simulated driver's own settings stay.
 *
 *     environment cleared      it has none any more (clearenv)
 *     environment overwritten  its title stands where it was, as `setproctitle` writes it
 *     environment late         it sets BATON_NAME to `late`
 *     environment empty        it sets BATON_NAME to nothing
 */
#define _GNU_SOURCE
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
