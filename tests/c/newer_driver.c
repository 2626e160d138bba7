/* The simulated driver as it may be one day: with a function unknown today, and a newer version of one that is known. Both
 * copy memory of the device; the first takes more than registers hold. And of a third, cuGetProcAddress tells another address than the
 * loader.
 *
 * The loader finds the rest in libsimcuda.so, which this library needs.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>
#include <string.h>

enum { TOMORROW = 99990, FOUND = 0, VERSION_NOT_SUFFICIENT = 2, NOT_FOUND = 500, INVALID_VALUE = 1 };

typedef unsigned long long address;

static void *simulated(const char *name) { return dlsym(RTLD_NEXT, name); }

static int copy(address to, address from, size_t bytes, void *stream) {
    int (*known)(address, address, size_t, void *) = simulated("cuMemcpyDtoDAsync_v2");
    return known(to, from, bytes, stream);
}

/* Numbers from 1 to 6, and a half of each sort of register. */
int cuMemcpyOfTomorrow(address to, address from, size_t bytes, void *stream, int one, int two, int three, int four,
                       double half, int five, int six) {
    int are_right = one == 1 && two == 2 && three == 3 && four == 4 && five == 5 && six == 6 && half == 0.5;
    return are_right ? copy(to, from, bytes, stream) : INVALID_VALUE;
}

/* The arguments have changed places. */
int cuMemcpyDtoDAsync_v3(void *stream, size_t bytes, address from, address to) { return copy(to, from, bytes, stream); }

int cuDriverGetVersion(int *version) {
    *version = TOMORROW;
    return 0;
}

int cuMemsetD32_v2(address at, unsigned word, size_t count) {
    int (*known)(address, unsigned, size_t) = simulated("cuMemsetD32_v2");
    return known(at, word, count);
}

int cuGetProcAddress(const char *name, void **function, int version, unsigned long long flags);
int cuGetProcAddress_v2(const char *name, void **function, int version, unsigned long long flags, int *status);

static void *newer(const char *name, int version) {
    if (!strcmp(name, "cuGetProcAddress")) return version < 12000 ? (void *)cuGetProcAddress : (void *)cuGetProcAddress_v2;
    if (version < TOMORROW) return NULL;
    if (!strcmp(name, "cuMemcpyOfTomorrow")) return (void *)cuMemcpyOfTomorrow;
    if (!strcmp(name, "cuMemcpyDtoDAsync")) return (void *)cuMemcpyDtoDAsync_v3;
    return NULL;
}

int cuGetProcAddress(const char *name, void **function, int version, unsigned long long flags) {
    int (*known)(const char *, void **, int, unsigned long long) = simulated("cuGetProcAddress");
    void *found = newer(name, version);
    if (!found) return known(name, function, version, flags);
    *function = found;
    return 0;
}

int cuGetProcAddress_v2(const char *name, void **function, int version, unsigned long long flags, int *status) {
    int (*known)(const char *, void **, int, unsigned long long, int *) = simulated("cuGetProcAddress_v2");
    void *found = newer(name, version);
    if (!found) {
        int answer = known(name, function, version, flags, status);
        if (status && !strcmp(name, "cuMemcpyOfTomorrow")) *status = VERSION_NOT_SUFFICIENT;
        return answer;
    }
    *function = found;
    if (status) *status = FOUND;
    return 0;
}
