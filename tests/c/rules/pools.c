/* The driver's rules for memory that streams allocate and free: pools, their numbers, reuse of
 * memory, sharing, and such memory in graphs.
 */
#include "rules.h"

enum { FOLLOW = 1, OPPORTUNISTIC, INTERNAL, THRESHOLD, RESERVED, RESERVED_HIGH, USED, USED_HIGH };
enum { FD = 1, FABRIC = 8, HOST = 2, HOST_NUMA = 3 };

static const CUmemLocation device = {CU_MEM_LOCATION_TYPE_DEVICE, 0};

static CUmemPoolProps kind_of(int shareable, size_t most) {
    return (CUmemPoolProps){.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                            .handleTypes = (CUmemAllocationHandleType)shareable,
                            .location = device,
                            .maxSize = most};
}

static CUresult pool_new(CUmemoryPool *pool) {
    CUmemPoolProps kind = kind_of(0, 0);
    return cuMemPoolCreate(pool, &kind);
}

static CUresult alloc(CUdeviceptr *at, size_t bytes, CUmemoryPool pool, CUstream stream) {
    return cuMemAllocFromPoolAsync(at, bytes, pool, stream);
}

static CUresult set(CUmemoryPool pool, int attribute, unsigned long long value) {
    return cuMemPoolSetAttribute(pool, (CUmemPool_attribute)attribute, &value);
}

static CUresult keep_all(CUmemoryPool pool) { return set(pool, THRESHOLD, ~0ull); }

/* An attribute's value, or minus the answer. */
static long long get(CUmemoryPool pool, int attribute) {
    unsigned long long value = 0;
    CUresult answer = CALL(cuMemPoolGetAttribute(pool, (CUmemPool_attribute)attribute, &value));
    return answer ? -(long long)answer : (long long)value;
}

/* Prints the reserved and the used bytes of a pool. */
static void say_use(const char *what, CUmemoryPool pool) {
    printf("%s %s, reserved: %lld, at most %lld\n", rule_now, what, get(pool, RESERVED),
           get(pool, RESERVED_HIGH));
    printf("%s %s, used: %lld, at most %lld\n", rule_now, what, get(pool, USED),
           get(pool, USED_HIGH));
}

/* The start of many rules: a pool and a stream. */
#define NEED_POOL(pool, stream)                                                                    \
    NEED(pool_new(&pool));                                                                         \
    NEED(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING))

#define TIDY_POOL(pool, stream)                                                                    \
    TIDY(cuStreamSynchronize(stream));                                                             \
    TIDY(cuStreamDestroy(stream));                                                                 \
    TIDY(cuMemPoolDestroy(pool))

/* --- pools --------------------------------------------------------------------------------- */

static void create_null(void) {
    CUmemPoolProps kind = kind_of(0, 0);
    CUmemoryPool pool = NULL;
    ASK(cuMemPoolCreate(NULL, &kind), "nowhere to put it");
    ASK(cuMemPoolCreate(&pool, NULL), "no properties");
}

static void ask_create(const char *what, const CUmemPoolProps *kind) {
    CUmemoryPool pool = NULL;
    if (!ASK(cuMemPoolCreate(&pool, kind), "%s", what))
        ASK(cuMemPoolDestroy(pool), "%s, destroying it", what);
}

static void create_types(void) {
    static const int types[] = {0, 1, 3, 77}; /* 2 is managed memory, which nothing here uses */
    for (size_t i = 0; i < COUNT_OF(types); i++) {
        CUmemPoolProps kind = kind_of(0, 0);
        char what[32];
        kind.allocType = (CUmemAllocationType)types[i];
        snprintf(what, sizeof what, "type %d", types[i]);
        ask_create(what, &kind);
    }
}

static void create_locations(void) {
    static const int places[][2] = {{0, 0},         {1, 0},          {1, -1}, {1, 99}, {HOST, 0},
                                    {HOST_NUMA, 0}, {HOST_NUMA, 99}, {4, 0},  {77, 0}};
    for (size_t i = 0; i < COUNT_OF(places); i++) {
        CUmemPoolProps kind = kind_of(0, 0);
        char what[32];
        kind.location = (CUmemLocation){(CUmemLocationType)places[i][0], places[i][1]};
        snprintf(what, sizeof what, "location %d, %d", places[i][0], places[i][1]);
        ask_create(what, &kind);
    }
}

static void create_handle_types(void) {
    static const int types[] = {0, 1, 2, 4, 8, 9, 16};
    for (size_t i = 0; i < COUNT_OF(types); i++) {
        CUmemPoolProps kind = kind_of(types[i], 0);
        char what[32];
        snprintf(what, sizeof what, "handle types %d", types[i]);
        ask_create(what, &kind);
    }
}

static void create_odd(void) {
    CUmemPoolProps kind = kind_of(0, 0);
    kind.win32SecurityAttributes = &kind;
    ask_create("attributes of another system", &kind);
    kind = kind_of(0, 0);
    kind.reserved[0] = 1;
    ask_create("a reserved byte", &kind);
    kind = kind_of(0, 0);
    kind.usage = 2;
    ask_create("usage 2", &kind);
    kind.usage = 0x8000;
    ask_create("usage 0x8000", &kind);
}

static void create_most(void) {
    static const size_t sizes[] = {1, 4096, UNIT, 32 * MIB, 33 * MIB, 64 * MIB};
    for (size_t i = 0; i < COUNT_OF(sizes); i++) {
        CUmemPoolProps kind = kind_of(0, sizes[i]);
        char what[32];
        snprintf(what, sizeof what, "at most %zu bytes", sizes[i]);
        ask_create(what, &kind);
    }
}

static void most(void) {
    CUmemPoolProps kind = kind_of(0, 32 * MIB);
    CUmemoryPool pool;
    CUstream stream;
    CUdeviceptr at[8];
    int count = 0, answer = 0;
    NEED(cuMemPoolCreate(&pool, &kind));
    NEED(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    for (; count < 8 && !answer; count += !answer) {
        answer = ASK(alloc(&at[count], 8 * MIB, pool, stream),
                     "8 MiB, number %d of a pool of 32 MiB", count + 1);
    }
    say_use("then", pool);
    for (int i = 0; i < count; i++) TIDY(cuMemFreeAsync(at[i], stream));
    if (!ASK(alloc(&at[0], 40 * MIB, pool, stream), "40 MiB of a pool of 32 MiB")) {
        TIDY(cuMemFreeAsync(at[0], stream));
    }
    TIDY_POOL(pool, stream);
}

static void no_pool(void) {
    CUmemAccessDesc access = {device, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUmemAccess_flags flags;
    CUmemLocation place = device;
    CUdeviceptr at = 0;
    unsigned long long value = 0;
    ASK(cuMemPoolDestroy(NULL), "destroying it");
    ASK(cuMemPoolTrimTo(NULL, 0), "trimming it");
    ASK(cuMemPoolGetAttribute(NULL, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &value), "an attribute");
    ASK(cuMemPoolSetAttribute(NULL, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &value),
        "setting an attribute");
    ASK(cuMemPoolSetAccess(NULL, &access, 1), "setting access");
    ASK(cuMemPoolGetAccess(&flags, NULL, &place), "getting access");
    if (!ASK(alloc(&at, 4096, NULL, NULL), "an allocation")) TIDY(cuMemFreeAsync(at, NULL));
}

static void default_pool(void) {
    CUmemLocation place = device;
    CUmemoryPool pool = NULL, current = NULL, by_place = NULL, current_by_place = NULL;
    ASK(cuDeviceGetDefaultMemPool(&pool, 0), "the default pool");
    ASK(cuDeviceGetMemPool(&current, 0), "the current pool");
    say(pool == current, "they are the same");
    ASK(cuMemGetDefaultMemPool(&by_place, &place, CU_MEM_ALLOCATION_TYPE_PINNED), "by location");
    say(pool == by_place, "by location the same");
    ASK(cuMemGetMemPool(&current_by_place, &place, CU_MEM_ALLOCATION_TYPE_PINNED),
        "the current by location");
    say(pool == current_by_place, "the current by location the same");
    for (int i = FOLLOW; i <= THRESHOLD; i++) say(get(pool, i), "attribute %d", i);
    ASK(cuMemPoolDestroy(pool), "destroying it");
}

static void default_pool_wrong(void) {
    static const int places[][3] = {{1, 99, 1}, {1, -1, 1}, {0, 0, 1},
                                    {77, 0, 1}, {1, 0, 0},  {1, 0, 77}};
    CUmemoryPool pool = NULL;
    ASK(cuDeviceGetDefaultMemPool(NULL, 0), "nowhere to put the default");
    ASK(cuDeviceGetDefaultMemPool(&pool, 99), "the default of device 99");
    ASK(cuDeviceGetDefaultMemPool(&pool, -1), "the default of device -1");
    ASK(cuDeviceGetMemPool(NULL, 0), "nowhere to put the current");
    ASK(cuDeviceGetMemPool(&pool, 99), "the current of device 99");
    ASK(cuDeviceSetMemPool(0, NULL), "setting none");
    for (size_t i = 0; i < COUNT_OF(places); i++) {
        CUmemLocation place = {(CUmemLocationType)places[i][0], places[i][1]};
        CUmemAllocationType type = (CUmemAllocationType)places[i][2];
        ASK(cuMemGetDefaultMemPool(&pool, &place, type), "the default of %d, %d, type %d",
            places[i][0], places[i][1], places[i][2]);
        ASK(cuMemGetMemPool(&pool, &place, type), "the current of %d, %d, type %d", places[i][0],
            places[i][1], places[i][2]);
        ASK(cuMemSetMemPool(&place, type, NULL), "setting none for %d, %d, type %d", places[i][0],
            places[i][1], places[i][2]);
    }
    CUmemLocation place = device;
    ASK(cuMemGetDefaultMemPool(NULL, &place, CU_MEM_ALLOCATION_TYPE_PINNED),
        "nowhere to put it, by location");
    ASK(cuMemGetDefaultMemPool(&pool, NULL, CU_MEM_ALLOCATION_TYPE_PINNED), "no location");
}

static void current_pool(void) {
    CUmemLocation place = device;
    CUmemoryPool pool, first, got = NULL;
    CUstream stream;
    CUdeviceptr at = 0;
    NEED_POOL(pool, stream);
    NEED(cuDeviceGetDefaultMemPool(&first, 0));
    ASK(cuDeviceSetMemPool(0, pool), "setting a pool");
    ASK(cuDeviceGetMemPool(&got, 0), "the current pool");
    say(got == pool, "it is that");
    ASK(cuMemAllocAsync(&at, MIB, stream), "an allocation");
    say_use("with it", pool);
    ASK(cuMemFreeAsync(at, stream), "freeing it");
    ASK(cuDeviceSetMemPool(99, pool), "setting a pool of device 99");
    ASK(cuMemSetMemPool(&place, CU_MEM_ALLOCATION_TYPE_PINNED, first),
        "setting the default by location");
    ASK(cuDeviceGetMemPool(&got, 0), "the current pool then");
    say(got == first, "it is the default");
    ASK(cuDeviceSetMemPool(0, pool), "setting a pool again");
    TIDY(cuStreamSynchronize(stream));
    ASK(cuMemPoolDestroy(pool), "destroying the current pool");
    ASK(cuDeviceGetMemPool(&got, 0), "the current pool in the end");
    say(got == first, "it is the default in the end");
    TIDY(cuDeviceSetMemPool(0, first));
    TIDY(cuStreamDestroy(stream));
}

/* --- attributes ---------------------------------------------------------------------------- */

static void attributes_fresh(void) {
    CUmemoryPool pool;
    NEED(pool_new(&pool));
    for (int i = 0; i <= 16; i++) say(get(pool, i), "attribute %d", i);
    say(get(pool, -1), "attribute -1");
    say(get(pool, 1000), "attribute 1000");
    ASK(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, NULL), "nowhere to put it");
    TIDY(cuMemPoolDestroy(pool));
}

static void attribute_from_nowhere(void) {
    CUmemoryPool pool;
    NEED(pool_new(&pool));
    ASK(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, NULL),
        "setting from nowhere");
}

