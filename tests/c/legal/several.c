/* Programs that see two GPUs: they work on the second one alone, or on both, and have each reach
 * the other's memory.
 */
#include "legal.h"

CUresult cuMemcpyPeer(CUdeviceptr to, CUcontext to_context, CUdeviceptr from,
                      CUcontext from_context, size_t bytes);
CUresult cuMemcpyPeerAsync(CUdeviceptr to, CUcontext to_context, CUdeviceptr from,
                           CUcontext from_context, size_t bytes, CUstream stream);
CUresult cuDeviceCanAccessPeer(int *can, CUdevice device, CUdevice peer);
CUresult cuCtxEnablePeerAccess(CUcontext peer, unsigned flags);
CUresult cuCtxDisablePeerAccess(CUcontext peer);

enum { SIZE = 8 << 20, WORDS = SIZE / 4 };

/* One of the GPUs, with a piece of its memory. */
struct side {
    CUcontext context;
    struct tools tools;
    CUstream stream;
    struct piece piece;
};

static struct side sides[2];

static void see_gpus(void) {
    int count = 0;
    CHECK(cuInit(0));
    CHECK(cuDeviceGetCount(&count));
    REQUIRE(count == 2, "there are %d GPUs", count);
}

/* Makes a GPU's context current, and has it do something for the first time. */
static void enter(unsigned device, uint32_t seed) {
    struct side *side = &sides[device];
    int ordinal = -1;
    CHECK(cuDevicePrimaryCtxRetain(&side->context, (CUdevice)device));
    CHECK(cuCtxSetCurrent(side->context));
    CHECK(cuCtxGetDevice(&ordinal));
    REQUIRE(ordinal == (int)device, "its device is %d", ordinal);
    side->tools = warm_tools(load_kernels());
    side->stream = stream_new(CU_STREAM_NON_BLOCKING);
    side->piece = piece_new(&side->tools, SIZE, seed, side->stream);
    CHECK(cuStreamSynchronize(side->stream));
}

static void check(unsigned device, const char *what) {
    CHECK(cuCtxSetCurrent(sides[device].context));
    piece_check(&sides[device].tools, &sides[device].piece, what, 0);
}

static void count_call(void *calls) { ++*(int *)calls; }

/* --- one of two ---------------------------------------------------------------------------- */

/* Another program uses the first GPU. */
static void second_alone(void) {
    enter(1, 1);
    wait_for_line();
    check(1, "after a while");
    piece_write(&sides[1].tools, &sides[1].piece, 2, sides[1].stream);
    CHECK(cuStreamSynchronize(sides[1].stream));
    check(1, "what was written later");
    CHECK(cuMemFree(sides[1].piece.at));
}

