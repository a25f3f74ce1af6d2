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
    struct rule_table table;
    bool is_untold[LIMIT_RULE_COUNTS];
};

int egress_counts_open(uv_loop_t *loop, bool (*tell)(void *ctx, const struct rule_counts *counts),
                       void *ctx, struct egress_counts **ret, struct err *err)
{
    struct egress_counts *counts = calloc(1, sizeof(*counts));
    if (!counts)
        return err_errno(err, ENOMEM, "cannot count requests");
    counts->tell = tell;
    counts->ctx = ctx;
    counts->table.count = 1;
    uv_timer_init(loop, &counts->timer);
    counts->timer.data = counts;
    *ret = counts;
    return 0;
}

static void on_time(uv_timer_t *timer)
{
    struct egress_counts *counts = timer->data;
    for (size_t i = 0; i < counts->table.count; i++) {
        struct rule_counts *rule = &counts->table.rules[i];
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

void egress_counts_add(struct egress_counts *counts, const char *rule, const char *decision,
                       const struct rule_counts *one)
{
#define WORD(word) #word,
    static const char *const words[] = {COUNT_DECISIONS(WORD)};
#undef WORD
    if (!counts)
        return;
    struct rule_counts more = *one;
    snprintf(more.rule, sizeof(more.rule), "%s", rule);
    for (size_t i = 0; i < ARRAY_LEN(words); i++)
        more.decisions[i] = strcmp(words[i], decision) == 0;
    size_t index = rule_table_add(&counts->table, &more);
    counts->is_untold[index] = true;
    if (!uv_is_active((uv_handle_t *)&counts->timer))
        uv_timer_start(&counts->timer, on_time, TELL_MS, 0);
}
