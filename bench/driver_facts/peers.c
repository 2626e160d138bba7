/* E: two GPUs in one process. What each may do with the other's memory, and what giving access costs. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mapped.h"

static struct world second; /* on GPU 1 */

static void begin_second(void) {
    CUcontext context;
    MUST(cuDevicePrimaryCtxRetain(&context, 1));
    second = another_world(1, context);
    MUST(cuCtxSetCurrent(world.context));
}

enum { WORDS = 1024 };

/* Whether a kernel of `on` reads `value` in each of the first words; as text. */
static const char *read_by_kernel(struct world *on, CUdeviceptr from, unsigned value) {
    static char text[96];
    unsigned long long sum = 0;
    unsigned n = WORDS;
    CUdeviceptr out = on->scratch;
    MUST(cuCtxSetCurrent(on->context));
    MUST(cuMemsetD8(out, 0, 8));
    CUresult launch = cuLaunchKernel(on->summing, 1, 1, 1, 1, 1, 1, 0, NULL,
                                     (void *[]){&out, &from, &n}, NULL);
    CUresult ended = cuCtxSynchronize();
    if (!ended) MUST(cuMemcpyDtoH(&sum, out, 8));
    if (launch || ended) snprintf(text, sizeof text, "FAILS (launch %d, synchronize %d)", launch, ended);
    else
        snprintf(text, sizeof text, "%s",
                 sum == (unsigned long long)value * WORDS ? "reads it right" : "reads OTHER contents");
    return text;
}

static const char *read_by_copy(struct world *on, CUdeviceptr from, unsigned value) {
    static char text[64];
    unsigned word = 0;
    MUST(cuCtxSetCurrent(on->context));
    CUresult got = cuMemcpyDtoH(&word, from, sizeof word);
    snprintf(text, sizeof text, "%d%s", got, word == value ? ", right" : ", NOT right");
    return text;
}

/* --- E1 ------------------------------------------------------------------------------------- */

enum contexts { BOTH, FIRST_ONLY, SECOND_ONLY, SECOND_LATER };
static const char *const context_names[] = {
    "contexts on both GPUs", "a context on GPU 0 only", "a context on GPU 1 only",
    "a context on GPU 0, one on GPU 1 made after access was given"};
enum way { ONE_CALL, SECOND_CALL, OTHER_ONLY };
static const char *const ways[] = {"one call for both GPUs", "a call for GPU 0, then one for GPU 1",
                                   "one call, for GPU 1 only"};
static const char *const sources[] = {"its own handle", "imported from another process",
                                      "imported from its own descriptor"};

static void access_for_two(const int *variant) {
    enum contexts contexts = (enum contexts)variant[0];
    enum way way = (enum way)variant[1];
    int source = variant[2];
    const size_t size = 4 * MIB;
    char what[256];
    snprintf(what, sizeof what, "memory of GPU 0, %s; %s; cuMemSetAccess: %s", sources[source],
             context_names[contexts], ways[way]);
    about("%s", what);
    if (source == 1) start_exporter(0, 1, size);
    begin(contexts == SECOND_ONLY ? 1 : 0);
    if (contexts == BOTH) begin_second();
    about("%s", what);
    CUmemGenericAllocationHandle handle =
        source == 0   ? own_handle(0, size, false)
        : source == 1 ? imported(take_descriptor())
                      : imported(exported(own_handle(0, size, true)));
    CUdeviceptr at = reserved(size);
    CUmemAccessDesc access[] = {access_of(0), access_of(1)};
    MUST(cuMemMap(at, size, 0, handle, 0));
    CUresult first = CUDA_SUCCESS, got;
    if (way == ONE_CALL) got = cuMemSetAccess(at, size, access, 2);
    else if (way == OTHER_ONLY) got = cuMemSetAccess(at, size, access + 1, 1);
    else {
        first = cuMemSetAccess(at, size, access, 1);
        got = cuMemSetAccess(at, size, access + 1, 1);
    }
    unsigned long long flags[2] = {99, 99};
    for (int gpu = 0; gpu < 2; gpu++) cuMemGetAccess(&flags[gpu], &access[gpu].location, at);
    answer("%d%s; cuMemGetAccess: GPU 0 %llu, GPU 1 %llu", (int)got, first ? " (first call failed)" : "",
           flags[0], flags[1]);
    if (contexts == SECOND_LATER) begin_second();
    CUresult filled = cuMemsetD32(at, 7, WORDS);
    about("%s; fill with the first context current", what);
    answer("%d, synchronize %d", (int)filled, (int)cuCtxSynchronize());
    struct world *other = contexts == SECOND_ONLY || contexts == FIRST_ONLY ? &world : &second;
    about("%s; a kernel on GPU %d", what, other->device);
    answer("%s", read_by_kernel(other, at, 7));
    about("%s; cuMemcpyDtoH with GPU %d current", what, other->device);
    answer("%s", read_by_copy(other, at, 7));
    if (contexts == FIRST_ONLY || contexts == SECOND_ONLY) return;
    about("%s; fill by GPU 1, then a kernel on GPU 0", what);
    filled = cuMemsetD32(at, 9, WORDS);
    MUST(cuCtxSynchronize());
    answer("%d; %s", (int)filled, read_by_kernel(&world, at, 9));
}

