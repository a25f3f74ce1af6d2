/* Answers of egress's own: who gets JSON, in which shape, with which status, and who may ask again.
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "egress/refuse.h"
#include "util/cleanup.h"
#include "json/json.h"

static bool wants(const char *name, const char *value)
{
    struct http_field fields[] = {{"user-agent", 10, "x/json", 6},
                                  {name, strlen(name), value, strlen(value)}};
    return refuse_wants_json(fields, 2);
}

static void test_json_is_for_who_names_it(void)
{
    static const char *const json[] = {
        "application/json",
        "APPLICATION/JSON",
        "application/json; charset=utf-8",
        "application/json ;q=0.5",
        "text/html, application/problem+json;q=0.8, */*",
        "application/vnd.git-lfs+json",
        "text/event-stream,application/json",
    };
    static const char *const text[] = {
        "*/*",
        "text/html",
        "application/x-git-upload-pack-result",
        "",
        "json",
        "application/jsonl",
        "text/plain; a=application/json",
        "application/x-json-stream",
        ";/json",
        ",,/",
        "xjson",
    };
    for (size_t i = 0; i < ARRAY_LEN(json); i++)
        assert(wants("Accept", json[i]));
    for (size_t i = 0; i < ARRAY_LEN(text); i++)
        assert(!wants("accept", text[i]));
    assert(wants("Content-Type", "application/json"));
    assert(wants("content-type", "application/vnd.api+json; x=1"));
    assert(!wants("content-type", "application/x-git-receive-pack-request"));
    assert(!wants("x-accept", "application/json"));
}

static void test_a_body_in_both_forms(void)
{
    struct refusal refusal;
    cleanup_buf struct buf out = BUF_INIT(REFUSE_BODY_MAX);
    refuse_with(403, "a \"b\" \\ \x01\r\n\xff c", &refusal);
    assert(refuse_append_body(&out, &refusal) == 0);
    assert(strcmp(buf_text(&out), "a \"b\" \\      c\n") == 0);
    assert(strcmp(refuse_content_type(&refusal), "text/plain; charset=utf-8") == 0);
    buf_clear(&out);
    refusal.is_json = true;
    assert(refuse_append_body(&out, &refusal) == 0);
    assert(strcmp(refuse_content_type(&refusal), "application/json") == 0);
    cleanup_json struct json *json = NULL;
    struct err err;
    assert(json_parse(out.data, out.len, JSON_STRICT, &json, &err) == 0);
    const struct json *error = json_get(json, "error");
    assert(strcmp(json_text(json_get(json, "type")), "error") == 0);
    assert(strcmp(json_text(json_get(error, "type")), "permission_error") == 0);
    assert(strcmp(json_text(json_get(error, "message")), "a \"b\" \\      c") == 0);
    assert(strcmp(json_text(json_get(json, "message")), "a \"b\" \\      c") == 0);
}

/* The longest text, where each character takes two in JSON. */
static void test_the_longest_body_fits(void)
{
    char text[2 * REFUSE_TEXT_MAX];
    struct refusal refusal;
    cleanup_buf struct buf out = BUF_INIT(REFUSE_BODY_MAX);
    memset(text, '"', sizeof(text));
    text[sizeof(text) - 1] = '\0';
    refuse_with(502, text, &refusal);
    refusal.is_json = true;
    assert(refuse_append_body(&out, &refusal) == 0 && out.len > 3 * REFUSE_TEXT_MAX);
}

static void test_failures_have_statuses(void)
{
    static const struct {
        enum egress_failure failure;
        int status;
        bool is_final;
    } table[] = {
        {EGRESS_FAILED_NAME, 502, false},    {EGRESS_FAILED_PRIVATE, 403, true},
        {EGRESS_FAILED_CONNECT, 502, false}, {EGRESS_FAILED_TIMEOUT, 504, false},
        {EGRESS_FAILED_TRUST, 502, true},    {EGRESS_FAILED_ANSWER, 502, false},
        {EGRESS_FAILED_CUT, 502, false},     {EGRESS_FAILED_SELF, 503, false},
    };
    for (size_t i = 0; i < ARRAY_LEN(table); i++) {
        struct refusal refusal;
        refuse_by_failure(table[i].failure, "h.test", "why", &refusal);
        assert(refusal.status == table[i].status && refusal.is_final == table[i].is_final);
        assert(strcmp(refusal.text, "h.test: why\n") == 0);
        assert(*refuse_status_text(refusal.status));
    }
}

static void test_who_may_ask_again(void)
{
    static const int final[] = {400, 403, 405, 414, 417, 421, 431};
    static const int again[] = {408, 502, 503, 504};
    struct refusal refusal;
    for (size_t i = 0; i < ARRAY_LEN(final); i++) {
        refuse_with(final[i], "x", &refusal);
        assert(refusal.is_final);
    }
    for (size_t i = 0; i < ARRAY_LEN(again); i++) {
        refuse_with(again[i], "x", &refusal);
        assert(!refusal.is_final);
    }
}

int main(void)
{
    test_json_is_for_who_names_it();
    test_a_body_in_both_forms();
    test_the_longest_body_fits();
    test_failures_have_statuses();
    test_who_may_ask_again();
    return 0;
}
