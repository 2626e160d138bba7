/* A list of wrong calls and their results, by number: the same list has to come from a driver
 * bare and with something between. Nothing here harms the process: handles are null or were given
 * back, and memory that is not ours is named in calls that check it. The last calls break the
 * context on purpose.
 *
 * Every call says what NVIDIA's driver 580.159 answers on an H200; where another answer comes, the
 * line says so. That is no failure: drivers differ in details.
 */
#include <fcntl.h>
#include <unistd.h>

#include "common.h"

static uint64_t sum = CHECKSUM_START;
static unsigned answers, differences;

static void show(const char *what, CUresult got, unsigned known) {
    char line[160];
    int length = snprintf(line, sizeof line, "%s -> %d", what, (int)got);
    sum = checksum(sum, line, (size_t)length);
    printf("%s", line);
    if ((unsigned)got != known) {
        printf("   (580.159: %u)", known);
        differences++;
    }
    printf("\n");
    answers++;
}

/* Makes a call and shows its answer beside the one that is known. */
#define ASK(known, what, call) show(what, (call), (known))

enum { MIB = 1 << 20 };

static void before_initialisation(void) {
    int number;
    const char *name;
    CUcontext context;
    CUdeviceptr memory;
    CUdevice device;
    ASK(3, "cuDeviceGetCount before cuInit", cuDeviceGetCount(&number));
    ASK(3, "cuDeviceGet before cuInit", cuDeviceGet(&device, 0));
    ASK(3, "cuCtxGetCurrent before cuInit", cuCtxGetCurrent(&context));
    ASK(3, "cuCtxSynchronize before cuInit", cuCtxSynchronize());
    ASK(3, "cuMemAlloc before cuInit", cuMemAlloc(&memory, 16));
    ASK(0, "cuDriverGetVersion before cuInit", cuDriverGetVersion(&number));
    ASK(1, "cuDriverGetVersion to null", cuDriverGetVersion(NULL));
    ASK(0, "cuGetErrorName of 700", cuGetErrorName(CUDA_ERROR_ILLEGAL_ADDRESS, &name));
    ASK(1, "cuGetErrorName of 12345", cuGetErrorName((CUresult)12345, &name));
    ASK(1, "cuGetErrorString of 12345", cuGetErrorString((CUresult)12345, &name));
    ASK(1, "cuInit with a flag", cuInit(1));
    ASK(0, "cuInit", cuInit(0));
}

static void devices(void) {
    CUdevice device;
    int number;
    size_t bytes;
    char name[8];
    ASK(1, "cuDeviceGetCount to null", cuDeviceGetCount(NULL));
    ASK(1, "cuDeviceGet to null", cuDeviceGet(NULL, 0));
    ASK(101, "cuDeviceGet of -1", cuDeviceGet(&device, -1));
    ASK(101, "cuDeviceGet of 1000", cuDeviceGet(&device, 1000));
    ASK(101, "cuDeviceTotalMem of device 1000", cuDeviceTotalMem(&bytes, 1000));
    ASK(101, "cuDeviceGetName of device 1000", cuDeviceGetName(name, 8, 1000));
    ASK(1, "cuDeviceGetAttribute of attribute 99999",
        cuDeviceGetAttribute(&number, (CUdevice_attribute)99999, 0));
    ASK(1, "cuDeviceGetAttribute to null",
        cuDeviceGetAttribute(NULL, CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING, 0));
}

static void without_context(void) {
    CUdeviceptr memory;
    CUdevice device;
    CUcontext context;
    CUstream stream;
    CUevent event;
    CUmodule module;
    size_t bytes, total;
    ASK(201, "cuMemAlloc without a context", cuMemAlloc(&memory, 16));
    ASK(201, "cuMemGetInfo without a context", cuMemGetInfo(&bytes, &total));
    ASK(201, "cuCtxSynchronize without a context", cuCtxSynchronize());
    ASK(201, "cuCtxGetDevice without a context", cuCtxGetDevice(&device));
    ASK(201, "cuStreamCreate without a context", cuStreamCreate(&stream, 0));
    ASK(201, "cuEventCreate without a context", cuEventCreate(&event, 0));
    ASK(201, "cuModuleLoadData without a context", cuModuleLoadData(&module, kernels_ptx));
    ASK(201, "cuCtxPopCurrent of nothing", cuCtxPopCurrent(&context));
    ASK(0, "cuCtxGetCurrent of nothing", cuCtxGetCurrent(&context));
}

