/* Virtual memory management: physical memory and addresses are had apart, and memory keeps its
 * contents while it moves from one address to another, and through a file descriptor.
 */
#include <unistd.h>

#include "common.h"

static unsigned megabytes = 4, seed = 1;
static size_t bytes; /* of one physical handle: `megabytes`, rounded up to the granularity */
static CUmemAllocationProp properties;

static CUmemGenericAllocationHandle create(void) {
    CUmemGenericAllocationHandle handle;
    CHECK(cuMemCreate(&handle, bytes, &properties, 0));
    return handle;
}

static void map(CUdeviceptr at, CUmemGenericAllocationHandle handle) {
    CUmemAccessDesc access = {properties.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CHECK(cuMemMap(at, bytes, 0, handle, 0));
    CHECK(cuMemSetAccess(at, bytes, &access, 1));
}

static void fill(CUmodule module, CUdeviceptr at, unsigned pattern) {
    unsigned n = (unsigned)(bytes / sizeof(uint32_t));
    LAUNCH(kernel(module, "fill_hash"), NULL, n, &at, &pattern, &n);
}

/* Reads one handle's memory at an address and compares it with the pattern it was filled with. */
static uint64_t expect(const char *what, CUdeviceptr at, unsigned pattern, uint64_t sum) {
    size_t n = bytes / sizeof(uint32_t);
    uint32_t *got = host_alloc(bytes), *want = host_alloc(bytes);
    for (size_t i = 0; i < n; i++) want[i] = hash32((uint32_t)i + pattern);
    CHECK(cuMemcpyDtoH(got, at, bytes));
    require_same(what, got, want, n, sizeof *got);
    sum = checksum(sum, got, bytes);
    free(got), free(want);
    return sum;
}

int main(int argc, char **argv) {
    read_options(argc, argv,
                 (struct option_row[]){{"--megabytes", &megabytes}, {"--seed", &seed}}, 2);
    REQUIRE(megabytes > 0 && megabytes <= 2048, "--megabytes must be 1 to 2048");

    start();
    CUdevice device;
    int supported = 0;
    size_t granularity = 0;
    CHECK(cuCtxGetDevice(&device));
    CHECK(cuDeviceGetAttribute(&supported, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED,
                               device));
    REQUIRE(supported, "this device has no virtual memory management");
    properties = (CUmemAllocationProp){
        .type = CU_MEM_ALLOCATION_TYPE_PINNED,
        .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
        .location = {CU_MEM_LOCATION_TYPE_DEVICE, device}};
    CHECK(cuMemGetAllocationGranularity(&granularity, &properties,
                                        CU_MEM_ALLOC_GRANULARITY_MINIMUM));
    bytes = (megabytes * (size_t)1048576 + granularity - 1) / granularity * granularity;
    printf("two handles of %zu bytes: mapped, moved to other addresses, exported, imported\n",
           bytes);
    CUmodule module = load_kernels();
    uint64_t sum = CHECKSUM_START;

    CUdeviceptr window, elsewhere;
    CHECK(cuMemAddressReserve(&window, 4 * bytes, 0, 0, 0));
    CHECK(cuMemAddressReserve(&elsewhere, 4 * bytes, 0, 0, 0));
    CUmemGenericAllocationHandle first = create(), second = create();

    /* Two handles side by side are one range to a kernel and to a copy. */
    map(window, first);
    map(window + bytes, second);
    fill(module, window, seed);
    fill(module, window + bytes, seed + 1);
    sum = expect("the first handle", window, seed, sum);
    CHECK(cuMemsetD8(window + bytes - 512, 0x5a, 1024));
    unsigned char around[1024], want[1024];
    memset(want, 0x5a, sizeof want);
    CHECK(cuMemcpyDtoH(around, window + bytes - 512, sizeof around));
    require_same("a fill across two handles", around, want, sizeof around, 1);
    fill(module, window, seed);
    fill(module, window + bytes, seed + 1);
    CHECK(cuCtxSynchronize());

    /* Unmapped and mapped again elsewhere, the other way round: contents travel with handles. */
    CHECK(cuMemUnmap(window, 2 * bytes));
    map(elsewhere + bytes, first);
    map(elsewhere + 2 * bytes, second);
    sum = expect("the first handle at a new address", elsewhere + bytes, seed, sum);
    sum = expect("the second handle at a new address", elsewhere + 2 * bytes, seed + 1, sum);

    /* Through a descriptor: the imported handle is the same memory. */
    int descriptor = -1;
    CUmemGenericAllocationHandle imported;
    CHECK(cuMemExportToShareableHandle(&descriptor, first,
                                       CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    CHECK(cuMemImportFromShareableHandle(&imported, (void *)(intptr_t)descriptor,
                                         CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
    close(descriptor);
    map(window, imported);
    sum = expect("the imported handle", window, seed, sum);
    fill(module, window, seed + 2);
    sum = expect("the first handle, written through the import", elsewhere + bytes, seed + 2, sum);

    /* A handle that is released lives on while it is mapped; the mapping gives it back. */
    CHECK(cuMemRelease(second));
    sum = expect("a released handle", elsewhere + 2 * bytes, seed + 1, sum);
    CUmemGenericAllocationHandle again;
    CHECK(cuMemRetainAllocationHandle(&again, (void *)(uintptr_t)(elsewhere + 2 * bytes)));
    CHECK(cuMemUnmap(elsewhere + 2 * bytes, bytes));
    map(window + 3 * bytes, again);
    sum = expect("a handle got back from its mapping", window + 3 * bytes, seed + 1, sum);

    CHECK(cuMemUnmap(window, bytes));
    CHECK(cuMemUnmap(window + 3 * bytes, bytes));
    CHECK(cuMemUnmap(elsewhere + bytes, bytes));
    CHECK(cuMemRelease(first));
    CHECK(cuMemRelease(imported));
    CHECK(cuMemRelease(again));
    CHECK(cuMemAddressFree(window, 4 * bytes));
    CHECK(cuMemAddressFree(elsewhere, 4 * bytes));
    CHECK(cuModuleUnload(module));
    return finish("vmm", sum);
}
