/* The third door, the CUDA runtime's: dlsym of cuGetProcAddress alone, and everything through it.
 *
 *     doors_procaddress SYMBOL_LIST
 *
 * Asks both versions of cuGetProcAddress for each row of the list, at the row's version and at the
 * one below it, with each stream flag, and prints
 *
 *     v1|v2 BASE VERSION FLAGS -> RESULT STATUS NAME
 *
 * where STATUS is - when there is none, and NAME is the exported symbol at the address that came
 * back, `null` for no address, `unnamed` for an address that dlsym gives for none of the list.
 */
#include <dlfcn.h>

#include "door.h"
#include "symbol_list.h"

typedef CUresult (*proc_address_v1)(const char *, void **, int, cuuint64_t);
typedef __typeof__(cuGetProcAddress) *proc_address_v2;

static proc_address_v1 ask_v1;
static proc_address_v2 ask_v2;
static struct symbol_row *rows;
static void **exported; /* dlsym's answer for each row's symbol */
static size_t count;

/* Several symbols may share an address: one with the base that was asked for comes first. */
static const char *name_of(const char *base, void *address) {
    const char *name = "unnamed";
    if (!address) return "null";
    for (size_t i = 0; i < count; i++) {
        if (exported[i] != address) continue;
        if (strcmp(rows[i].base, base) == 0) return rows[i].symbol;
        name = rows[i].symbol;
    }
    return name;
}

static void ask(const char *base, int version, cuuint64_t flags) {
    /* An address that no driver gives, to see if the answer was written. */
    void *const untouched = (void *)&rows;
    void *address = untouched;
    CUdriverProcAddressQueryResult status = (CUdriverProcAddressQueryResult)77;
    CUresult result = ask_v1(base, &address, version, flags);
    printf("v1 %s %d %d -> %d - %s\n", base, version, (int)flags, (int)result,
           address == untouched ? "untouched" : name_of(base, address));
    address = untouched;
    result = ask_v2(base, &address, version, flags, &status);
    printf("v2 %s %d %d -> %d %d %s\n", base, version, (int)flags, (int)result, (int)status,
           address == untouched ? "untouched" : name_of(base, address));
}

/* Wrong and unusual questions. (A null name or a null address is none of them: NVIDIA's driver
 * reads and writes through both.) */
static void ask_oddly(void) {
    void *address = NULL;
    printf("v2 null status -> %d", (int)ask_v2("cuInit", &address, 12000, 0, NULL));
    printf(" %s\n", name_of("cuInit", address));
    address = NULL;
    printf("v2 unknown, null status -> %d", (int)ask_v2("cuNobody", &address, 12000, 0, NULL));
    printf(" %s\n", name_of("cuNobody", address));
    ask("cuNobody", 12000, 0);
    ask("", 12000, 0);
    ask("cuMemAlloc_v2", 12000, 0);
    ask("cuMemAlloc", 0, 0);
    ask("cuMemAlloc", -1, 0);
    ask("cuMemAlloc", 99000, 0);
    ask("cuMemcpyHtoD", 12000, 3);
    ask("cuMemcpyHtoD", 12000, 4);
    ask("cuGetProcAddress", 11030, 0);
    ask("cuGetProcAddress", 12000, 0);
}

/* The vector add with functions from this door alone. Twins came with version 7000, and asked for a
 * twin at an older version the driver gives none. */
static int add_with(cuuint64_t flags) {
    struct door door;
    void *address;
    CUresult result;
#define DOOR_ASKED(call, version)                                                     \
    address = NULL;                                                                   \
    result = ask_v2(#call, &address, flags == 2 && version < 7000 ? 7000 : version,   \
                    flags, NULL);                                                     \
    if (result != CUDA_SUCCESS || !address) {                                         \
        printf("%s %d -> %d null\n", #call, version, (int)result);                    \
        return 1;                                                                     \
    }                                                                                 \
    door.call = (__typeof__(door.call))address;
    DOOR_CALLS(DOOR_ASKED)
#undef DOOR_ASKED
    printf("flags %d: ", (int)flags);
    return run_door(&door);
}

int main(int argc, char **argv) {
    if (argc < 2) {
        printf("usage: doors_procaddress SYMBOL_LIST\n");
        return 1;
    }
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    if (!library) {
        printf("dlopen failed\n");
        return 1;
    }
    ask_v1 = (proc_address_v1)dlsym(library, "cuGetProcAddress");
    ask_v2 = (proc_address_v2)dlsym(library, "cuGetProcAddress_v2");
    printf("cuGetProcAddress %s, cuGetProcAddress_v2 %s\n", ask_v1 ? "present" : "absent",
           ask_v2 ? "present" : "absent");
    if (!ask_v1 || !ask_v2) return 1;

    /* The add comes first: after it every name is looked up by dlsym, to name the result. A
     * driver without a device fails it, and still has its answers to give. */
    int failed = 0;
    for (cuuint64_t flags = 0; flags <= 2; flags++) failed |= add_with(flags);
    rows = read_symbol_list(argv[1], &count);
    exported = calloc(count, sizeof *exported);
    if (!exported) return 1;
    for (size_t i = 0; i < count; i++) exported[i] = dlsym(library, rows[i].symbol);
    for (size_t i = 0; i < count; i++) {
        for (cuuint64_t flags = 0; flags <= 2; flags++) {
            ask(rows[i].base, rows[i].version, flags);
            ask(rows[i].base, rows[i].version - 1, flags);
        }
    }
    ask_oddly();
    free(exported);
    free(rows);
    return failed;
}
