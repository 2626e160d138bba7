/* H: channels that are taken off the GPU, by lists in which some have gone.
 *
 * The driver makes its channels by ioctl on its control device, and so through the ioctl of this
 * program, which remembers them. The numbers and structures are those of NVIDIA's open kernel
 * modules (src/common/sdk/nvidia/inc; the names are in include/src/resource_manager.rs).
 */
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "channels.h"
#include "mapped.h"

enum {
    MAGIC = 'F',
    CONTROL = 0x2a,
    ALLOC = 0x2b,
    DEVICE = 0x80,
    SUBDEVICE = 0x2080,
    CHANNEL_GROUP = 0xa06c,
    FIRST_CHANNEL = 0xc36f,
    DISABLE_CHANNELS = 0x2080110b,
    MOST_OBJECTS = 512,
};

struct control {
    uint32_t client, object, command, flags;
    uint64_t parameters;
    uint32_t size, status;
};

struct disable {
    uint8_t disable;
    uint32_t count;
    uint8_t only_scheduling, rewind;
    uint64_t event;
    uint32_t clients[MOST_CHANNELS], channels[MOST_CHANNELS];
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
/* Of the others: devices, subdevices and channel groups. */
static struct object channels[MOST_OBJECTS], others[MOST_OBJECTS];
static int channel_count, other_count, device_file = -1;

int ioctl(int file, unsigned long request, ...) {
    va_list list;
    va_start(list, request);
    void *argument = va_arg(list, void *);
    va_end(list);
    int result = (int)syscall(SYS_ioctl, file, request, argument);
    unsigned size = (request >> 16) & 0x3fff;
    if (result || ((request >> 8) & 0xff) != MAGIC) return result;
    pthread_mutex_lock(&lock);
    if ((request & 0xff) == ALLOC && (size == 32 || size == 48)) {
        struct object *made = argument;
        uint32_t status = ((uint32_t *)argument)[size == 32 ? 7 : 10];
        bool is_other =
            made->class == DEVICE || made->class == SUBDEVICE || made->class == CHANNEL_GROUP;
        if (!status && is_other && other_count < MOST_OBJECTS) {
            others[other_count++] = *made;
            device_file = file;
        }
        bool is_channel = made->class >= FIRST_CHANNEL && (made->class & 0xff) == 0x6f;
        if (!status && is_channel && channel_count < MOST_OBJECTS) channels[channel_count++] = *made;
    }
    pthread_mutex_unlock(&lock);
    return result;
}

static const struct object *other(uint32_t client, uint32_t handle) {
    for (int at = other_count - 1; at >= 0; at--)
        if (others[at].client == client && others[at].handle == handle) return &others[at];
    return NULL;
}

/* The subdevice of the GPU that a channel is on; any if the program cannot tell. */
static struct object subdevice_of(const struct object *channel) {
    const struct object *device = other(channel->client, channel->parent);
    if (device && device->class == CHANNEL_GROUP) device = other(device->client, device->parent);
    struct object any = {0};
    for (int at = 0; at < other_count; at++) {
        const struct object *one = &others[at];
        if (one->class != SUBDEVICE) continue;
        if (device && one->client == device->client && one->parent == device->handle) return *one;
        if (!any.class) any = *one;
    }
    return any;
}

int channels_made(const struct object **first) {
    *first = channels;
    return channel_count;
}

uint32_t change(bool disable, const struct object *first, int count) {
    if (!count) return 0;
    struct disable parameters = {.disable = disable, .count = (uint32_t)count};
    for (int at = 0; at < count; at++) {
        parameters.clients[at] = first[at].client;
        parameters.channels[at] = first[at].handle;
    }
    struct object subdevice = subdevice_of(first);
    struct control call = {.client = subdevice.client, .object = subdevice.handle,
                           .command = DISABLE_CHANNELS, .parameters = (uintptr_t)&parameters,
                           .size = sizeof parameters};
    unsigned long request = 3ul << 30 | sizeof call << 16 | MAGIC << 8 | CONTROL;
    return syscall(SYS_ioctl, device_file, request, &call) ? UINT32_MAX : call.status;
}

/* Channels of a context, and before or behind them one of a context that has gone. */
static struct object all[MOST_CHANNELS];
static int count;
static const struct object *living;
static int rest;

/* False if the driver makes none, which is the answer then. */
static bool begin_channels(bool gone_first) {
    begin(0);
    int before = channel_count;
    CUcontext other;
    MUST(cuCtxCreate(&other, 0, 0));
    struct object gone = channels[before];
    bool is_any = before > 0 && channel_count > before;
    MUST(cuCtxDestroy(other));
    MUST(cuCtxSetCurrent(world.context));
    count = 0;
    if (gone_first) all[count++] = gone;
    for (int at = 0; at < before && count < MOST_CHANNELS - 1; at++) all[count++] = channels[at];
    if (!gone_first) all[count++] = gone;
    living = all + gone_first;
    rest = count - 1;
    if (!is_any) {
        about("channels, the %s of which has gone", gone_first ? "first" : "last");
        answer("this driver makes no channels that can be seen");
    }
    return is_any;
}

static const char *runs(int mark) {
    mark_in(NULL, mark);
    return marked(mark, 200) ? "runs" : "DOES NOT RUN";
}

static void list_with_one_gone(const int *variant) {
    bool first = variant[0];
    if (!begin_channels(first)) return;
    about("a list of channels, the %s of which has gone: disabled; a kernel of the others",
          first ? "first" : "last");
    uint32_t status = change(true, all, count);
    answer("status %#x; %s", status, runs(0));
    about("… the others enabled once; a kernel of theirs");
    status = change(false, living, rest);
    answer("status %#x; %s", status, runs(1));
    about("… the others disabled, then the whole list enabled; a kernel of theirs");
    status = change(true, living, rest);
    uint32_t enabled = change(false, all, count);
    answer("status %#x and %#x; %s", status, enabled, runs(2));
    change(false, living, rest);
}

static void counting(const int *variant) {
    (void)variant;
    if (!begin_channels(true)) return;
    about("channels disabled twice, enabled once; a kernel");
    change(true, living, rest);
    change(true, living, rest);
    uint32_t status = change(false, living, rest);
    answer("status %#x; %s", status, runs(0));
    about("… enabled a second time; a kernel");
    status = change(false, living, rest);
    answer("status %#x; %s", status, runs(1));
    about("… enabled a third time, disabled once; a kernel");
    status = change(false, living, rest);
    change(true, living, rest);
    answer("status %#x; %s", status, runs(2));
    change(false, living, rest);
}

/* --- what a paused program's own calls write ------------------------------------------------- */

enum { PAGEABLE, PINNED, PAGEABLE_ASYNC, PINNED_ASYNC, FILL, FILL_ASYNC, WITHIN, KINDS };
static const char *const kinds[KINDS] = {
    "cuMemcpyHtoD, pageable", "cuMemcpyHtoD, pinned", "cuMemcpyHtoDAsync, pageable",
    "cuMemcpyHtoDAsync, pinned", "cuMemsetD8", "cuMemsetD32Async", "cuMemcpyDtoD"};
static const int sizes[] = {1, 4, 64, 256, 4096, SEEN};

static struct {
    int kind;
    size_t bytes;
    CUdeviceptr to;
    CUstream stream;
    void *pinned;
    CUdeviceptr device;
    volatile bool is_back, is_over;
} writer;

static void write_frame(void *unused) {
    (void)unused;
    static char pageable[SEEN];
    memset(pageable, 1, sizeof pageable);
    MUST(cuCtxSetCurrent(world.context));
    const void *from = writer.kind == PINNED || writer.kind == PINNED_ASYNC ? writer.pinned : pageable;
    switch (writer.kind) {
    case PAGEABLE:
    case PINNED: MUST(cuMemcpyHtoD(writer.to, from, writer.bytes)); break;
    case PAGEABLE_ASYNC:
    case PINNED_ASYNC: MUST(cuMemcpyHtoDAsync(writer.to, from, writer.bytes, writer.stream)); break;
    case FILL: MUST(cuMemsetD8(writer.to, 1, writer.bytes)); break;
    case FILL_ASYNC: MUST(cuMemsetD32Async(writer.to, 0x01010101, (writer.bytes + 3) / 4, writer.stream)); break;
    case WITHIN: MUST(cuMemcpyDtoD(writer.to, writer.device, writer.bytes)); break;
    }
    writer.is_back = true;
    MUST(cuCtxSynchronize());
    writer.is_over = true;
}

/* All channels are disabled; then a thread writes memory that another process sees too. */
static void written_while_off(const int *variant) {
    writer.kind = variant[0];
    writer.bytes = (size_t)sizes[variant[1]];
    start_exporter(0, 1, 2 * MIB);
    int descriptor = take_descriptor();
    begin(0);
    writer.to = mapped(imported(descriptor), 2 * MIB, 0);
    writer.stream = non_blocking();
    writer.device = memory(SEEN);
    MUST(cuMemHostAlloc(&writer.pinned, SEEN, 0));
    memset(writer.pinned, 1, SEEN);
    MUST(cuMemsetD8(writer.device, 1, SEEN));
    MUST(cuMemsetD8(writer.to, 0, SEEN));
    MUST(cuCtxSynchronize());
    about("%s of %zu B while all channels are disabled; what another process sees", kinds[writer.kind],
          writer.bytes);
    if (channel_count == 0 || channel_count > MOST_CHANNELS || written_bytes() != 0)
        return answer("%d channels: cannot be tried", channel_count);
    uint32_t status = change(true, channels, channel_count);
    start_thread(write_frame, NULL);
    sleep_ms(300);
    int written = written_bytes();
    bool is_back = writer.is_back;
    change(false, channels, channel_count);
    while (!writer.is_over) sleep_ms(1);
    answer("status %#x; the call %s; %d bytes changed, %d once enabled", status,
           is_back ? "returned" : "waits", written, written_bytes());
}

void add_channels(void) {
    for (int first = 0; first < 2; first++) add("H1", ONE_GPU, list_with_one_gone, first, 0, 0, 0);
    add("H2", ONE_GPU, counting, 0, 0, 0, 0);
    for (int kind = 0; kind < KINDS; kind++)
        for (int size = 0; size < (int)(sizeof sizes / sizeof *sizes); size++)
            add("H3", ONE_GPU, written_while_off, kind, size, 0, 0);
}
