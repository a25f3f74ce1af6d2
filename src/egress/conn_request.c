/*
 * A request's way out. Process: paddock-egress. The order is the promise: read strictly,
 * canonicalise, SNI equals Host, the policy decides, headers are removed and set, and exactly what
 * was judged is sent. Anything that is not understood is refused.
 */
#include <stdlib.h>
#include <string.h>

#include "egress/ca.h"
#include "egress/conn.h"
#include "util/cleanup.h"
#include "util/clock.h"

/* Headers of a request, and those that the rule sets. */
struct header_list {
    struct http_field items[LIMIT_HTTP_FIELDS + LIMIT_EGRESS_SET_HEADERS];
    size_t count;
};

/* What is no request that we take ends the connection: who sent it may have meant the bytes behind
 * it as something else than a request (a tunnel's, another protocol's). */
static void refuse(struct egress_conn *conn, int status, const char *reason)
{
    struct refusal refusal;
    conn->request.keep_alive = false;
    refuse_with(status, reason, &refusal);
    conn_answer_refusal(conn, &refusal, "refused");
}

static void begin_request(struct egress_conn *conn, const struct http1_head *head)
{
    struct conn_request *request = &conn->request;
    request->started_ms = clock_unix_ms();
    request->started_at = uv_now(conn->egress->loop);
    request->path = request->query = BUF_INIT(LIMIT_EGRESS_HEAD_BYTES);
    memcpy(request->method, head->method, sizeof(request->method));
    request->is_head = strcmp(head->method, "HEAD") == 0;
    request->is_http10 = head->http.minor == 0;
    request->keep_alive = head->keep_alive;
    request->expects_continue = head->http.is_continue_awaited;
    http1_body_init(&request->body, head->body, head->body_length);
}

/* On port 80 there is only refusal, so a name that is none is refused as one that is unknown. */
static void refuse_plain_host(struct egress_conn *conn, struct http1_text host)
{
    struct policy_verdict verdict = {.decision = POLICY_DENIED};
    struct refusal refusal;
    char name[POLICY_HOST_MAX];
    snprintf(name, sizeof(name), "%.*s", (int)host.len, host.data);
    refuse_by_verdict(&verdict, name, &refusal);
    conn_answer_refusal(conn, &refusal, "denied");
}

/* The host of the request, the same in Host, in the target if it stands there, and in SNI. */
static bool find_host(struct egress_conn *conn, const struct http1_head *head,
                      struct http1_text authority)
{
    struct conn_request *request = &conn->request;
    uint16_t default_port = conn->is_tls ? 443 : 80;
    const char *sni = conn->is_tls ? egress_ca_sni(conn->ssl) : NULL;
    struct http1_text host = head->host.len ? head->host : authority;
    struct err err;
    if (host.len == 0 && sni)
        host = (struct http1_text){sni, strlen(sni)};
    if (policy_canonical_host(host.data, host.len, default_port, request->host, &request->port,
                              &err)) {
        request->host[0] = '\0';
        if (conn->is_tls || host.len == 0)
            refuse(conn, 400, "the request's host is not a name");
        else
            refuse_plain_host(conn, host);
        return false;
    }
    char other[POLICY_HOST_MAX];
    uint16_t other_port;
    if (authority.len && (policy_canonical_host(authority.data, authority.len, default_port, other,
                                                &other_port, &err) ||
                          strcmp(other, request->host) != 0 || other_port != request->port)) {
        refuse(conn, 400, "the request's target names another host than its Host header");
        return false;
    }
    if (conn->is_tls && (!sni || strcmp(sni, request->host) != 0)) {
        refuse(conn, 421, "the Host header names another host than the TLS connection was made to");
        return false;
    }
    return true;
}

static bool find_target(struct egress_conn *conn, const struct http1_head *head)
{
    struct http1_text authority;
    struct http1_text path;
    struct err err;
    if (http1_target_split(head->target, conn->is_tls ? "https" : "http", &authority, &path,
                           &err)) {
        refuse(conn, 400, err.message);
        return false;
    }
    if (!find_host(conn, head, authority))
        return false;
    if (policy_canonical_target(path.data, path.len, &conn->request.path, &conn->request.query,
                                &err)) {
        refuse(conn, 400, err.message);
        return false;
    }
    return true;
}

static bool is_spoken(struct egress_conn *conn, const struct http1_head *head)
{
    if (strcmp(head->method, "CONNECT") == 0 || strcmp(head->method, "TRACE") == 0)
        refuse(conn, 405, "CONNECT and TRACE are not done here");
    else if (head->wants_h2c)
        refuse(conn, 400, "an upgrade to h2c is not done here");
    else
        return true;
    return false;
}

