/* A thread makes short calls in a tight loop while another sends it a signal whose handler sleeps a
 * few milliseconds: it is stopped anywhere, also just before a call reaches the driver. A library that
 * takes the memory away meanwhile must know of a call that is about to be made.
 *
 *     interrupted --megabytes 24 --rounds 3000 --handler-ms 3 --every-us 1500 --seed 1
 */
#include <signal.h>

#include "work.h"

static unsigned megabytes = 24, rounds = 3000, handler_ms = 3, every_us = 1500, seed = 1;
static int over, stopped;

static void stop_a_while(int number) {
    struct timespec time = {0, (long)handler_ms * 1000000};
    (void)number;
    nanosleep(&time, NULL);
    __atomic_store_n(&stopped, 0, __ATOMIC_RELEASE);
}

static void *send_signals(void *data) {
    pthread_t thread = *(pthread_t *)data;
    struct dice dice = {seed};
    while (!__atomic_load_n(&over, __ATOMIC_ACQUIRE)) {
        struct timespec time = {0, (long)(1 + roll(&dice, 2 * every_us)) * 1000};
        nanosleep(&time, NULL);
        /* One at a time, or the thread would do nothing else. */
        if (__atomic_exchange_n(&stopped, 1, __ATOMIC_ACQ_REL) == 0) pthread_kill(thread, SIGUSR1);
    }
    return NULL;
}

int main(int argc, char **argv) {
    struct option_row options[] = {{"--megabytes", &megabytes},
                                   {"--rounds", &rounds},
                                   {"--handler-ms", &handler_ms},
                                   {"--every-us", &every_us},
                                   {"--seed", &seed}};
    read_options(argc, argv, options, COUNT_OF(options));
    REQUIRE(megabytes >= 4 && handler_ms < 1000 && every_us > 0, "options out of range");
    start();
    struct tools tools = tools_from(load_kernels());
    struct piece large = piece_new(&tools, (megabytes - 2) * MIB, seed, NULL);
    CUdeviceptr sum = device_alloc(sizeof(uint64_t)), words = device_alloc(4096);
    CHECK(cuMemsetD8(sum, 0, sizeof(uint64_t)));

    struct sigaction action = {.sa_handler = stop_a_while};
    REQUIRE(sigaction(SIGUSR1, &action, NULL) == 0, "no handler");
    pthread_t self = pthread_self(), sender;
    REQUIRE(pthread_create(&sender, NULL, send_signals, &self) == 0, "no thread");

    uint64_t want = 0, got = 0, result = CHECKSUM_START;
    unsigned count = 1024;
    for (unsigned round = 0; round < rounds; round++) {
        uint32_t value = hash32(seed + round);
        switch (round % 4) {
        case 0:
            CHECK(cuMemsetD32Async(words, value, 1024, NULL));
            LAUNCH(tools.sum, NULL, count, &sum, &words, &count);
            want += (uint64_t)value * 1024;
            break;
        case 1: {
            /* A few words of the large piece become others and are read back at once. */
            uint32_t written[4] = {value, round, ~value, 7}, read[4] = {0};
            size_t at = value % (large.bytes / 4 - 4) * 4;
            CHECK(cuMemcpyHtoD(large.at + at, written, sizeof written));
            CHECK(cuMemcpyDtoH(read, large.at + at, sizeof read));
            require_same("words written before", read, written, 4, 4);
            for (unsigned i = 0; i < 4; i++) written[i] = hash32((uint32_t)(at / 4 + i) + large.seed);
            CHECK(cuMemcpyHtoD(large.at + at, written, sizeof written));
            break;
        }
        case 2: {
            /* A small allocation comes and goes. */
            struct piece piece = piece_new(&tools, 1 + value % 9000, value, NULL);
            result = piece_check(&tools, &piece, "a small piece", result);
            CHECK(cuMemFree(piece.at));
            break;
        }
        case 3: {
            unsigned part = 4096, first = value % (unsigned)(large.bytes / 4 - part);
            CUdeviceptr from = large.at + 4 * (size_t)first;
            LAUNCH(tools.sum, NULL, part, &sum, &from, &part);
            want += sum_of(large.seed + first, part);
            break;
        }
        }
        if (round % 64 == 63) {
            CHECK(cuMemcpyDtoH(&got, sum, sizeof got));
            REQUIRE(got == want, "round %u: the sum is %#llx, not %#llx", round,
                    (unsigned long long)got, (unsigned long long)want);
        }
    }
    __atomic_store_n(&over, 1, __ATOMIC_RELEASE);
    pthread_join(sender, NULL);
    CHECK(cuMemcpyDtoH(&got, sum, sizeof got));
    REQUIRE(got == want, "the sum is %#llx, not %#llx", (unsigned long long)got,
            (unsigned long long)want);
    result = digest(piece_check(&tools, &large, "the large piece", result), &got, sizeof got);
    return finish("interrupted", result);
}
