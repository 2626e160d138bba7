/* The first door: the program is linked to libcuda.so.1.
 *
 *     doors_link [SYMBOL_LIST]
 *
 * With a list, says of each symbol if the loader's global scope has it, which is where a
 * program that is linked to it would find it.
 */
#define _GNU_SOURCE /* RTLD_DEFAULT */
#include <dlfcn.h>

#include "door.h"
#include "symbol_list.h"

int main(int argc, char **argv) {
    if (argc > 1) {
        size_t count;
        struct symbol_row *rows = read_symbol_list(argv[1], &count);
        for (size_t i = 0; i < count; i++) {
            printf("%s %s\n", rows[i].symbol,
                   dlsym(RTLD_DEFAULT, rows[i].symbol) ? "present" : "absent");
        }
        free(rows);
    }
    struct door door = {
#define DOOR_LINKED(call, version) .call = call,
        DOOR_CALLS(DOOR_LINKED)
#undef DOOR_LINKED
    };
    return run_door(&door);
}
