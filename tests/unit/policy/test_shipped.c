/* The policies that ship: each is read as it lies in policy/, and does what its comment says. */
#include <assert.h>
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#include "load.h"
#include "policy/policy.h"
#include "util/cleanup.h"
#include "util/fd.h"
#include "util/limits.h"

static const char *folder;

static const char *variable(void *ctx, const char *name)
{
    static const struct {
        const char *name, *value;
    } set[] = {
        {"AI_GATEWAY_ACCOUNT_ID", "acct"},   {"AI_GATEWAY_ID", "gw"},
        {"LLM_HOST", "llm.example.org"},     {"LLM_UPSTREAM", "10.0.0.5:8443"},
        {"GITHUB_REPOSITORY", "acme/notes"}, {"GITHUB_BRANCH", "agent/*"},
    };
    (void)ctx;
    for (size_t i = 0; i < ARRAY_LEN(set); i++)
        if (strcmp(set[i].name, name) == 0)
            return set[i].value;
    return NULL;
}

static const char *no_variable(void *ctx, const char *name)
{
    (void)ctx, (void)name;
    return NULL;
}

static const char *every_secret(void *ctx, const char *name)
{
    (void)ctx, (void)name;
    return NULL;
}

static int file(void *ctx, const char *name, struct buf *ret)
{
    char path[500];
    (void)ctx;
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    return fd_read_file(AT_FDCWD, path, ret, NULL);
}

static struct policy *read_policy(const char *name, const char *(*lookup)(void *ctx, const char *))
{
    const struct policy_env env = {.variable = lookup, .secret_lack = every_secret, .file = file};
    cleanup_buf struct buf text = BUF_INIT(LIMIT_CONFIG_BYTES);
    struct policy *policy = NULL;
    struct err err = {0};
    char path[100];
    snprintf(path, sizeof(path), "%s.json", name);
    assert(file(NULL, path, &text) == 0);
    if (policy_parse(path, buf_text(&text), text.len, &env, &policy, &err) < 0)
        fprintf(stderr, "%s\n", err.message);
    assert(policy);
    return policy;
}

struct shipped_case {
    const char *policy, *method, *url;
    const char *rule; /* that allows it; NULL: it is refused */
};

#define FETCH "info/refs?service=git-upload-pack"
#define PUSH "info/refs?service=git-receive-pack"

static const struct shipped_case cases[] = {
    {"default", "POST", "https://gateway.ai.cloudflare.com/v1/acct/gw/anthropic/v1/messages",
     "ai-gateway"},
    {"default", "POST", "https://gateway.ai.cloudflare.com/v1/other/gw/x", NULL},
    {"default", "GET", "https://github.com/acme/notes.git/" FETCH, "github"},
    {"default", "GET", "https://github.com/acme/notes.git/" PUSH, NULL},
    {"default", "GET", "https://github.com/acme/notes", NULL},
    {"default", "GET", "https://api.github.com/", NULL},
    {"default", "GET", "http://github.com/acme/notes.git/" FETCH, NULL},
    {"strict", "POST", "https://gateway.ai.cloudflare.com/v1/acct/gw/x", "ai-gateway"},
    {"strict", "PUT", "https://gateway.ai.cloudflare.com/v1/acct/gw/x", NULL},
    {"strict", "GET", "https://github.com/acme/notes.git/" FETCH, "github-cloned"},
    {"strict", "GET", "https://github.com/acme/notes2.git/" FETCH, NULL},
    {"strict", "GET", "https://github.com/acm/notes.git/" FETCH, NULL},
    {"strict", "GET", "https://github.com/acme/notes.git/" PUSH, NULL},
    {"tutorial", "GET", "https://github.com/acme/notes", "github"},
    {"tutorial", "GET", "https://api.github.com/", NULL},
    {"anthropic", "POST", "https://api.anthropic.com/v1/messages", "anthropic"},
    {"anthropic", "POST", "https://api.anthropic.com/v2/messages", NULL},
    {"anthropic", "POST", "https://console.anthropic.com/v1", NULL},
    {"anthropic", "GET", "https://github.com/acme/notes/" FETCH, "github-read-only"},
    {"openai", "POST", "https://api.openai.com/v1/responses", "openai"},
    {"openai", "GET", "https://api.openai.com/dashboard", NULL},
    {"openai", "GET", "https://github.com/acme/notes/" PUSH, NULL},
    {"openrouter", "POST", "https://openrouter.ai/api/v1/chat/completions", "openrouter"},
    {"openrouter", "GET", "https://openrouter.ai/settings", NULL},
    {"openrouter", "GET", "https://github.com/acme/notes/" FETCH, "github-read-only"},
    {"gateway-own", "POST", "https://llm.example.org/v1/messages", "gateway-own"},
    {"gateway-own", "POST", "https://llm.example.org:8443/v1/messages", NULL},
    {"gateway-own", "GET", "https://github.com/acme/notes/" FETCH, "github-read-only"},
    {"github-read-only", "GET", "https://github.com/any/thing.git/" FETCH, "github-read-only"},
    {"github-read-only", "POST", "https://github.com/any/thing.git/git-upload-pack",
     "github-read-only"},
    {"github-read-only", "POST", "https://github.com/any/thing.git/info/lfs/objects/batch",
     "github-read-only"},
    {"github-read-only", "GET", "https://github-cloud.githubusercontent.com/a/b", "github-lfs"},
    {"github-read-only", "PUT", "https://github-cloud.githubusercontent.com/a/b", NULL},
    {"github-read-only", "POST", "https://github.com/any/thing.git/git-receive-pack", NULL},
    {"github-read-only", "POST", "https://github.com/login", NULL},
    {"github-one-repository", "POST", "https://github.com/acme/notes/git-upload-pack",
     "github-one-repository"},
    {"github-one-repository", "POST", "https://github.com/acme/other/git-upload-pack", NULL},
    {"github-one-repository", "POST", "https://github.com/acme/notes/git-receive-pack", NULL},
    {"github-push-one-branch", "GET", "https://github.com/acme/notes.git/" PUSH,
     "github-push-one-branch"},
    {"github-push-one-branch", "POST", "https://github.com/acme/notes.git/git-receive-pack",
     "github-push-one-branch"},
    {"github-push-one-branch", "POST", "https://github.com/acme/other.git/git-receive-pack", NULL},
    {"mirror", "GET", "https://packages.example.org/pool/a.deb", "mirror"},
    {"mirror", "PUT", "https://packages.example.org/pool/a.deb", NULL},
    {"mirror", "GET", "http://packages.example.org/pool/a.deb", NULL},
    {"mirror", "GET", "http://archive.example.org/debian/dists", "mirror-plain"},
    {"mirror", "GET", "https://archive.example.org/debian/dists", NULL},
    {"mirror", "GET", "http://archive.example.org/other", NULL},
};

