/* Memory of the virtual memory calls: a process's own, or another's, over a descriptor. */
#ifndef MAPPED_H
#define MAPPED_H

#include "world.h"

/* Starts a process that makes `count` exportable handles on a GPU; before this one opens the driver. */
void start_exporter(int gpu, int count, size_t bytes);
/* The next handle's descriptor. */
int take_descriptor(void);
enum { SEEN = 64 << 10 };
/* How many of the first `SEEN` bytes of the first handle are not zero, as that process sees them. */
int written_bytes(void);

CUmemGenericAllocationHandle own_handle(int gpu, size_t bytes, bool exportable);
CUmemGenericAllocationHandle imported(int descriptor);
int exported(CUmemGenericAllocationHandle handle);
CUdeviceptr reserved(size_t bytes);
CUmemAccessDesc access_of(int gpu);
/* Maps a handle with access for one GPU. */
CUdeviceptr mapped(CUmemGenericAllocationHandle handle, size_t bytes, int gpu);

#endif
