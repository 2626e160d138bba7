// A CUDA runtime program that touches every common part of the API, one section each, and checks
// every result against the CPU. Built with the static and with the shared runtime library, and with
// both kinds of default stream; it knows nothing of Baton.
//
// Prints one line per section with a checksum of what the GPU computed, and last
// `result runtime_api <checksum of all> ok`. Integers throughout, so that results are exact.

#include <cooperative_groups.h>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cuda_runtime.h>
#include <thread>
#include <vector>

namespace {

constexpr unsigned COUNT = 1u << 18;
constexpr unsigned THREADS = 256;
constexpr unsigned BLOCKS = COUNT / THREADS;

#define CHECK(call)                                                                                \
    do {                                                                                           \
        cudaError_t error_ = (call);                                                               \
        if (error_ != cudaSuccess) {                                                               \
            std::fprintf(stderr, "line %d: %s: %s\n", __LINE__, #call, cudaGetErrorName(error_));  \
            std::exit(1);                                                                          \
        }                                                                                          \
    } while (0)

#define REQUIRE(condition)                                                                         \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            std::fprintf(stderr, "line %d: not so: %s\n", __LINE__, #condition);                   \
            std::exit(1);                                                                          \
        }                                                                                          \
    } while (0)

__host__ __device__ uint32_t mix(uint32_t x) {
    x = (x ^ (x >> 16)) * 0x7feb352du;
    x = (x ^ (x >> 15)) * 0x846ca68bu;
    return x ^ (x >> 16);
}

__constant__ uint32_t constant_key;
__device__ uint32_t device_tally;

__global__ void mix_into(uint32_t *out, const uint32_t *in, uint32_t key) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    out[i] = mix(in[i] ^ key);
}

__global__ void mix_by_symbol(uint32_t *out) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    out[i] = mix(i ^ constant_key);
    if (threadIdx.x == 0)
        atomicAdd(&device_tally, 1u);
}

struct Job {
    uint32_t *out;
    const uint32_t *in;
    uint32_t key;
    uint32_t rounds;
};

__global__ void mix_rounds(Job job) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    uint32_t x = job.in[i];
    for (uint32_t r = 0; r < job.rounds; ++r)
        x = mix(x ^ job.key);
    job.out[i] = x;
}

// Each element takes its neighbour half the array away, `rounds` times, all blocks in step.
__global__ void exchange(uint32_t *a, uint32_t *b, unsigned count, unsigned rounds) {
    auto grid = cooperative_groups::this_grid();
    for (unsigned r = 0; r < rounds; ++r) {
        for (unsigned i = grid.thread_rank(); i < count; i += grid.num_threads())
            b[i] = mix(a[(i + count / 2) % count] + r);
        grid.sync();
        uint32_t *previous = a;
        a = b;
        b = previous;
    }
}

__global__ void sample(uint32_t *out, cudaTextureObject_t texture, unsigned width) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    out[i] = tex2D<uint32_t>(texture, i % width + 0.5f, i / width + 0.5f);
}

uint64_t checksum(const uint32_t *values, size_t count) {
    uint64_t hash = 0xcbf29ce484222325ull;
    for (size_t i = 0; i < count; ++i)
        hash = (hash ^ values[i]) * 0x100000001b3ull;
    return hash;
}

uint64_t all_sections = 0xcbf29ce484222325ull;

void report(const char *section, uint64_t hash) {
    all_sections = (all_sections ^ hash) * 0x100000001b3ull;
    std::printf("%-12s %016llx\n", section, static_cast<unsigned long long>(hash));
}

std::vector<uint32_t> numbers(uint32_t seed) {
    std::vector<uint32_t> values(COUNT);
    for (unsigned i = 0; i < COUNT; ++i)
        values[i] = mix(i + seed);
    return values;
}

std::vector<uint32_t> fetch(const uint32_t *device) {
    std::vector<uint32_t> values(COUNT);
    CHECK(cudaMemcpy(values.data(), device, COUNT * sizeof(uint32_t), cudaMemcpyDeviceToHost));
    return values;
}

template <typename T> T *device_array(size_t count = COUNT) {
    void *address = nullptr;
    CHECK(cudaMalloc(&address, count * sizeof(T)));
    return static_cast<T *>(address);
}

