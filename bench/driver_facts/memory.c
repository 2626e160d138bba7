/* D: what the memory calls answer for memory of cuMemAlloc, and for mapped memory of each kind. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "mapped.h"

enum kind { ALLOCATED, MAPPED, EXPORTABLE, IMPORTED_OWN, IMPORTED, KINDS };

static const char *const kinds[] = {
    "cuMemAlloc",
    "mapped, not exportable",
    "mapped, exportable",
    "mapped, imported from a descriptor of this process",
    "mapped, imported from another process",
};

static const size_t SIZE = 4 * MIB;
static const char *kind_name;
static CUdeviceptr target, other;
static CUmemGenericAllocationHandle target_handle;
static CUstream stream;

/* One row: about "CALL, KIND". */
#define ASK(text, call)                                                                            \
    do {                                                                                           \
        about("%s; %s", kind_name, text);                                                          \
        answer("%d", (int)(call));                                                                 \
    } while (0)

static void tell_whether_usable(const char *after) {
    unsigned word = 0;
    CUresult fill = cuMemsetD32(target, 77, 4), copy = cuMemcpyDtoH(&word, target, sizeof word);
    about("%s; a fill and a copy after %s", kind_name, after);
    answer("%d, %d%s", (int)fill, (int)copy, word == 77 ? ", usable" : ", NOT usable");
}

static void retain(void) {
    CUmemGenericAllocationHandle handle = 0;
    CUmemAllocationProp found;
    int descriptor = -1;
    ASK("cuMemRetainAllocationHandle", cuMemRetainAllocationHandle(&handle, (void *)target));
    if (handle) {
        ASK("… same handle as its own (1: yes)", handle == target_handle);
        ASK("… cuMemGetAllocationPropertiesFromHandle of it",
            cuMemGetAllocationPropertiesFromHandle(&found, handle));
        ASK("… cuMemExportToShareableHandle of it",
            cuMemExportToShareableHandle(&descriptor, handle, 1, 0));
        ASK("… cuMemRelease of it", cuMemRelease(handle));
    }
    ASK("cuMemRetainAllocationHandle inside (+4096)",
        cuMemRetainAllocationHandle(&handle, (void *)(target + 4096)));
    ASK("cuMemRetainAllocationHandle of a host address", cuMemRetainAllocationHandle(&handle, &found));
    ASK("cuMemRetainAllocationHandle to null", cuMemRetainAllocationHandle(NULL, (void *)target));
}

static void dma_buf(void) {
    int supported = -1, descriptor = -1;
    cuDeviceGetAttribute(&supported, ATTRIBUTE_DMA_BUF_SUPPORTED, world.device);
    about("%s; CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED", kind_name);
    answer("%d", supported);
#define RANGE(at, size, type, flags) cuMemGetHandleForAddressRange(&descriptor, at, size, type, flags)
    ASK("cuMemGetHandleForAddressRange, whole", RANGE(target, SIZE, 1, 0));
    ASK("… descriptor", descriptor);
    ASK("cuMemGetHandleForAddressRange, 64 KiB", RANGE(target, 65536, 1, 0));
    ASK("cuMemGetHandleForAddressRange, whole, flags 1 (PCIe)", RANGE(target, SIZE, 1, 1));
    ASK("cuMemGetHandleForAddressRange, whole, flags 2", RANGE(target, SIZE, 1, 2));
    ASK("cuMemGetHandleForAddressRange, 100 bytes", RANGE(target, 100, 1, 0));
    ASK("cuMemGetHandleForAddressRange, +100", RANGE(target + 100, 65536, 1, 0));
    ASK("cuMemGetHandleForAddressRange, type 2", RANGE(target, SIZE, 2, 0));
    ASK("cuMemGetHandleForAddressRange, 1 GiB", RANGE(target, 1024 * MIB, 1, 0));
    tell_whether_usable("cuMemGetHandleForAddressRange");
}

static void ipc(void) {
    CUipcMemHandle handle;
    ASK("cuIpcGetMemHandle", cuIpcGetMemHandle(&handle, target));
    ASK("cuIpcGetMemHandle inside (+256)", cuIpcGetMemHandle(&handle, target + 256));
    ASK("cuIpcGetMemHandle of 0", cuIpcGetMemHandle(&handle, 0));
}

