/* The driver's rules for objects that processes share: memory, events, pools, descriptors.
 *
 * The program starts itself a second time, for the other process. That one obeys orders
 * over a socket, call by call, so that the order of calls in the two is always the same. It makes
 * no calls of its own, has no `waits`, and ends with the socket.
 */
#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>

#include "rules.h"

enum { FD = 1, LAZY = 1, INTERPROCESS = 4, NO_TIMES = 2 };
enum { SIZE = 2 * UNIT };

/* --- the other process --------------------------------------------------------------------- */

enum work {
    OPEN,
    CLOSE,
    WRITE,
    RIGHT,
    ATTRIBUTE,
    RANGE,
    FREE,
    ALLOC,
    HANDLE,
    EVENT_NEW,
    EVENT_OPEN,
    EVENT_HANDLE,
    EVENT_RECORD,
    EVENT_QUERY,
    EVENT_WAIT,
    EVENT_DESTROY,
    IMPORT,
    CREATE,
    MAP,
    UNMAP,
    RELEASE,
    EXPORT,
    POOL_IMPORT,
    POOL_POINTER,
    POOL_DESTROY,
    FREE_ASYNC,
    STREAM_WAIT,
    SYNCHRONISE,
    ORDER,
    DESCRIPTOR,
    END
};

/* A question or its answer: a descriptor may go with either. */
struct message {
    int what, code;
    unsigned long long at, bytes, more;
    char handle[64];
};

static int other = -1; /* the socket to the other process */
static pid_t other_pid;

static int send_message(int to, const struct message *message, int descriptor) {
    char room[CMSG_SPACE(sizeof(int))] = {0};
    struct iovec all = {(void *)message, sizeof *message};
    struct msghdr header = {.msg_iov = &all, .msg_iovlen = 1};
    if (descriptor >= 0) {
        header.msg_control = room;
        header.msg_controllen = sizeof room;
        struct cmsghdr *with = CMSG_FIRSTHDR(&header);
        with->cmsg_level = SOL_SOCKET;
        with->cmsg_type = SCM_RIGHTS;
        with->cmsg_len = CMSG_LEN(sizeof(int));
        memcpy(CMSG_DATA(with), &descriptor, sizeof(int));
    }
    return sendmsg(to, &header, MSG_NOSIGNAL) == sizeof *message;
}

static int receive_message(int from, struct message *message, int *descriptor) {
    char room[CMSG_SPACE(sizeof(int))] = {0};
    struct iovec all = {message, sizeof *message};
    struct msghdr header = {
        .msg_iov = &all, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof room};
    *descriptor = -1;
    if (recvmsg(from, &header, MSG_CMSG_CLOEXEC) != sizeof *message) return 0;
    struct cmsghdr *with = CMSG_FIRSTHDR(&header);
    if (with && with->cmsg_type == SCM_RIGHTS) memcpy(descriptor, CMSG_DATA(with), sizeof(int));
    return 1;
}

static CUresult map_here(CUdeviceptr *at, CUmemGenericAllocationHandle memory, size_t bytes) {
    CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_DEVICE, 0}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUresult answer = cuMemAddressReserve(at, bytes, 0, 0, 0);
    if (!answer) answer = cuMemMap(*at, bytes, 0, memory, 0);
    if (!answer) answer = cuMemSetAccess(*at, bytes, &access, 1);
    return answer;
}

static CUresult create_fd(CUmemGenericAllocationHandle *memory, size_t bytes) {
    CUmemAllocationProp kind = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                                .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
    return cuMemCreate(memory, bytes, &kind, 0);
}

/* By these programs let other devices reach memory. */
CUresult cuPointerSetAttribute(const void *value, int attribute, CUdeviceptr address);
CUresult cuMemGetHandleForAddressRange(void *handle, CUdeviceptr address, size_t bytes, int kind,
                                       unsigned long long flags);

static CUresult set_order(CUdeviceptr at) {
    enum { SYNC_MEMOPS = 6 };
    unsigned one = 1;
    return cuPointerSetAttribute(&one, SYNC_MEMOPS, at);
}

static CUresult make_descriptor(CUdeviceptr at, size_t bytes) {
    enum { DMA_BUFFER = 1 };
    int descriptor = -1;
    CUresult answer = cuMemGetHandleForAddressRange(&descriptor, at, bytes, DMA_BUFFER, 0);
    if (descriptor >= 0) close(descriptor);
    return answer;
}

