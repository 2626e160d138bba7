/* The driver's answers to programs that let other devices reach their memory: network adapters
 * and disks that read and write it over the bus. The order that they rely on, and descriptors.
 */
#include "rules.h"

#define BYTES (4 * MIB)
enum { MEMORY_TYPE = 2, TOKENS = 5, SYNC_MEMOPS = 6, DMA_BUFFER = 1, TO_OWNER = 100, TO_ALL = 200 };

CUresult cuMemAllocManaged(CUdeviceptr *out, size_t bytes, unsigned flags);
CUresult cuPointerSetAttribute(const void *value, int attribute, CUdeviceptr address);
CUresult cuMemGetHandleForAddressRange(void *handle, CUdeviceptr address, size_t bytes, int kind,
                                       unsigned long long flags);
CUresult cuFlushGPUDirectRDMAWrites(int target, int scope);

/* --- the order of copies and fills --------------------------------------------------------- */

static CUresult order(CUdeviceptr at, unsigned value) {
    return cuPointerSetAttribute(&value, SYNC_MEMOPS, at);
}

static void say_order(const char *what, CUdeviceptr at) {
    unsigned long long value;
    CUresult answer = CALL(attribute_of(at, SYNC_MEMOPS, NULL, &value));
    printf("%s %s: %d, %llu\n", rule_now, what, (int)answer, value);
}

static void set_and_say(CUdeviceptr at) {
    say_order("at first", at);
    ASK(order(at, 1), "on");
    say_order("then", at);
    ASK(order(at, 0), "off");
    say_order("then", at);
    ASK(order(at + 256, 7), "on inside, by another number");
    say_order("then", at);
    ASK(cuPointerSetAttribute(NULL, SYNC_MEMOPS, at), "no value");
    unsigned one = 1;
    ASK(cuPointerSetAttribute(&one, MEMORY_TYPE, at), "another attribute");
    ASK(cuPointerSetAttribute(&one, 99, at), "no attribute");
}

static void order_of_allocation(void) {
    CUdeviceptr at;
    NEED(cuMemAlloc(&at, BYTES));
    NEED(write_words(at, BYTES, 3));
    set_and_say(at);
    say(words_right(at, BYTES, 3), "its contents are right");
    TIDY(cuMemFree(at));
    ASK(order(at, 1), "once it is freed");
}

static void order_of_small(void) {
    CUdeviceptr at, other;
    NEED(cuMemAlloc(&at, 1000));
    NEED(cuMemAlloc(&other, 1000));
    NEED(write_words(at, 1000, 3));
    NEED(write_words(other, 1000, 4));
    set_and_say(at);
    say_order("the other", other);
    say(words_right(at, 1000, 3), "its contents are right");
    say(words_right(other, 1000, 4), "the other's contents are right");
    TIDY(cuMemFree(at));
    TIDY(cuMemFree(other));
}

static void order_of_pool(void) {
    CUdeviceptr at;
    NEED(cuMemAllocAsync(&at, BYTES, NULL));
    NEED(cuStreamSynchronize(NULL));
    set_and_say(at);
    TIDY(cuMemFree(at));
}

static CUresult create(CUmemGenericAllocationHandle *handle) {
    CUmemAllocationProp kind = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
    return cuMemCreate(handle, UNIT, &kind, 0);
}

static CUresult let_in(CUdeviceptr at) {
    CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_DEVICE, 0}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    return cuMemSetAccess(at, UNIT, &access, 1);
}

#define NEED_MAPPED(at, handle)                                                                    \
    NEED(create(&handle));                                                                         \
    NEED(cuMemAddressReserve(&at, UNIT, 0, 0, 0));                                                 \
    NEED(cuMemMap(at, UNIT, 0, handle, 0));                                                        \
    NEED(let_in(at))

#define TIDY_MAPPED(at, handle)                                                                    \
    TIDY(cuMemUnmap(at, UNIT));                                                                    \
    TIDY(cuMemAddressFree(at, UNIT));                                                              \
    TIDY(cuMemRelease(handle))

static void order_of_mapping(void) {
    CUmemGenericAllocationHandle handle;
    CUdeviceptr at;
    NEED_MAPPED(at, handle);
    set_and_say(at);
    TIDY_MAPPED(at, handle);
}

static void order_of_managed(void) {
    CUdeviceptr at;
    NEED(cuMemAllocManaged(&at, BYTES, 1));
    set_and_say(at);
    TIDY(cuMemFree(at));
}

static void order_of_host(void) {
    void *at;
    NEED(cuMemHostAlloc(&at, BYTES, 0));
    set_and_say((CUdeviceptr)(uintptr_t)at);
    TIDY(cuMemFreeHost(at));
}

