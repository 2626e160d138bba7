/* Holds memory and obeys lines on standard input, one answer each, so that a test can bring it to
 * where it wants it.
 *
 *     hold --megabytes 24 --piece 8 --seed 1
 *
 * in pieces of so many MiB, or of larger ones if there were too many.
 *
 *     ready PID                when everything is allocated and filled
 *     touch                    new contents for all of it, each from the sum of the old; `touched CHECKSUM`
 *     stray                    other contents for all of it; `strayed`
 *     return                   the same as before; `returned`
 *     time                     the same as `touch`; `took NANOSECONDS` by its own clock
 *     leave                    as `touch`, without waiting for the device; `left CHECKSUM`
 *     spin MS                  keeps the device busy for so long; `spun`
 *     busy FILE                keeps the device busy until there is such a file; `spun`
 *     linger                   queues a kernel that waits for `go`; `lingers`
 *     go                       `gone`
 *     queue MS                 queues work that takes so long; `queued`
 *     sleep MS                 does nothing for so long; `slept`
 *     alloc MIB                `allocated` or `answer CODE`
 *     free                     frees what `alloc` allocated; `freed`
 *     managed MIB              as `alloc`, of managed memory, which is kept
 *     pin                      lets other devices reach what `alloc` allocated last, which stays there from then on; `pinned`
 *     export MIB               so much more, and a descriptor by which others can have it; `exported`
 *     share FILE               lets others reach what `alloc` allocated last; `shared`
 *     attach FILE              reaches what another has shared: from then on they take turns as one; `attached`
 *     thin                     frees every second piece; `thinned`
 *     thicken                  allocates and fills as many again, of the same size; `thickened`
 *     fork                     a child that does nothing and lives on; `forked PID`
 *     exec FILE                becomes another program
 *     disconnect               ends all connections of this process; `disconnected`
 *     quit                     reads all back and ends with `result hold CHECKSUM ok`
 *
 * A call that fails is told as `answer CODE`, and the next line is read.
 */
#include <sys/socket.h>

#include "work.h"
#include "baton_cuda_pools.h"

enum { MAX_PIECES = 256 };

static unsigned megabytes = 24, piece = 8, seed = 1;
static struct tools tools;
static struct piece pieces[MAX_PIECES];
static unsigned count;
static CUdeviceptr sums, more[MAX_PIECES];
static unsigned more_count;

CUresult cuMemAllocManaged(CUdeviceptr *out, size_t bytes, unsigned flags);
CUresult cuPointerSetAttribute(const void *value, int attribute, CUdeviceptr address);

static CUresult fill(struct piece *piece, uint32_t with) {
    unsigned words = (unsigned)(piece->bytes / 4);
    void *parameters[] = {&piece->at, &with, &words};
    piece->seed = with;
    return cuLaunchKernel(tools.fill, blocks_for(words), 1, 1, 256, 1, 1, 0, NULL, parameters, NULL);
}

/* The sums of all pieces, which have to be those of the written contents. */
static CUresult touch(uint64_t *result) {
    static uint64_t got[MAX_PIECES];
    TRY(cuMemsetD8(sums, 0, sizeof got));
    for (unsigned i = 0; i < count; i++) {
        if (!pieces[i].at) continue;
        unsigned words = (unsigned)(pieces[i].bytes / 4);
        CUdeviceptr out = sums + i * sizeof *got;
        void *parameters[] = {&out, &pieces[i].at, &words};
        TRY(cuLaunchKernel(tools.sum, blocks_for(words), 1, 1, 256, 1, 1, 0, NULL, parameters, NULL));
    }
    TRY(cuMemcpyDtoH(got, sums, sizeof got));
    *result = CHECKSUM_START;
    for (unsigned i = 0; i < count; i++) {
        if (!pieces[i].at) continue;
        uint64_t want = sum_of(pieces[i].seed, pieces[i].bytes / 4);
        if (got[i] != want) piece_check(&tools, &pieces[i], "touch", 0);
        REQUIRE(got[i] == want, "a piece adds up to %#llx, not %#llx", (unsigned long long)got[i],
                (unsigned long long)want);
        *result = checksum(*result, &got[i], sizeof got[i]);
        TRY(fill(&pieces[i], (uint32_t)(*result >> 7)));
    }
    return CUDA_SUCCESS;
}

static uint64_t nanoseconds(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000000 + (uint64_t)time.tv_nsec;
}

static uint64_t now_ms(void) { return nanoseconds() / 1000000; }

/* Writes the same contents again, over and over, for so long or until there is such a file. */
/* There is always more queued than is waited for: a thread that gets no processor for a while leaves no gap. */
static CUresult spin(unsigned ms, const char *file) {
    uint64_t end = now_ms() + ms;
    CUevent ends[2];
    for (unsigned i = 0; i < 2; i++) TRY(cuEventCreate(&ends[i], 0));
    for (unsigned i = 0; file ? access(file, F_OK) != 0 : now_ms() < end; i++) {
        struct piece *piece = &pieces[i % count];
        TRY(fill(piece, piece->seed));
        TRY(cuEventRecord(ends[i % 2], NULL));
        if (i) TRY(cuEventSynchronize(ends[(i - 1) % 2]));
    }
    TRY(cuCtxSynchronize());
    for (unsigned i = 0; i < 2; i++) TRY(cuEventDestroy(ends[i]));
    return CUDA_SUCCESS;
}

