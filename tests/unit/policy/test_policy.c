/* The promises of a policy: what it refuses to load and where, what it decides, what it sets. */
#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "load.h"
#include "policy/policy.h"
#include "util/cleanup.h"

static void test_refusals_name_place_and_reason(void)
{
    static const struct {
        const char *text;
        const char *says;
    } cases[] = {
        {"", "p.json:1:1: "},
        {"[]", "p.json:1:1: a policy must be an object"},
        {"{}", "\"rules\""},
        {"{\n \"rule\": []}", "p.json:2:10: unknown key \"rule\": did you mean \"rules\"?"},
        {"{\"rules\": [], \"includes\": []}", "did you mean \"include\"?"},
        {"{\"rules\": [1]}", "must be an object"},
        {"{\"rules\": [\n{\"host\": \"a.test\",\n \"hots\": 1}]}", "p.json:3:10: unknown key"},
        {"{\"rules\": [{}]}", "must have a \"host\""},
        {"{\"rules\": [{\"host\": 3}]}", "must be a string, not an integer"},
        {"{\"rules\": [{\"host\": \"\"}]}", "not empty"},
        {"{\"rules\": [{\"host\": \"*\"}]}", "labels"},
        {"{\"rules\": [{\"host\": \"*.com\"}]}", "everybody"},
        {"{\"rules\": [{\"host\": \"*.co.uk\"}]}", "everybody"},
        {"{\"rules\": [{\"host\": \"*github.com\"}]}", "labels"},
        {"{\"rules\": [{\"host\": \"a.*.com\"}]}", "labels"},
        {"{\"rules\": [{\"host\": \"*.*.com\"}]}", "labels"},
        {"{\"rules\": [{\"host\": \"a.test:444\"}]}", "port"},
        {"{\"rules\": [{\"host\": \"https://a.test\"}]}", "scheme"},
        {"{\"rules\": [{\"host\": \"127.0.0.1\"}]}", "address"},
        {"{\"rules\": [{\"host\": \"a.test\", \"host\": \"b.test\"}]}", "duplicate key"},
        {"{\"rules\": [{\"host\": \"a.test\", \"methods\": []}]}", "empty"},
        {"{\"rules\": [{\"host\": \"a.test\", \"methods\": [\"get\"]}]}", "capital"},
        {"{\"rules\": [{\"host\": \"a.test\", \"methods\": [\"CONNECT\"]}]}", "never"},
        {"{\"rules\": [{\"host\": \"a.test\", \"path\": \"a\"}]}", "begin"},
        {"{\"rules\": [{\"host\": \"a.test\", \"path\": \"/a?b\"}]}", "query"},
        {"{\"rules\": [{\"host\": \"a.test\", \"path\": \"/a//b\"}]}", "empty part"},
        {"{\"rules\": [{\"host\": \"a.test\", \"path\": \"/${A\"}]}", "\"}\""},
        {"{\"rules\": [{\"host\": \"a.test\", \"path\": \"/${}\"}]}", "not a name"},
        {"{\"rules\": [{\"host\": \"a.test\", \"path\": \"/${secret:A}\"}]}", "only in"},
        {"{\"rules\": [{\"host\": \"a.test\", \"git\": {\"repositories\": [\"acme\"]}}]}",
         "OWNER/REPOSITORY"},
        {"{\"rules\": [{\"host\": \"a.test\", \"git\": {\"pull\": true}}]}", "unknown key"},
        {"{\"rules\": [{\"host\": \"a.test\", \"git\": {}, \"path\": \"/a\"}]}", "leave"},
        {"{\"rules\": [{\"host\": \"a.test\", \"headers\": {\"remove\": [\"a b\"]}}]}", "name"},
        {"{\"rules\": [{\"host\": \"a.test\", \"headers\": {\"set\": {\"Host\": \"b\"}}}]}",
         "connection"},
        {"{\"rules\": [{\"host\": \"a.test\", \"headers\": {\"set\": {\"a\": \"b\", \"A\": "
         "\"c\"}}}]}",
         "twice"},
        {"{\"rules\": [{\"host\": \"a.test\", \"headers\": {\"set\": {\"a\": \"b\\r\\nc: d\"}}}]}",
         "control"},
        {"{\"rules\": [{\"host\": \"a.test\", \"headers\": {\"set\": {\"a\": \"${BREAK}\"}}}]}",
         "control"},
        {"{\"rules\": [{\"host\": \"a.test\", \"headers\": {\"set\": {\"a\": "
         "\"${secret:../x}\"}}}]}",
         "not a name"},
        {"{\"rules\": [{\"host\": \"a.test\", \"upstream\": \"b.test\"}]}", "HOST:PORT"},
        {"{\"rules\": [{\"host\": \"a.test\", \"upstream\": \"http://b.test:80\"}]}", "HTTPS"},
        {"{\"rules\": [{\"host\": \"a.test\", \"upstream\": \"https://b.test/x\"}]}", "HOST:PORT"},
        {"{\"rules\": [{\"host\": \"a.test\", \"upstream\": \"[::1]443\"}]}", "HOST:PORT"},
        {"{\"rules\": [{\"host\": \"a.test\", \"upstream\": \"[::1\"}]}", "HOST:PORT"},
        {"{\"rules\": [{\"host\": \"a.test\", \"upstream\": \"1.2.3.4:99999\"}]}", "HOST:PORT"},
        {"{\"rules\": [{\"host\": \"a.test\", \"upstream_ca\": \"ca.pem\"}]}", "with an"},
        {"{\"rules\": [{\"host\": \"a.test\", \"upstream\": \"b:1\", \"upstream_ca\": "
         "\"../ca.pem\"}]}",
         "beside"},
        {"{\"rules\": [{\"host\": \"a.test\", \"upstream\": \"b:1\", \"upstream_ca\": "
         "\"no.pem\"}]}",
         "No such file"},
        {"{\"rules\": [{\"host\": \"a.test\", \"upstream\": \"b:1\", \"upstream_ca\": "
         "\"empty.pem\"}]}",
         "no certificate"},
        {"{\"rules\": [{\"host\": \"a.test\", \"name\": \"x\"}, {\"host\": \"b.test\", \"name\": "
         "\"x\"}]}",
         "two rules"},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        const char *reason = refused(cases[i].text, cases[i].says);
        assert(strncmp(reason, "p.json:", 7) == 0);
    }
}

