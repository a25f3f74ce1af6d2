/* paddock policy explain: what a policy makes of one request, and why. Nothing is sent, and no
 * secret is read. The answer is JSON; for people it is told line by line. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cli/policy_file.h"
#include "util/cleanup.h"
#include "util/limits.h"
#include "json/json.h"

struct question {
    struct policy_request request;
    char host[POLICY_HOST_MAX];
    struct buf path;
    struct buf query;
};

static void question_free(struct question *question)
{
    buf_free(&question->path);
    buf_free(&question->query);
}

/* Splits the URL as egress takes a request apart; what stands behind "#" is sent by no client. */
static enum cli_exit question_read(const struct cli *cli, struct question *ret, struct err *err)
{
    static const char https[] = "https://";
    static const char http[] = "http://";
    const char *url = cli->args[2];
    struct err inner = {0};
    ret->request.method = cli->args[1];
    ret->request.is_tls = strncmp(url, https, strlen(https)) == 0;
    if (!ret->request.is_tls && strncmp(url, http, strlen(http)) != 0)
        return cli_fail(err, CLI_USAGE, "\"%.200s\" is not a URL of https:// or http://", url);
    const char *host = url + (ret->request.is_tls ? strlen(https) : strlen(http));
    size_t host_len = strcspn(host, "/?#");
    const char *target = host + host_len;
    uint16_t port = ret->request.is_tls ? POLICY_PORT_HTTPS : POLICY_PORT_HTTP;
    if (policy_canonical_host(host, host_len, port, ret->host, &ret->request.port, &inner) < 0)
        return cli_fail(err, CLI_USAGE, "%.200s: %s", url, inner.message);
    cleanup_buf struct buf whole = BUF_INIT(LIMIT_POLICY_STRING_BYTES);
    if (buf_appendf(&whole, "%s%.*s", *target == '/' ? "" : "/", (int)strcspn(target, "#"),
                    target) < 0)
        return cli_fail(err, CLI_USAGE, "the URL is too long");
    if (policy_canonical_target(whole.data, whole.len, &ret->path, &ret->query, &inner) < 0)
        return cli_fail(err, CLI_USAGE, "%.200s: %s", url, inner.message);
    ret->request.host = ret->host;
    ret->request.cloned = cli->values[OPTION_CLONED];
    ret->request.path = buf_text(&ret->path);
    ret->request.query = buf_text(&ret->query);
    return CLI_OK;
}

/* ------------------------------------------------------------------------ the answer as JSON */

static void write_refs(struct json_writer *writer, const struct policy_rule *rule, bool is_tag)
{
    const char *ref;
    json_write_key(writer, is_tag ? "tags" : "branches");
    json_write_array_begin(writer);
    for (size_t i = 0; (ref = policy_rule_ref(rule, is_tag, i)); i++)
        json_write_string(writer, ref);
    json_write_array_end(writer);
}

static void write_secret(void *ctx, const char *name)
{
    json_write_string(ctx, name);
}

static size_t header_name_length(const char *header)
{
    return strcspn(header, ": ");
}

/* The first header of the request, by --header, that the rule does not let through; or NULL. */
static const char *refused_header(const struct cli *cli, const struct policy_rule *rule)
{
    size_t at = 0;
    for (const char *header; (header = cli_next_value(cli, OPTION_HEADER, &at));)
        if (policy_rule_refuses_header(rule, header, header_name_length(header)))
            return header;
    return NULL;
}

/* What becomes of the headers that the request has, by --header. */
static void write_request_headers(struct json_writer *writer, const struct cli *cli,
                                  const struct policy_rule *rule)
{
    size_t at = 0;
    json_write_key(writer, "request");
    json_write_object_begin(writer);
    for (const char *header; (header = cli_next_value(cli, OPTION_HEADER, &at));) {
        size_t len = header_name_length(header);
        char name[101];
        snprintf(name, sizeof(name), "%.*s", len > 100 ? 100 : (int)len, header);
        json_write_pair_string(writer, name,
                               policy_rule_removes_header(rule, header, len) ? "removed" : "kept");
    }
    json_write_object_end(writer);
}

