/* The promises of a rule's keys for ports, plain HTTP, client certificates, "Basic" and the refs of
 * a push. */
#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "load.h"
#include "util/cleanup.h"

#define RULE(keys) "{\"rules\": [{\"host\": \"a.test\", " keys "}]}"

static void test_refusals(void)
{
    static const struct {
        const char *text;
        const char *says;
    } cases[] = {
        {RULE("\"usage\": \"mistral\""), "\"usage\" is \"anthropic\", \"openai\" or \"auto\""},
        {RULE("\"usage\": true"), "must be a string"},
        {RULE("\"port\": 0"), "p.json:1:39: \"port\" is a number from 1 to 65535"},
        {RULE("\"port\": 65536"), "1 to 65535"},
        {RULE("\"port\": -1"), "1 to 65535"},
        {RULE("\"port\": \"444\""), "must be an integer, not a string"},
        {RULE("\"port\": 53"), "DNS"},
        {RULE("\"port\": 80"), "needs \"plain_http\": true"},
        {RULE("\"port\": 443, \"plain_http\": true"), "p.json:1:39: port 443 speaks TLS alone"},
        {"{\"rules\": [{\"host\": \"a.test\", \"port\": 8080},\n{\"name\": \"x\", \"host\": "
         "\"b.test\",\n \"port\": 8080, \"plain_http\": true}]}",
         "p.json:3:10: port 8080 speaks either TLS or plain HTTP, and rule \"rule 1\" has it for "
         "TLS"},
        {"{\"rules\": [{\"host\": \"a.test\", \"port\": 1}, {\"host\": \"a.test\", \"port\": 2},"
         "{\"host\": \"a.test\", \"port\": 3}, {\"host\": \"a.test\", \"port\": 4},"
         "{\"host\": \"a.test\", \"port\": 5}, {\"host\": \"a.test\", \"port\": 6},"
         "{\"host\": \"a.test\", \"port\": 7}, {\"host\": \"a.test\", \"port\": 8},\n"
         "{\"host\": \"a.test\", \"port\": 8}, {\"host\": \"a.test\", \"port\": 9}]}",
         "p.json:2:59: a policy has at most 8 ports beside 80 and 443"},
        {RULE("\"plain_http\": 1"), "p.json:1:45: \"plain_http\" must be a boolean"},
        {RULE("\"plain_http\": true, \"headers\": {\"set\": {\"b\": \"c\", \"a\":\n"
              "\"x ${secret:TOKEN}\"}}"),
         "p.json:2:1: a secret is never sent over plain HTTP"},
        {RULE("\"plain_http\": true, \"headers\": {\"set\": {\"a\": \"${basic:u:TOKEN}\"}}"),
         "a secret is never"},
        {RULE("\"plain_http\": true, \"git\": {\"push\": true}"),
         "p.json:1:67: a push never goes over plain HTTP"},
        {RULE("\"plain_http\": true, \"upstream\": \"b:1\", \"upstream_ca\": \"ca.pem\""),
         "is for TLS"},
        {RULE("\"plain_http\": true, \"upstream_cert\": \"ca.pem\", \"upstream_key\": "
              "\"${secret:TOKEN}\""),
         "is for TLS"},
        {RULE("\"plain_http\": true, \"upstream\": \"https://b.test\""), "HOST:PORT or http://"},
        {RULE("\"upstream\": \"http://b.test\""), "over HTTPS only"},
        {RULE("\"upstream_cert\": \"ca.pem\""), "p.json:1:48: \"upstream_cert\" and"},
        {RULE("\"upstream_key\": \"${secret:TOKEN}\""), "p.json:1:47: \"upstream_cert\" and"},
        {RULE("\"upstream_cert\": \"../ca.pem\""), "upstream_cert is the name of a *.pem"},
        {RULE("\"upstream_cert\": \"no.pem\""), "No such file"},
        {RULE("\"upstream_cert\": \"empty.pem\""), "no certificate"},
        {RULE("\"upstream_cert\": \"ca.pem\", \"upstream_key\": \"key.pem\""), "names a secret"},
        {RULE("\"upstream_cert\": \"ca.pem\", \"upstream_key\": \"${secret:TOKEN}x\""),
         "names a secret"},
        {RULE("\"upstream_cert\": \"ca.pem\", \"upstream_key\": \"${secret:TOKEN}${ACCOUNT}\""),
         "names a secret"},
        {RULE("\"upstream_cert\": \"ca.pem\", \"upstream_key\": \"${secret:}\""), "not a name"},
        {RULE("\"headers\": {\"set\": {\"a\": \"Basic ${basic:TOKEN}\"}}"), "${basic:USER:SECRET}"},
        {RULE("\"headers\": {\"set\": {\"a\": \"Basic ${basic::TOKEN}\"}}"),
         "${basic:USER:SECRET}"},
        {RULE("\"headers\": {\"set\": {\"a\": \"Basic ${basic:a b:TOKEN}\"}}"), "${basic:USER"},
        {RULE("\"headers\": {\"set\": {\"a\": \"Basic ${basic:a:b:TOKEN}\"}}"), "not a name"},
        {RULE("\"path\": \"/${basic:a:TOKEN}\""), "only in the values"},
        {RULE("\"git\": {\"branches\": [\"x\"]}"), "p.json:1:51: \"branches\" and \"tags\" say"},
        {RULE("\"git\": {\"tags\": [\"x\"]}"), "\"push\": true is needed"},
        {RULE("\"git\": {\"push\": true, \"branches\": []}"), "empty"},
        {RULE("\"git\": {\"push\": true, \"branches\": [\"refs/heads/x\"]}"), "leave"},
        {RULE("\"git\": {\"push\": true, \"branches\": [\"a b\"]}"), "git-check-ref-format"},
        {RULE("\"git\": {\"push\": true, \"branches\": [\"a/../b\"]}"), "git-check-ref-format"},
        {RULE("\"git\": {\"push\": true, \"delete\": true}"), "p.json:1:63: \"delete\" is for"},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++)
        refused(cases[i].text, cases[i].says);
}