static void test_hosts_match_whole_labels(void)
{
    struct policy *policy = loaded("{\"rules\": [{\"host\": \"*.GitHub.com\"},"
                                   "{\"host\": \"exact.test.\"}]}",
                                   true);
    static const struct {
        const char *host;
        bool is_allowed;
    } cases[] = {
        {"api.github.com", true},  {"a.b.github.com", true},        {"API.GITHUB.com.", true},
        {"github.com", false},     {"evilgithub.com", false},       {"api.github.com:444", false},
        {"exact.test", true},      {"EXACT.test:443", true},        {"a.exact.test", false},
        {"exact.test:444", false}, {"github.com.evil.test", false},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct policy_verdict verdict = judge(policy, "GET", cases[i].host, "/");
        assert((verdict.decision == POLICY_ALLOWED) == cases[i].is_allowed);
        assert((verdict.rule != NULL) == cases[i].is_allowed);
    }
    policy_unref(policy);
}

static void test_texts_of_refusals(void)
{
    struct policy *policy = loaded("{\"rules\": [{\"host\": \"a.test\"}]}", true);
    struct policy_verdict verdict = judge(policy, "GET", "example.com", "/");
    assert(verdict.decision == POLICY_DENIED);
    assert(strcmp(verdict.reason, "example.com is not reachable from this sandbox") == 0);
    struct policy_request plain = {"GET", "a.test", 80, "/", "", false, NULL};
    policy_decide(policy, &plain, &verdict);
    assert(verdict.decision == POLICY_PLAIN_HTTP);
    assert(strcmp(verdict.reason, "a.test is reachable only over HTTPS") == 0);
    plain.host = "example.com";
    plain.port = 443;
    policy_decide(policy, &plain, &verdict);
    assert(verdict.decision == POLICY_PLAIN_HTTP);
    policy_unref(policy);
}

