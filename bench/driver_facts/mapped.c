/* Memory of the virtual memory calls. */
#include "mapped.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

static int exporter = -1;

static void send_descriptor(int to, int descriptor) {
    char byte = 0, room[CMSG_SPACE(sizeof(int))] = {0};
    struct iovec part = {&byte, 1};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = room,
                             .msg_controllen = sizeof room};
    struct cmsghdr *head = CMSG_FIRSTHDR(&message);
    head->cmsg_level = SOL_SOCKET;
    head->cmsg_type = SCM_RIGHTS;
    head->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(head), &descriptor, sizeof descriptor);
    if (sendmsg(to, &message, 0) != 1) _exit(5);
}

void start_exporter(int gpu, int count, size_t bytes) {
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends)) abort();
    if (fork()) {
        close(ends[1]);
        exporter = ends[0];
        return;
    }
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    close(ends[0]);
    alarm(60);
    open_driver();
    about("in the process that exports");
    MUST(cuInit(0));
    CUmemGenericAllocationHandle first = 0;
    for (int at = 0; at < count; at++) {
        CUmemGenericAllocationHandle handle = own_handle(gpu, bytes, true);
        int descriptor = exported(handle);
        send_descriptor(ends[1], descriptor);
        close(descriptor);
        if (at == 0) first = handle;
    }
    CUdeviceptr seen = 0;
    static char contents[SEEN];
    for (char byte; read(ends[1], &byte, 1) == 1;) {
        if (!seen) {
            CUdevice device;
            CUcontext context;
            MUST(cuDeviceGet(&device, gpu));
            MUST(cuDevicePrimaryCtxRetain(&context, device));
            MUST(cuCtxSetCurrent(context));
            seen = mapped(first, bytes, gpu);
        }
        MUST(cuMemcpyDtoH(contents, seen, SEEN));
        int written = 0;
        for (int at = 0; at < SEEN; at++) written += contents[at] != 0;
        if (write(ends[1], &written, sizeof written) != sizeof written) break;
    }
    _exit(0);
}

int written_bytes(void) {
    int written = -1;
    if (write(exporter, "", 1) != 1 || read(exporter, &written, sizeof written) != sizeof written)
        _exit(5);
    return written;
}

int take_descriptor(void) {
    char byte, room[CMSG_SPACE(sizeof(int))];
    struct iovec part = {&byte, 1};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = room,
                             .msg_controllen = sizeof room};
    if (recvmsg(exporter, &message, MSG_CMSG_CLOEXEC) != 1 || !CMSG_FIRSTHDR(&message)) _exit(5);
    int descriptor;
    memcpy(&descriptor, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof descriptor);
    return descriptor;
}

CUmemGenericAllocationHandle own_handle(int gpu, size_t bytes, bool exportable) {
    CUmemAllocationProp wanted = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                  .location = {CU_MEM_LOCATION_TYPE_DEVICE, gpu}};
    if (exportable) wanted.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    CUmemGenericAllocationHandle handle;
    MUST(cuMemCreate(&handle, bytes, &wanted, 0));
    return handle;
}

int exported(CUmemGenericAllocationHandle handle) {
    int descriptor = -1;
    MUST(cuMemExportToShareableHandle(&descriptor, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                                      0));
    return descriptor;
}

CUmemGenericAllocationHandle imported(int descriptor) {
    CUmemGenericAllocationHandle handle;
    MUST(cuMemImportFromShareableHandle(&handle, (void *)(intptr_t)descriptor,
                                        CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
    close(descriptor);
    return handle;
}

CUdeviceptr reserved(size_t bytes) {
    CUdeviceptr found;
    MUST(cuMemAddressReserve(&found, bytes, 0, 0, 0));
    return found;
}

CUmemAccessDesc access_of(int gpu) {
    return (CUmemAccessDesc){{CU_MEM_LOCATION_TYPE_DEVICE, gpu}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
}

CUdeviceptr mapped(CUmemGenericAllocationHandle handle, size_t bytes, int gpu) {
    CUdeviceptr at = reserved(bytes);
    CUmemAccessDesc access = access_of(gpu);
    MUST(cuMemMap(at, bytes, 0, handle, 0));
    MUST(cuMemSetAccess(at, bytes, &access, 1));
    return at;
}
