/* Threads leave contexts that others go on using, or that end and are made anew: memory that is freed
 * meanwhile stays until the work has ended that uses it, and a context's belongings go with it.
 */
#include "baton_cuda_pools.h"
#include "legal.h"

CUresult cuCtxAttach(CUcontext *context, unsigned flags);
CUresult cuCtxDetach(CUcontext context);

enum { ROUNDS = 24, LEAVERS = 3 };

/* --- threads that leave ---------------------------------------------------------------------- */

static atomic_int over;
static CUcontext made;

/* Several that use the primary context, of which this program keeps a reference. */
static void *retain_and_release(void *nothing) {
    while (!atomic_load(&over)) {
        CUcontext again;
        CHECK(cuDevicePrimaryCtxRetain(&again, 0));
        CHECK(cuDevicePrimaryCtxRelease(0));
    }
    return nothing;
}

static void *attach_and_detach(void *nothing) {
    CHECK(cuCtxSetCurrent(made));
    while (!atomic_load(&over)) {
        CUcontext again;
        CHECK(cuCtxAttach(&again, 0));
        CHECK(cuCtxDetach(again));
    }
    return nothing;
}

static pthread_t leavers[LEAVERS];

static void begin_leaving(void *(*leave)(void *)) {
    for (unsigned i = 0; i < LEAVERS; i++) leavers[i] = go(leave, NULL);
}

static void end_leaving(void) {
    atomic_store(&over, 1);
    for (unsigned i = 0; i < LEAVERS; i++) join(leavers[i]);
}

/* --- memory that is freed meanwhile ---------------------------------------------------------- */

static volatile unsigned *flags;
static unsigned raised;
static CUstream busy;
static CUdeviceptr sum;

static void *raise_soon(void *nothing) {
    sleep_ms(3);
    raise_flag(&flags[raised]);
    return nothing;
}

static void ready(void) {
    busy = stream_new(CU_STREAM_NON_BLOCKING);
    flags = flags_new(ROUNDS);
    sum = device_alloc(sizeof(uint64_t));
}

/* Work that waits for a while and then reads this. */
static pthread_t work_on(const struct piece *piece, unsigned round) {
    CHECK(cuMemsetD8Async(sum, 0, sizeof(uint64_t), busy));
    wait_flag(busy, &flags[raised = round]);
    piece_sum(&tools, piece, sum, busy);
    return go(raise_soon, NULL);
}

static void work_was_right(unsigned seed, size_t bytes) {
    uint64_t got = 0;
    CHECK(cuStreamSynchronize(busy));
    CHECK(cuMemcpyDtoH(&got, sum, sizeof got));
    REQUIRE(got == sum_of(seed, bytes / 4), "what was freed adds up to %#llx",
            (unsigned long long)got);
}

static void freed_while(void *(*leave)(void *), int in_order) {
    ready();
    begin_leaving(leave);
    for (unsigned round = 0; round < ROUNDS; round++) {
        step("freeing memory while others leave the context");
        struct piece piece = piece_new(&tools, 4 * MIB, round + 1, busy);
        CHECK(cuStreamSynchronize(busy));
        pthread_t raiser = work_on(&piece, round);
        CHECK(in_order ? cuMemFreeAsync(piece.at, busy) : cuMemFree(piece.at));
        REQUIRE(in_order || flags[round] == 1, "the memory was freed before the work had ended");
        /* The next owner of the memory writes to it. */
        struct piece next = piece_new(&tools, 4 * MIB, 1000 + round, NULL);
        work_was_right(round + 1, piece.bytes);
        CHECK(cuMemFree(next.at));
        join(raiser);
    }
    end_leaving();
    printf("freed\n");
}

static void freed_beside_releases(void) { freed_while(retain_and_release, 0); }
static void freed_in_order_beside_releases(void) { freed_while(retain_and_release, 1); }

/* The same of a context that the program made and is attached to. */
static void freed_beside_detaching(void) {
    made = context_new(0);
    tools = warm_tools(load_kernels());
    freed_while(attach_and_detach, 0);
    CHECK(cuCtxDestroy(made));
    CHECK(cuCtxSetCurrent(context));
}

