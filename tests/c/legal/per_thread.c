/* A program whose stream 0 is the thread's own: it waits for no other stream, and none for it. */
#define CUDA_API_PER_THREAD_DEFAULT_STREAM
#include "legal.h"

enum { LAUNCHES = 100 };

/* A blocking stream waits for what the thread's own is given to do behind many launches. */
static void launches(void) {
    CUstream blocking = stream_new(CU_STREAM_DEFAULT);
    volatile unsigned *flag = flags_new(1);
    struct piece piece = piece_new(&tools, 4096, 1, NULL);
    CHECK(cuStreamSynchronize(NULL));
    wait_flag(blocking, flag);
    wait_for_line();
    for (unsigned i = 0; i < LAUNCHES; i++) piece_write(&tools, &piece, i, NULL);
    write_flag(NULL, flag);
    step("waiting for a stream that waits for this thread's launches");
    CHECK(cuStreamSynchronize(blocking));
    CHECK(cuStreamSynchronize(NULL));
    piece_check(&tools, &piece, "what the last launch wrote", 0);
    printf("launched\n");
}

int main(int argc, char **argv) {
    static const struct legal_case cases[] = {{"launches", launches}};
    return play(argc, argv, take_gpu, cases, COUNT_OF(cases));
}