/* The first one is taken too, but never worked on. */
static void second_beside(void) {
    CUcontext first;
    CHECK(cuDevicePrimaryCtxRetain(&first, 0));
    CHECK(cuCtxSetCurrent(first));
    step("work on the second GPU while the first one is somebody else's");
    enter(1, 1);
    for (unsigned round = 0; round < 100; round++) {
        piece_write(&sides[1].tools, &sides[1].piece, round, sides[1].stream);
    }
    CHECK(cuStreamSynchronize(sides[1].stream));
    check(1, "what was written last");
    step("calls on the second GPU that name no memory, or many things");
    struct piece copy = {.bytes = SIZE};
    copy.at = device_alloc(SIZE);
    CUDA_MEMCPY2D rows = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                          .srcDevice = sides[1].piece.at,
                          .srcPitch = SIZE / 8,
                          .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                          .dstDevice = copy.at,
                          .dstPitch = SIZE / 8,
                          .WidthInBytes = SIZE / 8,
                          .Height = 8};
    int calls = 0;
    CUgraph graph;
    CUgraphExec ready;
    CHECK(cuStreamBeginCapture(sides[1].stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    CHECK(cuLaunchHostFunc(sides[1].stream, count_call, &calls));
    CHECK(cuMemcpy2DAsync(&rows, sides[1].stream));
    CHECK(cuStreamEndCapture(sides[1].stream, &graph));
    CHECK(cuGraphInstantiateWithFlags(&ready, graph, 0));
    for (unsigned round = 0; round < 3; round++) CHECK(cuGraphLaunch(ready, sides[1].stream));
    CHECK(cuLaunchHostFunc(sides[1].stream, count_call, &calls));
    CHECK(cuStreamSynchronize(sides[1].stream));
    REQUIRE(calls == 4, "%d calls of a host function", calls);
    copy.seed = sides[1].piece.seed;
    piece_check(&sides[1].tools, &copy, "a copy by a graph", 0);
    wait_for_line();
    CHECK(cuMemFree(copy.at));
    CHECK(cuMemFree(sides[1].piece.at));
    printf("worked\n");
}

/* How large it is. */
static void second_size(void) {
    size_t available = 0, total = 0, of_device = 0;
    CHECK(cuDeviceTotalMem(&of_device, 1));
    enter(1, 1);
    CHECK(cuMemGetInfo(&available, &total));
    printf("%zu bytes, %zu in its context, %zu of them free\n", of_device, total, available);
}

/* --- copies -------------------------------------------------------------------------------- */

static void take_first(uint32_t seed) {
    piece_write(&sides[0].tools, &sides[0].piece, seed, sides[0].stream);
    CHECK(cuStreamSynchronize(sides[0].stream));
}

/* Everything of the first GPU goes to the second one and is compared there, in every way. */
static void copy_all(uint32_t seed) {
    struct side *first = &sides[0], *second = &sides[1];
    static const char *ways[] = {"copied", "copied by address", "copied between peers",
                                 "copied between peers in a stream", "copied in a stream"};
    for (unsigned way = 0; way < COUNT_OF(ways); way++) {
        for (unsigned current = 0; current < 2; current++) {
            CUdeviceptr to = second->piece.at, from = first->piece.at;
            CUstream stream = sides[current].stream;
            step(ways[way]);
            CHECK(cuCtxSetCurrent(first->context));
            take_first(seed + way * 2 + current);
            CHECK(cuCtxSetCurrent(sides[current].context));
            switch (way) {
            case 0: CHECK(cuMemcpyDtoD(to, from, SIZE)); break;
            case 1: CHECK(cuMemcpy(to, from, SIZE)); break;
            case 2: CHECK(cuMemcpyPeer(to, second->context, from, first->context, SIZE)); break;
            case 3:
                CHECK(cuMemcpyPeerAsync(to, second->context, from, first->context, SIZE, stream));
                break;
            case 4: CHECK(cuMemcpyDtoDAsync(to, from, SIZE, stream)); break;
            }
            CHECK(cuCtxSynchronize());
            second->piece.seed = first->piece.seed;
            check(1, ways[way]);
            /* And back. */
            piece_write(&second->tools, &second->piece, seed + 100 + way, second->stream);
            CHECK(cuStreamSynchronize(second->stream));
            CHECK(cuCtxSetCurrent(sides[current].context));
            CHECK(cuMemcpyDtoD(from, to, SIZE));
            CHECK(cuCtxSynchronize());
            first->piece.seed = second->piece.seed;
            check(0, "and back");
        }
        printf("%s\n", ways[way]);
    }
    /* The host reaches each from the other one's context. */
    CHECK(cuCtxSetCurrent(second->context));
    piece_check(&first->tools, &first->piece, "seen from the second", 0);
    CHECK(cuCtxSetCurrent(first->context));
    piece_check(&second->tools, &second->piece, "seen from the first", 0);
}

static void copies_after(unsigned first, unsigned second) {
    enter(first, 1);
    enter(second, 2);
    copy_all(10);
    wait_for_line();
    copy_all(1000);
    wait_for_line();
    /* Memory allocated in one context is freed in the other. */
    CHECK(cuCtxSetCurrent(sides[1].context));
    CHECK(cuMemFree(sides[0].piece.at));
    CHECK(cuMemFree(sides[1].piece.at));
}

static void copies(void) { copies_after(0, 1); }
static void copies_second_first(void) { copies_after(1, 0); }

/* --- peers --------------------------------------------------------------------------------- */

/* A kernel on one GPU adds up the other one's piece. */
static void sum_of_peer(unsigned here, CUdeviceptr sum) {
    struct side *side = &sides[here], *other = &sides[1 - here];
    uint64_t got = 0;
    CHECK(cuCtxSetCurrent(side->context));
    CHECK(cuMemsetD8(sum, 0, sizeof got));
    CHECK(cuCtxSynchronize());
    piece_sum(&side->tools, &other->piece, sum, side->stream);
    CHECK(cuStreamSynchronize(side->stream));
    CHECK(cuMemcpyDtoH(&got, sum, sizeof got));
    REQUIRE(got == sum_of(other->piece.seed, WORDS), "GPU %u sees the sum %#llx", here,
            (unsigned long long)got);
}

static void peers(void) {
    CUdeviceptr sums[2];
    for (unsigned device = 0; device < 2; device++) {
        enter(device, 1 + device);
        sums[device] = device_alloc(8);
    }
    for (unsigned device = 0; device < 2; device++) {
        int can = 0;
        CHECK(cuDeviceCanAccessPeer(&can, (CUdevice)device, 1 - (CUdevice)device));
        REQUIRE(can, "GPU %u cannot reach the other one", device);
        CHECK(cuCtxSetCurrent(sides[device].context));
        CHECK(cuCtxEnablePeerAccess(sides[1 - device].context, 0));
    }
    for (unsigned round = 0; round < 2; round++) {
        step("kernels that reach the other GPU's memory");
        for (unsigned device = 0; device < 2; device++) sum_of_peer(device, sums[device]);
        copy_all(10 + 1000 * round);
        /* Memory allocated now too, and it is written from the other GPU. */
        struct piece later = {.bytes = SIZE};
        CHECK(cuCtxSetCurrent(sides[0].context));
        later.at = device_alloc(SIZE);
        CHECK(cuCtxSetCurrent(sides[1].context));
        piece_write(&sides[1].tools, &later, 7 + round, sides[1].stream);
        CHECK(cuStreamSynchronize(sides[1].stream));
        CHECK(cuCtxSetCurrent(sides[0].context));
        piece_check(&sides[0].tools, &later, "written by a peer", 0);
        CHECK(cuMemFree(later.at));
        printf("round %u\n", round);
        wait_for_line();
    }
    for (unsigned device = 0; device < 2; device++) {
        CHECK(cuCtxSetCurrent(sides[device].context));
        CHECK(cuCtxDisablePeerAccess(sides[1 - device].context));
    }
}

/* --- questions ----------------------------------------------------------------------------- */

/* About memory of one GPU while the other one's context is current. */
static void ask(unsigned current, unsigned device) {
    CUdeviceptr base = 0, start = 0, pointer = 0, at = sides[device].piece.at, inside = at + 12345;
    size_t bytes = 0, size = 0;
    int ordinal = -1;
    CUcontext of_memory = NULL;
    CHECK(cuCtxSetCurrent(sides[current].context));
    printf("of GPU %u, seen from %u: the range %d", device, current,
           (int)cuMemGetAddressRange(&base, &bytes, inside));
    printf(" %s %zu, the pointer %d", base == at ? "its start" : "no start", bytes,
           (int)cuPointerGetAttribute(&pointer, CU_POINTER_ATTRIBUTE_DEVICE_POINTER, inside));
    printf(" %s\n", pointer == inside ? "itself" : "nothing");
    CHECK(cuPointerGetAttribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, inside));
    CHECK(cuPointerGetAttribute(&start, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, inside));
    CHECK(cuPointerGetAttribute(&size, CU_POINTER_ATTRIBUTE_RANGE_SIZE, inside));
    CHECK(cuPointerGetAttribute(&of_memory, CU_POINTER_ATTRIBUTE_CONTEXT, inside));
    printf("    device %d, %s, %zu bytes, %s\n", ordinal, start == at ? "its start" : "no start",
           size, of_memory == sides[device].context ? "its context" : "another context");
}