/* Memory of a pool that one stream has freed and not come to is not given to another one. */
static void pool_beside_releases(void) {
    CUstream other = stream_new(CU_STREAM_NON_BLOCKING);
    ready();
    begin_leaving(retain_and_release);
    for (unsigned round = 0; round < ROUNDS; round++) {
        step("allocating from a pool while others leave the context");
        struct piece piece = {.bytes = 4 * MIB}, next = {.bytes = 4 * MIB};
        CHECK(cuMemAllocAsync(&piece.at, piece.bytes, busy));
        piece_write(&tools, &piece, round + 1, busy);
        CHECK(cuStreamSynchronize(busy));
        pthread_t raiser = work_on(&piece, round);
        CHECK(cuMemFreeAsync(piece.at, busy));
        CHECK(cuMemAllocAsync(&next.at, next.bytes, other));
        piece_write(&tools, &next, 1000 + round, other);
        CHECK(cuMemFreeAsync(next.at, other));
        work_was_right(round + 1, piece.bytes);
        CHECK(cuStreamSynchronize(other));
        join(raiser);
    }
    end_leaving();
    printf("freed\n");
}

/* --- contexts that end ----------------------------------------------------------------------- */

static const char with_a_variable[] = ".version 7.0\n.target sm_70\n.address_size 64\n"
                                      ".visible .global .align 8 .b8 table[4096];\n";

/* Variables are looked up in one context after the other; each ends. The program's next mappings lie
 * where something of the last one was. */
static void variables_of_contexts(void) {
    enum { CONTEXTS = 3, PAGES = 64 };
    struct piece kept = piece_new(&tools, 8 * MIB, 7, NULL);
    for (unsigned i = 0; i < CONTEXTS; i++) {
        unsigned char *pages[PAGES];
        CUmodule module;
        CUdeviceptr table;
        size_t bytes;
        made = context_new(0);
        CHECK(cuModuleLoadData(&module, with_a_variable));
        CHECK(cuModuleGetGlobal(&table, &bytes, module, "table"));
        CHECK(cuMemsetD8(table, 0x11, bytes));
        CHECK(cuCtxSynchronize());
        for (unsigned j = 0; j < PAGES; j++) {
            pages[j] = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
            memset(pages[j], 0x5a, 4096);
        }
        wait_for_line();
        CHECK(cuCtxSetCurrent(context));
        piece_check(&tools, &kept, "the rest of the memory", 0);
        for (unsigned j = 0; j < PAGES; j++) {
            for (unsigned k = 0; k < 4096; k++) {
                REQUIRE(pages[j][k] == 0x5a, "page %u of the program was overwritten", j);
            }
            CHECK(munmap(pages[j], 4096));
        }
        CHECK(cuCtxDestroy(made));
    }
    printf("looked up\n");
}

/* The context ends with the last release and is made anew by another thread at once: memory of the
 * new one is not taken for the old one's. */
static CUdeviceptr anew;

static void *retain_anew(void *nothing) {
    CUcontext again;
    uint32_t words[1024];
    for (unsigned i = 0; i < 1024; i++) words[i] = i;
    CHECK(cuDevicePrimaryCtxRetain(&again, 0));
    CHECK(cuCtxSetCurrent(again));
    anew = device_alloc(4 * MIB);
    CHECK(cuMemcpyHtoD(anew, words, sizeof words));
    return nothing;
}

static void made_anew(void) {
    for (unsigned round = 0; round < ROUNDS; round++) {
        step("a context that ends, and is made anew");
        uint32_t words[1024];
        CUcontext again;
        /* It goes with the context; or stays, if the other thread comes first. */
        device_alloc(4096);
        pthread_t other = go(retain_anew, NULL);
        if (round % 2) sleep_ms(1);
        CHECK(cuDevicePrimaryCtxRelease(0));
        join(other);
        CHECK(cuDevicePrimaryCtxRetain(&again, 0));
        CHECK(cuCtxSetCurrent(again));
        CHECK(cuMemcpyDtoH(words, anew, sizeof words));
        for (unsigned i = 0; i < 1024; i++) REQUIRE(words[i] == i, "word %u is %u", i, words[i]);
        CHECK(cuMemFree(anew));
        /* The other thread's. */
        CHECK(cuDevicePrimaryCtxRelease(0));
    }
    printf("made anew\n");
}

int main(int argc, char **argv) {
    static const struct legal_case cases[] = {
        {"freed", freed_beside_releases},
        {"freed-in-order", freed_in_order_beside_releases},
        {"freed-detaching", freed_beside_detaching},
        {"pool", pool_beside_releases},
        {"variables", variables_of_contexts},
        {"made-anew", made_anew},
    };
    return play(argc, argv, take_gpu, cases, COUNT_OF(cases));
}
