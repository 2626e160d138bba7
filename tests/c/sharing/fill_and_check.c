/* Many allocations of mixed sizes, from bytes to tens of MiB, with frees and new ones in between.
 * Round by round kernels, copies and fills go over them, their contents are added up on the device,
 * and now and then and at the end all of it is read back.
 *
 *     fill_and_check --megabytes 48 --small 4 --churn 1 --rounds 8 --check 4 --gap-ms 2 --seed 1
 *
 * `--megabytes` are for everything, of which `--small` for small allocations; with `--small 0` and
 * `--churn 0` the rest are whole multiples of 2 MiB that stay as they are, which a GPU of exactly
 * that size has room for. `--pieces`: how many of the large pieces a round is about; 0: all.
 * `--gap-ms`: rests after each round, with nothing queued.
 * `--long-ms`: a last kernel goes on for so long.
 */
#include "work.h"

enum { MAX_LARGE = 512, MAX_SMALL = 400 };

static unsigned megabytes = 48, small_megabytes = 4, churn = 1, rounds = 8, check_every = 4;
static unsigned pieces = 0, gap_ms = 0, long_ms = 0, seed = 1;

static struct tools tools;
static struct piece large[MAX_LARGE], small[MAX_SMALL];
static unsigned large_count, small_count;
static uint64_t large_sum[MAX_LARGE];
static CUdeviceptr sums;

/* Writes a large piece and remembers the sum of its words. */
static void write_large(unsigned which, uint32_t with) {
    piece_write(&tools, &large[which], with, NULL);
    large_sum[which] = sum_of(with, large[which].bytes / 4);
}

static void new_large(size_t bytes, uint32_t with) {
    REQUIRE(large_count < MAX_LARGE, "too many large pieces");
    large[large_count] = (struct piece){.bytes = bytes};
    CHECK(cuMemAlloc(&large[large_count].at, bytes));
    write_large(large_count++, with);
}

static void drop_large(unsigned which) {
    CHECK(cuMemFree(large[which].at));
    large[which] = large[--large_count];
    large_sum[which] = large_sum[large_count];
}

/* A size from 1 byte to 384 KiB; half of them are below 1 KiB. */
static size_t small_size(struct dice *dice) {
    static const unsigned most[] = {16, 300, 1000, 5000, 70000, 384 * 1024};
    return 1 + roll(dice, most[roll(dice, COUNT_OF(most))]);
}

static void allocate_all(struct dice *dice) {
    static const unsigned sizes[] = {32, 2, 16, 6, 8, 4, 2, 10};
    size_t left = megabytes - small_megabytes;
    for (unsigned i = 0; left > 0; i++) {
        size_t size = sizes[i % COUNT_OF(sizes)];
        if (size > left) size = left;
        new_large(size * MIB, seed * 7919 + i);
        left -= size;
    }
    /* Small ones take room that is not theirs, so half of it is left. */
    size_t room = small_megabytes * MIB / 2;
    while (small_count < MAX_SMALL) {
        size_t bytes = small_size(dice);
        if (bytes > room) break;
        room -= bytes;
        small[small_count++] = piece_new(&tools, bytes, roll(dice, 1u << 31), NULL);
    }
}

/* Frees some and allocates as much again: the same sizes, one split in two, two joined to one. */
static void exchange(struct dice *dice) {
    for (unsigned i = roll(dice, 3); i < small_count; i += 3) {
        CHECK(cuMemFree(small[i].at));
        small[i] = piece_new(&tools, small[i].bytes, roll(dice, 1u << 31), NULL);
    }
    unsigned which = roll(dice, large_count);
    size_t bytes = large[which].bytes;
    switch (roll(dice, 3)) {
    case 0:
        drop_large(which);
        new_large(bytes, roll(dice, 1u << 31));
        break;
    case 1:
        if (bytes < 4 * MIB) break;
        drop_large(which);
        new_large(bytes / 4 / MIB * 2 * MIB, roll(dice, 1u << 31));
        new_large(bytes - bytes / 4 / MIB * 2 * MIB, roll(dice, 1u << 31));
        break;
    case 2:
        if (large_count < 3) break;
        drop_large(which);
        which = roll(dice, large_count);
        bytes += large[which].bytes;
        drop_large(which);
        new_large(bytes, roll(dice, 1u << 31));
        break;
    }
}

/* The large pieces that a round is about: so many from one on, in a circle. */
struct window {
    unsigned first, count;
};

static unsigned in_window(struct window window, unsigned which) {
    return (window.first + which) % large_count;
}