/* A kernel that ends when it is told to, and does not hold this thread up. */
static volatile unsigned *gone;

static CUresult linger(void) {
    CUdeviceptr flag, seen = sums + (MAX_PIECES - 1) * sizeof(uint64_t);
    unsigned until = 1;
    if (!gone) TRY(cuMemHostAlloc((void **)&gone, sizeof *gone, CU_MEMHOSTALLOC_DEVICEMAP));
    *gone = 0;
    TRY(cuMemHostGetDevicePointer(&flag, (void *)gone, 0));
    void *parameters[] = {&seen, &flag, &until};
    return cuLaunchKernel(tools.linger, 1, 1, 1, 1, 1, 1, 0, NULL, parameters, NULL);
}

static CUresult thin(void) {
    for (unsigned i = 0; i < count; i += 2) {
        if (pieces[i].at) TRY(cuMemFree(pieces[i].at));
        pieces[i].at = 0;
    }
    return CUDA_SUCCESS;
}

static CUresult thicken(void) {
    for (unsigned i = 0; i < count; i++) {
        if (pieces[i].at) continue;
        TRY(cuMemAlloc(&pieces[i].at, pieces[i].bytes));
        TRY(fill(&pieces[i], seed * 2000 + i));
    }
    return CUDA_SUCCESS;
}

static CUresult pin(void) {
    enum { SYNC_MEMOPS = 6 };
    unsigned one = 1;
    REQUIRE(more_count, "nothing is allocated");
    return cuPointerSetAttribute(&one, SYNC_MEMOPS, more[more_count - 1]);
}

/* The file is there when all of it is. */
static CUresult share(const char *name) {
    CUipcMemHandle handle;
    char part[512];
    REQUIRE(more_count, "nothing is allocated");
    TRY(cuIpcGetMemHandle(&handle, more[more_count - 1]));
    snprintf(part, sizeof part, "%s.part", name);
    FILE *file = fopen(part, "w");
    REQUIRE(file && fwrite(&handle, sizeof handle, 1, file) == 1 && fclose(file) == 0, "%s cannot be written", part);
    REQUIRE(rename(part, name) == 0, "%s cannot be made", name);
    return CUDA_SUCCESS;
}

