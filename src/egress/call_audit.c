/*
 * What is written down of a call: its line of the audit. Process: paddock-egress.
 */
#include <assert.h>

#include "egress/audit.h"
#include "egress/call_internal.h"
#include "egress/counts.h"

void call_note_upstream(struct call *call)
{
    call->upstream_protocol = egress_exchange_protocol(call->exchange);
    call->upstream_tls = egress_exchange_tls(call->exchange);
}

static void on_secret_name(void *ctx, const char *name)
{
    struct egress_audit_entry *entry = ctx;
    if (entry->secret_count < LIMIT_EGRESS_SET_HEADERS)
        entry->secrets[entry->secret_count++] = name;
}

static_assert((int)COUNT_FAILED_self == (int)EGRESS_FAILED_SELF &&
                  (int)COUNT_FAILED_trust == (int)EGRESS_FAILED_TRUST,
              "the failures are not in the order of enum egress_failure");

static void count_call(const struct call *call, const char *decision)
{
    struct rule_counts one = {
        .bytes_out = call->bytes_out, .bytes_in = call->bytes_in, .usage = call->usage};
    one.failures[call->failure] = call->failure != EGRESS_COMPLETE;
    egress_counts_add(call->egress->counts, call->rule ? policy_rule_name(call->rule) : "",
                      decision, &one);
}

void call_audit(struct call *call, const char *decision, const char *reason, const char *ended_by)
{
    int64_t now = (int64_t)uv_now(call->egress->loop);
    int64_t started = (int64_t)call->started_at;
    if (call->is_over)
        return;
    call->is_over = true;
    call_usage_end(call);
    count_call(call, decision);
    struct egress_audit_entry entry = {
        .started_ms = call->started_ms,
        .sandbox = egress_sandbox_name(call->sandbox),
        .boot_id = egress_sandbox_boot_id(call->sandbox),
        .task = call->task,
        .rule = call->rule ? policy_rule_name(call->rule) : NULL,
        .decision = decision,
        .reason = reason,
        .method = call->method,
        .host = call->host,
        .port = call->host[0] ? call->port : 0,
        .path = buf_text(&call->path),
        .query = buf_text(&call->query),
        .protocol = call->protocol,
        .tls = call->tls,
        .upstream_protocol = call->upstream_protocol,
        .upstream_tls = call->upstream_tls,
        .status = call->status,
        .bytes_out = call->bytes_out,
        .bytes_in = call->bytes_in,
        .first_byte_ms =
            call->first_byte_at ? (int64_t)call->first_byte_at - started : now - started,
        .duration_ms = now - started,
        .ended_by = ended_by,
    };
    if (call->was_sent)
        policy_rule_secrets(call->rule, on_secret_name, &entry);
    egress_audit_write(call->egress->audit, &entry);
}