static void cost_of_access(const int *variant) {
    int count = variant[0], source = variant[2];
    size_t size = (size_t)variant[1] * MIB;
    about("%d handles of %d MiB, %s", count, variant[1], sources[source]);
    if (source == 1) start_exporter(0, count, size);
    begin(0);
    begin_second();
    CUmemGenericAllocationHandle handles[64];
    CUmemAccessDesc both[] = {access_of(0), access_of(1)};
    double start = now_us();
    for (int at = 0; at < count; at++)
        handles[at] = source ? imported(take_descriptor()) : own_handle(0, size, false);
    double got = now_us() - start;
    CUdeviceptr place = reserved(size * (size_t)count);
    CUresult last = CUDA_SUCCESS;
#define TIMED(text, each)                                                                          \
    do {                                                                                           \
        about("%d handles of %d MiB, %s: %s", count, variant[1], sources[source], text);           \
        start = now_us();                                                                          \
        each;                                                                                      \
        answer("%.1f us per handle (answers %d)", (now_us() - start) / count, (int)last);          \
    } while (0)
#define EACH(call)                                                                                 \
    for (int at = 0; at < count; at++) last = call
#define WHOLE place, size *(size_t)count
#define ONE place + size *(size_t)at, size
    about("%d handles of %d MiB, %s: getting them", count, variant[1], sources[source]);
    answer("%.1f us per handle", got / count);
    for (int round = 0; round < 2; round++) {
        TIMED(round ? "map, again" : "map", EACH(cuMemMap(ONE, 0, handles[at], 0)));
        TIMED("access for GPU 0, one call", last = cuMemSetAccess(WHOLE, both, 1));
        TIMED("access for GPU 1 added, one call", last = cuMemSetAccess(WHOLE, both + 1, 1));
        TIMED("access for GPU 1 taken back, one call", {
            CUmemAccessDesc none = both[1];
            none.flags = CU_MEM_ACCESS_FLAGS_PROT_NONE;
            last = cuMemSetAccess(WHOLE, &none, 1);
        });
        TIMED("unmap, one call", last = cuMemUnmap(WHOLE));
    }
    TIMED("map, a third time", EACH(cuMemMap(ONE, 0, handles[at], 0)));
    TIMED("access for both GPUs, one call", last = cuMemSetAccess(WHOLE, both, 2));
    TIMED("unmap, one call, both had access", last = cuMemUnmap(WHOLE));
    TIMED("map, a fourth time", EACH(cuMemMap(ONE, 0, handles[at], 0)));
    TIMED("access for GPU 0, a call a handle", EACH(cuMemSetAccess(ONE, both, 1)));
    TIMED("access for GPU 1 added, a call a handle", EACH(cuMemSetAccess(ONE, both + 1, 1)));
    TIMED("unmap, a call a handle", EACH(cuMemUnmap(ONE)));
}