static void ask_all(void) {
    for (unsigned way = 0; way < 4; way++) ask(way / 2, way % 2);
}

static void questions(void) {
    enter(0, 1);
    enter(1, 2);
    ask_all();
    for (unsigned device = 0; device < 2; device++) {
        CHECK(cuCtxSetCurrent(sides[device].context));
        CHECK(cuCtxEnablePeerAccess(sides[1 - device].context, 0));
    }
    ask_all();
}

/* --- off the GPU --------------------------------------------------------------------------- */

/* A stream on the second GPU waits for a flag, and then copies the first one's memory.
 * The flag is raised while this thread makes no calls. */
static void taken(unsigned current) {
    enter(0, 1);
    enter(1, 2);
    volatile unsigned *flag = flags_new(1);
    wait_flag(sides[1].stream, flag);
    CHECK(cuCtxSetCurrent(sides[current].context));
    if (current == 1) {
        CHECK(cuMemcpyPeerAsync(sides[1].piece.at, sides[1].context, sides[0].piece.at,
                                sides[0].context, SIZE, sides[1].stream));
    } else {
        CHECK(cuMemcpyDtoDAsync(sides[1].piece.at, sides[0].piece.at, SIZE, sides[1].stream));
    }
    sides[1].piece.seed = sides[0].piece.seed;
    wait_for_line();
    raise_flag(flag);
    sleep_ms(200);
    wait_for_line();
    step("waiting for the copy");
    CHECK(cuStreamSynchronize(sides[1].stream));
    check(1, "what the stream has taken");
    check(0, "what it has taken it from");
}

