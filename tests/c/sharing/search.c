/* Leaves a mark in memory of every kind, and looks for another's mark in any memory it is given. Obeys lines on standard input,
 * one answer each.
 *
 *     ready PID          when there is a context
 *     mark MIB           so much of each kind that Baton moves, and 1 MiB of each other, all full of the mark; `marked`
 *     check              the mark is there, everywhere; `checked`
 *     drop               gives all back; `dropped`
 *     look MIB           takes up to so much of each kind in turn, and gives it back; `found WORDS in MIB`, of the mark in all of it
 *     quit               ends without giving anything back; with `result search 0000000000000000 ok`
 */
#include "work.h"
#include "baton_cuda_pools.h"

CUresult cuMemAllocManaged(CUdeviceptr *out, size_t bytes, unsigned flags);
struct flat {
    size_t width, height;
    unsigned format, channels;
};
CUresult cuArrayCreate_v2(CUarray *out, const struct flat *shape);
CUresult cuArrayDestroy(CUarray array);

#define MARK 0x5eaf00d15eaf00d1ull
enum { MOST = 8192, UNSIGNED_INT8 = 1 };
enum kind { PLAIN, SMALL, POOL, CREATED, ARRAY, HOST, MANAGED, GRAPH, KINDS };
/* In the arena. */
static int is_moved(enum kind kind) { return kind <= CREATED; }

static const size_t sizes[KINDS] = {[PLAIN] = 8 * MIB, [SMALL] = 192 << 10, [POOL] = 4 * MIB, [CREATED] = 4 * MIB,
                                    [ARRAY] = MIB,     [HOST] = MIB,        [MANAGED] = MIB,  [GRAPH] = MIB};

static struct made {
    enum kind kind;
    CUdeviceptr at;
    void *other;
} made[MOST];
static unsigned count;
static uint64_t *host;

static CUmemAllocationProp here = {.type = CU_MEM_ALLOCATION_TYPE_PINNED, .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};

static CUresult created(struct made *new, size_t bytes) {
    CUmemGenericAllocationHandle handle;
    CUmemAccessDesc access = {here.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUresult result = cuMemCreate(&handle, bytes, &here, 0);
    if (result) return result;
    CHECK(cuMemAddressReserve(&new->at, bytes, 0, 0, 0));
    CHECK(cuMemMap(new->at, bytes, 0, handle, 0));
    CHECK(cuMemRelease(handle));
    result = cuMemSetAccess(new->at, bytes, &access, 1);
    return result;
}

static CUresult in_graph(struct made *new, size_t bytes) {
    CUgraph graph;
    CUgraphNode node;
    CUgraphExec exec;
    CUDA_MEM_ALLOC_NODE_PARAMS params = {.poolProps = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED, .location = here.location},
                                         .bytesize = bytes};
    CHECK(cuGraphCreate(&graph, 0));
    CHECK(cuGraphAddMemAllocNode(&node, graph, NULL, 0, &params));
    CHECK(cuGraphInstantiate(&exec, graph, 0));
    CUresult result = cuGraphLaunch(exec, NULL);
    if (!result) result = cuStreamSynchronize(NULL);
    new->at = params.dptr;
    CHECK(cuGraphExecDestroy(exec));
    CHECK(cuGraphDestroy(graph));
    return result;
}

static CUresult make(enum kind kind) {
    struct made new = {.kind = kind};
    struct flat shape = {MIB, 1, UNSIGNED_INT8, 1};
    size_t bytes = sizes[kind];
    CUresult result;
    if (count == MOST) return CUDA_ERROR_OUT_OF_MEMORY;
    switch (kind) {
    case POOL: result = cuMemAllocAsync(&new.at, bytes, NULL); break;
    case CREATED: result = created(&new, bytes); break;
    case ARRAY: result = cuArrayCreate_v2((CUarray *)&new.other, &shape); break;
    case HOST: result = cuMemHostAlloc(&new.other, bytes, 0); break;
    case MANAGED: result = cuMemAllocManaged(&new.at, bytes, 1); break;
    case GRAPH: result = in_graph(&new, bytes); break;
    default: result = cuMemAlloc(&new.at, bytes);
    }
    if (!result) made[count++] = new;
    return result;
}

