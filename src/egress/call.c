/*
 * A request's way out. Process: paddock-egress. The order is the promise: read strictly,
 * canonicalise, SNI equals Host, the policy decides, headers are removed and set, and exactly what
 * was judged is sent. Anything that is not understood is refused.
 */
#include <stdlib.h>
#include <string.h>

#include "egress/call_internal.h"
#include "util/cleanup.h"
#include "util/clock.h"

/* Headers of a request, and those that the rule sets. */
struct header_list {
    struct http_field items[LIMIT_HTTP_FIELDS + LIMIT_EGRESS_SET_HEADERS];
    size_t count;
};

void call_close(struct call *call)
{
    if (call->exchange)
        egress_exchange_cancel(call->exchange);
    call->exchange = NULL;
    call_usage_free(call);
    if (call->is_wide)
        egress_sandbox_meter(call->sandbox)->wide--;
    call->is_wide = false;
    policy_unref(call->policy);
    for (size_t i = 0; i < call->secret_count; i++)
        secret_free(&call->secrets[i]);
    buf_free(&call->path);
    buf_free(&call->query);
    free(call->push);
    call->push = NULL;
    call->policy = NULL;
    call->rule = NULL;
    call->secret_count = 0;
}

void call_open(struct call *call, const char *method)
{
    struct call fresh = {
        .egress = call->egress,
        .sandbox = call->sandbox,
        .front = call->front,
        .sni = call->sni,
        .is_tls = call->is_tls,
        .conn_port = call->conn_port,
        .protocol = call->protocol,
        .tls = call->tls,
        .task = egress_sandbox_meter(call->sandbox)->task,
        .path = BUF_INIT(LIMIT_EGRESS_HEAD_BYTES),
        .query = BUF_INIT(LIMIT_EGRESS_HEAD_BYTES),
        .is_head = strcmp(method, "HEAD") == 0,
        .started_ms = clock_unix_ms(),
        .started_at = uv_now(call->egress->loop),
    };
    call_close(call);
    *call = fresh;
    snprintf(call->method, sizeof(call->method), "%s", method);
}

/* What is no request that we take ends the connection: who sent it may have meant the bytes behind
 * it as something else than a request (a tunnel's, another protocol's). */
void call_refuse(struct call *call, int status, const char *reason)
{
    struct refusal refusal;
    call->ends_connection = true;
    refuse_with(status, reason, &refusal);
    call_answer_refusal(call, &refusal, "refused");
}

/* On port 80 there is only refusal, so a name that is none is refused as one that is unknown. */
static void refuse_plain_host(struct call *call, struct http1_text host)
{
    struct policy_verdict verdict = {.decision = POLICY_DENIED};
    struct refusal refusal;
    char name[POLICY_HOST_MAX];
    snprintf(name, sizeof(name), "%.*s", (int)host.len, host.data);
    refuse_by_verdict(&verdict, name, &refusal);
    call_answer_refusal(call, &refusal, "denied");
}

/* The host of the request, the same in Host, in the target if it stands there, and in SNI. */
static bool find_host(struct call *call, const struct call_request *request,
                      struct http1_text authority)
{
    uint16_t default_port = call->is_tls ? 443 : 80;
    const char *sni = call->sni;
    struct http1_text host = request->host.len ? request->host : authority;
    struct err err;
    if (host.len == 0 && sni)
        host = (struct http1_text){sni, strlen(sni)};
    if (policy_canonical_host(host.data, host.len, default_port, call->host, &call->port, &err)) {
        call->host[0] = '\0';
        if (call->is_tls || host.len == 0)
            call_refuse(call, 400, "the request's host is not a name");
        else
            refuse_plain_host(call, host);
        return false;
    }
    char other[POLICY_HOST_MAX];
    uint16_t other_port;
    if (authority.len && (policy_canonical_host(authority.data, authority.len, default_port, other,
                                                &other_port, &err) ||
                          strcmp(other, call->host) != 0 || other_port != call->port)) {
        call_refuse(call, 400, "the request's target names another host than its Host header");
        return false;
    }
    if (call->port != call->conn_port) {
        call_refuse(call, 421,
                    "the Host header names another port than the connection was made to");
        return false;
    }
    if (call->is_tls && (!sni || strcmp(sni, call->host) != 0)) {
        call_refuse(call, 421,
                    "the Host header names another host than the TLS connection was made to");
        return false;
    }
    return true;
}

static bool find_target(struct call *call, const struct call_request *request)
{
    struct http1_text authority;
    struct http1_text path;
    struct err err;
    if (http1_target_split(request->target, call->is_tls ? "https" : "http", &authority, &path,
                           &err)) {
        call_refuse(call, 400, err.message);
        return false;
    }
    if (!find_host(call, request, authority.len ? authority : request->authority))
        return false;
    if (policy_canonical_target(path.data, path.len, &call->path, &call->query, &err)) {
        call_refuse(call, 400, err.message);
        return false;
    }
    return true;
}

/* It would have to be counted down, or answered here (RFC 9110, section 7.6.2). */
static bool has_hop_count(const struct call_request *request)
{
    for (size_t i = 0; i < request->field_count; i++)
        if (http_field_is(&request->fields[i], "max-forwards"))
            return strcmp(request->method, "OPTIONS") == 0;
    return false;
}

