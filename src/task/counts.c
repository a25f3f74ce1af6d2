/* See counts.h. */
#include "task/counts.h"

#include <stdio.h>
#include <string.h>

static size_t find_rule(struct rule_table *table, const char *rule)
{
    size_t i = 0;
    while (i < table->count && strcmp(table->rules[i].rule, rule) != 0)
        i++;
    if (i < table->count)
        return i;
    if (table->count == LIMIT_RULE_COUNTS)
        return 0;
    snprintf(table->rules[i].rule, sizeof(table->rules[i].rule), "%s", rule);
    return table->count++;
}

size_t rule_table_add(struct rule_table *table, const struct rule_counts *more)
{
    size_t index = find_rule(table, more->rule);
    struct rule_counts *to = &table->rules[index];
    for (size_t i = 0; i < COUNT_DECISION_COUNT; i++)
        to->decisions[i] += more->decisions[i];
    for (size_t i = 0; i < COUNT_FAILURE_COUNT; i++)
        to->failures[i] += more->failures[i];
    to->bytes_out += more->bytes_out;
    to->bytes_in += more->bytes_in;
    model_usage_add(&to->usage, &more->usage);
    return index;
}