static void memory(void) {
    CUdeviceptr at = 0, base;
    size_t bytes;
    unsigned char host[64] = {0};
    ASK(1, "cuMemAlloc to null", cuMemAlloc(NULL, 16));
    ASK(1, "cuMemAlloc of 0 bytes", cuMemAlloc(&at, 0));
    ASK(2, "cuMemAlloc of 1 PiB", cuMemAlloc(&at, (size_t)1 << 50));
    ASK(0, "cuMemAlloc of 4 MiB", cuMemAlloc(&at, 4 * MIB));
    ASK(1, "cuMemFree inside an allocation", cuMemFree(at + 4096));
    ASK(1, "cuMemFree of a host address", cuMemFree((CUdeviceptr)(uintptr_t)host));
    ASK(1, "cuMemcpyHtoD to address 0", cuMemcpyHtoD(0, host, 16));
    ASK(1, "cuMemcpyHtoD from null", cuMemcpyHtoD(at, NULL, 16));
    ASK(0, "cuMemcpyHtoD of 0 bytes", cuMemcpyHtoD(at, host, 0));
    ASK(1, "cuMemcpyDtoH to null", cuMemcpyDtoH(NULL, at, 16));
    ASK(1, "cuMemcpyDtoH over the end", cuMemcpyDtoH(host, at + 4 * MIB - 16, 32));
    ASK(1, "cuMemcpyHtoD over the end", cuMemcpyHtoD(at + 4 * MIB - 16, host, 32));
    ASK(1, "cuMemcpyDtoD from address 0", cuMemcpyDtoD(at, 0, 16));
    ASK(1, "cuMemsetD8 of address 0", cuMemsetD8(0, 0, 16));
    ASK(1, "cuMemsetD8 over the end", cuMemsetD8(at + 4 * MIB - 16, 0, 32));
    ASK(1, "cuMemsetD16 of an odd address", cuMemsetD16(at + 1, 0, 4));
    ASK(1, "cuMemsetD32 between two words", cuMemsetD32(at + 2, 0, 4));
    ASK(1, "cuMemsetD2D8 with a pitch below the width", cuMemsetD2D8(at, 16, 0, 32, 2));
    ASK(1, "cuMemcpy2D of nothing", cuMemcpy2D(NULL));
    ASK(0, "cuMemGetAddressRange inside an allocation",
        cuMemGetAddressRange(&base, &bytes, at + 9));
    ASK(500, "cuMemGetAddressRange of address 0", cuMemGetAddressRange(&base, &bytes, 0));
    ASK(0, "cuMemFree", cuMemFree(at));
    ASK(1, "cuMemFree again", cuMemFree(at));
    ASK(0, "cuMemFree of address 0", cuMemFree(0));
    ASK(1, "cuMemcpyHtoD to freed memory", cuMemcpyHtoD(at, host, 16));
    ASK(500, "cuMemGetAddressRange of freed memory", cuMemGetAddressRange(&base, &bytes, at));
}

static void host_memory(void) {
    void *pinned, *page = aligned_alloc(4096, 4096);
    REQUIRE(page, "no host memory");
    CUdeviceptr at;
    unsigned flags, type;
    ASK(1, "cuMemHostAlloc to null", cuMemHostAlloc(NULL, 16, 0));
    ASK(1, "cuMemHostAlloc with an unknown flag", cuMemHostAlloc(&pinned, 16, 0x1000));
    ASK(0, "cuMemFreeHost of null", cuMemFreeHost(NULL));
    ASK(1, "cuMemFreeHost of plain memory", cuMemFreeHost(page));
    ASK(1, "cuMemHostGetDevicePointer of plain memory", cuMemHostGetDevicePointer(&at, page, 0));
    ASK(1, "cuMemHostGetFlags of plain memory", cuMemHostGetFlags(&flags, page));
    ASK(1, "cuPointerGetAttribute of plain memory",
        cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                              (CUdeviceptr)(uintptr_t)page));
    ASK(1, "cuMemHostRegister of null", cuMemHostRegister(NULL, 4096, 0));
    ASK(1, "cuMemHostRegister of 0 bytes", cuMemHostRegister(page, 0, 0));
    ASK(0, "cuMemHostRegister", cuMemHostRegister(page, 4096, 0));
    ASK(712, "cuMemHostRegister again", cuMemHostRegister(page, 4096, 0));
    ASK(0, "cuMemHostUnregister", cuMemHostUnregister(page));
    ASK(713, "cuMemHostUnregister again", cuMemHostUnregister(page));
    free(page);
}

