/* Memory that no kernel parameter names: rows that are reached through a table in device memory,
 * the address of which lies in a struct that is passed by value or in pinned memory; and a chain
 * from allocation to allocation that is laid out anew each round. The CPU keeps a copy of all of it.
 *
 *     hidden --megabytes 40 --rounds 6 --gap-ms 0 --seed 1
 */
#include "work.h"

enum { ROWS = 16 };

static unsigned megabytes = 40, rounds = 6, gap_ms = 0, seed = 1;

struct node {
    CUdeviceptr next;
    uint64_t value;
};

struct add_arguments {
    CUdeviceptr out, a, b;
    unsigned n;
};

static CUfunction gather, scatter, add_struct, chase, scale;
static unsigned row_len; /* floats that a row holds after its nodes */
static size_t row_bytes; /* with its nodes */
static CUdeviceptr row_at[ROWS], matrix, table;
static float *shadow[ROWS], *got;

/* Each row begins with four nodes. */
enum { NODES = 4, NODE_BYTES = NODES * sizeof(struct node) };

static CUdeviceptr floats_of(unsigned row) { return row_at[row] + NODE_BYTES; }

static void new_row(unsigned row, unsigned round) {
    if (row_at[row]) CHECK(cuMemFree(row_at[row]));
    row_at[row] = device_alloc(row_bytes);
    for (unsigned j = 0; j < row_len; j++) shadow[row][j] = random_float(seed + round * 977 + row, j);
    CHECK(cuMemcpyHtoD(floats_of(row), shadow[row], row_len * sizeof(float)));
}

/* Gathers the rows in an order, halves them, and scatters them back in another. */
static void permute(struct dice *dice, CUdeviceptr *pinned, CUdeviceptr pinned_device) {
    unsigned order[ROWS], rows = ROWS / 2;
    float half = 0.5f;
    for (unsigned r = 0; r < ROWS; r++) order[r] = r;
    for (unsigned r = ROWS - 1; r > 0; r--) {
        unsigned other = roll(dice, r + 1), kept = order[r];
        order[r] = order[other];
        order[other] = kept;
    }
    /* The first half is read, by way of the table in device memory; the second half is written, by
     * way of the one in pinned memory. */
    for (unsigned r = 0; r < rows; r++) pinned[r] = floats_of(order[r]);
    CHECK(cuMemcpyHtoDAsync(table, pinned, rows * sizeof *pinned, NULL));
    LAUNCH(gather, NULL, (size_t)rows * row_len, &matrix, &table, &rows, &row_len);
    unsigned n = rows * row_len;
    LAUNCH(scale, NULL, n, &matrix, &matrix, &half, &n);
    CHECK(cuCtxSynchronize());
    for (unsigned r = 0; r < rows; r++) pinned[r] = floats_of(order[rows + r]);
    LAUNCH(scatter, NULL, (size_t)rows * row_len, &pinned_device, &matrix, &rows, &row_len);
    CHECK(cuCtxSynchronize());
    for (unsigned r = 0; r < rows; r++) {
        for (unsigned j = 0; j < row_len; j++) {
            shadow[order[rows + r]][j] = half * shadow[order[r]][j];
        }
    }
}

/* One row becomes the sum of two; the addresses are in the middle of a struct. */
static void add_rows(unsigned out, unsigned a, unsigned b) {
    struct add_arguments arguments = {floats_of(out), floats_of(a), floats_of(b), row_len};
    LAUNCH(add_struct, NULL, row_len, &arguments);
    for (unsigned j = 0; j < row_len; j++) shadow[out][j] = shadow[a][j] + shadow[b][j];
}

