/* A driver that takes a while to be opened, and answers one question. */
#include <unistd.h>

__attribute__((constructor)) static void take_a_while(void) { usleep(600 * 1000); }

int cuDriverGetVersion(int *version) {
    if (version) *version = 12000;
    return 0;
}
