/* How to ask a coordinator for its status, from C.
 *
 * A message is one datagram of a SOCK_SEQPACKET socket (AF_UNIX), all of it little-endian. Send one struct
 * baton_status_question. The answers are struct baton_status_answer, each followed by `length` bytes of JSON and a uint32_t that is
 * 1 if more pieces follow. The pieces, one behind the other, are the output of `baton status --json`;
 * docs/status.schema.json describes it.
 */
#ifndef BATON_STATUS_H
#define BATON_STATUS_H

#include <stdint.h>

/* The version of the contract: both sides have to have the same. */
#define BATON_VERSION 22u
/* No message is longer, in bytes. */
#define BATON_MAX_MESSAGE 32768u
/* The coordinator's only GPU, of any number. */
#define BATON_ANY_GPU UINT32_MAX
/* The question: how do things stand? */
#define BATON_KIND_STATUS 3u
/* The answers: a piece of a text; or no. */
#define BATON_KIND_TEXT 5u
#define BATON_KIND_REFUSED 3u

struct baton_status_question {
    uint32_t version; /* BATON_VERSION */
    uint32_t kind;    /* BATON_KIND_STATUS */
    uint32_t gpu;     /* BATON_ANY_GPU */
};

struct baton_status_answer {
    uint32_t version; /* BATON_VERSION */
    uint32_t kind;    /* BATON_KIND_TEXT */
    uint32_t gpu;
    uint32_t length; /* of the piece that follows, in bytes */
};

#endif
