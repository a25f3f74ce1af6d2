/* The promises of the router: the path is judged before the method, and a name as it was sent. */
#include <assert.h>
#include <string.h>

#include "http/router.h"
#include "util/cleanup.h"

static const struct http_route routes[] = {
    {"GET", "/sandboxes"},
    {"GET", "/sandboxes/{name}"},
    {"DELETE", "/sandboxes/{name}"},
    {"POST", "/sandboxes/{name}/task"},
    {"GET", "/sandboxes/{name}/task"},
};
static struct http_matched matched;

static enum http_match find(const char *method, const char *target)
{
    static struct http_head head;
    head.method = method;
    head.method_len = strlen(method);
    head.target = target;
    head.target_len = strlen(target);
    return http_route_find(routes, ARRAY_LEN(routes), &head, &matched);
}

static void test_routes_are_found(void)
{
    assert(find("GET", "/sandboxes") == HTTP_MATCHED && matched.route == 0 && !matched.name);
    assert(find("DELETE", "/sandboxes/a-1") == HTTP_MATCHED && matched.route == 2);
    assert(matched.name_len == 3 && memcmp(matched.name, "a-1", 3) == 0);
    assert(find("GET", "/sandboxes/%2e%2e/task?x=/y") == HTTP_MATCHED && matched.route == 4);
    assert(matched.name_len == 6 && memcmp(matched.query, "x=/y", 4) == 0);
    assert(matched.query_len == 4);
}

static void test_a_path_that_is_not_there_is_told_before_the_method(void)
{
    static const char *const paths[] = {"/",
                                        "/sandboxes/",
                                        "/sandboxes//task",
                                        "/sandboxes/a/b",
                                        "/sandboxes/a/task/",
                                        "/sandboxes/a/b/task",
                                        "*",
                                        "http://x/sandboxes",
                                        "/sandboxesx",
                                        "/sandboxes/a/tas"};
    for (size_t i = 0; i < ARRAY_LEN(paths); i++)
        assert(find("PATCH", paths[i]) == HTTP_NO_SUCH_PATH);
}

static void test_another_method_tells_what_is_allowed_and_the_name(void)
{
    assert(find("PUT", "/sandboxes/B!/task") == HTTP_NO_SUCH_METHOD);
    assert(strcmp(matched.allow, "POST, GET") == 0);
    assert(matched.name_len == 2 && memcmp(matched.name, "B!", 2) == 0);
    assert(find("get", "/sandboxes") == HTTP_NO_SUCH_METHOD);
}

static void test_a_query_is_read_parameter_by_parameter(void)
{
    const char *query = "follow=1&name=a%20b+c%2f&empty&=x";
    size_t len = strlen(query);
    cleanup_buf struct buf name = BUF_INIT(32);
    cleanup_buf struct buf value = BUF_INIT(32);
    static const char *const expected[][2] = {
        {"follow", "1"}, {"name", "a b c/"}, {"empty", ""}, {"", "x"}};
    for (size_t i = 0; i < ARRAY_LEN(expected); i++) {
        assert(http_query_next(&query, &len, &name, &value) == 1);
        assert(strcmp(buf_text(&name), expected[i][0]) == 0);
        assert(strcmp(buf_text(&value), expected[i][1]) == 0);
    }
    assert(http_query_next(&query, &len, &name, &value) == 0);
    static const char *const broken[] = {"a=%", "a=%4", "a=%zz", "a=%00",
                                         "a=0123456789012345678901234567890123456789"};
    for (size_t i = 0; i < ARRAY_LEN(broken); i++) {
        query = broken[i];
        len = strlen(query);
        assert(http_query_next(&query, &len, &name, &value) == -EINVAL);
    }
}

int main(void)
{
    test_routes_are_found();
    test_a_path_that_is_not_there_is_told_before_the_method();
    test_another_method_tells_what_is_allowed_and_the_name();
    test_a_query_is_read_parameter_by_parameter();
    return 0;
}
