// The page digest: one pass over pages of 2 MiB that tells of each what it holds, without showing it.
//
// pages.ptx is made from this file by build.sh beside it and is committed, so that building Baton needs no nvcc.
//
// What `baton_pages` computes. A page is 131072 units of 16 bytes; unit i, read as four little-endian 32-bit words
// c0 c1 c2 c3, is mixed under the key k0 k1 k2 k3 (key_low is k0 | k1 << 32, key_high k2 | k3 << 32). All is modulo
// 2^32; hi and lo are the halves of a 64-bit product:
//
//     t = k0 + i * 0x9E3779B1
//     c0 ^= t;  c2 ^= k2
//     for r = 0 .. 7:
//         a = t if r is 4, else (k0 if r is even, else k2) + r * 0x9E3779B9
//         b = (k1 if r is even, else k3) + r * 0xBB67AE85
//         p = c0 * 0xD2511F53;  q = c2 * 0xCD9E8D57
//         (c0, c1, c2, c3) = (hi(q) ^ c1 ^ a, lo(q), hi(p) ^ c3 ^ b, lo(p))
//
// The rounds are those of Philox-4x32 (Salmon et al., "Parallel Random Numbers: As Easy as 1, 2, 3", SC'11): one
// multiplication that keeps both halves does what else takes several, and the whole is a bijection of the unit.
// Six rounds leave some output bits that depend on an input bit too little, seven none that can be told; these are
// eight. The place comes in at two points: whatever two units are exchanged, the sum notices.
//
// The page's digest is two sums modulo 2^64 over its units: of c0 | c1 << 32 and of c2 | c3 << 32.
//
// A word, that is 8 bytes at a multiple of 8, points to granule (word - start) >> 21 if word - start < bytes,
// modulo 2^64. Every pair of a page's number and a granule it points to is written to `pairs` once, in no order, as
// page << 32 | granule. If there are more than `room`, `overflow` becomes 1 and what is in `pairs` is of no use;
// that may also happen a little earlier.
//
// A page has host words if the upper half of any word, less host, is less than host_span, modulo 2^32, and it points to
// no granule. Its `flags` say so, and whether any bit of it is set.
//
// A block has 256 threads, and a page `parts` blocks, a power of two of at most 128. What is read must not change
// meanwhile. Before the launch, `digests`, `count` and `overflow` are zero, and all bits of the table are set, which
// has `slots` slots, a power of two. A pair that the table holds counts as listed; after the launch it holds all
// that are.

typedef unsigned int u32;
typedef unsigned long long u64;

#define UNITS 131072u
#define THREADS 256u
#define ROUNDS 8
#define UNROLL 4
// Pairs of this block that are in the table already, by the granule's low bits.
#define KNOWN 256u
// How far from its place in the table a pair may lie.
#define PROBES 64
#define NOTHING (~0ull)

// What is known of one page.
struct Digest {
    u64 sums[2];
    // IS_SET, HAS_HOST_WORDS.
    u64 flags;
};
#define IS_SET 1ull
#define HAS_HOST_WORDS 2ull

// How many pairs there are, and whether they are too many.
struct Found {
    u32 count;
    u32 overflow;
};

// Both halves of a product. Asked for one by one, as the compiler otherwise makes products of 64 bits by 64 of some.
__device__ __forceinline__ uint2 multiply(u32 a, u32 b) { return make_uint2(a * b, __umulhi(a, b)); }

__device__ __forceinline__ uint4 mix(uint4 c, u32 t, u32 k0, u32 k1, u32 k2, u32 k3) {
    c.x ^= t;
    c.z ^= k2;
#pragma unroll
    for (int r = 0; r < ROUNDS; r++) {
        u32 a = r == ROUNDS / 2 ? t : (r % 2 ? k2 : k0) + r * 0x9E3779B9u;
        u32 b = (r % 2 ? k3 : k1) + r * 0xBB67AE85u;
        uint2 p = multiply(c.x, 0xD2511F53u);
        uint2 q = multiply(c.z, 0xCD9E8D57u);
        c = make_uint4(q.y ^ c.y ^ a, q.x, p.y ^ c.w ^ b, p.x);
    }
    return c;
}

// Puts a pair into the table, and the list if it was not there. Slots that are free are NOTHING.
__device__ __noinline__ void add_pair(u64 pair, u64* table, u32 slots, Found* found, u64* pairs, u32 room) {
    u64 hash = pair * 0x9E3779B97F4A7C15ull;
    u32 at = (u32)(hash >> 32) & (slots - 1);
    for (int probe = 0; probe < PROBES; probe++) {
        u64 seen = *(volatile u64*)&table[at];
        if (seen == NOTHING) seen = atomicCAS(&table[at], NOTHING, pair);
        if (seen == NOTHING) {
            u32 place = atomicAdd(&found->count, 1);
            if (place < room) pairs[place] = pair;
            else found->overflow = 1;
            return;
        }
        if (seen == pair) return;
        at = (at + 1) & (slots - 1);
    }
    found->overflow = 1;
}

