/* A program that has two GPUs write to each other's memory by a multicast object. */
#include "legal.h"

enum { SIZE = 6 << 20, UNIT = 2 << 20, GPUS = 2 };

typedef struct {
    unsigned devices;
    size_t bytes;
    unsigned long long handle_types, flags;
} CUmulticastObjectProp;

typedef CUmemGenericAllocationHandle handle;

CUresult cuMulticastCreate(handle *out, const CUmulticastObjectProp *properties);
CUresult cuMulticastAddDevice(handle object, CUdevice device);
CUresult cuMulticastBindMem(handle object, size_t at, handle memory, size_t offset, size_t bytes,
                            unsigned long long flags);
CUresult cuMulticastBindAddr(handle object, size_t at, CUdeviceptr address, size_t bytes,
                             unsigned long long flags);
CUresult cuMulticastUnbind(handle object, CUdevice device, size_t at, size_t bytes);
CUresult cuMulticastGetGranularity(size_t *out, const CUmulticastObjectProp *properties,
                                   int option);

/* A GPU, and memory of it that is mapped. */
struct side {
    CUcontext context;
    handle memory;
    CUdeviceptr at;
};

static struct side sides[GPUS];
static handle object;

#define SAY(call) printf("%s: %d\n", #call, (int)(call))

static void let_in(CUdeviceptr at, int device) {
    CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_DEVICE, device},
                              CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CHECK(cuMemSetAccess(at, SIZE, &access, 1));
}

static CUdeviceptr map(handle memory) {
    CUdeviceptr at;
    CHECK(cuMemAddressReserve(&at, SIZE, 0, 0, 0));
    CHECK(cuMemMap(at, SIZE, 0, memory, 0));
    return at;
}

static void enter(int device) {
    CUmemAllocationProp kind = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                .location = {CU_MEM_LOCATION_TYPE_DEVICE, device}};
    struct side *side = &sides[device];
    CHECK(cuDevicePrimaryCtxRetain(&side->context, device));
    CHECK(cuCtxSetCurrent(side->context));
    CHECK(cuMemCreate(&side->memory, SIZE, &kind, 0));
    side->at = map(side->memory);
    let_in(side->at, device);
    CHECK(cuMemsetD32(side->at, 100 + (unsigned)device, SIZE / 4));
    CHECK(cuCtxSynchronize());
}

static void check(const char *when) {
    static unsigned words[SIZE / 4];
    for (int device = 0; device < GPUS; device++) {
        unsigned right = 0;
        CHECK(cuCtxSetCurrent(sides[device].context));
        CHECK(cuMemcpyDtoH(words, sides[device].at, SIZE));
        for (unsigned i = 0; i < SIZE / 4; i++) right += words[i] == 100 + (unsigned)device;
        printf("%s, GPU %d: %s\n", when, device, right == SIZE / 4 ? "right" : "wrong");
    }
}

static void make(void) {
    CUmulticastObjectProp of_both = {.devices = GPUS, .bytes = SIZE};
    size_t unit = 0;
    enter(0);
    enter(1);
    SAY(cuMulticastGetGranularity(&unit, &of_both, 0));
    printf("granularity %zu\n", unit);
    CHECK(cuMulticastCreate(&object, &of_both));
}

/* Both GPUs bind their memory, each in its own way. */
static void bound(void) {
    make();
    CHECK(cuMulticastAddDevice(object, 0));
    SAY(cuMulticastAddDevice(object, 0));
    CHECK(cuMulticastAddDevice(object, 1));
    check("before");
    wait_for_line();
    SAY(cuMulticastBindMem(object, 0, sides[0].memory, UNIT, UNIT, 0));
    SAY(cuMulticastBindMem(object, 0, sides[0].memory, UNIT, UNIT, 0));
    SAY(cuMulticastBindMem(object, 0, sides[0].memory, SIZE, UNIT, 0));
    SAY(cuMulticastBindMem(object, 1, sides[0].memory, 0, UNIT, 0));
    SAY(cuMulticastBindMem(object, UNIT, object, 0, UNIT, 0));
    SAY(cuMulticastBindAddr(object, 0, sides[1].at, SIZE, 0));
    wait_for_line();
    SAY(cuMulticastBindAddr(object, UNIT, sides[0].at + UNIT, UNIT, 0));
    check("bound");
    CUdeviceptr all = map(object);
    let_in(all, 0);
    wait_for_line();
    check("mapped");
    SAY(cuMulticastUnbind(object, 0, 0, UNIT));
    SAY(cuMulticastUnbind(object, 0, 0, UNIT));
    SAY(cuMulticastUnbind(object, 1, 0, SIZE));
    CHECK(cuMemUnmap(all, SIZE));
    CHECK(cuMemRelease(object));
    wait_for_line();
    check("after");
    for (int device = 0; device < GPUS; device++) {
        CHECK(cuMemUnmap(sides[device].at, SIZE));
        CHECK(cuMemRelease(sides[device].memory));
    }
}

static void *bind_first(void *nothing) {
    CHECK(cuCtxSetCurrent(sides[0].context));
    SAY(cuMulticastBindMem(object, 0, sides[0].memory, 0, SIZE, 0));
    return nothing;
}

static void *map_first(void *nothing) {
    let_in(map(object), 0);
    return nothing;
}

/* Threads bind and map while the second GPU is missing: they wait, and no other thread does. */
static void waiting(void) {
    make();
    CHECK(cuMulticastAddDevice(object, 0));
    pthread_t binds = go(bind_first, NULL), maps = go(map_first, NULL);
    sleep_ms(100);
    check("while threads wait");
    wait_for_line();
    check("after that");
    CHECK(cuMulticastAddDevice(object, 1));
    join(binds);
    join(maps);
    check("in the end");
}

static void see_gpus(void) {
    int count = 0;
    CHECK(cuInit(0));
    CHECK(cuDeviceGetCount(&count));
    REQUIRE(count == GPUS, "there are %d GPUs", count);
}

int main(int argc, char **argv) {
    static const struct legal_case cases[] = {{"bound", bound}, {"waiting", waiting}};
    return play(argc, argv, see_gpus, cases, COUNT_OF(cases));
}