/* Says if a copy or a fill is over when the call returns: its stream is held up until a
 * while after. */
#define RETURNS(call, what)                                                                        \
    do {                                                                                           \
        if (!hold(NULL)) return;                                                                   \
        pthread_t later = go(raise_gate_later, NULL);                                              \
        ASK(call, what);                                                                           \
        say((long long)*gate, what ", it has waited");                                             \
        join(later);                                                                               \
        let_go();                                                                                  \
    } while (0)

/* A program that lets another device in asks for tokens. */
static void tokens(CUdeviceptr at) {
    unsigned long long room[2] = {0};
    say_order("at first", at);
    ASK(cuPointerGetAttribute(room, (CUpointer_attribute)TOKENS, at), "tokens");
    say_order("then", at);
    ASK(order(at, 0), "off");
    say_order("then", at);
}

/* The same by the call that asks for several. */
static void tokens_of_many(CUdeviceptr at) {
    unsigned long long room[2] = {0};
    unsigned is_on = 77;
    CUpointer_attribute both[2] = {(CUpointer_attribute)TOKENS, (CUpointer_attribute)SYNC_MEMOPS};
    void *to[2] = {room, &is_on};
    ASK(cuPointerGetAttributes(2, both, to, at), "tokens with others");
    say(is_on, "together with them");
    say_order("then", at);
}

static void tokens_of_allocation(void) {
    CUdeviceptr at, other;
    NEED(cuMemAlloc(&at, BYTES));
    NEED(cuMemAlloc(&other, BYTES));
    tokens(at);
    tokens_of_many(other);
    RETURNS(cuMemsetD32(other, 5, MIB), "a fill");
    TIDY(cuMemFree(at));
    TIDY(cuMemFree(other));
}

static void tokens_of_mapping(void) {
    CUmemGenericAllocationHandle handle;
    CUdeviceptr at;
    NEED_MAPPED(at, handle);
    tokens(at);
    tokens_of_many(at);
    RETURNS(cuMemsetD32(at, 5, UNIT / 4), "a fill");
    TIDY_MAPPED(at, handle);
    NEED_MAPPED(at, handle);
    RETURNS(cuMemsetD32(at, 5, UNIT / 4), "a fill without tokens");
    say_order("without tokens", at);
    TIDY_MAPPED(at, handle);
}

static void order_of_nothing(void) {
    static unsigned here;
    ASK(order((CUdeviceptr)(uintptr_t)&here, 1), "a variable of the program");
    ASK(order(0, 1), "no address");
}

static void copies(CUdeviceptr at, CUdeviceptr other) {
    CUDA_MEMCPY2D rows = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                          .srcDevice = other,
                          .srcPitch = 4096,
                          .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                          .dstDevice = at,
                          .dstPitch = 4096,
                          .WidthInBytes = 1024,
                          .Height = 100};
    RETURNS(cuMemcpyDtoD(at, other, BYTES), "a copy to it");
    RETURNS(cuMemcpyDtoD(other, at, BYTES), "a copy from it");
    RETURNS(cuMemcpy(other + MIB, at + MIB, MIB), "a copy between addresses");
    RETURNS(cuMemcpy2D(&rows), "a copy of rows");
    RETURNS(cuMemsetD32(at, 5, MIB), "a fill");
    RETURNS(cuMemsetD2D8(at, 4096, 5, 1024, 100), "a fill of rows");
    RETURNS(cuMemsetD8(at + MIB, 5, 100), "a fill inside");
    RETURNS(cuMemcpyDtoDAsync(at, other, MIB, NULL), "a copy in a stream");
    RETURNS(cuMemsetD32Async(at, 5, MIB, NULL), "a fill in a stream");
    RETURNS(cuMemsetD32(other, 5, MIB), "a fill of other memory");
}

static void copies_with_order(void) {
    CUdeviceptr at, other;
    NEED(cuMemAlloc(&at, BYTES));
    NEED(cuMemAlloc(&other, BYTES));
    NEED(order(at, 1));
    copies(at, other);
    TIDY(cuMemFree(at));
    TIDY(cuMemFree(other));
}

static void copies_without_order(void) {
    CUdeviceptr at, other;
    NEED(cuMemAlloc(&at, BYTES));
    NEED(cuMemAlloc(&other, BYTES));
    copies(at, other);
    NEED(order(at, 1));
    NEED(order(at, 0));
    RETURNS(cuMemcpyDtoD(at, other, BYTES), "a copy when it is off again");
    RETURNS(cuMemsetD32(at, 5, MIB), "a fill when it is off again");
    TIDY(cuMemFree(at));
    TIDY(cuMemFree(other));
}