static bool is_allowed(struct egress_conn *conn)
{
    struct conn_request *request = &conn->request;
    struct refusal refusal;
    struct policy *policy = egress_policy_of(conn->sandbox);
    if (!policy) {
        refuse_with(503, "no policy is in force, so that nothing may leave this sandbox", &refusal);
        refusal.is_final = true;
        conn_answer_refusal(conn, &refusal, "inactive");
        return false;
    }
    request->policy = policy_ref(policy);
    struct policy_request asked = {
        .method = request->method,
        .host = request->host,
        .port = request->port,
        .path = buf_text(&request->path),
        .query = buf_text(&request->query),
        .is_tls = conn->is_tls,
    };
    struct policy_verdict verdict;
    policy_decide(request->policy, &asked, &verdict);
    request->rule = verdict.rule;
    if (verdict.decision == POLICY_ALLOWED && !conn->is_tls)
        verdict.decision = POLICY_PLAIN_HTTP; /* no rule may open plain HTTP */
    if (verdict.decision == POLICY_ALLOWED && verdict.rule)
        return true;
    refuse_by_verdict(&verdict, request->host, &refusal);
    conn_answer_refusal(conn, &refusal,
                        verdict.decision == POLICY_INACTIVE ? "inactive" : "denied");
    return false;
}

static int remember_secret(struct conn_request *request, const char *data, size_t len)
{
    if (len == 0)
        return 0;
    if (request->secret_count == LIMIT_EGRESS_SET_HEADERS)
        return -EMSGSIZE;
    int result = secret_set(&request->secrets[request->secret_count], data, len);
    if (!result)
        request->secret_count++;
    return result;
}

struct secret_search {
    struct egress_conn *conn;
    int result;
};

static void on_rule_secret(void *ctx, const char *name)
{
    struct secret_search *search = ctx;
    const struct secret *secret = egress_secret(search->conn->egress, name);
    if (secret && !search->result)
        search->result = remember_secret(&search->conn->request, secret->data, secret->len);
}

/* A credential as it stands in a set header (Basic's base64, say), to be known in an answer. */
static int remember_credential(struct conn_request *request, const struct secret *value)
{
    const char *space = memrchr(value->data, ' ', value->len);
    const char *start = space ? space + 1 : value->data;
    size_t len = (size_t)(value->data + value->len - start);
    return len >= 16 ? remember_secret(request, start, len) : 0;
}

static int set_headers(struct egress_conn *conn, struct header_list *list,
                       struct secret values[LIMIT_EGRESS_SET_HEADERS], struct err *err)
{
    struct conn_request *request = &conn->request;
    size_t count = policy_rule_set_count(request->rule);
    if (count > LIMIT_EGRESS_SET_HEADERS)
        return err_set(err, EMSGSIZE, "the rule sets more than %d headers",
                       LIMIT_EGRESS_SET_HEADERS);
    for (size_t i = 0; i < count; i++) {
        int result =
            policy_rule_set_value(request->rule, i, egress_secret, conn->egress, &values[i], err);
        if (!result && remember_credential(request, &values[i]))
            result = err_set(err, EMSGSIZE, "the rule has too many secrets");
        if (result)
            return result;
        const char *name = policy_rule_set_name(request->rule, i);
        list->items[list->count++] =
            (struct http_field){name, strlen(name), values[i].data, values[i].len};
    }
    struct secret_search search = {.conn = conn};
    policy_rule_secrets(request->rule, on_rule_secret, &search);
    if (search.result)
        return err_set(err, EMSGSIZE, "the rule has too many secrets");
    return 0;
}

/* A header that may ask the upstream for another method or path than what was judged. */
static bool has_override(struct egress_conn *conn, const struct http1_head *head)
{
    const struct policy_rule *rule = conn->request.rule;
    for (size_t i = 0; i < head->http.field_count; i++) {
        const struct http_field *header = &head->http.fields[i];
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
        conn_answer_refusal(conn, &refusal, "denied");
        return true;
    }
    return false;
}