/* --- E2 ------------------------------------------------------------------------------------- */

static void enabling(const int *variant) {
    (void)variant;
    begin(0);
    begin_second();
#define SAY(text, call)                                                                            \
    do {                                                                                           \
        about("%s", text);                                                                         \
        answer("%d", (int)(call));                                                                 \
    } while (0)
    SAY("GPU 0 current: cuCtxEnablePeerAccess(context on 1)", cuCtxEnablePeerAccess(second.context, 0));
    SAY("… again", cuCtxEnablePeerAccess(second.context, 0));
    SAY("… of its own context", cuCtxEnablePeerAccess(world.context, 0));
    SAY("… with flags 1", cuCtxEnablePeerAccess(second.context, 1));
    SAY("… null", cuCtxEnablePeerAccess(NULL, 0));
    CUcontext made;
    MUST(cuCtxCreate(&made, 0, 0));
    MUST(cuCtxSetCurrent(world.context));
    SAY("… another context of the same GPU", cuCtxEnablePeerAccess(made, 0));
    MUST(cuCtxSetCurrent(second.context));
    SAY("GPU 1 current: cuCtxDisablePeerAccess(context on 0), never enabled",
        cuCtxDisablePeerAccess(world.context));
    SAY("GPU 1 current: cuCtxEnablePeerAccess(context on 0)", cuCtxEnablePeerAccess(world.context, 0));
    MUST(cuCtxSetCurrent(world.context));
    SAY("GPU 0 current: cuCtxDisablePeerAccess(context on 1)", cuCtxDisablePeerAccess(second.context));
    SAY("… again", cuCtxDisablePeerAccess(second.context));
    SAY("… cuCtxEnablePeerAccess again", cuCtxEnablePeerAccess(second.context, 0));
}

enum { OF_ALLOC, OF_MAP, OF_IMPORT, BESIDE_ALLOC, FOR_BOTH };
static const char *const memories[] = {
    "cuMemAlloc memory", "mapped memory with access for its own GPU",
    "imported memory with access for its own GPU",
    "imported memory of GPU 0 with access for it alone and cuMemAlloc memory of GPU 1",
    "imported memory of GPU 0 with access for both and cuMemAlloc memory of GPU 1"};

/* Memory of GPU 0; its context is current. */
static CUdeviceptr memory_of_first(int kind, size_t size) {
    if (kind == OF_ALLOC) return memory(size);
    CUdeviceptr at =
        mapped(kind == OF_MAP ? own_handle(0, size, false) : imported(take_descriptor()), size, 0);
    CUmemAccessDesc for_second = access_of(1);
    if (kind == FOR_BOTH) MUST(cuMemSetAccess(at, size, &for_second, 1));
    return at;
}

enum { NEVER, BEFORE, AFTER, DISABLED };
static const char *const enabled[] = {"peer access never enabled", "peer access enabled before",
                                      "peer access enabled after",
                                      "peer access enabled before, disabled after"};

static void reach_by_kernel(const int *variant) {
    int kind = variant[0], when = variant[1];
    char what[200];
    snprintf(what, sizeof what, "%s on GPU 0; %s; a kernel on GPU 1", memories[kind], enabled[when]);
    about("%s", what);
    if (kind == OF_IMPORT) start_exporter(0, 1, 4 * MIB);
    begin(0);
    begin_second();
    about("%s", what);
    MUST(cuCtxSetCurrent(second.context));
    if (when == BEFORE || when == DISABLED) MUST(cuCtxEnablePeerAccess(world.context, 0));
    MUST(cuCtxSetCurrent(world.context));
    CUdeviceptr at = memory_of_first(kind, 4 * MIB);
    MUST(cuMemsetD32(at, 7, WORDS));
    MUST(cuCtxSynchronize());
    MUST(cuCtxSetCurrent(second.context));
    if (when == AFTER) MUST(cuCtxEnablePeerAccess(world.context, 0));
    if (when == DISABLED) MUST(cuCtxDisablePeerAccess(world.context));
    answer("%s", read_by_kernel(&second, at, 7));
    MUST(cuCtxSetCurrent(world.context));
    about("%s; GPU 0 afterwards", what);
    answer("cuCtxSynchronize %d", (int)cuCtxSynchronize());
}

