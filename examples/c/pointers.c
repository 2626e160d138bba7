/* Reads and writes memory that no kernel parameter names: rows through a table of addresses in
 * device memory, and a chain of nodes from allocation to allocation. The table comes to the device
 * in four ways: from pageable memory, from pinned memory, from another place on the device, and it
 * is read by the kernel out of pinned memory itself.
 */
#include "common.h"

enum { MAX_ROWS = 64 };

struct node {
    CUdeviceptr next;
    uint64_t value;
};

static unsigned rows = 24, row_len = 1000, steps = 3, seed = 1;

static float row_element(unsigned step, unsigned row, unsigned j) {
    return random_float(seed + step * 1000 + row, j);
}

/* Gathers rows that a table points to, then writes them back in reverse through the table. */
static uint64_t follow_table(CUmodule module, uint64_t sum) {
    CUfunction gather = kernel(module, "gather"), scatter = kernel(module, "scatter_table");
    size_t row_bytes = row_len * sizeof(float), bytes = rows * row_bytes;
    size_t table_bytes = rows * sizeof(CUdeviceptr);
    float *host = host_alloc(bytes), *got = host_alloc(bytes), *row = host_alloc(row_bytes);
    CUdeviceptr at[MAX_ROWS], *pinned;
    CHECK(cuMemHostAlloc((void **)&pinned, table_bytes, CU_MEMHOSTALLOC_DEVICEMAP));
    CUdeviceptr table = device_alloc(table_bytes), staged = device_alloc(table_bytes);
    CUdeviceptr matrix = device_alloc(bytes), pinned_table;
    CHECK(cuMemHostGetDevicePointer(&pinned_table, pinned, 0));

    for (unsigned r = 0; r < rows; r++) at[r] = device_alloc(row_bytes);
    for (unsigned step = 0; step < steps; step++) {
        /* New allocations, and other addresses, for a third of the rows. */
        for (unsigned r = step % 3; r < rows; r += 3) {
            CHECK(cuMemFree(at[r]));
            at[r] = device_alloc(row_bytes);
        }
        for (unsigned r = 0; r < rows; r++) {
            for (unsigned j = 0; j < row_len; j++) {
                host[r * row_len + j] = row_element(step, r, j);
            }
            CHECK(cuMemcpyHtoD(at[r], host + r * row_len, row_bytes));
        }
        for (int way = 0; way < 4; way++) {
            CHECK(cuMemsetD8(table, 0, table_bytes));
            memcpy(pinned, at, table_bytes);
            switch (way) {
            case 0: CHECK(cuMemcpyHtoD(table, at, table_bytes)); break;
            case 1: CHECK(cuMemcpyHtoDAsync(table, pinned, table_bytes, NULL)); break;
            case 2:
                CHECK(cuMemcpyHtoD(staged, at, table_bytes));
                CHECK(cuMemcpyDtoD(table, staged, table_bytes));
                break;
            case 3: break; /* the kernel reads the pinned table itself */
            }
            CUdeviceptr from = way == 3 ? pinned_table : table;
            CHECK(cuMemsetD8(matrix, 0xff, bytes));
            LAUNCH(gather, NULL, (size_t)rows * row_len, &matrix, &from, &rows, &row_len);
            CHECK(cuMemcpyDtoH(got, matrix, bytes));
            require_same("a gathered row", got, host, (size_t)rows * row_len, sizeof(float));
        }
        sum = checksum(sum, got, bytes);

        for (unsigned r = 0; r < rows; r++) pinned[r] = at[rows - 1 - r];
        CHECK(cuMemcpyHtoD(table, pinned, table_bytes));
        LAUNCH(scatter, NULL, (size_t)rows * row_len, &table, &matrix, &rows, &row_len);
        for (unsigned r = 0; r < rows; r++) {
            CHECK(cuMemcpyDtoH(row, at[rows - 1 - r], row_bytes));
            require_same("a scattered row", row, host + r * row_len, row_len, sizeof(float));
            sum = checksum(sum, row, row_bytes);
        }
    }
    for (unsigned r = 0; r < rows; r++) CHECK(cuMemFree(at[r]));
    CHECK(cuMemFree(table));
    CHECK(cuMemFree(staged));
    CHECK(cuMemFree(matrix));
    CHECK(cuMemFreeHost(pinned));
    free(host), free(got), free(row);
    return sum;
}

/* Follows a chain whose nodes are dealt out over one allocation per row. */
static uint64_t follow_chain(CUmodule module, uint64_t sum) {
    enum { PER_BLOCK = 32 };
    CUfunction chase = kernel(module, "chase");
    unsigned hops = rows * PER_BLOCK;
    CUdeviceptr blocks[MAX_ROWS], out = device_alloc(sizeof(uint64_t));
    struct node *nodes = host_alloc(hops * sizeof(struct node));
    for (unsigned r = 0; r < rows; r++) blocks[r] = device_alloc(PER_BLOCK * sizeof(struct node));

    /* Hop h stands in block h % rows, so that every hop leaves its allocation. */
    for (unsigned h = 0; h < hops; h++) {
        struct node *node = nodes + (h % rows) * PER_BLOCK + h / rows;
        unsigned next = h + 1;
        node->value = hash32(seed + h);
        node->next = next == hops
                         ? 0
                         : blocks[next % rows] + next / rows * sizeof(struct node);
    }
    for (unsigned r = 0; r < rows; r++) {
        CHECK(cuMemcpyHtoD(blocks[r], nodes + r * PER_BLOCK, PER_BLOCK * sizeof(struct node)));
    }
    unsigned limits[] = {hops / 2, hops, hops + 10};
    for (size_t i = 0; i < COUNT_OF(limits); i++) {
        uint64_t got = 0, partial = 0;
        for (unsigned h = 0; h < limits[i] && h < hops; h++) partial += hash32(seed + h);
        CHECK(cuMemsetD8(out, 0xff, sizeof got));
        LAUNCH(chase, NULL, 1, &out, &blocks[0], &limits[i]);
        CHECK(cuMemcpyDtoH(&got, out, sizeof got));
        require_same("the sum over the chain", &got, &partial, 1, sizeof got);
        sum = checksum(sum, &got, sizeof got);
    }
    for (unsigned r = 0; r < rows; r++) CHECK(cuMemFree(blocks[r]));
    CHECK(cuMemFree(out));
    free(nodes);
    return sum;
}

int main(int argc, char **argv) {
    read_options(argc, argv,
                 (struct option_row[]){{"--rows", &rows},
                                       {"--elements", &row_len},
                                       {"--steps", &steps},
                                       {"--seed", &seed}},
                 4);
    REQUIRE(rows > 0 && rows <= MAX_ROWS, "--rows must be 1 to %d", MAX_ROWS);
    REQUIRE(row_len > 0, "--elements must be at least 1");
    printf("following %u row addresses of %u floats each, %u times, then a chain\n", rows, row_len,
           steps);
    start();
    CUmodule module = load_kernels();
    uint64_t sum = follow_table(module, CHECKSUM_START);
    sum = follow_chain(module, sum);
    CHECK(cuModuleUnload(module));
    return finish("pointers", sum);
}
