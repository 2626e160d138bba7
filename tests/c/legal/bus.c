/* Another device on the bus reaches a program's memory, through a descriptor (DMA-BUF). The simulated
 * driver plays that device.
 */
#include <dlfcn.h>

#include "legal.h"

enum { DMA_BUF = 1 };

CUresult cuMemGetHandleForAddressRange(void *handle, CUdeviceptr address, size_t bytes, int kind,
                                       unsigned long long flags);

/* It reads and writes an allocation: it reaches this memory in any state of the
 * program.
 */
static void device(void) {
    enum { SIZE = 4 << 20 };
    void *driver = dlopen(getenv("LEGAL_DRIVER"), RTLD_NOW | RTLD_LOCAL);
    REQUIRE(driver, "no driver: %s", dlerror());
    CUresult (*reads)(int, size_t, void *, size_t) =
        (CUresult(*)(int, size_t, void *, size_t))dlsym(driver, "simcudaReadBuffer");
    CUresult (*writes)(int, size_t, const void *, size_t) =
        (CUresult(*)(int, size_t, const void *, size_t))dlsym(driver, "simcudaWriteBuffer");
    REQUIRE(reads && writes, "this driver plays no other device");
    struct piece piece = piece_new(&tools, SIZE, 1, NULL);
    unsigned char *got = host_alloc(SIZE), *want = host_alloc(SIZE);
    int buffer = -1;
    CHECK(cuCtxSynchronize());
    CUresult answer = cuMemGetHandleForAddressRange(&buffer, piece.at, SIZE, DMA_BUF, 0);
    printf("the descriptor: %d\n", (int)answer);
    if (answer == CUDA_ERROR_NOT_SUPPORTED) return;
    CHECK(answer);
    for (unsigned round = 0; round < 2; round++) {
        wait_for_line();
        piece_write(&tools, &piece, 2 + round, NULL);
        CHECK(cuMemcpyDtoH(want, piece.at, SIZE));
        CHECK(reads(buffer, 0, got, SIZE));
        require_same("what another device reads", got, want, SIZE, 1);
        memset(want, 17 + (int)round, SIZE);
        CHECK(writes(buffer, 0, want, SIZE));
        CHECK(cuMemcpyDtoH(got, piece.at, SIZE));
        require_same("what another device has written", got, want, SIZE, 1);
    }
    close(buffer);
}

int main(int argc, char **argv) {
    static const struct legal_case cases[] = {{"device", device}};
    return play(argc, argv, take_gpu, cases, COUNT_OF(cases));
}
