/* See counts.h. The table lives as long as the process. */
#include "egress/counts.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "util/cleanup.h"

#define TELL_MS 1000

struct egress_counts {
    uv_timer_t timer;
    bool (*tell)(void *ctx, const struct rule_counts *counts);
    void *ctx;
    size_t count;
    bool is_untold[LIMIT_RULE_COUNTS];
    struct rule_counts
        rules[LIMIT_RULE_COUNTS]; /* the first: of no rule, and of what has no room */
};

int egress_counts_open(uv_loop_t *loop, bool (*tell)(void *ctx, const struct rule_counts *counts),
                       void *ctx, struct egress_counts **ret, struct err *err)
{
    struct egress_counts *counts = calloc(1, sizeof(*counts));
    if (!counts)
        return err_errno(err, ENOMEM, "cannot count requests");
    counts->tell = tell;
    counts->ctx = ctx;
    counts->count = 1;
    uv_timer_init(loop, &counts->timer);
    counts->timer.data = counts;
    *ret = counts;
    return 0;
}

static void on_time(uv_timer_t *timer)
{
    struct egress_counts *counts = timer->data;
    for (size_t i = 0; i < counts->count; i++) {
        struct rule_counts *rule = &counts->rules[i];
        struct rule_counts none = {0};
        if (!counts->is_untold[i])
            continue;
        if (!counts->tell(counts->ctx, rule)) {
            uv_timer_start(timer, on_time, TELL_MS, 0);
            return;
        }
        memcpy(none.rule, rule->rule, sizeof(none.rule));
        *rule = none;
        counts->is_untold[i] = false;
    }
}

static size_t find_rule(struct egress_counts *counts, const char *name)
{
    size_t i = 0;
    while (i < counts->count && strcmp(counts->rules[i].rule, name) != 0)
        i++;
    if (i < counts->count)
        return i;
    if (counts->count == LIMIT_RULE_COUNTS)
        return 0;
    snprintf(counts->rules[i].rule, sizeof(counts->rules[i].rule), "%s", name);
    return counts->count++;
}

void egress_counts_add(struct egress_counts *counts, const char *rule, const char *decision,
                       const struct rule_counts *one)
{
#define WORD(word) #word,
    static const char *const words[] = {COUNT_DECISIONS(WORD)};
#undef WORD
    if (!counts)
        return;
    size_t index = find_rule(counts, rule);
    struct rule_counts *to = &counts->rules[index];
    for (size_t i = 0; i < ARRAY_LEN(words); i++)
        to->decisions[i] += strcmp(words[i], decision) == 0;
    for (size_t i = 0; i < COUNT_FAILURE_COUNT; i++)
        to->failures[i] += one->failures[i];
    to->bytes_out += one->bytes_out;
    to->bytes_in += one->bytes_in;
    model_usage_add(&to->usage, &one->usage);
    counts->is_untold[index] = true;
    if (!uv_is_active((uv_handle_t *)&counts->timer))
        uv_timer_start(&counts->timer, on_time, TELL_MS, 0);
}