static enum policy_decision decide(const struct policy *policy, const char *host, uint16_t port,
                                   bool is_tls)
{
    struct policy_request request = {"GET", host, port, "/p", "", is_tls, NULL};
    struct policy_verdict verdict;
    policy_decide(policy, &request, &verdict);
    return verdict.decision;
}

static void test_a_rule_is_for_its_port_alone(void)
{
    struct policy *policy = loaded("{\"rules\": [{\"host\": \"a.test\", \"port\": 8443},"
                                   "{\"host\": \"b.test\", \"port\": 443},"
                                   "{\"host\": \"${NONE}\", \"port\": 9000, \"plain_http\": true},"
                                   "{\"host\": \"b.test\", \"port\": 8443}]}",
                                   true);
    assert(decide(policy, "a.test", 8443, true) == POLICY_ALLOWED);
    assert(decide(policy, "a.test", 443, true) == POLICY_DENIED);
    assert(decide(policy, "a.test", 9000, true) == POLICY_DENIED);
    assert(decide(policy, "a.test", 8443, false) == POLICY_PLAIN_HTTP);
    assert(decide(policy, "b.test", 443, true) == POLICY_ALLOWED);
    assert(decide(policy, "b.test", 8443, true) == POLICY_ALLOWED);
    assert(policy_rule_port(policy_rule_at(policy, 0)) == 8443);
    struct policy_port ports[POLICY_PORTS_MAX];
    assert(policy_ports(policy, ports) == 2); /* that of an inactive rule too */
    assert(ports[0].port == 8443 && ports[0].is_tls);
    assert(ports[1].port == 9000 && !ports[1].is_tls);
    policy_unref(policy);
    policy = loaded("{\"rules\": [{\"host\": \"a.test\"},"
                    "{\"host\": \"a.test\", \"plain_http\": true}]}",
                    true);
    assert(policy_rule_port(policy_rule_at(policy, 0)) == 443);
    assert(policy_rule_port(policy_rule_at(policy, 1)) == 80);
    assert(policy_ports(policy, ports) == 0);
    policy_unref(policy);
}