static bool is_spoken(struct call *call, const struct call_request *request)
{
    if (strcmp(request->method, "CONNECT") == 0 || strcmp(request->method, "TRACE") == 0)
        call_refuse(call, 405, "CONNECT and TRACE are not done here");
    else if (request->wants_h2c)
        call_refuse(call, 400, "an upgrade to h2c is not done here");
    else if (has_hop_count(request))
        call_refuse(call, 501, "OPTIONS with Max-Forwards is not done here");
    else
        return true;
    return false;
}

static int remember_secret(struct call *call, const char *data, size_t len)
{
    if (len == 0)
        return 0;
    if (call->secret_count == LIMIT_EGRESS_SET_HEADERS)
        return -EMSGSIZE;
    int result = secret_set(&call->secrets[call->secret_count], data, len);
    if (!result)
        call->secret_count++;
    return result;
}

struct secret_search {
    struct call *call;
    int result;
};

static void on_rule_secret(void *ctx, const char *name)
{
    struct secret_search *search = ctx;
    const struct secret *secret = egress_secret(search->call->egress, name);
    if (secret && !search->result)
        search->result = remember_secret(search->call, secret->data, secret->len);
}

/* A credential as it stands in a set header (Basic's base64, say), to be known in an answer. */
static int remember_credential(struct call *call, const struct secret *value)
{
    const char *space = memrchr(value->data, ' ', value->len);
    const char *start = space ? space + 1 : value->data;
    size_t len = (size_t)(value->data + value->len - start);
    return len >= 16 ? remember_secret(call, start, len) : 0;
}

static int set_headers(struct call *call, struct header_list *list,
                       struct secret values[LIMIT_EGRESS_SET_HEADERS], struct err *err)
{
    size_t count = policy_rule_set_count(call->rule);
    if (count > LIMIT_EGRESS_SET_HEADERS)
        return err_set(err, EMSGSIZE, "the rule sets more than %d headers",
                       LIMIT_EGRESS_SET_HEADERS);
    for (size_t i = 0; i < count; i++) {
        int result =
            policy_rule_set_value(call->rule, i, egress_secret, call->egress, &values[i], err);
        if (!result && policy_rule_set_is_secret(call->rule, i) &&
            remember_credential(call, &values[i]))
            result = err_set(err, EMSGSIZE, "the rule has too many secrets");
        if (result)
            return result;
        const char *name = policy_rule_set_name(call->rule, i);
        list->items[list->count++] =
            (struct http_field){name, strlen(name), values[i].data, values[i].len};
    }
    struct secret_search search = {.call = call};
    policy_rule_secrets(call->rule, on_rule_secret, &search);
    if (search.result)
        return err_set(err, EMSGSIZE, "the rule has too many secrets");
    return 0;
}

/* A header that may ask the upstream for another method or path than what was judged. */
static bool has_override(struct call *call, const struct call_request *request)
{
    const struct policy_rule *rule = call->rule;
    for (size_t i = 0; i < request->field_count; i++) {
        const struct http_field *header = &request->fields[i];
        if (!policy_rule_refuses_header(rule, header->name, header->name_len))
            continue;
        struct refusal refusal;
        char text[REFUSE_TEXT_MAX];
        snprintf(text, sizeof(text),
                 "rule %.64s does not let the header %.*s through: it could ask for another method "
                 "or path",
                 policy_rule_name(rule), header->name_len < 64 ? (int)header->name_len : 64,
                 header->name);
        refuse_with(403, text, &refusal);
        call_answer_refusal(call, &refusal, "denied");
        return true;
    }
    return false;
}

static void keep_headers(struct call *call, const struct call_request *request,
                         struct header_list *list)
{
    static const char *const framing[] = {"host", "content-length", "expect"};
    const struct policy_rule *rule = call->rule;
    for (size_t i = 0; i < request->field_count; i++) {
        const struct http_field *header = &request->fields[i];
        bool is_dropped = http1_is_hop_by_hop(request->fields, request->field_count, header->name,
                                              header->name_len) ||
                          policy_rule_removes_header(rule, header->name, header->name_len);
        is_dropped = is_dropped || call_usage_drops(call, header);
        for (size_t j = 0; j < ARRAY_LEN(framing); j++)
            is_dropped = is_dropped || http_field_is(header, framing[j]);
        if (!is_dropped)
            list->items[list->count++] = *header;
    }
}

static bool takes_trailers(const struct call_request *request)
{
    for (size_t i = 0; i < request->field_count; i++)
        if (http_field_is(&request->fields[i], "te") &&
            http_list_has(&request->fields[i], "trailers", 8))
            return true;
    return false;
}

static int find_trust(const struct call *call, struct trust_spec *ret, struct err *err)
{
    const char *key = NULL;
    ret->ca = policy_rule_upstream_ca(call->rule, &ret->ca_len);
    ret->cert = policy_rule_upstream_cert(call->rule, &ret->cert_len, &key);
    ret->key = ret->cert ? egress_secret(call->egress, key) : NULL;
    return ret->cert && !ret->key ? err_set(err, ENOENT, "secret %s is not set", key) : 0;
}

