/* Every family of fills, and copies of rectangles and boxes, each compared with a model of the
 * device's memory on the CPU. After every call the whole buffer is read back, so that a byte
 * written outside is found as well as one that is missing.
 */
#include "common.h"

/* Rows of a rectangle, and rows of a box: the box is DEPTH rectangles of HEIGHT rows. */
enum { PITCH = 512, HEIGHT = 24, DEPTH = 4, SIZE = PITCH * HEIGHT * DEPTH };

static unsigned steps = 1, seed = 1;
static CUdeviceptr device, scratch;
static unsigned char model[SIZE], host[SIZE], read_back[SIZE];
static uint64_t sum = CHECKSUM_START;

/* The device must now hold what the model holds. */
static void compare(const char *what) {
    CHECK(cuMemcpyDtoH(read_back, device, SIZE));
    require_same(what, read_back, model, SIZE, 1);
    sum = checksum(sum, read_back, SIZE);
}

static void fill_model(size_t offset, const void *value, size_t size, size_t pitch, size_t width,
                       size_t height) {
    for (size_t row = 0; row < height; row++) {
        for (size_t i = 0; i < width; i++) {
            memcpy(model + offset + row * pitch + i * size, value, size);
        }
    }
}

/* --- fills --------------------------------------------------------------------------------- */

static void fills(uint32_t random, CUstream stream) {
    uint8_t d8 = (uint8_t)random;
    uint16_t d16 = (uint16_t)(random >> 3);
    uint32_t d32 = random * 3;
    size_t offset = random % 1000 * 4, count = 1 + random % 3000;
    CUdeviceptr at = device + offset;

    /* Bytes may begin anywhere, wider elements at a multiple of their size. */
    CHECK(cuMemsetD8(at + 3, d8, count));
    fill_model(offset + 3, &d8, 1, 0, count, 1);
    compare("cuMemsetD8");
    CHECK(cuMemsetD16(at + 2, d16, count));
    fill_model(offset + 2, &d16, 2, 0, count, 1);
    compare("cuMemsetD16");
    CHECK(cuMemsetD32(at, d32, count));
    fill_model(offset, &d32, 4, 0, count, 1);
    compare("cuMemsetD32");

    d8 ^= 0xff, d16 ^= 0xffff, d32 ^= 0xffffffff;
    CHECK(cuMemsetD8Async(at + 1, d8, count, stream));
    CHECK(cuStreamSynchronize(stream));
    fill_model(offset + 1, &d8, 1, 0, count, 1);
    compare("cuMemsetD8Async");
    CHECK(cuMemsetD16Async(at, d16, count, stream));
    CHECK(cuStreamSynchronize(stream));
    fill_model(offset, &d16, 2, 0, count, 1);
    compare("cuMemsetD16Async");
    CHECK(cuMemsetD32Async(at + 4, d32, count, stream));
    CHECK(cuStreamSynchronize(stream));
    fill_model(offset + 4, &d32, 4, 0, count, 1);
    compare("cuMemsetD32Async");
}

static void fills_2d(uint32_t random, CUstream stream) {
    uint8_t d8 = (uint8_t)(random >> 5);
    uint16_t d16 = (uint16_t)(random >> 7);
    uint32_t d32 = random * 5;
    size_t width = 1 + random % 60, height = 1 + random % (HEIGHT - 2);
    size_t offset = PITCH + random % 64 * 4;
    CUdeviceptr at = device + offset;

    CHECK(cuMemsetD2D8(at, PITCH, d8, width, height));
    fill_model(offset, &d8, 1, PITCH, width, height);
    compare("cuMemsetD2D8");
    CHECK(cuMemsetD2D16(at, PITCH, d16, width, height));
    fill_model(offset, &d16, 2, PITCH, width, height);
    compare("cuMemsetD2D16");
    CHECK(cuMemsetD2D32(at, PITCH, d32, width, height));
    fill_model(offset, &d32, 4, PITCH, width, height);
    compare("cuMemsetD2D32");

    d8 ^= 0xff, d16 ^= 0xffff, d32 ^= 0xffffffff;
    CHECK(cuMemsetD2D8Async(at, 2 * PITCH, d8, width, height / 2, stream));
    CHECK(cuStreamSynchronize(stream));
    fill_model(offset, &d8, 1, 2 * PITCH, width, height / 2);
    compare("cuMemsetD2D8Async");
    CHECK(cuMemsetD2D16Async(at, PITCH, d16, width, height, stream));
    CHECK(cuStreamSynchronize(stream));
    fill_model(offset, &d16, 2, PITCH, width, height);
    compare("cuMemsetD2D16Async");
    CHECK(cuMemsetD2D32Async(at, PITCH, d32, width, height, stream));
    CHECK(cuStreamSynchronize(stream));
    fill_model(offset, &d32, 4, PITCH, width, height);
    compare("cuMemsetD2D32Async");
}