static void set_attribute(void) {
    unsigned yes = 1, no = 0, seen = 9;
    ASK("cuPointerSetAttribute(SYNC_MEMOPS, 1)", cuPointerSetAttribute(&yes, 6, target));
    ASK("cuPointerGetAttribute(SYNC_MEMOPS)", cuPointerGetAttribute(&seen, 6, target));
    ASK("… value", seen);
    ASK("cuPointerSetAttribute(SYNC_MEMOPS, 0)", cuPointerSetAttribute(&no, 6, target));
    ASK("cuPointerSetAttribute(SYNC_MEMOPS, 1) inside (+256)",
        cuPointerSetAttribute(&yes, 6, target + 256));
    ASK("cuPointerSetAttribute(MEMORY_TYPE)", cuPointerSetAttribute(&yes, 2, target));
    ASK("cuPointerSetAttribute(SYNC_MEMOPS) of 0", cuPointerSetAttribute(&yes, 6, 0));
}

static void unmap(void) {
    ASK("cuMemUnmap of a part", cuMemUnmap(target, 2 * MIB));
    ASK("cuMemUnmap", cuMemUnmap(target, SIZE));
    tell_whether_usable("cuMemUnmap");
}

static void map_onto(void) {
    CUmemGenericAllocationHandle handle = own_handle(world.device, SIZE, false);
    ASK("cuMemMap onto it", cuMemMap(target, SIZE, 0, handle, 0));
    tell_whether_usable("cuMemMap");
    CUdeviceptr free_place = reserved(SIZE);
    ASK("cuMemMap with the address in place of a handle", cuMemMap(free_place, SIZE, 0, target, 0));
}

static void set_access(void) {
    CUmemAccessDesc own = access_of(world.device), none = own, read_only = own, wrong = access_of(99);
    none.flags = CU_MEM_ACCESS_FLAGS_PROT_NONE;
    read_only.flags = CU_MEM_ACCESS_FLAGS_PROT_READ;
    ASK("cuMemSetAccess, read and write", cuMemSetAccess(target, SIZE, &own, 1));
    ASK("cuMemSetAccess of a part", cuMemSetAccess(target, 2 * MIB, &own, 1));
    ASK("cuMemSetAccess for GPU 99", cuMemSetAccess(target, SIZE, &wrong, 1));
    ASK("cuMemSetAccess, read only", cuMemSetAccess(target, SIZE, &read_only, 1));
    ASK("cuMemSetAccess, none", cuMemSetAccess(target, SIZE, &none, 1));
    tell_whether_usable("cuMemSetAccess, none");
}

static void get_access(void) {
    unsigned long long flags = 99;
    CUmemLocation here = {CU_MEM_LOCATION_TYPE_DEVICE, world.device},
                  host = {CU_MEM_LOCATION_TYPE_HOST, 0}, wrong = {CU_MEM_LOCATION_TYPE_DEVICE, 99};
    ASK("cuMemGetAccess", cuMemGetAccess(&flags, &here, target));
    about("%s; … flags", kind_name);
    answer("%llu", flags);
    ASK("cuMemGetAccess inside (+4096)", cuMemGetAccess(&flags, &here, target + 4096));
    ASK("cuMemGetAccess for the host", cuMemGetAccess(&flags, &host, target));
    ASK("cuMemGetAccess for GPU 99", cuMemGetAccess(&flags, &wrong, target));
}

static void address_free(void) {
    ASK("cuMemAddressFree of a part", cuMemAddressFree(target, 2 * MIB));
    ASK("cuMemAddressFree", cuMemAddressFree(target, SIZE));
    tell_whether_usable("cuMemAddressFree");
}

static void host_register(void) {
    ASK("cuMemHostRegister", cuMemHostRegister((void *)target, 4096, 0));
    ASK("cuMemHostRegister, mapped", cuMemHostRegister((void *)target, 4096, 2));
    ASK("cuMemHostRegister, portable", cuMemHostRegister((void *)target, SIZE, 1));
    ASK("cuMemHostUnregister", cuMemHostUnregister((void *)target));
    tell_whether_usable("cuMemHostRegister");
}

static void host_calls(void) {
    CUdeviceptr found = 0;
    unsigned flags = 99;
    ASK("cuMemHostGetDevicePointer", cuMemHostGetDevicePointer(&found, (void *)target, 0));
    ASK("cuMemHostGetFlags", cuMemHostGetFlags(&flags, (void *)target));
    ASK("cuMemFreeHost", cuMemFreeHost((void *)target));
    tell_whether_usable("cuMemFreeHost");
}