void default_stream() {
    auto host = numbers(1);
    auto *in = device_array<uint32_t>(), *out = device_array<uint32_t>();
    CHECK(cudaMemcpy(in, host.data(), COUNT * sizeof(uint32_t), cudaMemcpyHostToDevice));
    mix_into<<<BLOCKS, THREADS>>>(out, in, 11);
    CHECK(cudaGetLastError());
    auto back = fetch(out);
    for (unsigned i = 0; i < COUNT; ++i)
        REQUIRE(back[i] == mix(host[i] ^ 11));
    report("default", checksum(back.data(), COUNT));
    CHECK(cudaFree(in));
    CHECK(cudaFree(out));
}

void CUDART_CB count_call(void *calls) { ++*static_cast<unsigned *>(calls); }

void streams_and_events() {
    constexpr int STREAMS = 4;
    uint32_t *pinned = nullptr;
    CHECK(cudaMallocHost(reinterpret_cast<void **>(&pinned), STREAMS * COUNT * sizeof(uint32_t)));
    cudaStream_t streams[STREAMS];
    cudaEvent_t first_done;
    uint32_t *in[STREAMS], *out[STREAMS];
    unsigned calls = 0;
    CHECK(cudaEventCreateWithFlags(&first_done, cudaEventDisableTiming));
    for (int s = 0; s < STREAMS; ++s) {
        CHECK(cudaStreamCreateWithFlags(&streams[s], cudaStreamNonBlocking));
        in[s] = device_array<uint32_t>();
        out[s] = device_array<uint32_t>();
        uint32_t *part = pinned + size_t(s) * COUNT;
        for (unsigned i = 0; i < COUNT; ++i)
            part[i] = mix(i * 3 + s);
    }
    for (int s = 0; s < STREAMS; ++s) {
        uint32_t *part = pinned + size_t(s) * COUNT;
        const size_t bytes = COUNT * sizeof(uint32_t);
        if (s > 0)
            CHECK(cudaStreamWaitEvent(streams[s], first_done, 0));
        CHECK(cudaMemcpyAsync(in[s], part, bytes, cudaMemcpyHostToDevice, streams[s]));
        mix_rounds<<<BLOCKS, THREADS, 0, streams[s]>>>(Job{out[s], in[s], uint32_t(s), 8});
        CHECK(cudaGetLastError());
        CHECK(cudaMemcpyAsync(part, out[s], bytes, cudaMemcpyDeviceToHost, streams[s]));
        if (s == 0) {
            CHECK(cudaLaunchHostFunc(streams[s], count_call, &calls));
            CHECK(cudaEventRecord(first_done, streams[s]));
        }
    }
    for (auto stream : streams)
        CHECK(cudaStreamSynchronize(stream));
    REQUIRE(calls == 1);
    for (int s = 0; s < STREAMS; ++s)
        for (unsigned i = 0; i < COUNT; i += 997) {
            uint32_t x = mix(i * 3 + s);
            for (int r = 0; r < 8; ++r)
                x = mix(x ^ uint32_t(s));
            REQUIRE(pinned[size_t(s) * COUNT + i] == x);
        }
    report("streams", checksum(pinned, size_t(STREAMS) * COUNT));
    for (int s = 0; s < STREAMS; ++s) {
        CHECK(cudaFree(in[s]));
        CHECK(cudaFree(out[s]));
        CHECK(cudaStreamDestroy(streams[s]));
    }
    CHECK(cudaEventDestroy(first_done));
    CHECK(cudaFreeHost(pinned));
}

void symbols() {
    const uint32_t key = 77, zero = 0;
    auto *out = device_array<uint32_t>();
    CHECK(cudaMemcpyToSymbol(constant_key, &key, sizeof key));
    CHECK(cudaMemcpyToSymbol(device_tally, &zero, sizeof zero));
    mix_by_symbol<<<BLOCKS, THREADS>>>(out);
    CHECK(cudaGetLastError());
    uint32_t tally = 0;
    CHECK(cudaMemcpyFromSymbol(&tally, device_tally, sizeof tally));
    REQUIRE(tally == BLOCKS);
    auto back = fetch(out);
    for (unsigned i = 0; i < COUNT; ++i)
        REQUIRE(back[i] == mix(i ^ key));
    report("symbols", checksum(back.data(), COUNT));
    CHECK(cudaFree(out));
}