static struct policy_verdict judge_case(const struct policy *policy,
                                        const struct shipped_case *test)
{
    struct policy_request request = {.method = test->method, .cloned = "acme/notes"};
    request.is_tls = strncmp(test->url, "https:", 6) == 0;
    const char *host = test->url + strlen(request.is_tls ? "https://" : "http://");
    size_t len = strcspn(host, "/");
    return judge_request(policy, request, host, len, host + len);
}

/* Else a budget would hold under one shipped policy, and under another not. */
static void test_what_goes_to_a_model_is_counted(void)
{
    size_t count = 0;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        const struct shipped_case *test = &cases[i];
        if (!test->rule || strcmp(test->method, "POST") != 0 || strstr(test->url, "//github.com/"))
            continue;
        struct policy *policy = read_policy(test->policy, variable);
        if (policy_rule_usage(judge_case(policy, test).rule) == POLICY_USAGE_NONE)
            fprintf(stderr, "%s: rule %s has no \"usage\"\n", test->policy, test->rule);
        assert(policy_rule_usage(judge_case(policy, test).rule) != POLICY_USAGE_NONE);
        count++;
        policy_unref(policy);
    }
    assert(count >= 6);
}

static void test_each_does_what_it_says(void)
{
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        const struct shipped_case *test = &cases[i];
        struct policy *policy = read_policy(test->policy, variable);
        struct policy_verdict verdict = judge_case(policy, test);
        bool is_allowed = verdict.decision == POLICY_ALLOWED;
        const char *rule = is_allowed ? policy_rule_name(verdict.rule) : "";
        if (strcmp(rule, test->rule ? test->rule : "") != 0)
            fprintf(stderr, "%s: %s %s: %s\n", test->policy, test->method, test->url, rule);
        assert(strcmp(rule, test->rule ? test->rule : "") == 0);
        policy_unref(policy);
    }
}

/* Each file of the folder is in the table, allowed and refused. */
static void test_none_is_left_out(void)
{
    DIR *entries = opendir(folder);
    size_t count = 0;
    assert(entries);
    for (struct dirent *entry; (entry = readdir(entries));) {
        size_t len = strcspn(entry->d_name, ".");
        bool is_allowed = false;
        bool is_refused = false;
        if (strcmp(entry->d_name + len, ".json") != 0)
            continue;
        for (size_t i = 0; i < ARRAY_LEN(cases); i++)
            if (strlen(cases[i].policy) == len && strncmp(cases[i].policy, entry->d_name, len) == 0)
                *(cases[i].rule ? &is_allowed : &is_refused) = true;
        assert(is_allowed && is_refused);
        count++;
    }
    closedir(entries);
    assert(count >= 10);
}

/* Nobody has set the variables: what needs them is inactive, and nothing else is opened by it. */
static void test_without_variables_nothing_more_is_open(void)
{
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct policy *policy = read_policy(cases[i].policy, no_variable);
        struct policy_verdict verdict = judge_case(policy, &cases[i]);
        assert(verdict.decision != POLICY_ALLOWED || cases[i].rule);
        policy_unref(policy);
    }
}

/* A secret goes to the model's or GitHub's host alone, and replaces what the agent sent. */
static void test_what_a_secret_replaces(void)
{
    static const struct {
        const char *policy, *header;
    } set[] = {
        {"default", "cf-aig-authorization"},
        {"strict", "cf-aig-authorization"},
        {"anthropic", "x-api-key"},
        {"openai", "authorization"},
        {"openrouter", "authorization"},
        {"gateway-own", "authorization"},
        {"github-one-repository", "authorization"},
        {"github-push-one-branch", "authorization"},
    };
    for (size_t i = 0; i < ARRAY_LEN(set); i++) {
        struct policy *policy = read_policy(set[i].policy, variable);
        const struct policy_rule *rule = policy_rule_at(policy, 0);
        assert(policy_rule_set_count(rule) == 1);
        assert(strcmp(policy_rule_set_name(rule, 0), set[i].header) == 0);
        assert(policy_rule_removes_header(rule, set[i].header, strlen(set[i].header)));
        for (size_t j = 1; j < policy_rule_count(policy); j++)
            assert(policy_rule_set_count(policy_rule_at(policy, j)) == 0);
        policy_unref(policy);
    }
}

int main(int argc, char **argv)
{
    assert(argc == 2);
    folder = argv[1];
    test_each_does_what_it_says();
    test_what_goes_to_a_model_is_counted();
    test_none_is_left_out();
    test_without_variables_nothing_more_is_open();
    test_what_a_secret_replaces();
    return 0;
}
