/* Who may do what over TCP. */
#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "api/access.h"
#include "ipc/ipc.h"
#include "util/sha256.h"

static struct access_tokens tokens;

static struct msg_api_token make(const char *id, const char *text, const char *prefix)
{
    struct msg_api_token token = {0};
    struct sha256_part part = {text, strlen(text)};
    IPC_SET_TEXT(token.id, id);
    IPC_SET_TEXT(token.prefix, prefix);
    sha256_hex(&part, 1, token.hash);
    return token;
}

/* The status, or 0 and the token. */
static int check(const char *fields, int64_t now, const struct msg_api_token **ret)
{
    static char text[1024];
    static struct http_head head;
    struct err err;
    const char *why;
    int status;
    int len = snprintf(text, sizeof(text), "GET /healthz HTTP/1.1\r\n%s\r\n", fields);
    assert(http_head_check(text, (size_t)len, &head, &err) == 0);
    *ret = access_check(&tokens, &head, now, &status, &why);
    return *ret ? 0 : status;
}

static void test_token_host_and_origin(void)
{
    static const struct {
        const char *fields;
        int status;
    } cases[] = {
        {"Host: localhost\r\nAuthorization: Bearer one\r\n", 0},
        {"Host: LOCALHOST:80\r\nAuthorization: bearer two\r\n", 0},
        {"Host: 127.0.0.1:8080\r\nAuthorization: Bearer one\r\n", 0},
        {"Host: [::1]\r\nAuthorization: Bearer one\r\n", 0},
        {"Host: [::1]:1\r\nAuthorization: Bearer one\r\n", 0},
        {"Host: localhost\r\n", 401},
        {"Host: localhost\r\nAuthorization: Bearer on\r\n", 401},
        {"Host: localhost\r\nAuthorization: Bearer ones\r\n", 401},
        {"Host: localhost\r\nAuthorization: Basic one\r\n", 401},
        {"Host: localhost\r\nAuthorization: Bearer\r\n", 401},
        {"Host: evil.example\r\nAuthorization: Bearer one\r\n", 403},
        {"Host: localhost.evil.example\r\nAuthorization: Bearer one\r\n", 403},
        {"Host: 127.0.0.12\r\nAuthorization: Bearer one\r\n", 403},
        {"Host: localhost\r\nOrigin: null\r\nAuthorization: Bearer one\r\n", 403},
    };
    const struct msg_api_token *token;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        assert(check(cases[i].fields, 1, &token) == cases[i].status);
}

static void test_an_end_and_a_removal(void)
{
    const char *fields = "Host: localhost\r\nAuthorization: Bearer three\r\n";
    const struct msg_api_token *token;
    struct msg_api_token three = make("3", "three", "");
    three.expires_ms = 1000;
    access_learn(&tokens, &three);
    assert(check(fields, 999, &token) == 0);
    assert(token && strcmp(token->id, "3") == 0);
    assert(check(fields, 1000, &token) == 401);
    three.removed = 1;
    access_learn(&tokens, &three);
    assert(check(fields, 999, &token) == 401 && tokens.count == 2);
}

static void test_what_limits_mean(void)
{
    struct msg_api_token all = make("1", "one", "");
    struct msg_api_token some = make("2", "two", "a-");
    struct msg_api_token reader = all;
    struct msg_api_token ending = all;
    reader.read_only = 1;
    ending.expires_ms = 1000;
    assert(!access_refusal(&all, "POST", "/tokens", NULL, 0));
    assert(!access_refusal(&all, "DELETE", "/sandboxes/{name}", "b", 1));
    assert(access_refusal(&ending, "POST", "/tokens", NULL, 0));
    assert(access_refusal(&some, "GET", "/tokens", NULL, 0));
    assert(access_refusal(&reader, "GET", "/tokens", NULL, 0));
    assert(access_refusal(&reader, "POST", "/sandboxes/{name}/exec", "a", 1));
    assert(!access_refusal(&reader, "GET", "/sandboxes/{name}", "a", 1));
    assert(!access_refusal(&some, "POST", "/sandboxes/{name}/exec", "a-1", 3));
    assert(access_refusal(&some, "GET", "/sandboxes/{name}", "a", 1));
    assert(access_refusal(&some, "GET", "/sandboxes/{name}", "b-1", 3));
    assert(access_refusal(&some, "POST", "/images", NULL, 0));
    assert(!access_refusal(&some, "GET", "/sandboxes", NULL, 0));
    static const char *const whole[][2] = {
        {"GET", "/df"}, {"DELETE", "/trash"}, {"GET", "/policies"}, {"POST", "/policies/reload"}};
    for (size_t i = 0; i < sizeof(whole) / sizeof(whole[0]); i++) {
        bool is_read = strcmp(whole[i][0], "GET") == 0;
        assert(!access_refusal(&all, whole[i][0], whole[i][1], NULL, 0));
        assert(access_refusal(&some, whole[i][0], whole[i][1], NULL, 0));
        assert(!access_refusal(&reader, whole[i][0], whole[i][1], NULL, 0) == is_read);
    }
    assert(access_refusal(&some, "PUT", "/sandboxes/{name}", "b", 1));
    assert(!access_refusal(&some, "PUT", "/sandboxes/{name}", "a-b", 3));
    assert(access_refusal(&reader, "PUT", "/sandboxes/{name}", "a", 1));
}

int main(void)
{
    struct msg_api_token one = make("1", "one", "");
    struct msg_api_token two = make("2", "two", "a-");
    access_learn(&tokens, &one);
    access_learn(&tokens, &two);
    test_token_host_and_origin();
    test_an_end_and_a_removal();
    test_what_limits_mean();
    return 0;
}
