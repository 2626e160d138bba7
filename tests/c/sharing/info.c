/* The driver's answers about a program's memory agree with each other and with its allocations: sizes of
 * the GPU, addresses and their ranges, attributes of pointers, pitches. It fills the GPU until there
 * is no more, uses all of it, gives it back and has it again.
 *
 *     info --most 4096 --seed 1 --only-free 0
 *
 * `--most`: fill no more than that many MiB. `--only-free 1`: print the free memory, and end. The checksum covers all that does not depend
 * on the GPU's size.
 */
#include "work.h"

static unsigned most = 4096, seed = 1, only_free = 0;
static uint64_t sum = CHECKSUM_START;

/* The header names only some of the attributes. */
enum { IS_MANAGED = 8, BUFFER_ID = 7 };

static size_t free_bytes(void) {
    size_t available = 0, total = 0, of_device = 0;
    CHECK(cuMemGetInfo(&available, &total));
    CHECK(cuDeviceTotalMem(&of_device, 0));
    REQUIRE(total == of_device, "cuMemGetInfo tells of %zu bytes, cuDeviceTotalMem of %zu", total,
            of_device);
    REQUIRE(available <= total, "%zu bytes of %zu are free", available, total);
    return available;
}

static uint64_t attribute(CUdeviceptr at, int which) {
    uint64_t value = 0;
    CHECK(cuPointerGetAttribute(&value, (CUpointer_attribute)which, at));
    return value;
}

/* Notes an answer that every driver should give. */
static void note(const char *what, CUresult got, CUresult want) {
    REQUIRE(got == want, "%s answered %d, not %d", what, (int)got, (int)want);
    sum = checksum(sum, what, strlen(what));
}

static void check_range(CUdeviceptr at, size_t bytes) {
    size_t offsets[] = {0, bytes / 2, bytes - 1};
    uint64_t id = attribute(at, BUFFER_ID);
    for (unsigned i = 0; i < COUNT_OF(offsets); i++) {
        CUdeviceptr inside = at + offsets[i], base = 0;
        size_t size = 0;
        CHECK(cuMemGetAddressRange(&base, &size, inside));
        REQUIRE(base == at && size == bytes, "a range of %zu bytes at %#llx, not %zu at %#llx", size,
                (unsigned long long)base, bytes, (unsigned long long)at);
        CHECK(cuMemGetAddressRange(&base, NULL, inside));
        CHECK(cuMemGetAddressRange(NULL, &size, inside));
        REQUIRE(attribute(inside, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR) == at, "another start");
        REQUIRE(attribute(inside, CU_POINTER_ATTRIBUTE_RANGE_SIZE) == bytes, "another size");
        REQUIRE(attribute(inside, CU_POINTER_ATTRIBUTE_DEVICE_POINTER) == inside, "another pointer");
        REQUIRE(attribute(inside, CU_POINTER_ATTRIBUTE_MEMORY_TYPE) == CU_MEMORYTYPE_DEVICE,
                "not device memory");
        REQUIRE(attribute(inside, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL) == 0, "another device");
        REQUIRE(attribute(inside, IS_MANAGED) == 0, "managed memory");
        REQUIRE(attribute(inside, BUFFER_ID) == id, "another allocation's number");
    }
}