static void write_headers(struct json_writer *writer, const struct cli *cli,
                          const struct policy_rule *rule)
{
    const char *name;
    json_write_key(writer, "headers");
    json_write_object_begin(writer);
    json_write_key(writer, "removed");
    json_write_array_begin(writer);
    for (size_t i = 0; (name = policy_rule_remove_name(rule, i)); i++)
        json_write_string(writer, name);
    json_write_array_end(writer);
    json_write_key(writer, "set");
    json_write_array_begin(writer);
    for (size_t i = 0; i < policy_rule_set_count(rule); i++)
        json_write_string(writer, policy_rule_set_name(rule, i));
    json_write_array_end(writer);
    write_request_headers(writer, cli, rule);
    json_write_object_end(writer);
    json_write_key(writer, "secrets");
    json_write_array_begin(writer);
    policy_rule_secrets(rule, write_secret, writer);
    json_write_array_end(writer);
}

/* Of an allowed request: where it goes and what is changed. */
static void write_way(struct json_writer *writer, const struct cli *cli,
                      const struct question *question, const struct policy_rule *rule)
{
    uint16_t port = question->request.port;
    const char *upstream = policy_rule_upstream(rule, &port);
    char place[POLICY_HOST_MAX + 10];
    const char *key = NULL;
    size_t len = 0;
    upstream = upstream ? upstream : question->host;
    snprintf(place, sizeof(place), strchr(upstream, ':') ? "[%s]:%u" : "%s:%u", upstream, port);
    json_write_pair_string(writer, "connect", place);
    json_write_pair_bool(writer, "ownCa", policy_rule_upstream_ca(rule, &len) != NULL);
    json_write_pair_bool(writer, "clientCertificate",
                         policy_rule_upstream_cert(rule, &len, &key) != NULL);
    if (policy_rule_judges_push(rule, &question->request)) {
        write_refs(writer, rule, false);
        write_refs(writer, rule, true);
    }
    write_headers(writer, cli, rule);
}

/* Of a refused request: the rules that name its host, and what keeps each from it. */
static void write_near(struct json_writer *writer, const struct policy *policy,
                       const struct policy_request *request)
{
    cleanup_buf struct buf why = BUF_INIT(LIMIT_POLICY_STRING_BYTES);
    json_write_key(writer, "near");
    json_write_array_begin(writer);
    for (size_t i = 0; i < policy_rule_count(policy); i++) {
        const struct policy_rule *rule = policy_rule_at(policy, i);
        enum policy_lack lack = policy_rule_lack(rule, request);
        buf_clear(&why);
        if (lack == POLICY_LACK_HOST || policy_rule_explain(rule, lack, &why) < 0)
            continue;
        json_write_object_begin(writer);
        json_write_pair_string(writer, "rule", policy_rule_name(rule));
        json_write_pair_string(writer, "why", why.data);
        json_write_object_end(writer);
    }
    json_write_array_end(writer);
}

static const char *decision_name(enum policy_decision decision)
{
    switch (decision) {
    case POLICY_ALLOWED:
        return "allowed";
    case POLICY_DENIED:
    case POLICY_DENIED_GIT:
    case POLICY_PLAIN_HTTP:
        return "denied";
    case POLICY_INACTIVE:
        return "inactive";
    }
    return "";
}

static bool write_answer(struct json_writer *writer, const struct cli *cli,
                         const struct policy *policy, const struct question *question)
{
    struct policy_verdict verdict;
    policy_decide(policy, &question->request, &verdict);
    const char *header =
        verdict.decision == POLICY_ALLOWED ? refused_header(cli, verdict.rule) : NULL;
    if (header) {
        verdict.decision = POLICY_DENIED;
        snprintf(verdict.reason, sizeof(verdict.reason),
                 "the rule does not let the header %.*s through: it could ask for another method "
                 "or path",
                 (int)header_name_length(header), header);
    }
    json_write_object_begin(writer);
    json_write_pair_string(writer, "decision", decision_name(verdict.decision));
    json_write_key(writer, "rule");
    if (verdict.rule)
        json_write_string(writer, policy_rule_name(verdict.rule));
    else
        json_write_null(writer);
    if (verdict.decision == POLICY_ALLOWED) {
        write_way(writer, cli, question, verdict.rule);
    } else {
        json_write_pair_string(writer, "reason", verdict.reason);
        if (!verdict.rule)
            write_near(writer, policy, &question->request);
    }
    json_write_object_end(writer);
    return verdict.decision == POLICY_ALLOWED;
}