#define GATEWAY_RULE                                                                               \
    "{\"rules\": [{\"name\": \"gw\", \"host\": \"gw.test\", \"path\": "                            \
    "\"/v1/${ACCOUNT}/${GATEWAY}/\","                                                              \
    "\"headers\": {\"remove\": [\"X-Api-Key\", \"Authorization\"],"                                \
    "\"set\": {\"Cf-Aig-Authorization\": \"Bearer ${secret:TOKEN}\"}}}]}"

static void test_path_is_this_or_below(void)
{
    struct policy *policy = loaded(GATEWAY_RULE, true);
    static const struct {
        const char *target;
        bool is_allowed;
    } cases[] = {
        {"/v1/acct/gw", true},
        {"/v1/acct/gw/", true},
        {"/v1/acct/gw?x", true},
        {"/v1/acct/gw/anthropic/v1/messages?beta=true", true},
        {"/v1/acct/%67w/x", true},
        {"/v1/acct/gw/a..b/.c/...", true},
        {"/v1/acct/gw/a%2Fb", true},
        {"/v1/acct/gw/a;b", true},
        {"/v1/acct/gw2", false},
        {"/v1/acct/gw.", false},
        {"/v1/acct", false},
        {"/", false},
        {"/V1/acct/gw", false},
        {"//v1/acct/gw", false},
        {"/v1//acct/gw", false},
        {"/v1/acct/gw/../other", false},
        {"/v1/acct/gw/%2e%2e/other", false},
        {"/v1/acct/gw/..%2fother", false},
        {"/v1/acct/gw/..%2Fother", false},
        {"/v1/acct/gw%2f..%2fother", false},
        {"/v1/acct/gw/x%2f..%2f..%2fother", false},
        {"/v1/acct/gw\\..\\other", false},
        {"/v1/acct/gw/\\..\\other", false},
        {"/v1/acct/gw/..\\other", false},
        {"/v1/acct/gw/..%5cother", false},
        {"/v1/acct/gw/..;/other", false},
        {"/v1/acct/gw/..;x=1", false},
        {"/v1/acct/gw/%252e%252e/other", false},
        {"/v1/acct/gw/%25252e./other", false},
        {"/v1/acct/gw/.%252E%255cother", false},
        {"/v1/acct/gw/..%3bx", false},
        {"/v1/acct/gw/..%252fx", false},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct policy_verdict verdict = judge(policy, "POST", "gw.test", cases[i].target);
        if ((verdict.decision == POLICY_ALLOWED) != cases[i].is_allowed)
            printf("%s\n", cases[i].target);
        assert((verdict.decision == POLICY_ALLOWED) == cases[i].is_allowed);
    }
    policy_unref(policy);
}

static void test_first_match_decides(void)
{
    struct policy *policy = loaded("{\"rules\": ["
                                   "{\"host\": \"a.test\", \"methods\": [\"GET\", \"HEAD\"]},"
                                   "{\"host\": \"a.test\", \"path\": \"/in\"},"
                                   "{\"host\": \"a.test\", \"path\": \"/late\"}]}",
                                   true);
    assert(strcmp(policy_rule_name(judge(policy, "GET", "a.test", "/in").rule), "rule 1") == 0);
    assert(strcmp(policy_rule_name(judge(policy, "POST", "a.test", "/in").rule), "rule 2") == 0);
    assert(judge(policy, "POST", "a.test", "/").decision == POLICY_DENIED);
    assert(judge(policy, "get", "a.test", "/").decision == POLICY_DENIED);
    assert(policy_rule_count(policy) == 3);
    policy_unref(policy);
    policy = loaded("{\"rules\": []} // nothing", true);
    assert(judge(policy, "GET", "a.test", "/").decision == POLICY_DENIED);
    policy_unref(policy);
}

