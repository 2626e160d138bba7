/* A rank of a job that computes sums over all its ranks, as NCCL does without copies: each rank has a GPU, opens the
 * memory of all others, waits on its GPU for their flags, and reads their parts. It obeys lines on standard input.
 *
 *     collective --rank 0 --ranks 2 --megabytes 16 --means 0 --folder FOLDER
 *
 * The means by which ranks share memory: 0, handles of allocations; 1, host memory that all of them pin; 2, descriptors that a thread of
 * each rank exports, and that others import for their own GPU.
 *
 *     ready PID                when it has opened the memory of all others, by files in FOLDER
 *     reduce                   new contents for its part; the sum of all parts, which is the same for all ranks; `reduced CHECKSUM`
 *     begin                    queues that, and does not wait for it; `begun`
 *     end                      waits for what was begun; `reduced CHECKSUM`
 *     memory                   `memory TOTAL FREE`, in MiB
 *     quit                     ends with `result collective CHECKSUM ok`
 *
 * A rank that is off while the others are at work keeps their kernels spinning.
 */
#include <fcntl.h>
#include <sys/mman.h>

#include "passing.h"
#include "baton_cuda_pools.h"

enum { MAX_RANKS = 8 };
enum { HANDLES, HOST, DESCRIPTORS };

static unsigned rank, ranks = 2, megabytes = 16, means;
static const char *folder;

static struct tools tools;
/* What each rank has, as this one sees it: words, and behind them its flags. */
static CUdeviceptr parts[MAX_RANKS], flags[MAX_RANKS];
static CUdeviceptr sums;
static CUstream stream;
static unsigned words, round_number;
static uint64_t result = CHECKSUM_START;

/* The flags of a rank: its part is written; it has read all parts; and where a kernel that waits leaves what it saw. */
enum { WRITTEN, READ, SEEN, FLAGS };

static uint32_t seed_of(unsigned of, unsigned round) { return of * 7919 + round * 104729 + 1; }

static void path_of(char *path, size_t size, unsigned of, const char *end) {
    snprintf(path, size, "%s/rank-%u%s", folder, of, end);
}

static void clear_flags(void) {
    CHECK(cuMemsetD8(parts[rank] + (size_t)words * 4, 0, MIB));
    CHECK(cuCtxSynchronize());
}

static void give_handle(void) {
    char path[512], part[512];
    CUipcMemHandle handle;
    parts[rank] = device_alloc(megabytes * MIB);
    clear_flags();
    path_of(path, sizeof path, rank, "");
    path_of(part, sizeof part, rank, ".part");
    CHECK(cuIpcGetMemHandle(&handle, parts[rank]));
    FILE *file = fopen(part, "w");
    REQUIRE(file && fwrite(&handle, sizeof handle, 1, file) == 1 && fclose(file) == 0, "%s cannot be written", part);
    REQUIRE(rename(part, path) == 0, "%s cannot be made", path);
}