static void ranges_and_attributes(void) {
    static const size_t sizes[] = {1,       255,         256,     257,         4096,        70001,
                                   1 << 20, (2 << 20) - 1, 2 << 20, (2 << 20) + 1, 5000000, 9 << 20};
    CUdeviceptr at[COUNT_OF(sizes)];
    CUcontext current, of_pointer;
    uint64_t ids[COUNT_OF(sizes)];
    CHECK(cuCtxGetCurrent(&current));
    for (unsigned i = 0; i < COUNT_OF(sizes); i++) {
        at[i] = device_alloc(sizes[i]);
        REQUIRE(at[i] % 256 == 0, "an address of %#llx", (unsigned long long)at[i]);
        for (unsigned j = 0; j < i; j++) {
            REQUIRE(at[i] >= at[j] + sizes[j] || at[j] >= at[i] + sizes[i], "two share memory");
        }
    }
    for (unsigned i = 0; i < COUNT_OF(sizes); i++) {
        check_range(at[i], sizes[i]);
        ids[i] = attribute(at[i], BUFFER_ID);
        for (unsigned j = 0; j < i; j++) REQUIRE(ids[i] != ids[j], "two allocations, one number");
        CHECK(cuPointerGetAttribute(&of_pointer, CU_POINTER_ATTRIBUTE_CONTEXT, at[i]));
        REQUIRE(of_pointer == current, "the pointer is another context's");
    }

    /* Several at once, as runtimes ask. */
    unsigned type = 0;
    uint64_t start_at = 0, size = 0;
    CUpointer_attribute which[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                                   CU_POINTER_ATTRIBUTE_RANGE_START_ADDR,
                                   CU_POINTER_ATTRIBUTE_RANGE_SIZE};
    void *values[] = {&type, &start_at, &size};
    CHECK(cuPointerGetAttributes(3, which, values, at[5] + 1000));
    REQUIRE(type == CU_MEMORYTYPE_DEVICE && start_at == at[5] && size == sizes[5],
            "the attributes that come together are others");

    /* Freed memory has no owner, and its neighbours are as they were. */
    CUdeviceptr base;
    size_t bytes;
    note("cuMemFree inside an allocation", cuMemFree(at[6] + 4096), CUDA_ERROR_INVALID_VALUE);
    CHECK(cuMemFree(at[6]));
    note("cuMemFree again", cuMemFree(at[6]), CUDA_ERROR_INVALID_VALUE);
    note("cuMemGetAddressRange of freed memory", cuMemGetAddressRange(&base, &bytes, at[6]),
         CUDA_ERROR_NOT_FOUND);
    note("an attribute of freed memory",
         cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, at[6]),
         CUDA_ERROR_INVALID_VALUE);
    char byte = 0;
    note("a copy from freed memory", cuMemcpyDtoH(&byte, at[6], 1), CUDA_ERROR_INVALID_VALUE);
    note("a fill over an allocation's end", cuMemsetD8(at[11], 0, sizes[11] + (16 << 20)),
         CUDA_ERROR_INVALID_VALUE);
    for (unsigned i = 0; i < COUNT_OF(sizes); i++) {
        if (i != 6) check_range(at[i], sizes[i]);
        if (i != 6) CHECK(cuMemFree(at[i]));
    }
    note("cuMemAlloc of nothing", cuMemAlloc(&base, 0), CUDA_ERROR_INVALID_VALUE);
    note("cuMemAlloc to nowhere", cuMemAlloc(NULL, 16), CUDA_ERROR_INVALID_VALUE);
    note("cuMemAlloc of a PiB", cuMemAlloc(&base, (size_t)1 << 50), CUDA_ERROR_OUT_OF_MEMORY);
}

static void pitches(void) {
    static const size_t widths[] = {1, 200, 511, 512, 513, 10000};
    CUdeviceptr at;
    size_t pitch, rows = 37;
    unsigned char *host = host_alloc(rows * 10000), *got = host_alloc(rows * 10000);
    for (unsigned i = 0; i < COUNT_OF(widths); i++) {
        size_t width = widths[i];
        CHECK(cuMemAllocPitch(&at, &pitch, width, rows, 4));
        REQUIRE(pitch >= width && pitch % 256 == 0, "a pitch of %zu for %zu bytes", pitch, width);
        check_range(at, pitch * rows);
        for (size_t j = 0; j < width * rows; j++) host[j] = (unsigned char)hash32(seed + (uint32_t)j);
        CUDA_MEMCPY2D copy = {.srcMemoryType = CU_MEMORYTYPE_HOST, .srcHost = host,
                              .srcPitch = width,                   .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                              .dstDevice = at,                     .dstPitch = pitch,
                              .WidthInBytes = width,               .Height = rows};
        CHECK(cuMemcpy2D(&copy));
        CUDA_MEMCPY2D back = {.dstMemoryType = CU_MEMORYTYPE_HOST, .dstHost = got,
                              .dstPitch = width,                   .srcMemoryType = CU_MEMORYTYPE_DEVICE,
                              .srcDevice = at,                     .srcPitch = pitch,
                              .WidthInBytes = width,               .Height = rows};
        CHECK(cuMemcpy2D(&back));
        require_same("rows", got, host, width * rows, 1);
        sum = digest(checksum(sum, &pitch, sizeof pitch), got, width * rows);
        CHECK(cuMemFree(at));
    }
    note("cuMemAllocPitch of 3-byte elements", cuMemAllocPitch(&at, &pitch, 100, 2, 3),
         CUDA_ERROR_INVALID_VALUE);
    free(host);
    free(got);
}