static void test_git_requests(void)
{
    struct policy *policy =
        loaded("{\"rules\": [{\"name\": \"hub\", \"host\": \"git.test\", \"git\": {\"fetch\": true,"
               "\"repositories\": [\"acme/*\", \"*/pub-*\"]}},"
               "{\"host\": \"git.test\"},"
               "{\"host\": \"push.test\", \"git\": {\"fetch\": true, \"push\": true}},"
               "{\"host\": \"lfs.test\", \"git\": {\"fetch\": true, \"lfs\": true}},"
               "{\"host\": \"both.test\", \"git\": {\"push\": true, \"lfs\": true}}]}",
               true);
    static const struct {
        const char *host, *method, *target;
        const char *reason; /* NULL: allowed */
    } cases[] = {
        {"git.test", "GET", "/acme/demo.git/info/refs?service=git-upload-pack", NULL},
        {"git.test", "GET", "/acme/demo/info/refs?service=git-upload-pack", NULL},
        {"git.test", "POST", "/acme/demo.git/git-upload-pack", NULL},
        {"git.test", "POST", "/x/pub-1/git-upload-pack", NULL},
        {"git.test", "POST", "/x/pub-/git-upload-pack", NULL},
        {"git.test", "GET", "/acme/demo.git/info/refs?service=git-receive-pack", "push"},
        {"git.test", "POST", "/acme/demo.git/git-receive-pack", "push"},
        {"git.test", "POST", "/other/demo.git/git-upload-pack", "other/demo"},
        {"git.test", "POST", "/Acme/demo.git/git-upload-pack", "Acme/demo"},
        {"git.test", "POST", "/x/pub.git/git-upload-pack", "x/pub"},
        {"git.test", "GET", "/acme/demo.git/info/refs", "smart HTTP"},
        {"git.test", "GET", "/acme/demo.git/info/refs?service=git-upload-pack&x", "smart HTTP"},
        {"git.test", "GET", "/acme/demo.git/git-upload-pack", "smart HTTP"},
        {"git.test", "POST", "/acme/demo.git/git-upload-pack?service=git-receive-pack", "smart"},
        {"git.test", "GET", "/acme/demo.git/HEAD", "smart HTTP"},
        {"git.test", "GET", "/acme/demo", "smart HTTP"},
        {"git.test", "GET", "/", "smart HTTP"},
        {"git.test", "POST", "/acme/.git/git-upload-pack", "smart HTTP"},
        {"git.test", "POST", "/acme/.git.git/git-upload-pack", "smart HTTP"},
        {"git.test", "POST", "/acme/.github/git-upload-pack", NULL},
        {"git.test", "POST", "/acme/.github.git/git-upload-pack", NULL},
        {"git.test", "POST", "/.acme/demo/git-upload-pack", "smart HTTP"},
        {"git.test", "POST", "/acme/..git/git-upload-pack", "smart HTTP"},
        {"git.test", "POST", "/acme/.../git-upload-pack", NULL},
        {"git.test", "POST", "/acme/.g/git-upload-pack", NULL},
        {"git.test", "POST", "/acme//git-upload-pack", "smart HTTP"},
        {"git.test", "POST", "//demo/git-upload-pack", "smart HTTP"},
        {"git.test", "POST", "/acme/demo.git//git-upload-pack", "smart HTTP"},
        {"git.test", "POST", "/acme/x%2f..%2f..%2fother%2fdemo/git-upload-pack", "smart HTTP"},
        {"git.test", "POST", "/acme/demo.git/info/lfs/objects/batch", "LFS"},
        {"push.test", "POST", "/any/repo/git-receive-pack", NULL},
        {"push.test", "GET", "/any/repo/info/refs?service=git-receive-pack", NULL},
        {"lfs.test", "POST", "/any/repo.git/info/lfs/objects/batch", NULL},
        {"lfs.test", "GET", "/any/repo.git/info/lfs/objects/abc", NULL},
        {"lfs.test", "PUT", "/any/repo.git/info/lfs/objects/abc", "writing"},
        {"lfs.test", "POST", "/any/repo.git/info/lfs/locks", "writing"},
        {"both.test", "PUT", "/any/repo.git/info/lfs/objects/abc", NULL},
        {"lfs.test", "GET", "/any/repo.git/info/lfs/..%2f..%2f..%2fother/repo.git/x", "smart HTTP"},
        {"both.test", "PUT", "/any/repo.git/info/lfs/objects/%252e%252e/x", "smart HTTP"},
        {"both.test", "POST", "/any/repo/git-upload-pack", "fetch"},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct policy_verdict verdict =
            judge(policy, cases[i].method, cases[i].host, cases[i].target);
        assert(verdict.decision == (cases[i].reason ? POLICY_DENIED_GIT : POLICY_ALLOWED));
        if (cases[i].reason)
            assert(strstr(verdict.reason, cases[i].reason) && !strchr(verdict.reason, '\n'));
    }
    policy_unref(policy);
}

