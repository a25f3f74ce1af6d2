/* The audit: one JSON line per request, appended with one write(2) to the descriptor given at
 * start. */
#pragma once

#include <stdint.h>

#include "util/err.h"

struct egress_audit;

struct egress_audit_entry {
    int64_t started_ms; /* Unix time */
    const char *sandbox;
    const char *boot_id;
    const char *rule;     /* NULL: none */
    const char *decision; /* "allowed", "denied", "refused", "inactive", "error" */
    const char *reason;   /* "" when allowed and whole */
    const char *method;
    const char *host;
    const char *path;             /* without the query: its values are not logged */
    int status;                   /* as sent to the sandbox; 0: none was */
    uint64_t bytes_out, bytes_in; /* body bytes to and from the upstream */
    int64_t first_byte_ms, duration_ms;
    const char *ended_by; /* "client", "upstream", "policy", "limit" */
};

int egress_audit_open(int fd, struct egress_audit **ret, struct err *err); /* takes the fd */
void egress_audit_close(struct egress_audit *audit);
void egress_audit_write(struct egress_audit *audit, const struct egress_audit_entry *entry);
