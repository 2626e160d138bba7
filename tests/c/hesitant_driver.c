/* The simulated driver, which takes a moment before a capture begins, and after a thread asks if the legacy stream may be
 * asked: a thread that then asks the stream itself does so when the capture has begun.
 *
 * A program reaches this library as its driver. The loader finds the rest in libsimcuda.so, which this library needs.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <unistd.h>

enum { HESITATION_US = 3000 };

static int (*begin_capture)(void *, int);
static int (*is_capturing)(void *, int *);

__attribute__((constructor)) static void find(void) {
    void *driver = dlopen("libsimcuda.so", RTLD_NOW | RTLD_NOLOAD);
    if (!driver) abort();
    *(void **)&begin_capture = dlsym(driver, "cuStreamBeginCapture_v2");
    *(void **)&is_capturing = dlsym(driver, "cuStreamIsCapturing");
}

int cuStreamBeginCapture_v2(void *stream, int mode) {
    usleep(HESITATION_US);
    return begin_capture(stream, mode);
}

int cuStreamIsCapturing(void *stream, int *status) {
    void *const legacy = (void *)1;
    int result = is_capturing(stream, status);
    if (!stream || stream == legacy) usleep(HESITATION_US);
    return result;
}