static void test_plain_http_needs_a_rule_of_its_own(void)
{
    struct policy *policy = loaded("{\"rules\": [{\"host\": \"tls.test\"},"
                                   "{\"host\": \"plain.test\", \"plain_http\": true, \"path\": "
                                   "\"/p\", \"upstream\": \"http://10.0.0.1\"},"
                                   "{\"host\": \"other.test\", \"plain_http\": true, \"path\": "
                                   "\"/q\", \"headers\": {\"set\": {\"a\": \"b\"}}},"
                                   "{\"host\": \"lack.test\", \"plain_http\": true, \"path\": "
                                   "\"/${NONE}\"}]}",
                                   true);
    assert(decide(policy, "plain.test", 80, false) == POLICY_ALLOWED);
    assert(decide(policy, "plain.test", 80, true) == POLICY_DENIED);
    assert(decide(policy, "plain.test", 443, true) == POLICY_DENIED);
    assert(decide(policy, "plain.test", 443, false) == POLICY_PLAIN_HTTP);
    assert(decide(policy, "tls.test", 80, false) == POLICY_PLAIN_HTTP);
    assert(decide(policy, "unknown.test", 80, false) == POLICY_PLAIN_HTTP);
    assert(decide(policy, "other.test", 80, false) == POLICY_DENIED); /* open, but not for this */
    assert(decide(policy, "lack.test", 80, false) == POLICY_INACTIVE);
    uint16_t port = 0;
    const struct policy_rule *rule = policy_rule_at(policy, 1);
    assert(strcmp(policy_rule_upstream(rule, &port), "10.0.0.1") == 0 && port == 80);
    assert(policy_rule_is_plain(rule) && !policy_rule_is_plain(policy_rule_at(policy, 0)));
    policy_unref(policy);
}

static void note_secret(void *ctx, const char *name)
{
    assert(strcmp(name, "TOKEN") == 0);
    ++*(int *)ctx;
}

static void test_usage_is_that_of_the_rule(void)
{
    static const struct {
        const char *text;
        enum policy_usage usage;
    } rules[] = {
        {RULE("\"usage\": \"anthropic\""), POLICY_USAGE_ANTHROPIC},
        {RULE("\"usage\": \"openai\""), POLICY_USAGE_OPENAI},
        {RULE("\"usage\": \"auto\""), POLICY_USAGE_AUTO},
        {RULE("\"path\": \"/\""), POLICY_USAGE_NONE},
    };
    for (size_t i = 0; i < ARRAY_LEN(rules); i++) {
        struct policy *policy = loaded(rules[i].text, true);
        assert(policy_rule_usage(policy_rule_at(policy, 0)) == rules[i].usage);
        policy_unref(policy);
    }
}

static void test_client_certificate(void)
{
    static const char text[] =
        RULE("\"upstream_cert\": \"ca.pem\", \"upstream_key\": \"${secret:TOKEN}\"");
    struct policy *policy = loaded(text, true);
    const struct policy_rule *rule = policy_rule_at(policy, 0);
    const char *key = NULL;
    size_t len = 0;
    const char *cert = policy_rule_upstream_cert(rule, &len, &key);
    assert(cert && strncmp(cert, "-----BEGIN", 10) == 0 && strlen(cert) == len);
    assert(strcmp(key, "TOKEN") == 0 && !policy_rule_inactive(rule));
    int count = 0;
    policy_rule_secrets(rule, note_secret, &count);
    assert(count == 1);
    policy_unref(policy);
    policy = loaded(text, false);
    assert(strstr(policy_rule_inactive(policy_rule_at(policy, 0)), "secret TOKEN is not set"));
    policy_unref(policy);
    policy = loaded("{\"rules\": [{\"host\": \"a.test\"}]}", true);
    assert(!policy_rule_upstream_cert(policy_rule_at(policy, 0), &len, &key));
    policy_unref(policy);
}

static const struct secret *give_secret(void *ctx, const char *name)
{
    assert(strcmp(name, "TOKEN") == 0);
    return ctx;
}

