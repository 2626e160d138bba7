/* Two processes that pass memory on by descriptors, and wait for each other's writes on the GPU.
 *
 * The program starts itself a second time, for the other process, which says nothing and ends when it
 * has done its part.
 */
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "legal.h"
#include "baton_cuda_pools.h"

enum { ROUNDS = 20, OTHERS_SOCKET = 200 };

enum kind { ONE_PIECE, PIECES, POOL };

/* The data that goes with a descriptor. */
struct passed {
    size_t bytes;
    enum kind kind;
    CUmemPoolPtrExportData data;
};

/* --- passing on ---------------------------------------------------------------------------- */

static void send_passed(int to, const struct passed *passed, int descriptor) {
    char room[CMSG_SPACE(sizeof(int))] = {0};
    struct iovec all = {(void *)passed, sizeof *passed};
    struct msghdr header = {
        .msg_iov = &all, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof room};
    struct cmsghdr *with = CMSG_FIRSTHDR(&header);
    with->cmsg_level = SOL_SOCKET;
    with->cmsg_type = SCM_RIGHTS;
    with->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(with), &descriptor, sizeof(int));
    REQUIRE(sendmsg(to, &header, MSG_NOSIGNAL) == sizeof *passed, "the other process is gone");
}

static int receive_passed(int from, struct passed *passed) {
    char room[CMSG_SPACE(sizeof(int))] = {0};
    struct iovec all = {passed, sizeof *passed};
    struct msghdr header = {
        .msg_iov = &all, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof room};
    int descriptor;
    REQUIRE(recvmsg(from, &header, MSG_CMSG_CLOEXEC) == sizeof *passed, "the other process is gone");
    struct cmsghdr *with = CMSG_FIRSTHDR(&header);
    REQUIRE(with && with->cmsg_type == SCM_RIGHTS, "no descriptor came");
    memcpy(&descriptor, CMSG_DATA(with), sizeof(int));
    return descriptor;
}

static CUdeviceptr map_here(CUmemGenericAllocationHandle memory, size_t bytes) {
    CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_DEVICE, 0}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUdeviceptr at;
    CHECK(cuMemAddressReserve(&at, bytes, 0, 0, 0));
    CHECK(cuMemMap(at, bytes, 0, memory, 0));
    CHECK(cuMemSetAccess(at, bytes, &access, 1));
    CHECK(cuMemRelease(memory));
    return at;
}