static int start_exchange(struct call *call, const struct call_request *request,
                          const struct header_list *list, struct err *err)
{
    cleanup_buf struct buf target = BUF_INIT(2 * LIMIT_EGRESS_HEAD_BYTES);
    int result = buf_append_string(&target, buf_text(&call->path));
    if (!result && call->query.len)
        result = buf_appendf(&target, "?%s", call->query.data);
    if (result)
        return err_set(err, -result, "the request's target is too long");
    uint16_t upstream_port = call->port;
    const char *upstream = policy_rule_upstream(call->rule, &upstream_port);
    struct trust_spec trust = {0};
    if (find_trust(call, &trust, err))
        return -ENOENT;
    struct egress_request out = {
        .owner = egress_sandbox_meter(call->sandbox)->id,
        .method = call->method,
        .target = target.data,
        .host = call->host,
        .port = call->port,
        .connect_host = upstream,
        .connect_port = upstream_port,
        .is_plain = policy_rule_is_plain(call->rule),
        .trust = trust,
        .headers = list->items,
        .header_count = list->count,
        .body = request->body,
        .body_length = request->body_length,
        .expects_continue = call->expects_continue,
        .takes_trailers = takes_trailers(request),
        .upgrade = call->is_upgrade ? "websocket" : NULL,
        .is_held = call->push != NULL,
    };
    return egress_upstream_start(call->egress->upstreams, &out, &call_exchange_events, call,
                                 &call->exchange, err);
}

static void forward(struct call *call, const struct call_request *request)
{
    struct header_list list;
    struct secret values[LIMIT_EGRESS_SET_HEADERS] = {0};
    struct err err = {{0}};
    list.count = 0;
    keep_headers(call, request, &list);
    int result = set_headers(call, &list, values, &err);
    if (!result)
        result = start_exchange(call, request, &list, &err);
    for (size_t i = 0; i < ARRAY_LEN(values); i++)
        secret_free(&values[i]);
    if (!result)
        call_usage_begin(call);
    if (!result)
        return;
    struct refusal refusal;
    char text[REFUSE_TEXT_MAX];
    snprintf(text, sizeof(text), "rule %.100s cannot be used: %s", policy_rule_name(call->rule),
             err.message);
    refuse_with(503, text, &refusal);
    refusal.is_final = result == -ENOENT || result == -EINVAL;
    call_answer_refusal(call, &refusal, "inactive");
}

void call_begin(struct call *call, const struct call_request *request)
{
    call->expects_continue = request->expects_continue;
    call->wants_json = refuse_wants_json(request->fields, request->field_count);
    call->drops_trailers = http1_names_own_fields(request->fields, request->field_count);
    if (!is_spoken(call, request) || !find_target(call, request) || !call_is_allowed(call) ||
        has_override(call, request) || !call_has_budget(call))
        return;
    call->is_upgrade = request->upgrade.len > 0;
    if (call->is_upgrade &&
        (!http_equals(request->upgrade.data, request->upgrade.len, "websocket") ||
         request->body != EGRESS_BODY_NONE || strcmp(call->method, "GET") != 0))
        call_refuse(call, 501, "only an upgrade to WebSocket is relayed");
    else if (!call_is_blind(call, call->rule) && (!call->push || call_push_begin(call, request)))
        forward(call, request);
}

size_t call_write(struct call *call, const char *data, size_t len, size_t most)
{
    if (call->push && call->exchange)
        return call_push_write(call, data, len, most);
    size_t taken = call->exchange ? egress_exchange_write(call->exchange, data, len, most) : len;
    call->bytes_out += call->exchange ? taken : 0;
    return taken;
}

/* What decides about a message has no place behind it (RFC 9110, section 6.5.1); what the rule
 * takes out or judges goes neither way. */
static bool is_trailer(const struct call *call, const struct http_field *field)
{
    static const char *const never[] = {"host",   "content-length", "content-encoding",
                                        "expect", "authorization",  "cookie"};
    for (size_t i = 0; i < ARRAY_LEN(never); i++)
        if (http_field_is(field, never[i]))
            return false;
    return !http1_is_hop_by_hop(NULL, 0, field->name, field->name_len) &&
           !policy_rule_removes_header(call->rule, field->name, field->name_len) &&
           !policy_rule_refuses_header(call->rule, field->name, field->name_len);
}

void call_write_end(struct call *call, const struct http_field *trailers, size_t count)
{
    struct http_field kept[LIMIT_HTTP_FIELDS];
    size_t kept_count = 0;
    if (call->push && call->exchange)
        call_push_end(call);
    if (!call->exchange)
        return;
    for (size_t i = 0; i < count && !call->drops_trailers; i++)
        if (is_trailer(call, &trailers[i]))
            kept[kept_count++] = trailers[i];
    egress_exchange_write_end(call->exchange, kept, kept_count);
}

void call_resume(struct call *call)
{
    if (!call->is_paused)
        return;
    call->is_paused = false;
    if (call->exchange)
        egress_exchange_resume(call->exchange);
}