/* The values are those of base64(1). */
static void test_basic_credentials(void)
{
    static const struct {
        const char *user, *secret, *value;
    } cases[] = {
        {"x-access-token", "ghs_0123456789", "Basic eC1hY2Nlc3MtdG9rZW46Z2hzXzAxMjM0NTY3ODk="},
        {"u", "a", "Basic dTph"},
        {"u", "ab", "Basic dTphYg=="},
        {"u", "abc", "Basic dTphYmM="},
        {"u@h.test", "\xff\xfe?~", "Basic dUBoLnRlc3Q6//4/fg=="},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        char text[300];
        snprintf(text, sizeof(text),
                 RULE("\"headers\": {\"set\": {\"authorization\": \"Basic ${basic:%s:TOKEN}\"}}"),
                 cases[i].user);
        struct policy *policy = loaded(text, true);
        struct secret token = {0};
        struct secret value = {0};
        struct err err = {0};
        assert(secret_set(&token, cases[i].secret, strlen(cases[i].secret)) == 0);
        const struct policy_rule *rule = policy_rule_at(policy, 0);
        assert(policy_rule_set_value(rule, 0, give_secret, &token, &value, &err) == 0);
        assert(strcmp(value.data, cases[i].value) == 0);
        secret_free(&token);
        assert(secret_set(&token, "t0\nken", 6) == 0);
        assert(policy_rule_set_value(rule, 0, give_secret, &token, &value, &err) == -EINVAL);
        assert(strstr(err.message, "TOKEN") && !strstr(err.message, "t0"));
        secret_free(&token);
        secret_free(&value);
        int count = 0;
        policy_rule_secrets(rule, note_secret, &count);
        assert(count == 1);
        policy_unref(policy);
    }
}

static bool judges_push(const struct policy *policy, size_t rule, const char *method,
                        const char *path)
{
    struct policy_request request = {method, "a.test", 443, path, "", true, NULL};
    return policy_rule_judges_push(policy_rule_at(policy, rule), &request);
}

static void test_only_a_push_bound_to_refs_is_judged_by_its_body(void)
{
    struct policy *policy =
        loaded("{\"rules\": [{\"host\": \"a.test\", \"git\": {\"push\": true, \"fetch\": true,"
               "\"branches\": [\"agent/*\", \"*\"], \"tags\": [\"v*\"], \"delete\": true}},"
               "{\"host\": \"b.test\", \"git\": {\"push\": true}}]}",
               true);
    assert(judges_push(policy, 0, "POST", "/a/b.git/git-receive-pack"));
    assert(!judges_push(policy, 0, "POST", "/a/b.git/git-upload-pack"));
    assert(!judges_push(policy, 0, "GET", "/a/b.git/info/refs"));
    assert(!judges_push(policy, 1, "POST", "/a/b.git/git-receive-pack"));
    policy_unref(policy);
}

static void test_included_rules_count_behind_its_own(void)
{
    struct policy *policy =
        loaded("{\"include\": [\"both.json\", \"more.json\", \"deep-93.json\"], \"rules\": ["
               "{\"name\": \"own\", \"host\": \"a.test\", \"methods\": [\"GET\"]}]}",
               true);
    assert(policy_rule_count(policy) == 3); /* a file counts once */
    assert(strcmp(policy_rule_name(judge(policy, "GET", "a.test", "/").rule), "own") == 0);
    assert(strcmp(policy_rule_name(judge(policy, "PUT", "a.test", "/").rule), "rule 3") == 0);
    assert(judge(policy, "PUT", "more.test", "/").decision == POLICY_ALLOWED);
    policy_unref(policy);
}

static void test_includes_that_cannot_be_are_refused_where_they_stand(void)
{
    static const struct {
        const char *text;
        const char *says;
    } cases[] = {
        {"{\"include\": \"more.json\"}", "p.json:1:13: \"include\" must be an array"},
        {"{\"include\": [\"more.json\", 1]}", "p.json:1:27: an include is the name"},
        {"{\"include\": [\"../more.json\"]}", "beside the policy"},
        {"{\"include\": [\".more.json\"]}", "beside the policy"},
        {"{\"include\": [\"ca.pem\"]}", "p.json:1:14: an include is the name of a *.json file"},
        {"{\"include\":\n [\"none.json\"]}", "p.json:2:3: none.json beside the policy: No such"},
        {"{\"include\": [\"p.json\"]}", "p.json:1:14: p.json is included by itself"},
        {"{\"include\": [\"self.json\"]}", "self.json:1:14: self.json is included by itself"},
        {"{\"include\": [\"back.json\"]}",
         "back.json:1:14: p.json is included by itself, by way of others"},
        {"{\"include\": [\"deep-92.json\"]}", "deep-99.json:1:14: deep-100.json: included more "
                                              "than 8 files deep"},
        {"{\"include\": [\"text.json\"]}", "text.json:1:2: "},
        {"{\"include\": [\"bad.json\"]}", "bad.json:2:10: \"port\" is"},
        {"{\"include\": [\"more.json\"], \"rules\": [{\"name\": \"more\", \"host\": \"b.test\"}]}",
         "more.json:1:12: two rules are named \"more\""},
        {"{\"include\": [\"plain.json\"], \"rules\": [{\"port\": 8443, \"host\": \"b.test\"}]}",
         "plain.json:1:59: port 8443 speaks either TLS"},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++)
        refused(cases[i].text, cases[i].says);
}

