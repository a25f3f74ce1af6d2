/* See load.h. */
#include "load.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "util/cleanup.h"

struct fake {
    bool is_configured; /* variables and secrets are there */
};

static const char *fake_variable(void *ctx, const char *name)
{
    const struct fake *fake = ctx;
    if (strcmp(name, "EMPTY") == 0)
        return "";
    if (!fake->is_configured)
        return NULL;
    if (strcmp(name, "ACCOUNT") == 0)
        return "acct";
    if (strcmp(name, "GATEWAY") == 0)
        return "gw";
    return strcmp(name, "BREAK") == 0 ? "a\r\nb" : NULL;
}

static const char *fake_secret(void *ctx, const char *name)
{
    const struct fake *fake = ctx;
    if (strcmp(name, "LOCKED") == 0)
        return "its file is locked";
    return fake->is_configured && strcmp(name, "TOKEN") == 0 ? NULL : "";
}

/* Files by name; "deep-N.json" includes the next one. */
static const struct {
    const char *name, *text;
} files[] = {
    {"ca.pem", "-----BEGIN CERTIFICATE-----\n"},
    {"empty.pem", ""},
    {"more.json", "{\"rules\": [{\"name\": \"more\", \"host\": \"more.test\"}, "
                  "{\"host\": \"a.test\"}]}"},
    {"both.json", "{\"include\": [\"more.json\"]}"},
    {"self.json", "{\"include\": [\"self.json\"]}"},
    {"back.json", "{\"include\": [\"p.json\"]}"},
    {"bad.json", "{\"rules\": [{\"host\": \"a.test\",\n \"port\": 0, \"path\": \"x\"}, 3]}"},
    {"text.json", "{"},
    {"plain.json", "{\"rules\": [{\"host\": \"a.test\", \"plain_http\": true, \"port\": 8443}]}"},
};

static int fake_file(void *ctx, const char *name, struct buf *ret)
{
    int depth = 0;
    (void)ctx;
    for (size_t i = 0; i < ARRAY_LEN(files); i++)
        if (strcmp(files[i].name, name) == 0)
            return buf_append_string(ret, files[i].text);
    if (sscanf(name, "deep-%d.json", &depth) == 1 && depth < 100)
        return buf_appendf(ret, "{\"include\": [\"deep-%d.json\"]}", depth + 1);
    return strcmp(name, "deep-100.json") == 0 ? buf_append_string(ret, "{\"rules\": []}") : -ENOENT;
}

static char problems[4096];

static void fake_problem(void *ctx, const char *message)
{
    size_t len = strlen(problems);
    (void)ctx;
    snprintf(problems + len, sizeof(problems) - len, "%s\n", message);
}

const char *load_problems(void)
{
    return problems;
}

int load(const char *text, bool is_configured, struct policy **ret, struct err *err)
{
    struct fake fake = {is_configured};
    problems[0] = '\0';
    struct policy_env env = {.ctx = &fake,
                             .variable = fake_variable,
                             .secret_lack = fake_secret,
                             .file = fake_file,
                             .problem = fake_problem};
    return policy_parse("p.json", text, strlen(text), &env, ret, err);
}

struct policy *loaded(const char *text, bool is_configured)
{
    struct policy *policy = NULL;
    struct err err = {0};
    if (load(text, is_configured, &policy, &err) < 0)
        fprintf(stderr, "%s\n", err.message);
    assert(policy);
    return policy;
}

const char *refused(const char *text, const char *says)
{
    static struct err err;
    struct policy *policy = NULL;
    err = (struct err){0};
    int result = load(text, true, &policy, &err);
    if (result == 0 || !strstr(err.message, says))
        fprintf(stderr, "%s\n  says %s\n", text, err.message);
    assert(result == -EINVAL && !policy && strstr(err.message, says));
    return err.message;
}

struct policy_verdict judge_request(const struct policy *policy, struct policy_request request,
                                    const char *host, size_t len, const char *target)
{
    cleanup_buf struct buf path = BUF_INIT(1000);
    cleanup_buf struct buf query = BUF_INIT(1000);
    char canonical[POLICY_HOST_MAX];
    uint16_t port = request.is_tls ? POLICY_PORT_HTTPS : POLICY_PORT_HTTP;
    assert(policy_canonical_host(host, len, port, canonical, &request.port, NULL) == 0);
    assert(policy_canonical_target(target, strlen(target), &path, &query, NULL) == 0);
    request.host = canonical;
    request.path = buf_text(&path);
    request.query = buf_text(&query);
    struct policy_verdict verdict;
    policy_decide(policy, &request, &verdict);
    return verdict;
}

struct policy_verdict judge(const struct policy *policy, const char *method, const char *host,
                            const char *target)
{
    struct policy_request request = {.method = method, .is_tls = true};
    return judge_request(policy, request, host, strlen(host), target);
}