/* --- straight copies ----------------------------------------------------------------------- */

static void copies(uint32_t random) {
    size_t offset = random % 5000, bytes = 1 + random % 9000;
    for (size_t i = 0; i < SIZE; i++) host[i] = (unsigned char)hash32(random + (uint32_t)i);

    CHECK(cuMemcpyHtoD(device + offset, host, bytes));
    memcpy(model + offset, host, bytes);
    compare("cuMemcpyHtoD");
    CHECK(cuMemcpy(device + offset + 1, (CUdeviceptr)(uintptr_t)(host + 7), bytes));
    memcpy(model + offset + 1, host + 7, bytes);
    compare("cuMemcpy from the host");
    CHECK(cuMemcpyHtoD(scratch, host, SIZE));
    CHECK(cuMemcpyDtoD(device + offset, scratch + 5, bytes));
    memcpy(model + offset, host + 5, bytes);
    compare("cuMemcpyDtoD");
    CHECK(cuMemcpyAsync(device + 2 * offset, scratch + 9, bytes, NULL));
    memcpy(model + 2 * offset, host + 9, bytes);
    compare("cuMemcpyAsync");
}

/* --- rectangles and boxes ------------------------------------------------------------------ */

/* Copies a rectangle at (x, y) of `from` to (to_x, to_y) of `to`; both have rows of PITCH bytes. */
static void rectangle_model(unsigned char *to, size_t to_x, size_t to_y, const unsigned char *from,
                            size_t x, size_t y, size_t width, size_t height) {
    for (size_t row = 0; row < height; row++) {
        memcpy(to + (to_y + row) * PITCH + to_x, from + (y + row) * PITCH + x, width);
    }
}

static void rectangles(uint32_t random, CUstream stream) {
    size_t x = random % 90, y = random % 5, to_x = random % 70, to_y = random % 9;
    size_t width = 1 + random % 300, height = 1 + random % (HEIGHT - 9);
    CUDA_MEMCPY2D copy = {.srcXInBytes = x, .srcY = y, .srcPitch = PITCH, .dstXInBytes = to_x,
                          .dstY = to_y, .dstPitch = PITCH, .WidthInBytes = width,
                          .Height = height};
    for (size_t i = 0; i < SIZE; i++) host[i] = (unsigned char)hash32(random + 1 + (uint32_t)i);
    CHECK(cuMemcpyHtoD(scratch, host, SIZE));

    copy.srcMemoryType = CU_MEMORYTYPE_HOST, copy.srcHost = host;
    copy.dstMemoryType = CU_MEMORYTYPE_DEVICE, copy.dstDevice = device;
    CHECK(cuMemcpy2D(&copy));
    rectangle_model(model, to_x, to_y, host, x, y, width, height);
    compare("cuMemcpy2D from the host");

    copy.srcMemoryType = CU_MEMORYTYPE_DEVICE, copy.srcDevice = scratch;
    copy.srcXInBytes = x + 3;
    CHECK(cuMemcpy2DUnaligned(&copy));
    rectangle_model(model, to_x, to_y, host, x + 3, y, width, height);
    compare("cuMemcpy2DUnaligned on the device");

    copy.srcMemoryType = CU_MEMORYTYPE_UNIFIED, copy.srcDevice = scratch + PITCH;
    copy.dstMemoryType = CU_MEMORYTYPE_UNIFIED;
    CHECK(cuMemcpy2DAsync(&copy, stream));
    CHECK(cuStreamSynchronize(stream));
    rectangle_model(model, to_x, to_y, host + PITCH, x + 3, y, width, height);
    compare("cuMemcpy2DAsync on unified addresses");

    static unsigned char out[SIZE], want[SIZE];
    memset(out, 0, SIZE), memset(want, 0, SIZE);
    copy.srcMemoryType = CU_MEMORYTYPE_DEVICE, copy.srcDevice = device;
    copy.dstMemoryType = CU_MEMORYTYPE_HOST, copy.dstHost = out;
    CHECK(cuMemcpy2D(&copy));
    rectangle_model(want, to_x, to_y, model, x + 3, y, width, height);
    require_same("cuMemcpy2D to the host", out, want, SIZE, 1);
}