static void advise(void) {
    CUmemLocation here = {CU_MEM_LOCATION_TYPE_DEVICE, world.device};
    ASK("cuMemAdvise(SET_READ_MOSTLY)", cuMemAdvise(target, SIZE, 1, here));
    ASK("cuMemAdvise(SET_PREFERRED_LOCATION)", cuMemAdvise(target, SIZE, 3, here));
    ASK("cuMemAdvise(SET_ACCESSED_BY)", cuMemAdvise(target, SIZE, 5, here));
    ASK("cuMemAdvise of before 12.2 (SET_READ_MOSTLY)",
        cuMemAdvise_v1(target, SIZE, 1, world.device));
    ASK("cuMemAdvise(99)", cuMemAdvise(target, SIZE, 99, here));
}

static void prefetch(void) {
    CUmemLocation here = {CU_MEM_LOCATION_TYPE_DEVICE, world.device},
                  host = {CU_MEM_LOCATION_TYPE_HOST, 0};
    ASK("cuMemPrefetchAsync to its GPU", cuMemPrefetchAsync(target, SIZE, here, 0, stream));
    ASK("cuMemPrefetchAsync to the host", cuMemPrefetchAsync(target, SIZE, host, 0, stream));
    ASK("cuMemPrefetchAsync of before 12.2",
        cuMemPrefetchAsync_v1(target, SIZE, world.device, stream));
    ASK("cuMemPrefetchAsync with flags 1", cuMemPrefetchAsync(target, SIZE, here, 1, stream));
    ASK("… cuStreamSynchronize", cuStreamSynchronize(stream));
}

static void range_attribute(void) {
    int found = 99;
    ASK("cuMemRangeGetAttribute(READ_MOSTLY)",
        cuMemRangeGetAttribute(&found, sizeof found, 1, target, SIZE));
    ASK("cuMemRangeGetAttribute(PREFERRED_LOCATION)",
        cuMemRangeGetAttribute(&found, sizeof found, 2, target, SIZE));
    ASK("cuMemRangeGetAttribute(LAST_PREFETCH_LOCATION)",
        cuMemRangeGetAttribute(&found, sizeof found, 4, target, SIZE));
    ASK("cuMemRangeGetAttribute(99)", cuMemRangeGetAttribute(&found, sizeof found, 99, target, SIZE));
}

static void pool_export(void) {
    CUmemPoolPtrExportData data;
    ASK("cuMemPoolExportPointer", cuMemPoolExportPointer(&data, target));
    ASK("cuMemPoolExportPointer of 0", cuMemPoolExportPointer(&data, 0));
}

static void graph_free(void) {
    CUgraph graph;
    CUgraphNode node;
    MUST(cuGraphCreate(&graph, 0));
    CUresult got = cuGraphAddMemFreeNode(&node, graph, NULL, 0, target);
    ASK("cuGraphAddMemFreeNode", got);
    ASK("cuGraphAddMemFreeNode inside (+256)",
        cuGraphAddMemFreeNode(&node, graph, NULL, 0, target + 256));
    if (!got) {
        CUgraphExec exec;
        CUresult made = cuGraphInstantiate(&exec, graph, 0);
        ASK("… instantiate", made);
        if (!made) ASK("… launch", cuGraphLaunch(exec, stream));
        ASK("… synchronize", cuStreamSynchronize(stream));
        tell_whether_usable("that graph");
    }
}

static void tell_copied(const char *text, CUresult got, CUresult after, CUdeviceptr seen_at) {
    unsigned word = 0;
    CUresult read = cuMemcpyDtoH(&word, seen_at, sizeof word);
    about("%s; %s", kind_name, text);
    answer("%d, synchronize %d, the target has %s (%d)", (int)got, (int)after,
           word == 0x11111111 ? "the source's contents" : "not the source's contents", (int)read);
}

