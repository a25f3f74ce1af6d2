/*
 * What requests came to, by rule; told to the supervisor about a second after it happened, for its
 * /metrics. Process: paddock-egress. Names are those of the policies' rules: nothing that a sandbox
 * says becomes one.
 */
#pragma once

#include <stdbool.h>
#include <uv.h>

#include "task/counts.h"
#include "util/err.h"

struct egress_counts;

/* `tell` gives what came since it last took it; false: not now. */
int egress_counts_open(uv_loop_t *loop, bool (*tell)(void *ctx, const struct rule_counts *counts),
                       void *ctx, struct egress_counts **ret, struct err *err);
/* A request is over; `decision` is the audit's word, and what is not of it in `one` is 0. NULL
 * counts nothing. */
void egress_counts_add(struct egress_counts *counts, const char *rule, const char *decision,
                       const struct rule_counts *one);