/* How many bytes of the room an attribute fills. */
static void attribute_sizes(void) {
    CUmemoryPool pool;
    NEED(pool_new(&pool));
    for (int i = 1; i <= USED_HIGH; i++) {
        unsigned char room[16], other[16];
        int size = 0;
        memset(room, 0xaa, sizeof room);
        memset(other, 0x55, sizeof other);
        TIDY(cuMemPoolGetAttribute(pool, (CUmemPool_attribute)i, room));
        TIDY(cuMemPoolGetAttribute(pool, (CUmemPool_attribute)i, other));
        for (int byte = 0; byte < 16; byte++) size += room[byte] == other[byte];
        say(size, "bytes of attribute %d", i);
    }
    TIDY(cuMemPoolDestroy(pool));
}

static void attributes_set(void) {
    CUmemoryPool pool;
    NEED(pool_new(&pool));
    for (int i = 0; i <= 10; i++) {
        static const unsigned long long values[] = {0, 1, 2, UNIT};
        for (size_t v = 0; v < COUNT_OF(values); v++) {
            ASK(set(pool, i, values[v]), "attribute %d to %llu", i, values[v]);
            say(get(pool, i), "attribute %d after %llu", i, values[v]);
        }
    }
    ASK(set(pool, THRESHOLD, ~0ull), "the threshold to all");
    say(get(pool, THRESHOLD), "the threshold after that");
    TIDY(cuMemPoolDestroy(pool));
}

/* Each size alone in a fresh pool: by how much the reserved memory grows. */
static void growth_alone(void) {
    static const size_t sizes[] = {1,       511,      513,      1024,     MIB,     UNIT,
                                   3 * MIB, 32 * MIB, 33 * MIB, 40 * MIB, 64 * MIB};
    for (size_t i = 0; i < COUNT_OF(sizes); i++) {
        CUmemoryPool pool;
        CUstream stream;
        CUdeviceptr at;
        char what[32];
        snprintf(what, sizeof what, "%zu bytes", sizes[i]);
        NEED_POOL(pool, stream);
        if (!ASK(alloc(&at, sizes[i], pool, stream), "%s", what)) {
            say_use(what, pool);
            say(at % 512 == 0, "%s, a multiple of 512", what);
            ASK(cuMemFreeAsync(at, stream), "%s, freeing", what);
        }
        TIDY_POOL(pool, stream);
    }
}

static void growth_together(void) {
    static const size_t sizes[] = {1, 1024, MIB, 3 * MIB, 33 * MIB, 40 * MIB};
    CUmemoryPool pool;
    CUstream stream;
    CUdeviceptr at[COUNT_OF(sizes)];
    char what[48];
    NEED_POOL(pool, stream);
    for (size_t i = 0; i < COUNT_OF(sizes); i++) {
        NEED(alloc(&at[i], sizes[i], pool, stream));
        snprintf(what, sizeof what, "with %zu bytes more", sizes[i]);
        say_use(what, pool);
    }
    for (size_t i = 0; i < COUNT_OF(sizes); i++) {
        NEED(cuMemFreeAsync(at[i], stream));
        snprintf(what, sizeof what, "with %zu bytes freed", sizes[i]);
        say_use(what, pool);
    }
    NEED(cuStreamSynchronize(stream));
    say_use("synchronised", pool);
    TIDY_POOL(pool, stream);
}

static void threshold_of(unsigned long long threshold) {
    CUmemoryPool pool;
    CUstream stream;
    CUdeviceptr at;
    NEED_POOL(pool, stream);
    NEED(set(pool, THRESHOLD, threshold));
    NEED(alloc(&at, 40 * MIB, pool, stream));
    NEED(cuStreamSynchronize(stream));
    say_use("allocated", pool);
    NEED(cuMemFreeAsync(at, stream));
    say(get(pool, USED), "freed, used");
    say(get(pool, RESERVED), "freed, reserved");
    NEED(cuStreamSynchronize(stream));
    say_use("freed and synchronised", pool);
    TIDY_POOL(pool, stream);
}

static void threshold_none(void) { threshold_of(0); }
static void threshold_all(void) { threshold_of(~0ull); }
static void threshold_some(void) { threshold_of(32 * MIB); }

