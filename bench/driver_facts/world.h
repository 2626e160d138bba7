/* What most checks need: a context, kernels, streams, words that the host and the GPU share. */
#ifndef WORLD_H
#define WORLD_H

#include <pthread.h>
#include <stdint.h>

#include "harness.h"

#define MIB ((size_t)1 << 20)
#define LEGACY ((CUstream)1)
#define PER_THREAD ((CUstream)2)

struct world {
    CUdevice device;
    CUcontext context; /* the GPU's primary context, as CUDA's runtime uses it */
    CUmodule module;
    CUfunction spinning, filling, summing;
    volatile unsigned *words; /* host memory that kernels read and write */
    CUdeviceptr scratch;      /* 4 KiB for what kernels write and nobody reads */
};

extern struct world world;
extern const char *kernels_ptx;

/* Makes the world on a GPU. Every kernel has run once, so that none is loaded later. */
void begin(int gpu);
/* The same in a further context, of which it becomes the current one. */
struct world another_world(int gpu, CUcontext context);

CUstream blocking(void);
CUstream non_blocking(void);
CUevent an_event(void);
/* An event whose work has completed. */
CUevent old_event(void);
CUdeviceptr memory(size_t bytes);

/* --- work that waits ------------------------------------------------------------------------ */

enum { FLAGS = 512, MARKS = 2048 }; /* where words begin */
/* How long work waits beside a call that may wait for it: longer than any call takes by itself. */
enum { DELAY_MS = 800 };

enum wait_kind { BY_KERNEL, BY_WAIT_VALUE };
extern const char *const wait_kinds[];

/* The stream waits until flag `at` is raised. */
void wait_in(CUstream stream, enum wait_kind kind, int at);
void raise_flag(int at);
bool is_raised(int at);
void raise_after(int at, unsigned ms);
/* A kernel that sets mark `at`. */
CUresult try_mark_in(CUstream stream, int at);
void mark_in(CUstream stream, int at);
bool marked(int at, unsigned within_ms);
bool ready(CUevent event, unsigned within_ms);

/* --- streams that can be busy ---------------------------------------------------------------- */

enum who {
    NOBODY,
    BLOCKING,
    NON_BLOCKING,
    LEGACY_STREAM,
    OWN_PER_THREAD,
    OTHERS_PER_THREAD, /* another thread's per-thread default stream */
    WITH_PRIORITY,
    OTHER_CONTEXT,     /* a stream of another context of the GPU */
    GREEN_CONTEXT,     /* a stream of a green context */
    DESTROYED,         /* a stream that is destroyed while it waits */
    HOST_FUNCTION,     /* a non-blocking stream that waits in a host function */
    GRAPH,             /* a non-blocking stream that runs a graph */
};
extern const char *const whos[];
/* The stream waits for flag `at`; returns it, or null where the stream cannot be named here. */
CUstream busy(enum who who, enum wait_kind kind, int at);
/* After `busy(GREEN_CONTEXT, …)`. */
extern CUgreenCtx green_context;

/* Runs on a thread of its own and waits for it to end. */
void on_thread(void (*run)(void *), void *data);
void start_thread(void (*run)(void *), void *data);

#endif
