/* Ways by which memory could become reachable past its address: the driver refuses them for what
 * cuMemAlloc gave.
 */
#include "legal.h"

/* A second mapping of each handle behind some allocations, were they to be had: what is written there
 * must be nobody else's memory.
 */
static void retain(void) {
    enum { SIZE = 2 << 20, MOST = 4 };
    CUmemGenericAllocationHandle handle = 0;
    CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_DEVICE, 0},
                              CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    struct piece large = piece_new(&tools, 4 * MIB, 1, NULL);
    struct piece small = piece_new(&tools, 1000, 2, NULL);
    CUdeviceptr inside[] = {large.at, large.at + 3 * MIB, small.at}, aliases;
    unsigned mapped = 0;
    CHECK(cuMemAddressReserve(&aliases, MOST * SIZE, 0, 0, 0));
    for (unsigned i = 0; i < COUNT_OF(inside); i++) {
        CUresult answer = cuMemRetainAllocationHandle(&handle, (void *)inside[i]);
        printf("retaining the handle of an allocation answers %d\n", (int)answer);
        if (answer) continue;
        if (!cuMemMap(aliases + mapped * SIZE, SIZE, 0, handle, 0)) mapped++;
    }
    wait_for_line();
    if (mapped) {
        CHECK(cuMemSetAccess(aliases, mapped * SIZE, &access, 1));
        CHECK(cuMemsetD8(aliases, 0x77, mapped * SIZE));
    }
    CHECK(cuCtxSynchronize());
    wait_for_line();
    if (!mapped) {
        piece_check(&tools, &large, "the large piece", 0);
        piece_check(&tools, &small, "the small piece", 0);
    }
}

int main(int argc, char **argv) {
    static const struct legal_case cases[] = {{"retain", retain}};
    return play(argc, argv, cases, COUNT_OF(cases));
}
