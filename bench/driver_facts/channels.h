/* This process's channels on NVIDIA's driver, and taking them off the GPU. */
#ifndef CHANNELS_H
#define CHANNELS_H

#include <stdbool.h>
#include <stdint.h>

enum { MOST_CHANNELS = 64 };

struct object { /* how both kinds of request for a new one begin */
    uint32_t client, parent, handle, class;
};

/* How many channels the driver has made in this process so far, and where they are. */
int channels_made(const struct object **first);
/* Disables or enables channels of one GPU, at most MOST_CHANNELS; the resource manager's answer. */
uint32_t change(bool disable, const struct object *first, int count);

#endif