/* Memory that is got at the same place has no order from the memory before. */
static void order_ends(void) {
    CUdeviceptr at;
    NEED(cuMemAlloc(&at, BYTES));
    NEED(order(at, 1));
    NEED(cuMemFree(at));
    NEED(cuMemAlloc(&at, BYTES));
    say_order("the next allocation", at);
    RETURNS(cuMemsetD32(at, 5, MIB), "a fill of it");
    TIDY(cuMemFree(at));
}

/* --- descriptors --------------------------------------------------------------------------- */

static void describe(const char *what, CUdeviceptr at, size_t bytes, int kind,
                     unsigned long long flags) {
    int descriptor = -1;
    ASK(cuMemGetHandleForAddressRange(&descriptor, at, bytes, kind, flags), "%s", what);
    say(descriptor >= 0, "%s, a descriptor", what);
    if (descriptor >= 0) close(descriptor);
}

static void descriptor_of_allocation(void) {
    CUdeviceptr at;
    NEED(cuMemAlloc(&at, BYTES));
    NEED(write_words(at, BYTES, 3));
    describe("all", at, BYTES, DMA_BUFFER, 0);
    describe("again", at, BYTES, DMA_BUFFER, 0);
    describe("half", at, BYTES / 2, DMA_BUFFER, 0);
    describe("the second half", at + BYTES / 2, BYTES / 2, DMA_BUFFER, 0);
    describe("more", at, 2 * BYTES, DMA_BUFFER, 0);
    describe("nothing of it", at, 0, DMA_BUFFER, 0);
    describe("misaligned", at + 100, 4096, DMA_BUFFER, 0);
    describe("an odd size", at, 5000, DMA_BUFFER, 0);
    describe("another kind", at, BYTES, 2, 0);
    describe("flags", at, BYTES, DMA_BUFFER, 8);
    ASK(cuMemGetHandleForAddressRange(NULL, at, BYTES, DMA_BUFFER, 0), "nowhere to put it");
    say(words_right(at, BYTES, 3), "its contents are right");
    TIDY(cuMemFree(at));
    describe("once it is freed", at, BYTES, DMA_BUFFER, 0);
}

static void descriptor_of_pool(void) {
    CUdeviceptr at;
    NEED(cuMemAllocAsync(&at, BYTES, NULL));
    NEED(cuStreamSynchronize(NULL));
    describe("all", at, BYTES, DMA_BUFFER, 0);
    TIDY(cuMemFree(at));
}

static void descriptor_of_others(void) {
    CUdeviceptr managed;
    void *host;
    NEED(cuMemAllocManaged(&managed, BYTES, 1));
    NEED(cuMemHostAlloc(&host, BYTES, 0));
    describe("managed memory", managed, BYTES, DMA_BUFFER, 0);
    describe("the host's", (CUdeviceptr)(uintptr_t)host, BYTES, DMA_BUFFER, 0);
    describe("no address", 0, BYTES, DMA_BUFFER, 0);
    TIDY(cuMemFree(managed));
    TIDY(cuMemFreeHost(host));
}

/* --- writes by other devices --------------------------------------------------------------- */

static void flush(void) {
    ASK(cuFlushGPUDirectRDMAWrites(0, TO_OWNER), "for the owner");
    ASK(cuFlushGPUDirectRDMAWrites(0, TO_ALL), "for all devices");
    ASK(cuFlushGPUDirectRDMAWrites(0, 1), "for nobody");
    ASK(cuFlushGPUDirectRDMAWrites(1, TO_OWNER), "of no context");
}

int main(int argc, char **argv) {
    static const struct rule rules[] = {
        {"order-of-allocation", order_of_allocation},
        {"order-of-small", order_of_small},
        {"order-of-pool", order_of_pool},
        {"order-of-mapping", order_of_mapping},
        {"order-of-managed", order_of_managed},
        {"order-of-host", order_of_host},
        {"order-of-nothing", order_of_nothing},
        {"order-ends", order_ends},
        {"tokens-of-allocation", tokens_of_allocation},
        {"tokens-of-mapping", tokens_of_mapping},
        {"copies-with-order", copies_with_order},
        {"copies-without-order", copies_without_order},
        {"descriptor-of-allocation", descriptor_of_allocation},
        {"descriptor-of-pool", descriptor_of_pool},
        {"descriptor-of-others", descriptor_of_others},
        {"flush", flush},
    };
    return play_rules(argc, argv, RULES(rules), NULL, 0);
}
