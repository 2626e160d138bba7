/* Memory of a handle is exported while work of the program's waits for something that the program has yet
 * to do: the driver answers at once, and an importer has the same memory.
 */
#include "legal.h"

/* Calls that the examples do not need. */
CUresult cuMemGetHandleForAddressRange(void *handle, CUdeviceptr address, size_t bytes, int kind,
                                       unsigned long long flags);
CUresult cuPointerSetAttribute(const void *value, int attribute, CUdeviceptr address);

/* No size that one piece of the arena has. */
enum { BYTES = 14 << 20, DMA_BUFFER = 1, SYNC_MEMOPS = 6 };
#define DESCRIPTOR CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR

struct handle {
    CUmemGenericAllocationHandle handle;
    CUdeviceptr at;
};

static const CUmemAccessDesc all = {{CU_MEM_LOCATION_TYPE_DEVICE, 0},
                                   CU_MEM_ACCESS_FLAGS_PROT_READWRITE};

static CUdeviceptr map(CUmemGenericAllocationHandle handle) {
    CUdeviceptr at;
    CHECK(cuMemAddressReserve(&at, BYTES, 0, 0, 0));
    CHECK(cuMemMap(at, BYTES, 0, handle, 0));
    CHECK(cuMemSetAccess(at, BYTES, &all, 1));
    return at;
}

static struct handle handle_new(void) {
    CUmemAllocationProp exportable = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                      .requestedHandleTypes = DESCRIPTOR,
                                      .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
    struct handle new;
    CHECK(cuMemCreate(&new.handle, BYTES, &exportable, 0));
    new.at = map(new.handle);
    return new;
}

/* Words that tell where they belong. */
static void fill(CUdeviceptr at, unsigned seed) {
    static unsigned words[BYTES / 4];
    for (unsigned i = 0; i < BYTES / 4; i++) words[i] = i * 2654435761u + seed;
    CHECK(cuMemcpyHtoD(at, words, BYTES));
}

/* How many words are as `fill` leaves them but for the first `written` bytes, which are all `byte`. */
static unsigned right(CUdeviceptr at, unsigned seed, size_t written, unsigned char byte) {
    static unsigned words[BYTES / 4];
    unsigned right = 0;
    CHECK(cuMemcpyDtoH(words, at, BYTES));
    for (unsigned i = 0; i < BYTES / 4; i++)
        right += words[i] == (i < written / 4 ? 0x01010101u * byte : i * 2654435761u + seed);
    return right;
}

/* A stream waits, and will then write the first MiB of a mapping. */
static CUstream wait_and_write(volatile unsigned *flag, CUdeviceptr at, unsigned char byte) {
    CUstream stream = stream_new(CU_STREAM_NON_BLOCKING);
    wait_flag(stream, flag);
    CHECK(cuMemsetD8Async(at, byte, MIB, stream));
    return stream;
}

/* Exported memory is the program's own, no matter which side writes it. */
static void check_import(int descriptor, const struct handle *own, unsigned seed, unsigned char byte) {
    CUmemGenericAllocationHandle again;
    CHECK(cuMemImportFromShareableHandle(&again, (void *)(uintptr_t)descriptor, DESCRIPTOR));
    CUdeviceptr at = map(again);
    printf("right where it was: %u\n", right(own->at, seed, MIB, byte));
    printf("right where it is imported: %u\n", right(at, seed, MIB, byte));
    CHECK(cuMemsetD8(at, 0x5A, BYTES));
    unsigned char last;
    CHECK(cuMemcpyDtoH(&last, own->at + BYTES - 1, 1));
    printf("written by the import: %x\n", last);
    CHECK(cuMemUnmap(at, BYTES));
    CHECK(cuMemRelease(again));
    close(descriptor);
}

/* Exports while a stream waits, and lets the stream go on afterwards. */
static void export(void) {
    volatile unsigned *flag = flags_new(1);
    struct handle own = handle_new();
    CUdeviceptr second = map(own.handle);
    int descriptor = -1;
    fill(own.at, 7);
    CUstream stream = wait_and_write(flag, second, 0x33);
    step("exporting while a stream waits");
    CUresult answer = cuMemExportToShareableHandle(&descriptor, own.handle, DESCRIPTOR, 0);
    printf("exporting while a stream waits: %d\n", (int)answer);
    step("letting the stream go on");
    raise_flag(flag);
    CHECK(cuStreamSynchronize(stream));
    if (answer) CHECK(cuMemExportToShareableHandle(&descriptor, own.handle, DESCRIPTOR, 0));
    step("looking at what was exported");
    check_import(descriptor, &own, 7, 0x33);
    printf("right by its second mapping: %u\n", right(second, 0, BYTES, 0x5A));
}

/* Two threads export two handles while a stream waits; memory is exported that has been evicted before. */
static struct handle pair[2];
static int descriptors[2];

static void *export_one(void *which) {
    CHECK(cuCtxSetCurrent(context));
    unsigned i = *(unsigned *)which;
    CHECK(cuMemExportToShareableHandle(&descriptors[i], pair[i].handle, DESCRIPTOR, 0));
    return NULL;
}

static void two(void) {
    volatile unsigned *flag = flags_new(1);
    unsigned numbers[] = {0, 1};
    pthread_t threads[2];
    for (unsigned i = 0; i < 2; i++) {
        pair[i] = handle_new();
        fill(pair[i].at, i);
    }
    wait_for_line();
    CUstream streams[] = {wait_and_write(flag, pair[0].at, 0x10), wait_and_write(flag, pair[1].at, 0x11)};
    step("exporting in two threads");
    for (unsigned i = 0; i < 2; i++) threads[i] = go(export_one, &numbers[i]);
    for (unsigned i = 0; i < 2; i++) join(threads[i]);
    raise_flag(flag);
    for (unsigned i = 0; i < 2; i++) CHECK(cuStreamSynchronize(streams[i]));
    for (unsigned i = 0; i < 2; i++) check_import(descriptors[i], &pair[i], i, 0x10 + i);
}

/* The other ways by which a mapping becomes reachable past its addresses. */
static void bus(void) {
    volatile unsigned *flag = flags_new(1);
    struct handle own = handle_new();
    int descriptor = -1;
    unsigned one = 1;
    fill(own.at, 3);
    CUstream stream = wait_and_write(flag, own.at, 0x44);
    step("asking for a descriptor for another device");
    CUresult answer = cuMemGetHandleForAddressRange(&descriptor, own.at, BYTES, DMA_BUFFER, 0);
    printf("a descriptor for another device: %d\n", (int)answer);
    printf("order for another device: %d\n", (int)cuPointerSetAttribute(&one, SYNC_MEMOPS, own.at));
    raise_flag(flag);
    CHECK(cuStreamSynchronize(stream));
    printf("right: %u\n", right(own.at, 3, MIB, 0x44));
}

int main(int argc, char **argv) {
    static const struct legal_case cases[] = {{"export", export}, {"two", two}, {"bus", bus}};
    return play(argc, argv, take_gpu, cases, COUNT_OF(cases));
}
