// The kernels that the example programs, the tests and the simulated driver share.
//
// Every kernel takes a one-dimensional grid of any size and walks its elements in grid strides, so
// that any launch shape gives the same result. Floating point is spelled out as fused
// multiply-adds in a fixed order, so that a CPU can compute the same bits with `fmaf`.
//
// kernels.ptx is made from this file by build.sh and is committed, so that no program needs nvcc.

#define FIRST (blockIdx.x * (unsigned long long)blockDim.x + threadIdx.x)
#define STRIDE (gridDim.x * (unsigned long long)blockDim.x)
#define EACH(i, count) (unsigned long long i = FIRST; i < (count); i += STRIDE)

// The parameters of `add` as one struct by value: 32 bytes, the last four of them padding.
struct AddArguments {
    float* out;
    const float* a;
    const float* b;
    unsigned n;
};

// One element of a chain in device memory.
struct Node {
    const Node* next;
    unsigned long long value;
};

extern "C" {

__global__ void add(float* out, const float* a, const float* b, unsigned n) {
    for EACH(i, n) out[i] = __fadd_rn(a[i], b[i]);
}

__global__ void add_struct(AddArguments args) {
    for EACH(i, args.n) args.out[i] = __fadd_rn(args.a[i], args.b[i]);
}

__global__ void scale(float* out, const float* in, float k, unsigned n) {
    for EACH(i, n) out[i] = __fmul_rn(k, in[i]);
}

__global__ void axpy(float* y, const float* x, float a, unsigned n) {
    for EACH(i, n) y[i] = __fmaf_rn(a, x[i], y[i]);
}

// c (m x n) = A (m x k) * B (k x n), all row-major. Bit 0 of `flags`: a is stored transposed
// (k x m). Bit 1: b is stored transposed (n x k). The sum runs over p in ascending order.
__global__ void matmul(float* c, const float* a, const float* b, unsigned m, unsigned n, unsigned k,
                       unsigned flags) {
    for EACH(at, (unsigned long long)m * n) {
        unsigned long long i = at / n, j = at % n;
        const float* left = a + ((flags & 1) ? i : i * k);
        const float* right = b + ((flags & 2) ? j * k : j);
        unsigned long long left_step = (flags & 1) ? m : 1;
        unsigned long long right_step = (flags & 2) ? 1 : n;
        float sum = 0.0f;
        for (unsigned p = 0; p < k; p++) {
            sum = __fmaf_rn(left[p * left_step], right[p * right_step], sum);
        }
        c[at] = sum;
    }
}

__global__ void relu(float* out, const float* in, unsigned n) {
    for EACH(i, n) out[i] = in[i] > 0.0f ? in[i] : 0.0f;
}

// The gradient of relu: `y` is what relu gave, `dy` the gradient that reaches it.
__global__ void relu_grad(float* dx, const float* y, const float* dy, unsigned n) {
    for EACH(i, n) dx[i] = y[i] > 0.0f ? dy[i] : 0.0f;
}

// Copies rows to one matrix. The addresses of the rows lie in device memory.
__global__ void gather(float* out, const float* const* rows, unsigned n_rows, unsigned row_len) {
    for EACH(at, (unsigned long long)n_rows * row_len) {
        out[at] = rows[at / row_len][at % row_len];
    }
}

// The reverse of gather: no parameter names the memory that is written, the table does.
__global__ void scatter_table(float* const* table, const float* in, unsigned n_rows,
                              unsigned row_len) {
    for EACH(at, (unsigned long long)n_rows * row_len) {
        table[at / row_len][at % row_len] = in[at];
    }
}

// Adds the values of the first `hops` nodes of a chain; a null pointer ends it early.
__global__ void chase(unsigned long long* out, const void* head, unsigned hops) {
    if (FIRST != 0) return;
    const Node* node = static_cast<const Node*>(head);
    unsigned long long sum = 0;
    for (unsigned hop = 0; hop < hops && node; hop++, node = node->next) sum += node->value;
    out[0] = sum;
}

// Does not end until the host or another kernel raises the flag.
__global__ void spin_on_flag(unsigned* out, volatile unsigned* flag, unsigned value) {
    if (FIRST != 0) return;
    while (*flag < value) { }
    out[0] = *flag;
}

// Arithmetic and nothing else: `rounds` multiply-adds on each element.
__global__ void busy(float* buf, unsigned n, unsigned rounds) {
    for EACH(i, n) {
        float x = buf[i];
        for (unsigned round = 0; round < rounds; round++) x = __fmaf_rn(x, 0.999f, 0.5f);
        buf[i] = x;
    }
}

// A pattern that depends on every bit of seed and index (the finalizer of MurmurHash3).
__global__ void fill_hash(unsigned* out, unsigned seed, unsigned n) {
    for EACH(i, n) {
        unsigned x = (unsigned)i + seed;
        x ^= x >> 16;
        x *= 0x85ebca6bu;
        x ^= x >> 13;
        x *= 0xc2b2ae35u;
        x ^= x >> 16;
        out[i] = x;
    }
}

// Adds to out[0], which the caller has set before.
__global__ void sum_u32(unsigned long long* out, const unsigned* in, unsigned n) {
    unsigned long long sum = 0;
    for EACH(i, n) sum += in[i];
    if (sum) atomicAdd(out, sum);
}

}  // extern "C"
