/* Memory that processes share by descriptors (cuMemExportToShareableHandle), beside memory of their own.
 *
 *     weights --megabytes 16 --seed 1
 *
 * Obeys lines on standard input, one answer each:
 *
 *     give MIB SEED            so much memory, filled, and a descriptor of it for each process that connects to
 *                              the socket that WEIGHTS names; `given`
 *     take                     such a descriptor, imported and mapped; `taken`
 *     check SEED               `right` if the shared memory has these contents, and the own memory its own
 *     touch                    `touched well`, if all memory has the contents that it is known to have
 *     write SEED               other contents for the shared memory; `written`
 *     grow MIB                 more memory of its own; `grown`
 *     zero                     zeros; `zeroed`
 *     turns MINE               in memory of zeros, 20 times: a write to the first word, and a wait on the GPU for another
 *                              process's to the second, or the other way round; `turned`
 *     free MIB                 bytes that the driver says are free, less than MIB of them: `less`, else `more`
 *     drop                     unmaps and releases the shared memory; `dropped`
 *     quit                     `result weights ok`
 *
 * A call that fails is told as `answer CODE`, and the next line is read.
 */
#include <sys/socket.h>
#include <sys/un.h>

#include "work.h"

enum { ROUNDS = 20, AT_LEAST = 0 };
#define DESCRIPTOR CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR

static unsigned megabytes = 16, seed = 1;
static struct tools tools;
static struct piece own, more, shared;
static CUmemGenericAllocationHandle handle;

static struct sockaddr_un address(void) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    const char *path = getenv("WEIGHTS");
    REQUIRE(path && strlen(path) < sizeof address.sun_path, "WEIGHTS names no socket");
    strcpy(address.sun_path, path);
    return address;
}

/* The size of the memory goes with its descriptor. */
struct passed {
    size_t bytes;
    int listener, descriptor;
};

static void *pass_on(void *data) {
    struct passed *passed = data;
    for (;;) {
        char room[CMSG_SPACE(sizeof(int))] = {0};
        struct iovec all = {&passed->bytes, sizeof passed->bytes};
        struct msghdr header = {
            .msg_iov = &all, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof room};
        struct cmsghdr *with = CMSG_FIRSTHDR(&header);
        with->cmsg_level = SOL_SOCKET;
        with->cmsg_type = SCM_RIGHTS;
        with->cmsg_len = CMSG_LEN(sizeof(int));
        memcpy(CMSG_DATA(with), &passed->descriptor, sizeof(int));
        int to = accept(passed->listener, NULL, NULL);
        if (to < 0) return NULL;
        sendmsg(to, &header, MSG_NOSIGNAL);
        close(to);
    }
}

static CUresult map_shared(size_t bytes) {
    CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_DEVICE, 0}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    shared.bytes = bytes;
    TRY(cuMemAddressReserve(&shared.at, bytes, 0, 0, 0));
    TRY(cuMemMap(shared.at, bytes, 0, handle, 0));
    return cuMemSetAccess(shared.at, bytes, &access, 1);
}

static CUresult fill(uint32_t with) {
    unsigned words = (unsigned)(shared.bytes / 4);
    void *parameters[] = {&shared.at, &with, &words};
    TRY(cuLaunchKernel(tools.fill, blocks_for(words), 1, 1, 256, 1, 1, 0, NULL, parameters, NULL));
    return cuCtxSynchronize();
}

static CUresult give(size_t bytes, uint32_t with) {
    static struct passed passed;
    CUmemAllocationProp wanted = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                  .requestedHandleTypes = DESCRIPTOR,
                                  .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
    struct sockaddr_un at = address();
    pthread_t thread;
    unlink(at.sun_path);
    shared.seed = with;
    TRY(cuMemCreate(&handle, bytes, &wanted, 0));
    TRY(map_shared(bytes));
    TRY(fill(with));
    passed.bytes = bytes;
    TRY(cuMemExportToShareableHandle(&passed.descriptor, handle, DESCRIPTOR, 0));
    passed.listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    REQUIRE(bind(passed.listener, (struct sockaddr *)&at, sizeof at) == 0 &&
                listen(passed.listener, 16) == 0 && pthread_create(&thread, NULL, pass_on, &passed) == 0,
            "%s cannot be served", at.sun_path);
    return CUDA_SUCCESS;
}

static CUresult take(void) {
    char room[CMSG_SPACE(sizeof(int))] = {0};
    struct sockaddr_un at = address();
    size_t bytes;
    struct iovec all = {&bytes, sizeof bytes};
    struct msghdr header = {
        .msg_iov = &all, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof room};
    int from = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0), descriptor;
    REQUIRE(connect(from, (struct sockaddr *)&at, sizeof at) == 0, "%s is not served", at.sun_path);
    REQUIRE(recvmsg(from, &header, MSG_CMSG_CLOEXEC) == sizeof bytes, "nothing came");
    struct cmsghdr *with = CMSG_FIRSTHDR(&header);
    REQUIRE(with && with->cmsg_type == SCM_RIGHTS, "no descriptor came");
    memcpy(&descriptor, CMSG_DATA(with), sizeof(int));
    close(from);
    CUresult result = cuMemImportFromShareableHandle(&handle, (void *)(uintptr_t)descriptor, DESCRIPTOR);
    close(descriptor);
    TRY(result);
    return map_shared(bytes);
}