/* New contents for some: by a kernel, or by a copy of as much of another piece. */
static void change(struct dice *dice, struct window window) {
    for (unsigned w = 0; w < window.count; w++) {
        unsigned i = in_window(window, w);
        unsigned from = roll(dice, large_count);
        switch (roll(dice, 4)) {
        case 0: write_large(i, roll(dice, 1u << 31)); break;
        case 1:
            if (from == i || large[from].bytes < large[i].bytes) break;
            CHECK(cuMemcpyDtoDAsync(large[i].at, large[from].at, large[i].bytes, NULL));
            large[i].seed = large[from].seed;
            large_sum[i] = sum_of(large[i].seed, large[i].bytes / 4);
            break;
        }
    }
    for (unsigned i = 0; i < small_count; i += 5) {
        piece_write(&tools, &small[i], roll(dice, 1u << 31), NULL);
    }
}

/* Adds up large pieces on the device; all sums come in one copy. */
static uint64_t add_up(unsigned round, struct window window, uint64_t sum) {
    static uint64_t got[MAX_LARGE];
    CHECK(cuMemsetD8Async(sums, 0, window.count * sizeof *got, NULL));
    for (unsigned w = 0; w < window.count; w++) {
        piece_sum(&tools, &large[in_window(window, w)], sums + w * sizeof *got, NULL);
    }
    CHECK(cuMemcpyDtoH(got, sums, window.count * sizeof *got));
    for (unsigned w = 0; w < window.count; w++) {
        unsigned i = in_window(window, w);
        if (got[w] == large_sum[i]) continue;
        printf("round %u: piece %u of %u adds up to %#llx, not %#llx\n", round, i, large_count,
               (unsigned long long)got[w], (unsigned long long)large_sum[i]);
        piece_check(&tools, &large[i], "now", 0);
        printf("now it holds what it should\n");
        exit(1);
    }
    return digest(sum, got, window.count * sizeof *got);
}

static uint64_t read_all(unsigned round, uint64_t sum) {
    char what[32];
    snprintf(what, sizeof what, "round %u", round);
    for (unsigned i = 0; i < large_count; i++) sum = piece_check(&tools, &large[i], what, sum);
    for (unsigned i = 0; i < small_count; i++) sum = piece_check(&tools, &small[i], what, sum);
    return sum;
}

/* A kernel that ends when it is told to, so long after. */
static void linger(void) {
    unsigned *told, until = 1;
    CUdeviceptr flag;
    CHECK(cuMemHostAlloc((void **)&told, sizeof *told, CU_MEMHOSTALLOC_DEVICEMAP));
    *told = 0;
    CHECK(cuMemHostGetDevicePointer(&flag, told, 0));
    void *parameters[] = {&sums, &flag, &until};
    CHECK(cuLaunchKernel(tools.linger, 1, 1, 1, 1, 1, 1, 0, NULL, parameters, NULL));
    sleep_ms(long_ms);
    *(volatile unsigned *)told = 1;
    CHECK(cuCtxSynchronize());
    CHECK(cuMemFreeHost(told));
}

int main(int argc, char **argv) {
    struct option_row options[] = {{"--megabytes", &megabytes}, {"--small", &small_megabytes},
                                   {"--churn", &churn},         {"--rounds", &rounds},
                                   {"--check", &check_every},   {"--pieces", &pieces},
                                   {"--gap-ms", &gap_ms},       {"--long-ms", &long_ms},
                                   {"--seed", &seed}};
    read_options(argc, argv, options, COUNT_OF(options));
    REQUIRE(small_megabytes + 2 <= megabytes && megabytes % 2 == 0 && small_megabytes % 2 == 0,
            "--megabytes and --small have to be even, and the first the larger one");
    start();
    tools = tools_from(load_kernels());
    struct dice dice = {seed};
    allocate_all(&dice);
    /* With every byte of the GPU in use the sums lie in the last piece's last words. */
    struct piece *last = &large[large_count - 1];
    size_t sums_bytes = MAX_LARGE * sizeof(uint64_t);
    if (small_megabytes) {
        CHECK(cuMemAlloc(&sums, sums_bytes));
    } else {
        REQUIRE(!churn, "--churn 1 needs --small");
        last->bytes -= sums_bytes;
        sums = last->at + last->bytes;
        write_large(large_count - 1, last->seed);
    }

    uint64_t sum = CHECKSUM_START;
    for (unsigned round = 0; round < rounds; round++) {
        if (churn) exchange(&dice);
        struct window window = {roll(&dice, large_count), large_count};
        if (pieces && pieces < large_count) window.count = pieces;
        change(&dice, window);
        sum = add_up(round, window, sum);
        if (check_every && round % check_every == check_every - 1) sum = read_all(round, sum);
        if (gap_ms) {
            CHECK(cuCtxSynchronize());
            sleep_ms(gap_ms);
        }
    }
    if (long_ms) linger();
    sum = read_all(rounds, sum);
    while (large_count) drop_large(large_count - 1);
    while (small_count) CHECK(cuMemFree(small[--small_count].at));
    if (small_megabytes) CHECK(cuMemFree(sums));
    return finish("fill_and_check", sum);
}
