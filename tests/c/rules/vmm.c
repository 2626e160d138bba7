/* The driver's rules for virtual memory management: reserving, creating, mapping, access, handles,
 * the driver's answers about such addresses, and descriptors.
 */
#include <fcntl.h>

#include "rules.h"

enum { FD = 1, WIN32 = 2, WIN32_KMT = 4, FABRIC = 8 }; /* kinds of shareable handles */
enum { NONE = 0, READ = 1, BOTH = 3 };                 /* access */
enum { HOST = 2, HOST_NUMA = 3, HOST_NUMA_CURRENT = 4 };

typedef CUmemGenericAllocationHandle handle;

static const CUmemLocation device = {CU_MEM_LOCATION_TYPE_DEVICE, 0};

static CUmemAllocationProp kind_of(int location, int id, int shareable) {
    return (CUmemAllocationProp){.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                 .requestedHandleTypes = (CUmemAllocationHandleType)shareable,
                                 .location = {(CUmemLocationType)location, id}};
}

static CUmemAllocationProp plain_kind(void) { return kind_of(CU_MEM_LOCATION_TYPE_DEVICE, 0, 0); }

static CUresult reserve(CUdeviceptr *at, size_t bytes) {
    return cuMemAddressReserve(at, bytes, 0, 0, 0);
}

static CUresult create(handle *made, size_t bytes) {
    CUmemAllocationProp kind = plain_kind();
    return cuMemCreate(made, bytes, &kind, 0);
}

static CUresult create_fd(handle *made, size_t bytes) {
    CUmemAllocationProp kind = kind_of(CU_MEM_LOCATION_TYPE_DEVICE, 0, FD);
    return cuMemCreate(made, bytes, &kind, 0);
}

static CUresult access_to(CUdeviceptr at, size_t bytes, int flags) {
    CUmemAccessDesc access = {device, (CUmemAccess_flags)flags};
    return cuMemSetAccess(at, bytes, &access, 1);
}

/* The access that the device has, or minus the answer. */
static int access_of(CUdeviceptr at) {
    unsigned long long flags = 77;
    CUresult answer = CALL(cuMemGetAccess(&flags, &device, at));
    return answer ? -(int)answer : (int)flags;
}

/* The start of many rules: a reservation, and a handle of some units mapped at its start. */
#define NEED_MAPPED(at, units, memory, memory_units)                                               \
    NEED(reserve(&at, (units) * (size_t)UNIT));                                                    \
    NEED(create(&memory, (memory_units) * (size_t)UNIT));                                          \
    NEED(cuMemMap(at, (memory_units) * (size_t)UNIT, 0, memory, 0))

/* --- reserving addresses ------------------------------------------------------------------- */

static void reserve_sizes(void) {
    static const size_t sizes[] = {0,    1,           4096,         65536,   UNIT - 1,
                                   UNIT, UNIT + 4096, UNIT + 65536, 3 * UNIT};
    for (size_t i = 0; i < COUNT_OF(sizes); i++) {
        CUdeviceptr at = 0;
        if (ASK(reserve(&at, sizes[i]), "%zu bytes", sizes[i])) continue;
        say(at % UNIT == 0, "%zu bytes at a multiple of 2 MiB", sizes[i]);
        ASK(cuMemAddressFree(at, sizes[i]), "freeing %zu bytes", sizes[i]);
    }
}

static void reserve_alignments(void) {
    static const size_t alignments[] = {0, 1, 3, 4096, 65536, UNIT, 3 * UNIT, 64 * MIB, 1024 * MIB};
    for (size_t i = 0; i < COUNT_OF(alignments); i++) {
        CUdeviceptr at = 0;
        size_t alignment = alignments[i];
        if (ASK(cuMemAddressReserve(&at, UNIT, alignment, 0, 0), "alignment %zu", alignment))
            continue;
        say(alignment ? at % alignment == 0 : at % UNIT == 0, "alignment %zu is kept", alignment);
        TIDY(cuMemAddressFree(at, UNIT));
    }
}

static void reserve_hint_free(void) {
    CUdeviceptr at, again = 0;
    NEED(reserve(&at, 4 * UNIT));
    NEED(cuMemAddressFree(at, 4 * UNIT));
    if (ASK(cuMemAddressReserve(&again, 4 * UNIT, 0, at, 0), "a wish for free addresses")) return;
    say(again == at, "the wish is granted");
    TIDY(cuMemAddressFree(again, 4 * UNIT));
    if (ASK(cuMemAddressReserve(&again, UNIT, 0, at + UNIT, 0), "a wish inside free addresses"))
        return;
    say(again == at + UNIT, "the wish inside is granted");
    TIDY(cuMemAddressFree(again, UNIT));
}

static void reserve_hint_taken(void) {
    CUdeviceptr at, other = 0;
    NEED(reserve(&at, 4 * UNIT));
    if (!ASK(cuMemAddressReserve(&other, UNIT, 0, at + UNIT, 0), "a wish for addresses in use")) {
        say(other >= at && other < at + 4 * UNIT, "they overlap");
        TIDY(cuMemAddressFree(other, UNIT));
    }
    TIDY(cuMemAddressFree(at, 4 * UNIT));
}

static void reserve_hint_odd(void) {
    CUdeviceptr at, other = 0;
    NEED(reserve(&at, 4 * UNIT));
    NEED(cuMemAddressFree(at, 4 * UNIT));
    if (ASK(cuMemAddressReserve(&other, UNIT, 0, at + 4096, 0), "a wish that is not aligned"))
        return;
    say(other == at + 4096, "the wish is granted to the byte");
    say(other % UNIT == 0, "aligned all the same");
    TIDY(cuMemAddressFree(other, UNIT));
}

static void reserve_flags(void) {
    static const unsigned long long flags[] = {1, 2, 4, 1ull << 63, ~0ull};
    for (size_t i = 0; i < COUNT_OF(flags); i++) {
        CUdeviceptr at = 0;
        if (ASK(cuMemAddressReserve(&at, UNIT, 0, 0, flags[i]), "flags %#llx", flags[i])) continue;
        TIDY(cuMemAddressFree(at, UNIT));
    }
}

static void reserve_null(void) { ASK(reserve(NULL, UNIT), "nowhere to put the address"); }

static void reserve_huge(void) {
    CUdeviceptr at = 0;
    if (!ASK(reserve(&at, (size_t)1 << 62), "far more than there are addresses")) {
        TIDY(cuMemAddressFree(at, (size_t)1 << 62));
    }
    if (!ASK(reserve(&at, (size_t)1 << 36), "64 GiB of addresses")) {
        ASK(cuMemAddressFree(at, (size_t)1 << 36), "freeing 64 GiB of addresses");
    }
}

static void reserve_many(void) {
    enum { MANY = 16 };
    CUdeviceptr at[MANY];
    int apart = 1;
    for (int i = 0; i < MANY; i++) NEED(reserve(&at[i], 2 * UNIT));
    for (int i = 0; i < MANY; i++) {
        for (int j = 0; j < i; j++) apart &= at[i] + 2 * UNIT <= at[j] || at[j] + 2 * UNIT <= at[i];
    }
    say(apart, "16 reservations are apart");
    for (int i = 0; i < MANY; i++) TIDY(cuMemAddressFree(at[i], 2 * UNIT));
}

static void free_half(void) {
    CUdeviceptr at;
    NEED(reserve(&at, 4 * UNIT));
    ASK(cuMemAddressFree(at, 2 * UNIT), "freeing the first half");
    ASK(cuMemAddressFree(at + 2 * UNIT, 2 * UNIT), "freeing the second half");
    ASK(cuMemAddressFree(at, 4 * UNIT), "freeing all of it");
}

static void free_twice(void) {
    CUdeviceptr at;
    NEED(reserve(&at, 2 * UNIT));
    ASK(cuMemAddressFree(at, 2 * UNIT), "once");
    ASK(cuMemAddressFree(at, 2 * UNIT), "twice");
}

static void free_wrong(void) {
    CUdeviceptr at;
    NEED(reserve(&at, 2 * UNIT));
    ASK(cuMemAddressFree(0, UNIT), "address 0");
    ASK(cuMemAddressFree(at, 0), "no bytes");
    ASK(cuMemAddressFree(at, 1), "one byte");
    ASK(cuMemAddressFree(at + UNIT, UNIT), "from the middle");
    ASK(cuMemAddressFree(at + UNIT, 2 * UNIT), "past the end");
    ASK(cuMemAddressFree(at, 4 * UNIT), "more than there is");
    ASK(cuMemAddressFree(at, 2 * UNIT), "what there is");
}

static void free_mapped(void) {
    CUdeviceptr at;
    handle memory;
    NEED_MAPPED(at, 2, memory, 1);
    NEED(access_to(at, UNIT, BOTH));
    NEED(write_words(at, UNIT, 1));
    int early = ASK(cuMemAddressFree(at, 2 * UNIT), "freeing with something mapped");
    if (early) say(words_right(at, UNIT, 1), "contents right");
    ASK(cuMemUnmap(at, UNIT), "unmapping");
    if (early) ASK(cuMemAddressFree(at, 2 * UNIT), "freeing with nothing mapped");
    TIDY(cuMemRelease(memory));
}

static void free_two_at_once(void) {
    CUdeviceptr at, first = 0, second = 0;
    NEED(reserve(&at, 4 * UNIT));
    NEED(cuMemAddressFree(at, 4 * UNIT));
    NEED(cuMemAddressReserve(&first, 2 * UNIT, 0, at, 0));
    NEED(cuMemAddressReserve(&second, 2 * UNIT, 0, at + 2 * UNIT, 0));
    say(first == at && second == at + 2 * UNIT, "side by side");
    if (second == first + 2 * UNIT && !ASK(cuMemAddressFree(first, 4 * UNIT), "both at once"))
        return;
    ASK(cuMemAddressFree(first, 2 * UNIT), "the first");
    ASK(cuMemAddressFree(second, 2 * UNIT), "the second");
}

/* --- creating memory ----------------------------------------------------------------------- */

/* Creates memory, says the answer, and releases it. */
static int ask_create(const char *what, size_t bytes, const CUmemAllocationProp *kind,
                      unsigned long long flags) {
    handle made = 0;
    int answer = ASK(cuMemCreate(&made, bytes, kind, flags), "%s", what);
    if (!answer) TIDY(cuMemRelease(made));
    return answer;
}

static void create_sizes(void) {
    static const size_t sizes[] = {0, 1, 4096, 65536, MIB, UNIT, UNIT + 1, UNIT + 65536, 3 * UNIT};
    CUmemAllocationProp kind = plain_kind();
    for (size_t i = 0; i < COUNT_OF(sizes); i++) {
        char what[40];
        snprintf(what, sizeof what, "%zu bytes", sizes[i]);
        ask_create(what, sizes[i], &kind, 0);
    }
    ask_create("a pebibyte", (size_t)1 << 50, &kind, 0);
    ask_create("nearly all numbers", ~(size_t)0 / UNIT * UNIT, &kind, 0);
}

static void create_types(void) {
    /* 2 is managed memory, which nothing here uses. */
    static const unsigned types[] = {0, 1, 3, 77, 0x7fffffff};
    for (size_t i = 0; i < COUNT_OF(types); i++) {
        CUmemAllocationProp kind = plain_kind();
        char what[40];
        kind.type = (CUmemAllocationType)types[i];
        snprintf(what, sizeof what, "type %#x", types[i]);
        ask_create(what, UNIT, &kind, 0);
    }
}

static void create_locations(void) {
    static const int places[][2] = {{0, 0},    {1, 0},         {1, -1},         {1, 99}, {HOST, 0},
                                    {HOST, 1}, {HOST_NUMA, 0}, {HOST_NUMA, 99}, {4, 0},  {77, 0}};
    for (size_t i = 0; i < COUNT_OF(places); i++) {
        CUmemAllocationProp kind = kind_of(places[i][0], places[i][1], 0);
        char what[40];
        snprintf(what, sizeof what, "location %d, %d", places[i][0], places[i][1]);
        ask_create(what, UNIT, &kind, 0);
    }
}

