/* Calls the driver, and uses memory that it has freed. */
#include <stdlib.h>

#include "baton_cuda.h"

int main(void) {
    int version = 0;
    char *volatile piece = malloc(64);
    if (cuDriverGetVersion(&version) || !piece) return 2;
    free(piece);
    return piece[version & 1];
}
