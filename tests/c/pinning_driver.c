/* The simulated driver, in which the coordinator's host memory is pinned only when there is a file that PINS_WHEN_THERE_IS names.
 *
 * The loader finds the rest in libsimcuda.so, which this library needs.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>
#include <stdlib.h>
#include <unistd.h>

int cuMemHostRegister_v2(void *start, size_t bytes, unsigned flags) {
    const char *file = getenv("PINS_WHEN_THERE_IS");
    int (*pin)(void *, size_t, unsigned) = (int (*)(void *, size_t, unsigned))dlsym(RTLD_NEXT, "cuMemHostRegister_v2");
    while (file && access(file, F_OK) != 0) usleep(2000);
    return pin ? pin(start, bytes, flags) : 999;
}