static void say_kind(const char *what, handle memory) {
    CUmemAllocationProp kind;
    memset(&kind, 0x55, sizeof kind);
    if (ASK(cuMemGetAllocationPropertiesFromHandle(&kind, memory), "%s, properties", what)) return;
    say(kind.type, "%s, type", what);
    say(kind.requestedHandleTypes, "%s, handle types", what);
    say(kind.location.type, "%s, location", what);
    say(kind.location.id, "%s, location's number", what);
    say(kind.win32HandleMetaData == NULL, "%s, no metadata", what);
    say(kind.allocFlags.compressionType, "%s, compression", what);
    say(kind.allocFlags.gpuDirectRDMACapable, "%s, open to other devices", what);
    say(kind.allocFlags.usage, "%s, usage", what);
    for (int i = 0; i < 4; i++) say(kind.allocFlags.reserved[i], "%s, reserved byte %d", what, i);
}

static void create_compression(void) {
    for (int type = 1; type < 4; type++) {
        CUmemAllocationProp kind = plain_kind();
        handle made = 0;
        kind.allocFlags.compressionType = (unsigned char)type;
        if (ASK(cuMemCreate(&made, UNIT, &kind, 0), "compression %d", type)) continue;
        CUmemAllocationProp given = {0};
        ASK(cuMemGetAllocationPropertiesFromHandle(&given, made), "properties");
        say(given.allocFlags.compressionType, "compression %d becomes", type);
        TIDY(cuMemRelease(made));
    }
}

static void create_usage(void) {
    static const unsigned short usages[] = {1, 2, 4, 0x8000};
    for (size_t i = 0; i < COUNT_OF(usages); i++) {
        CUmemAllocationProp kind = plain_kind();
        char what[40];
        kind.allocFlags.usage = usages[i];
        snprintf(what, sizeof what, "usage %#x", usages[i]);
        ask_create(what, UNIT, &kind, 0);
    }
}

static void create_rdma(void) {
    for (int capable = 1; capable < 3; capable++) {
        CUmemAllocationProp kind = plain_kind();
        handle made = 0;
        CUdeviceptr at;
        kind.allocFlags.gpuDirectRDMACapable = (unsigned char)capable;
        if (ASK(cuMemCreate(&made, UNIT, &kind, 0), "open to other devices, %d", capable)) continue;
        say_kind("such a handle", made);
        NEED(reserve(&at, UNIT));
        NEED(cuMemMap(at, UNIT, 0, made, 0));
        NEED(access_to(at, UNIT, BOTH));
        unsigned long long value;
        ASK(attribute_of(at, 15, NULL, &value), "attribute 15");
        say((long long)value, "its value");
        TIDY(cuMemUnmap(at, UNIT));
        TIDY(cuMemRelease(made));
        TIDY(cuMemAddressFree(at, UNIT));
    }
}

static void create_handle_types(void) {
    static const unsigned types[] = {FD,          WIN32,      WIN32_KMT, FABRIC,
                                     FD | FABRIC, FD | WIN32, 16,        0x40000000};
    for (size_t i = 0; i < COUNT_OF(types); i++) {
        CUmemAllocationProp kind = kind_of(CU_MEM_LOCATION_TYPE_DEVICE, 0, (int)types[i]);
        char what[40];
        snprintf(what, sizeof what, "handle types %#x", types[i]);
        ask_create(what, UNIT, &kind, 0);
    }
}

static void create_flags(void) {
    CUmemAllocationProp kind = plain_kind();
    ask_create("flags 1", UNIT, &kind, 1);
    ask_create("all flags", UNIT, &kind, ~0ull);
}

static void create_null(void) {
    CUmemAllocationProp kind = plain_kind();
    handle made = 0;
    ASK(cuMemCreate(NULL, UNIT, &kind, 0), "nowhere to put the handle");
    ASK(cuMemCreate(&made, UNIT, NULL, 0), "no properties");
}

static void create_reserved(void) {
    CUmemAllocationProp kind = plain_kind();
    kind.allocFlags.reserved[0] = 1;
    ask_create("a reserved byte", UNIT, &kind, 0);
    kind = plain_kind();
    kind.win32HandleMetaData = &kind;
    ask_create("metadata of another system", UNIT, &kind, 0);
}

static void properties(void) {
    CUmemAllocationProp on_host = kind_of(HOST_NUMA, 0, 0);
    handle memory;
    NEED(create(&memory, UNIT));
    say_kind("plain", memory);
    TIDY(cuMemRelease(memory));
    NEED(create_fd(&memory, UNIT));
    say_kind("for a descriptor", memory);
    TIDY(cuMemRelease(memory));
    if (ASK(cuMemCreate(&memory, UNIT, &on_host, 0), "on the host")) return;
    say_kind("on the host", memory);
    TIDY(cuMemRelease(memory));
}

static void properties_wrong(void) {
    CUmemAllocationProp kind;
    handle memory;
    NEED(create(&memory, UNIT));
    ASK(cuMemGetAllocationPropertiesFromHandle(NULL, memory), "nowhere to put them");
    ASK(cuMemGetAllocationPropertiesFromHandle(&kind, 0), "handle 0");
    TIDY(cuMemRelease(memory));
    ASK(cuMemGetAllocationPropertiesFromHandle(&kind, memory), "a released handle");
}

static void granularity(void) {
    static const int kinds[][3] = {{1, 0, 0},    {1, 0, FD},        {1, 0, FABRIC},
                                   {HOST, 0, 0}, {HOST_NUMA, 0, 0}, {HOST_NUMA_CURRENT, 0, 0},
                                   {1, 99, 0},   {0, 0, 0}};
    for (size_t i = 0; i < COUNT_OF(kinds); i++) {
        for (int option = 0; option < 3; option++) {
            CUmemAllocationProp kind = kind_of(kinds[i][0], kinds[i][1], kinds[i][2]);
            size_t bytes = 0;
            int answer = (int)CALL(cuMemGetAllocationGranularity(
                &bytes, &kind, (CUmemAllocationGranularity_flags)option));
            printf("%s location %d, %d, handle type %d, option %d: %d, %zu\n", rule_now,
                   kinds[i][0], kinds[i][1], kinds[i][2], option, answer, bytes);
        }
    }
}

static void granularity_wrong(void) {
    CUmemAllocationProp kind = plain_kind();
    size_t bytes = 0;
    ASK(cuMemGetAllocationGranularity(NULL, &kind, CU_MEM_ALLOC_GRANULARITY_MINIMUM),
        "nowhere to put it");
    ASK(cuMemGetAllocationGranularity(&bytes, NULL, CU_MEM_ALLOC_GRANULARITY_MINIMUM),
        "no properties");
    kind.type = CU_MEM_ALLOCATION_TYPE_INVALID;
    ASK(cuMemGetAllocationGranularity(&bytes, &kind, CU_MEM_ALLOC_GRANULARITY_MINIMUM), "type 0");
}

/* --- mapping ------------------------------------------------------------------------------- */

/* Maps, says the answer, and unmaps. */
static void ask_map(const char *what, CUdeviceptr at, size_t bytes, size_t offset, handle memory,
                    unsigned long long flags) {
    if (!ASK(cuMemMap(at, bytes, offset, memory, flags), "%s", what)) {
        ASK(cuMemUnmap(at, bytes), "%s, unmapping it", what);
    }
}

static void map_offset(void) {
    CUdeviceptr at;
    handle memory;
    NEED(reserve(&at, 2 * UNIT));
    NEED(create(&memory, 2 * UNIT));
    ask_map("the second half", at, UNIT, UNIT, memory, 0);
    ask_map("from 4096 on", at, UNIT, 4096, memory, 0);
    ask_map("from 64 KiB on", at, UNIT, 65536, memory, 0);
    ask_map("from the end on", at, UNIT, 2 * UNIT, memory, 0);
    ask_map("beyond the end", at, 2 * UNIT, UNIT, memory, 0);
    TIDY(cuMemRelease(memory));
    TIDY(cuMemAddressFree(at, 2 * UNIT));
}

static void map_part(void) {
    CUdeviceptr at;
    handle memory;
    NEED(reserve(&at, 4 * UNIT));
    NEED(create(&memory, 2 * UNIT));
    ask_map("the first half", at, UNIT, 0, memory, 0);
    ask_map("half a unit", at, UNIT / 2, 0, memory, 0);
    int second = !ASK(cuMemMap(at, UNIT, UNIT, memory, 0), "the second half comes first");
    int first = !ASK(cuMemMap(at + UNIT, UNIT, 0, memory, 0), "the first half comes second");
    if (second)
        say(access_to(at, UNIT, BOTH) || write_words(at, UNIT, 1), "writing the second half");
    if (first) {
        say(access_to(at + UNIT, UNIT, BOTH) || write_words(at + UNIT, UNIT, 2),
            "writing the first half");
    }
    if (second) ASK(cuMemUnmap(at, UNIT), "unmapping the second half");
    if (first) ASK(cuMemUnmap(at + UNIT, UNIT), "unmapping the first half");
    NEED(cuMemMap(at + 2 * UNIT, 2 * UNIT, 0, memory, 0));
    NEED(access_to(at + 2 * UNIT, 2 * UNIT, BOTH));
    if (first) say(words_right(at + 2 * UNIT, UNIT, 2), "first half right");
    if (second) say(words_right(at + 3 * UNIT, UNIT, 1), "second half right");
    TIDY(cuMemUnmap(at + 2 * UNIT, 2 * UNIT));
    TIDY(cuMemRelease(memory));
    TIDY(cuMemAddressFree(at, 4 * UNIT));
}

static void map_larger(void) {
    CUdeviceptr at;
    handle memory;
    NEED(reserve(&at, 4 * UNIT));
    NEED(create(&memory, UNIT));
    ask_map("more than the handle has", at, 2 * UNIT, 0, memory, 0);
    ask_map("what it has", at, UNIT, 0, memory, 0);
    TIDY(cuMemRelease(memory));
    TIDY(cuMemAddressFree(at, 4 * UNIT));
}

static void map_unreserved(void) {
    CUdeviceptr at;
    handle memory;
    NEED(create(&memory, UNIT));
    NEED(reserve(&at, 2 * UNIT));
    ask_map("past the end of a reservation", at + UNIT, 2 * UNIT, 0, memory, 0);
    TIDY(cuMemAddressFree(at, 2 * UNIT));
    ask_map("on freed addresses", at, UNIT, 0, memory, 0);
    ask_map("at address 0", 0, UNIT, 0, memory, 0);
    TIDY(cuMemRelease(memory));
}

static void map_over(void) {
    CUdeviceptr at;
    handle first, second, two;
    NEED_MAPPED(at, 4, first, 1);
    NEED(create(&second, UNIT));
    NEED(create(&two, 2 * UNIT));
    NEED(access_to(at, UNIT, BOTH));
    NEED(write_words(at, UNIT, 1));
    ASK(cuMemMap(at, UNIT, 0, second, 0), "another handle on mapped addresses");
    ASK(cuMemMap(at, UNIT, 0, first, 0), "the same handle where it is mapped");
    ASK(cuMemMap(at, 2 * UNIT, 0, two, 0), "half on mapped addresses");
    say(words_right(at, UNIT, 1), "contents right");
    TIDY(cuMemUnmap(at, UNIT));
    TIDY(cuMemRelease(first));
    TIDY(cuMemRelease(second));
    TIDY(cuMemRelease(two));
    TIDY(cuMemAddressFree(at, 4 * UNIT));
}

static void map_misaligned(void) {
    CUdeviceptr at;
    handle memory;
    NEED(reserve(&at, 4 * UNIT));
    NEED(create(&memory, UNIT));
    ask_map("4096 past a unit", at + 4096, UNIT, 0, memory, 0);
    ask_map("64 KiB past a unit", at + 65536, UNIT, 0, memory, 0);
    ask_map("half a unit past a unit", at + UNIT / 2, UNIT, 0, memory, 0);
    ask_map("no bytes", at, 0, 0, memory, 0);
    ask_map("4096 bytes", at, 4096, 0, memory, 0);
    ask_map("a unit less a byte", at, UNIT - 1, 0, memory, 0);
    TIDY(cuMemRelease(memory));
    TIDY(cuMemAddressFree(at, 4 * UNIT));
}

