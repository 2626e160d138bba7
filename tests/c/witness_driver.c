/* A driver that works on no machine, and remembers where each call came from. It says that it is initialised all the same. And it has a
 * function that is unknown elsewhere.
 */
#include <string.h>

enum { SUCCESS = 0, NOT_INITIALISED = 3, VERSION = 13050 };

void *witness_caller;

#define WITNESS() (witness_caller = __builtin_return_address(0))
#define NAME(name) \
    int name(void) { \
        WITNESS(); \
        return NOT_INITIALISED; \
    }
#include "driver_names.h"
NAME(cuGetProcAddress)
static NAME(of_tomorrow)

int cuGetProcAddress_v2(const char *name, void **function, int version, unsigned long long flags, int *status) {
    (void)version, (void)flags, (void)status;
    WITNESS();
    if (!name || strcmp(name, "cuOfTomorrow")) return NOT_INITIALISED;
    *function = (void *)of_tomorrow;
    return SUCCESS;
}

int cuInit(unsigned flags) {
    (void)flags;
    WITNESS();
    return SUCCESS;
}

int cuDriverGetVersion(int *version) {
    WITNESS();
    *version = VERSION;
    return SUCCESS;
}