/* New memory of zeros, which the other process gets too. */
static CUdeviceptr export_to(int other, enum kind kind) {
    struct passed passed = {.kind = kind, .bytes = kind == PIECES ? 6 * MIB : 2 * MIB};
    int descriptor = -1;
    CUdeviceptr at;
    step("exporting");
    if (kind == POOL) {
        CUmemPoolProps of_pool = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                                  .handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                                  .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
        CUmemoryPool pool;
        CHECK(cuMemPoolCreate(&pool, &of_pool));
        CHECK(cuMemAllocFromPoolAsync(&at, passed.bytes, pool, NULL));
        CHECK(cuStreamSynchronize(NULL));
        CHECK(cuMemPoolExportToShareableHandle(&descriptor, pool,
                                               CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
        CHECK(cuMemPoolExportPointer(&passed.data, at));
    } else {
        CUmemAllocationProp of_memory = {
            .type = CU_MEM_ALLOCATION_TYPE_PINNED,
            .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
            .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
        CUmemGenericAllocationHandle memory;
        CHECK(cuMemCreate(&memory, passed.bytes, &of_memory, 0));
        CHECK(cuMemExportToShareableHandle(&descriptor, memory,
                                           CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
        at = map_here(memory, passed.bytes);
    }
    CHECK(cuMemsetD32(at, 0, passed.bytes / 4));
    CHECK(cuCtxSynchronize());
    send_passed(other, &passed, descriptor);
    close(descriptor);
    return at;
}

static CUdeviceptr import_from(int other) {
    struct passed passed;
    CUdeviceptr at;
    step("importing");
    int descriptor = receive_passed(other, &passed);
    void *as_pointer = (void *)(intptr_t)descriptor;
    if (passed.kind == POOL) {
        CUmemoryPool pool;
        CHECK(cuMemPoolImportFromShareableHandle(&pool, as_pointer,
                                                 CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
        CHECK(cuMemPoolImportPointer(&at, pool, &passed.data));
    } else {
        CUmemGenericAllocationHandle memory;
        CHECK(cuMemImportFromShareableHandle(&memory, as_pointer,
                                             CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
        at = map_here(memory, passed.bytes);
    }
    close(descriptor);
    return at;
}

/* --- the other process --------------------------------------------------------------------- */

/* One process writes to the first word and waits for the second, the other the other way round. */
static void take_turns(CUdeviceptr at, int begins) {
    CUdeviceptr own = begins ? at : at + 4, others = begins ? at + 4 : at;
    CUstream stream = stream_new(CU_STREAM_NON_BLOCKING);
    step("waiting for the other process's write");
    for (unsigned round = 1; round <= ROUNDS; round++) {
        if (begins) CHECK(cuStreamWriteValue32(stream, own, round, 0));
        CHECK(cuStreamWaitValue32(stream, others, round, AT_LEAST));
        if (!begins) CHECK(cuStreamWriteValue32(stream, own, round, 0));
        CHECK(cuStreamSynchronize(stream));
    }
    CHECK(cuStreamDestroy(stream));
}

static pid_t other_pid;

/* Starts it, for one of its parts: it has all that it needs of its own before a program waits for it on the GPU. */
static int start_other(const char *part) {
    int ends[2];
    REQUIRE(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) == 0, "no sockets");
    fflush(stdout);
    other_pid = fork();
    REQUIRE(other_pid >= 0, "no process");
    if (other_pid == 0) {
        /* A copy stays open when the process executes a program. */
        dup2(ends[1], OTHERS_SOCKET);
        execl("/proc/self/exe", "passed", "--other", part, NULL);
        _exit(127);
    }
    close(ends[1]);
    char ready = 0;
    step("waiting for the other process");
    REQUIRE(read(ends[0], &ready, 1) == 1 && ready == 'r', "the other process is gone");
    return ends[0];
}

static void wait_for_other(void) {
    int status = -1;
    step("waiting for the other process's end");
    REQUIRE(waitpid(other_pid, &status, 0) == other_pid, "no other process");
    printf("the other process ended: %d\n", status);
}

static int is_other(const char *part) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    take_gpu();
    struct piece own = piece_new(&tools, (strcmp(part, "much") ? 4 : 60) * MIB, 2, NULL);
    CHECK(cuCtxSynchronize());
    REQUIRE(write(OTHERS_SOCKET, "r", 1) == 1, "the first process is gone");
    if (!strcmp(part, "import")) {
        take_turns(import_from(OTHERS_SOCKET), 0);
    } else if (!strcmp(part, "export")) {
        take_turns(export_to(OTHERS_SOCKET, ONE_PIECE), 0);
    } else {
        import_from(OTHERS_SOCKET);
    }
    piece_check(&tools, &own, "the other process's own", 0);
    return 0;
}

/* --- cases --------------------------------------------------------------------------------- */

/* The process's own memory works as before, and its shared memory too. */
static void go_on(const struct piece *own, CUdeviceptr at) {
    unsigned word = 0;
    wait_for_other();
    wait_for_line();
    piece_check(&tools, own, "its own", 0);
    CHECK(cuMemcpyDtoH(&word, at, sizeof word));
    printf("the last round was %u\n", word);
}

static void pass_on(enum kind kind) {
    struct piece own = piece_new(&tools, 4 * MIB, 1, NULL);
    CUdeviceptr at = export_to(start_other("import"), kind);
    take_turns(at, 1);
    go_on(&own, at);
}

static void one_piece(void) { pass_on(ONE_PIECE); }

static void pieces(void) { pass_on(PIECES); }

static void pool(void) { pass_on(POOL); }

/* The other way round: the exporter ends first. */
static void imported(void) {
    struct piece own = piece_new(&tools, 4 * MIB, 1, NULL);
    CUdeviceptr at = import_from(start_other("export"));
    take_turns(at, 1);
    go_on(&own, at);
}

/* Both have more than there is room for at once. */
static void much(void) {
    struct piece own = piece_new(&tools, 60 * MIB, 1, NULL);
    CUdeviceptr at = export_to(start_other("much"), ONE_PIECE);
    go_on(&own, at);
}

int main(int argc, char **argv) {
    static const struct legal_case cases[] = {
        {"one-piece", one_piece}, {"pieces", pieces}, {"pool", pool}, {"imported", imported}, {"much", much}};
    if (argc == 3 && !strcmp(argv[1], "--other")) return is_other(argv[2]);
    return play(argc, argv, take_gpu, cases, COUNT_OF(cases));
}