static void map_across_reservations(void) {
    CUdeviceptr at, first = 0, second = 0;
    handle memory, left, right;
    NEED(reserve(&at, 4 * UNIT));
    NEED(cuMemAddressFree(at, 4 * UNIT));
    NEED(cuMemAddressReserve(&first, 2 * UNIT, 0, at, 0));
    NEED(cuMemAddressReserve(&second, 2 * UNIT, 0, at + 2 * UNIT, 0));
    NEED(create(&memory, 2 * UNIT));
    NEED(create(&left, UNIT));
    NEED(create(&right, UNIT));
    say(second == first + 2 * UNIT, "side by side");
    if (second == first + 2 * UNIT) {
        ask_map("across the border", first + UNIT, 2 * UNIT, 0, memory, 0);
        NEED(cuMemMap(first + UNIT, UNIT, 0, left, 0));
        NEED(cuMemMap(second, UNIT, 0, right, 0));
        ASK(access_to(first + UNIT, 2 * UNIT, BOTH), "access across the border");
        ASK(access_to(first + UNIT, UNIT, BOTH), "access to the one side");
        ASK(access_to(second, UNIT, BOTH), "access to the other side");
        NEED(write_words(first + UNIT, UNIT, 1));
        NEED(write_words(second, UNIT, 2));
        if (!say(write_words(first + UNIT, 2 * UNIT, 3), "a copy across the border")) {
            say(words_right(first + UNIT, 2 * UNIT, 3), "contents right");
        }
        if (ASK(cuMemUnmap(first + UNIT, 2 * UNIT), "unmapping across the border")) {
            ASK(cuMemUnmap(first + UNIT, UNIT), "unmapping the one side");
            ASK(cuMemUnmap(second, UNIT), "unmapping the other side");
        }
    }
    TIDY(cuMemRelease(left));
    TIDY(cuMemRelease(right));
    TIDY(cuMemRelease(memory));
    TIDY(cuMemAddressFree(first, 2 * UNIT));
    TIDY(cuMemAddressFree(second, 2 * UNIT));
}

static void map_flags(void) {
    CUdeviceptr at;
    handle memory;
    NEED(reserve(&at, UNIT));
    NEED(create(&memory, UNIT));
    ask_map("flags 1", at, UNIT, 0, memory, 1);
    ask_map("all flags", at, UNIT, 0, memory, ~0ull);
    TIDY(cuMemRelease(memory));
    TIDY(cuMemAddressFree(at, UNIT));
}

static void map_released(void) {
    CUdeviceptr at;
    handle memory;
    NEED(reserve(&at, UNIT));
    NEED(create(&memory, UNIT));
    NEED(cuMemRelease(memory));
    ask_map("a released handle", at, UNIT, 0, memory, 0);
    TIDY(cuMemAddressFree(at, UNIT));
}

static void map_nothing(void) {
    CUdeviceptr at;
    NEED(reserve(&at, UNIT));
    ask_map("handle 0", at, UNIT, 0, 0, 0);
    TIDY(cuMemAddressFree(at, UNIT));
}

static void map_released_while_mapped(void) {
    CUdeviceptr at;
    handle memory;
    NEED_MAPPED(at, 2, memory, 1);
    NEED(access_to(at, UNIT, BOTH));
    NEED(write_words(at, UNIT, 1));
    NEED(cuMemRelease(memory));
    if (!ASK(cuMemMap(at + UNIT, UNIT, 0, memory, 0), "by the value of a released handle")) {
        ASK(access_to(at + UNIT, UNIT, BOTH), "access to it");
        say(words_right(at + UNIT, UNIT, 1), "contents right there");
        TIDY(cuMemUnmap(at + UNIT, UNIT));
    }
    say(words_right(at, UNIT, 1), "contents right");
    TIDY(cuMemUnmap(at, UNIT));
    TIDY(cuMemAddressFree(at, 2 * UNIT));
}

/* --- one handle at several addresses ------------------------------------------------------- */

static void alias_two(void) {
    CUdeviceptr at;
    handle memory;
    NEED_MAPPED(at, 4, memory, 1);
    ASK(cuMemMap(at + 2 * UNIT, UNIT, 0, memory, 0), "a second time");
    NEED(access_to(at, UNIT, BOTH));
    NEED(access_to(at + 2 * UNIT, UNIT, BOTH));
    NEED(write_words(at, UNIT, 1));
    say(words_right(at + 2 * UNIT, UNIT, 1), "written by the first, read by the second");
    NEED(write_words(at + 2 * UNIT, UNIT, 2));
    say(words_right(at, UNIT, 2), "written by the second, read by the first");
    ASK(cuMemcpyDtoD(at + UNIT / 2, at + 2 * UNIT, 4096), "a copy from one to the other");
    say(words_right(at + UNIT / 2, 4096, 2), "its contents right");
    TIDY(cuMemUnmap(at, UNIT));
    TIDY(cuMemUnmap(at + 2 * UNIT, UNIT));
    TIDY(cuMemRelease(memory));
    TIDY(cuMemAddressFree(at, 4 * UNIT));
}

static void alias_three(void) {
    CUdeviceptr at, other;
    handle memory;
    NEED_MAPPED(at, 3, memory, 1);
    NEED(reserve(&other, UNIT));
    NEED(cuMemMap(at + UNIT, UNIT, 0, memory, 0));
    NEED(cuMemMap(other, UNIT, 0, memory, 0));
    ASK(access_to(at, 2 * UNIT, BOTH), "access to the first two");
    ASK(access_to(other, UNIT, BOTH), "access to the third");
    NEED(write_words(at + UNIT, UNIT, 1));
    say(words_right(at, UNIT, 1), "read by the first");
    say(words_right(other, UNIT, 1), "read by the third");
    NEED(cuMemRelease(memory));
    NEED(cuMemUnmap(at + UNIT, UNIT));
    say(words_right(at, UNIT, 1), "read by the first, with the second unmapped");
    NEED(cuMemUnmap(at, UNIT));
    say(words_right(other, UNIT, 1), "read by the third, with the others unmapped");
    TIDY(cuMemUnmap(other, UNIT));
    TIDY(cuMemAddressFree(at, 3 * UNIT));
    TIDY(cuMemAddressFree(other, UNIT));
}

static void alias_one_access(void) {
    CUdeviceptr at;
    handle memory;
    NEED_MAPPED(at, 2, memory, 1);
    NEED(cuMemMap(at + UNIT, UNIT, 0, memory, 0));
    NEED(access_to(at, UNIT, BOTH));
    say(access_of(at), "access to the one");
    say(access_of(at + UNIT), "access to the other");
    NEED(write_words(at, UNIT, 1));
    NEED(access_to(at + UNIT, UNIT, READ));
    say(access_of(at), "access to the one, with the other read only");
    say(words_right(at + UNIT, UNIT, 1), "contents right by the one to read");
    NEED(write_words(at, UNIT, 2));
    say(words_right(at + UNIT, UNIT, 2), "contents right by the one to read, written again");
    NEED(access_to(at, UNIT, NONE));
    say(words_right(at + UNIT, UNIT, 2), "contents right with no access to the one");
    TIDY(cuMemUnmap(at, 2 * UNIT));
    TIDY(cuMemRelease(memory));
    TIDY(cuMemAddressFree(at, 2 * UNIT));
}

static void alias_parts(void) {
    CUdeviceptr at;
    handle memory;
    NEED_MAPPED(at, 4, memory, 2);
    size_t second =
        ASK(cuMemMap(at + 2 * UNIT, UNIT, UNIT, memory, 0), "its second half again") ? 0 : 1;
    size_t first =
        ASK(cuMemMap(at + (2 + second) * UNIT, UNIT, 0, memory, 0), "its first half again") ? 0 : 1;
    size_t all = (2 + second + first) * UNIT;
    ASK(access_to(at, all, BOTH), "access to all");
    NEED(write_words(at, 2 * UNIT, 1));
    if (second) NEED(write_words(at + 2 * UNIT, UNIT, 2));
    if (first) NEED(write_words(at + (2 + second) * UNIT, UNIT, 3));
    say(words_right(at, UNIT, first ? 3 : 1), "the first half right");
    say(words_right(at + UNIT, UNIT, second ? 2 : 1 + UNIT / 4), "the second half right");
    ASK(cuMemUnmap(at, all), "unmapping all");
    TIDY(cuMemRelease(memory));
    TIDY(cuMemAddressFree(at, 4 * UNIT));
}

static void alias_unmap_one(void) {
    CUdeviceptr at;
    handle memory;
    NEED_MAPPED(at, 2, memory, 1);
    NEED(cuMemMap(at + UNIT, UNIT, 0, memory, 0));
    NEED(access_to(at, 2 * UNIT, BOTH));
    NEED(write_words(at, UNIT, 1));
    ASK(cuMemUnmap(at, UNIT), "unmapping the one");
    say(words_right(at + UNIT, UNIT, 1), "contents right by the other");
    say(access_of(at), "access where it was");
    ASK(cuMemMap(at, UNIT, 0, memory, 0), "mapping it there again");
    say(access_of(at), "access after mapping again");
    NEED(access_to(at, UNIT, BOTH));
    say(words_right(at, UNIT, 1), "contents right again");
    TIDY(cuMemUnmap(at, 2 * UNIT));
    TIDY(cuMemRelease(memory));
    TIDY(cuMemAddressFree(at, 2 * UNIT));
}

/* --- handles side by side ------------------------------------------------------------------ */

static void side_by_side(void) {
    CUdeviceptr at;
    handle first, second;
    NEED_MAPPED(at, 4, first, 1);
    NEED(create(&second, UNIT));
    ASK(cuMemMap(at + UNIT, UNIT, 0, second, 0), "the second next to the first");
    ASK(access_to(at, 2 * UNIT, BOTH), "access to both at once");
    NEED(write_words(at, 2 * UNIT, 1));
    say(words_right(at, 2 * UNIT, 1), "a copy across the border right");
    ASK(cuMemsetD32(at + UNIT - 4096, 0xabcd, 2048), "a fill across the border");
    say(filled_with(at + UNIT - 4096, 8192, 0xabcd), "its contents right");
    ASK(cuMemcpyDtoD(at + UNIT - 65536, at, 131072), "a copy on the device across the border");
    say(words_right(at + UNIT - 65536, 131072, 1), "its contents right");
    ASK(cuMemUnmap(at, 2 * UNIT), "unmapping both at once");
    NEED(cuMemMap(at + 2 * UNIT, UNIT, 0, second, 0));
    NEED(access_to(at + 2 * UNIT, UNIT, BOTH));
    say(words_right(at + 2 * UNIT + 65536, 4096, 1 + (UNIT + 65536) / 4),
        "the second right elsewhere");
    TIDY(cuMemUnmap(at + 2 * UNIT, UNIT));
    TIDY(cuMemRelease(first));
    TIDY(cuMemRelease(second));
    TIDY(cuMemAddressFree(at, 4 * UNIT));
}

static void unmap_part(void) {
    CUdeviceptr at;
    handle memory;
    NEED_MAPPED(at, 4, memory, 4);
    NEED(access_to(at, 4 * UNIT, BOTH));
    NEED(write_words(at, 4 * UNIT, 1));
    int gone = 0;
    gone |= !ASK(cuMemUnmap(at, UNIT), "the first quarter");
    gone |= !ASK(cuMemUnmap(at + UNIT, UNIT), "the second quarter");
    gone |= !ASK(cuMemUnmap(at + 2 * UNIT, 2 * UNIT), "the second half");
    gone |= !ASK(cuMemUnmap(at, 4096), "4096 bytes");
    if (!gone) say(words_right(at, 4 * UNIT, 1), "contents right");
    ASK(cuMemUnmap(at, 4 * UNIT), "all of it");
    TIDY(cuMemRelease(memory));
    TIDY(cuMemAddressFree(at, 4 * UNIT));
}