/* A device address where a copy expects a host address. */
static void wrong_side(void) {
    CUresult got;
#define PREPARE_COPY()                                                                             \
    do {                                                                                           \
        MUST(cuMemsetD32(target, 0x11111111, SIZE / 4));                                           \
        MUST(cuMemsetD32(other, 0x22222222, SIZE / 4));                                            \
        MUST(cuCtxSynchronize());                                                                  \
    } while (0)
    PREPARE_COPY();
    got = cuMemcpyHtoD(other, (void *)target, 64);
    tell_copied("cuMemcpyHtoD with it as host source, 64 bytes", got, cuCtxSynchronize(), other);
    PREPARE_COPY();
    got = cuMemcpyHtoD(other, (void *)target, 2 * MIB);
    tell_copied("cuMemcpyHtoD with it as host source, 2 MiB", got, cuCtxSynchronize(), other);
    PREPARE_COPY();
    got = cuMemcpyHtoDAsync(other, (void *)target, 64, stream);
    tell_copied("cuMemcpyHtoDAsync with it as host source, 64 bytes", got, cuStreamSynchronize(stream),
                other);
    PREPARE_COPY();
    got = cuMemcpyHtoDAsync(other, (void *)target, 2 * MIB, stream);
    tell_copied("cuMemcpyHtoDAsync with it as host source, 2 MiB", got, cuStreamSynchronize(stream),
                other);
    CUdeviceptr kept = target;
#define SWAPPED(text, call)                                                                        \
    do {                                                                                           \
        PREPARE_COPY();                                                                            \
        MUST(cuMemsetD32(target, 0x22222222, SIZE / 4));                                           \
        MUST(cuMemsetD32(other, 0x11111111, SIZE / 4));                                            \
        MUST(cuCtxSynchronize());                                                                  \
        got = call;                                                                                \
        tell_copied(text, got, cuCtxSynchronize(), kept);                                          \
    } while (0)
    SWAPPED("cuMemcpyDtoH with it as host target, 64 bytes", cuMemcpyDtoH((void *)target, other, 64));
    SWAPPED("cuMemcpyDtoH with it as host target, 2 MiB", cuMemcpyDtoH((void *)target, other, 2 * MIB));
    SWAPPED("cuMemcpyDtoHAsync with it as host target, 64 bytes",
            cuMemcpyDtoHAsync((void *)target, other, 64, stream));
    SWAPPED("cuMemcpy to it", cuMemcpy(target, other, 64));
}

static void past_the_end(void) {
    static char bytes[8192];
    ASK("cuMemcpyHtoD to its last 4 KiB, 8 KiB long", cuMemcpyHtoD(target + SIZE - 4096, bytes, 8192));
    ASK("cuMemcpyDtoH from its last 4 KiB, 8 KiB long", cuMemcpyDtoH(bytes, target + SIZE - 4096, 8192));
    ASK("cuMemsetD8 past its end", cuMemsetD8(target + SIZE - 4096, 0, 8192));
    ASK("cuMemcpyDtoD past its end", cuMemcpyDtoD(other, target + SIZE - 4096, 8192));
    ASK("cuMemcpyHtoD with it as host source past its end",
        cuMemcpyHtoD(other, (void *)(target + SIZE - 4096), 8192));
    ASK("cuMemcpyHtoD with a host address as target", cuMemcpyHtoD((CUdeviceptr)(uintptr_t)bytes, bytes + 4096, 64));
    tell_whether_usable("copies past the end");
}

static void export_address(void) {
    int descriptor = -1;
    CUmemAllocationProp found;
    ASK("cuMemExportToShareableHandle with the address in place of a handle",
        cuMemExportToShareableHandle(&descriptor, target, 1, 0));
    ASK("cuMemGetAllocationPropertiesFromHandle with the address in place of a handle",
        cuMemGetAllocationPropertiesFromHandle(&found, target));
    if (target_handle)
        ASK("cuMemExportToShareableHandle of its handle",
            cuMemExportToShareableHandle(&descriptor, target_handle, 1, 0));
    tell_whether_usable("these calls");
    ASK("cuMemRelease with the address in place of a handle", cuMemRelease(target));
}

