/*
 * Requests to models: the budget's limit, and what their answers tell of tokens, which is counted
 * for the sandbox and told to the supervisor when the call is over. Process: paddock-egress. Bytes
 * are read after they were handed on, and nothing here can hold them up.
 */
#include <string.h>

#include "egress/call_internal.h"
#include "egress/usage.h"
#include "util/cleanup.h"
#include "json/json.h"

static bool is_model(const struct policy_rule *rule)
{
    return rule && policy_rule_usage(rule) != POLICY_USAGE_NONE;
}

static bool is_counted(const struct call *call)
{
    return is_model(call->rule);
}

/* ------------------------------------------------------------------------------- the budget */

/* Where a rule is for both, the path tells: /v1/messages, and gateways that name the provider. */
static bool is_anthropic(const struct call *call)
{
    enum policy_usage usage = policy_rule_usage(call->rule);
    const char *path = buf_text(&call->path);
    if (usage != POLICY_USAGE_AUTO)
        return usage == POLICY_USAGE_ANTHROPIC;
    return strstr(path, "/messages") || strstr(path, "/anthropic");
}

static int write_refusal(const struct call *call, const char *text, struct buf *ret)
{
    struct json_writer *writer = json_writer_new(ret, false);
    bool is_openai = !is_anthropic(call);
    if (!writer)
        return -ENOMEM;
    json_write_object_begin(writer);
    if (!is_openai)
        json_write_pair_string(writer, "type", "error");
    json_write_key(writer, "error");
    json_write_object_begin(writer);
    json_write_pair_string(writer, "type", is_openai ? "insufficient_quota" : "billing_error");
    json_write_pair_string(writer, "message", text);
    if (is_openai)
        json_write_pair_string(writer, "code", "insufficient_quota");
    json_write_object_end(writer);
    json_write_object_end(writer);
    return json_writer_end(writer);
}

bool call_has_budget(struct call *call)
{
    const struct egress_meter *meter = egress_sandbox_meter(call->sandbox);
    bool lacks_requests = meter->budget_requests && meter->requests >= meter->budget_requests;
    bool lacks_tokens =
        meter->budget_output_tokens && meter->output_tokens >= meter->budget_output_tokens;
    if (!is_counted(call) || (!lacks_requests && !lacks_tokens))
        return true;
    char text[256];
    struct refusal refusal;
    cleanup_buf struct buf body = BUF_INIT(REFUSE_BODY_MAX);
    snprintf(text, sizeof(text), "The budget of this sandbox is spent: %lld of %lld %s",
             (long long)(lacks_requests ? meter->requests : meter->output_tokens),
             (long long)(lacks_requests ? meter->budget_requests : meter->budget_output_tokens),
             lacks_requests ? "requests to models were made" : "output tokens were used");
    refuse_with(402, text, &refusal);
    if (write_refusal(call, text, &body) == 0) {
        refusal.own_type = "application/json";
        refusal.own_body = buf_text(&body);
        refusal.own_len = body.len;
    }
    call_answer_refusal(call, &refusal, "denied");
    return false;
}

bool call_is_blind(struct call *call, const struct policy_rule *rule)
{
    struct refusal refusal;
    if (!call->is_upgrade || !is_model(rule) ||
        !egress_sandbox_meter(call->sandbox)->budget_output_tokens)
        return false;
    refuse_with(403,
                "what a WebSocket to a model uses cannot be counted, and this sandbox has a budget "
                "of output tokens",
                &refusal);
    call_answer_refusal(call, &refusal, "denied");
    return true;
}

static bool take_decoder(struct call *call)
{
    struct egress_meter *meter = egress_sandbox_meter(call->sandbox);
    if (!call->has_decoder && meter->decoders < LIMIT_USAGE_DECODERS) {
        call->has_decoder = true;
        meter->decoders++;
    }
    return call->has_decoder;
}

/* An answer that is coded in a way that is not read, or while too many others are, would not be
 * counted: the upstream is not asked for such a one. */
bool call_usage_drops(struct call *call, const struct http_field *header)
{
    return is_counted(call) && http_field_is(header, "accept-encoding") &&
           (!usage_reads_all(header->value, header->value_len) || !take_decoder(call));
}

/* ------------------------------------------------------------------------------- counting */

static void tell(struct call *call)
{
    struct egress_meter *meter = egress_sandbox_meter(call->sandbox);
    struct egress *egress = call->egress;
    if (egress->tell_usage && egress->tell_usage(egress, egress_sandbox_name(call->sandbox),
                                                 meter->pending_task, &meter->pending))
        meter->pending = (struct model_usage){0};
}

/* What was not told yet of another task is told first; if that cannot be, it counts as this one's:
 * the sum is right. */
static void count(struct call *call, const struct model_usage *more)
{
    struct egress_meter *meter = egress_sandbox_meter(call->sandbox);
    if (meter->pending_task != call->task && meter->pending.requests)
        tell(call);
    meter->pending_task = call->task;
    model_usage_add(&meter->pending, more);
    meter->output_tokens += more->output_tokens;
    tell(call);
}

void call_usage_begin(struct call *call)
{
    if (!is_counted(call))
        return;
    call->usage.requests = 1;
    egress_sandbox_meter(call->sandbox)->requests++;
}

static void find_value(const struct http_field *fields, size_t count, const char *name,
                       const char **ret, size_t *ret_len)
{
    *ret = "";
    *ret_len = 0;
    for (size_t i = 0; i < count; i++) {
        if (!http_field_is(&fields[i], name))
            continue;
        *ret = *ret_len ? "?" : fields[i].value; /* more than one is none that is read */
        *ret_len = *ret_len ? 1 : fields[i].value_len;
    }
}

void call_usage_head(struct call *call, int status, const struct http_field *fields, size_t count)
{
    const char *type, *encoding;
    size_t type_len, encoding_len;
    if (!call->usage.requests || (status < 200 && status != 101))
        return;
    if (status >= 400) {
        call->usage.errors = 1;
        return;
    }
    find_value(fields, count, "content-type", &type, &type_len);
    find_value(fields, count, "content-encoding", &encoding, &encoding_len);
    if (status != 101 && (!encoding_len || take_decoder(call)))
        call->reader =
            usage_reader_new(policy_rule_usage(call->rule), type, type_len, encoding, encoding_len);
    call->usage.unread = call->reader == NULL;
}

void call_usage_body(struct call *call, const char *data, size_t len)
{
    if (call->reader)
        usage_reader_feed(call->reader, data, len);
}

void call_usage_free(struct call *call)
{
    if (call->has_decoder)
        egress_sandbox_meter(call->sandbox)->decoders--;
    usage_reader_free(call->reader);
    call->reader = NULL;
    call->has_decoder = false;
}

void call_usage_end(struct call *call)
{
    struct usage_tokens tokens;
    struct model_usage *usage = &call->usage;
    if (!usage->requests)
        return;
    if (call->reader) {
        enum usage_result result = usage_reader_end(call->reader, &tokens);
        usage->unread = result != USAGE_FOUND && result != USAGE_NOTHING;
        usage->input_tokens = tokens.input;
        usage->output_tokens = tokens.output;
        usage->cache_read_tokens = tokens.cache_read;
        usage->cache_creation_tokens = tokens.cache_creation;
        snprintf(usage->model, sizeof(usage->model), "%s", tokens.model);
    }
    count(call, usage);
    call_usage_free(call);
}
