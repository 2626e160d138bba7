/* Ways by which memory could become reachable past its address, or by which something else could come
 * to be there: the driver refuses them for memory of cuMemAlloc.
 */
#include "legal.h"

/* Calls that the examples do not need. */
CUresult cuGraphAddMemFreeNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *after, size_t count,
                               CUdeviceptr address);
CUresult cuIpcGetMemHandle(void *handle, CUdeviceptr address);
CUresult cuMemGetHandleForAddressRange(void *handle, CUdeviceptr address, size_t bytes, int kind,
                                       unsigned long long flags);
CUresult cuMemPoolExportPointer(void *data, CUdeviceptr address);
CUresult cuMulticastBindAddr(CUmemGenericAllocationHandle object, size_t at, CUdeviceptr address,
                             size_t bytes, unsigned long long flags);
CUresult cuPointerSetAttribute(const void *value, int attribute, CUdeviceptr address);

#ifdef BATON_CUDA_BEFORE_12
CUresult cuMemAdvise(CUdeviceptr address, size_t bytes, int advice, CUdevice device);
#define ADVISE(at, bytes, advice, location) cuMemAdvise(at, bytes, advice, location.id)
#else
CUresult cuMemAdvise_v2(CUdeviceptr address, size_t bytes, int advice, CUmemLocation location);
#define ADVISE cuMemAdvise_v2
#endif

/* A second mapping of each handle behind some allocations, were they to be had: writes there
 * must reach no other program's memory.
 */
static void retain(void) {
    enum { SIZE = 2 << 20, MOST = 4 };
    CUmemGenericAllocationHandle handle = 0;
    CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_DEVICE, 0},
                              CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    struct piece large = piece_new(&tools, 4 * MIB, 1, NULL);
    struct piece small = piece_new(&tools, 1000, 2, NULL);
    CUdeviceptr inside[] = {large.at, large.at + 3 * MIB, small.at}, aliases;
    unsigned mapped = 0;
    CHECK(cuMemAddressReserve(&aliases, MOST * SIZE, 0, 0, 0));
    for (unsigned i = 0; i < COUNT_OF(inside); i++) {
        CUresult answer = cuMemRetainAllocationHandle(&handle, (void *)inside[i]);
        printf("retaining the handle of an allocation answers %d\n", (int)answer);
        if (answer) continue;
        if (!cuMemMap(aliases + mapped * SIZE, SIZE, 0, handle, 0)) mapped++;
    }
    wait_for_line();
    if (mapped) {
        CHECK(cuMemSetAccess(aliases, mapped * SIZE, &access, 1));
        CHECK(cuMemsetD8(aliases, 0x77, mapped * SIZE));
    }
    CHECK(cuCtxSynchronize());
    wait_for_line();
    if (!mapped) {
        piece_check(&tools, &large, "the large piece", 0);
        piece_check(&tools, &small, "the small piece", 0);
    }
}