static void attributes(void) {
    static const char *const names[] = {
        "", "CONTEXT", "MEMORY_TYPE", "DEVICE_POINTER", "HOST_POINTER", "P2P_TOKENS", "SYNC_MEMOPS",
        "BUFFER_ID", "IS_MANAGED", "DEVICE_ORDINAL", "IS_LEGACY_CUDA_IPC_CAPABLE",
        "RANGE_START_ADDR", "RANGE_SIZE", "MAPPED", "ALLOWED_HANDLE_TYPES",
        "IS_GPU_DIRECT_RDMA_CAPABLE", "ACCESS_FLAGS", "MEMPOOL_HANDLE", "MAPPING_SIZE",
        "MAPPING_BASE_ADDR", "MEMORY_BLOCK_ID", "IS_HW_DECOMPRESS_CAPABLE"};
    for (int which = 1; which <= 21; which++) {
        /* The widest is 16 bytes; what the driver does not write shows as 0x5a. */
        unsigned long long value[4];
        char text[96];
        memset(value, 0x5a, sizeof value);
        about("%s; cuPointerGetAttribute(%d, %s) at +4096", kind_name, which, names[which]);
        CUresult got = cuPointerGetAttribute(value, which, target + 4096);
        unsigned char *bytes = (unsigned char *)value;
        int written = 32;
        while (written && bytes[written - 1] == 0x5a) written--;
        if (got) snprintf(text, sizeof text, "nothing");
        else if (which == 1)
            snprintf(text, sizeof text, "%s",
                     value[0] == (uintptr_t)world.context ? "the context"
                     : value[0]                           ? "another context"
                                                          : "null");
        else if (which == 3 || which == 4 || which == 11 || which == 19)
            snprintf(text, sizeof text, "address %+lld", (long long)(value[0] - target));
        else if (which == 7 || which == 20)
            snprintf(text, sizeof text, "some number%s", value[0] ? "" : ", 0");
        else if (written <= 1) snprintf(text, sizeof text, "%u", bytes[0]);
        else if (written <= 4) snprintf(text, sizeof text, "%u", (unsigned)value[0]);
        else snprintf(text, sizeof text, "%llu", value[0]);
        answer("%d, %s (%d bytes written)", (int)got, text, written);
    }
    int type;
    ASK("cuPointerGetAttribute(MEMORY_TYPE) of one past its end",
        cuPointerGetAttribute(&type, 2, target + SIZE));
    ASK("cuPointerGetAttribute(MEMORY_TYPE) of pageable host memory",
        cuPointerGetAttribute(&type, 2, (CUdeviceptr)(uintptr_t)&kind_name));
    ASK("cuPointerGetAttribute(99)", cuPointerGetAttribute(&type, 99, target));
}

static void attach(void) {
    ASK("cuStreamAttachMemAsync(single)", cuStreamAttachMemAsync(stream, target, 0, 4));
    ASK("cuStreamAttachMemAsync(global)", cuStreamAttachMemAsync(stream, target, 0, 1));
    ASK("cuStreamAttachMemAsync(single, whole length)", cuStreamAttachMemAsync(stream, target, SIZE, 4));
    ASK("cuStreamAttachMemAsync(flags 99)", cuStreamAttachMemAsync(stream, target, 0, 99));
}

static void ask_range_without_context(void *data) {
    CUdeviceptr base = 0;
    size_t size = 0;
    int type = 0;
    (void)data;
    ASK("cuMemGetAddressRange on a thread without a current context",
        cuMemGetAddressRange(&base, &size, target));
    about("%s; … offset, size", kind_name);
    answer("%+lld, %zu", (long long)(base - target), size);
    ASK("cuPointerGetAttribute(MEMORY_TYPE) on a thread without a current context",
        cuPointerGetAttribute(&type, 2, target));
    CUcontext context = NULL;
    ASK("cuPointerGetAttribute(CONTEXT) on a thread without a current context",
        cuPointerGetAttribute(&context, 1, target));
}

static void range(void) {
    CUdeviceptr base = 0;
    size_t size = 0;
    ASK("cuMemGetAddressRange inside (+100)", cuMemGetAddressRange(&base, &size, target + 100));
    about("%s; … offset, size", kind_name);
    answer("%+lld, %zu", (long long)(base - target), size);
    ASK("cuMemGetAddressRange of one past its end", cuMemGetAddressRange(&base, &size, target + SIZE));
    ASK("cuMemGetAddressRange to null", cuMemGetAddressRange(NULL, NULL, target));
    ASK("cuMemGetAddressRange of 0", cuMemGetAddressRange(&base, &size, 0));
    on_thread(ask_range_without_context, NULL);
}

static void bind(void) {
    ASK("cuMulticastBindAddr with handle 0", cuMulticastBindAddr(0, 0, target, SIZE, 0));
}