static CUresult attach(const char *name) {
    CUipcMemHandle handle;
    CUdeviceptr at;
    FILE *file = fopen(name, "r");
    REQUIRE(file && fread(&handle, sizeof handle, 1, file) == 1, "%s cannot be read", name);
    fclose(file);
    return cuIpcOpenMemHandle(&at, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
}

/* Of memory with contents, which are still there then. */
static CUresult export(size_t bytes) {
    CUmemAllocationProp wanted = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                  .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                                  .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0}};
    CUmemAccessDesc access = {.location = wanted.location, .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUmemGenericAllocationHandle handle;
    CUdeviceptr at;
    unsigned word = 0;
    int descriptor;
    TRY(cuMemCreate(&handle, bytes, &wanted, 0));
    TRY(cuMemAddressReserve(&at, bytes, 0, 0, 0));
    TRY(cuMemMap(at, bytes, 0, handle, 0));
    TRY(cuMemSetAccess(at, bytes, &access, 1));
    TRY(cuMemsetD32(at, 7, bytes / 4));
    TRY(cuMemExportToShareableHandle(&descriptor, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    TRY(cuMemcpyDtoH(&word, at + bytes / 2, 4));
    return word == 7 ? CUDA_SUCCESS : CUDA_ERROR_UNKNOWN;
}

static void wait_long(void *ms) { sleep_ms(*(unsigned *)ms); }

/* One piece of work, which can only be waited for. */
static CUresult queue(unsigned ms) {
    static unsigned length;
    length = ms;
    return cuLaunchHostFunc(NULL, wait_long, &length);
}

/* New contents for all of it, or those that it had before. */
static CUresult stray(int returns) {
    for (unsigned i = 0; i < count; i++) {
        uint32_t before = pieces[i].seed;
        if (!pieces[i].at) continue;
        TRY(fill(&pieces[i], returns ? before : ~before));
        pieces[i].seed = before;
    }
    return cuCtxSynchronize();
}

static void fork_child(void) {
    pid_t child = fork();
    REQUIRE(child >= 0, "no child");
    if (child == 0) {
        close(0), close(1), close(2);
        alarm(120);
        for (;;) pause();
    }
    printf("forked %d\n", (int)child);
}

static void obey(char *line) {
    char *word = strtok(line, " \n"), *argument = strtok(NULL, "\n");
    unsigned number = argument ? (unsigned)strtoul(argument, NULL, 10) : 0;
    CUresult result = CUDA_SUCCESS;
    if (!word) return;
    if (strcmp(word, "touch") == 0) {
        uint64_t sum = 0;
        result = touch(&sum);
        if (!result) result = cuCtxSynchronize();
        if (!result) printf("touched %016llx\n", (unsigned long long)sum);
    } else if (strcmp(word, "stray") == 0 || strcmp(word, "return") == 0) {
        result = stray(word[0] == 'r');
        if (!result) puts(word[0] == 'r' ? "returned" : "strayed");
    } else if (strcmp(word, "time") == 0) {
        /* How long that takes by this program's own clock, in nanoseconds. */
        uint64_t sum = 0, begin = nanoseconds();
        result = touch(&sum);
        if (!result) result = cuCtxSynchronize();
        if (!result) printf("took %llu\n", (unsigned long long)(nanoseconds() - begin));
    } else if (strcmp(word, "leave") == 0) {
        uint64_t sum = 0;
        result = touch(&sum);
        if (!result) printf("left %016llx\n", (unsigned long long)sum);
    } else if (strcmp(word, "spin") == 0) {
        result = spin(number, NULL);
        if (!result) printf("spun\n");
    } else if (strcmp(word, "busy") == 0 && argument) {
        result = spin(0, argument);
        if (!result) printf("spun\n");
    } else if (strcmp(word, "linger") == 0) {
        result = linger();
        if (!result) printf("lingers\n");
    } else if (strcmp(word, "go") == 0 && gone) {
        *gone = 1;
        printf("gone\n");
    } else if (strcmp(word, "queue") == 0) {
        result = queue(number);
        if (!result) printf("queued\n");
    } else if (strcmp(word, "sleep") == 0) {
        sleep_ms(number);
        printf("slept\n");
    } else if (strcmp(word, "alloc") == 0 && more_count < MAX_PIECES) {
        result = cuMemAlloc(&more[more_count], number * MIB);
        if (!result) more_count++, printf("allocated\n");
    } else if (strcmp(word, "free") == 0) {
        while (more_count && !result) result = cuMemFree(more[--more_count]);
        if (!result) printf("freed\n");
    } else if (strcmp(word, "managed") == 0) {
        CUdeviceptr kept;
        result = cuMemAllocManaged(&kept, number * MIB, 1);
        if (!result) printf("allocated\n");
    } else if (strcmp(word, "pin") == 0) {
        result = pin();
        if (!result) printf("pinned\n");
    } else if (strcmp(word, "export") == 0) {
        result = export(number * MIB);
        if (!result) printf("exported\n");
    } else if (strcmp(word, "share") == 0 && argument) {
        result = share(argument);
        if (!result) printf("shared\n");
    } else if (strcmp(word, "attach") == 0 && argument) {
        result = attach(argument);
        if (!result) printf("attached\n");
    } else if (strcmp(word, "thin") == 0) {
        result = thin();
        if (!result) printf("thinned\n");
    } else if (strcmp(word, "thicken") == 0) {
        result = thicken();
        if (!result) printf("thickened\n");
    } else if (strcmp(word, "fork") == 0) {
        fork_child();
    } else if (strcmp(word, "exec") == 0 && argument) {
        execl(argument, argument, (char *)NULL);
        printf("no such program\n");
    } else if (strcmp(word, "disconnect") == 0) {
        for (int socket = 3; socket < 1024; socket++) shutdown(socket, SHUT_RDWR);
        printf("disconnected\n");
    } else if (strcmp(word, "quit") == 0) {
        uint64_t sum = CHECKSUM_START;
        for (unsigned i = 0; i < count; i++)
            if (pieces[i].at) sum = piece_check(&tools, &pieces[i], "the end", sum);
        exit(finish("hold", sum));
    } else {
        printf("what is %s?\n", word);
    }
    if (result) printf("answer %d\n", (int)result);
}

int main(int argc, char **argv) {
    struct option_row options[] = {{"--megabytes", &megabytes}, {"--piece", &piece}, {"--seed", &seed}};
    read_options(argc, argv, options, COUNT_OF(options));
    REQUIRE(megabytes >= 4 && piece, "--megabytes has to be at least 4, and --piece 1");
    setvbuf(stdout, NULL, _IOLBF, 0);
    start();
    tools = tools_from(load_kernels());
    sums = device_alloc(MAX_PIECES * sizeof(uint64_t));
    /* 2 MiB are for the sums. */
    size_t left = (megabytes - 2) * MIB, size = piece * MIB;
    while (left / size >= MAX_PIECES) size *= 2;
    for (; left; left -= pieces[count++].bytes) {
        pieces[count] = (struct piece){.bytes = left < size ? left : size};
        CHECK(cuMemAlloc(&pieces[count].at, pieces[count].bytes));
        CHECK(fill(&pieces[count], seed * 1000 + count));
    }
    CHECK(cuCtxSynchronize());
    printf("ready %d\n", (int)getpid());
    char line[512];
    while (fgets(line, sizeof line, stdin)) obey(line);
    return 0;
}