/* Measured: the driver's answer to all of these. */
#define REFUSED(call)                                                                              \
    do {                                                                                           \
        CUresult answer = call;                                                                    \
        printf("%s answers %d\n", #call, (int)answer);                                             \
        REQUIRE(answer == CUDA_ERROR_INVALID_VALUE, "it was not refused");                         \
    } while (0)

/* The calls that a program may make on its own mapping, tried on an allocation. */
static void try_all(CUdeviceptr at, size_t bytes, CUmemGenericAllocationHandle own) {
    CUmemLocation device = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
    CUmemAccessDesc all = {device, CU_MEM_ACCESS_FLAGS_PROT_READWRITE}, none = {device, 0};
    CUmemGenericAllocationHandle handle = 0;
    enum { READ_MOSTLY = 1, MEMORY_TYPE = 2, UNIT = 2 << 20 };
    char data[64];
    unsigned flags, one = 1;
    CUdeviceptr other;
    CUgraph graph;
    CUgraphNode node;
    REFUSED(cuMemRetainAllocationHandle(&handle, (void *)at));
    REFUSED(cuMemRetainAllocationHandle(&handle, (void *)(at + bytes / 2)));
    REFUSED(cuMemMap(at, UNIT, 0, own, 0));
    REFUSED(cuMemSetAccess(at, UNIT, &all, 1));
    REFUSED(cuMemSetAccess(at, UNIT, &none, 1));
    REFUSED(cuMemUnmap(at, UNIT));
    REFUSED(cuMemUnmap(at, bytes));
    REFUSED(cuMemAddressFree(at, UNIT));
    REFUSED(cuMemAddressFree(at, bytes));
    REFUSED(ADVISE(at, bytes, READ_MOSTLY, device));
    REFUSED(cuMemHostGetDevicePointer(&other, (void *)at, 0));
    REFUSED(cuMemHostGetFlags(&flags, (void *)at));
    REFUSED(cuPointerSetAttribute(&one, MEMORY_TYPE, at));
    REFUSED(cuMemPoolExportPointer(data, at));
#ifndef BATON_CUDA_BEFORE_12
    /* 801 where there is no multicast. */
    CUresult bound = cuMulticastBindAddr(0, 0, at, UNIT, 0);
    printf("cuMulticastBindAddr answers %d\n", (int)bound);
    REQUIRE(bound == 1 || bound == CUDA_ERROR_NOT_SUPPORTED, "it was not refused");
#endif
    CHECK(cuGraphCreate(&graph, 0));
    REFUSED(cuGraphAddMemFreeNode(&node, graph, NULL, 0, at));
    CHECK(cuGraphDestroy(graph));
}

/* As far as its owner has set it, no place has access to an allocation. */
static void ask_access(const struct piece *piece) {
    static const CUmemLocation places[] = {
        {CU_MEM_LOCATION_TYPE_DEVICE, 0}, {CU_MEM_LOCATION_TYPE_HOST, 0}, {CU_MEM_LOCATION_TYPE_DEVICE, 99}};
    for (unsigned i = 0; i < COUNT_OF(places); i++) {
        unsigned long long flags = 77;
        CUresult answer = cuMemGetAccess(&flags, &places[i], piece->at + piece->bytes / 2);
        printf("access from place %u: %d, %llu\n", i, (int)answer, flags);
    }
}

/* The same while the memory is away. */
static void owner(void) {
    CUmemAllocationProp of_device = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                     .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
    CUmemGenericAllocationHandle own;
    struct piece large = piece_new(&tools, 4 * MIB, 1, NULL);
    struct piece small = piece_new(&tools, 1000, 2, NULL);
    CHECK(cuMemCreate(&own, 2 * MIB, &of_device, 0));
    for (int away = 0; away < 2; away++) {
        try_all(large.at, large.bytes, own);
        try_all(small.at, small.bytes, own);
        if (!away) wait_for_line();
    }
    ask_access(&large);
    ask_access(&small);
    piece_check(&tools, &large, "the large piece", 0);
    piece_check(&tools, &small, "the small piece", 0);
    CHECK(cuMemRelease(own));
}

/* By these the driver lets others reach an allocation. */
static void leaving(void) {
    enum { DMA_BUFFER = 1, SYNC_MEMOPS = 6 };
    struct piece large = piece_new(&tools, 4 * MIB, 1, NULL);
    int descriptor = -1;
    unsigned one = 1;
    char handle[64];
    CUresult answer = cuMemGetHandleForAddressRange(&descriptor, large.at, large.bytes, DMA_BUFFER, 0);
    printf("a descriptor for another device: %d\n", (int)answer);
    if (!answer) close(descriptor);
    printf("order for another device: %d\n",
           (int)cuPointerSetAttribute(&one, SYNC_MEMOPS, large.at));
    printf("a handle for another process: %d\n", (int)cuIpcGetMemHandle(handle, large.at));
    piece_check(&tools, &large, "the large piece", 0);
}

int main(int argc, char **argv) {
    static const struct legal_case cases[] = {{"retain", retain}, {"owner", owner}, {"leaving", leaving}};
    return play(argc, argv, take_gpu, cases, COUNT_OF(cases));
}
