/* Checks and how they run: each in a process of its own, so that a call that hangs, an error that
 * stays with a context or a crash costs one check alone.
 */
#ifndef HARNESS_H
#define HARNESS_H

#include <stdbool.h>

#include "driver.h"

/* A check: what it asks, and its four numbers say which variant of it. */
typedef void (*Run)(const int *variant);

enum needs {
    ONE_GPU,  /* runs beside others, on any GPU */
    TWO_GPUS, /* sees both GPUs */
    ALONE,    /* measures time: nothing else runs meanwhile */
};

void add(const char *question, enum needs needs, Run run, int a, int b, int c, int d);

/* --- in a check ---------------------------------------------------------------------------- */

/* What the next answer is about. */
void about(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* One row of the result. */
void answer(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Ends the check unless a call that only prepares the question succeeded. */
#define MUST(call) must((call), #call, __LINE__)
void must(CUresult got, const char *call, int line);

double now_us(void);
void sleep_ms(unsigned ms);

/* The sources of questions. */
void add_ordering(void);
void add_waiting(void);
void add_capture(void);
void add_freeing(void);
void add_memory(void);
void add_peers(void);
void add_forking(void);
void add_handles(void);
void add_channels(void);
void add_spanning(void);

#endif