void graph() {
    auto host = numbers(2);
    auto *a = device_array<uint32_t>(), *b = device_array<uint32_t>();
    CHECK(cudaMemcpy(a, host.data(), COUNT * sizeof(uint32_t), cudaMemcpyHostToDevice));
    cudaStream_t stream;
    cudaGraph_t captured;
    cudaGraphExec_t ready;
    CHECK(cudaStreamCreate(&stream));
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    mix_into<<<BLOCKS, THREADS, 0, stream>>>(b, a, 5);
    CHECK(cudaMemcpyAsync(a, b, COUNT * sizeof(uint32_t), cudaMemcpyDeviceToDevice, stream));
    CHECK(cudaMemsetAsync(b, 0, COUNT * sizeof(uint32_t), stream));
    CHECK(cudaStreamEndCapture(stream, &captured));
    size_t nodes = 0;
    CHECK(cudaGraphGetNodes(captured, nullptr, &nodes));
    REQUIRE(nodes == 3);
    CHECK(cudaGraphInstantiate(&ready, captured, 0));
    for (int replay = 0; replay < 10; ++replay)
        CHECK(cudaGraphLaunch(ready, stream));
    CHECK(cudaStreamSynchronize(stream));
    auto back = fetch(a);
    for (unsigned i = 0; i < COUNT; ++i) {
        uint32_t x = host[i];
        for (int replay = 0; replay < 10; ++replay)
            x = mix(x ^ 5);
        REQUIRE(back[i] == x);
    }
    report("graph", checksum(back.data(), COUNT));
    CHECK(cudaGraphExecDestroy(ready));
    CHECK(cudaGraphDestroy(captured));
    CHECK(cudaStreamDestroy(stream));
    CHECK(cudaFree(a));
    CHECK(cudaFree(b));
}

void cooperative() {
    auto host = numbers(3);
    auto *a = device_array<uint32_t>(), *b = device_array<uint32_t>();
    CHECK(cudaMemcpy(a, host.data(), COUNT * sizeof(uint32_t), cudaMemcpyHostToDevice));
    int device = 0, per_multiprocessor = 0;
    cudaDeviceProp properties;
    CHECK(cudaGetDevice(&device));
    CHECK(cudaGetDeviceProperties(&properties, device));
    CHECK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&per_multiprocessor, exchange, THREADS, 0));
    unsigned blocks = per_multiprocessor * properties.multiProcessorCount;
    unsigned count = COUNT, rounds = 4;
    void *arguments[] = {&a, &b, &count, &rounds};
    CHECK(cudaLaunchCooperativeKernel(exchange, dim3(blocks), dim3(THREADS), arguments, 0, nullptr));
    auto back = fetch(a); // an even number of rounds ends where it began
    auto now = host, next = host;
    for (unsigned r = 0; r < rounds; ++r, now.swap(next))
        for (unsigned i = 0; i < COUNT; ++i)
            next[i] = mix(now[(i + COUNT / 2) % COUNT] + r);
    REQUIRE(back == now);
    report("cooperative", checksum(back.data(), COUNT));
    CHECK(cudaFree(a));
    CHECK(cudaFree(b));
}

void pool() {
    cudaStream_t stream;
    CHECK(cudaStreamCreate(&stream));
    auto host = numbers(4);
    std::vector<uint32_t> back(COUNT);
    const size_t bytes = COUNT * sizeof(uint32_t);
    for (uint32_t round = 0; round < 3; ++round) {
        uint32_t *in = nullptr, *out = nullptr;
        CHECK(cudaMallocAsync(reinterpret_cast<void **>(&in), bytes, stream));
        CHECK(cudaMallocAsync(reinterpret_cast<void **>(&out), bytes, stream));
        CHECK(cudaMemcpyAsync(in, host.data(), bytes, cudaMemcpyHostToDevice, stream));
        mix_into<<<BLOCKS, THREADS, 0, stream>>>(out, in, round);
        CHECK(cudaMemcpyAsync(back.data(), out, bytes, cudaMemcpyDeviceToHost, stream));
        CHECK(cudaFreeAsync(in, stream));
        CHECK(cudaFreeAsync(out, stream));
        CHECK(cudaStreamSynchronize(stream));
        for (unsigned i = 0; i < COUNT; ++i)
            REQUIRE(back[i] == mix(host[i] ^ round));
        host.swap(back);
    }
    report("pool", checksum(host.data(), COUNT));
    CHECK(cudaStreamDestroy(stream));
}

void managed() {
    uint32_t *shared = nullptr;
    CHECK(cudaMallocManaged(reinterpret_cast<void **>(&shared), COUNT * sizeof(uint32_t)));
    for (unsigned i = 0; i < COUNT; ++i)
        shared[i] = i;
    mix_into<<<BLOCKS, THREADS>>>(shared, shared, 9);
    CHECK(cudaDeviceSynchronize());
    for (unsigned i = 0; i < COUNT; ++i)
        REQUIRE(shared[i] == mix(i ^ 9));
    report("managed", checksum(shared, COUNT));
    CHECK(cudaFree(shared));
}

