/* What is judged is what is sent: the canonical forms of hosts and targets (CASES B3, B4, B8). */
#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "policy/policy.h"
#include "util/cleanup.h"

static void test_hosts_have_one_form(void)
{
    static const struct {
        const char *host;
        const char *canonical;
        uint16_t port;
    } cases[] = {
        {"github.com", "github.com", 443},
        {"GitHub.COM", "github.com", 443},
        {"github.com.", "github.com", 443},
        {"github.com:443", "github.com", 443},
        {"GITHUB.com.:444", "github.com", 444},
        {"github.com:1", "github.com", 1},
        {"xn--bcher-kva.example", "xn--bcher-kva.example", 443},
        {"a-b.c1.example", "a-b.c1.example", 443},
        {"1and1.example", "1and1.example", 443},
        {"localhost", "localhost", 443},
        {"1.2.3.4.example", "1.2.3.4.example", 443},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        char host[POLICY_HOST_MAX];
        uint16_t port;
        assert(policy_canonical_host(cases[i].host, strlen(cases[i].host), 443, host, &port,
                                     NULL) == 0);
        assert(strcmp(host, cases[i].canonical) == 0 && port == cases[i].port);
    }
}

static void test_hosts_that_are_none(void)
{
    static const char *const cases[] = {
        "",
        ".",
        "..",
        "a..b",
        ".a",
        "a.b..",
        "-a.example",
        "a-.example",
        "a_b.example",
        "b\xc3\xbc"
        "cher.example",
        "a b",
        "a%2eb",
        "user@a.test",
        "a.test/",
        "a.test:",
        "a.test:0",
        "a.test:x",
        "a.test:65536",
        "a.test:0443",
        "a.test:443:443",
        "a.test: 44",
        "127.0.0.1",
        "127.1",
        "2130706433",
        "0x7f.1",
        "0x7f000001",
        "[::1]",
        "[::1]:443",
        "::1",
        "1.2.3.4:443",
        "1.2.3.4.",
        "a.test\n",
        "a.test\\",
        "*.github.com",
        "a.0x1",
        "a.test#",
        "a.test?",
        "0177.0.0.1",
        "a.test,b.test",
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        char host[POLICY_HOST_MAX] = "kept";
        uint16_t port = 7;
        struct err err = {0};
        assert(policy_canonical_host(cases[i], strlen(cases[i]), 443, host, &port, &err) ==
               -EINVAL);
        assert(err.message[0] && strcmp(host, "kept") == 0 && port == 7);
    }
    char host[POLICY_HOST_MAX];
    uint16_t port;
    assert(policy_canonical_host("a\0b", 3, 443, host, &port, NULL) == -EINVAL);
}

static void test_host_lengths(void)
{
    char host[POLICY_HOST_MAX];
    char name[300];
    uint16_t port;
    memset(name, 'a', sizeof(name));
    assert(policy_canonical_host(name, 63, 443, host, &port, NULL) == 0);
    assert(policy_canonical_host(name, 64, 443, host, &port, NULL) == -EINVAL);
    for (size_t i = 49; i < sizeof(name); i += 50)
        name[i] = '.';
    assert(policy_canonical_host(name, 253, 443, host, &port, NULL) == 0 && strlen(host) == 253);
    assert(policy_canonical_host(name, 254, 443, host, &port, NULL) == -EINVAL);
}

static void test_targets_have_one_form(void)
{
    static const struct {
        const char *target;
        const char *path;
        const char *query;
    } cases[] = {
        {"/", "/", ""},
        {"/a/b?q=1&r", "/a/b", "q=1&r"},
        {"/a?", "/a", ""},
        {"/a?b?c=%zz/../", "/a", "b?c=%zz/../"},
        {"/v1/acct/gw/../other", "/v1/acct/other", ""},
        {"/v1/acct/gw/%2e%2e/other", "/v1/acct/other", ""},
        {"/v1/acct/gw/.%2E/other", "/v1/acct/other", ""},
        {"/v1/acct/gw/..%2fother", "/v1/acct/gw/..%2Fother", ""},
        {"/v1/acct/gw/..%5cother", "/v1/acct/gw/..%5Cother", ""},
        {"/v1/acct/gw\\..\\other", "/v1/acct/gw\\..\\other", ""},
        {"/v1//acct", "/v1//acct", ""},
        {"/a//../b", "/a/b", ""},
        {"//../a", "/a", ""},
        {"/a/;x/..;/b", "/a/;x/..;/b", ""},
        {"/a/./b/.", "/a/b/", ""},
        {"/a/b/..", "/a/", ""},
        {"/a/..", "/", ""},
        {"/%41%7a%7E%2d", "/Az~-", ""},
        {"/%c3%a9", "/%C3%A9", ""},
        {"/%252e%252e/", "/%252e%252e/", ""},
        {"/...", "/...", ""},
        {"/..a/.b", "/..a/.b", ""},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        cleanup_buf struct buf path = BUF_INIT(1000);
        cleanup_buf struct buf query = BUF_INIT(1000);
        assert(policy_canonical_target(cases[i].target, strlen(cases[i].target), &path, &query,
                                       NULL) == 0);
        if (strcmp(buf_text(&path), cases[i].path) != 0)
            printf("%s -> %s\n", cases[i].target, buf_text(&path));
        assert(strcmp(buf_text(&path), cases[i].path) == 0);
        assert(strcmp(buf_text(&query), cases[i].query) == 0);
    }
}

static void test_targets_that_are_refused(void)
{
    static const char *const cases[] = {
        "",
        "a",
        "*",
        "?a",
        "https://github.com/a",
        "github.com:443",
        "/..",
        "/a/../..",
        "/%2e%2e",
        "/../a",
        "/a%00",
        "/a%0",
        "/a%",
        "/a%g1",
        "/a b",
        "/a\tb",
        "/a#b",
        "/a?b#c",
        "/a\x7f",
        "/\xc3\xa9",
        "/a?\xc3",
        "/a\r\nHost: x",
        "/a%%30%30",
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        cleanup_buf struct buf path = BUF_INIT(1000);
        cleanup_buf struct buf query = BUF_INIT(1000);
        struct err err = {0};
        assert(policy_canonical_target(cases[i], strlen(cases[i]), &path, &query, &err) == -EINVAL);
        assert(err.message[0] && path.len == 0 && query.len == 0);
    }
    cleanup_buf struct buf small = BUF_INIT(4);
    cleanup_buf struct buf query = BUF_INIT(4);
    assert(policy_canonical_target("/long/path", 10, &small, &query, NULL) == -EMSGSIZE);
    assert(policy_canonical_target("/a?12345", 8, &small, &query, NULL) == -EMSGSIZE);
    assert(small.len == 0 && query.len == 0);
}

int main(void)
{
    test_hosts_have_one_form();
    test_hosts_that_are_none();
    test_host_lengths();
    test_targets_have_one_form();
    test_targets_that_are_refused();
    return 0;
}