/* Fills the GPU with pieces, the last ones small; how many bytes went in. */
static size_t fill_up(struct tools *tools, struct piece *pieces, unsigned *count, unsigned room) {
    size_t limit = most * MIB, used = 0;
    static const size_t sizes[] = {8 << 20, 2 << 20};
    for (unsigned i = 0; i < COUNT_OF(sizes); i++) {
        while (*count < room && used + sizes[i] <= limit) {
            CUdeviceptr at = 0x1234;
            CUresult result = cuMemAlloc(&at, sizes[i]);
            if (result == CUDA_ERROR_OUT_OF_MEMORY) break;
            CHECK(result);
            pieces[*count] = (struct piece){.at = at, .bytes = sizes[i]};
            piece_write(tools, &pieces[*count], seed + *count, NULL);
            ++*count;
            used += sizes[i];
        }
    }
    return used;
}

static void full_and_empty(struct tools *tools) {
    enum { ROOM = 4096 };
    struct piece *pieces = host_alloc(ROOM * sizeof *pieces);
    size_t before = free_bytes(), used[2];
    for (unsigned turn = 0; turn < 2; turn++) {
        unsigned count = 0;
        used[turn] = fill_up(tools, pieces, &count, ROOM);
        size_t left = free_bytes(), want = before < most * MIB ? before : most * MIB;
        /* Code and stacks take their part of the GPU, but not much. */
        REQUIRE(used[turn] + 12 * MIB >= want && used[turn] <= before,
                "%zu bytes could be had of %zu", used[turn], before);
        REQUIRE(left + used[turn] <= before + 2 * MIB && left + used[turn] + 12 * MIB >= before,
                "%zu bytes were free, %zu are used, and %zu are left", before, used[turn], left);
        uint64_t contents = 0;
        for (unsigned i = 0; i < count; i++) {
            contents = piece_check(tools, &pieces[i], "a full GPU", contents);
        }
        /* Every second one goes, which makes room for others as small but maybe not larger. */
        for (unsigned i = 0; i < count; i += 2) {
            CHECK(cuMemFree(pieces[i].at));
            pieces[i].at = device_alloc(pieces[i].bytes);
            piece_write(tools, &pieces[i], seed + 5 + i, NULL);
        }
        for (unsigned i = 0; i < count; i++) {
            piece_check(tools, &pieces[i], "filled again", contents);
            CHECK(cuMemFree(pieces[i].at));
        }
        size_t after = free_bytes();
        REQUIRE(after + 4 * MIB >= before, "%zu bytes were free before, %zu after", before, after);
    }
    REQUIRE(used[0] == used[1], "first %zu bytes could be had, then %zu", used[0], used[1]);
    /* And all of it in one, as an allocator of large pieces wants it. */
    size_t large = (used[0] - used[0] / 8) / MIB * MIB;
    struct piece piece = piece_new(tools, large, seed, NULL);
    piece_check(tools, &piece, "one large piece", 0);
    CHECK(cuMemFree(piece.at));
    free(pieces);
}

static void free_bytes_follow(struct tools *tools) {
    size_t before = free_bytes();
    struct piece piece = piece_new(tools, 16 * MIB, seed, NULL);
    size_t during = free_bytes();
    REQUIRE(during + 16 * MIB <= before && during + 20 * MIB >= before,
            "16 MiB take %zu bytes", before - during);
    CHECK(cuMemFree(piece.at));
    size_t after = free_bytes();
    REQUIRE(after >= before, "%zu bytes were free before, %zu after", before, after);
}

int main(int argc, char **argv) {
    struct option_row options[] = {{"--most", &most}, {"--seed", &seed}, {"--only-free", &only_free}};
    read_options(argc, argv, options, COUNT_OF(options));
    start();
    if (only_free) {
        size_t available, total;
        CHECK(cuMemGetInfo(&available, &total));
        printf("free %zu of %zu bytes\n", available, total);
        return 0;
    }
    struct tools tools = tools_from(load_kernels());
    /* The first use of anything may load code, which takes memory once. */
    struct piece first = piece_new(&tools, 4096, seed, NULL);
    sum = piece_check(&tools, &first, "the first piece", sum);
    free_bytes_follow(&tools);
    ranges_and_attributes();
    pitches();
    full_and_empty(&tools);
    free_bytes_follow(&tools);
    sum = piece_check(&tools, &first, "the first piece at the end", sum);
    CHECK(cuMemFree(first.at));
    return finish("info", sum);
}
