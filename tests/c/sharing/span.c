/* Holds memory on several GPUs at once and obeys lines on standard input, one answer each.
 *
 *     span --megabytes 24 --piece 8 --gpus 2 --seed 1
 *
 * on each GPU, in pieces of so many MiB, all by one thread.
 *
 *     ready PID                when everything is allocated and filled
 *     touch                    new contents for all of it, from the sums of the old on all GPUs; `touched CHECKSUM`
 *     round                    the first piece of each GPU goes to the last of the next one; `went round CHECKSUM`
 *     memory                   `memory TOTAL FREE`, in MiB, of each GPU in turn
 *     busy FILE                keeps all GPUs busy until there is such a file; `spun`
 *     look                     makes a context on the next GPU, and nothing in it; `looked`
 *     quit                     reads all back and ends with `result span CHECKSUM ok`
 *
 * A call that fails is told as `answer CODE`, and the next line is read.
 */
#include "work.h"

CUresult cuCtxEnablePeerAccess(CUcontext peer, unsigned flags);
CUresult cuMemcpyPeer(CUdeviceptr to, CUcontext to_context, CUdeviceptr from, CUcontext from_context, size_t bytes);

enum { MAX_PIECES = 64, MAX_GPUS = 8 };

static unsigned megabytes = 24, piece = 8, seed = 1, gpus = 2;

struct gpu {
    CUcontext context;
    struct tools tools;
    struct piece pieces[MAX_PIECES];
    unsigned count;
    CUdeviceptr sums;
};

static struct gpu all[MAX_GPUS];
/* Each GPU can read the memory of the one before it. */
static int is_round;

/* Leaves a function that answers a CUresult when a call fails. */
#define TRY(call)                                    \
    do {                                             \
        CUresult result_ = (call);                   \
        if (result_ != CUDA_SUCCESS) return result_; \
    } while (0)

static CUresult fill(struct gpu *gpu, struct piece *one, uint32_t with) {
    unsigned words = (unsigned)(one->bytes / 4);
    void *parameters[] = {&one->at, &with, &words};
    one->seed = with;
    return cuLaunchKernel(gpu->tools.fill, blocks_for(words), 1, 1, 256, 1, 1, 0, NULL, parameters, NULL);
}

/* Every GPU works at once, and then each is waited for. */
static CUresult touch(uint64_t *result) {
    static uint64_t got[MAX_PIECES];
    for (struct gpu *gpu = all; gpu < all + gpus; gpu++) {
        TRY(cuCtxSetCurrent(gpu->context));
        TRY(cuMemsetD8(gpu->sums, 0, sizeof got));
        for (unsigned i = 0; i < gpu->count; i++) {
            unsigned words = (unsigned)(gpu->pieces[i].bytes / 4);
            CUdeviceptr out = gpu->sums + i * sizeof *got;
            void *parameters[] = {&out, &gpu->pieces[i].at, &words};
            TRY(cuLaunchKernel(gpu->tools.sum, blocks_for(words), 1, 1, 256, 1, 1, 0, NULL, parameters, NULL));
        }
    }
    *result = CHECKSUM_START;
    for (struct gpu *gpu = all; gpu < all + gpus; gpu++) {
        TRY(cuCtxSetCurrent(gpu->context));
        TRY(cuMemcpyDtoH(got, gpu->sums, sizeof got));
        for (unsigned i = 0; i < gpu->count; i++) {
            uint64_t want = sum_of(gpu->pieces[i].seed, gpu->pieces[i].bytes / 4);
            if (got[i] != want) piece_check(&gpu->tools, &gpu->pieces[i], "touch", 0);
            REQUIRE(got[i] == want, "piece %u of GPU %d adds up to %#llx, not %#llx", i, (int)(gpu - all),
                    (unsigned long long)got[i], (unsigned long long)want);
            *result = checksum(*result, &got[i], sizeof got[i]);
        }
    }
    for (struct gpu *gpu = all; gpu < all + gpus; gpu++) {
        TRY(cuCtxSetCurrent(gpu->context));
        for (unsigned i = 0; i < gpu->count; i++)
            TRY(fill(gpu, &gpu->pieces[i], (uint32_t)(*result >> 7) + 100 * i + (uint32_t)(gpu - all)));
    }
    for (struct gpu *gpu = all; gpu < all + gpus; gpu++) {
        TRY(cuCtxSetCurrent(gpu->context));
        TRY(cuCtxSynchronize());
    }
    return CUDA_SUCCESS;
}

/* By the driver's own copies, and by a kernel that reads the other GPU's memory. */
static CUresult go_round(uint64_t *result) {
    *result = CHECKSUM_START;
    for (unsigned from = 0; from < gpus; from++) {
        struct gpu *one = &all[from], *next = &all[(from + 1) % gpus];
        struct piece *to = &next->pieces[next->count - 1];
        uint64_t got = 0;
        TRY(cuCtxSetCurrent(next->context));
        CUresult known = cuCtxEnablePeerAccess(one->context, 0);
        if (known != CUDA_SUCCESS && known != CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED) return known;
        TRY(cuMemcpyPeer(to->at, next->context, one->pieces[0].at, one->context, one->pieces[0].bytes));
        to->seed = one->pieces[0].seed;
        unsigned words = (unsigned)(one->pieces[0].bytes / 4);
        void *parameters[] = {&next->sums, &one->pieces[0].at, &words};
        TRY(cuMemsetD8(next->sums, 0, sizeof got));
        TRY(cuLaunchKernel(next->tools.sum, blocks_for(words), 1, 1, 256, 1, 1, 0, NULL, parameters, NULL));
        TRY(cuMemcpyDtoH(&got, next->sums, sizeof got));
        REQUIRE(got == sum_of(to->seed, words), "GPU %u reads another sum of GPU %u's", (from + 1) % gpus, from);
        *result = checksum(*result, &got, sizeof got);
    }
    is_round = 1;
    return CUDA_SUCCESS;
}

