/*
 * What sandboxes use of models, as egress tells it, and what of their budget is left. It is kept in
 * meta.json: at the end of a task, at a stop, and else at most SPENDING_SAVE_MS after it was told.
 */
#include <string.h>

#include "supervisor/table.h"

#define SPENDING_SAVE_MS 5000

static void spending_on_time(void *ctx)
{
    struct sandbox *sandbox = ctx;
    event_free(&sandbox->spending);
    table_save(sandbox);
}

void spending_end(struct sandbox *sandbox)
{
    if (sandbox->spending)
        spending_on_time(sandbox);
}

void spending_add(struct supervisor *supervisor, const struct msg_usage *body)
{
    struct model_usage usage = body->usage;
    struct sandbox *sandbox = table_find(supervisor, IPC_TEXT(body->name));
    usage.model[MODEL_NAME_BYTES] = '\0';
    if (!sandbox)
        return;
    model_usage_add(&sandbox->meta.usage, &usage);
    if (body->task && body->task == sandbox->meta.task_count)
        model_usage_add(&sandbox->meta.task_usage, &usage);
    if (!sandbox->spending)
        sandbox->spending =
            event_timer(&supervisor->loop, SPENDING_SAVE_MS, 0, spending_on_time, sandbox);
}

bool spending_is_over(const struct meta *meta, char *ret, size_t size)
{
    const struct settings *settings = &meta->settings;
    bool lacks_requests =
        settings->budget_requests && meta->usage.requests >= settings->budget_requests;
    bool lacks_tokens = settings->budget_output_tokens &&
                        meta->usage.output_tokens >= settings->budget_output_tokens;
    if (lacks_requests)
        snprintf(ret, size,
                 "The budget of %s is spent: %lld of %lld requests to models were made. "
                 "`paddock set %s --budget-requests N` raises it.",
                 meta->name, (long long)meta->usage.requests, (long long)settings->budget_requests,
                 meta->name);
    else if (lacks_tokens)
        snprintf(ret, size,
                 "The budget of %s is spent: %lld of %lld output tokens were used. "
                 "`paddock set %s --budget-output-tokens N` raises it.",
                 meta->name, (long long)meta->usage.output_tokens,
                 (long long)settings->budget_output_tokens, meta->name);
    return lacks_requests || lacks_tokens;
}
