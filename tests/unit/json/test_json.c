/* The promises of json/: positions in errors, strictness, bounds, and that it writes what it reads.
 */
#include <assert.h>
#include <string.h>

#include "util/cleanup.h"
#include "util/limits.h"
#include "json/json.h"

static int parse(const char *text, enum json_flags flags, struct json **ret, struct err *err)
{
    return json_parse(text, strlen(text), flags, ret, err);
}

static void test_values_and_positions(void)
{
    cleanup_json struct json *json = NULL;
    struct err err;
    assert(parse("{\n  \"a\": [1, true, null, \"x\"],\n  \"b\": \"y\"\n}", JSON_STRICT, &json,
                 &err) == 0);
    const struct json *list = json_get(json, "a");
    assert(json_count(list) == 4 && json_integer(json_at(list, 0)) == 1);
    assert(json_bool(json_at(list, 1)) && json_type(json_at(list, 2)) == JSON_NULL);
    assert(strcmp(json_text(json_at(list, 3)), "x") == 0);
    assert(json_line(json_get(json, "b")) == 3 && json_column(json_get(json, "b")) == 8);
    json_free(TAKE_PTR(json));
    assert(parse("[ 4430, -1.5e3]", JSON_STRICT, &json, &err) == 0);
    assert(json_column(json_at(json, 0)) == 3 && json_column(json_at(json, 1)) == 9);
    json_free(TAKE_PTR(json));
    assert(parse("{\"a\": [1], \"b\": 2}", JSON_STRICT, &json, &err) == 0);
    list = json_get(json, "a");
    assert(strcmp(json_key_at(json, 1), "b") == 0 && json_at(list, 1) == NULL);
    assert(json_get(json_get(json, "nothing"), "below") == NULL);
}

static void test_refusals_name_the_line(void)
{
    static const struct {
        const char *text;
        const char *says;
    } cases[] = {
        {"{\"a\": 1,\n \"a\": 2}", "2:"},
        {"{\n\n x }", "3:"},
        {"{} {}", "1:"},
        {"", "1:1: "},
        {"{\"a\": \"\xff\"}", "1:"},
        {"{\"a\\u0000b\": 1}", "NUL"},
        {"{ // no comments here\n}", "1:"},
        {"99999999999999999999", "1:"},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct json *json = NULL;
        struct err err = {0};
        assert(parse(cases[i].text, JSON_STRICT, &json, &err) == -EINVAL);
        assert(json == NULL && strstr(err.message, cases[i].says));
    }
}

static void test_depth_is_bounded(void)
{
    char text[2 * LIMIT_JSON_DEPTH + 3];
    for (int depth = LIMIT_JSON_DEPTH; depth <= LIMIT_JSON_DEPTH + 1; depth++) {
        memset(text, '[', (size_t)depth);
        memset(text + depth, ']', (size_t)depth);
        text[2 * depth] = '\0';
        struct json *json = NULL;
        assert((parse(text, JSON_STRICT, &json, NULL) == 0) == (depth == LIMIT_JSON_DEPTH));
        json_free(json);
    }
}

static void test_members_are_bounded(void)
{
    for (int count = LIMIT_JSON_MEMBERS; count <= LIMIT_JSON_MEMBERS + 1; count++) {
        cleanup_json struct json *json = NULL;
        cleanup_buf struct buf text = BUF_INIT(LIMIT_CONFIG_BYTES);
        for (int i = 0; i < count; i++)
            assert(buf_appendf(&text, "%s\"k%d\":%d", i ? "," : "{", i, i) == 0);
        assert(buf_append_string(&text, "}") == 0);
        assert((parse(text.data, JSON_STRICT, &json, NULL) == 0) == (count == LIMIT_JSON_MEMBERS));
    }
}

static void test_comments_where_allowed(void)
{
    cleanup_json struct json *json = NULL;
    assert(parse("{ // one\n \"a\": 1 /* two */ }", JSON_COMMENTS, &json, NULL) == 0);
    assert(json_integer(json_get(json, "a")) == 1);
}

static void test_writer(void)
{
    cleanup_buf struct buf out = BUF_INIT(1000);
    struct json_writer *writer = json_writer_new(&out, false);
    json_write_object_begin(writer);
    json_write_pair_string(writer, "s", "a\"\n\x01");
    json_write_pair_integer(writer, "n", -5);
    json_write_key(writer, "l");
    json_write_array_begin(writer);
    json_write_bool(writer, true);
    json_write_null(writer);
    json_write_array_end(writer);
    json_write_object_end(writer);
    assert(json_writer_end(writer) == 0);
    assert(strcmp(out.data, "{\"s\":\"a\\\"\\n\\u0001\",\"n\":-5,\"l\":[true,null]}") == 0);

    writer = json_writer_new(&out, false);
    json_write_string(writer, "\xff");
    assert(json_writer_end(writer) == -EINVAL);

    cleanup_buf struct buf small = BUF_INIT(4);
    writer = json_writer_new(&small, false);
    json_write_string(writer, "too long for it");
    assert(json_writer_end(writer) == -EMSGSIZE);
}

int main(void)
{
    test_values_and_positions();
    test_refusals_name_the_line();
    test_depth_is_bounded();
    test_members_are_bounded();
    test_comments_where_allowed();
    test_writer();
    return 0;
}
