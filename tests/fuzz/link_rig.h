/* Exchanges with an upstream that is the fuzzer: the real upstream.c, origin.c and link*.c; the
 * dialling is a stand-in, and what it leads to a pair of sockets. */
#pragma once

#include "egress/link.h"
#include "util/buf.h"

/* What the owner of an exchange was told. Heads, fields and body as one text each. */
struct told {
    struct egress_exchange *exchange; /* NULL: it is over */
    bool is_head;                     /* the request was a HEAD */
    unsigned pauses; /* a pattern: at which pieces of body the owner wants to wait */
    unsigned pieces;
    unsigned interims;
    int status;        /* of the answer; 0: none came */
    bool is_delimited; /* by its head: the end of the connection is not the answer's */
    int64_t length;    /* -1: none told */
    struct buf heads, body, trailers;
    bool is_over, keeps_link;
    enum egress_failure failure;
};

/* Once. */
void rig_open(void);
/* A request to `https://u.test` that waits to be released, or (is_held false) for its link. */
void rig_start(struct told *told, const struct egress_request *request);
/* The connection that was asked for last is made; returns the upstream's end of it. */
int rig_connect(void);
/* Or it cannot be made, if one was asked for. */
void rig_refuse(void);
/* Runs the loop until nothing is due any more. */
void rig_settle(void);
/* Sends to the link, in as many pieces as the socket makes of it, and lets it be used. False: the
 * link is gone. What was paused goes on when the socket is full. */
bool rig_feed(int fd, const void *data, size_t len);
/* Reads away what the link has sent. */
void rig_drain(int fd);
/* The link there is, or NULL. */
struct link *rig_link(void);
/* Cancels and closes all there is; nothing may be left. */
void rig_finish(void);
/* The process's memory that is in use. */
size_t rig_bytes(void);
/* The owner waits no more. */
void told_go_on(struct told *told);
void told_expect_same(const struct told *one, const struct told *other);
/* As far as one of them came. */
void told_expect_alike(const struct told *one, const struct told *other);
void told_free(struct told *told);
