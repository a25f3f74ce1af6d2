/* The audit: one JSON line per request, appended with one write(2) to the descriptor given at
 * start. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "util/err.h"
#include "util/limits.h"

struct egress_audit;

/* Texts: NULL is written as null. */
struct egress_audit_entry {
    int64_t started_ms; /* Unix time */
    const char *sandbox;
    const char *boot_id;
    int64_t task;         /* of the sandbox, from 1 on; 0: none ran when the request began */
    const char *rule;     /* NULL: none */
    const char *decision; /* "allowed", "denied", "refused", "inactive", "error" */
    const char *reason;   /* "" when allowed and whole */
    const char *method;
    const char *host;
    uint16_t port;                            /* 0: not known, the host was none */
    const char *path;                         /* without the query */
    const char *query;                        /* as it came: its values are not written */
    const char *protocol, *upstream_protocol; /* "h2", "http/1.1"; NULL: none was spoken */
    const char *tls, *upstream_tls;           /* "TLSv1.3"; NULL: none */
    int status;                               /* as sent to the sandbox; 0: none was */
    uint64_t bytes_out, bytes_in;             /* body bytes to and from the upstream */
    int64_t first_byte_ms, duration_ms;
    const char *ended_by;                          /* "client", "upstream", "policy", "limit" */
    const char *secrets[LIMIT_EGRESS_SET_HEADERS]; /* names of those that went along */
    size_t secret_count;
};

int egress_audit_open(int fd, struct egress_audit **ret, struct err *err); /* takes the fd */
/* Lines go there from now on; takes the fd. When it has `max_bytes`, `full` is called, and again
 * each time as much was added and no other file came. False from it: at the next line. */
void egress_audit_turn(struct egress_audit *audit, int fd, int64_t max_bytes,
                       bool (*full)(void *ctx), void *ctx);
/* Sends the sandbox's lines there too, each as a packet, from now on; the first packet tells which
 * place of the file was reached. Takes the socket; -1: forgets those of this sandbox. What does not
 * fit is counted, and told when there is room again. */
void egress_audit_watch(struct egress_audit *audit, const char *sandbox, int fd);
void egress_audit_close(struct egress_audit *audit);
void egress_audit_write(struct egress_audit *audit, const struct egress_audit_entry *entry);