static void unmap_part_of_two(void) {
    CUdeviceptr at;
    handle first, second;
    NEED_MAPPED(at, 4, first, 2);
    NEED(create(&second, 2 * UNIT));
    NEED(cuMemMap(at + 2 * UNIT, 2 * UNIT, 0, second, 0));
    NEED(access_to(at, 4 * UNIT, BOTH));
    NEED(write_words(at, 4 * UNIT, 1));
    int gone = 0;
    gone |= !ASK(cuMemUnmap(at + UNIT, 2 * UNIT), "half of one and half of the other");
    gone |= !ASK(cuMemUnmap(at, 3 * UNIT), "one and half of the other");
    gone |= !ASK(cuMemUnmap(at + UNIT, 3 * UNIT), "half of one and the other");
    if (!gone) say(words_right(at, 4 * UNIT, 1), "contents right");
    ASK(cuMemUnmap(at, 2 * UNIT), "the one");
    if (!gone)
        say(words_right(at + 2 * UNIT, 2 * UNIT, 1 + 2 * UNIT / 4), "contents of the other right");
    ASK(cuMemUnmap(at + 2 * UNIT, 2 * UNIT), "the other");
    TIDY(cuMemRelease(first));
    TIDY(cuMemRelease(second));
    TIDY(cuMemAddressFree(at, 4 * UNIT));
}

static void unmap_hole(void) {
    CUdeviceptr at;
    handle first, second;
    NEED_MAPPED(at, 3, first, 1);
    NEED(create(&second, UNIT));
    NEED(cuMemMap(at + 2 * UNIT, UNIT, 0, second, 0));
    if (ASK(cuMemUnmap(at, 3 * UNIT), "across a hole")) {
        ASK(cuMemUnmap(at, UNIT), "before the hole");
        ASK(cuMemUnmap(at + 2 * UNIT, UNIT), "after the hole");
    } else {
        ASK(cuMemUnmap(at, UNIT), "before the hole, once more");
    }
    TIDY(cuMemRelease(first));
    TIDY(cuMemRelease(second));
    TIDY(cuMemAddressFree(at, 3 * UNIT));
}

static void unmap_wrong(void) {
    CUdeviceptr at;
    handle memory;
    NEED_MAPPED(at, 4, memory, 1);
    ASK(cuMemUnmap(at + UNIT, UNIT), "something unmapped");
    ASK(cuMemUnmap(at, 2 * UNIT), "more than is mapped");
    ASK(cuMemUnmap(at, 0), "no bytes");
    ASK(cuMemUnmap(at + 4096, UNIT), "misaligned");
    ASK(cuMemUnmap(at, UNIT + 4096), "bytes that are no unit");
    ASK(cuMemUnmap(0, UNIT), "address 0");
    ASK(cuMemUnmap(at, UNIT), "what is mapped");
    ASK(cuMemUnmap(at, UNIT), "what was mapped");
    TIDY(cuMemRelease(memory));
    TIDY(cuMemAddressFree(at, 4 * UNIT));
    ASK(cuMemUnmap(at, UNIT), "addresses that are free");
}

/* --- access -------------------------------------------------------------------------------- */

static void access_part(void) {
    CUdeviceptr at;
    handle memory;
    NEED_MAPPED(at, 2, memory, 2);
    ASK(access_to(at, UNIT, BOTH), "to the first half");
    say(access_of(at), "of the first half");
    say(access_of(at + UNIT), "of the second half");
    ASK(access_to(at + UNIT, UNIT, BOTH), "to the second half");
    say(access_of(at + UNIT), "of the second half now");
    ASK(access_to(at, 2 * UNIT, BOTH), "to all");
    say(access_of(at), "of the first half in the end");
    say(access_of(at + 2 * UNIT - 1), "of the last byte");
    TIDY(cuMemUnmap(at, 2 * UNIT));
    TIDY(cuMemRelease(memory));
    TIDY(cuMemAddressFree(at, 2 * UNIT));
}

static void access_hole(void) {
    CUdeviceptr at;
    handle first, second;
    NEED_MAPPED(at, 3, first, 1);
    NEED(create(&second, UNIT));
    NEED(cuMemMap(at + 2 * UNIT, UNIT, 0, second, 0));
    ASK(access_to(at, 3 * UNIT, BOTH), "across a hole");
    say(access_of(at), "before the hole");
    say(access_of(at + UNIT), "in the hole");
    say(access_of(at + 2 * UNIT), "after the hole");
    ASK(access_to(at, 2 * UNIT, BOTH), "ending in the hole");
    say(access_of(at), "before the hole after that");
    TIDY(cuMemUnmap(at, UNIT));
    TIDY(cuMemUnmap(at + 2 * UNIT, UNIT));
    TIDY(cuMemRelease(first));
    TIDY(cuMemRelease(second));
    TIDY(cuMemAddressFree(at, 3 * UNIT));
}

static void access_unmapped(void) {
    CUdeviceptr at;
    NEED(reserve(&at, UNIT));
    ASK(access_to(at, UNIT, BOTH), "to reserved addresses");
    ASK(access_to(at, UNIT, NONE), "none to reserved addresses");
    TIDY(cuMemAddressFree(at, UNIT));
    ASK(access_to(at, UNIT, BOTH), "to free addresses");
    ASK(access_to(0, UNIT, BOTH), "to address 0");
}

static void access_kinds(void) {
    static const int kinds[] = {BOTH, READ, NONE, 2, 4, 7, BOTH};
    CUdeviceptr at;
    handle memory;
    NEED_MAPPED(at, 1, memory, 1);
    say(access_of(at), "before any is set");
    for (size_t i = 0; i < COUNT_OF(kinds); i++) {
        ASK(access_to(at, UNIT, kinds[i]), "setting %d", kinds[i]);
        say(access_of(at), "after setting %d", kinds[i]);
    }
    TIDY(cuMemUnmap(at, UNIT));
    TIDY(cuMemRelease(memory));
    TIDY(cuMemAddressFree(at, UNIT));
}

static void access_read(void) {
    CUdeviceptr at;
    handle memory;
    NEED_MAPPED(at, 1, memory, 1);
    NEED(access_to(at, UNIT, BOTH));
    NEED(write_words(at, UNIT, 1));
    ASK(access_to(at, UNIT, READ), "only reading");
    say(words_right(at, UNIT, 1), "contents right");
    ASK(access_to(at, UNIT, BOTH), "writing again");
    say(write_words(at, UNIT, 2), "a copy to it");
    say(words_right(at, UNIT, 2), "contents right after that");
    TIDY(cuMemUnmap(at, UNIT));
    TIDY(cuMemRelease(memory));
    TIDY(cuMemAddressFree(at, UNIT));
}

static void access_none_and_back(void) {
    CUdeviceptr at;
    handle memory;
    NEED_MAPPED(at, 1, memory, 1);
    NEED(access_to(at, UNIT, BOTH));
    NEED(write_words(at, UNIT, 1));
    ASK(access_to(at, UNIT, NONE), "none");
    ASK(access_to(at, UNIT, BOTH), "back");
    say(words_right(at, UNIT, 1), "contents right");
    TIDY(cuMemUnmap(at, UNIT));
    TIDY(cuMemRelease(memory));
    TIDY(cuMemAddressFree(at, UNIT));
}