void texture() {
    constexpr unsigned WIDTH = 512, HEIGHT = COUNT / WIDTH;
    auto host = numbers(6);
    cudaArray_t array;
    auto format = cudaCreateChannelDesc<uint32_t>();
    CHECK(cudaMallocArray(&array, &format, WIDTH, HEIGHT));
    const size_t row = WIDTH * sizeof(uint32_t);
    CHECK(cudaMemcpy2DToArray(array, 0, 0, host.data(), row, row, HEIGHT, cudaMemcpyHostToDevice));
    cudaResourceDesc resource = {};
    resource.resType = cudaResourceTypeArray;
    resource.res.array.array = array;
    cudaTextureDesc how = {};
    how.addressMode[0] = how.addressMode[1] = cudaAddressModeClamp;
    how.filterMode = cudaFilterModePoint;
    how.readMode = cudaReadModeElementType;
    cudaTextureObject_t object = 0;
    CHECK(cudaCreateTextureObject(&object, &resource, &how, nullptr));
    auto *out = device_array<uint32_t>();
    sample<<<BLOCKS, THREADS>>>(out, object, WIDTH);
    CHECK(cudaGetLastError());
    auto back = fetch(out);
    REQUIRE(back == host);
    report("texture", checksum(back.data(), COUNT));
    CHECK(cudaDestroyTextureObject(object));
    CHECK(cudaFreeArray(array));
    CHECK(cudaFree(out));
}

void threads() {
    constexpr unsigned WORKERS = 4;
    std::vector<uint32_t> sums[WORKERS];
    std::vector<std::thread> workers;
    for (unsigned w = 0; w < WORKERS; ++w)
        workers.emplace_back([w, &sums] {
            auto host = numbers(100 + w);
            auto *data = device_array<uint32_t>();
            CHECK(cudaMemcpy(data, host.data(), COUNT * sizeof(uint32_t), cudaMemcpyHostToDevice));
            for (int r = 0; r < 50; ++r)
                mix_into<<<BLOCKS, THREADS>>>(data, data, w);
            CHECK(cudaGetLastError());
            sums[w] = fetch(data);
            for (unsigned i = 0; i < COUNT; i += 101) {
                uint32_t x = host[i];
                for (int r = 0; r < 50; ++r)
                    x = mix(x ^ w);
                REQUIRE(sums[w][i] == x);
            }
            CHECK(cudaFree(data));
        });
    for (auto &worker : workers)
        worker.join();
    for (auto &sum : sums)
        report("thread", checksum(sum.data(), COUNT));
}

// What wrong calls answer is an output too.
void attributes_and_errors() {
    cudaFuncAttributes attributes;
    CHECK(cudaFuncGetAttributes(&attributes, mix_rounds));
    uint32_t facts[] = {uint32_t(attributes.maxThreadsPerBlock), uint32_t(attributes.numRegs),
                        uint32_t(attributes.binaryVersion), uint32_t(attributes.constSizeBytes)};
    report("attributes", checksum(facts, 4));

    void *address = nullptr;
    auto *small = device_array<uint32_t>(16);
    cudaPointerAttributes pointer;
    CHECK(cudaPointerGetAttributes(&pointer, small));
    REQUIRE(pointer.type == cudaMemoryTypeDevice && pointer.devicePointer == small);
    uint32_t answers[] = {uint32_t(cudaMalloc(&address, size_t(1) << 60)),
                          uint32_t(cudaMemset(nullptr, 0, 4)),
                          uint32_t(cudaSetDevice(1 << 20)),
                          uint32_t(cudaFree(small + 1)),
                          uint32_t(cudaGetLastError()),
                          uint32_t(cudaGetLastError())};
    for (uint32_t answer : answers)
        std::printf("answer %u\n", answer);
    report("errors", checksum(answers, sizeof answers / sizeof *answers));
    CHECK(cudaFree(small));
}

} // namespace

int main() {
    default_stream();
    streams_and_events();
    symbols();
    graph();
    cooperative();
    pool();
    managed();
    texture();
    threads();
    attributes_and_errors();
    CHECK(cudaDeviceSynchronize());
    std::printf("result runtime_api %016llx ok\n", static_cast<unsigned long long>(all_sections));
    return 0;
}