/* A chain through all nodes of all rows in a new order; its sum as the device finds it. */
static uint64_t walk(struct dice *dice, unsigned round, CUdeviceptr out) {
    unsigned order[ROWS * NODES], hops = ROWS * NODES + 5;
    struct node nodes[ROWS][NODES];
    uint64_t want = 0, found = 0;
    for (unsigned i = 0; i < ROWS * NODES; i++) order[i] = i;
    for (unsigned i = ROWS * NODES - 1; i > 0; i--) {
        unsigned other = roll(dice, i + 1), kept = order[i];
        order[i] = order[other];
        order[other] = kept;
    }
    for (unsigned i = 0; i < ROWS * NODES; i++) {
        struct node *node = &nodes[order[i] / NODES][order[i] % NODES];
        unsigned next = i + 1 < ROWS * NODES ? order[i + 1] : 0;
        node->next = i + 1 < ROWS * NODES ? row_at[next / NODES] + next % NODES * sizeof *node : 0;
        node->value = (uint64_t)hash32(seed + round * 131 + i) << 13;
        want += node->value;
    }
    for (unsigned r = 0; r < ROWS; r++) CHECK(cuMemcpyHtoD(row_at[r], nodes[r], NODE_BYTES));
    CUdeviceptr head = row_at[order[0] / NODES] + order[0] % NODES * sizeof(struct node);
    LAUNCH(chase, NULL, 1, &out, &head, &hops);
    CHECK(cuMemcpyDtoH(&found, out, sizeof found));
    REQUIRE(found == want, "round %u: the chain adds up to %#llx, not %#llx", round,
            (unsigned long long)found, (unsigned long long)want);
    return found;
}

static uint64_t compare(uint64_t sum) {
    char what[32];
    for (unsigned r = 0; r < ROWS; r++) {
        snprintf(what, sizeof what, "row %u", r);
        CHECK(cuMemcpyDtoH(got, floats_of(r), row_len * sizeof(float)));
        require_same(what, got, shadow[r], row_len, sizeof(float));
        sum = digest(sum, got, row_len * sizeof(float));
    }
    return sum;
}

int main(int argc, char **argv) {
    struct option_row options[] = {
        {"--megabytes", &megabytes}, {"--rounds", &rounds}, {"--gap-ms", &gap_ms}, {"--seed", &seed}};
    read_options(argc, argv, options, COUNT_OF(options));
    REQUIRE(megabytes >= 4, "--megabytes has to be at least 4");
    start();
    CUmodule module = load_kernels();
    gather = kernel(module, "gather"), scatter = kernel(module, "scatter_table");
    add_struct = kernel(module, "add_struct"), chase = kernel(module, "chase");
    scale = kernel(module, "scale");

    /* The rows, and a matrix of half of them; the rest are the odd ends. */
    row_bytes = (megabytes * MIB - 2 * MIB) / (ROWS + ROWS / 2) / 512 * 512;
    row_len = (unsigned)((row_bytes - NODE_BYTES) / sizeof(float));
    CUdeviceptr *pinned, pinned_device, out = device_alloc(sizeof(uint64_t));
    CHECK(cuMemHostAlloc((void **)&pinned, ROWS * sizeof *pinned, CU_MEMHOSTALLOC_DEVICEMAP));
    CHECK(cuMemHostGetDevicePointer(&pinned_device, pinned, 0));
    table = device_alloc(ROWS * sizeof *pinned);
    matrix = device_alloc((size_t)ROWS / 2 * row_len * sizeof(float));
    got = host_alloc(row_len * sizeof(float));
    for (unsigned r = 0; r < ROWS; r++) {
        shadow[r] = host_alloc(row_len * sizeof(float));
        new_row(r, 0);
    }

    struct dice dice = {seed};
    uint64_t sum = CHECKSUM_START;
    for (unsigned round = 1; round <= rounds; round++) {
        new_row(roll(&dice, ROWS), round);
        permute(&dice, pinned, pinned_device);
        unsigned row = roll(&dice, ROWS);
        add_rows(row, (row + 1) % ROWS, (row + 5) % ROWS);
        uint64_t chain = walk(&dice, round, out);
        sum = checksum(sum, &chain, sizeof chain);
        if (round % 3 == 0) sum = compare(sum);
        if (gap_ms) {
            CHECK(cuCtxSynchronize());
            sleep_ms(gap_ms);
        }
    }
    return finish("hidden", compare(sum));
}