/* By which of the ways to wait the memory goes back. */
static void threshold_waits(void) {
    static const char *names[] = {"the stream", "another stream", "an event", "the context",
                                  "a query"};
    for (size_t way = 0; way < COUNT_OF(names); way++) {
        CUmemoryPool pool;
        CUstream stream, other;
        CUevent event;
        CUdeviceptr at;
        NEED_POOL(pool, stream);
        NEED(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
        NEED(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
        NEED(alloc(&at, 4 * MIB, pool, stream));
        NEED(cuMemFreeAsync(at, stream));
        NEED(cuEventRecord(event, stream));
        if (way != 0) sleep_ms(20);
        if (way == 0) NEED(cuStreamSynchronize(stream));
        if (way == 1) NEED(cuStreamSynchronize(other));
        if (way == 2) NEED(cuEventSynchronize(event));
        if (way == 3) NEED(cuCtxSynchronize());
        if (way == 4) NEED(cuStreamQuery(stream));
        say(get(pool, RESERVED), "reserved after waiting for %s", names[way]);
        TIDY(cuEventDestroy(event));
        TIDY(cuStreamDestroy(other));
        TIDY_POOL(pool, stream);
    }
}

/* Memory freed in a stream that is gone goes back when the context was waited for. */
static void threshold_gone_stream(void) {
    CUmemoryPool pool;
    CUstream stream, other;
    CUdeviceptr at;
    NEED_POOL(pool, stream);
    NEED(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
    NEED(alloc(&at, 4 * MIB, pool, other));
    NEED(cuMemFreeAsync(at, other));
    NEED(cuStreamDestroy(other));
    NEED(cuCtxSynchronize());
    say(get(pool, RESERVED), "reserved after the context");
    TIDY_POOL(pool, stream);
}

static void *use_own_stream(void *data) {
    CUmemoryPool *pool = data;
    CUdeviceptr at = 0;
    CHECK(cuCtxSetCurrent(context));
    CHECK(alloc(&at, 4 * MIB, *pool, CU_STREAM_PER_THREAD));
    CHECK(cuMemFreeAsync(at, CU_STREAM_PER_THREAD));
    return NULL;
}

/* The same of the stream of a thread that has ended. */
static void threshold_gone_thread(void) {
    CUmemoryPool pool;
    CUstream stream;
    NEED_POOL(pool, stream);
    join(go(use_own_stream, &pool));
    sleep_ms(20);
    NEED(cuCtxSynchronize());
    say(get(pool, RESERVED), "reserved after the context");
    TIDY_POOL(pool, stream);
}

static void high_marks(void) {
    CUmemoryPool pool;
    CUstream stream;
    CUdeviceptr first, second;
    NEED_POOL(pool, stream);
    NEED(alloc(&first, 3 * MIB, pool, stream));
    NEED(alloc(&second, 40 * MIB, pool, stream));
    NEED(cuMemFreeAsync(second, stream));
    NEED(cuStreamSynchronize(stream));
    say_use("before", pool);
    ASK(set(pool, USED_HIGH, 0), "the used one to 0");
    ASK(set(pool, RESERVED_HIGH, 0), "the reserved one to 0");
    say_use("after", pool);
    ASK(set(pool, USED_HIGH, 5), "the used one to 5");
    ASK(set(pool, RESERVED_HIGH, 5), "the reserved one to 5");
    ASK(set(pool, USED, 0), "what is used to 0");
    say_use("in the end", pool);
    NEED(cuMemFreeAsync(first, stream));
    TIDY_POOL(pool, stream);
}

static void trim(void) {
    static const size_t keep[] = {~(size_t)0, 36 * MIB, 32 * MIB, 1, 0};
    CUmemoryPool pool;
    CUstream stream;
    CUdeviceptr first, second, third;
    NEED_POOL(pool, stream);
    NEED(keep_all(pool));
    NEED(alloc(&first, 33 * MIB, pool, stream));
    NEED(alloc(&second, 40 * MIB, pool, stream));
    NEED(alloc(&third, MIB, pool, stream));
    NEED(cuMemFreeAsync(first, stream));
    NEED(cuMemFreeAsync(second, stream));
    NEED(cuStreamSynchronize(stream));
    NEED(write_words(third, MIB, 1));
    for (size_t i = 0; i < COUNT_OF(keep); i++) {
        ASK(cuMemPoolTrimTo(pool, keep[i]), "to %zu", keep[i]);
        say(get(pool, RESERVED), "reserved after %zu", keep[i]);
    }
    say(words_right(third, MIB, 1), "contents of what is used right");
    NEED(cuMemFreeAsync(third, stream));
    NEED(cuStreamSynchronize(stream));
    ASK(cuMemPoolTrimTo(pool, 0), "with nothing used");
    say_use("in the end", pool);
    TIDY_POOL(pool, stream);
}

static void trim_unsynchronised(void) {
    CUmemoryPool pool;
    CUstream stream;
    CUdeviceptr at;
    NEED_POOL(pool, stream);
    NEED(keep_all(pool));
    NEED(alloc(&at, 4 * MIB, pool, stream));
    if (!hold(stream)) return;
    NEED(cuMemFreeAsync(at, stream));
    ASK(cuMemPoolTrimTo(pool, 0), "while the stream that frees is held up");
    say(get(pool, RESERVED), "reserved then");
    say(get(pool, USED), "used then");
    let_go();
    ASK(cuMemPoolTrimTo(pool, 0), "after that");
    say(get(pool, RESERVED), "reserved after that");
    TIDY_POOL(pool, stream);
}

/* --- allocating and freeing ---------------------------------------------------------------- */

static void alloc_wrong(void) {
    CUmemoryPool pool;
    CUstream stream;
    CUdeviceptr at = 0;
    NEED_POOL(pool, stream);
    ASK(cuMemAllocAsync(NULL, 4096, stream), "nowhere to put the address");
    ASK(cuMemAllocAsync(&at, 0, stream), "no bytes");
    ASK(alloc(NULL, 4096, pool, stream), "of a pool, nowhere to put the address");
    ASK(alloc(&at, 0, pool, stream), "of a pool, no bytes");
    ASK(alloc(&at, (size_t)1 << 50, pool, stream), "a pebibyte");
    ASK(alloc(&at, ~(size_t)0, pool, stream), "as many bytes as there are numbers");
    ASK(cuMemFreeAsync(0, stream), "freeing address 0");
    say_use("in the end", pool);
    TIDY_POOL(pool, stream);
}

static void alloc_contents(void) {
    CUmemoryPool pool;
    CUstream stream;
    CUdeviceptr at;
    NEED_POOL(pool, stream);
    NEED(alloc(&at, 33 * MIB, pool, stream));
    ASK(cuMemsetD32Async(at, 3, 33 * MIB / 4, stream), "a fill in the same stream");
    NEED(cuStreamSynchronize(stream));
    say(filled_with(at, 33 * MIB, 3), "contents right");
    NEED(write_words(at, 33 * MIB, 1));
    say(words_right(at, 33 * MIB, 1), "contents right after a copy");
    NEED(cuMemFreeAsync(at, stream));
    TIDY_POOL(pool, stream);
}

/* Streams of all kinds, and memory of the current pool. */
static void alloc_streams(void) {
    static const char *names[] = {"0", "legacy", "per thread", "blocking", "non-blocking"};
    CUstream streams[] = {NULL, CU_STREAM_LEGACY, CU_STREAM_PER_THREAD, NULL, NULL};
    NEED(cuStreamCreate(&streams[3], CU_STREAM_DEFAULT));
    NEED(cuStreamCreate(&streams[4], CU_STREAM_NON_BLOCKING));
    for (size_t i = 0; i < COUNT_OF(streams); i++) {
        CUdeviceptr at = 0;
        if (ASK(cuMemAllocAsync(&at, MIB, streams[i]), "stream %s", names[i])) continue;
        ASK(cuMemsetD32Async(at, 4, MIB / 4, streams[i]), "stream %s, a fill", names[i]);
        ASK(cuStreamSynchronize(streams[i]), "stream %s, its end", names[i]);
        say(filled_with(at, MIB, 4), "stream %s, contents right", names[i]);
        ASK(cuMemFreeAsync(at, streams[i]), "stream %s, freeing", names[i]);
        ASK(cuStreamSynchronize(streams[i]), "stream %s, in the end", names[i]);
    }
    TIDY(cuStreamDestroy(streams[3]));
    TIDY(cuStreamDestroy(streams[4]));
}

static void alloc_no_context(void) {
    CUmemoryPool pool;
    CUstream stream;
    CUdeviceptr at = 0;
    NEED_POOL(pool, stream);
    CHECK(cuCtxSetCurrent(NULL));
    if (!ASK(cuMemAllocAsync(&at, 4096, NULL), "in stream 0"))
        ASK(cuMemFreeAsync(at, NULL), "freeing it");
    if (!ASK(cuMemAllocAsync(&at, 4096, stream), "in a stream"))
        ASK(cuMemFreeAsync(at, stream), "freeing that");
    if (!ASK(alloc(&at, 4096, pool, stream), "of a pool"))
        ASK(cuMemFreeAsync(at, stream), "freeing that too");
    say(get(pool, THRESHOLD), "an attribute");
    ASK(cuMemPoolTrimTo(pool, 0), "trimming");
    CUmemoryPool other = NULL;
    if (!ASK(pool_new(&other), "a new pool")) ASK(cuMemPoolDestroy(other), "destroying it");
    CHECK(cuCtxSetCurrent(context));
    TIDY_POOL(pool, stream);
}

static void free_twice(void) {
    CUmemoryPool pool;
    CUstream stream;
    CUdeviceptr at;
    NEED_POOL(pool, stream);
    NEED(keep_all(pool));
    NEED(alloc(&at, MIB, pool, stream));
    ASK(cuMemFreeAsync(at, stream), "once");
    ASK(cuMemFreeAsync(at, stream), "twice");
    NEED(cuStreamSynchronize(stream));
    ASK(cuMemFreeAsync(at, stream), "after the stream's end");
    ASK(cuMemFree(at), "by cuMemFree");
    TIDY_POOL(pool, stream);
}

static void free_wrong(void) {
    CUmemoryPool pool;
    CUstream stream;
    CUdeviceptr at, plain;
    void *pinned;
    char *pageable = host_alloc(4096);
    NEED_POOL(pool, stream);
    NEED(alloc(&at, MIB, pool, stream));
    NEED(cuStreamSynchronize(stream));
    ASK(cuMemFreeAsync(at + 512, stream), "inside");
    ASK(cuMemFree(at + 512), "inside, by cuMemFree");
    NEED(cuMemHostAlloc(&pinned, 4096, 0));
    ASK(cuMemFreeAsync((CUdeviceptr)(uintptr_t)pinned, stream), "pinned memory");
    ASK(cuMemFreeAsync((CUdeviceptr)(uintptr_t)pageable, stream), "pageable memory");
    NEED(cuMemAlloc(&plain, MIB));
    ASK(cuMemFreeAsync(plain + 512, stream), "inside an allocation of cuMemAlloc");
    ASK(cuStreamSynchronize(stream), "the stream after that");
    NEED(write_words(at, MIB, 1));
    say(words_right(at, MIB, 1), "contents right");
    TIDY(cuMemFree(plain));
    TIDY(cuMemFreeHost(pinned));
    free(pageable);
    TIDY(cuMemFreeAsync(at, stream));
    TIDY_POOL(pool, stream);
}

static void free_plain_async(void) {
    CUstream stream;
    CUdeviceptr at;
    NEED(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    NEED(cuMemAlloc(&at, UNIT));
    int answer = ASK(cuMemFreeAsync(at, stream), "memory of cuMemAlloc");
    ASK(cuStreamSynchronize(stream), "the stream after that");
    say_range("then", at);
    if (answer) TIDY(cuMemFree(at));
    TIDY(cuStreamDestroy(stream));
}

static void free_sync(void) {
    CUmemoryPool pool;
    CUstream stream;
    CUdeviceptr at;
    NEED_POOL(pool, stream);
    NEED(alloc(&at, MIB, pool, stream));
    NEED(cuStreamSynchronize(stream));
    ASK(cuMemFree(at), "cuMemFree of memory of a pool");
    say_use("then", pool);
    ASK(cuMemFreeAsync(at, stream), "freeing it again");
    TIDY_POOL(pool, stream);
}

static void free_sync_waits(void) {
    CUmemoryPool pool;
    CUstream stream;
    CUdeviceptr at;
    NEED_POOL(pool, stream);
    NEED(keep_all(pool));
    NEED(alloc(&at, MIB, pool, stream));
    if (!hold(stream)) return;
    ASK(cuMemsetD32Async(at, 1, MIB / 4, stream), "a fill in a stream that is held up");
    pthread_t later = go(raise_gate_later, NULL);
    ASK(cuMemFree(at), "cuMemFree");
    say((long long)*gate, "it has waited");
    join(later);
    let_go();
    TIDY_POOL(pool, stream);
}

static void free_elsewhere(void) {
    CUmemoryPool pool;
    CUstream stream, other;
    CUevent event;
    CUdeviceptr at;
    NEED_POOL(pool, stream);
    NEED(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
    NEED(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    NEED(alloc(&at, MIB, pool, stream));
    NEED(cuMemsetD32Async(at, 6, MIB / 4, stream));
    NEED(cuEventRecord(event, stream));
    NEED(cuStreamWaitEvent(other, event, 0));
    ASK(cuMemFreeAsync(at, other), "in another stream");
    ASK(cuStreamSynchronize(other), "the other stream's end");
    say(get(pool, USED), "used then");
    TIDY(cuEventDestroy(event));
    TIDY(cuStreamDestroy(other));
    TIDY_POOL(pool, stream);
}

static void read_elsewhere(void) {
    CUmemoryPool pool;
    CUstream stream, other;
    CUevent event;
    CUdeviceptr at, copy;
    NEED_POOL(pool, stream);
    NEED(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
    NEED(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    NEED(cuMemAlloc(&copy, MIB));
    if (!hold(stream)) return;
    NEED(alloc(&at, MIB, pool, stream));
    NEED(cuMemsetD32Async(at, 6, MIB / 4, stream));
    NEED(cuEventRecord(event, stream));
    NEED(cuStreamWaitEvent(other, event, 0));
    ASK(cuMemcpyDtoDAsync(copy, at, MIB, other), "a copy in another stream, after an event");
    ASK(cuMemFreeAsync(at, other), "freeing there");
    let_go();
    say(filled_with(copy, MIB, 6), "contents right");
    TIDY(cuMemFree(copy));
    TIDY(cuEventDestroy(event));
    TIDY(cuStreamDestroy(other));
    TIDY_POOL(pool, stream);
}

/* Freed and used again in one stream, while that has not even begun: order keeps the two apart. */
static void order_in_stream(void) {
    CUmemoryPool pool;
    CUstream stream;
    CUdeviceptr at, again, copy;
    NEED_POOL(pool, stream);
    NEED(cuMemAlloc(&copy, 2 * MIB));
    NEED(alloc(&at, MIB, pool, stream));
    if (!hold(stream)) return;
    NEED(cuMemsetD32Async(at, 6, MIB / 4, stream));
    NEED(cuMemcpyDtoDAsync(copy, at, MIB, stream));
    ASK(cuMemFreeAsync(at, stream), "freeing behind work");
    ASK(alloc(&again, MIB, pool, stream), "allocating behind that");
    say(again == at, "the same address");
    NEED(cuMemsetD32Async(again, 7, MIB / 4, stream));
    NEED(cuMemcpyDtoDAsync(copy + MIB, again, MIB, stream));
    let_go();
    say(filled_with(copy, MIB, 6), "the first contents right");
    say(filled_with(copy + MIB, MIB, 7), "the second contents right");
    TIDY(cuMemFree(copy));
    TIDY(cuMemFreeAsync(again, stream));
    TIDY_POOL(pool, stream);
}

/* --- when memory is used again ------------------------------------------------------------- */

static void reuse_sizes(void) {
    static const size_t sizes[][2] = {
        {MIB, MIB},  {MIB, MIB / 2},       {MIB, 2 * MIB},       {4 * MIB, 512},    {512, 1},
        {512, 1024}, {33 * MIB, 33 * MIB}, {40 * MIB, 33 * MIB}, {8 * MIB, 3 * MIB}};
    for (size_t i = 0; i < COUNT_OF(sizes); i++) {
        CUmemoryPool pool;
        CUstream stream;
        CUdeviceptr at, again;
        NEED_POOL(pool, stream);
        NEED(keep_all(pool));
        NEED(alloc(&at, sizes[i][0], pool, stream));
        NEED(cuMemFreeAsync(at, stream));
        NEED(alloc(&again, sizes[i][1], pool, stream));
        say(again == at, "%zu after %zu bytes, at the same address", sizes[i][1], sizes[i][0]);
        say(get(pool, RESERVED), "%zu after %zu bytes, reserved", sizes[i][1], sizes[i][0]);
        NEED(cuMemFreeAsync(again, stream));
        TIDY_POOL(pool, stream);
    }
}

/* Which of several free pieces is taken. */
static void reuse_choice(void) {
    CUmemoryPool pool;
    CUstream stream;
    CUdeviceptr at[6], again;
    NEED_POOL(pool, stream);
    NEED(keep_all(pool));
    for (int i = 0; i < 6; i++) NEED(alloc(&at[i], (size_t)(i + 1) * MIB, pool, stream));
    for (int i = 0; i < 6; i++)
        say(((long long)at[i] - (long long)at[0]) / (long long)MIB, "piece %d, MiB on", i);
    NEED(cuMemFreeAsync(at[1], stream));
    NEED(cuMemFreeAsync(at[3], stream));
    NEED(cuMemFreeAsync(at[5], stream));
    NEED(alloc(&again, 2 * MIB, pool, stream));
    for (int i = 1; i < 6; i += 2) say(again == at[i], "2 MiB where piece %d was", i);
    NEED(cuMemFreeAsync(again, stream));
    NEED(alloc(&again, 3 * MIB, pool, stream));
    for (int i = 1; i < 6; i += 2) say(again == at[i], "3 MiB where piece %d was", i);
    NEED(cuMemFreeAsync(again, stream));
    for (int i = 0; i < 6; i += 2) NEED(cuMemFreeAsync(at[i], stream));
    NEED(alloc(&again, 21 * MIB, pool, stream));
    say(again == at[0], "21 MiB where all were");
    NEED(cuMemFreeAsync(again, stream));
    TIDY_POOL(pool, stream);
}

/* Memory is freed in one stream, which may be held up, and allocated in another. */
static void reuse_between(const char *what, int attribute, int ordered, int busy) {
    for (int on = 1; on >= 0; on--) {
        CUmemoryPool pool;
        CUstream first, second;
        CUevent event;
        CUdeviceptr at, again;
        NEED_POOL(pool, first);
        NEED(cuStreamCreate(&second, CU_STREAM_NON_BLOCKING));
        NEED(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
        NEED(keep_all(pool));
        /* Only one of the three ways is looked at. */
        for (int i = FOLLOW; i <= INTERNAL; i++)
            NEED(set(pool, i, i == attribute ? (unsigned)on : 0));
        NEED(alloc(&at, MIB, pool, first));
        NEED(cuMemsetD32Async(at, 1, MIB / 4, first));
        if (busy && !hold(first)) return;
        NEED(cuMemFreeAsync(at, first));
        NEED(cuEventRecord(event, first));
        if (ordered) NEED(cuStreamWaitEvent(second, event, 0));
        if (!busy) NEED(cuStreamSynchronize(first));
        ASK(alloc(&again, MIB, pool, second), "%s %d", what, on);
        say(again == at, "%s %d, the same address", what, on);
        if (busy) {
            say(ends_soon(second), "%s %d, the second stream while the first is held up", what, on);
            let_go();
            say(ends_soon(second), "%s %d, the second stream after that", what, on);
        }
        NEED(cuMemFreeAsync(again, second));
        TIDY(cuStreamSynchronize(second));
        TIDY(cuStreamDestroy(second));
        TIDY(cuEventDestroy(event));
        TIDY_POOL(pool, first);
    }
}

static void reuse_none(void) { reuse_between("no way, without order", 0, 0, 1); }
static void reuse_none_ended(void) { reuse_between("no way, after the end", 0, 0, 0); }
static void reuse_follow(void) { reuse_between("following events", FOLLOW, 1, 1); }
static void reuse_follow_unordered(void) {
    reuse_between("following events, without one", FOLLOW, 0, 1);
}
static void reuse_follow_ended(void) {
    reuse_between("following events, after the end", FOLLOW, 1, 0);
}
static void reuse_opportunistic(void) {
    reuse_between("opportunistic, after the end", OPPORTUNISTIC, 0, 0);
}
static void reuse_opportunistic_busy(void) { reuse_between("opportunistic", OPPORTUNISTIC, 0, 1); }
static void reuse_internal(void) { reuse_between("internal order", INTERNAL, 0, 1); }
static void reuse_internal_ordered(void) {
    reuse_between("internal order, with an event", INTERNAL, 1, 1);
}
static void reuse_internal_ended(void) {
    reuse_between("internal order, after the end", INTERNAL, 0, 0);
}

/* Internal order when there would be other memory in the pool. */
static void reuse_internal_choice(void) {
    CUmemoryPool pool;
    CUstream first, second;
    CUdeviceptr at, other, again;
    NEED_POOL(pool, first);
    NEED(cuStreamCreate(&second, CU_STREAM_NON_BLOCKING));
    NEED(keep_all(pool));
    NEED(alloc(&at, MIB, pool, first));
    NEED(alloc(&other, 4 * MIB, pool, second));
    NEED(cuMemFreeAsync(other, second));
    NEED(cuStreamSynchronize(second));
    if (!hold(first)) return;
    NEED(cuMemFreeAsync(at, first));
    NEED(alloc(&again, MIB, pool, second));
    say(again == at, "memory that the held up stream frees is taken");
    say(again >= other && again < other + 4 * MIB, "memory that is free is taken");
    say(ends_soon(second), "the second stream");
    let_go();
    NEED(cuMemFreeAsync(again, second));
    TIDY(cuStreamSynchronize(second));
    TIDY(cuStreamDestroy(second));
    TIDY_POOL(pool, first);
}

/* --- destroying ---------------------------------------------------------------------------- */

static void destroy_with_memory(void) {
    CUmemoryPool pool;
    CUstream stream;
    CUdeviceptr at;
    NEED_POOL(pool, stream);
    NEED(alloc(&at, MIB, pool, stream));
    NEED(cuStreamSynchronize(stream));
    NEED(write_words(at, MIB, 1));
    ASK(cuMemPoolDestroy(pool), "destroying a pool that is in use");
    say(words_right(at, MIB, 1), "contents right");
    say_attributes("its memory", at, pool);
    ASK(cuMemFreeAsync(at, stream), "freeing its memory");
    ASK(cuStreamSynchronize(stream), "the stream after that");
    TIDY(cuStreamDestroy(stream));
}

static void destroy_stream_with_memory(void) {
    CUmemoryPool pool;
    CUstream stream;
    CUdeviceptr at;
    NEED_POOL(pool, stream);
    NEED(alloc(&at, MIB, pool, stream));
    ASK(cuStreamDestroy(stream), "destroying the stream of an allocation");
    NEED(write_words(at, MIB, 1));
    say(words_right(at, MIB, 1), "contents right");
    ASK(cuMemFreeAsync(at, NULL), "freeing in stream 0");
    ASK(cuStreamSynchronize(NULL), "stream 0 after that");
    say(get(pool, USED), "used then");
    TIDY(cuMemPoolDestroy(pool));
}

/* --- the driver's answers about such memory ------------------------------------------------ */

static void pointer_attributes(void) {
    CUmemoryPool pool;
    CUstream stream;
    CUdeviceptr first, second;
    NEED_POOL(pool, stream);
    NEED(alloc(&first, 1000, pool, stream));
    NEED(alloc(&second, 3 * MIB, pool, stream));
    say_attributes("small", first, pool);
    say_attributes("large", second, pool);
    say_attributes("inside the large", second + MIB + 1, pool);
    say_range("small", first + 999);
    say_range("large", second + MIB + 1);
    NEED(cuMemFreeAsync(first, stream));
    NEED(cuMemFreeAsync(second, stream));
    TIDY_POOL(pool, stream);
}

static void pointer_attributes_freed(void) {
    CUmemoryPool pool;
    CUstream stream;
    CUdeviceptr at;
    NEED_POOL(pool, stream);
    NEED(keep_all(pool));
    NEED(alloc(&at, MIB, pool, stream));
    if (!hold(stream)) return;
    NEED(cuMemFreeAsync(at, stream));
    say_attributes("freed in a stream that is held up", at, pool);
    say_range("freed in a stream that is held up", at);
    let_go();
    say_attributes("freed", at, pool);
    say_range("freed", at);
    NEED(cuMemPoolTrimTo(pool, 0));
    say_attributes("trimmed", at, pool);
    TIDY_POOL(pool, stream);
}

static void pointer_attributes_default(void) {
    CUmemoryPool pool;
    CUdeviceptr at;
    NEED(cuDeviceGetDefaultMemPool(&pool, 0));
    NEED(cuMemAllocAsync(&at, UNIT, NULL));
    for (int i = 1; i <= ATTRIBUTES; i++) {
        unsigned long long value;
        if (i == 18 || i == 19) continue; /* earlier memory is in the same mapping */
        ASK(attribute_of(at, i, pool, &value), "attribute %d", i);
        say((long long)value, "attribute %d's value", i);
    }
    TIDY(cuMemFreeAsync(at, NULL));
}

/* --- access -------------------------------------------------------------------------------- */

static void access_places(void) {
    static const int places[][2] = {{1, 0},    {1, -1},        {1, 99}, {0, 0},
                                    {HOST, 0}, {HOST_NUMA, 0}, {77, 0}};
    CUmemoryPool pool;
    NEED(pool_new(&pool));
    for (size_t i = 0; i < COUNT_OF(places); i++) {
        CUmemLocation place = {(CUmemLocationType)places[i][0], places[i][1]};
        for (int flags = 0; flags < 4; flags++) {
            CUmemAccessDesc access = {place, (CUmemAccess_flags)flags};
            CUmemAccess_flags got = (CUmemAccess_flags)77;
            ASK(cuMemPoolSetAccess(pool, &access, 1), "%d for %d, %d", flags, places[i][0],
                places[i][1]);
            ASK(cuMemPoolGetAccess(&got, pool, &place), "after %d for %d, %d", flags, places[i][0],
                places[i][1]);
            say(got, "access after %d for %d, %d", flags, places[i][0], places[i][1]);
        }
    }
    TIDY(cuMemPoolDestroy(pool));
}

static void access_wrong(void) {
    CUmemAccessDesc both = {device, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUmemLocation place = device;
    CUmemAccess_flags got;
    CUmemoryPool pool;
    NEED(pool_new(&pool));
    ASK(cuMemPoolSetAccess(pool, &both, 0), "none of them");
    ASK(cuMemPoolSetAccess(pool, NULL, 1), "one, from nowhere");
    ASK(cuMemPoolSetAccess(pool, (CUmemAccessDesc[]){both, both}, 2), "the same twice");
    ASK(cuMemPoolGetAccess(NULL, pool, &place), "nowhere to put it");
    ASK(cuMemPoolGetAccess(&got, pool, NULL), "no location");
    TIDY(cuMemPoolDestroy(pool));
}

/* --- sharing ------------------------------------------------------------------------------- */

static CUresult pool_new_fd(CUmemoryPool *pool) {
    CUmemPoolProps kind = kind_of(FD, 0);
    return cuMemPoolCreate(pool, &kind);
}

static CUresult export_fd(int *descriptor, CUmemoryPool pool) {
    return cuMemPoolExportToShareableHandle(descriptor, pool,
                                            CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
}

static CUresult import_fd(CUmemoryPool *pool, int descriptor) {
    return cuMemPoolImportFromShareableHandle(pool, (void *)(intptr_t)descriptor,
                                              CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
}

static void export_plain(void) {
    CUmemPoolPtrExportData data;
    CUmemoryPool pool, first;
    CUstream stream;
    CUdeviceptr at;
    int descriptor = -1;
    char room[64];
    NEED_POOL(pool, stream);
    NEED(cuDeviceGetDefaultMemPool(&first, 0));
    NEED(alloc(&at, MIB, pool, stream));
    ASK(export_fd(&descriptor, pool), "a pool that was not made for it");
    ASK(export_fd(&descriptor, first), "the default pool");
    ASK(cuMemPoolExportPointer(&data, at), "a pointer of such a pool");
    ASK(cuIpcGetMemHandle((CUipcMemHandle *)room, at), "a handle of the older kind");
    NEED(cuMemFreeAsync(at, stream));
    TIDY_POOL(pool, stream);
}

static void export_wrong(void) {
    static const int types[] = {0, 2, 4, 8, 9, 16};
    CUmemPoolPtrExportData data;
    CUmemoryPool pool;
    CUdeviceptr plain;
    int descriptor = -1;
    char room[64];
    NEED(pool_new_fd(&pool));
    for (size_t i = 0; i < COUNT_OF(types); i++) {
        ASK(cuMemPoolExportToShareableHandle(room, pool, (CUmemAllocationHandleType)types[i], 0),
            "as type %d", types[i]);
    }
    ASK(cuMemPoolExportToShareableHandle(&descriptor, pool,
                                         CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 1),
        "flags 1");
    if (descriptor >= 0) close(descriptor);
    ASK(export_fd(NULL, pool), "nowhere to put it");
    ASK(export_fd(&descriptor, NULL), "no pool");
    NEED(cuMemAlloc(&plain, MIB));
    ASK(cuMemPoolExportPointer(&data, plain), "a pointer of cuMemAlloc");
    ASK(cuMemPoolExportPointer(&data, 0), "address 0");
    ASK(cuMemPoolExportPointer(NULL, plain), "nowhere to put a pointer");
    TIDY(cuMemFree(plain));
    TIDY(cuMemPoolDestroy(pool));
}

static void import_wrong(void) {
    CUmemPoolPtrExportData data = {{0}};
    CUmemoryPool pool, imported = NULL;
    CUdeviceptr at = 0;
    int ends[2];
    REQUIRE(pipe(ends) == 0, "no pipe");
    NEED(pool_new_fd(&pool));
    ASK(import_fd(&imported, -1), "descriptor -1");
    ASK(import_fd(&imported, ends[0]), "a pipe");
    ASK(import_fd(NULL, ends[0]), "nowhere to put it");
    ASK(cuMemPoolImportPointer(&at, pool, &data), "a pointer into a pool that was not imported");
    ASK(cuMemPoolImportPointer(&at, NULL, &data), "a pointer into no pool");
    close(ends[0]);
    close(ends[1]);
    TIDY(cuMemPoolDestroy(pool));
}

static void import_here(void) {
    CUmemPoolPtrExportData data;
    CUmemoryPool pool, imported = NULL;
    CUstream stream;
    CUdeviceptr at, here = 0, made = 0;
    int descriptor = -1;
    NEED(pool_new_fd(&pool));
    NEED(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    NEED(alloc(&at, 2 * MIB, pool, stream));
    NEED(cuStreamSynchronize(stream));
    ASK(cuIpcGetMemHandle((CUipcMemHandle *)data.reserved, at), "a handle of the older kind");
    say_attributes("exportable", at, pool);
    ASK(export_fd(&descriptor, pool), "exporting a pool");
    ASK(cuMemPoolExportPointer(&data, at), "exporting a pointer");
    if (!ASK(import_fd(&imported, descriptor), "importing the pool in the same process")) {
        say(imported == pool, "the same pool");
        ASK(alloc(&made, MIB, imported, stream), "an allocation of the imported pool");
        for (int i = FOLLOW; i <= USED_HIGH; i++)
            say(get(imported, i), "the imported pool's attribute %d", i);
        ASK(set(imported, THRESHOLD, 1), "setting its threshold");
        ASK(cuDeviceSetMemPool(0, imported), "making it the current pool");
        ASK(export_fd(&(int){-1}, imported), "exporting the imported pool");
        if (!ASK(cuMemPoolImportPointer(&here, imported, &data), "importing the pointer")) {
            say(here == at, "the same address");
            NEED(write_words(at, 2 * MIB, 1));
            say(words_right(here, 2 * MIB, 1), "written by the one, read by the imported");
            NEED(write_words(here, 2 * MIB, 2));
            say(words_right(at, 2 * MIB, 2), "written by the imported, read by the one");
            say_attributes("imported", here, imported);
            say_range("imported", here + MIB);
            ASK(cuMemFreeAsync(here, stream), "freeing the imported pointer");
            NEED(cuStreamSynchronize(stream));
        }
        ASK(cuMemPoolDestroy(imported), "destroying the imported pool");
    }
    if (descriptor >= 0) close(descriptor);
    say(get(pool, USED), "used in the end");
    ASK(cuMemFreeAsync(at, stream), "freeing the one");
    TIDY_POOL(pool, stream);
}

/* --- in graphs ----------------------------------------------------------------------------- */

static void say_graph_use(const char *what) {
    for (int i = 0; i <= 4; i++) {
        unsigned long long value = 0;
        CUresult answer = CALL(cuDeviceGetGraphMemAttribute(0, (CUgraphMem_attribute)i, &value));
        printf("%s %s, graphs' attribute %d: %d, %llu\n", rule_now, what, i, (int)answer, value);
    }
}

static void say_nodes(CUgraph graph) {
    CUgraphNode nodes[32];
    size_t count = COUNT_OF(nodes);
    int kinds[16] = {0};
    if (ASK(cuGraphGetNodes(graph, nodes, &count), "its nodes")) return;
    say((long long)count, "how many nodes");
    for (size_t i = 0; i < count && i < COUNT_OF(nodes); i++) {
        CUgraphNodeType type = (CUgraphNodeType)0;
        TIDY(cuGraphNodeGetType(nodes[i], &type));
        kinds[(unsigned)type % 16]++;
        if ((int)type == CU_GRAPH_NODE_TYPE_MEM_ALLOC) {
            CUDA_MEM_ALLOC_NODE_PARAMS params;
            memset(&params, 0, sizeof params);
            ASK(cuGraphMemAllocNodeGetParams(nodes[i], &params), "an allocation's parameters");
            say((long long)params.bytesize, "its bytes");
            say(params.poolProps.location.type, "its location");
            say(params.poolProps.allocType, "its type");
            say((long long)params.accessDescCount, "its accesses");
        }
    }
    for (int kind = 0; kind < 16; kind++) {
        if (kinds[kind]) say(kinds[kind], "nodes of type %d", kind);
    }
}

/* Records an allocation, a fill, a copy to other memory, and unless told otherwise a free. */
static CUgraph record(CUstream stream, CUmemoryPool pool, CUdeviceptr copy, CUdeviceptr *at,
                      int with_free) {
    CUgraph graph = NULL;
    *at = 0;
    ASK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL), "capture");
    if (pool) ASK(alloc(at, MIB, pool, stream), "an allocation of a pool into a graph");
    else ASK(cuMemAllocAsync(at, MIB, stream), "an allocation into a graph");
    ASK(cuMemsetD32Async(*at, 5, MIB / 4, stream), "a fill into a graph");
    ASK(cuMemcpyDtoDAsync(copy, *at, MIB, stream), "a copy into a graph");
    if (with_free) ASK(cuMemFreeAsync(*at, stream), "a free into a graph");
    ASK(cuStreamEndCapture(stream, &graph), "the end of the capture");
    return graph;
}

#define NEED_GRAPH(stream, copy, graph, at, pool, with_free)                                       \
    NEED(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));                                         \
    NEED(cuMemAlloc(&copy, MIB));                                                                  \
    graph = record(stream, pool, copy, &at, with_free);                                            \
    if (!graph) {                                                                                  \
        TIDY(cuMemFree(copy));                                                                     \
        TIDY(cuStreamDestroy(stream));                                                             \
        return;                                                                                    \
    }

#define TIDY_GRAPH(stream, copy, graph)                                                            \
    TIDY(cuGraphDestroy(graph));                                                                   \
    TIDY(cuMemFree(copy));                                                                         \
    TIDY(cuStreamSynchronize(stream));                                                             \
    TIDY(cuStreamDestroy(stream));                                                                 \
    TIDY(cuDeviceGraphMemTrim(0))

/* Launches, waits, and checks the copied contents. */
static void launch(const char *what, CUgraphExec exec, CUstream stream, CUdeviceptr copy) {
    if (CALL(cuMemsetD32(copy, 0, MIB / 4)) || CALL(cuStreamSynchronize(NULL))) return;
    if (ASK(cuGraphLaunch(exec, stream), "%s", what)) return;
    ASK(cuStreamSynchronize(stream), "%s, its end", what);
    say(filled_with(copy, MIB, 5), "%s, contents right", what);
}

static void graph_alloc_free(void) {
    CUstream stream;
    CUdeviceptr copy, at;
    CUgraph graph;
    CUgraphExec exec = NULL, other = NULL;
    say_graph_use("before");
    NEED_GRAPH(stream, copy, graph, at, NULL, 1);
    say_nodes(graph);
    if (!ASK(cuGraphInstantiate(&exec, graph, 0), "instantiating")) {
        say_graph_use("instantiated");
        launch("a launch", exec, stream, copy);
        say_graph_use("launched");
        launch("a second launch", exec, stream, copy);
        if (!ASK(cuGraphInstantiate(&other, graph, 0), "instantiating twice"))
            TIDY(cuGraphExecDestroy(other));
        TIDY(cuGraphExecDestroy(exec));
        if (!ASK(cuGraphInstantiate(&other, graph, 0), "instantiating again"))
            TIDY(cuGraphExecDestroy(other));
    }
    ASK(cuDeviceGraphMemTrim(0), "trimming");
    say_graph_use("trimmed");
    TIDY_GRAPH(stream, copy, graph);
}

static void graph_alloc_only(void) {
    CUstream stream;
    CUdeviceptr copy, at;
    CUgraph graph;
    CUgraphExec exec = NULL;
    NEED_GRAPH(stream, copy, graph, at, NULL, 0);
    say_nodes(graph);
    if (!ASK(cuGraphInstantiate(&exec, graph, 0), "instantiating")) {
        launch("a launch", exec, stream, copy);
        say(filled_with(at, MIB, 5), "the graph's memory right");
        say_attributes("memory of a graph", at, NULL);
        say_range("memory of a graph", at + 5);
        launch("a launch without a free before", exec, stream, copy);
        ASK(cuMemFreeAsync(at, stream), "freeing it in the stream");
        launch("a launch after that", exec, stream, copy);
        ASK(cuMemFree(at), "freeing it by cuMemFree");
        launch("a launch after that too", exec, stream, copy);
        ASK(cuMemFreeAsync(at, stream), "freeing it in the end");
        ASK(cuMemFreeAsync(at, stream), "freeing it twice");
        ASK(cuStreamSynchronize(stream), "the stream after that");
        say_graph_use("freed");
        TIDY(cuGraphExecDestroy(exec));
    }
    TIDY_GRAPH(stream, copy, graph);
    say_graph_use("destroyed");
}

static void graph_free_before_launch(void) {
    CUstream stream;
    CUdeviceptr copy, at;
    CUgraph graph;
    NEED_GRAPH(stream, copy, graph, at, NULL, 0);
    say_attributes("memory of a graph that never ran", at, NULL);
    ASK(cuMemFreeAsync(at, stream), "freeing it before a launch");
    ASK(cuStreamSynchronize(stream), "the stream after that");
    TIDY_GRAPH(stream, copy, graph);
}

static void graph_auto_free(void) {
    CUstream stream;
    CUdeviceptr copy, at;
    CUgraph graph;
    CUgraphExec exec = NULL;
    NEED_GRAPH(stream, copy, graph, at, NULL, 0);
    if (!ASK(cuGraphInstantiate(&exec, graph, CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH),
             "instantiating so that a launch frees")) {
        launch("a launch", exec, stream, copy);
        launch("a second launch", exec, stream, copy);
        say(filled_with(at, MIB, 5), "the graph's memory right");
        ASK(cuMemFreeAsync(at, stream), "freeing it");
        launch("a launch after that", exec, stream, copy);
        ASK(cuMemFreeAsync(at, stream), "freeing it in the end");
        ASK(cuStreamSynchronize(stream), "the stream after that");
        TIDY(cuGraphExecDestroy(exec));
    }
    TIDY_GRAPH(stream, copy, graph);
}

/* The graph is gone, its memory is not. */
static void graph_destroyed_first(void) {
    CUstream stream;
    CUdeviceptr copy, at;
    CUgraph graph;
    CUgraphExec exec = NULL;
    NEED_GRAPH(stream, copy, graph, at, NULL, 0);
    if (!ASK(cuGraphInstantiate(&exec, graph, 0), "instantiating")) {
        launch("a launch", exec, stream, copy);
        ASK(cuGraphExecDestroy(exec), "destroying what was launched");
        say(filled_with(at, MIB, 5), "the graph's memory right");
        ASK(cuMemFreeAsync(at, stream), "freeing it");
        ASK(cuStreamSynchronize(stream), "the stream after that");
    }
    TIDY_GRAPH(stream, copy, graph);
}

static void graph_of_pool(void) {
    CUmemoryPool pool;
    CUstream stream;
    CUdeviceptr copy, at;
    CUgraph graph;
    CUgraphExec exec = NULL;
    NEED(pool_new(&pool));
    NEED_GRAPH(stream, copy, graph, at, pool, 1);
    say_nodes(graph);
    say(get(pool, USED), "used of the pool");
    if (!ASK(cuGraphInstantiate(&exec, graph, 0), "instantiating")) {
        launch("a launch", exec, stream, copy);
        say(get(pool, RESERVED), "reserved by the pool");
        TIDY(cuGraphExecDestroy(exec));
    }
    TIDY_GRAPH(stream, copy, graph);
    TIDY(cuMemPoolDestroy(pool));
}

static void graph_frees_earlier(void) {
    CUmemoryPool pool;
    CUstream stream;
    CUdeviceptr at;
    CUgraph graph = NULL;
    NEED_POOL(pool, stream);
    NEED(alloc(&at, MIB, pool, stream));
    NEED(cuStreamSynchronize(stream));
    NEED(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    int answer = ASK(cuMemFreeAsync(at, stream), "a free of memory from before the capture");
    ASK(cuStreamEndCapture(stream, &graph), "the end of the capture");
    if (graph) {
        CUgraphExec exec = NULL;
        say_nodes(graph);
        if (!ASK(cuGraphInstantiate(&exec, graph, 0), "instantiating")) {
            ASK(cuGraphLaunch(exec, stream), "a launch");
            ASK(cuStreamSynchronize(stream), "its end");
            TIDY(cuGraphExecDestroy(exec));
        }
        TIDY(cuGraphDestroy(graph));
    }
    say(get(pool, USED), "used then");
    if (answer) ASK(cuMemFreeAsync(at, stream), "a free outside");
    TIDY_POOL(pool, stream);
}

static void graph_twice_at_once(void) {
    CUstream stream;
    CUdeviceptr copy, at;
    CUgraph graph, clone = NULL, parent = NULL;
    CUgraphNode node;
    NEED_GRAPH(stream, copy, graph, at, NULL, 1);
    if (!ASK(cuGraphClone(&clone, graph), "a clone")) TIDY(cuGraphDestroy(clone));
    NEED(cuGraphCreate(&parent, 0));
    ASK(cuGraphAddChildGraphNode(&node, parent, NULL, 0, graph), "a part of another graph");
    TIDY(cuGraphDestroy(parent));
    TIDY_GRAPH(stream, copy, graph);
}

/* Nodes that are added by hand. */
static void graph_nodes(void) {
    CUDA_MEM_ALLOC_NODE_PARAMS params = {.poolProps = kind_of(0, 0), .bytesize = MIB};
    CUgraph graph;
    CUgraphNode made, freed;
    CUgraphExec exec = NULL;
    CUdeviceptr got = 0;
    NEED(cuGraphCreate(&graph, 0));
    ASK(cuGraphAddMemAllocNode(&made, graph, NULL, 0, &params), "an allocation");
    say(params.dptr != 0, "there is an address");
    ASK(cuGraphAddMemFreeNode(&freed, graph, &made, 1, params.dptr + 512), "a free inside it");
    if (!ASK(cuGraphAddMemFreeNode(&freed, graph, &made, 1, params.dptr), "a free")) {
        ASK(cuGraphMemFreeNodeGetParams(freed, &got), "its address");
        say(got == params.dptr, "the same address");
    }
    ASK(cuGraphAddMemFreeNode(&freed, graph, &made, 1, params.dptr), "a second free");
    params.bytesize = 0;
    ASK(cuGraphAddMemAllocNode(&made, graph, NULL, 0, &params), "no bytes");
    params.bytesize = MIB;
    params.poolProps.location.id = 99;
    ASK(cuGraphAddMemAllocNode(&made, graph, NULL, 0, &params), "device 99");
    params.poolProps = kind_of(FD, 0);
    ASK(cuGraphAddMemAllocNode(&made, graph, NULL, 0, &params), "to be shared");
    if (!ASK(cuGraphInstantiate(&exec, graph, 0), "instantiating")) {
        ASK(cuGraphLaunch(exec, NULL), "a launch");
        ASK(cuStreamSynchronize(NULL), "its end");
        TIDY(cuGraphExecDestroy(exec));
    }
    TIDY(cuGraphDestroy(graph));
    TIDY(cuDeviceGraphMemTrim(0));
}

static void graph_marks(void) {
    unsigned long long zero = 0, five = 5;
    for (int i = 0; i <= 4; i++) {
        ASK(cuDeviceSetGraphMemAttribute(0, (CUgraphMem_attribute)i, &zero), "attribute %d to 0",
            i);
        ASK(cuDeviceSetGraphMemAttribute(0, (CUgraphMem_attribute)i, &five), "attribute %d to 5",
            i);
    }
    ASK(cuDeviceGetGraphMemAttribute(99, CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT, &zero),
        "of device 99");
    ASK(cuDeviceGetGraphMemAttribute(0, CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT, NULL),
        "nowhere to put it");
    ASK(cuDeviceGraphMemTrim(99), "trimming device 99");
    ASK(cuDeviceGraphMemTrim(0), "trimming");
    say_graph_use("then");
}

static void in_capture(void) {
    CUmemoryPool pool, other = NULL;
    CUstream stream;
    CUdeviceptr at = 0;
    CUgraph graph = NULL;
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    NEED_POOL(pool, stream);
    NEED(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    ASK(pool_new(&other), "a new pool");
    say(get(pool, USED), "an attribute");
    ASK(keep_all(pool), "setting an attribute");
    ASK(cuMemPoolTrimTo(pool, 0), "trimming");
    if (other) ASK(cuMemPoolDestroy(other), "destroying it");
    ASK(cuStreamIsCapturing(stream, &status), "the capture");
    say(status, "its state");
    ASK(alloc(&at, MIB, pool, NULL), "an allocation in stream 0");
    ASK(cuStreamIsCapturing(stream, &status), "the capture then");
    say(status, "its state then");
    ASK(cuStreamEndCapture(stream, &graph), "the end of the capture");
    if (graph) TIDY(cuGraphDestroy(graph));
    if (at) TIDY(cuMemFreeAsync(at, NULL));
    TIDY(cuStreamSynchronize(NULL));
    TIDY_POOL(pool, stream);
}

/* Another stream captures, in each of the modes that a capture can be in. */
static void capture_elsewhere(void) {
    for (int mode = CU_STREAM_CAPTURE_MODE_GLOBAL; mode <= CU_STREAM_CAPTURE_MODE_RELAXED; mode++) {
        CUmemoryPool pool;
        CUstream stream, other;
        CUdeviceptr at = 0, plain;
        CUgraph graph = NULL;
        NEED_POOL(pool, stream);
        NEED(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
        NEED(cuMemAlloc(&plain, MIB));
        NEED(cuStreamBeginCapture(other, (CUstreamCaptureMode)mode));
        ASK(alloc(&at, MIB, pool, stream), "mode %d, an allocation", mode);
        if (at) ASK(cuMemFreeAsync(at, stream), "mode %d, freeing it", mode);
        ASK(cuStreamEndCapture(other, &graph), "mode %d, the end of the capture", mode);
        if (graph) TIDY(cuGraphDestroy(graph));
        graph = NULL;
        NEED(alloc(&at, MIB, pool, stream));
        NEED(cuStreamBeginCapture(other, (CUstreamCaptureMode)mode));
        int answer = ASK(cuMemFreeAsync(at, stream), "mode %d, freeing what was there", mode);
        ASK(cuStreamEndCapture(other, &graph), "mode %d, the end of that capture", mode);
        if (graph) TIDY(cuGraphDestroy(graph));
        if (answer) TIDY(cuMemFreeAsync(at, stream));
        graph = NULL;
        NEED(cuStreamBeginCapture(other, (CUstreamCaptureMode)mode));
        answer = ASK(cuMemFreeAsync(plain, stream), "mode %d, freeing memory of cuMemAlloc", mode);
        ASK(cuStreamEndCapture(other, &graph), "mode %d, the end of the last capture", mode);
        if (graph) TIDY(cuGraphDestroy(graph));
        if (answer) TIDY(cuMemFree(plain));
        TIDY(cuStreamDestroy(other));
        TIDY_POOL(pool, stream);
    }
}

/* --- rules that may end the process -------------------------------------------------------- */

static void destroyed_pool(void) {
    CUmemoryPool pool;
    CUdeviceptr at = 0;
    NEED(pool_new(&pool));
    NEED(cuMemPoolDestroy(pool));
    say(get(pool, USED), "an attribute");
    ASK(cuMemPoolTrimTo(pool, 0), "trimming");
    ASK(alloc(&at, MIB, pool, NULL), "an allocation");
}

static void destroyed_pool_twice(void) {
    CUmemoryPool pool;
    NEED(pool_new(&pool));
    ASK(cuMemPoolDestroy(pool), "once");
    ASK(cuMemPoolDestroy(pool), "twice");
}

static void destroyed_pool_is_set(void) {
    CUmemoryPool pool;
    NEED(pool_new(&pool));
    NEED(cuMemPoolDestroy(pool));
    ASK(cuDeviceSetMemPool(0, pool), "setting a destroyed pool");
}

static void destroyed_in_use(void) {
    CUmemoryPool pool;
    CUstream stream;
    CUdeviceptr at, second = 0;
    NEED_POOL(pool, stream);
    NEED(alloc(&at, MIB, pool, stream));
    NEED(cuMemPoolDestroy(pool));
    ASK(alloc(&second, MIB, pool, stream), "an allocation of a destroyed pool that is in use");
    say(get(pool, USED), "its attribute");
}

static void wild_pool(void) {
    CUdeviceptr at = 0;
    ASK(alloc(&at, MIB, (CUmemoryPool)0x1234560, NULL), "an allocation of a made-up pool");
}

static void wild_stream(void) {
    CUdeviceptr at = 0;
    ASK(cuMemAllocAsync(&at, MIB, (CUstream)0x1234560), "an allocation in a made-up stream");
}

static void destroyed_stream(void) {
    CUstream stream;
    CUdeviceptr at = 0;
    NEED(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    NEED(cuStreamDestroy(stream));
    ASK(cuMemAllocAsync(&at, MIB, stream), "an allocation in a destroyed stream");
}

static void write_after_free(void) {
    CUmemoryPool pool;
    CUstream stream;
    CUdeviceptr at;
    NEED_POOL(pool, stream);
    NEED(alloc(&at, 40 * MIB, pool, stream));
    NEED(cuMemFreeAsync(at, stream));
    NEED(cuStreamSynchronize(stream));
    ASK(cuMemsetD32Async(at, 1, MIB / 4, stream), "a fill of freed memory");
    ASK(cuStreamSynchronize(stream), "the stream after that");
}

static void write_after_free_kept(void) {
    CUmemoryPool pool;
    CUstream stream;
    CUdeviceptr at;
    NEED_POOL(pool, stream);
    NEED(keep_all(pool));
    NEED(alloc(&at, 40 * MIB, pool, stream));
    NEED(cuMemFreeAsync(at, stream));
    NEED(cuStreamSynchronize(stream));
    ASK(cuMemsetD32Async(at, 1, MIB / 4, stream), "a fill of freed memory that the pool keeps");
    ASK(cuStreamSynchronize(stream), "the stream after that");
}

int main(int argc, char **argv) {
    static const struct rule rules[] = {
        {"create-null", create_null},
        {"create-types", create_types},
        {"create-locations", create_locations},
        {"create-handle-types", create_handle_types},
        {"create-odd", create_odd},
        {"create-most", create_most},
        {"most", most},
        {"no-pool", no_pool},
        {"default-pool", default_pool},
        {"default-pool-wrong", default_pool_wrong},
        {"current-pool", current_pool},
        {"attributes-fresh", attributes_fresh},
        {"attribute-sizes", attribute_sizes},
        {"attributes-set", attributes_set},
        {"growth-alone", growth_alone},
        {"growth-together", growth_together},
        {"threshold-none", threshold_none},
        {"threshold-all", threshold_all},
        {"threshold-some", threshold_some},
        {"threshold-waits", threshold_waits},
        {"threshold-gone-stream", threshold_gone_stream},
        {"threshold-gone-thread", threshold_gone_thread},
        {"high-marks", high_marks},
        {"trim", trim},
        {"trim-unsynchronised", trim_unsynchronised},
        {"alloc-wrong", alloc_wrong},
        {"alloc-contents", alloc_contents},
        {"alloc-streams", alloc_streams},
        {"alloc-no-context", alloc_no_context},
        {"free-twice", free_twice},
        {"free-wrong", free_wrong},
        {"free-plain-async", free_plain_async},
        {"free-sync", free_sync},
        {"free-elsewhere", free_elsewhere},
        {"read-elsewhere", read_elsewhere},
        {"order-in-stream", order_in_stream},
        {"reuse-sizes", reuse_sizes},
        {"reuse-choice", reuse_choice},
        {"reuse-none", reuse_none},
        {"reuse-none-ended", reuse_none_ended},
        {"reuse-follow", reuse_follow},
        {"reuse-follow-unordered", reuse_follow_unordered},
        {"reuse-follow-ended", reuse_follow_ended},
        {"reuse-opportunistic", reuse_opportunistic},
        {"reuse-opportunistic-busy", reuse_opportunistic_busy},
        {"reuse-internal", reuse_internal},
        {"reuse-internal-ordered", reuse_internal_ordered},
        {"reuse-internal-ended", reuse_internal_ended},
        {"reuse-internal-choice", reuse_internal_choice},
        {"destroy-with-memory", destroy_with_memory},
        {"destroy-stream-with-memory", destroy_stream_with_memory},
        {"pointer-attributes", pointer_attributes},
        {"pointer-attributes-freed", pointer_attributes_freed},
        {"pointer-attributes-default", pointer_attributes_default},
        {"access-places", access_places},
        {"access-wrong", access_wrong},
        {"export-plain", export_plain},
        {"export-wrong", export_wrong},
        {"import-wrong", import_wrong},
        {"import-here", import_here},
        {"graph-alloc-free", graph_alloc_free},
        {"graph-alloc-only", graph_alloc_only},
        {"graph-free-before-launch", graph_free_before_launch},
        {"graph-auto-free", graph_auto_free},
        {"graph-destroyed-first", graph_destroyed_first},
        {"graph-of-pool", graph_of_pool},
        {"graph-frees-earlier", graph_frees_earlier},
        {"graph-twice-at-once", graph_twice_at_once},
        {"graph-nodes", graph_nodes},
        {"graph-marks", graph_marks},
        {"in-capture", in_capture},
        {"capture-elsewhere", capture_elsewhere},
    };
    static const struct rule faults[] = {
        {"destroyed-pool", destroyed_pool},
        {"destroyed-pool-twice", destroyed_pool_twice},
        {"destroyed-pool-is-set", destroyed_pool_is_set},
        {"destroyed-in-use", destroyed_in_use},
        {"free-sync-waits", free_sync_waits},
        {"wild-pool", wild_pool},
        {"attribute-from-nowhere", attribute_from_nowhere},
        {"wild-stream", wild_stream},
        {"destroyed-stream", destroyed_stream},
        {"write-after-free", write_after_free},
        {"write-after-free-kept", write_after_free_kept},
    };
    return play_rules(argc, argv, RULES(rules), RULES(faults));
}