static CUdeviceptr copy_from, copy_to;

static void reset_copy(bool second_to_first) {
    MUST(cuCtxSetCurrent(second_to_first ? second.context : world.context));
    MUST(cuMemsetD32(copy_from, 7, WORDS));
    MUST(cuCtxSynchronize());
    MUST(cuCtxSetCurrent(second_to_first ? world.context : second.context));
    MUST(cuMemsetD32(copy_to, 1, WORDS));
    MUST(cuCtxSynchronize());
}

static void reach_by_copies(const int *variant) {
    int kind = variant[0], when = variant[1];
    bool back = variant[2];
    const size_t bytes = WORDS * 4;
    about("%s, %s", memories[kind], enabled[when]);
    if (kind >= OF_IMPORT) start_exporter(0, 1, 4 * MIB);
    begin(0);
    begin_second();
    about("%s, %s", memories[kind], enabled[when]);
    if (when == BEFORE) {
        MUST(cuCtxEnablePeerAccess(second.context, 0));
        MUST(cuCtxSetCurrent(second.context));
        MUST(cuCtxEnablePeerAccess(world.context, 0));
        MUST(cuCtxSetCurrent(world.context));
    }
    CUdeviceptr first_memory = memory_of_first(kind, 4 * MIB);
    MUST(cuCtxSetCurrent(second.context));
    CUdeviceptr second_memory =
        kind == OF_ALLOC || kind >= BESIDE_ALLOC ? memory(4 * MIB)
                                                 : mapped(own_handle(1, 4 * MIB, false), 4 * MIB, 1);
    copy_from = back ? second_memory : first_memory;
    copy_to = back ? first_memory : second_memory;
    struct world *from = back ? &second : &world, *to = back ? &world : &second;
    struct world *both[] = {&world, &second};
#define COPY(text, on, call)                                                                       \
    do {                                                                                           \
        reset_copy(back);                                                                          \
        MUST(cuCtxSetCurrent((on)->context));                                                      \
        CUstream stream = non_blocking();                                                          \
        (void)stream;                                                                              \
        about("%s, %s, GPU %d to GPU %d; GPU %d current: %s", memories[kind], enabled[when],       \
              from->device, to->device, (on)->device, text);                                       \
        CUresult got = call;                                                                       \
        CUresult ended = cuCtxSynchronize();                                                       \
        answer("%d, synchronize %d, read: %s", (int)got, (int)ended, read_by_copy(to, copy_to, 7)); \
    } while (0)
    for (int at = 0; at < 2; at++) {
        COPY("cuMemcpyPeer", both[at],
             cuMemcpyPeer(copy_to, to->context, copy_from, from->context, bytes));
        COPY("cuMemcpyPeerAsync", both[at],
             cuMemcpyPeerAsync(copy_to, to->context, copy_from, from->context, bytes, stream));
        COPY("cuMemcpyDtoD", both[at], cuMemcpyDtoD(copy_to, copy_from, bytes));
        COPY("cuMemcpyDtoDAsync", both[at], cuMemcpyDtoDAsync(copy_to, copy_from, bytes, stream));
        COPY("cuMemcpy", both[at], cuMemcpy(copy_to, copy_from, bytes));
        COPY("cuMemcpyAsync", both[at], cuMemcpyAsync(copy_to, copy_from, bytes, stream));
    }
    COPY("cuMemcpyPeer with the contexts exchanged", from,
         cuMemcpyPeer(copy_to, from->context, copy_from, to->context, bytes));
    unsigned word = 0;
    MUST(cuCtxSetCurrent(to->context));
    about("%s, %s; cuMemcpyDtoH of GPU %d's memory with GPU %d current", memories[kind], enabled[when],
          from->device, to->device);
    CUresult got = cuMemcpyDtoH(&word, copy_from, sizeof word);
    answer("%d%s", (int)got, word == 7 ? ", right" : ", NOT right");
    about("%s, %s; cuMemcpyHtoD to GPU %d's memory with GPU %d current", memories[kind], enabled[when],
          from->device, to->device);
    word = 7;
    got = cuMemcpyHtoD(copy_from, &word, sizeof word);
    answer("%d, synchronize %d", (int)got, (int)cuCtxSynchronize());
    about("%s, %s; cuMemsetD32 of GPU %d's memory with GPU %d current", memories[kind], enabled[when],
          from->device, to->device);
    got = cuMemsetD32(copy_from, 9, WORDS);
    CUresult ended = cuCtxSynchronize();
    answer("%d, synchronize %d, read: %s", (int)got, (int)ended, read_by_copy(from, copy_from, 9));
}

