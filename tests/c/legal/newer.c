/* A driver of tomorrow, with functions that are unknown today: a program asks for them, and goes on without them if it
 * does not get them.
 */
#include <dlfcn.h>

#include "legal.h"

enum { TODAY = 13050, TOMORROW = 99990, FLAGS = 0 };
#define BYTES (4 * MIB)

typedef CUresult known_copy(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream);
typedef CUresult fill(CUdeviceptr at, unsigned word, size_t count);
typedef CUresult newer_copy(CUstream stream, size_t bytes, CUdeviceptr from, CUdeviceptr to);
typedef CUresult copy_of_tomorrow(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream, int one, int two,
                                  int three, int four, double half, int five, int six);

static struct piece pieces[3];

/* Asks for a function, both ways, and prints the answer. */
static void *find(const char *name, int version) {
    CUresult (*old)(const char *, void **, int, unsigned long long) = NULL;
    void *function = &pieces, *same = &pieces;
    int status = 77;
    CUresult answer = cuGetProcAddress(name, &function, version, FLAGS, (void *)&status);
    printf("%s of %d: %d, status %d, %s\n", name, version, (int)answer, status, function ? "found" : "none");
    CHECK(cuGetProcAddress("cuGetProcAddress", (void **)&old, 11030, FLAGS, NULL));
    answer = old(name, &same, version, FLAGS);
    printf("%s of %d, asked of old: %d, %s\n", name, version, (int)answer,
           same == function ? "the same" : same == &pieces ? "as it was" : "something else");
    return function;
}

/* One copy goes on to the next: by whichever functions there are. */
static void play_copies(void) {
    for (unsigned i = 0; i < COUNT_OF(pieces); i++) pieces[i] = piece_new(&tools, BYTES, i + 1, NULL);
    CHECK(cuCtxSynchronize());
    known_copy *known = find("cuMemcpyDtoDAsync", TODAY);
    newer_copy *newer = find("cuMemcpyDtoDAsync", TOMORROW);
    copy_of_tomorrow *tomorrows = find("cuMemcpyOfTomorrow", TOMORROW);
    find("cuMemcpyOfTomorrow", TODAY);
    find("cuNoSuchFunction", TOMORROW);
    printf("the loader finds %s\n", dlsym(RTLD_DEFAULT, "cuMemcpyOfTomorrow") ? "it" : "none");
    printf("no older one in its place: %d\n", (void *)newer != (void *)known);

    wait_for_line();
    CUresult answer = tomorrows ? tomorrows(pieces[1].at, pieces[0].at, BYTES, NULL, 1, 2, 3, 4, 0.5, 5, 6)
                                : known(pieces[1].at, pieces[0].at, BYTES, NULL);
    CHECK(answer);
    wait_for_line();
    answer = newer ? newer(NULL, BYTES, pieces[1].at, pieces[2].at) : known(pieces[2].at, pieces[1].at, BYTES, NULL);
    CHECK(answer);
    wait_for_line();
    fill *other = find("cuMemsetD32", TOMORROW);
    CHECK(other(pieces[1].at, 1, BYTES / 4));
    CHECK(known(pieces[1].at, pieces[2].at, BYTES, NULL));
    wait_for_line();
    for (unsigned i = 0; i < COUNT_OF(pieces); i++) {
        pieces[i].seed = pieces[0].seed;
        piece_check(&tools, &pieces[i], "a piece", 0);
    }
}

int main(int argc, char **argv) {
    static const struct legal_case cases[] = {{"copies", play_copies}};
    return play(argc, argv, take_gpu, cases, COUNT_OF(cases));
}