static void open_part(unsigned of) {
    char path[512];
    CUipcMemHandle handle;
    path_of(path, sizeof path, of, "");
    FILE *file;
    while (!(file = fopen(path, "r"))) sleep_ms(1);
    REQUIRE(fread(&handle, sizeof handle, 1, file) == 1, "%s cannot be read", path);
    fclose(file);
    CHECK(cuIpcOpenMemHandle(&parts[of], handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
}

/* One file has the parts of all ranks. */
static void pin_all(void) {
    char path[512];
    size_t size = (size_t)ranks * megabytes * MIB;
    snprintf(path, sizeof path, "%s/parts", folder);
    int file = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    REQUIRE(file >= 0 && ftruncate(file, (off_t)size) == 0, "%s cannot be made", path);
    unsigned char *all = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    REQUIRE(all != MAP_FAILED, "%s cannot be mapped", path);
    CHECK(cuMemHostRegister(all, size, CU_MEMHOSTREGISTER_DEVICEMAP));
    for (unsigned of = 0; of < ranks; of++) {
        CHECK(cuMemHostGetDevicePointer(&parts[of], all + of * megabytes * MIB, 0));
    }
}

static CUdeviceptr map_part(CUmemGenericAllocationHandle handle) {
    CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_DEVICE, (int)rank}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUdeviceptr at;
    CHECK(cuMemAddressReserve(&at, megabytes * MIB, 0, 0, 0));
    CHECK(cuMemMap(at, megabytes * MIB, 0, handle, 0));
    CHECK(cuMemSetAccess(at, megabytes * MIB, &access, 1));
    return at;
}

static CUmemGenericAllocationHandle own_handle;

/* As a library's thread does, which has no context. */
static void *export_part(void *data) {
    char path[512];
    int descriptor;
    (void)data;
    path_of(path, sizeof path, rank, "");
    CHECK(cuMemExportToShareableHandle(&descriptor, own_handle, DESCRIPTOR, 0));
    pass_on(path, descriptor, megabytes * MIB);
    return NULL;
}

static void create_part(void) {
    CUmemAllocationProp wanted = exportable;
    pthread_t thread;
    wanted.location.id = (int)rank;
    CHECK(cuMemCreate(&own_handle, megabytes * MIB, &wanted, 0));
    parts[rank] = map_part(own_handle);
    clear_flags();
    REQUIRE(pthread_create(&thread, NULL, export_part, NULL) == 0 && pthread_join(thread, NULL) == 0, "no thread");
    CHECK(cuMemRelease(own_handle));
}

static void import_part(unsigned of) {
    char path[512];
    size_t bytes;
    CUmemGenericAllocationHandle handle;
    path_of(path, sizeof path, of, "");
    int descriptor = passed_on(path, &bytes);
    CHECK(cuMemImportFromShareableHandle(&handle, (void *)(uintptr_t)descriptor, DESCRIPTOR));
    close(descriptor);
    parts[of] = map_part(handle);
    CHECK(cuMemRelease(handle));
}

/* Waits, on the GPU, until this flag of all others has this value. */
static void wait_for_all(unsigned flag, unsigned value) {
    CUdeviceptr seen = flags[rank] + SEEN * 4;
    for (unsigned of = 0; of < ranks; of++) {
        CUdeviceptr at = flags[of] + flag * 4;
        void *parameters[] = {&seen, &at, &value};
        if (of != rank) CHECK(cuLaunchKernel(tools.linger, 1, 1, 1, 1, 1, 1, 0, stream, parameters, NULL));
    }
}

static void begin(void) {
    uint32_t seed = seed_of(rank, ++round_number);
    /* Others may still read what was there before. */
    wait_for_all(READ, round_number - 1);
    void *parameters[] = {&parts[rank], &seed, &words};
    CHECK(cuLaunchKernel(tools.fill, blocks_for(words), 1, 1, 256, 1, 1, 0, stream, parameters, NULL));
    CHECK(cuMemsetD32Async(flags[rank] + WRITTEN * 4, round_number, 1, stream));
    wait_for_all(WRITTEN, round_number);
    CHECK(cuMemsetD8Async(sums, 0, MAX_RANKS * sizeof(uint64_t), stream));
    for (unsigned of = 0; of < ranks; of++) {
        CUdeviceptr out = sums + of * sizeof(uint64_t);
        void *of_part[] = {&out, &parts[of], &words};
        CHECK(cuLaunchKernel(tools.sum, blocks_for(words), 1, 1, 256, 1, 1, 0, stream, of_part, NULL));
    }
    CHECK(cuMemsetD32Async(flags[rank] + READ * 4, round_number, 1, stream));
}

static void end(void) {
    uint64_t got[MAX_RANKS];
    CHECK(cuMemcpyDtoHAsync(got, sums, sizeof got, stream));
    CHECK(cuStreamSynchronize(stream));
    for (unsigned of = 0; of < ranks; of++) {
        uint64_t want = sum_of(seed_of(of, round_number), words);
        REQUIRE(got[of] == want, "rank %u reads %#llx of rank %u in round %u, not %#llx", rank,
                (unsigned long long)got[of], of, round_number, (unsigned long long)want);
        result = checksum(result, &got[of], sizeof got[of]);
    }
    printf("reduced %016llx\n", (unsigned long long)result);
}

static void tell_memory(void) {
    size_t available = 0, total = 0;
    CHECK(cuMemGetInfo(&available, &total));
    printf("memory %zu %zu\n", total / MIB, available / MIB);
}

int main(int argc, char **argv) {
    struct option_row options[] = {{"--rank", &rank}, {"--ranks", &ranks}, {"--megabytes", &megabytes}, {"--means", &means}};
    REQUIRE(argc > 2 && strcmp(argv[argc - 2], "--folder") == 0, "the last option has to be --folder");
    folder = argv[argc - 1];
    read_options(argc - 2, argv, options, COUNT_OF(options));
    REQUIRE(rank < ranks && ranks <= MAX_RANKS && megabytes > 1, "there are up to %d ranks", MAX_RANKS);
    setvbuf(stdout, NULL, _IOLBF, 0);
    CUcontext context;
    CHECK(cuInit(0));
    CHECK(cuDevicePrimaryCtxRetain(&context, (CUdevice)rank));
    CHECK(cuCtxSetCurrent(context));
    tools = tools_from(load_kernels());
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    /* The last MiB is for the flags. */
    words = (unsigned)((megabytes - 1) * MIB / 4);
    sums = device_alloc(MAX_RANKS * sizeof(uint64_t));
    if (means == HANDLES) give_handle();
    if (means == HOST) pin_all();
    if (means == DESCRIPTORS) create_part();
    for (unsigned of = 0; of < ranks; of++) {
        if (of != rank && means == HANDLES) open_part(of);
        if (of != rank && means == DESCRIPTORS) import_part(of);
        flags[of] = parts[of] + (size_t)words * 4;
    }
    printf("ready %d\n", (int)getpid());
    char line[64];
    while (fgets(line, sizeof line, stdin)) {
        if (strcmp(line, "reduce\n") == 0) {
            begin();
            end();
        } else if (strcmp(line, "begin\n") == 0) {
            begin();
            printf("begun\n");
        } else if (strcmp(line, "end\n") == 0) {
            end();
        } else if (strcmp(line, "memory\n") == 0) {
            tell_memory();
        } else if (strcmp(line, "quit\n") == 0) {
            exit(finish("collective", result));
        } else {
            printf("what is %s", line);
        }
    }
    return 0;
}