// One unit that may hold pointers. Whether it holds host words.
__device__ __noinline__ bool look_closer(uint4 unit, u64 start, u64 bytes, u32 page, u32* known, u64* table, u32 slots,
                                         Found* found, u64* pairs, u32 room, u32 host, u32 host_span) {
    bool has_host = false;
#pragma unroll
    for (int half = 0; half < 2; half++) {
        u64 word = half ? (u64)unit.w << 32 | unit.z : (u64)unit.y << 32 | unit.x;
        u64 offset = word - start;
        if (offset >= bytes) {
            has_host |= (u32)(word >> 32) - host < host_span;
            continue;
        }
        u32 granule = (u32)(offset >> 21);
        volatile u32* slot = &known[granule % KNOWN];
        if (*slot == granule) continue;
        // With more to tell than there is room for, nothing is worth adding.
        if (*(volatile u32*)&found->overflow) continue;
        add_pair((u64)page << 32 | granule, table, slots, found, pairs, room);
        *slot = granule;
    }
    return has_host;
}

extern "C" __global__ void __launch_bounds__(THREADS)
    baton_pages(const u64* pages, u32 count, u32 parts, u64 key_low, u64 key_high, u64 start, u64 bytes,
                Digest* digests, Found* found, u64* pairs, u32 room, u64* table, u32 slots, u32 host,
                u32 host_span) {
    __shared__ u32 known[KNOWN];
    // A granule that no pair has: 2^32 of them would be more than there are addresses.
    for (u32 at = threadIdx.x; at < KNOWN; at += THREADS) known[at] = ~0u;
    __syncthreads();
    u32 page = blockIdx.x / parts;
    if (page >= count) return;
    u32 first = (blockIdx.x % parts) * (UNITS / parts) + threadIdx.x;
    u32 rounds = UNITS / parts / (THREADS * UNROLL);
    const uint4* from = (const uint4*)pages[page] + first;
    u32 k0 = (u32)key_low, k1 = (u32)(key_low >> 32), k2 = (u32)key_high, k3 = (u32)(key_high >> 32);
    u32 t = k0 + first * 0x9E3779B1u;
    u32 step = THREADS * 0x9E3779B1u;
    // The upper half of a word tells nearly always that it is no pointer.
    u32 lowest = (u32)(start >> 32);
    u32 span = bytes ? (u32)((start + bytes - 1) >> 32) - lowest + 1 : 0;
    u64 low = 0, high = 0;
    u32 any = 0;
    bool has_host = false;
#pragma unroll 1
    for (u32 round = 0; round < rounds; round++) {
        uint4 units[UNROLL];
#pragma unroll
        for (int i = 0; i < UNROLL; i++) units[i] = __ldcs(from + i * THREADS);
        from += UNROLL * THREADS;
        bool maybe = false;
#pragma unroll
        for (int i = 0; i < UNROLL; i++) {
            uint4 unit = units[i];
            bool left = unit.y - lowest < span, right = unit.w - lowest < span;
            maybe |= left | right;
            has_host |= (unit.y - host < host_span && !left) | (unit.w - host < host_span && !right);
            any |= unit.x | unit.y;
            any |= unit.z | unit.w;
            uint4 mixed = mix(unit, t, k0, k1, k2, k3);
            low += (u64)mixed.y << 32 | mixed.x;
            high += (u64)mixed.w << 32 | mixed.z;
            t += step;
        }
        if (maybe) {
#pragma unroll 1
            for (int i = 0; i < UNROLL; i++)
                has_host |= look_closer(__ldcs(from + (i - UNROLL) * (int)THREADS), start, bytes, page, known, table,
                                        slots, found, pairs, room, host, host_span);
        }
    }
    for (int lanes = 16; lanes; lanes /= 2) {
        low += __shfl_down_sync(~0u, low, lanes);
        high += __shfl_down_sync(~0u, high, lanes);
    }
    u64 flags = (__any_sync(~0u, any) ? IS_SET : 0) | (__any_sync(~0u, has_host) ? HAS_HOST_WORDS : 0);
    if (threadIdx.x % 32 == 0) {
        atomicAdd(&digests[page].sums[0], low);
        atomicAdd(&digests[page].sums[1], high);
        if (flags) atomicOr(&digests[page].flags, flags);
    }
}