static void keep_headers(const struct egress_conn *conn, const struct http1_head *head,
                         struct header_list *list)
{
    static const char *const framing[] = {"host", "content-length", "expect"};
    const struct policy_rule *rule = conn->request.rule;
    for (size_t i = 0; i < head->http.field_count; i++) {
        const struct http_field *header = &head->http.fields[i];
        bool is_dropped = http1_is_hop_by_hop(head->http.fields, head->http.field_count,
                                              header->name, header->name_len) ||
                          policy_rule_removes_header(rule, header->name, header->name_len);
        for (size_t j = 0; j < ARRAY_LEN(framing); j++)
            is_dropped = is_dropped || http_field_is(header, framing[j]);
        if (!is_dropped)
            list->items[list->count++] = *header;
    }
}

static int start_exchange(struct egress_conn *conn, const struct http1_head *head,
                          const struct header_list *list, struct err *err)
{
    struct conn_request *request = &conn->request;
    cleanup_buf struct buf target = BUF_INIT(2 * LIMIT_EGRESS_HEAD_BYTES);
    int result = buf_append_string(&target, buf_text(&request->path));
    if (!result && request->query.len)
        result = buf_appendf(&target, "?%s", request->query.data);
    if (result)
        return err_set(err, -result, "the request's target is too long");
    uint16_t upstream_port = request->port;
    size_t ca_len = 0;
    const char *upstream = policy_rule_upstream(request->rule, &upstream_port);
    const char *ca = policy_rule_upstream_ca(request->rule, &ca_len);
    struct egress_request out = {
        .method = request->method,
        .target = target.data,
        .host = request->host,
        .port = request->port,
        .connect_host = upstream,
        .connect_port = upstream_port,
        .ca_pem = ca,
        .ca_pem_len = ca_len,
        .headers = list->items,
        .header_count = list->count,
        .body = head->body,
        .body_length = head->body_length,
        .expects_continue = head->http.is_continue_awaited,
    };
    return egress_upstream_start(conn->egress->upstreams, &out, &conn_exchange_events, conn,
                                 &request->exchange, err);
}

static void forward(struct egress_conn *conn, const struct http1_head *head)
{
    struct header_list list;
    struct secret values[LIMIT_EGRESS_SET_HEADERS] = {0};
    struct err err = {{0}};
    list.count = 0;
    keep_headers(conn, head, &list);
    int result = set_headers(conn, &list, values, &err);
    if (!result)
        result = start_exchange(conn, head, &list, &err);
    for (size_t i = 0; i < ARRAY_LEN(values); i++)
        secret_free(&values[i]);
    if (!result)
        return;
    struct refusal refusal;
    refuse_with(503, err.message, &refusal);
    refusal.is_final = result == -ENOENT || result == -EINVAL;
    conn_answer_refusal(conn, &refusal, "inactive");
}

enum http1_result conn_take_head(struct egress_conn *conn)
{
    struct http1_head head;
    struct err err;
    enum http1_result result =
        http1_head_parse(conn->in.data + conn->in_used, conn->in.len - conn->in_used, &head, &err);
    if (result == HTTP1_MORE)
        return result;
    conn_request_clear(&conn->request);
    begin_request(conn, &head);
    conn->finish = FINISH_NONE;
    conn->phase = CONN_EXCHANGE;
    conn_touch(conn);
    if (result == HTTP1_REFUSED) {
        conn->request.keep_alive = false;
        refuse(conn, head.status, err.message);
        return result;
    }
    conn->in_used += head.len;
    if (!is_spoken(conn, &head) || !find_target(conn, &head) || !is_allowed(conn) ||
        has_override(conn, &head))
        return result;
    if (head.wants_upgrade)
        refuse(conn, 501, "an upgrade of the connection is not relayed");
    else
        forward(conn, &head);
    return result;
}

void conn_feed_body(struct egress_conn *conn)
{
    struct conn_request *request = &conn->request;
    struct err err;
    request->body_blocked = false;
    while (request->exchange && !request->body.is_done && conn->in_used < conn->in.len) {
        const char *data = conn->in.data + conn->in_used;
        size_t body_len = 0;
        ssize_t used =
            http1_body_step(&request->body, data, conn->in.len - conn->in_used, &body_len, &err);
        if (used < 0) {
            conn_fail(conn, 400, err.message, "client");
            return;
        }
        size_t taken = body_len ? egress_exchange_write(request->exchange, data + used, body_len,
                                                        conn_queue_max(conn))
                                : 0;
        http1_body_take(&request->body, taken);
        conn->in_used += (size_t)used + taken;
        request->bytes_out += taken;
        if (taken < body_len) {
            request->body_blocked = true;
            return;
        }
    }
    if (request->exchange && request->body.is_done && !request->body_ended) {
        request->body_ended = true;
        egress_exchange_write_end(request->exchange, NULL, 0);
    }
}
