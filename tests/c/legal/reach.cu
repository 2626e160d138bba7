// Kernels that find memory in ways that their launches hardly show. reach.ptx is made from this file by build-ptx.sh beside it and is
// committed, so that building the tests needs no nvcc. The simulated driver has the same kernels (sim/src/kernels/pointers.rs).

#define EACH(i, n)                                                                                  \
    (unsigned long long i = blockIdx.x * (unsigned long long)blockDim.x + threadIdx.x; i < (n);    \
     i += (unsigned long long)gridDim.x * blockDim.x)

extern "C" {

// Tables of rows, in variables of the module.
__device__ const float* const* rows_variable;
__managed__ const float* const* rows_managed;

// Parameters without room between them.
struct __attribute__((packed)) Packed {
    char tag;
    float* out;
    const float* const* rows;
    unsigned n_rows, row_len;
};

__device__ void gather_rows(float* out, const float* const* rows, unsigned n_rows, unsigned row_len) {
    for EACH(at, (unsigned long long)n_rows * row_len) {
        out[at] = rows[at / row_len][at % row_len];
    }
}

__global__ void gather_packed(Packed all) { gather_rows(all.out, all.rows, all.n_rows, all.row_len); }

__global__ void gather_variable(float* out, unsigned n_rows, unsigned row_len) {
    gather_rows(out, rows_variable, n_rows, row_len);
}

__global__ void gather_managed(float* out, unsigned n_rows, unsigned row_len) {
    gather_rows(out, rows_managed, n_rows, row_len);
}

// Copies the data that begins so many numbers after an address.
__global__ void copy_after(float* out, const float* in, unsigned long long first, unsigned n) {
    for EACH(i, n) out[i] = in[first + i];
}

}  // extern "C"