/* --- E3, E4, E5, E6 --------------------------------------------------------------------------- */

static void tell_links(const int *variant) {
    (void)variant;
    open_driver();
    MUST(cuInit(0));
    static const char *const names[] = {"", "PERFORMANCE_RANK", "ACCESS_SUPPORTED",
                                        "NATIVE_ATOMIC_SUPPORTED", "CUDA_ARRAY_ACCESS_SUPPORTED",
                                        "ONLY_PARTIAL_NATIVE_ATOMIC_SUPPORTED"};
    for (int from = 0; from < 2; from++) {
        int value = -1;
        about("cuDeviceCanAccessPeer(%d, %d)", from, 1 - from);
        CUresult got = cuDeviceCanAccessPeer(&value, from, 1 - from);
        answer("%d, value %d", (int)got, value);
        about("cuDeviceCanAccessPeer(%d, %d)", from, from);
        got = cuDeviceCanAccessPeer(&value, from, from);
        answer("%d, value %d", (int)got, value);
        for (int which = 1; which <= 5; which++) {
            value = -1;
            about("cuDeviceGetP2PAttribute(%s, %d, %d)", names[which], from, 1 - from);
            got = cuDeviceGetP2PAttribute(&value, which, from, 1 - from);
            answer("%d, value %d", (int)got, value);
        }
    }
}

static void ask_from_the_other(const int *variant) {
    int kind = variant[0];
    bool peer = variant[1];
    if (kind == OF_IMPORT) start_exporter(0, 1, 4 * MIB);
    begin(0);
    begin_second();
    CUdeviceptr at = memory_of_first(kind, 4 * MIB), base = 0;
    size_t size = 0;
    MUST(cuCtxSetCurrent(second.context));
    if (peer) MUST(cuCtxEnablePeerAccess(world.context, 0));
    char what[160];
    snprintf(what, sizeof what, "%s on GPU 0, GPU 1 current, peer access %s", memories[kind],
             peer ? "enabled" : "not enabled");
    about("%s: cuMemGetAddressRange", what);
    CUresult got = cuMemGetAddressRange(&base, &size, at + 100);
    answer("%d, offset %+lld, size %zu", (int)got, (long long)(base - at), size);
    static const int attributes[] = {2, 9, 13, 14, 16};
    for (int i = 0; i < 5; i++) {
        int value = -1;
        about("%s: cuPointerGetAttribute(%d)", what, attributes[i]);
        got = cuPointerGetAttribute(&value, attributes[i], at);
        answer("%d, value %d", (int)got, value);
    }
    CUcontext context = NULL;
    about("%s: cuPointerGetAttribute(CONTEXT)", what);
    got = cuPointerGetAttribute(&context, 1, at);
    answer("%d, %s", (int)got,
           context == world.context ? "GPU 0's" : context == second.context ? "GPU 1's" : "null");
    CUdeviceptr pointer = 0;
    about("%s: cuPointerGetAttribute(DEVICE_POINTER)", what);
    got = cuPointerGetAttribute(&pointer, 3, at);
    answer("%d, offset %+lld", (int)got, (long long)(pointer - at));
    about("%s: cuMemFreeAsync in a stream of GPU 1, then cuMemFree", what);
    got = cuMemFreeAsync(at, non_blocking());
    CUresult ended = cuCtxSynchronize();
    answer("%d, synchronize %d, %d", (int)got, (int)ended, (int)cuMemFree(at));
}