static void free_it(void) {
    ASK("cuMemFree inside (+256)", cuMemFree(target + 256));
    ASK("cuMemFreeAsync inside (+256)", cuMemFreeAsync(target + 256, stream));
    ASK("cuMemFree", cuMemFree(target));
    ASK("cuMemFree again", cuMemFree(target));
    tell_whether_usable("cuMemFree");
}

static void free_it_async(void) {
    ASK("cuMemFreeAsync", cuMemFreeAsync(target, stream));
    ASK("… cuStreamSynchronize", cuStreamSynchronize(stream));
    tell_whether_usable("cuMemFreeAsync");
}

static void (*const questions[])(void) = {
    retain,       dma_buf,     ipc,         set_attribute, unmap,      map_onto,   set_access,
    get_access,   address_free, host_register, host_calls,  advise,     prefetch,   range_attribute,
    pool_export,  graph_free,  wrong_side,  past_the_end,  export_address, attributes, attach,
    range,        bind,        free_it,     free_it_async,
};
enum { QUESTIONS = sizeof questions / sizeof questions[0] };

static void ask_of_memory(const int *variant) {
    enum kind kind = (enum kind)variant[0];
    kind_name = kinds[kind];
    about("%s; question %d", kind_name, variant[1]);
    if (kind == IMPORTED) start_exporter(0, 1, SIZE);
    begin(0);
    stream = non_blocking();
    other = memory(SIZE);
    switch (kind) {
    case ALLOCATED:
        target = memory(SIZE);
        break;
    case MAPPED:
    case EXPORTABLE:
        target_handle = own_handle(0, SIZE, kind == EXPORTABLE);
        break;
    case IMPORTED_OWN:
        target_handle = imported(exported(own_handle(0, SIZE, true)));
        break;
    default:
        target_handle = imported(take_descriptor());
        break;
    }
    if (!target) target = mapped(target_handle, SIZE, 0);
    questions[variant[1]]();
}

/* --- host memory that is not there ----------------------------------------------------------- */

static void unmapped_host(const int *variant) {
    begin(0);
    CUdeviceptr there = memory(4 * MIB);
    size_t size = variant[1] ? 2 * MIB : 64;
    char *gone = mmap(NULL, 4 * MIB, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    stream = non_blocking();
    CUresult got;
    switch (variant[0]) {
    case 0:
        munmap(gone, 4 * MIB);
        about("cuMemcpyHtoD of %zu bytes from an unmapped host address", size);
        got = cuMemcpyHtoD(there, gone, size);
        break;
    case 1:
        munmap(gone, 4 * MIB);
        about("cuMemcpyDtoH of %zu bytes to an unmapped host address", size);
        got = cuMemcpyDtoH(gone, there, size);
        break;
    case 2:
        munmap(gone, 4 * MIB);
        about("cuMemcpyHtoDAsync of %zu bytes from an unmapped host address", size);
        got = cuMemcpyHtoDAsync(there, gone, size, stream);
        break;
    case 3:
        munmap(gone, 4 * MIB);
        about("cuMemcpyDtoHAsync of %zu bytes to an unmapped host address", size);
        got = cuMemcpyDtoHAsync(gone, there, size, stream);
        break;
    case 4:
        about("cuMemcpyHtoD of %zu bytes from a page without access", size);
        got = cuMemcpyHtoD(there, gone, size);
        break;
    case 5:
        about("cuMemcpyHtoD of %zu bytes from address 0", size);
        got = cuMemcpyHtoD(there, NULL, size);
        break;
    default: {
        about("cuMemcpyHtoD of %zu bytes from a freed device address", size);
        CUdeviceptr freed = memory(4 * MIB);
        MUST(cuMemFree(freed));
        got = cuMemcpyHtoD(there, (void *)freed, size);
    }
    }
    answer("%d, synchronize %d", (int)got, (int)cuCtxSynchronize());
}

void add_memory(void) {
    for (int kind = 0; kind < KINDS; kind++)
        for (int question = 0; question < QUESTIONS; question++)
            add("D", ONE_GPU, ask_of_memory, kind, question, 0, 0);
    for (int call = 0; call <= 6; call++)
        for (int large = 0; large < 2; large++) add("D host", ONE_GPU, unmapped_host, call, large, 0, 0);
}