static void test_inactive_rules_say_what_to_set(void)
{
    struct policy *policy = loaded(GATEWAY_RULE, false);
    const char *why = policy_rule_inactive(policy_rule_at(policy, 0));
    assert(why && strstr(why, "variable ACCOUNT is not set") && strstr(why, "\"vars\""));
    assert(strstr(why, "variable GATEWAY is") && strstr(why, "secret TOKEN is not set"));
    struct policy_verdict verdict = judge(policy, "GET", "gw.test", "/v1/acct/gw");
    assert(verdict.decision == POLICY_INACTIVE && strstr(verdict.reason, "ACCOUNT"));
    assert(judge(policy, "GET", "other.test", "/").decision == POLICY_DENIED);
    policy_unref(policy);

    policy = loaded("{\"rules\": [{\"host\": \"a.test\", \"headers\": {\"set\": {\"a\": "
                    "\"${secret:LOCKED}\"}}}]}",
                    true);
    assert(strcmp(policy_rule_inactive(policy_rule_at(policy, 0)),
                  "secret LOCKED cannot be used: its file is locked") == 0);
    policy_unref(policy);

    policy = loaded("{\"rules\": [{\"host\": \"${NONE}.test\"}, {\"host\": \"a.test\", \"path\": "
                    "\"/${EMPTY}\"}]}",
                    true);
    assert(policy_rule_inactive(policy_rule_at(policy, 0)));
    assert(judge(policy, "GET", "test", "/").decision == POLICY_DENIED);
    assert(judge(policy, "GET", "a.test", "/anything").decision == POLICY_INACTIVE);
    policy_unref(policy);
}

static const struct secret *give_secret(void *ctx, const char *name)
{
    assert(strcmp(name, "TOKEN") == 0);
    return ctx;
}

static void count_secret(void *ctx, const char *name)
{
    assert(strcmp(name, "TOKEN") == 0);
    ++*(int *)ctx;
}

static void test_headers(void)
{
    struct policy *policy = loaded(GATEWAY_RULE, true);
    const struct policy_rule *rule = policy_rule_at(policy, 0);
    assert(!policy_rule_inactive(rule));
    assert(policy_rule_removes_header(rule, "x-api-key", 9));
    assert(policy_rule_removes_header(rule, "AUTHORIZATION: x", 13));
    assert(policy_rule_removes_header(rule, "cf-aig-AUTHORIZATION", 20)); /* never both */
    assert(policy_rule_removes_header(rule, "X_Api.Key", 9)); /* CGI makes the same of it */
    assert(!policy_rule_removes_header(rule, "x-api-keys", 10));
    assert(!policy_rule_removes_header(rule, "x-api-k", 7));
    assert(policy_rule_set_count(rule) == 1);
    assert(strcmp(policy_rule_set_name(rule, 0), "cf-aig-authorization") == 0);
    int count = 0;
    policy_rule_secrets(rule, count_secret, &count);
    assert(count == 1);

    struct secret token = {.data = (char[]){"t0ken"}, .len = 5};
    struct secret value = {0};
    struct err err = {0};
    assert(policy_rule_set_value(rule, 0, give_secret, &token, &value, &err) == 0);
    assert(value.len == 12 && strcmp(value.data, "Bearer t0ken") == 0);
    secret_free(&value);
    assert(policy_rule_set_value(rule, 0, give_secret, NULL, &value, &err) == -ENOENT);
    struct secret broken = {.data = (char[]){"t0\r\nken"}, .len = 7};
    assert(policy_rule_set_value(rule, 0, give_secret, &broken, &value, &err) == -EINVAL);
    assert(!strstr(err.message, "t0") && !value.data);
    struct secret nul = {.data = (char[]){"t\0"}, .len = 2};
    assert(policy_rule_set_value(rule, 0, give_secret, &nul, &value, &err) == -EINVAL);
    policy_unref(policy);
}