/* Does one thing that was asked for. */
static CUresult serve_one(struct message *m, int *descriptor) {
    CUipcMemHandle memory;
    CUipcEventHandle event;
    CUresult answer;
    size_t bytes = 0;
    void *as_pointer = (void *)(intptr_t)*descriptor;
    memcpy(&memory, m->handle, sizeof memory);
    memcpy(&event, m->handle, sizeof event);
    switch ((enum work)m->what) {
    case OPEN: return cuIpcOpenMemHandle(&m->at, memory, (unsigned)m->more);
    case CLOSE: return cuIpcCloseMemHandle(m->at);
    case WRITE: return write_words(m->at, m->bytes, (uint32_t)m->more);
    case RIGHT:
        m->more = (unsigned long long)words_right(m->at, m->bytes, (uint32_t)m->more);
        return 0;
    case ATTRIBUTE: return attribute_of(m->at, (int)m->bytes, NULL, &m->more);
    case RANGE:
        answer = cuMemGetAddressRange(&m->more, &bytes, m->at);
        m->more = answer ? 0 : m->at - m->more;
        m->bytes = bytes;
        return answer;
    case FREE: return cuMemFree(m->at);
    case ALLOC: return cuMemAlloc(&m->at, m->bytes);
    case HANDLE:
        answer = cuIpcGetMemHandle(&memory, m->at);
        memcpy(m->handle, &memory, sizeof memory);
        return answer;
    case EVENT_NEW: return cuEventCreate((CUevent *)&m->at, (unsigned)m->more);
    case EVENT_OPEN: return cuIpcOpenEventHandle((CUevent *)&m->at, event);
    case EVENT_HANDLE:
        answer = cuIpcGetEventHandle(&event, (CUevent)(uintptr_t)m->at);
        memcpy(m->handle, &event, sizeof event);
        return answer;
    case EVENT_RECORD: return cuEventRecord((CUevent)(uintptr_t)m->at, NULL);
    case EVENT_QUERY: return cuEventQuery((CUevent)(uintptr_t)m->at);
    case EVENT_WAIT: return cuEventSynchronize((CUevent)(uintptr_t)m->at);
    case EVENT_DESTROY: return cuEventDestroy((CUevent)(uintptr_t)m->at);
    case STREAM_WAIT: return cuStreamWaitEvent(NULL, (CUevent)(uintptr_t)m->at, 0);
    case IMPORT:
        return cuMemImportFromShareableHandle(&m->at, as_pointer,
                                              CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    case CREATE: return create_fd(&m->at, m->bytes);
    case MAP: return map_here(&m->at, m->more, m->bytes);
    case UNMAP:
        answer = cuMemUnmap(m->at, m->bytes);
        return answer ? answer : cuMemAddressFree(m->at, m->bytes);
    case RELEASE: return cuMemRelease(m->at);
    case EXPORT:
        if (*descriptor >= 0) close(*descriptor);
        return cuMemExportToShareableHandle(descriptor, m->at,
                                            CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
    case POOL_IMPORT:
        return cuMemPoolImportFromShareableHandle((CUmemoryPool *)&m->at, as_pointer,
                                                  CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
    case POOL_POINTER:
        return cuMemPoolImportPointer(&m->at, (CUmemoryPool)(uintptr_t)m->more,
                                      (CUmemPoolPtrExportData *)m->handle);
    case POOL_DESTROY: return cuMemPoolDestroy((CUmemoryPool)(uintptr_t)m->at);
    case FREE_ASYNC: return cuMemFreeAsync(m->at, NULL);
    case SYNCHRONISE: return cuCtxSynchronize();
    case ORDER: return set_order(m->at);
    case DESCRIPTOR: return make_descriptor(m->at, m->bytes);
    case END: break;
    }
    return CUDA_SUCCESS;
}

static int serve(int socket) {
    struct message message;
    int descriptor;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    waiting = 0;
    context = start();
    while (receive_message(socket, &message, &descriptor) && message.what != END) {
        message.code = (int)serve_one(&message, &descriptor);
        int back = message.what == EXPORT ? descriptor : -1;
        if (!send_message(socket, &message, back)) return 1;
        if (descriptor >= 0) close(descriptor);
    }
    return 0;
}

/* --- asking it ----------------------------------------------------------------------------- */

static void need_other(void) {
    int ends[2];
    char number[16];
    posix_spawn_file_actions_t actions;
    char *args[] = {"ipc", "--serve", number, NULL};
    if (other >= 0) return;
    REQUIRE(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) == 0, "no sockets");
    /* At a number that nothing else has; a copy stays open when the process executes a program. */
    REQUIRE(posix_spawn_file_actions_init(&actions) == 0, "no actions");
    REQUIRE(posix_spawn_file_actions_adddup2(&actions, ends[1], 200) == 0, "no action");
    REQUIRE(posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0) == 0,
            "no action");
    snprintf(number, sizeof number, "%d", 200);
    fflush(stdout);
    REQUIRE(posix_spawn(&other_pid, "/proc/self/exe", &actions, NULL, args, environ) == 0,
            "no process");
    posix_spawn_file_actions_destroy(&actions);
    close(ends[1]);
    other = ends[0];
}

static struct message ask_with(struct message message, int *descriptor) {
    need_other();
    REQUIRE(send_message(other, &message, *descriptor), "the other process is gone");
    REQUIRE(receive_message(other, &message, descriptor), "the other process does not answer");
    return message;
}

/* Has the other process do something. The members that matter are named: TELL(WRITE, .at = at). */
static struct message ask_message(struct message message) {
    int descriptor = -1;
    wait_if_told();
    return ask_with(message, &descriptor);
}

#define TELL(work, ...) ask_message((struct message){.what = work, __VA_ARGS__})

static void end_other(void) {
    struct message message = {.what = END};
    if (other < 0) return;
    send_message(other, &message, -1);
    close(other);
    other = -1;
    REQUIRE(waitpid(other_pid, NULL, 0) == other_pid, "no end of the other process");
}

static void other_attributes(const char *what, CUdeviceptr at) {
    for (int i = 1; i <= ATTRIBUTES; i++) {
        struct message got = TELL(ATTRIBUTE, .at = at, .bytes = (unsigned)i);
        printf("%s %s, attribute %d: %d, %llu\n", rule_now, what, i, got.code, got.more);
    }
}

static void other_range(const char *what, CUdeviceptr at) {
    struct message got = TELL(RANGE, .at = at);
    printf("%s %s, range: %d, %llu before, %llu in all\n", rule_now, what, got.code,
           got.code ? 0 : got.more, got.code ? 0 : got.bytes);
}

static int other_right(CUdeviceptr at, size_t bytes, uint32_t seed) {
    return (int)TELL(RIGHT, .at = at, .bytes = bytes, .more = seed).more;
}

/* Has the other process open a handle; 0 when it cannot. */
static CUdeviceptr other_opens(const char *what, const CUipcMemHandle *handle, unsigned flags) {
    struct message message = {.what = OPEN, .more = flags};
    memcpy(message.handle, handle, sizeof *handle);
    message = ask_message(message);
    say(message.code, "%s", what);
    return message.code ? 0 : message.at;
}

/* The start of many rules: memory with known contents, and its handle. */
#define NEED_SHARED(at, handle, size, seed)                                                        \
    NEED(cuMemAlloc(&at, size));                                                                   \
    NEED(write_words(at, size, seed));                                                             \
    NEED(cuIpcGetMemHandle(&handle, at))

/* --- handles of memory --------------------------------------------------------------------- */

static void handle_where(void) {
    CUipcMemHandle first, second, third;
    CUdeviceptr at, next;
    NEED(cuMemAlloc(&at, SIZE));
    NEED(cuMemAlloc(&next, SIZE));
    memset(&first, 0, sizeof first);
    memset(&second, 0, sizeof second);
    memset(&third, 0, sizeof third);
    ASK(cuIpcGetMemHandle(&first, at), "of the start");
    ASK(cuIpcGetMemHandle(&second, at + UNIT), "of the middle");
    say(memcmp(&first, &second, sizeof first) == 0, "the same handle");
    ASK(cuIpcGetMemHandle(&second, at), "of the start again");
    say(memcmp(&first, &second, sizeof first) == 0, "the same handle again");
    ASK(cuIpcGetMemHandle(&third, next), "of another allocation");
    say(memcmp(&first, &third, sizeof first) == 0, "the same handle for another");
    TIDY(cuMemFree(at));
    TIDY(cuMemFree(next));
}

static void handle_wrong(void) {
    CUipcMemHandle handle;
    CUmemGenericAllocationHandle memory;
    CUdeviceptr at, mapped = 0, of_pool = 0;
    void *pinned;
    char pageable[64];
    NEED(cuMemAlloc(&at, SIZE));
    ASK(cuIpcGetMemHandle(NULL, at), "nowhere to put it");
    NEED(cuMemFree(at));
    ASK(cuIpcGetMemHandle(&handle, at), "of freed memory");
    ASK(cuIpcGetMemHandle(&handle, 0), "of address 0");
    NEED(cuMemHostAlloc(&pinned, 4096, 0));
    ASK(cuIpcGetMemHandle(&handle, (CUdeviceptr)(uintptr_t)pinned), "of pinned memory");
    ASK(cuIpcGetMemHandle(&handle, (CUdeviceptr)(uintptr_t)pageable), "of pageable memory");
    TIDY(cuMemFreeHost(pinned));
    NEED(create_fd(&memory, UNIT));
    NEED(map_here(&mapped, memory, UNIT));
    ASK(cuIpcGetMemHandle(&handle, mapped), "of a mapping");
    TIDY(cuMemUnmap(mapped, UNIT));
    TIDY(cuMemAddressFree(mapped, UNIT));
    TIDY(cuMemRelease(memory));
    if (!ASK(cuMemAllocAsync(&of_pool, UNIT, NULL), "memory of a pool")) {
        ASK(cuIpcGetMemHandle(&handle, of_pool), "of memory of a pool");
        TIDY(cuMemFreeAsync(of_pool, NULL));
    }
}

static void open_here(void) {
    CUipcMemHandle handle;
    CUdeviceptr at, here = 0;
    NEED_SHARED(at, handle, SIZE, 1);
    if (!ASK(cuIpcOpenMemHandle(&here, handle, LAZY), "in the same process")) {
        say(here == at, "the same address");
        say(words_right(here, SIZE, 1), "contents right");
        ASK(cuIpcCloseMemHandle(here), "closing it");
    }
    say(words_right(at, SIZE, 1), "contents right in the end");
    ASK(cuIpcCloseMemHandle(at), "closing what was allocated");
    TIDY(cuMemFree(at));
}

static void open_flags(void) {
    static const unsigned flags[] = {0, 1, 2, 3, ~0u};
    CUipcMemHandle handle;
    CUdeviceptr at;
    NEED_SHARED(at, handle, SIZE, 1);
    for (size_t i = 0; i < COUNT_OF(flags); i++) {
        char what[32];
        snprintf(what, sizeof what, "flags %#x", flags[i]);
        CUdeviceptr there = other_opens(what, &handle, flags[i]);
        if (there) say(TELL(CLOSE, .at = there).code, "%s, closing", what);
    }
    TIDY(cuMemFree(at));
}

static void open_wrong(void) {
    CUipcMemHandle handle;
    CUdeviceptr at = 0;
    memset(&handle, 0, sizeof handle);
    other_opens("a handle of zeros", &handle, LAZY);
    ASK(cuIpcOpenMemHandle(&at, handle, LAZY), "a handle of zeros, here");
    memset(&handle, 0xff, sizeof handle);
    other_opens("a handle of ones", &handle, LAZY);
    NEED_SHARED(at, handle, SIZE, 1);
    ASK(cuIpcOpenMemHandle(NULL, handle, LAZY), "nowhere to put the address");
    TIDY(cuMemFree(at));
}

static void open_contents(void) {
    CUipcMemHandle handle;
    CUdeviceptr at, there;
    NEED_SHARED(at, handle, SIZE, 1);
    there = other_opens("opening", &handle, LAZY);
    if (there) {
        say(other_right(there, SIZE, 1), "written here, read there");
        say(TELL(WRITE, .at = there, .bytes = SIZE, .more = 2).code, "writing there");
        say(words_right(at, SIZE, 2), "written there, read here");
        NEED(write_words(at, SIZE, 3));
        say(other_right(there, SIZE, 3), "written here again, read there");
        say(TELL(CLOSE, .at = there).code, "closing");
        say(words_right(at, SIZE, 3), "contents right in the end");
    }
    TIDY(cuMemFree(at));
}

static void open_twice(void) {
    CUipcMemHandle handle;
    CUdeviceptr at;
    NEED_SHARED(at, handle, SIZE, 1);
    CUdeviceptr first = other_opens("once", &handle, LAZY);
    CUdeviceptr second = other_opens("twice", &handle, LAZY);
    if (first) {
        say(first == second, "the same address");
        say(TELL(CLOSE, .at = first).code, "closing once");
        if (second) say(other_right(second, SIZE, 1), "contents right then");
        say(TELL(CLOSE, .at = second).code, "closing twice");
        say(TELL(CLOSE, .at = first).code, "closing a third time");
    }
    TIDY(cuMemFree(at));
}

static void open_after_close(void) {
    CUipcMemHandle handle;
    CUdeviceptr at;
    NEED_SHARED(at, handle, SIZE, 1);
    for (int round = 0; round < 3; round++) {
        CUdeviceptr there = other_opens("opening", &handle, LAZY);
        if (!there) break;
        say(other_right(there, SIZE, 1), "round %d, contents right", round);
        say(TELL(CLOSE, .at = there).code, "round %d, closing", round);
    }
    TIDY(cuMemFree(at));
}

static void open_middle(void) {
    CUipcMemHandle handle;
    CUdeviceptr at, there;
    NEED(cuMemAlloc(&at, SIZE));
    NEED(write_words(at, SIZE, 1));
    NEED(cuIpcGetMemHandle(&handle, at + UNIT));
    there = other_opens("a handle of the middle", &handle, LAZY);
    if (there) {
        say(other_right(there, UNIT, 1), "it is the start");
        say(other_right(there, UNIT, 1 + UNIT / 4), "it is the middle");
        other_range("it", there);
        say(TELL(CLOSE, .at = there).code, "closing");
    }
    TIDY(cuMemFree(at));
}

static void open_small(void) {
    CUipcMemHandle handle, next_handle;
    CUdeviceptr at, next, there, next_there;
    NEED_SHARED(at, handle, 512, 1);
    NEED_SHARED(next, next_handle, 512, 2);
    there = other_opens("512 bytes", &handle, LAZY);
    next_there = other_opens("another 512 bytes", &next_handle, LAZY);
    if (there) {
        say(other_right(there, 512, 1), "contents right");
        other_range("512 bytes", there);
        say(TELL(WRITE, .at = there, .bytes = 512, .more = 3).code, "writing there");
        say(words_right(at, 512, 3), "written there, read here");
        say(words_right(next, 512, 2), "the other is as it was");
    }
    if (next_there) {
        say(other_right(next_there, 512, 2), "the other's contents right");
        say(TELL(CLOSE, .at = next_there).code, "closing the other");
    }
    if (there) {
        say(other_right(there, 512, 3), "contents right in the end");
        say(TELL(CLOSE, .at = there).code, "closing");
    }
    TIDY(cuMemFree(at));
    TIDY(cuMemFree(next));
}

static void open_odd_size(void) {
    CUipcMemHandle handle;
    CUdeviceptr at, there;
    NEED_SHARED(at, handle, 3 * MIB + 4096, 1);
    there = other_opens("3 MiB and 4096 bytes", &handle, LAZY);
    if (there) {
        say(other_right(there, 3 * MIB + 4096, 1), "contents right");
        other_range("it", there);
        other_range("its last byte", there + 3 * MIB + 4095);
        say(TELL(CLOSE, .at = there).code, "closing");
    }
    TIDY(cuMemFree(at));
}

static void opened_attributes(void) {
    CUipcMemHandle handle;
    CUdeviceptr at, there;
    NEED_SHARED(at, handle, SIZE, 1);
    say_attributes("exported", at, NULL);
    there = other_opens("opening", &handle, LAZY);
    if (there) {
        other_attributes("opened", there);
        other_attributes("inside the opened", there + UNIT + 4);
        other_range("inside the opened", there + UNIT + 4);
        say(TELL(CLOSE, .at = there).code, "closing");
        other_attributes("closed", there);
    }
    TIDY(cuMemFree(at));
}

static void opened_wrong(void) {
    CUipcMemHandle handle;
    CUdeviceptr at, there;
    NEED_SHARED(at, handle, SIZE, 1);
    there = other_opens("opening", &handle, LAZY);
    if (there) {
        say(TELL(FREE, .at = there).code, "freeing what was opened");
        say(TELL(FREE_ASYNC, .at = there).code, "freeing it in a stream");
        say(TELL(SYNCHRONISE).code, "the context there");
        say(TELL(HANDLE, .at = there).code, "a handle of what was opened");
        say(TELL(CLOSE, .at = there + UNIT).code, "closing the middle");
        say(other_right(there, SIZE, 1), "contents right");
        say(TELL(CLOSE, .at = there).code, "closing");
    }
    say(TELL(CLOSE, .at = 0).code, "closing address 0");
    say(TELL(CLOSE, .at = at).code, "closing what was not opened");
    say(words_right(at, SIZE, 1), "contents right here");
    TIDY(cuMemFree(at));
}

/* Processes let other devices in to memory that they share. */
static void opened_devices(void) {
    CUipcMemHandle handle;
    CUdeviceptr at, there;
    NEED_SHARED(at, handle, SIZE, 1);
    there = other_opens("opening", &handle, LAZY);
    if (there) {
        say(TELL(ORDER, .at = there).code, "order of the opened");
        say(TELL(DESCRIPTOR, .at = there, .bytes = SIZE).code, "a descriptor of the opened");
        say(other_right(there, SIZE, 1), "contents right");
        ASK(set_order(at), "order of the exported");
        ASK(make_descriptor(at, SIZE), "a descriptor of the exported");
        say(other_right(there, SIZE, 1), "contents right");
        say(TELL(CLOSE, .at = there).code, "closing");
    }
    say(words_right(at, SIZE, 1), "contents right here");
    TIDY(cuMemFree(at));
}

static void exporter_frees(void) {
    CUipcMemHandle handle;
    CUdeviceptr at, there;
    NEED_SHARED(at, handle, SIZE, 1);
    there = other_opens("opening", &handle, LAZY);
    ASK(cuMemFree(at), "freeing while it is open elsewhere");
    if (there) {
        other_range("what is open", there);
        say(TELL(CLOSE, .at = there).code, "closing");
        say(TELL(SYNCHRONISE).code, "the context there");
    }
}

static void old_handle(void) {
    CUipcMemHandle handle, next_handle;
    CUdeviceptr at, next, there;
    NEED_SHARED(at, handle, SIZE, 1);
    NEED(cuMemFree(at));
    there = other_opens("a handle of freed memory", &handle, LAZY);
    if (there) say(TELL(CLOSE, .at = there).code, "closing");
    NEED_SHARED(next, next_handle, SIZE, 2);
    say(memcmp(&handle, &next_handle, sizeof handle) == 0, "the next handle is the same");
    there = other_opens("the old handle with new memory", &handle, LAZY);
    if (there) say(TELL(CLOSE, .at = there).code, "closing again");
    there = other_opens("the new handle", &next_handle, LAZY);
    if (there) {
        say(other_right(there, SIZE, 2), "contents right");
        say(TELL(CLOSE, .at = there).code, "closing in the end");
    }
    TIDY(cuMemFree(next));
}

static void several_at_once(void) {
    enum { SEVERAL = 4 };
    CUipcMemHandle handles[SEVERAL];
    CUdeviceptr at[SEVERAL], there[SEVERAL];
    for (uint32_t i = 0; i < SEVERAL; i++) {
        NEED_SHARED(at[i], handles[i], SIZE, i);
    }
    for (uint32_t i = 0; i < SEVERAL; i++) there[i] = other_opens("opening", &handles[i], LAZY);
    for (uint32_t i = SEVERAL; i-- > 0;) {
        if (!there[i]) continue;
        say(other_right(there[i], SIZE, i), "contents of %u right", i);
        say(TELL(CLOSE, .at = there[i]).code, "closing %u", i);
    }
    for (uint32_t i = 0; i < SEVERAL; i++) TIDY(cuMemFree(at[i]));
}

/* The other process has the memory, and this one opens it. */
static void opened_here(void) {
    CUipcMemHandle handle;
    CUdeviceptr here = 0;
    struct message made = TELL(ALLOC, .bytes = SIZE);
    if (say(made.code, "an allocation there")) return;
    say(TELL(WRITE, .at = made.at, .bytes = SIZE, .more = 1).code, "writing there");
    struct message got = TELL(HANDLE, .at = made.at);
    say(got.code, "its handle");
    memcpy(&handle, got.handle, sizeof handle);
    if (!got.code && !ASK(cuIpcOpenMemHandle(&here, handle, LAZY), "opening here")) {
        say(words_right(here, SIZE, 1), "contents right");
        say_attributes("opened here", here, NULL);
        say_range("opened here", here + 5);
        NEED(write_words(here, SIZE, 2));
        say(other_right(made.at, SIZE, 2), "written here, read there");
        ASK(cuMemFree(here), "freeing it here");
        ASK(cuIpcCloseMemHandle(here), "closing");
        ASK(cuIpcCloseMemHandle(here), "closing twice");
    }
    say(TELL(FREE, .at = made.at).code, "freeing there");
}

static void exporter_ends(void) {
    CUipcMemHandle handle;
    CUdeviceptr here = 0;
    struct message made = TELL(ALLOC, .bytes = SIZE);
    if (say(made.code, "an allocation there")) return;
    struct message got = TELL(HANDLE, .at = made.at);
    say(got.code, "its handle");
    memcpy(&handle, got.handle, sizeof handle);
    if (!got.code && !ASK(cuIpcOpenMemHandle(&here, handle, LAZY), "opening here")) {
        end_other();
        say_range("with the other process gone", here);
        ASK(cuIpcCloseMemHandle(here), "closing with the other process gone");
    }
    end_other();
    if (!ASK(cuIpcOpenMemHandle(&here, handle, LAZY), "opening with the other process gone")) {
        TIDY(cuIpcCloseMemHandle(here));
    }
}

static void opener_ends(void) {
    CUipcMemHandle handle;
    CUdeviceptr at;
    NEED_SHARED(at, handle, SIZE, 1);
    other_opens("opening", &handle, LAZY);
    end_other();
    say(words_right(at, SIZE, 1), "contents right with the other process gone");
    CUdeviceptr there = other_opens("opening in the next process", &handle, LAZY);
    if (there) {
        say(other_right(there, SIZE, 1), "contents right there");
        say(TELL(CLOSE, .at = there).code, "closing");
    }
    ASK(cuMemFree(at), "freeing");
}

/* --- handles of events --------------------------------------------------------------------- */

static void event_flags(void) {
    static const unsigned flags[] = {0, 2, 4, 6, 7, 8};
    for (size_t i = 0; i < COUNT_OF(flags); i++) {
        CUipcEventHandle handle;
        CUevent event;
        if (ASK(cuEventCreate(&event, flags[i]), "an event with flags %u", flags[i])) continue;
        ASK(cuIpcGetEventHandle(&handle, event), "a handle with flags %u", flags[i]);
        TIDY(cuEventDestroy(event));
    }
    CUipcEventHandle handle;
    CUevent event;
    ASK(cuIpcGetEventHandle(&handle, NULL), "of no event");
    NEED(cuEventCreate(&event, INTERPROCESS | NO_TIMES));
    ASK(cuIpcGetEventHandle(NULL, event), "nowhere to put it");
    TIDY(cuEventDestroy(event));
}

static void event_here(void) {
    CUipcEventHandle handle;
    CUevent event, here = NULL;
    NEED(cuEventCreate(&event, INTERPROCESS | NO_TIMES));
    NEED(cuIpcGetEventHandle(&handle, event));
    if (!ASK(cuIpcOpenEventHandle(&here, handle), "opening in the same process")) {
        say(here == event, "the same event");
        ASK(cuEventQuery(here), "asking it");
        TIDY(cuEventDestroy(here));
    }
    memset(&handle, 0, sizeof handle);
    ASK(cuIpcOpenEventHandle(&here, handle), "a handle of zeros");
    TIDY(cuEventDestroy(event));
}

/* Opens an event there; 0 when it cannot. */
static unsigned long long other_event(const CUipcEventHandle *handle) {
    struct message message = {.what = EVENT_OPEN};
    memcpy(message.handle, handle, sizeof *handle);
    message = ask_message(message);
    say(message.code, "opening");
    return message.code ? 0 : message.at;
}

static void event_recorded_here(void) {
    CUipcEventHandle handle;
    CUevent event;
    CUstream stream;
    NEED(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    NEED(cuEventCreate(&event, INTERPROCESS | NO_TIMES));
    NEED(cuIpcGetEventHandle(&handle, event));
    unsigned long long there = other_event(&handle);
    if (there) {
        say(TELL(EVENT_QUERY, .at = there).code, "before it is recorded");
        if (!hold(stream)) return;
        NEED(cuEventRecord(event, stream));
        say(TELL(EVENT_QUERY, .at = there).code, "recorded in a stream that is held up");
        say(TELL(STREAM_WAIT, .at = there).code, "a stream there waits for it");
        let_go();
        say(TELL(EVENT_WAIT, .at = there).code, "waiting for it there");
        say(TELL(EVENT_QUERY, .at = there).code, "asking there after that");
        say(TELL(SYNCHRONISE).code, "the context there");
        say(TELL(EVENT_DESTROY, .at = there).code, "destroying it there");
        ASK(cuEventQuery(event), "asking here after that");
    }
    TIDY(cuEventDestroy(event));
    TIDY(cuStreamDestroy(stream));
}

static void event_recorded_there(void) {
    CUipcEventHandle handle;
    CUevent event;
    NEED(cuEventCreate(&event, INTERPROCESS | NO_TIMES));
    NEED(cuIpcGetEventHandle(&handle, event));
    unsigned long long there = other_event(&handle);
    if (there) {
        say(TELL(EVENT_RECORD, .at = there).code, "recording there");
        ASK(cuEventSynchronize(event), "waiting for it here");
        ASK(cuEventQuery(event), "asking here");
        ASK(cuStreamWaitEvent(NULL, event, 0), "a stream waits for it here");
        ASK(cuStreamSynchronize(NULL), "that stream's end");
        say(TELL(EVENT_DESTROY, .at = there).code, "destroying it there");
    }
    TIDY(cuEventDestroy(event));
}

static void event_destroyed(void) {
    CUipcEventHandle handle;
    CUevent event;
    NEED(cuEventCreate(&event, INTERPROCESS | NO_TIMES));
    NEED(cuIpcGetEventHandle(&handle, event));
    unsigned long long there = other_event(&handle);
    ASK(cuEventDestroy(event), "destroying it here");
    if (there) {
        say(TELL(EVENT_QUERY, .at = there).code, "asking there");
        say(TELL(EVENT_RECORD, .at = there).code, "recording there");
        say(TELL(EVENT_WAIT, .at = there).code, "waiting there");
        say(TELL(EVENT_DESTROY, .at = there).code, "destroying it there");
    }
}

/* --- descriptors --------------------------------------------------------------------------- */

/* Sends a descriptor with something to do. */
static struct message tell_with(int what, int descriptor) {
    wait_if_told();
    return ask_with((struct message){.what = what}, &descriptor);
}

static void descriptor_there(void) {
    CUmemGenericAllocationHandle memory;
    CUdeviceptr at = 0;
    int descriptor = -1;
    NEED(create_fd(&memory, SIZE));
    NEED(map_here(&at, memory, SIZE));
    NEED(write_words(at, SIZE, 1));
    NEED(cuMemExportToShareableHandle(&descriptor, memory, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                                      0));
    struct message imported = tell_with(IMPORT, descriptor);
    close(descriptor);
    if (!say(imported.code, "importing there")) {
        struct message mapped = TELL(MAP, .more = imported.at, .bytes = SIZE);
        say(mapped.code, "mapping there");
        say(other_right(mapped.at, SIZE, 1), "written here, read there");
        say(TELL(WRITE, .at = mapped.at, .bytes = SIZE, .more = 2).code, "writing there");
        say(words_right(at, SIZE, 2), "written there, read here");
        other_attributes("imported", mapped.at);
        /* This side lets go first. */
        ASK(cuMemUnmap(at, SIZE), "unmapping here");
        ASK(cuMemRelease(memory), "releasing here");
        say(other_right(mapped.at, SIZE, 2), "contents right there after that");
        say(TELL(RELEASE, .at = imported.at).code, "releasing there");
        say(other_right(mapped.at, SIZE, 2), "contents right there in the end");
        say(TELL(UNMAP, .at = mapped.at, .bytes = SIZE).code, "unmapping there");
    } else {
        TIDY(cuMemUnmap(at, SIZE));
        TIDY(cuMemRelease(memory));
    }
    TIDY(cuMemAddressFree(at, SIZE));
}

static void descriptor_here(void) {
    CUmemGenericAllocationHandle imported = 0;
    CUdeviceptr at = 0;
    int descriptor = -1;
    struct message made = TELL(CREATE, .bytes = SIZE);
    if (say(made.code, "creating there")) return;
    struct message mapped = TELL(MAP, .more = made.at, .bytes = SIZE);
    say(mapped.code, "mapping there");
    say(TELL(WRITE, .at = mapped.at, .bytes = SIZE, .more = 1).code, "writing there");
    wait_if_told();
    struct message got = ask_with((struct message){.what = EXPORT, .at = made.at}, &descriptor);
    say(got.code, "exporting there");
    int answer = ASK(cuMemImportFromShareableHandle(&imported, (void *)(intptr_t)descriptor,
                                                    CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR),
                     "importing here");
    if (descriptor >= 0) close(descriptor);
    if (answer) {
        end_other();
        return;
    }
    ASK(map_here(&at, imported, SIZE), "mapping here");
    say(words_right(at, SIZE, 1), "contents right");
    NEED(write_words(at, SIZE, 2));
    say(other_right(mapped.at, SIZE, 2), "written here, read there");
    end_other();
    say(words_right(at, SIZE, 2), "contents right with the other process gone");
    NEED(write_words(at, SIZE, 3));
    say(words_right(at, SIZE, 3), "contents right, written after that");
    TIDY(cuMemUnmap(at, SIZE));
    TIDY(cuMemAddressFree(at, SIZE));
    TIDY(cuMemRelease(imported));
}

/* A descriptor keeps the memory, with nothing else left of it. */
static void descriptor_keeps(void) {
    CUmemGenericAllocationHandle memory;
    CUdeviceptr at = 0;
    int descriptor = -1;
    NEED(create_fd(&memory, SIZE));
    NEED(map_here(&at, memory, SIZE));
    NEED(write_words(at, SIZE, 1));
    NEED(cuMemExportToShareableHandle(&descriptor, memory, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                                      0));
    TIDY(cuMemUnmap(at, SIZE));
    TIDY(cuMemAddressFree(at, SIZE));
    TIDY(cuMemRelease(memory));
    struct message imported = tell_with(IMPORT, descriptor);
    close(descriptor);
    if (say(imported.code, "importing there with nothing left here")) return;
    struct message mapped = TELL(MAP, .more = imported.at, .bytes = SIZE);
    say(mapped.code, "mapping there");
    say(other_right(mapped.at, SIZE, 1), "contents right");
    say(TELL(UNMAP, .at = mapped.at, .bytes = SIZE).code, "unmapping there");
    say(TELL(RELEASE, .at = imported.at).code, "releasing there");
}

/* --- pools --------------------------------------------------------------------------------- */

static void pool_there(void) {
    CUmemPoolProps kind = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                           .handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                           .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
    CUmemPoolPtrExportData data;
    CUmemoryPool pool;
    CUdeviceptr at;
    int descriptor = -1;
    NEED(cuMemPoolCreate(&pool, &kind));
    NEED(cuMemAllocFromPoolAsync(&at, SIZE, pool, NULL));
    NEED(cuStreamSynchronize(NULL));
    NEED(write_words(at, SIZE, 1));
    ASK(cuMemPoolExportToShareableHandle(&descriptor, pool,
                                         CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
        "exporting");
    ASK(cuMemPoolExportPointer(&data, at), "exporting a pointer");
    struct message imported = tell_with(POOL_IMPORT, descriptor);
    if (descriptor >= 0) close(descriptor);
    if (!say(imported.code, "importing there")) {
        struct message message = {.what = POOL_POINTER, .more = imported.at};
        memcpy(message.handle, &data, sizeof data);
        message = ask_message(message);
        if (!say(message.code, "importing the pointer there")) {
            say(other_right(message.at, SIZE, 1), "written here, read there");
            say(TELL(WRITE, .at = message.at, .bytes = SIZE, .more = 2).code, "writing there");
            say(words_right(at, SIZE, 2), "written there, read here");
            other_attributes("imported", message.at);
            other_range("imported", message.at + 5);
            say(TELL(HANDLE, .at = message.at).code, "a handle of the older kind there");
            say(TELL(FREE_ASYNC, .at = message.at).code, "freeing there");
            say(TELL(SYNCHRONISE).code, "the context there");
        }
        say(TELL(POOL_DESTROY, .at = imported.at).code, "destroying the pool there");
    }
    say(words_right(at, SIZE, 2), "contents right here in the end");
    TIDY(cuMemFreeAsync(at, NULL));
    TIDY(cuStreamSynchronize(NULL));
    TIDY(cuMemPoolDestroy(pool));
}

/* --- rules that may break a context -------------------------------------------------------- */

static void read_after_free(void) {
    CUipcMemHandle handle;
    CUdeviceptr at, there;
    NEED_SHARED(at, handle, SIZE, 1);
    there = other_opens("opening", &handle, LAZY);
    ASK(cuMemFree(at), "freeing while it is open elsewhere");
    if (there) {
        say(other_right(there, SIZE, 1), "contents right there");
        say(TELL(SYNCHRONISE).code, "the context there");
        say(TELL(CLOSE, .at = there).code, "closing");
    }
}

static void read_after_exporter_ends(void) {
    CUipcMemHandle handle;
    CUdeviceptr here = 0;
    struct message made = TELL(ALLOC, .bytes = SIZE);
    if (say(made.code, "an allocation there")) return;
    say(TELL(WRITE, .at = made.at, .bytes = SIZE, .more = 1).code, "writing there");
    struct message got = TELL(HANDLE, .at = made.at);
    say(got.code, "its handle");
    memcpy(&handle, got.handle, sizeof handle);
    NEED(cuIpcOpenMemHandle(&here, handle, LAZY));
    end_other();
    say(words_right(here, SIZE, 1), "contents right with the other process gone");
    ASK(cuCtxSynchronize(), "the context after that");
    ASK(cuIpcCloseMemHandle(here), "closing");
}

int main(int argc, char **argv) {
    static const struct rule rules[] = {
        {"handle-where", handle_where},
        {"handle-wrong", handle_wrong},
        {"open-here", open_here},
        {"open-flags", open_flags},
        {"open-wrong", open_wrong},
        {"open-contents", open_contents},
        {"open-twice", open_twice},
        {"open-after-close", open_after_close},
        {"open-middle", open_middle},
        {"open-small", open_small},
        {"open-odd-size", open_odd_size},
        {"opened-attributes", opened_attributes},
        {"opened-wrong", opened_wrong},
        {"opened-devices", opened_devices},
        {"exporter-frees", exporter_frees},
        {"old-handle", old_handle},
        {"several-at-once", several_at_once},
        {"opened-here", opened_here},
        {"exporter-ends", exporter_ends},
        {"opener-ends", opener_ends},
        {"event-flags", event_flags},
        {"event-here", event_here},
        {"event-recorded-here", event_recorded_here},
        {"event-recorded-there", event_recorded_there},
        {"event-destroyed", event_destroyed},
        {"descriptor-there", descriptor_there},
        {"descriptor-here", descriptor_here},
        {"descriptor-keeps", descriptor_keeps},
        {"pool-there", pool_there},
    };
    static const struct rule faults[] = {
        {"read-after-free", read_after_free},
        {"read-after-exporter-ends", read_after_exporter_ends},
    };
    if (argc == 3 && strcmp(argv[1], "--serve") == 0) return serve(atoi(argv[2]));
    int answer = play_rules(argc, argv, RULES(rules), RULES(faults));
    end_other();
    return answer;
}