static void drop(void) {
    while (count) {
        struct made last = made[--count];
        switch (last.kind) {
        case POOL:
        case GRAPH: CHECK(cuMemFreeAsync(last.at, NULL)); break;
        case CREATED:
            CHECK(cuMemUnmap(last.at, sizes[CREATED]));
            CHECK(cuMemAddressFree(last.at, sizes[CREATED]));
            break;
        case ARRAY: CHECK(cuArrayDestroy(last.other)); break;
        case HOST: CHECK(cuMemFreeHost(last.other)); break;
        default: CHECK(cuMemFree(last.at));
        }
    }
    CHECK(cuStreamSynchronize(NULL));
}

static void write_mark(struct made *it) {
    size_t bytes = sizes[it->kind];
    for (size_t i = 0; i < bytes / 8; i++) host[i] = MARK;
    CUDA_MEMCPY2D rows = {.srcMemoryType = CU_MEMORYTYPE_HOST, .srcHost = host, .dstMemoryType = CU_MEMORYTYPE_ARRAY,
                          .dstArray = it->other, .WidthInBytes = bytes, .Height = 1};
    if (it->kind == HOST) memcpy(it->other, host, bytes);
    else if (it->kind == ARRAY) CHECK(cuMemcpy2D(&rows));
    else CHECK(cuMemcpyHtoD(it->at, host, bytes));
}

static size_t marks_in(struct made *it) {
    size_t bytes = sizes[it->kind], found = 0;
    CUDA_MEMCPY2D rows = {.dstMemoryType = CU_MEMORYTYPE_HOST, .dstHost = host, .srcMemoryType = CU_MEMORYTYPE_ARRAY,
                          .srcArray = it->other, .WidthInBytes = bytes, .Height = 1};
    if (it->kind == HOST) memcpy(host, it->other, bytes);
    else if (it->kind == ARRAY) CHECK(cuMemcpy2D(&rows));
    else CHECK(cuMemcpyDtoH(host, it->at, bytes));
    for (size_t i = 0; i < bytes / 8; i++) found += host[i] == MARK;
    return found;
}

static void obey(char *line) {
    char *word = strtok(line, " \n"), *argument = strtok(NULL, "\n");
    size_t most = argument ? strtoul(argument, NULL, 10) * MIB : 0;
    if (!word) return;
    if (strcmp(word, "mark") == 0) {
        for (enum kind kind = 0; kind < KINDS; kind++) {
            for (size_t bytes = 0; bytes < (is_moved(kind) ? most : MIB); bytes += sizes[kind]) {
                CUresult result = make(kind);
                /* The simulated driver has no arrays. */
                if (result == CUDA_ERROR_NOT_SUPPORTED && kind == ARRAY) break;
                CHECK(result);
                write_mark(&made[count - 1]);
            }
        }
        printf("marked\n");
    } else if (strcmp(word, "check") == 0) {
        for (unsigned i = 0; i < count; i++)
            REQUIRE(marks_in(&made[i]) == sizes[made[i].kind] / 8, "piece %u of kind %d has changed", i, (int)made[i].kind);
        printf("checked\n");
    } else if (strcmp(word, "drop") == 0) {
        drop();
        printf("dropped\n");
    } else if (strcmp(word, "look") == 0) {
        size_t found = 0, seen = 0;
        for (enum kind kind = 0; kind < KINDS; kind++) {
            for (size_t bytes = 0; bytes < (is_moved(kind) ? most : 4 * MIB) && !make(kind); bytes += sizes[kind]) {
                found += marks_in(&made[count - 1]);
                seen += sizes[kind];
            }
            drop();
        }
        printf("found %zu in %zu\n", found, seen / MIB);
    } else if (strcmp(word, "quit") == 0) {
        exit(finish("search", 0));
    } else {
        printf("what is %s?\n", word);
    }
}

int main(int argc, char **argv) {
    read_options(argc, argv, NULL, 0);
    setvbuf(stdout, NULL, _IOLBF, 0);
    start();
    host = host_alloc(8 * MIB);
    printf("ready %d\n", (int)getpid());
    char line[512];
    while (fgets(line, sizeof line, stdin)) obey(line);
    return 0;
}
