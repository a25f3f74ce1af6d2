/*
 * A client of the sandbox that is the fuzzer, against the real conn*.c and call*.c; the upstreams
 * are a stand-in that looks at what is passed on, and answers as a script says. Requests are for
 * u.test.
 */
#pragma once

#include "egress/conn.h"
#include "util/buf.h"

/* What a request's answer is, a byte each; the low bits choose, see answer in front_rig.c. */
#define FRONT_SILENT 0x00 /* none */
#define FRONT_CUTS(script) ((script) % 8 == 4 || (script) % 8 == 6)
#define FRONT_SLOW 0x08   /* takes three bytes of a body at a time */
#define FRONT_FRAMED 0x10 /* as over HTTP/2: the answer needs no length */

/* One that was passed on. */
struct passed {
    struct buf head; /* method, target and fields, a line each */
    struct buf body;
    struct buf trailers;
    uint64_t length; /* of a body whose length was told */
    enum egress_body kind;
    unsigned script;
    bool has_ended; /* the request did, as a whole */
    bool is_over;   /* so is the exchange */
    bool has_answer;
    void *ctx; /* the call, while it is not */
    int32_t stream;
};
#define FRONT_PASSED_MAX 4096
extern struct passed front_passed[FRONT_PASSED_MAX];
extern size_t front_passed_count;
extern size_t front_audited; /* lines of the audit */

void front_open(void); /* once */
/* A connection that has spoken HTTP/1.1 or (is_h2) HTTP/2 so far; returns the client's end.
 * scripts[i % count] is the answer of the i-th request. */
int front_start(bool is_h2, const uint8_t *scripts, size_t count);
struct egress_conn *front_conn(void); /* NULL: it is closed */
/* Moves bytes, and answers, until nothing is due. */
void front_settle(void);
/* Sends what is taken at once, and lets it be used. Returns how much. */
size_t front_feed(int fd, const void *data, size_t len);
/* Closes, and frees what was passed on. */
void front_finish(int fd);