static void access_places(void) {
    static const int places[][2] = {{0, 0},
                                    {1, -1},
                                    {1, 99},
                                    {HOST, 0},
                                    {HOST_NUMA, 0},
                                    {HOST_NUMA, 99},
                                    {HOST_NUMA_CURRENT, 0},
                                    {77, 0}};
    CUdeviceptr at;
    handle memory;
    NEED_MAPPED(at, 1, memory, 1);
    for (size_t i = 0; i < COUNT_OF(places); i++) {
        CUmemLocation place = {(CUmemLocationType)places[i][0], places[i][1]};
        CUmemAccessDesc access = {place, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
        unsigned long long flags = 77;
        ASK(cuMemSetAccess(at, UNIT, &access, 1), "setting for %d, %d", places[i][0], places[i][1]);
        ASK(cuMemGetAccess(&flags, &place, at), "getting for %d, %d", places[i][0], places[i][1]);
        say((long long)flags, "access from %d, %d", places[i][0], places[i][1]);
    }
    say(access_of(at), "access from the device");
    TIDY(cuMemUnmap(at, UNIT));
    TIDY(cuMemRelease(memory));
    TIDY(cuMemAddressFree(at, UNIT));
}

static void access_several(void) {
    CUmemAccessDesc both = {device, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUmemAccessDesc read = {device, CU_MEM_ACCESS_FLAGS_PROT_READ};
    CUmemAccessDesc none = {device, CU_MEM_ACCESS_FLAGS_PROT_NONE};
    CUmemAccessDesc wrong = {{CU_MEM_LOCATION_TYPE_DEVICE, 99}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUdeviceptr at;
    handle memory;
    NEED_MAPPED(at, 1, memory, 1);
    ASK(cuMemSetAccess(at, UNIT, &both, 0), "none of them");
    ASK(cuMemSetAccess(at, UNIT, NULL, 0), "none, from nowhere");
    ASK(cuMemSetAccess(at, UNIT, NULL, 1), "one, from nowhere");
    say(access_of(at), "access after those");
    ASK(cuMemSetAccess(at, UNIT, (CUmemAccessDesc[]){both, both}, 2), "the same twice");
    say(access_of(at), "access after the same twice");
    ASK(cuMemSetAccess(at, UNIT, (CUmemAccessDesc[]){both, read}, 2), "both, then reading");
    say(access_of(at), "access after both, then reading");
    ASK(cuMemSetAccess(at, UNIT, (CUmemAccessDesc[]){read, both}, 2), "reading, then both");
    say(access_of(at), "access after reading, then both");
    ASK(cuMemSetAccess(at, UNIT, (CUmemAccessDesc[]){none, wrong}, 2), "none, then a wrong device");
    say(access_of(at), "access after a wrong device");
    TIDY(cuMemUnmap(at, UNIT));
    TIDY(cuMemRelease(memory));
    TIDY(cuMemAddressFree(at, UNIT));
}

static void access_misaligned(void) {
    CUdeviceptr at;
    handle memory;
    NEED_MAPPED(at, 2, memory, 1);
    ASK(access_to(at, 0, BOTH), "no bytes");
    ASK(access_to(at, 4096, BOTH), "4096 bytes");
    say(access_of(at), "access after 4096 bytes");
    ASK(access_to(at + 4096, UNIT - 4096, BOTH), "the rest");
    ASK(access_to(at + 65536, 65536, BOTH), "64 KiB inside");
    say(access_of(at), "access in the end");
    TIDY(cuMemUnmap(at, UNIT));
    TIDY(cuMemRelease(memory));
    TIDY(cuMemAddressFree(at, 2 * UNIT));
}

static void get_access_wrong(void) {
    CUdeviceptr at;
    handle memory;
    unsigned long long flags = 77;
    NEED_MAPPED(at, 2, memory, 1);
    ASK(cuMemGetAccess(NULL, &device, at), "nowhere to put it");
    ASK(cuMemGetAccess(&flags, NULL, at), "no location");
    ASK(cuMemGetAccess(&flags, &device, at + UNIT), "reserved addresses");
    ASK(cuMemGetAccess(&flags, &device, 0), "address 0");
    TIDY(cuMemUnmap(at, UNIT));
    TIDY(cuMemRelease(memory));
    TIDY(cuMemAddressFree(at, 2 * UNIT));
    ASK(cuMemGetAccess(&flags, &device, at), "free addresses");
    say((long long)flags, "what is left");
}

static void access_ends_with_mapping(void) {
    CUdeviceptr at;
    handle first, second;
    NEED_MAPPED(at, 1, first, 1);
    NEED(access_to(at, UNIT, BOTH));
    NEED(cuMemUnmap(at, UNIT));
    say(access_of(at), "with nothing mapped");
    NEED(create(&second, UNIT));
    NEED(cuMemMap(at, UNIT, 0, second, 0));
    say(access_of(at), "with another handle mapped");
    TIDY(cuMemUnmap(at, UNIT));
    TIDY(cuMemRelease(first));
    TIDY(cuMemRelease(second));
    TIDY(cuMemAddressFree(at, UNIT));
}

/* --- handles ------------------------------------------------------------------------------- */

static void release_before_unmap(void) {
    CUdeviceptr at;
    handle memory;
    NEED_MAPPED(at, 1, memory, 1);
    ASK(cuMemRelease(memory), "releasing while mapped");
    ASK(access_to(at, UNIT, BOTH), "access after that");
    NEED(write_words(at, UNIT, 1));
    say(words_right(at, UNIT, 1), "contents right");
    ASK(cuMemUnmap(at, UNIT), "unmapping");
    TIDY(cuMemAddressFree(at, UNIT));
}

static void release_twice(void) {
    handle memory;
    NEED(create(&memory, UNIT));
    ASK(cuMemRelease(memory), "once");
    ASK(cuMemRelease(memory), "twice");
    ASK(cuMemRelease(0), "handle 0");
}

static void release_twice_while_mapped(void) {
    CUdeviceptr at;
    handle memory;
    NEED_MAPPED(at, 1, memory, 1);
    ASK(cuMemRelease(memory), "once");
    ASK(cuMemRelease(memory), "twice");
    NEED(access_to(at, UNIT, BOTH));
    NEED(write_words(at, UNIT, 1));
    say(words_right(at, UNIT, 1), "contents right");
    ASK(cuMemUnmap(at, UNIT), "unmapping");
    TIDY(cuMemAddressFree(at, UNIT));
}

static void retain_where(void) {
    CUdeviceptr at;
    handle memory, got = 0;
    static const size_t offsets[] = {0, 1, 4096, UNIT, 2 * UNIT - 1, 2 * UNIT, 3 * UNIT};
    NEED_MAPPED(at, 4, memory, 2);
    for (size_t i = 0; i < COUNT_OF(offsets); i++) {
        if (ASK(cuMemRetainAllocationHandle(&got, (void *)(at + offsets[i])), "%zu bytes in",
                offsets[i]))
            continue;
        say(got == memory, "%zu bytes in, the same handle", offsets[i]);
        ASK(cuMemRelease(got), "%zu bytes in, releasing it", offsets[i]);
    }
    ASK(cuMemRetainAllocationHandle(NULL, (void *)at), "nowhere to put it");
    ASK(cuMemRetainAllocationHandle(&got, NULL), "address 0");
    TIDY(cuMemUnmap(at, 2 * UNIT));
    ASK(cuMemRetainAllocationHandle(&got, (void *)at), "where it was mapped");
    TIDY(cuMemRelease(memory));
    TIDY(cuMemAddressFree(at, 4 * UNIT));
    ASK(cuMemRetainAllocationHandle(&got, (void *)at), "free addresses");
}

static void retain_counts(void) {
    CUdeviceptr at;
    handle memory, got;
    NEED_MAPPED(at, 1, memory, 1);
    for (int i = 0; i < 3; i++) NEED(cuMemRetainAllocationHandle(&got, (void *)at));
    for (int i = 1; i <= 6; i++) ASK(cuMemRelease(memory), "release %d while mapped", i);
    NEED(access_to(at, UNIT, BOTH));
    NEED(write_words(at, UNIT, 1));
    say(words_right(at, UNIT, 1), "contents right");
    ASK(cuMemUnmap(at, UNIT), "unmapping");
    TIDY(cuMemAddressFree(at, UNIT));
}

static void retain_after_release(void) {
    CUdeviceptr at;
    handle memory, got = 0;
    NEED_MAPPED(at, 2, memory, 1);
    NEED(access_to(at, UNIT, BOTH));
    NEED(write_words(at, UNIT, 1));
    NEED(cuMemRelease(memory));
    if (ASK(cuMemRetainAllocationHandle(&got, (void *)at), "a handle back from its mapping"))
        return;
    say(got == memory, "the same as before");
    say_kind("it", got);
    ASK(cuMemMap(at + UNIT, UNIT, 0, got, 0), "mapping it once more");
    NEED(access_to(at + UNIT, UNIT, BOTH));
    say(words_right(at + UNIT, UNIT, 1), "contents right there");
    NEED(cuMemUnmap(at, UNIT));
    say(words_right(at + UNIT, UNIT, 1), "contents right with the first unmapped");
    NEED(cuMemUnmap(at + UNIT, UNIT));
    ASK(cuMemMap(at, UNIT, 0, got, 0), "mapping it with nothing mapped");
    NEED(access_to(at, UNIT, BOTH));
    say(words_right(at, UNIT, 1), "contents right in the end");
    TIDY(cuMemUnmap(at, UNIT));
    ASK(cuMemRelease(got), "releasing it");
    ASK(cuMemRelease(got), "releasing it twice");
    TIDY(cuMemAddressFree(at, 2 * UNIT));
}

static void retain_second_half(void) {
    CUdeviceptr at;
    handle memory, got = 0;
    NEED(reserve(&at, UNIT));
    NEED(create(&memory, 2 * UNIT));
    if (!ASK(cuMemMap(at, UNIT, UNIT, memory, 0), "mapping a second half")) {
        if (!ASK(cuMemRetainAllocationHandle(&got, (void *)at), "retaining by it")) {
            say(got == memory, "the same handle");
            TIDY(cuMemRelease(got));
        }
        TIDY(cuMemUnmap(at, UNIT));
    }
    TIDY(cuMemRelease(memory));
    TIDY(cuMemAddressFree(at, UNIT));
}

static void handles_differ(void) {
    handle memory[4];
    for (int i = 0; i < 4; i++) NEED(create(&memory[i], UNIT));
    int differ = 1;
    for (int i = 0; i < 4; i++) {
        for (int j = 0; j < i; j++) differ &= memory[i] != memory[j];
    }
    say(differ, "four handles differ");
    for (int i = 0; i < 4; i++) TIDY(cuMemRelease(memory[i]));
}

/* --- contents ------------------------------------------------------------------------------ */

static void contents_move(void) {
    CUdeviceptr at, other;
    handle memory;
    NEED_MAPPED(at, 2, memory, 2);
    NEED(access_to(at, 2 * UNIT, BOTH));
    NEED(write_words(at, 2 * UNIT, 1));
    NEED(cuMemUnmap(at, 2 * UNIT));
    NEED(cuMemAddressFree(at, 2 * UNIT));
    NEED(reserve(&other, 4 * UNIT));
    NEED(cuMemMap(other + 2 * UNIT, 2 * UNIT, 0, memory, 0));
    NEED(access_to(other + 2 * UNIT, 2 * UNIT, BOTH));
    say(words_right(other + 2 * UNIT, 2 * UNIT, 1), "right at other addresses");
    TIDY(cuMemUnmap(other + 2 * UNIT, 2 * UNIT));
    TIDY(cuMemRelease(memory));
    TIDY(cuMemAddressFree(other, 4 * UNIT));
}

static void contents_swap(void) {
    CUdeviceptr at;
    handle first, second;
    NEED_MAPPED(at, 2, first, 1);
    NEED(create(&second, UNIT));
    NEED(cuMemMap(at + UNIT, UNIT, 0, second, 0));
    NEED(access_to(at, 2 * UNIT, BOTH));
    NEED(write_words(at, UNIT, 1));
    NEED(write_words(at + UNIT, UNIT, 2));
    for (int round = 0; round < 3; round++) {
        NEED(cuMemUnmap(at, 2 * UNIT));
        NEED(cuMemMap(at, UNIT, 0, round % 2 ? first : second, 0));
        NEED(cuMemMap(at + UNIT, UNIT, 0, round % 2 ? second : first, 0));
        NEED(access_to(at, 2 * UNIT, BOTH));
        say(words_right(at, UNIT, round % 2 ? 1 : 2), "round %d, the first right", round);
        say(words_right(at + UNIT, UNIT, round % 2 ? 2 : 1), "round %d, the second right", round);
    }
    TIDY(cuMemUnmap(at, 2 * UNIT));
    TIDY(cuMemRelease(first));
    TIDY(cuMemRelease(second));
    TIDY(cuMemAddressFree(at, 2 * UNIT));
}

/* Nothing of unmapped memory is left at the address: the next handle has its own memory. */
static void contents_stay_apart(void) {
    CUdeviceptr at;
    handle first, second;
    NEED_MAPPED(at, 1, first, 1);
    NEED(create(&second, UNIT));
    NEED(access_to(at, UNIT, BOTH));
    NEED(write_words(at, UNIT, 1));
    NEED(cuMemUnmap(at, UNIT));
    NEED(cuMemMap(at, UNIT, 0, second, 0));
    NEED(access_to(at, UNIT, BOTH));
    NEED(cuMemsetD32(at, 7, UNIT / 4));
    say(filled_with(at, UNIT, 7), "the second right");
    NEED(cuMemUnmap(at, UNIT));
    NEED(cuMemMap(at, UNIT, 0, first, 0));
    NEED(access_to(at, UNIT, BOTH));
    say(words_right(at, UNIT, 1), "the first right");
    TIDY(cuMemUnmap(at, UNIT));
    TIDY(cuMemRelease(first));
    TIDY(cuMemRelease(second));
    TIDY(cuMemAddressFree(at, UNIT));
}

static void contents_stream(void) {
    CUdeviceptr at;
    handle memory;
    CUstream stream;
    NEED_MAPPED(at, 1, memory, 1);
    NEED(access_to(at, UNIT, BOTH));
    NEED(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    ASK(cuMemsetD32Async(at, 9, UNIT / 4, stream), "a fill in a stream");
    ASK(cuMemcpyDtoDAsync(at + UNIT / 2, at, 4096, stream), "a copy in a stream");
    NEED(cuStreamSynchronize(stream));
    say(filled_with(at, UNIT, 9), "contents right");
    TIDY(cuStreamDestroy(stream));
    TIDY(cuMemUnmap(at, UNIT));
    TIDY(cuMemRelease(memory));
    TIDY(cuMemAddressFree(at, UNIT));
}

static void host_numa_memory(void) {
    CUmemAllocationProp kind = kind_of(HOST_NUMA, 0, 0);
    CUmemAccessDesc host = {{(CUmemLocationType)HOST_NUMA, 0}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUdeviceptr at;
    handle memory;
    if (ASK(cuMemCreate(&memory, UNIT, &kind, 0), "creating")) return;
    NEED(reserve(&at, UNIT));
    ASK(cuMemMap(at, UNIT, 0, memory, 0), "mapping");
    ASK(access_to(at, UNIT, BOTH), "access for the device");
    ASK(cuMemSetAccess(at, UNIT, &host, 1), "access for the host");
    say(access_of(at), "the device's access");
    if (!ASK(write_words(at, UNIT, 1), "a copy to it"))
        say(words_right(at, UNIT, 1), "contents right");
    say_attributes("memory of the host", at, NULL);
    TIDY(cuMemUnmap(at, UNIT));
    TIDY(cuMemRelease(memory));
    TIDY(cuMemAddressFree(at, UNIT));
}

/* --- the driver's answers about such addresses --------------------------------------------- */

static void attributes_before_access(void) {
    CUdeviceptr at;
    handle memory;
    NEED_MAPPED(at, 2, memory, 1);
    say_attributes("mapped", at, NULL);
    TIDY(cuMemUnmap(at, UNIT));
    TIDY(cuMemRelease(memory));
    TIDY(cuMemAddressFree(at, 2 * UNIT));
}

static void attributes_after_access(void) {
    CUdeviceptr at;
    handle memory;
    NEED_MAPPED(at, 2, memory, 1);
    NEED(access_to(at, UNIT, BOTH));
    say_attributes("with access", at, NULL);
    say_attributes("inside", at + 4100, NULL);
    NEED(access_to(at, UNIT, READ));
    say_attributes("to read", at, NULL);
    TIDY(cuMemUnmap(at, UNIT));
    TIDY(cuMemRelease(memory));
    TIDY(cuMemAddressFree(at, 2 * UNIT));
}

static void attributes_side_by_side(void) {
    CUdeviceptr at;
    handle first, second;
    NEED_MAPPED(at, 4, first, 1);
    NEED(create_fd(&second, 2 * UNIT));
    NEED(cuMemMap(at + UNIT, 2 * UNIT, 0, second, 0));
    NEED(access_to(at, 3 * UNIT, BOTH));
    say_attributes("in the first", at + UNIT - 1, NULL);
    say_attributes("in the second", at + 2 * UNIT, NULL);
    TIDY(cuMemUnmap(at, 3 * UNIT));
    TIDY(cuMemRelease(first));
    TIDY(cuMemRelease(second));
    TIDY(cuMemAddressFree(at, 4 * UNIT));
}

static void attributes_unmapped(void) {
    CUdeviceptr at;
    handle memory;
    NEED(reserve(&at, 2 * UNIT));
    say_attributes("reserved", at + UNIT, NULL);
    NEED(create(&memory, UNIT));
    NEED(cuMemMap(at, UNIT, 0, memory, 0));
    say_attributes("reserved next to something mapped", at + UNIT, NULL);
    NEED(cuMemUnmap(at, UNIT));
    say_attributes("unmapped again", at, NULL);
    TIDY(cuMemRelease(memory));
    TIDY(cuMemAddressFree(at, 2 * UNIT));
    say_attributes("free", at, NULL);
}

static void attributes_alias(void) {
    CUdeviceptr at;
    handle memory;
    NEED_MAPPED(at, 4, memory, 2);
    NEED(cuMemMap(at + 2 * UNIT, 2 * UNIT, 0, memory, 0));
    NEED(access_to(at, 2 * UNIT, BOTH));
    say_attributes("the one", at + UNIT, NULL);
    say_attributes("the other, without access", at + 3 * UNIT, NULL);
    NEED(access_to(at + 2 * UNIT, 2 * UNIT, BOTH));
    say_attributes("the other", at + 3 * UNIT, NULL);
    TIDY(cuMemUnmap(at, 4 * UNIT));
    TIDY(cuMemRelease(memory));
    TIDY(cuMemAddressFree(at, 4 * UNIT));
}

/* Several attributes in one call: one without an answer is left empty. */
static void say_several(const char *what, CUdeviceptr at) {
    CUpointer_attribute asked[] = {
        CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
        CU_POINTER_ATTRIBUTE_RANGE_SIZE, CU_POINTER_ATTRIBUTE_MAPPED, (CUpointer_attribute)14};
    unsigned long long got[COUNT_OF(asked)] = {0};
    void *values[COUNT_OF(asked)];
    for (size_t i = 0; i < COUNT_OF(asked); i++) values[i] = &got[i];
    ASK(cuPointerGetAttributes(COUNT_OF(asked), asked, values, at), "%s", what);
    for (size_t i = 0; i < COUNT_OF(asked); i++) {
        say((long long)(asked[i] == CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL ? (unsigned)got[i]
                                                                        : got[i]),
            "%s, attribute %d", what, (int)asked[i]);
    }
}

static void attributes_several(void) {
    CUdeviceptr at;
    handle memory;
    NEED_MAPPED(at, 2, memory, 1);
    NEED(access_to(at, UNIT, BOTH));
    say_several("mapped", at);
    say_several("reserved", at + UNIT);
    TIDY(cuMemUnmap(at, UNIT));
    TIDY(cuMemRelease(memory));
    TIDY(cuMemAddressFree(at, 2 * UNIT));
    say_several("free", at);
    ASK(cuPointerGetAttributes(0, NULL, NULL, at), "none of them");
}

static void ranges(void) {
    CUdeviceptr at;
    handle first, second;
    NEED_MAPPED(at, 6, first, 1);
    say_range("before access", at);
    NEED(create(&second, 2 * UNIT));
    NEED(cuMemMap(at + UNIT, 2 * UNIT, 0, second, 0));
    NEED(cuMemMap(at + 4 * UNIT, 2 * UNIT, 0, second, 0));
    NEED(access_to(at, 3 * UNIT, BOTH));
    say_range("the start of the first", at);
    say_range("inside the first", at + 4097);
    say_range("the start of the second", at + UNIT);
    say_range("inside the second", at + 2 * UNIT + 1);
    say_range("a hole", at + 3 * UNIT);
    say_range("the second elsewhere", at + 5 * UNIT + 5);
    say_range("the end of the reservation", at + 6 * UNIT - 1);
    TIDY(cuMemUnmap(at, 3 * UNIT));
    TIDY(cuMemUnmap(at + 4 * UNIT, 2 * UNIT));
    TIDY(cuMemRelease(first));
    TIDY(cuMemRelease(second));
    TIDY(cuMemAddressFree(at, 6 * UNIT));
    say_range("free addresses", at);
}

/* --- calls of other families --------------------------------------------------------------- */

static void free_of_mapping(void) {
    CUdeviceptr at;
    handle memory;
    NEED_MAPPED(at, 1, memory, 1);
    NEED(access_to(at, UNIT, BOTH));
    NEED(write_words(at, UNIT, 1));
    ASK(cuMemFree(at), "cuMemFree of a mapping");
    ASK(cuMemFreeAsync(at, NULL), "cuMemFreeAsync of a mapping");
    ASK(cuCtxSynchronize(), "the context after that");
    say(words_right(at, UNIT, 1), "contents right");
    TIDY(cuMemUnmap(at, UNIT));
    TIDY(cuMemRelease(memory));
    TIDY(cuMemAddressFree(at, UNIT));
}

static void allocation_as_mapping(void) {
    CUdeviceptr at;
    handle memory, got = 0;
    NEED(cuMemAlloc(&at, 4 * UNIT));
    NEED(create(&memory, UNIT));
    NEED(write_words(at, 4 * UNIT, 1));
    ASK(cuMemUnmap(at, 4 * UNIT), "unmapping it");
    ASK(access_to(at, 4 * UNIT, NONE), "access to it");
    ASK(cuMemAddressFree(at, 4 * UNIT), "freeing its addresses");
    ASK(cuMemRetainAllocationHandle(&got, (void *)at), "its handle");
    ASK(cuMemMap(at, UNIT, 0, memory, 0), "mapping onto it");
    say(access_of(at), "its access");
    say(words_right(at, 4 * UNIT, 1), "contents right");
    TIDY(cuMemRelease(memory));
    TIDY(cuMemFree(at));
}

static void copies_between_kinds(void) {
    CUdeviceptr at, plain;
    handle memory;
    NEED_MAPPED(at, 1, memory, 1);
    NEED(access_to(at, UNIT, BOTH));
    NEED(cuMemAlloc(&plain, UNIT));
    NEED(write_words(plain, UNIT, 1));
    ASK(cuMemcpyDtoD(at, plain, UNIT), "from an allocation");
    say(words_right(at, UNIT, 1), "contents right");
    NEED(write_words(at, UNIT, 2));
    ASK(cuMemcpy(plain, at, UNIT), "to an allocation");
    say(words_right(plain, UNIT, 2), "contents right there");
    TIDY(cuMemFree(plain));
    TIDY(cuMemUnmap(at, UNIT));
    TIDY(cuMemRelease(memory));
    TIDY(cuMemAddressFree(at, UNIT));
}

/* The driver looks at the addresses of a copy before it starts one. */
static void copies_to_unmapped(void) {
    CUdeviceptr at;
    char data[64] = {0};
    NEED(reserve(&at, UNIT));
    ASK(cuMemcpyHtoD(at, data, sizeof data), "a copy to reserved addresses");
    ASK(cuMemcpyDtoH(data, at, sizeof data), "a copy from reserved addresses");
    ASK(cuMemsetD8(at, 0, sizeof data), "a fill of reserved addresses");
    TIDY(cuMemAddressFree(at, UNIT));
}

/* --- descriptors --------------------------------------------------------------------------- */

static CUresult export_fd(int *descriptor, handle memory) {
    return cuMemExportToShareableHandle(descriptor, memory,
                                        CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
}

static CUresult import_fd(handle *memory, int descriptor) {
    return cuMemImportFromShareableHandle(memory, (void *)(intptr_t)descriptor,
                                          CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
}

static void export_plain(void) {
    int descriptor = -1;
    handle memory;
    NEED(create(&memory, UNIT));
    ASK(export_fd(&descriptor, memory), "a handle that was not made for it");
    say(descriptor >= 0, "there is a descriptor");
    if (descriptor >= 0) close(descriptor);
    TIDY(cuMemRelease(memory));
}

static void export_wrong(void) {
    static const int types[] = {0, WIN32, WIN32_KMT, FABRIC, FD | FABRIC, 16};
    char room[64];
    int descriptor = -1;
    handle memory;
    NEED(create_fd(&memory, UNIT));
    for (size_t i = 0; i < COUNT_OF(types); i++) {
        ASK(cuMemExportToShareableHandle(room, memory, (CUmemAllocationHandleType)types[i], 0),
            "as type %d", types[i]);
    }
    ASK(cuMemExportToShareableHandle(&descriptor, memory, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                                     1),
        "flags 1");
    if (descriptor >= 0) close(descriptor);
    ASK(export_fd(NULL, memory), "nowhere to put it");
    TIDY(cuMemRelease(memory));
}

static void export_released(void) {
    int descriptor = -1;
    handle memory;
    NEED(create_fd(&memory, UNIT));
    TIDY(cuMemRelease(memory));
    ASK(export_fd(&descriptor, memory), "a released handle");
}

static void export_twice(void) {
    int first = -1, second = -1;
    handle memory;
    NEED(create_fd(&memory, UNIT));
    ASK(export_fd(&first, memory), "once");
    ASK(export_fd(&second, memory), "twice");
    say(first != second, "the descriptors differ");
    say(fcntl(first, F_GETFD), "the descriptor's flags");
    if (first >= 0) close(first);
    if (second >= 0) close(second);
    TIDY(cuMemRelease(memory));
}

static void import_same_memory(void) {
    CUdeviceptr at;
    int descriptor = -1;
    handle memory, imported = 0;
    NEED(create_fd(&memory, UNIT));
    NEED(export_fd(&descriptor, memory));
    int answer = ASK(import_fd(&imported, descriptor), "in the same process");
    close(descriptor);
    if (answer) {
        TIDY(cuMemRelease(memory));
        return;
    }
    say(imported == memory, "the same handle");
    say_kind("imported", imported);
    NEED(reserve(&at, 2 * UNIT));
    NEED(cuMemMap(at, UNIT, 0, memory, 0));
    ASK(cuMemMap(at + UNIT, UNIT, 0, imported, 0), "mapping it");
    NEED(access_to(at, UNIT, BOTH));
    ASK(access_to(at + UNIT, UNIT, BOTH), "access to it");
    NEED(write_words(at, UNIT, 1));
    say(words_right(at + UNIT, UNIT, 1), "written by the one, read by the imported");
    NEED(write_words(at + UNIT, UNIT, 2));
    say(words_right(at, UNIT, 2), "written by the imported, read by the one");
    say_attributes("imported", at + UNIT, NULL);
    TIDY(cuMemUnmap(at, 2 * UNIT));
    ASK(cuMemRelease(imported), "releasing the imported");
    ASK(cuMemRelease(memory), "releasing the one");
    TIDY(cuMemAddressFree(at, 2 * UNIT));
}

/* A handle of several units that is mapped twice, once without access, is exported after it was
 * written: its contents and its mappings stay, and the imported one is the same memory.
 */
static void export_written(void) {
    enum { UNITS = 3 };
    const size_t bytes = UNITS * (size_t)UNIT;
    CUdeviceptr at;
    int descriptor = -1, again = -1;
    handle memory, imported = 0;
    NEED(reserve(&at, 3 * bytes));
    NEED(create_fd(&memory, bytes));
    NEED(cuMemMap(at, bytes, 0, memory, 0));
    NEED(cuMemMap(at + bytes, bytes, 0, memory, 0));
    NEED(access_to(at, bytes, BOTH));
    NEED(write_words(at, bytes, 1));
    ASK(export_fd(&descriptor, memory), "exporting");
    ASK(export_fd(&again, memory), "exporting once more");
    say(words_right(at, bytes, 1), "contents right");
    ASK(cuMemcpyDtoD(at + bytes, at, UNIT), "a copy to the mapping without access");
    ASK(access_to(at + bytes, bytes, BOTH), "access to the second mapping");
    say(words_right(at + bytes, bytes, 1), "contents right there");
    ASK(import_fd(&imported, again), "importing");
    ASK(cuMemMap(at + 2 * bytes, bytes, 0, imported, 0), "mapping the imported");
    ASK(access_to(at + 2 * bytes, bytes, BOTH), "access to the imported");
    say(words_right(at + 2 * bytes, bytes, 1), "contents right in the imported");
    NEED(write_words(at + 2 * bytes, bytes, 2));
    say(words_right(at, bytes, 2), "written by the imported, read by the one");
    say_attributes("exported", at + UNIT, NULL);
    ASK(cuMemUnmap(at, bytes), "unmapping the one");
    ASK(cuMemMap(at, bytes, 0, memory, 0), "mapping it again");
    ASK(access_to(at, bytes, BOTH), "access to it again");
    say(words_right(at, bytes, 2), "contents right again");
    close(descriptor);
    close(again);
    TIDY(cuMemUnmap(at, 3 * bytes));
    ASK(cuMemRelease(imported), "releasing the imported");
    ASK(cuMemRelease(memory), "releasing the one");
    TIDY(cuMemAddressFree(at, 3 * bytes));
}

/* A range in which memory that was imported is mapped before and between handles of the program's own. */
static void access_mixed(void) {
    CUdeviceptr at;
    int descriptor = -1;
    handle made, imported = 0, own[2];
    NEED(create_fd(&made, UNIT));
    NEED(export_fd(&descriptor, made));
    NEED(import_fd(&imported, descriptor));
    close(descriptor);
    NEED(reserve(&at, 4 * UNIT));
    for (int i = 0; i < 2; i++) {
        NEED(create(&own[i], UNIT));
        NEED(cuMemMap(at + (size_t)(2 * i) * UNIT, UNIT, 0, imported, 0));
        NEED(cuMemMap(at + (size_t)(2 * i + 1) * UNIT, UNIT, 0, own[i], 0));
    }
    ASK(access_to(at, 4 * UNIT, BOTH), "access to all");
    for (int i = 0; i < 4; i++) say(access_of(at + (size_t)i * UNIT), "access to number %d", i);
    ASK(write_words(at, 4 * UNIT, 1), "writing all");
    say(words_right(at + 3 * UNIT, UNIT, 1 + 3 * UNIT / 4), "the last right");
    ASK(access_to(at, 4 * UNIT, NONE), "no access to any");
    for (int i = 0; i < 4; i++) say(access_of(at + (size_t)i * UNIT), "then access to number %d", i);
    TIDY(cuMemUnmap(at, 4 * UNIT));
    TIDY(cuMemRelease(made));
    TIDY(cuMemRelease(imported));
    for (int i = 0; i < 2; i++) TIDY(cuMemRelease(own[i]));
    TIDY(cuMemAddressFree(at, 4 * UNIT));
}

/* The same of one that is mapped only after it was exported. */
static void export_unmapped(void) {
    const size_t bytes = 5 * (size_t)UNIT;
    CUdeviceptr at;
    int descriptor = -1;
    handle memory;
    NEED(reserve(&at, bytes));
    NEED(create_fd(&memory, bytes));
    ASK(export_fd(&descriptor, memory), "exporting");
    ASK(cuMemMap(at, bytes, 0, memory, 0), "mapping it");
    ASK(cuMemRelease(memory), "releasing it");
    ASK(access_to(at, bytes, BOTH), "access to it");
    NEED(write_words(at, bytes, 1));
    say(words_right(at, bytes, 1), "contents right");
    close(descriptor);
    say(words_right(at, bytes, 1), "contents right without the descriptor");
    TIDY(cuMemUnmap(at, bytes));
    TIDY(cuMemAddressFree(at, bytes));
}

static void import_twice(void) {
    CUdeviceptr at;
    int descriptor = -1;
    handle memory, first = 0, second = 0;
    NEED(create_fd(&memory, UNIT));
    NEED(export_fd(&descriptor, memory));
    ASK(import_fd(&first, descriptor), "once");
    ASK(import_fd(&second, descriptor), "twice");
    say(first == second, "the same handle");
    close(descriptor);
    NEED(reserve(&at, 2 * UNIT));
    NEED(cuMemMap(at, UNIT, 0, first, 0));
    NEED(cuMemMap(at + UNIT, UNIT, 0, second, 0));
    NEED(access_to(at, 2 * UNIT, BOTH));
    NEED(write_words(at, UNIT, 1));
    say(words_right(at + UNIT, UNIT, 1), "the same memory");
    handle got = 0;
    if (!ASK(cuMemRetainAllocationHandle(&got, (void *)(at + UNIT)), "retaining by the second")) {
        say(got == second, "the second's handle");
        TIDY(cuMemRelease(got));
    }
    TIDY(cuMemUnmap(at, 2 * UNIT));
    ASK(cuMemRelease(first), "releasing the first");
    ASK(cuMemRelease(second), "releasing the second");
    ASK(cuMemRelease(memory), "releasing the one");
    TIDY(cuMemAddressFree(at, 2 * UNIT));
}

static void import_outlives(void) {
    CUdeviceptr at;
    int descriptor = -1;
    handle memory, imported = 0;
    NEED_MAPPED(at, 2, memory, 1);
    TIDY(cuMemUnmap(at, UNIT));
    TIDY(cuMemRelease(memory));
    NEED(create_fd(&memory, UNIT));
    NEED(cuMemMap(at, UNIT, 0, memory, 0));
    NEED(access_to(at, UNIT, BOTH));
    NEED(write_words(at, UNIT, 1));
    NEED(export_fd(&descriptor, memory));
    NEED(cuMemUnmap(at, UNIT));
    NEED(cuMemRelease(memory));
    int answer = ASK(import_fd(&imported, descriptor), "after the handle is released");
    close(descriptor);
    if (!answer) {
        NEED(cuMemMap(at + UNIT, UNIT, 0, imported, 0));
        NEED(access_to(at + UNIT, UNIT, BOTH));
        say(words_right(at + UNIT, UNIT, 1), "contents right");
        TIDY(cuMemUnmap(at + UNIT, UNIT));
        TIDY(cuMemRelease(imported));
    }
    TIDY(cuMemAddressFree(at, 2 * UNIT));
}

static void import_exports(void) {
    int descriptor = -1, next = -1;
    handle memory, imported = 0, again = 0;
    NEED(create_fd(&memory, UNIT));
    NEED(export_fd(&descriptor, memory));
    NEED(import_fd(&imported, descriptor));
    close(descriptor);
    if (!ASK(export_fd(&next, imported), "exporting the imported")) {
        if (!ASK(import_fd(&again, next), "importing that")) TIDY(cuMemRelease(again));
        close(next);
    }
    TIDY(cuMemRelease(imported));
    TIDY(cuMemRelease(memory));
}

static void import_wrong(void) {
    handle imported = 0;
    int null = open("/dev/null", O_RDWR), ends[2], closed = dup(null);
    close(closed);
    REQUIRE(pipe(ends) == 0, "no pipe");
    ASK(import_fd(&imported, -1), "descriptor -1");
    ASK(import_fd(&imported, closed), "a closed descriptor");
    ASK(import_fd(&imported, null), "a descriptor of another device");
    ASK(import_fd(&imported, ends[0]), "a pipe");
    ASK(cuMemImportFromShareableHandle(&imported, (void *)(intptr_t)null, CU_MEM_HANDLE_TYPE_NONE),
        "type 0");
    ASK(import_fd(NULL, null), "nowhere to put it");
    close(null);
    close(ends[0]);
    close(ends[1]);
}

/* --- circumstances ------------------------------------------------------------------------- */

static void no_context(void) {
    CUmemAllocationProp kind = plain_kind();
    CUdeviceptr at = 0;
    handle memory = 0, got = 0;
    size_t bytes = 0;
    unsigned long long value;
    CHECK(cuCtxSetCurrent(NULL));
    ASK(cuMemGetAllocationGranularity(&bytes, &kind, CU_MEM_ALLOC_GRANULARITY_MINIMUM),
        "granularity");
    int reserved = !ASK(reserve(&at, UNIT), "reserving");
    int created = !ASK(create(&memory, UNIT), "creating");
    int mapped = reserved && created && !ASK(cuMemMap(at, UNIT, 0, memory, 0), "mapping");
    ASK(access_to(at, UNIT, BOTH), "setting access");
    say(access_of(at), "getting access");
    if (!ASK(cuMemRetainAllocationHandle(&got, (void *)at), "retaining")) TIDY(cuMemRelease(got));
    ASK(cuMemGetAllocationPropertiesFromHandle(&kind, memory), "properties");
    ASK(attribute_of(at, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, NULL, &value), "an attribute");
    say_range("mapped", at);
    ASK(cuMemsetD8(at, 0, UNIT), "a fill");
    if (mapped) ASK(cuMemUnmap(at, UNIT), "unmapping");
    if (created) ASK(cuMemRelease(memory), "releasing");
    if (reserved) ASK(cuMemAddressFree(at, UNIT), "freeing addresses");
    CHECK(cuCtxSetCurrent(context));
}

/* Each call in a capture of its own, in the mode that forbids most, to see its effect on the capture. */
static void in_capture(void) {
    enum { RESERVE, CREATE, MAP, ACCESS, GET, RETAIN, UNMAP, RELEASE, FREE, FILL, CALLS };
    static const char *names[CALLS] = {
        "reserving", "creating",  "mapping",   "setting access",    "getting access",
        "retaining", "unmapping", "releasing", "freeing addresses", "a fill"};
    CUdeviceptr at = 0, filled;
    handle memory = 0, got = 0, other;
    CUstream stream;
    NEED(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    NEED_MAPPED(filled, 1, other, 1);
    NEED(access_to(filled, UNIT, BOTH));
    for (int call = 0; call < CALLS; call++) {
        CUgraph graph = NULL;
        CUresult answer = CUDA_SUCCESS;
        NEED(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
        wait_if_told();
        switch (call) {
        case RESERVE: answer = reserve(&at, UNIT); break;
        case CREATE: answer = create(&memory, UNIT); break;
        case MAP: answer = cuMemMap(at, UNIT, 0, memory, 0); break;
        case ACCESS: answer = access_to(at, UNIT, BOTH); break;
        case GET: answer = (CUresult)access_of(at); break;
        case RETAIN: answer = cuMemRetainAllocationHandle(&got, (void *)at); break;
        case UNMAP: answer = cuMemUnmap(at, UNIT); break;
        case RELEASE: answer = cuMemRelease(memory); break;
        case FREE: answer = cuMemAddressFree(at, UNIT); break;
        case FILL: answer = cuMemsetD32Async(filled, 5, UNIT / 4, stream); break;
        }
        say(answer, "%s", names[call]);
        ASK(cuStreamEndCapture(stream, &graph), "%s, the end of the capture", names[call]);
        if (graph) TIDY(cuGraphDestroy(graph));
        if (answer == CUDA_SUCCESS) {
            if (call == RETAIN) TIDY(cuMemRelease(got));
            continue;
        }
        /* Makes up for a call that the capture refused, so that the next one finds its needs. */
        if (call == RESERVE) NEED(reserve(&at, UNIT));
        if (call == CREATE) NEED(create(&memory, UNIT));
        if (call == MAP) NEED(cuMemMap(at, UNIT, 0, memory, 0));
        if (call == ACCESS) NEED(access_to(at, UNIT, BOTH));
        if (call == UNMAP) NEED(cuMemUnmap(at, UNIT));
        if (call == RELEASE) NEED(cuMemRelease(memory));
        if (call == FREE) NEED(cuMemAddressFree(at, UNIT));
    }
    TIDY(cuStreamDestroy(stream));
    TIDY(cuMemUnmap(filled, UNIT));
    TIDY(cuMemRelease(other));
    TIDY(cuMemAddressFree(filled, UNIT));
}

/* A graph holds addresses: it writes the memory that is mapped there when it runs. */
static void graph_of_mapping(void) {
    CUdeviceptr at;
    handle first, second;
    CUstream stream;
    CUgraph graph = NULL;
    CUgraphExec exec = NULL;
    NEED_MAPPED(at, 2, first, 1);
    NEED(create(&second, UNIT));
    NEED(access_to(at, UNIT, BOTH));
    NEED(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    NEED(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    ASK(cuMemsetD32Async(at, 5, UNIT / 4, stream), "a fill into a capture");
    ASK(cuStreamEndCapture(stream, &graph), "the end of the capture");
    NEED(cuGraphInstantiate(&exec, graph, 0));
    ASK(cuGraphLaunch(exec, stream), "a launch");
    NEED(cuStreamSynchronize(stream));
    say(filled_with(at, UNIT, 5), "the first handle filled");
    NEED(cuMemUnmap(at, UNIT));
    NEED(cuMemMap(at, UNIT, 0, second, 0));
    NEED(access_to(at, UNIT, BOTH));
    NEED(cuMemsetD32(at, 6, UNIT / 4));
    NEED(cuStreamSynchronize(NULL));
    ASK(cuGraphLaunch(exec, stream), "a launch with another handle there");
    NEED(cuStreamSynchronize(stream));
    say(filled_with(at, UNIT, 5), "the second handle filled");
    TIDY(cuGraphExecDestroy(exec));
    TIDY(cuGraphDestroy(graph));
    TIDY(cuStreamDestroy(stream));
    TIDY(cuMemUnmap(at, UNIT));
    TIDY(cuMemRelease(first));
    TIDY(cuMemRelease(second));
    TIDY(cuMemAddressFree(at, 2 * UNIT));
}

static void many_units(void) {
    enum { MANY = 16 };
    CUdeviceptr at;
    handle memory[MANY];
    NEED(reserve(&at, MANY * (size_t)UNIT));
    for (int i = 0; i < MANY; i++) {
        NEED(create(&memory[i], UNIT));
        NEED(cuMemMap(at + (size_t)i * UNIT, UNIT, 0, memory[i], 0));
        NEED(cuMemRelease(memory[i]));
    }
    ASK(access_to(at, MANY * (size_t)UNIT, BOTH), "access to 16 handles at once");
    NEED(write_words(at, MANY * (size_t)UNIT, 1));
    for (int i = 0; i < MANY; i += 2) NEED(cuMemUnmap(at + (size_t)i * UNIT, UNIT));
    int right = 1;
    for (int i = 1; i < MANY; i += 2)
        right &= words_right(at + (size_t)i * UNIT, UNIT, 1 + (uint32_t)i * (UNIT / 4)) == 1;
    say(right, "every second one right with the others unmapped");
    for (int i = 1; i < MANY; i += 2) NEED(cuMemUnmap(at + (size_t)i * UNIT, UNIT));
    TIDY(cuMemAddressFree(at, MANY * (size_t)UNIT));
}

/* --- rules that may break a context -------------------------------------------------------- */

static void fault(const char *what, CUresult answer) {
    say(answer, "%s", what);
    ASK(cuCtxSynchronize(), "%s, the context after that", what);
}

static void fault_read_only_copy(void) {
    CUdeviceptr at;
    handle memory;
    NEED_MAPPED(at, 1, memory, 1);
    NEED(access_to(at, UNIT, READ));
    fault("a copy to memory that is only read", write_words(at, UNIT, 1));
}

static void fault_read_only_fill(void) {
    CUdeviceptr at;
    handle memory;
    NEED_MAPPED(at, 1, memory, 1);
    NEED(access_to(at, UNIT, READ));
    fault("a fill of memory that is only read", CALL(cuMemsetD32(at, 1, UNIT / 4)));
}

static void fault_no_access_copy(void) {
    CUdeviceptr at;
    handle memory;
    NEED_MAPPED(at, 1, memory, 1);
    fault("a copy to memory without access", write_words(at, UNIT, 1));
}

static void fault_no_access_read(void) {
    CUdeviceptr at;
    handle memory;
    char data[64];
    NEED_MAPPED(at, 1, memory, 1);
    fault("a copy from memory without access", CALL(cuMemcpyDtoH(data, at, sizeof data)));
}

static void fault_no_access_fill(void) {
    CUdeviceptr at;
    handle memory;
    NEED_MAPPED(at, 1, memory, 1);
    fault("a fill of memory without access", CALL(cuMemsetD32(at, 1, UNIT / 4)));
}

static void fault_copy_over_hole(void) {
    CUdeviceptr at;
    handle memory;
    NEED_MAPPED(at, 2, memory, 1);
    NEED(access_to(at, UNIT, BOTH));
    fault("a copy that ends in a hole", write_words(at, 2 * UNIT, 1));
}

static void fault_fill_over_hole(void) {
    CUdeviceptr at;
    handle memory;
    NEED_MAPPED(at, 2, memory, 1);
    NEED(access_to(at, UNIT, BOTH));
    fault("a fill that ends in a hole", CALL(cuMemsetD32(at, 1, 2 * UNIT / 4)));
}

static void fault_kernel_unmapped(void) {
    CUdeviceptr at;
    unsigned words = 16, seed = 1;
    CUfunction fill = kernel(load_kernels(), "fill_hash");
    NEED(reserve(&at, UNIT));
    fault("a kernel on reserved addresses",
          CALL(cuLaunchKernel(fill, 1, 1, 1, 256, 1, 1, 0, NULL, (void *[]){&at, &seed, &words},
                              NULL)));
}

/* Unmapping while a stream still has work for the memory: does the call wait for it? */
static void unmap_while_busy(void) {
    CUdeviceptr at;
    handle memory;
    CUstream stream;
    NEED_MAPPED(at, 1, memory, 1);
    NEED(access_to(at, UNIT, BOTH));
    NEED(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    if (!hold(stream)) return;
    ASK(cuMemsetD32Async(at, 1, UNIT / 4, stream), "a fill in a stream that is held up");
    pthread_t later = go(raise_gate_later, NULL);
    ASK(cuMemUnmap(at, UNIT), "unmapping");
    say((long long)*gate, "it has waited");
    join(later);
    ASK(cuStreamSynchronize(stream), "the stream after that");
}

/* The same for calls on other memory: none should have to wait. */
static void map_while_busy(void) {
    CUdeviceptr at, other;
    handle memory, second;
    CUstream stream;
    NEED_MAPPED(at, 2, memory, 1);
    NEED(access_to(at, UNIT, BOTH));
    NEED(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    if (!hold(stream)) return;
    ASK(cuMemsetD32Async(at, 1, UNIT / 4, stream), "a fill in a stream that is held up");
    pthread_t later = go(raise_gate_later, NULL);
    ASK(reserve(&other, UNIT), "reserving");
    ASK(create(&second, UNIT), "creating");
    ASK(cuMemMap(at + UNIT, UNIT, 0, second, 0), "mapping");
    say((long long)*gate, "they have waited");
    ASK(access_to(at + UNIT, UNIT, BOTH), "setting access");
    say((long long)*gate, "setting access has waited");
    ASK(cuMemUnmap(at + UNIT, UNIT), "unmapping");
    say((long long)*gate, "unmapping has waited");
    ASK(cuMemRelease(second), "releasing");
    ASK(cuMemAddressFree(other, UNIT), "freeing addresses");
    join(later);
    ASK(cuStreamSynchronize(stream), "the stream after that");
    say(filled_with(at, UNIT, 1), "contents right");
}

static void wild_handles(void) {
    CUmemAllocationProp kind;
    CUdeviceptr at;
    NEED(reserve(&at, UNIT));
    ASK(cuMemMap(at, UNIT, 0, 0x1234567, 0), "mapping a made-up handle");
    ASK(cuMemGetAllocationPropertiesFromHandle(&kind, 0x1234567), "properties of a made-up handle");
    ASK(cuMemRelease(0x1234567), "releasing a made-up handle");
}

int main(int argc, char **argv) {
    static const struct rule rules[] = {
        {"reserve-sizes", reserve_sizes},
        {"reserve-alignments", reserve_alignments},
        {"reserve-hint-free", reserve_hint_free},
        {"reserve-hint-taken", reserve_hint_taken},
        {"reserve-hint-odd", reserve_hint_odd},
        {"reserve-flags", reserve_flags},
        {"reserve-null", reserve_null},
        {"reserve-huge", reserve_huge},
        {"reserve-many", reserve_many},
        {"free-half", free_half},
        {"free-twice", free_twice},
        {"free-wrong", free_wrong},
        {"free-mapped", free_mapped},
        {"free-two-at-once", free_two_at_once},
        {"create-sizes", create_sizes},
        {"create-types", create_types},
        {"create-locations", create_locations},
        {"create-compression", create_compression},
        {"create-usage", create_usage},
        {"create-rdma", create_rdma},
        {"create-handle-types", create_handle_types},
        {"create-flags", create_flags},
        {"create-null", create_null},
        {"create-reserved", create_reserved},
        {"properties", properties},
        {"properties-wrong", properties_wrong},
        {"granularity", granularity},
        {"granularity-wrong", granularity_wrong},
        {"map-offset", map_offset},
        {"map-part", map_part},
        {"map-larger", map_larger},
        {"map-unreserved", map_unreserved},
        {"map-over", map_over},
        {"map-misaligned", map_misaligned},
        {"map-across-reservations", map_across_reservations},
        {"map-flags", map_flags},
        {"map-nothing", map_nothing},
        {"map-released-while-mapped", map_released_while_mapped},
        {"alias-two", alias_two},
        {"alias-three", alias_three},
        {"alias-one-access", alias_one_access},
        {"alias-parts", alias_parts},
        {"alias-unmap-one", alias_unmap_one},
        {"side-by-side", side_by_side},
        {"unmap-part", unmap_part},
        {"unmap-part-of-two", unmap_part_of_two},
        {"unmap-hole", unmap_hole},
        {"unmap-wrong", unmap_wrong},
        {"access-part", access_part},
        {"access-hole", access_hole},
        {"access-unmapped", access_unmapped},
        {"access-kinds", access_kinds},
        {"access-read", access_read},
        {"access-none-and-back", access_none_and_back},
        {"access-places", access_places},
        {"access-several", access_several},
        {"access-misaligned", access_misaligned},
        {"get-access-wrong", get_access_wrong},
        {"access-ends-with-mapping", access_ends_with_mapping},
        {"release-before-unmap", release_before_unmap},
        {"release-twice", release_twice},
        {"release-twice-while-mapped", release_twice_while_mapped},
        {"retain-where", retain_where},
        {"retain-counts", retain_counts},
        {"retain-after-release", retain_after_release},
        {"retain-second-half", retain_second_half},
        {"handles-differ", handles_differ},
        {"contents-move", contents_move},
        {"contents-swap", contents_swap},
        {"contents-stay-apart", contents_stay_apart},
        {"contents-stream", contents_stream},
        {"host-numa-memory", host_numa_memory},
        {"attributes-before-access", attributes_before_access},
        {"attributes-after-access", attributes_after_access},
        {"attributes-side-by-side", attributes_side_by_side},
        {"attributes-unmapped", attributes_unmapped},
        {"attributes-alias", attributes_alias},
        {"attributes-several", attributes_several},
        {"ranges", ranges},
        {"free-of-mapping", free_of_mapping},
        {"allocation-as-mapping", allocation_as_mapping},
        {"copies-between-kinds", copies_between_kinds},
        {"copies-to-unmapped", copies_to_unmapped},
        {"export-plain", export_plain},
        {"export-wrong", export_wrong},
        {"export-twice", export_twice},
        {"import-same-memory", import_same_memory},
        {"access-mixed", access_mixed},
        {"export-written", export_written},
        {"export-unmapped", export_unmapped},
        {"import-twice", import_twice},
        {"import-outlives", import_outlives},
        {"import-exports", import_exports},
        {"import-wrong", import_wrong},
        {"no-context", no_context},
        {"in-capture", in_capture},
        {"graph-of-mapping", graph_of_mapping},
        {"many-units", many_units},
    };
    static const struct rule faults[] = {
        {"read-only-copy", fault_read_only_copy}, {"read-only-fill", fault_read_only_fill},
        {"no-access-copy", fault_no_access_copy}, {"no-access-read", fault_no_access_read},
        {"no-access-fill", fault_no_access_fill}, {"copy-over-hole", fault_copy_over_hole},
        {"fill-over-hole", fault_fill_over_hole}, {"kernel-unmapped", fault_kernel_unmapped},
        {"unmap-while-busy", unmap_while_busy},   {"map-while-busy", map_while_busy},
        {"wild-handles", wild_handles},             {"map-released", map_released},
        {"export-released", export_released},
    };
    return play_rules(argc, argv, RULES(rules), RULES(faults));
}
