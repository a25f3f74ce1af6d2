/* What requests of sandboxes came to, by the policy's rule that decided: egress counts, the
 * supervisor keeps the sums for /metrics. */
#pragma once

#include <stdint.h>

#include <stddef.h>

#include "task/usage.h"
#include "util/limits.h"

/* COUNT_DECISION(word): the audit's words, in the order of the counters. */
#define COUNT_DECISIONS(COUNT_DECISION)                                                            \
    COUNT_DECISION(allowed)                                                                        \
    COUNT_DECISION(denied)                                                                         \
    COUNT_DECISION(refused)                                                                        \
    COUNT_DECISION(inactive)                                                                       \
    COUNT_DECISION(error)
#define COUNT_DECISION_ENUM(word) COUNT_##word,
enum { COUNT_DECISIONS(COUNT_DECISION_ENUM) COUNT_DECISION_COUNT };

/* COUNT_FAILURE(word): why an upstream did not answer, in the order of enum egress_failure. */
#define COUNT_FAILURES(COUNT_FAILURE)                                                              \
    COUNT_FAILURE(none)                                                                            \
    COUNT_FAILURE(name)                                                                            \
    COUNT_FAILURE(private)                                                                         \
    COUNT_FAILURE(connect)                                                                         \
    COUNT_FAILURE(timeout)                                                                         \
    COUNT_FAILURE(trust)                                                                           \
    COUNT_FAILURE(answer)                                                                          \
    COUNT_FAILURE(cut)                                                                             \
    COUNT_FAILURE(self)
#define COUNT_FAILURE_ENUM(word) COUNT_FAILED_##word,
enum { COUNT_FAILURES(COUNT_FAILURE_ENUM) COUNT_FAILURE_COUNT };

struct rule_counts {
    char rule[LIMIT_POLICY_NAME_BYTES + 1]; /* "": no rule */
    uint64_t decisions[COUNT_DECISION_COUNT];
    uint64_t failures[COUNT_FAILURE_COUNT];
    uint64_t bytes_out, bytes_in;
    struct model_usage usage;
};

/* By rule. The first is that of no rule, and of what has no room: count starts with 1. */
struct rule_table {
    size_t count;
    struct rule_counts rules[LIMIT_RULE_COUNTS];
};

/* The sum of the rule that `more` names, with it added: its index. */
size_t rule_table_add(struct rule_table *table, const struct rule_counts *more);
