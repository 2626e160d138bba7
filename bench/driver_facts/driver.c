/* Finds the driver's entry points. */
#include "driver.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

static CUresult absent(void) {
    return (CUresult)ABSENT;
}

#define DEFINE(name, symbol, params) CUresult(*name) params;
DRIVER_CALLS(DEFINE)
#undef DEFINE

void open_driver(void) {
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
    if (!library) {
        fprintf(stderr, "driver_facts: %s\n", dlerror());
        exit(1);
    }
    void *found;
#define FIND(name, symbol, params)                                                                 \
    found = dlsym(library, symbol);                                                                \
    name = (CUresult(*) params)(found ? found : (void *)absent);
    DRIVER_CALLS(FIND)
#undef FIND
}