/* Processes that see one GPU each, and memory of the other one. */
static void unseen(const int *variant) {
    const size_t size = 4 * MIB;
    CUmemAccessDesc access = access_of(variant[0]);
    if (variant[0]) {
        about("a process that sees GPU 0 alone gives access to GPU 1");
        setenv("CUDA_VISIBLE_DEVICES", "0", 1);
        begin(0);
        about("a process that sees GPU 0 alone gives access to GPU 1");
        CUdeviceptr at = mapped(own_handle(0, size, false), size, 0);
        answer("cuMemSetAccess %d", (int)cuMemSetAccess(at, size, &access, 1));
        return;
    }
    about("a process that sees GPU 1 alone imports memory of GPU 0");
    setenv("CUDA_VISIBLE_DEVICES", "0", 1);
    start_exporter(0, 1, size);
    int descriptor = take_descriptor();
    setenv("CUDA_VISIBLE_DEVICES", "1", 1);
    begin(0);
    about("a process that sees GPU 1 alone imports memory of GPU 0");
    CUmemGenericAllocationHandle handle = 0;
    CUresult got = cuMemImportFromShareableHandle(&handle, (void *)(intptr_t)descriptor,
                                                  CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    answer("%d", (int)got);
    if (got) return;
    CUmemAllocationProp properties = {0};
    got = cuMemGetAllocationPropertiesFromHandle(&properties, handle);
    about("… cuMemGetAllocationPropertiesFromHandle");
    answer("%d, location type %d, id %d", (int)got, (int)properties.location.type,
           properties.location.id);
    CUdeviceptr at = reserved(size);
    CUresult map = cuMemMap(at, size, 0, handle, 0);
    about("… cuMemMap, cuMemSetAccess for the GPU that it sees, fill, kernel");
    got = cuMemSetAccess(at, size, &access, 1);
    CUresult filled = cuMemsetD32(at, 7, WORDS);
    answer("%d, %d, %d, %s", (int)map, (int)got, (int)filled,
           filled ? "not asked" : read_by_kernel(&world, at, 7));
}

static void map_again(const int *variant) {
    (void)variant;
    const size_t size = 4 * MIB;
    about("mapping again");
    start_exporter(0, 1, size);
    begin(0);
    begin_second();
    CUmemGenericAllocationHandle handle = imported(take_descriptor());
    CUdeviceptr at = reserved(size);
    CUmemAccessDesc access[] = {access_of(0), access_of(1)};
    unsigned long long flags[2] = {99, 99};
    MUST(cuMemMap(at, size, 0, handle, 0));
    MUST(cuMemSetAccess(at, size, access, 2));
    MUST(cuMemsetD32(at, 7, WORDS));
    MUST(cuCtxSynchronize());
    about("imported memory with access for both GPUs, unmapped and mapped again");
    MUST(cuMemUnmap(at, size));
    MUST(cuMemMap(at, size, 0, handle, 0));
    CUresult got[2];
    for (int gpu = 0; gpu < 2; gpu++)
        got[gpu] = cuMemGetAccess(&flags[gpu], &access[gpu].location, at);
    answer("cuMemGetAccess: GPU 0 %d (flags %llu), GPU 1 %d (flags %llu)", (int)got[0], flags[0],
           (int)got[1], flags[1]);
    unsigned word = 0;
    about("… cuMemcpyDtoH before access is given anew");
    CUresult copied = cuMemcpyDtoH(&word, at, sizeof word);
    answer("%d%s", (int)copied, word == 7 ? ", right" : ", NOT right");
    about("… access given for GPU 0 only; a kernel on GPU 0");
    MUST(cuMemSetAccess(at, size, access, 1));
    answer("%s", read_by_kernel(&world, at, 7));
    about("… access given for GPU 1 too; a kernel on GPU 1");
    MUST(cuMemSetAccess(at, size, access + 1, 1));
    answer("%s", read_by_kernel(&second, at, 7));
}

static void waits_for_the_other(const int *variant) {
    bool peer = variant[0], mapped_too = variant[1];
    const size_t size = 4 * MIB;
    begin(0);
    begin_second();
    if (peer) {
        MUST(cuCtxEnablePeerAccess(second.context, 0));
        MUST(cuCtxSetCurrent(second.context));
        MUST(cuCtxEnablePeerAccess(world.context, 0));
        MUST(cuCtxSetCurrent(world.context));
    }
    CUdeviceptr spare = memory(size), place = 0;
    if (mapped_too) {
        CUmemAccessDesc both[] = {access_of(0), access_of(1)};
        place = reserved(size);
        MUST(cuMemMap(place, size, 0, own_handle(0, size, false), 0));
        MUST(cuMemSetAccess(place, size, both, 2));
    }
    struct world first = world;
    world = second;
    MUST(cuCtxSetCurrent(world.context));
    busy(NON_BLOCKING, BY_KERNEL, 0);
    sleep_ms(20);
    world = first;
    MUST(cuCtxSetCurrent(world.context));
    about("a stream of GPU 1 waits, peer access %s: %s", peer ? "both ways" : "not enabled",
          mapped_too ? "cuMemUnmap of GPU 0's memory with access for both" : "cuMemFree of GPU 0's");
    raise_after(0, DELAY_MS);
    double start = now_us();
    CUresult got = mapped_too ? cuMemUnmap(place, size) : cuMemFree(spare);
    double took = now_us() - start;
    answer("%s (answers %d after %.1f ms)", is_raised(0) ? "WAITS" : "returns before the flag",
           (int)got, took / 1e3);
}

void add_peers(void) {
    add("E3", TWO_GPUS, tell_links, 0, 0, 0, 0);
    for (int contexts = BOTH; contexts <= SECOND_LATER; contexts++)
        for (int way = ONE_CALL; way <= OTHER_ONLY; way++)
            for (int source = 0; source < 3; source++)
                if (source == 1 || contexts == BOTH)
                    add("E1", TWO_GPUS, access_for_two, contexts, way, source, 0);
    add("E2", TWO_GPUS, enabling, 0, 0, 0, 0);
    for (int kind = 0; kind < 3; kind++) {
        for (int when = NEVER; when <= DISABLED; when++)
            if (kind == OF_ALLOC || when != DISABLED)
                add("E2 kernels", TWO_GPUS, reach_by_kernel, kind, when, 0, 0);
        for (int when = NEVER; when <= BEFORE; when++)
            for (int back = 0; back < 2; back++)
                add("E2 copies", TWO_GPUS, reach_by_copies, kind, when, back, 0);
        for (int peer = 0; peer < 2; peer++)
            add("E4", TWO_GPUS, ask_from_the_other, kind, peer, 0, 0);
    }
    for (int kind = BESIDE_ALLOC; kind <= FOR_BOTH; kind++)
        for (int when = NEVER; when <= BEFORE; when++)
            for (int back = 0; back < 2; back++)
                add("E7 copies", TWO_GPUS, reach_by_copies, kind, when, back, 0);
    for (int which = 0; which < 2; which++) add("E8", TWO_GPUS, unseen, which, 0, 0, 0);
    add("E5", TWO_GPUS, map_again, 0, 0, 0, 0);
    for (int peer = 0; peer < 2; peer++)
        for (int mapped_too = 0; mapped_too < 2; mapped_too++)
            add("E6", TWO_GPUS, waits_for_the_other, peer, mapped_too, 0, 0);
    add("E1 cost", ALONE, cost_of_access, 64, 2, 1, 0);
    add("E1 cost", ALONE, cost_of_access, 16, 32, 1, 0);
    add("E1 cost", ALONE, cost_of_access, 64, 2, 0, 0);
}