static void modules_and_launches(void) {
    CUmodule module;
    CUfunction add;
    CUdeviceptr at, other;
    size_t bytes;
    ASK(1, "cuModuleLoadData of null", cuModuleLoadData(&module, NULL));
    ASK(218, "cuModuleLoadData of broken text",
        cuModuleLoadData(&module, ".version 7.0\n.target sm_75\nnonsense\n"));
    ASK(301, "cuModuleLoad of no file", cuModuleLoad(&module, "/no/such/file.ptx"));
    ASK(400, "cuModuleGetFunction of no module", cuModuleGetFunction(&add, NULL, "add"));
    ASK(400, "cuModuleUnload of no module", cuModuleUnload(NULL));
    ASK(0, "cuModuleLoadData", cuModuleLoadData(&module, kernels_ptx));
    ASK(500, "cuModuleGetFunction of no such name", cuModuleGetFunction(&add, module, "nobody"));
    ASK(1, "cuModuleGetFunction of null", cuModuleGetFunction(&add, module, NULL));
    ASK(500, "cuModuleGetGlobal of no such name", cuModuleGetGlobal(&at, &bytes, module, "no"));
    ASK(0, "cuModuleGetFunction", cuModuleGetFunction(&add, module, "add"));

    size_t offset, size;
    ASK(0, "cuFuncGetParamInfo of the last parameter", cuFuncGetParamInfo(add, 3, &offset, &size));
    ASK(1, "cuFuncGetParamInfo past the last", cuFuncGetParamInfo(add, 4, &offset, &size));
    unsigned n = 0;
    at = other = device_alloc(16);
    void *params[] = {&at, &other, &other, &n}, *extra[] = {CU_LAUNCH_PARAM_END};
    ASK(400, "cuLaunchKernel of no function",
        cuLaunchKernel(NULL, 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL));
    ASK(1, "cuLaunchKernel of no blocks",
        cuLaunchKernel(add, 0, 1, 1, 1, 1, 1, 0, NULL, params, NULL));
    ASK(1, "cuLaunchKernel of no threads",
        cuLaunchKernel(add, 1, 1, 1, 0, 1, 1, 0, NULL, params, NULL));
    ASK(1, "cuLaunchKernel of 2048 threads",
        cuLaunchKernel(add, 1, 1, 1, 2048, 1, 1, 0, NULL, params, NULL));
    ASK(1, "cuLaunchKernel with 1 MiB of shared memory",
        cuLaunchKernel(add, 1, 1, 1, 1, 1, 1, MIB, NULL, params, NULL));
    ASK(0, "cuLaunchKernel with parameters twice",
        cuLaunchKernel(add, 1, 1, 1, 1, 1, 1, 0, NULL, params, extra));
    ASK(0, "cuLaunchKernel", cuLaunchKernel(add, 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL));
    CHECK(cuMemFree(at));
    ASK(0, "cuModuleUnload", cuModuleUnload(module));
}

static void streams_and_events(void) {
    CUstream stream;
    CUevent timed, untimed;
    float milliseconds;
    ASK(1, "cuStreamCreate to null", cuStreamCreate(NULL, 0));
    ASK(1, "cuStreamCreate with an unknown flag", cuStreamCreate(&stream, 0x80));
    ASK(400, "cuStreamDestroy of the default stream", cuStreamDestroy(NULL));
    ASK(1, "cuEventCreate with an unknown flag", cuEventCreate(&timed, 0x100));
    ASK(1, "cuEventCreate to null", cuEventCreate(NULL, 0));
    ASK(400, "cuEventDestroy of no event", cuEventDestroy(NULL));
    ASK(400, "cuEventRecord of no event", cuEventRecord(NULL, NULL));
    ASK(400, "cuStreamWaitEvent of no event", cuStreamWaitEvent(NULL, NULL, 0));
    ASK(400, "cuEventQuery of no event", cuEventQuery(NULL));
    CHECK(cuEventCreate(&timed, CU_EVENT_DEFAULT));
    CHECK(cuEventCreate(&untimed, CU_EVENT_DISABLE_TIMING));
    ASK(0, "cuEventQuery of an event never recorded", cuEventQuery(timed));
    ASK(0, "cuEventSynchronize of an event never recorded", cuEventSynchronize(timed));
    ASK(400, "cuEventElapsedTime of events never recorded",
        cuEventElapsedTime(&milliseconds, timed, timed));
    CHECK(cuEventRecord(timed, NULL));
    CHECK(cuEventRecord(untimed, NULL));
    CHECK(cuCtxSynchronize());
    ASK(0, "cuEventElapsedTime", cuEventElapsedTime(&milliseconds, timed, timed));
    ASK(400, "cuEventElapsedTime of an event without timing",
        cuEventElapsedTime(&milliseconds, timed, untimed));
    ASK(400, "cuEventElapsedTime to null", cuEventElapsedTime(NULL, timed, timed));
    ASK(1, "cuLaunchHostFunc of null", cuLaunchHostFunc(NULL, NULL, NULL));
    CHECK(cuEventDestroy(timed));
    CHECK(cuEventDestroy(untimed));
}