static void test_every_problem_is_told(void)
{
    struct policy *policy = NULL;
    struct err err = {0};
    int result = load("{\"rule\": 1, \"rules\": [{\"hots\": \"a.test\"},\n"
                      "{\"host\": \"b.test\", \"methods\": [\"get\", \"TRACE\"],\n"
                      "\"headers\": {\"set\": {\"host\": \"x\", \"a\": \"${\"}, \"remove\": []}},\n"
                      "{\"host\": \"c.test\", \"plain_http\": true, \"git\": {\"push\": true}}],\n"
                      "\"include\": [\"bad.json\", \"none.json\"]}",
                      true, &policy, &err);
    assert(result == -EINVAL && !policy);
    static const char *const told[] = {
        "p.json:1:10: unknown key \"rule\"",
        "p.json:1:32: unknown key \"hots\"",
        "p.json:1:23: a rule must have a \"host\"",
        "p.json:2:32: a method is written in",
        "p.json:2:39: TRACE is never",
        "p.json:3:29: header host belongs",
        "p.json:3:39: \"${\" without",
        "p.json:3:56: the list is empty",
        "p.json:4:56: a push never",
        "bad.json:2:10: \"port\" is",
        "bad.json:2:21: a path begins",
        "bad.json:2:27: a rule must be an object",
        "p.json:5:25: none.json beside",
    };
    const char *at = load_problems();
    for (size_t i = 0; i < ARRAY_LEN(told); i++) {
        const char *end = strchr(at, '\n');
        if (!end || strncmp(at, told[i], strlen(told[i])) != 0)
            fprintf(stderr, "%s\n  is not %s\n", at, told[i]);
        assert(end && strncmp(at, told[i], strlen(told[i])) == 0);
        at = end + 1;
    }
    assert(!*at && strncmp(err.message, told[0], strlen(told[0])) == 0);
}

static void test_cloned_is_the_repository_of_the_sandboxs_clone_alone(void)
{
    struct policy *policy = loaded("{\"rules\": [{\"host\": \"a.test\", \"git\": {\"fetch\": true, "
                                   "\"repositories\": [\"@cloned\"]}}]}",
                                   true);
    static const struct {
        const char *cloned, *path;
        bool is_allowed;
    } cases[] = {
        {"acme/notes", "/acme/notes.git/git-upload-pack", true},
        {"acme/notes", "/acme/notes/git-upload-pack", true},
        {"acme/notes", "/acme/note/git-upload-pack", false},
        {"acme/notes", "/acme/notes2/git-upload-pack", false},
        {"acme/notes", "/acm/notes/git-upload-pack", false},
        {"acme/notes", "/Acme/notes/git-upload-pack", false},
        {"", "/acme/notes/git-upload-pack", false},
        {NULL, "/acme/notes/git-upload-pack", false},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct policy_request request = {"POST", "a.test",       443, cases[i].path, "",
                                         true,   cases[i].cloned};
        struct policy_verdict verdict;
        policy_decide(policy, &request, &verdict);
        assert((verdict.decision == POLICY_ALLOWED) == cases[i].is_allowed);
    }
    policy_unref(policy);
}

int main(void)
{
    test_cloned_is_the_repository_of_the_sandboxs_clone_alone();
    test_included_rules_count_behind_its_own();
    test_includes_that_cannot_be_are_refused_where_they_stand();
    test_every_problem_is_told();
    test_refusals();
    test_a_rule_is_for_its_port_alone();
    test_plain_http_needs_a_rule_of_its_own();
    test_usage_is_that_of_the_rule();
    test_client_certificate();
    test_basic_credentials();
    test_only_a_push_bound_to_refs_is_judged_by_its_body();
    return 0;
}