static CUresult sum(const struct piece *piece, CUdeviceptr out, uint64_t *got) {
    unsigned words = (unsigned)(piece->bytes / 4);
    CUdeviceptr at = piece->at;
    void *parameters[] = {&out, &at, &words};
    TRY(cuMemsetD8(out, 0, sizeof *got));
    TRY(cuLaunchKernel(tools.sum, blocks_for(words), 1, 1, 256, 1, 1, 0, NULL, parameters, NULL));
    return cuMemcpyDtoH(got, out, sizeof *got);
}

static CUresult check(uint32_t with, int *right) {
    static CUdeviceptr out;
    struct piece *pieces[] = {&own, &more, &shared};
    if (!out) TRY(cuMemAlloc(&out, sizeof(uint64_t)));
    shared.seed = with;
    *right = 1;
    for (unsigned i = 0; i < COUNT_OF(pieces); i++) {
        uint64_t got;
        if (!pieces[i]->at) continue;
        TRY(sum(pieces[i], out, &got));
        *right &= got == sum_of(pieces[i]->seed, pieces[i]->bytes / 4);
    }
    return CUDA_SUCCESS;
}

static CUresult turns(int begins) {
    CUdeviceptr mine = begins ? shared.at : shared.at + 4, others = begins ? shared.at + 4 : shared.at;
    CUstream stream;
    TRY(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    for (unsigned round = 1; round <= ROUNDS; round++) {
        if (begins) TRY(cuStreamWriteValue32(stream, mine, round, 0));
        TRY(cuStreamWaitValue32(stream, others, round, AT_LEAST));
        if (!begins) TRY(cuStreamWriteValue32(stream, mine, round, 0));
        TRY(cuStreamSynchronize(stream));
    }
    return cuStreamDestroy(stream);
}

static CUresult drop(void) {
    TRY(cuMemUnmap(shared.at, shared.bytes));
    TRY(cuMemAddressFree(shared.at, shared.bytes));
    shared.at = 0;
    return cuMemRelease(handle);
}

static CUresult obey(char *line, const char **said) {
    char *word = strtok(line, " \n"), *first = strtok(NULL, " \n"), *second = strtok(NULL, " \n");
    unsigned number = first ? (unsigned)strtoul(first, NULL, 10) : 0;
    if (strcmp(word, "give") == 0) {
        *said = "given";
        return give(number * MIB, (uint32_t)strtoul(second, NULL, 10));
    }
    if (strcmp(word, "take") == 0) {
        *said = "taken";
        return take();
    }
    if (strcmp(word, "check") == 0) {
        int right = 0;
        TRY(check(number, &right));
        *said = right ? "right" : "wrong";
        return CUDA_SUCCESS;
    }
    if (strcmp(word, "touch") == 0) {
        int right = 0;
        TRY(check(shared.seed, &right));
        *said = right ? "touched well" : "wrong";
        return CUDA_SUCCESS;
    }
    if (strcmp(word, "write") == 0) {
        *said = "written";
        shared.seed = number;
        return fill(number);
    }
    if (strcmp(word, "zero") == 0) {
        *said = "zeroed";
        TRY(cuMemsetD8(shared.at, 0, shared.bytes));
        return cuCtxSynchronize();
    }
    if (strcmp(word, "grow") == 0) {
        CUdeviceptr at;
        /* The answer is the program's to see. */
        TRY(cuMemAlloc(&at, number * MIB));
        TRY(cuMemFree(at));
        more = piece_new(&tools, number * MIB, seed + 1, NULL);
        *said = "grown";
        return cuCtxSynchronize();
    }
    if (strcmp(word, "turns") == 0) {
        *said = "turned";
        return turns(number);
    }
    if (strcmp(word, "free") == 0) {
        size_t free, total;
        TRY(cuMemGetInfo(&free, &total));
        *said = free < number * MIB ? "less" : "more";
        return CUDA_SUCCESS;
    }
    REQUIRE(strcmp(word, "drop") == 0, "no such word: %s", word);
    *said = "dropped";
    return drop();
}

int main(int argc, char **argv) {
    struct option_row options[] = {{"--megabytes", &megabytes}, {"--seed", &seed}};
    read_options(argc, argv, options, COUNT_OF(options));
    start();
    tools = tools_from(load_kernels());
    own = piece_new(&tools, megabytes * MIB, seed, NULL);
    CHECK(cuCtxSynchronize());
    setvbuf(stdout, NULL, _IOLBF, 0);
    printf("ready %d\n", (int)getpid());
    char line[512];
    while (fgets(line, sizeof line, stdin) && strcmp(line, "quit\n") != 0) {
        const char *said = NULL;
        CUresult result = obey(line, &said);
        if (result) printf("answer %d\n", (int)result);
        else puts(said);
    }
    puts("result weights ok");
    return 0;
}
