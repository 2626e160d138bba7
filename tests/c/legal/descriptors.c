/* A program that has as many descriptors open as it may: the driver needs no more for memory. */
#include <errno.h>
#include <fcntl.h>
#include <sys/resource.h>

#include "legal.h"

enum { MOST = 256, PIECES = 6, ROUNDS = 2 };

static void use_up(void) {
    struct rlimit limit;
    REQUIRE(getrlimit(RLIMIT_NOFILE, &limit) == 0, "no limit");
    limit.rlim_cur = MOST;
    REQUIRE(setrlimit(RLIMIT_NOFILE, &limit) == 0, "the limit cannot be set");
    while (open("/dev/null", O_RDONLY) >= 0) continue;
    REQUIRE(errno == EMFILE, "there is no limit");
}

/* Memory comes and goes, and so do allocations. */
static void at_the_limit(void) {
    struct piece pieces[PIECES];
    CUstream stream = stream_new(CU_STREAM_NON_BLOCKING);
    for (unsigned i = 0; i < PIECES; i++) {
        pieces[i] = piece_new(&tools, (1 + i) * 2 * MIB, i, stream);
    }
    CHECK(cuStreamSynchronize(stream));
    use_up();
    for (unsigned round = 0; round < ROUNDS; round++) {
        wait_for_line();
        for (unsigned i = 0; i < PIECES; i++) {
            piece_check(&tools, &pieces[i], "after an eviction", 0);
        }
        struct piece more = piece_new(&tools, 12 * MIB, 100, stream);
        struct piece small = piece_new(&tools, 70000, 200, stream);
        CHECK(cuStreamSynchronize(stream));
        piece_check(&tools, &more, "new memory", 0);
        piece_check(&tools, &small, "a little new memory", 0);
        CHECK(cuMemFree(pieces[0].at));
        pieces[0] = more;
        CHECK(cuMemFree(small.at));
        printf("round %u\n", round);
    }
}

int main(int argc, char **argv) {
    static const struct legal_case cases[] = {{"at-the-limit", at_the_limit}};
    return play(argc, argv, take_gpu, cases, COUNT_OF(cases));
}