static void virtual_memory(void) {
    CUmemAllocationProp properties = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                      .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
    CUmemAllocationProp nowhere = {.type = CU_MEM_ALLOCATION_TYPE_INVALID};
    CUmemAccessDesc access = {properties.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUmemGenericAllocationHandle handle, other;
    CUdeviceptr at;
    size_t unit;
    int descriptor;
    char byte;
    CHECK(cuMemGetAllocationGranularity(&unit, &properties, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
    ASK(1, "cuMemAddressReserve of 0 bytes", cuMemAddressReserve(&at, 0, 0, 0, 0));
    ASK(1, "cuMemAddressReserve of 1000 bytes", cuMemAddressReserve(&at, 1000, 0, 0, 0));
    ASK(1, "cuMemCreate of 1000 bytes", cuMemCreate(&handle, 1000, &properties, 0));
    ASK(1, "cuMemCreate of no kind", cuMemCreate(&handle, unit, &nowhere, 0));
    ASK(1, "cuMemCreate with a flag", cuMemCreate(&handle, unit, &properties, 1));
    ASK(2, "cuMemCreate of 1 PiB", cuMemCreate(&handle, (size_t)1 << 50, &properties, 0));
    CHECK(cuMemAddressReserve(&at, 4 * unit, 0, 0, 0));
    CHECK(cuMemCreate(&handle, 2 * unit, &properties, 0));
    CHECK(cuMemCreate(&other, unit, &properties, 0));
    ASK(1, "cuMemMap between two units", cuMemMap(at + 4096, 2 * unit, 0, handle, 0));
    ASK(801, "cuMemMap at an offset", cuMemMap(at, unit, unit, handle, 0));
    ASK(801, "cuMemMap of a part", cuMemMap(at, unit, 0, handle, 0));
    ASK(1, "cuMemSetAccess of nothing mapped", cuMemSetAccess(at, unit, &access, 1));
    ASK(0, "cuMemUnmap of nothing mapped", cuMemUnmap(at, unit));
    ASK(0, "cuMemMap", cuMemMap(at, 2 * unit, 0, handle, 0));
    ASK(1, "cuMemMap over a mapping", cuMemMap(at, unit, 0, other, 0));
    ASK(1, "cuMemcpyDtoH before cuMemSetAccess", cuMemcpyDtoH(&byte, at, 1));
    ASK(1, "cuMemUnmap of half a mapping", cuMemUnmap(at, unit));
    ASK(1, "cuMemAddressFree while mapped", cuMemAddressFree(at, 4 * unit));
    ASK(1, "cuMemFree of a mapping", cuMemFree(at));
    ASK(1, "cuMemExportToShareableHandle of a handle not made for it",
        cuMemExportToShareableHandle(&descriptor, handle,
                                     CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    ASK(0, "cuMemUnmap", cuMemUnmap(at, 2 * unit));
    ASK(1, "cuMemcpyDtoH of what is unmapped", cuMemcpyDtoH(&byte, at, 1));
    ASK(0, "cuMemRelease", cuMemRelease(handle));
    ASK(1, "cuMemRelease again", cuMemRelease(handle));
    ASK(1, "cuMemAddressFree of a part", cuMemAddressFree(at, unit));
    ASK(0, "cuMemAddressFree", cuMemAddressFree(at, 4 * unit));
    CHECK(cuMemRelease(other));
}

static void captures(void) {
    CUstream stream;
    CUgraph graph = NULL;
    CUdeviceptr at = device_alloc(16), more;
    CHECK(cuStreamCreate(&stream, CU_STREAM_DEFAULT));
    ASK(1, "cuGraphCreate to null", cuGraphCreate(NULL, 0));
    ASK(1, "cuGraphCreate with a flag", cuGraphCreate(&graph, 1));
    ASK(1, "cuGraphDestroy of no graph", cuGraphDestroy(NULL));
    ASK(900, "cuStreamBeginCapture of the default stream",
        cuStreamBeginCapture(NULL, CU_STREAM_CAPTURE_MODE_RELAXED));
    ASK(401, "cuStreamEndCapture of no capture", cuStreamEndCapture(stream, &graph));
    ASK(1, "cuStreamBeginCapture in no mode", cuStreamBeginCapture(stream, (CUstreamCaptureMode)9));

    CHECK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    ASK(401, "cuStreamBeginCapture again",
        cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    ASK(0, "cuMemsetD8Async in a capture", cuMemsetD8Async(at, 0, 16, stream));
    ASK(900, "cuStreamSynchronize in its capture", cuStreamSynchronize(stream));
    ASK(901, "cuStreamEndCapture after that", cuStreamEndCapture(stream, &graph));

    CHECK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    ASK(900, "cuMemAlloc in a global capture", cuMemAlloc(&more, 16));
    ASK(901, "cuStreamEndCapture after that", cuStreamEndCapture(stream, &graph));

    CHECK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    ASK(906, "cuMemsetD8Async on the default stream in a capture",
        cuMemsetD8Async(at, 0, 16, NULL));
    ASK(901, "cuStreamEndCapture after that", cuStreamEndCapture(stream, &graph));
    ASK(0, "cuMemsetD8Async afterwards", cuMemsetD8Async(at, 0, 16, stream));
    CHECK(cuStreamSynchronize(stream));
    CHECK(cuStreamDestroy(stream));
    CHECK(cuMemFree(at));
}

/* A kernel that writes where nothing is mapped: the context is lost, and every call says so. */
static void broken_context(void) {
    CUmodule module = load_kernels();
    CUfunction fill = kernel(module, "fill_hash");
    CUdeviceptr at, memory = device_alloc(1024);
    CUstream stream;
    size_t unused, total;
    unsigned n = 16, pattern = 1;
    CHECK(cuMemAddressReserve(&at, (size_t)64 * MIB, 0, 0, 0));
    void *params[] = {&at, &pattern, &n};
    ASK(0, "cuLaunchKernel that writes to unmapped memory",
        cuLaunchKernel(fill, 1, 1, 1, 32, 1, 1, 0, NULL, params, NULL));
    ASK(700, "cuCtxSynchronize after that", cuCtxSynchronize());
    ASK(700, "cuCtxSynchronize again", cuCtxSynchronize());
    ASK(700, "cuMemAlloc after that", cuMemAlloc(&at, 16));
    ASK(700, "cuMemcpyDtoH after that", cuMemcpyDtoH(&n, memory, sizeof n));
    ASK(700, "cuMemFree after that", cuMemFree(memory));
    ASK(700, "cuMemGetInfo after that", cuMemGetInfo(&unused, &total));
    ASK(700, "cuStreamCreate after that", cuStreamCreate(&stream, 0));
    ASK(700, "cuStreamQuery after that", cuStreamQuery(NULL));
    ASK(700, "cuLaunchKernel after that",
        cuLaunchKernel(fill, 1, 1, 1, 32, 1, 1, 0, NULL, params, NULL));
}

int main(void) {
    printf("wrong calls and what they answer\n");
    before_initialisation();
    devices();
    without_context();
    CUcontext context = start(), current;
    ASK(1, "cuCtxCreate to null", cuCtxCreate(NULL, NULL, 0, 0));
    ASK(101, "cuCtxCreate on device 1000", cuCtxCreate(&current, NULL, 0, 1000));
    ASK(1, "cuCtxDestroy of no context", cuCtxDestroy(NULL));
    ASK(0, "cuCtxGetCurrent", cuCtxGetCurrent(&current));
    REQUIRE(current == context, "the current context is another");
    memory();
    host_memory();
    modules_and_launches();
    streams_and_events();
    virtual_memory();
    captures();
    broken_context();
    printf("%u of %u answers differ from NVIDIA's driver 580.159\n", differences, answers);
    return finish("errors", sum);
}