/* --------------------------------------------------------------------------- and for people */

static void tell_list(const char *what, const struct json *list)
{
    if (json_count(list) == 0)
        return;
    printf("%s", what);
    for (size_t i = 0; i < json_count(list); i++)
        printf("%s %s", i ? "," : "", json_text(json_at(list, i)));
    putchar('\n');
}

static void tell_allowed(const struct question *question, const struct json *answer)
{
    const struct json *headers = json_get(answer, "headers");
    const struct json *request = json_get(headers, "request");
    printf("allowed by rule \"%s\"\n", json_text(json_get(answer, "rule")));
    printf("sent: %s %s%s%s\n", question->request.method, question->request.path,
           question->query.len ? "?" : "", question->request.query);
    printf("to: %s, %s\n", json_text(json_get(answer, "connect")),
           !question->request.is_tls              ? "plain HTTP"
           : json_bool(json_get(answer, "ownCa")) ? "its certificate of the rule's own CA"
                                                  : "its certificate of a known CA");
    if (json_bool(json_get(answer, "clientCertificate")))
        puts("with the rule's client certificate");
    tell_list("headers removed:", json_get(headers, "removed"));
    tell_list("headers set:", json_get(headers, "set"));
    tell_list("with secrets:", json_get(answer, "secrets"));
    for (size_t i = 0; i < json_count(request); i++)
        printf("header %s: %s\n", json_key_at(request, i), json_text(json_at(request, i)));
    if (json_get(answer, "branches"))
        puts("a push is judged by its list of refs, and may change");
    tell_list("branches:", json_get(answer, "branches"));
    tell_list("tags:", json_get(answer, "tags"));
}

static void tell_refused(const struct json *answer)
{
    const struct json *near = json_get(answer, "near");
    printf("%s: %s\n",
           strcmp(json_text(json_get(answer, "decision")), "denied") == 0 ? "refused" : "inactive",
           json_text(json_get(answer, "reason")));
    for (size_t i = 0; i < json_count(near); i++)
        printf("rule \"%s\" does not match: %s\n", json_text(json_get(json_at(near, i), "rule")),
               json_text(json_get(json_at(near, i), "why")));
    if (near && json_count(near) == 0)
        puts("no rule names this host");
}

static enum cli_exit tell(const struct cli *cli, const struct question *question,
                          const struct buf *text, struct err *err)
{
    cleanup_json struct json *answer = NULL;
    if (cli->values[OPTION_JSON]) {
        cli_print_json(text);
        return CLI_OK;
    }
    if (json_parse(text->data, text->len, JSON_STRICT, &answer, err) < 0)
        return CLI_FAILED;
    if (json_get(answer, "headers"))
        tell_allowed(question, answer);
    else
        tell_refused(answer);
    return CLI_OK;
}

enum cli_exit cmd_policy_explain(struct cli *cli, struct err *err)
{
    struct question question __attribute__((cleanup(question_free))) = {
        .path = BUF_INIT(LIMIT_POLICY_STRING_BYTES), .query = BUF_INIT(LIMIT_POLICY_STRING_BYTES)};
    cleanup_buf struct buf problems = BUF_INIT(LIMIT_CONFIG_BYTES);
    cleanup_buf struct buf text = BUF_INIT(LIMIT_CLI_REPLY_BYTES);
    struct policy *policy = NULL;
    enum cli_exit status = question_read(cli, &question, err);
    if (status == CLI_OK)
        status = cli_policy_load(cli, &policy, &problems, err);
    if (status != CLI_OK)
        return status;
    struct json_writer *writer = json_writer_new(&text, false);
    bool is_allowed = writer && write_answer(writer, cli, policy, &question);
    if (!writer || json_writer_end(writer) < 0)
        status = cli_fail(err, CLI_FAILED, "out of memory");
    else
        status = tell(cli, &question, &text, err);
    policy_unref(policy);
    return status == CLI_OK && !is_allowed ? CLI_FAILED : status;
}
