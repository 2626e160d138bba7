/* A library that is itself linked to libcuda.so.1, and a program that opens it so that it prefers
 * its own dependencies (RTLD_DEEPBIND), as plugin hosts do. One source for both:
 *
 *     cc -DLIB -shared ... -o libdeep.so deep.c -l:libcuda.so.1
 *     cc ... -o deep deep.c
 *     deep /path/of/libdeep.so
 */
#define _GNU_SOURCE /* RTLD_DEEPBIND */
#include "door.h"

#ifdef LIB

int deep_vector_add(void) {
    struct door door = {
#define DOOR_LINKED(call, version) .call = call,
        DOOR_CALLS(DOOR_LINKED)
#undef DOOR_LINKED
    };
    return run_door(&door);
}

#else

#include <dlfcn.h>

int main(int argc, char **argv) {
    if (argc < 2) {
        printf("usage: deep LIBRARY\n");
        return 1;
    }
    void *library = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND);
    if (!library) {
        printf("dlopen failed\n");
        return 1;
    }
    int (*vector_add)(void) = (int (*)(void))dlsym(library, "deep_vector_add");
    if (!vector_add) {
        printf("deep_vector_add absent\n");
        return 1;
    }
    return vector_add();
}

#endif
