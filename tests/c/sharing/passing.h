/* Descriptors of memory, which go to other processes by a socket in the file system. */
#ifndef PASSING_H
#define PASSING_H

#include <sys/socket.h>
#include <sys/un.h>

#include "work.h"

#define DESCRIPTOR CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR

/* Memory of the first GPU that can be exported. */
static const CUmemAllocationProp exportable = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                               .requestedHandleTypes = DESCRIPTOR,
                                               .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};

struct passing {
    /* It goes with the descriptor. */
    size_t bytes;
    int listener, descriptor;
};

static inline struct msghdr message_of(struct iovec *all, char *room, size_t room_bytes) {
    return (struct msghdr){.msg_iov = all, .msg_iovlen = 1, .msg_control = room, .msg_controllen = room_bytes};
}

static inline void *pass_to_all(void *data) {
    struct passing *passing = data;
    for (;;) {
        char room[CMSG_SPACE(sizeof(int))] = {0};
        struct iovec all = {&passing->bytes, sizeof passing->bytes};
        struct msghdr header = message_of(&all, room, sizeof room);
        struct cmsghdr *with = CMSG_FIRSTHDR(&header);
        with->cmsg_level = SOL_SOCKET;
        with->cmsg_type = SCM_RIGHTS;
        with->cmsg_len = CMSG_LEN(sizeof(int));
        memcpy(CMSG_DATA(with), &passing->descriptor, sizeof(int));
        int to = accept(passing->listener, NULL, NULL);
        if (to < 0) return NULL;
        sendmsg(to, &header, MSG_NOSIGNAL);
        close(to);
    }
}

static inline struct sockaddr_un address_at(const char *path) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    REQUIRE(strlen(path) < sizeof address.sun_path, "%s is too long", path);
    strcpy(address.sun_path, path);
    return address;
}

/* Gives each process that connects to this place the descriptor, by a thread of its own. */
static inline void pass_on(const char *path, int descriptor, size_t bytes) {
    struct passing *passing = malloc(sizeof *passing);
    struct sockaddr_un address = address_at(path);
    pthread_t thread;
    unlink(path);
    *passing = (struct passing){bytes, socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0), descriptor};
    REQUIRE(bind(passing->listener, (struct sockaddr *)&address, sizeof address) == 0 &&
                listen(passing->listener, 16) == 0 &&
                pthread_create(&thread, NULL, pass_to_all, passing) == 0,
            "%s cannot be served", path);
}

/* The descriptor that is given there, and the size of its memory. */
static inline int passed_on(const char *path, size_t *bytes) {
    char room[CMSG_SPACE(sizeof(int))] = {0};
    struct sockaddr_un address = address_at(path);
    struct iovec all = {bytes, sizeof *bytes};
    struct msghdr header = message_of(&all, room, sizeof room);
    int from = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0), descriptor;
    while (connect(from, (struct sockaddr *)&address, sizeof address) != 0) sleep_ms(1);
    REQUIRE(recvmsg(from, &header, MSG_CMSG_CLOEXEC) == sizeof *bytes, "nothing came");
    struct cmsghdr *with = CMSG_FIRSTHDR(&header);
    REQUIRE(with && with->cmsg_type == SCM_RIGHTS, "no descriptor came");
    memcpy(&descriptor, CMSG_DATA(with), sizeof(int));
    close(from);
    return descriptor;
}

#endif