static void boxes(uint32_t random, CUstream stream) {
    size_t x = random % 50, y = random % 3, z = random % 2, width = 1 + random % 200;
    size_t height = 1 + random % (HEIGHT - 6), depth = 1 + random % (DEPTH - 1);
    size_t to_z = random / 2 % (DEPTH - depth + 1);
    if (z + depth > DEPTH) z = 0;
    CUDA_MEMCPY3D copy = {.srcXInBytes = x, .srcY = y, .srcZ = z, .srcPitch = PITCH,
                          .srcHeight = HEIGHT, .dstXInBytes = x + 2, .dstY = y + 1, .dstZ = to_z,
                          .dstPitch = PITCH, .dstHeight = HEIGHT, .WidthInBytes = width,
                          .Height = height, .Depth = depth};
    for (size_t i = 0; i < SIZE; i++) host[i] = (unsigned char)hash32(random + 2 + (uint32_t)i);
    CHECK(cuMemcpyHtoD(scratch, host, SIZE));

    copy.srcMemoryType = CU_MEMORYTYPE_HOST, copy.srcHost = host;
    copy.dstMemoryType = CU_MEMORYTYPE_DEVICE, copy.dstDevice = device;
    CHECK(cuMemcpy3D(&copy));
    for (size_t plane = 0; plane < depth; plane++) {
        rectangle_model(model + (to_z + plane) * PITCH * HEIGHT, x + 2, y + 1,
                        host + (z + plane) * PITCH * HEIGHT, x, y, width, height);
    }
    compare("cuMemcpy3D from the host");

    copy.srcMemoryType = CU_MEMORYTYPE_DEVICE, copy.srcDevice = scratch;
    copy.srcXInBytes = x + 1;
    CHECK(cuMemcpy3DAsync(&copy, stream));
    CHECK(cuStreamSynchronize(stream));
    for (size_t plane = 0; plane < depth; plane++) {
        rectangle_model(model + (to_z + plane) * PITCH * HEIGHT, x + 2, y + 1,
                        host + (z + plane) * PITCH * HEIGHT, x + 1, y, width, height);
    }
    compare("cuMemcpy3DAsync on the device");
}

/* An allocation with the driver's own pitch: each row is filled and read at its place. */
static void pitched(uint32_t random) {
    size_t width = 40 + random % 100, pitch = 0;
    CUdeviceptr at;
    CHECK(cuMemAllocPitch(&at, &pitch, width, HEIGHT, 4));
    REQUIRE(pitch >= width, "a pitch of %zu for rows of %zu", pitch, width);
    CHECK(cuMemsetD2D8(at, pitch, 0x11, width, HEIGHT));
    CHECK(cuMemsetD8(at + pitch * (HEIGHT / 2), (unsigned char)random, width));
    unsigned char rows[HEIGHT][PITCH] = {{0}}, want[HEIGHT][PITCH] = {{0}};
    CUDA_MEMCPY2D copy = {.srcMemoryType = CU_MEMORYTYPE_DEVICE, .srcDevice = at,
                          .srcPitch = pitch, .dstMemoryType = CU_MEMORYTYPE_HOST,
                          .dstHost = rows, .dstPitch = PITCH, .WidthInBytes = width,
                          .Height = HEIGHT};
    CHECK(cuMemcpy2D(&copy));
    for (int row = 0; row < HEIGHT; row++) {
        memset(want[row], row == HEIGHT / 2 ? (int)(random & 0xff) : 0x11, width);
    }
    require_same("a pitched allocation", rows, want, sizeof rows, 1);
    sum = checksum(sum, rows, sizeof rows);
    CHECK(cuMemFree(at));
}

int main(int argc, char **argv) {
    read_options(argc, argv, (struct option_row[]){{"--steps", &steps}, {"--seed", &seed}}, 2);
    printf("fills and copies in one, two and three dimensions, on %d bytes, %u times over\n",
           (int)SIZE, steps);
    start();
    CUstream stream;
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    device = device_alloc(SIZE);
    scratch = device_alloc(SIZE);
    CHECK(cuMemsetD8(device, 0, SIZE));
    /* A fill on the default stream may return before it is done, and `stream` does not wait. */
    CHECK(cuCtxSynchronize());
    for (unsigned step = 0; step < 2 * steps; step++) {
        uint32_t random = hash32(seed * 101 + step) >> 4;
        fills(random, stream);
        fills_2d(random, stream);
        copies(random);
        rectangles(random, stream);
        boxes(random, stream);
        pitched(random);
    }
    CHECK(cuMemFree(device));
    CHECK(cuMemFree(scratch));
    CHECK(cuStreamDestroy(stream));
    return finish("fills", sum);
}