static void taken_later(void) { taken(1); }

/* The same, while the first GPU is the current one. */
static void taken_across(void) { taken(0); }

/* --- the program's own handles ------------------------------------------------------------- */

/* A mapping of a handle, which these GPUs may use. */
static CUdeviceptr map_for(CUmemGenericAllocationHandle memory, size_t bytes, unsigned gpus) {
    CUmemAccessDesc access[2] = {
        {{CU_MEM_LOCATION_TYPE_DEVICE, 0}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE},
        {{CU_MEM_LOCATION_TYPE_DEVICE, 1}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE}};
    CUdeviceptr at;
    CHECK(cuMemAddressReserve(&at, bytes, 0, 0, 0));
    CHECK(cuMemMap(at, bytes, 0, memory, 0));
    CHECK(cuMemSetAccess(at, bytes, access, gpus));
    return at;
}

static void unmap(CUdeviceptr at, size_t bytes) {
    CHECK(cuMemUnmap(at, bytes));
    CHECK(cuMemAddressFree(at, bytes));
}

/* Both GPUs use a handle's memory while a stream waits; later it is exported. */
static void handles(void) {
    enum { BYTES = 3 * (2 << 20) };
    enter(0, 1);
    enter(1, 2);
    volatile unsigned *flag = flags_new(1);
    for (unsigned device = 0; device < 2; device++) wait_flag(stream_new(CU_STREAM_NON_BLOCKING), flag);
    CHECK(cuCtxSetCurrent(sides[0].context));
    wait_flag(stream_new(CU_STREAM_NON_BLOCKING), flag);
    CUmemAllocationProp properties = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                      .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                                      .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
    CUmemGenericAllocationHandle memory, imported;
    step("access for the other GPU while a stream waits");
    CHECK(cuMemCreate(&memory, BYTES, &properties, 0));
    struct piece here = {.bytes = BYTES, .at = map_for(memory, BYTES, 2)};
    struct piece also = {.bytes = BYTES, .at = map_for(memory, BYTES, 1)};
    for (unsigned round = 0; round < 2; round++) {
        step("writing by each GPU, and copies between them");
        for (unsigned device = 0; device < 2; device++) {
            CHECK(cuCtxSetCurrent(sides[device].context));
            piece_write(&sides[device].tools, &here, 10 * round + device, sides[device].stream);
            CHECK(cuStreamSynchronize(sides[device].stream));
            also.seed = here.seed;
            CHECK(cuCtxSetCurrent(sides[0].context));
            piece_check(&sides[0].tools, &also, "seen by the other mapping", 0);
            CHECK(cuMemcpyDtoDAsync(sides[1].piece.at, here.at, BYTES, sides[0].stream));
            CHECK(cuStreamSynchronize(sides[0].stream));
            struct piece copy = {.bytes = BYTES, .at = sides[1].piece.at, .seed = here.seed};
            CHECK(cuCtxSetCurrent(sides[1].context));
            piece_check(&sides[1].tools, &copy, "copied to the second GPU", 0);
        }
        wait_for_line();
    }
    raise_flag(flag);
    for (unsigned device = 0; device < 2; device++) {
        CHECK(cuCtxSetCurrent(sides[device].context));
        CHECK(cuCtxSynchronize());
    }
    step("exporting what the other GPU has access to");
    CHECK(cuCtxSetCurrent(sides[0].context));
    int descriptor = -1;
    CHECK(cuMemExportToShareableHandle(&descriptor, memory, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    CHECK(cuMemImportFromShareableHandle(&imported, (void *)(intptr_t)descriptor,
                                         CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
    struct piece passed = {.bytes = BYTES, .at = map_for(imported, BYTES, 1), .seed = here.seed};
    piece_check(&sides[0].tools, &passed, "imported", 0);
    step("writing by the other GPU to what was exported");
    CHECK(cuCtxSetCurrent(sides[1].context));
    piece_write(&sides[1].tools, &here, 77, sides[1].stream);
    CHECK(cuStreamSynchronize(sides[1].stream));
    CHECK(cuCtxSetCurrent(sides[0].context));
    passed.seed = also.seed = here.seed;
    piece_check(&sides[0].tools, &passed, "written by the other GPU", 0);
    piece_check(&sides[0].tools, &also, "seen by the other mapping", 0);
    unsigned long long flags = 9;
    CUmemLocation second = {CU_MEM_LOCATION_TYPE_DEVICE, 1};
    CHECK(cuMemGetAccess(&flags, &second, also.at));
    printf("the second GPU's access by the other mapping: %llu\n", flags);
    unmap(passed.at, BYTES);
    unmap(also.at, BYTES);
    unmap(here.at, BYTES);
    CHECK(cuMemRelease(imported));
    CHECK(cuMemRelease(memory));
}

/* Only the mapping is for the second GPU: no call has let it have anything else. */
static void mapped(void) {
    enum { BYTES = 16 << 20 };
    enter(0, 1);
    enter(1, 2);
    CUmemAllocationProp properties = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                      .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
    CUmemGenericAllocationHandle memory;
    CUdeviceptr sum = device_alloc(8);
    CHECK(cuCtxSetCurrent(sides[0].context));
    CHECK(cuMemCreate(&memory, BYTES, &properties, 0));
    struct piece here = {.bytes = BYTES, .at = map_for(memory, BYTES, 2)};
    piece_write(&sides[0].tools, &here, 7, sides[0].stream);
    CHECK(cuStreamSynchronize(sides[0].stream));
    for (unsigned round = 0; round < 2; round++) {
        uint64_t got = 0;
        wait_for_line();
        step("a kernel on the second GPU over a mapping that has been away");
        CHECK(cuCtxSetCurrent(sides[1].context));
        CHECK(cuMemsetD8Async(sum, 0, sizeof got, sides[1].stream));
        piece_sum(&sides[1].tools, &here, sum, sides[1].stream);
        CHECK(cuStreamSynchronize(sides[1].stream));
        CHECK(cuMemcpyDtoH(&got, sum, sizeof got));
        REQUIRE(got == sum_of(here.seed, BYTES / 4), "the sum is %#llx", (unsigned long long)got);
    }
    unmap(here.at, BYTES);
    CHECK(cuMemRelease(memory));
}

int main(int argc, char **argv) {
    static const struct legal_case cases[] = {
        {"mapped", mapped},
        {"second-alone", second_alone},
        {"second-beside", second_beside},
        {"second-size", second_size},
        {"copies", copies},
        {"copies-second-first", copies_second_first},
        {"peers", peers},
        {"questions", questions},
        {"taken-later", taken_later},
        {"taken-across", taken_across},
        {"handles", handles},
    };
    return play(argc, argv, see_gpus, cases, COUNT_OF(cases));
}