/* Writes the same contents again, over and over, and reads those of the GPU before it, if it can. */
static CUresult spin(const char *file) {
    for (unsigned i = 0; access(file, F_OK) != 0; i++) {
        for (struct gpu *gpu = all; gpu < all + gpus; gpu++) {
            struct piece *one = &gpu->pieces[i % gpu->count];
            TRY(cuCtxSetCurrent(gpu->context));
            if (i) TRY(cuCtxSynchronize());
            TRY(fill(gpu, one, one->seed));
            if (is_round) {
                struct gpu *before = &all[(gpu - all + gpus - 1) % gpus];
                unsigned words = (unsigned)(before->pieces[0].bytes / 4);
                void *parameters[] = {&gpu->sums, &before->pieces[0].at, &words};
                TRY(cuLaunchKernel(gpu->tools.sum, blocks_for(words), 1, 1, 256, 1, 1, 0, NULL, parameters, NULL));
            }
        }
    }
    for (struct gpu *gpu = all; gpu < all + gpus; gpu++) {
        TRY(cuCtxSetCurrent(gpu->context));
        TRY(cuCtxSynchronize());
    }
    return CUDA_SUCCESS;
}

static CUresult look(void) {
    CUcontext context;
    TRY(cuDevicePrimaryCtxRetain(&context, (CUdevice)gpus));
    return CUDA_SUCCESS;
}

static CUresult tell_memory(void) {
    printf("memory");
    for (struct gpu *gpu = all; gpu < all + gpus; gpu++) {
        size_t available = 0, total = 0;
        TRY(cuCtxSetCurrent(gpu->context));
        TRY(cuMemGetInfo(&available, &total));
        printf(" %zu %zu", total / MIB, available / MIB);
    }
    printf("\n");
    return CUDA_SUCCESS;
}

static void obey(char *line) {
    char *word = strtok(line, " \n"), *argument = strtok(NULL, "\n");
    CUresult result = CUDA_SUCCESS;
    uint64_t sum = 0;
    if (!word) return;
    if (strcmp(word, "touch") == 0) {
        result = touch(&sum);
        if (!result) printf("touched %016llx\n", (unsigned long long)sum);
    } else if (strcmp(word, "round") == 0) {
        result = go_round(&sum);
        if (!result) printf("went round %016llx\n", (unsigned long long)sum);
    } else if (strcmp(word, "memory") == 0) {
        result = tell_memory();
    } else if (strcmp(word, "busy") == 0 && argument) {
        result = spin(argument);
        if (!result) printf("spun\n");
    } else if (strcmp(word, "look") == 0) {
        result = look();
        if (!result) printf("looked\n");
    } else if (strcmp(word, "quit") == 0) {
        sum = CHECKSUM_START;
        for (struct gpu *gpu = all; gpu < all + gpus; gpu++) {
            CHECK(cuCtxSetCurrent(gpu->context));
            for (unsigned i = 0; i < gpu->count; i++)
                sum = piece_check(&gpu->tools, &gpu->pieces[i], "the end", sum);
        }
        exit(finish("span", sum));
    } else {
        printf("what is %s?\n", word);
    }
    if (result) printf("answer %d\n", (int)result);
}

int main(int argc, char **argv) {
    struct option_row options[] = {
        {"--megabytes", &megabytes}, {"--piece", &piece}, {"--gpus", &gpus}, {"--seed", &seed}};
    read_options(argc, argv, options, COUNT_OF(options));
    REQUIRE(megabytes > 2 && piece && (megabytes - 2) / piece < MAX_PIECES, "so many pieces of that size cannot be");
    REQUIRE(gpus && gpus <= MAX_GPUS, "--gpus has to be from 1 to %d", MAX_GPUS);
    setvbuf(stdout, NULL, _IOLBF, 0);
    CHECK(cuInit(0));
    for (unsigned device = 0; device < gpus; device++) {
        struct gpu *gpu = &all[device];
        CHECK(cuDevicePrimaryCtxRetain(&gpu->context, (CUdevice)device));
        CHECK(cuCtxSetCurrent(gpu->context));
        gpu->tools = tools_from(load_kernels());
        gpu->sums = device_alloc(MAX_PIECES * sizeof(uint64_t));
        /* 2 MiB are for the sums. */
        size_t left = (megabytes - 2) * MIB, size = piece * MIB;
        for (; left; left -= gpu->pieces[gpu->count++].bytes) {
            struct piece *one = &gpu->pieces[gpu->count];
            *one = (struct piece){.bytes = left < size ? left : size};
            CHECK(cuMemAlloc(&one->at, one->bytes));
            CHECK(fill(gpu, one, seed * 1000 + 100 * device + gpu->count));
        }
        CHECK(cuCtxSynchronize());
    }
    printf("ready %d\n", (int)getpid());
    char line[512];
    while (fgets(line, sizeof line, stdin)) obey(line);
    return 0;
}
