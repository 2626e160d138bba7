/* The second door: dlopen of a library and dlsym of names.
 *
 *     doors_dlopen LIBRARY FLAGS [SYMBOL_LIST]
 *
 * FLAGS are words of now, lazy, local, global and deepbind, with commas or anything else between.
 * With a list, says of each symbol if dlsym finds it.
 */
#define _GNU_SOURCE /* RTLD_DEEPBIND */
#include <dlfcn.h>

#include "door.h"
#include "symbol_list.h"

static int flags_of(const char *words) {
    static const struct {
        const char *word;
        int flag;
    } known[] = {{"now", RTLD_NOW},
                 {"lazy", RTLD_LAZY},
                 {"local", RTLD_LOCAL},
                 {"global", RTLD_GLOBAL},
                 {"deepbind", RTLD_DEEPBIND}};
    int flags = 0;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        if (strstr(words, known[i].word)) flags |= known[i].flag;
    }
    return flags;
}

int main(int argc, char **argv) {
    if (argc < 3) {
        printf("usage: doors_dlopen LIBRARY FLAGS [SYMBOL_LIST]\n");
        return 1;
    }
    void *library = dlopen(argv[1], flags_of(argv[2]));
    if (!library) {
        printf("dlopen failed\n");
        return 1;
    }
    if (argc > 3) {
        size_t count;
        struct symbol_row *rows = read_symbol_list(argv[3], &count);
        for (size_t i = 0; i < count; i++) {
            printf("%s %s\n", rows[i].symbol,
                   dlsym(library, rows[i].symbol) ? "present" : "absent");
        }
        free(rows);
    }
    struct door door;
#define DOOR_LOADED(call, version)                                        \
    door.call = (__typeof__(door.call))dlsym(library, SYMBOL_NAME(call)); \
    if (!door.call) {                                                     \
        printf("%s absent\n", SYMBOL_NAME(call));                         \
        return 1;                                                         \
    }
    DOOR_CALLS(DOOR_LOADED)
#undef DOOR_LOADED
    return run_door(&door);
}
