/* The common part of this folder's programs: memory whose contents are known, and ways to look at it.
 *
 * A program here is an ordinary client of the driver. It works through more memory than it is given
 * time for, checks itself where it can, and ends with `result NAME CHECKSUM ok`, whose checksum
 * depends on every byte that it read back. The same arguments give the same line on every run, so
 * that a run on a driver of its own and a run among others can be compared.
 *
 * A piece of memory holds the words of fill_hash for its seed, so that the CPU knows every word of it
 * and a wrong word can be told, with its neighbours: poison and another's data look different.
 */
#ifndef WORK_H
#define WORK_H

#include <pthread.h>
#include <time.h>
#include <unistd.h>

#include "common.h"

#define MIB ((size_t)1 << 20)

/* --- small things -------------------------------------------------------------------------- */

static inline void sleep_ms(unsigned ms) {
    struct timespec left = {ms / 1000, (long)(ms % 1000) * 1000000};
    while (nanosleep(&left, &left) != 0) continue;
}

/* A row of numbers that depends on its start alone. */
struct dice {
    uint64_t state;
};

static inline uint32_t roll(struct dice *dice, uint32_t sides) {
    dice->state = dice->state * 6364136223846793005ull + 1442695040888963407ull;
    return (uint32_t)((dice->state >> 33) % sides);
}

/* Goes over many bytes as fast as the CPU can: the tests spend much of their time there. */
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define WIDE __attribute__((unused, noinline, optimize("O3"), target_clones("avx2", "default")))
#else
#define WIDE __attribute__((unused))
#endif

/* Folds words into a checksum, four at a time: every word and its place count. */
static WIDE uint64_t digest(uint64_t sum, const void *data, size_t bytes) {
    const unsigned char *at = data;
    uint64_t lane[4] = {sum, sum ^ 0x9e3779b97f4a7c15ull, ~sum, sum + 1}, word;
    size_t i = 0;
    for (; i + 32 <= bytes; i += 32) {
        for (int l = 0; l < 4; l++) {
            memcpy(&word, at + i + 8 * l, 8);
            lane[l] = (lane[l] ^ word) * 0x100000001b3ull;
            lane[l] ^= lane[l] >> 29;
        }
    }
    for (int l = 1; l < 4; l++) lane[0] = (lane[0] ^ lane[l]) * 0x100000001b3ull;
    return checksum(lane[0], at + i, bytes - i);
}

/* Leaves a function that answers a CUresult when a call fails. */
#define TRY(call)                                    \
    do {                                             \
        CUresult result_ = (call);                   \
        if (result_ != CUDA_SUCCESS) return result_; \
    } while (0)

/* --- pieces of memory ---------------------------------------------------------------------- */

struct piece {
    CUdeviceptr at;
    size_t bytes;
    uint32_t seed;
};

struct tools {
    CUfunction fill, sum, linger;
    unsigned char *host; /* as much as the largest piece */
    size_t host_bytes;
};

static inline struct tools tools_from(CUmodule module) {
    return (struct tools){.fill = kernel(module, "fill_hash"), .sum = kernel(module, "sum_u32"), .linger = kernel(module, "spin_on_flag")};
}

static inline void *tools_room(struct tools *tools, size_t bytes) {
    if (bytes > tools->host_bytes) {
        free(tools->host);
        tools->host = host_alloc(bytes);
        tools->host_bytes = bytes;
    }
    return tools->host;
}

/* The result of the kernel sum_u32 for a piece of that seed. */
static WIDE uint64_t sum_of(uint32_t seed, size_t words) {
    uint64_t sum = 0;
    for (uint32_t i = 0; i < (uint32_t)words; i++) sum += hash32(i + seed);
    return sum;
}

/* True if words are those of that seed. */
static WIDE int are_of(const unsigned char *got, uint32_t seed, size_t words) {
    uint32_t differ = 0;
    for (uint32_t i = 0; i < (uint32_t)words; i++) {
        uint32_t word;
        memcpy(&word, got + 4 * (size_t)i, 4);
        differ |= word ^ hash32(i + seed);
    }
    return !differ;
}

/* Fills a piece on a stream. The up to three bytes after its last word hold the seed's lowest. */
static inline void piece_write(const struct tools *tools, struct piece *piece, uint32_t seed,
                               CUstream stream) {
    unsigned words = (unsigned)(piece->bytes / 4);
    size_t tail = piece->bytes % 4;
    piece->seed = seed;
    if (words) LAUNCH(tools->fill, stream, words, &piece->at, &seed, &words);
    if (tail) {
        CHECK(cuMemsetD8Async(piece->at + 4 * (size_t)words, (unsigned char)seed, tail, stream));
    }
}

/* Of no stream, it is filled when this returns: non-blocking streams do not wait for the legacy one. */
static inline struct piece piece_new(const struct tools *tools, size_t bytes, uint32_t seed,
                                     CUstream stream) {
    struct piece piece = {.bytes = bytes};
    CHECK(cuMemAlloc(&piece.at, bytes));
    piece_write(tools, &piece, seed, stream);
    if (!stream) CHECK(cuStreamSynchronize(stream));
    return piece;
}

/* Adds the piece's words to a 64-bit number on the device. */
static inline void piece_sum(const struct tools *tools, const struct piece *piece, CUdeviceptr out,
                             CUstream stream) {
    unsigned words = (unsigned)(piece->bytes / 4);
    CUdeviceptr at = piece->at;
    if (words) LAUNCH(tools->sum, stream, words, &out, &at, &words);
}

/* Says where contents differ and how: one wrong word is another thing than a page of poison. */
static inline void show_difference(const char *what, const struct piece *piece,
                                   const unsigned char *got) {
    size_t words = piece->bytes / 4, wrong = 0, first = 0, last = 0;
    for (size_t i = 0; i < words; i++) {
        uint32_t word;
        memcpy(&word, got + 4 * i, 4);
        if (word == hash32((uint32_t)i + piece->seed)) continue;
        if (!wrong++) first = i;
        last = i;
    }
    if (!wrong) first = last = words; /* only the bytes after the last word */
    uint32_t word = 0;
    size_t rest = piece->bytes - 4 * first;
    memcpy(&word, got + 4 * first, rest < 4 ? rest : 4);
    printf("%s: %zu of %zu words of the piece at %#llx differ, from byte %zu to byte %zu; the first "
           "is %#010x, not %#010x\n",
           what, wrong, words, (unsigned long long)piece->at, 4 * first, 4 * last + 3, word,
           hash32((uint32_t)first + piece->seed));
    exit(1);
}

/* Reads a whole piece back, compares it with the written contents, and folds it into a checksum. */
static inline uint64_t piece_check(struct tools *tools, const struct piece *piece, const char *what,
                                   uint64_t sum) {
    unsigned char *got = tools_room(tools, piece->bytes);
    /* The words read must come from the device, not be left from the last time. */
    memset(got, 0x55, piece->bytes);
    CHECK(cuMemcpyDtoH(got, piece->at, piece->bytes));
    size_t words = piece->bytes / 4;
    int same = are_of(got, piece->seed, words);
    for (size_t i = 4 * words; i < piece->bytes; i++) same &= got[i] == (unsigned char)piece->seed;
    if (!same) show_difference(what, piece, got);
    return digest(sum, got, piece->bytes);
}

#endif
