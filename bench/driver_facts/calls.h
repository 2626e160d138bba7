/* The calls that several questions make in turn: while a stream captures, while a stream waits,
 * while a stream's launch queue is full.
 */
#ifndef CALLS_H
#define CALLS_H

#include "world.h"

/* The name of a call; null past the last. */
const char *call_name(int which);
/* What the call needs, before the situation begins; on the thread that has the context. */
void prepare_call(int which);
/* When the situation has begun: the stream waits, or captures. */
void situation_begun(void);
CUresult make_call(int which);

/* The stream that captures, waits or is full. */
extern CUstream subject;

/* Makes the streams and events that calls use. */
void begin_calls(void);

#endif