static bool refuses(const struct policy *policy, size_t index, const char *name)
{
    return policy_rule_refuses_header(policy_rule_at(policy, index), name, strlen(name));
}

static void test_overrides_are_refused_where_they_matter(void)
{
    struct policy *policy = loaded("{\"rules\": [{\"host\": \"a.test\", \"methods\": [\"GET\"]},"
                                   "{\"host\": \"b.test\", \"path\": \"/p\"},"
                                   "{\"host\": \"c.test\", \"git\": {\"fetch\": true}},"
                                   "{\"host\": \"d.test\"},"
                                   "{\"host\": \"e.test\", \"methods\": [\"GET\"],"
                                   " \"headers\": {\"remove\": [\"X-HTTP-Method-Override\"]}}]}",
                                   true);
    assert(refuses(policy, 0, "X-HTTP-Method-Override"));
    assert(refuses(policy, 0, "x_http_method_override"));
    assert(!refuses(policy, 0, "X-Original-URL"));
    assert(!refuses(policy, 0, "X-HTTP-Method-Overrides"));
    assert(!refuses(policy, 1, "X-HTTP-Method") && refuses(policy, 1, "x-original-url"));
    assert(refuses(policy, 2, "X-HTTP-Method") && refuses(policy, 2, "X-Rewrite-URL"));
    assert(!refuses(policy, 3, "X-HTTP-Method") && !refuses(policy, 3, "X-Rewrite-URL"));
    assert(!refuses(policy, 4, "X-HTTP-Method-Override") && refuses(policy, 4, "X-HTTP-Method"));
    assert(policy_rule_removes_header(policy_rule_at(policy, 3), "X-Forwarded-Host", 16));
    policy_unref(policy);
}

static void test_upstreams(void)
{
    static const struct {
        const char *upstream, *host;
        uint16_t port;
    } cases[] = {
        {"127.0.0.1:8443", "127.0.0.1", 8443},   {"[::1]:8443", "::1", 8443},
        {"Mirror.test:443", "mirror.test", 443}, {"https://mirror.test", "mirror.test", 443},
        {"https://[fd00::1]", "fd00::1", 443},   {"https://10.0.0.1:1", "10.0.0.1", 1},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        char text[300];
        snprintf(text, sizeof(text),
                 "{\"rules\": [{\"host\": \"a.test\", \"upstream\": \"%s\", \"upstream_ca\": "
                 "\"ca.pem\"}]}",
                 cases[i].upstream);
        struct policy *policy = loaded(text, true);
        uint16_t port = 0;
        size_t len = 0;
        const struct policy_rule *rule = policy_rule_at(policy, 0);
        assert(strcmp(policy_rule_upstream(rule, &port), cases[i].host) == 0);
        assert(port == cases[i].port);
        assert(policy_rule_upstream_ca(rule, &len) && len > 20);
        policy_unref(policy);
    }
    struct policy *policy = loaded("{\"rules\": [{\"host\": \"a.test\"}]}", true);
    uint16_t port;
    size_t len;
    assert(!policy_rule_upstream(policy_rule_at(policy, 0), &port));
    assert(!policy_rule_upstream_ca(policy_rule_at(policy, 0), &len));
    policy_unref(policy_ref(policy)); /* one reference is left */
    assert(policy_rule_count(policy) == 1);
    policy_unref(policy);
}

int main(void)
{
    test_refusals_name_place_and_reason();
    test_hosts_match_whole_labels();
    test_texts_of_refusals();
    test_path_is_this_or_below();
    test_first_match_decides();
    test_git_requests();
    test_inactive_rules_say_what_to_set();
    test_headers();
    test_overrides_are_refused_where_they_matter();
    test_upstreams();
    return 0;
}
