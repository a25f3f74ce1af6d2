/* Routes and queries; see router.h. Pure functions on a client's bytes; run in api. */
#include "http/router.h"
#include "util/hex.h"

#include <stdio.h>
#include <string.h>

/* True when the path has the pattern's form; *ret_name is set when the pattern has a name. */
static bool http_path_matches(const char *pattern, const char *path, size_t len,
                              struct http_matched *ret)
{
    const char *end = path + len;
    ret->name = NULL;
    while (*pattern) {
        if (strncmp(pattern, "{name}", 6) == 0) {
            const char *slash = memchr(path, '/', (size_t)(end - path));
            const char *stop = slash ? slash : end;
            if (stop == path)
                return false;
            ret->name = path;
            ret->name_len = (size_t)(stop - path);
            path = stop;
            pattern += 6;
        } else if (path < end && *path == *pattern) {
            path++;
            pattern++;
        } else {
            return false;
        }
    }
    return path == end;
}

enum http_match http_route_find(const struct http_route *routes, size_t count,
                                const struct http_head *head, struct http_matched *ret)
{
    const char *question = memchr(head->target, '?', head->target_len);
    size_t path_len = question ? (size_t)(question - head->target) : head->target_len;
    memset(ret, 0, sizeof(*ret));
    ret->query = question ? question + 1 : NULL;
    ret->query_len = question ? head->target_len - path_len - 1 : 0;
    struct http_matched at = *ret;
    size_t allow_len = 0;
    for (size_t i = 0; i < count; i++) {
        if (!http_path_matches(routes[i].pattern, head->target, path_len, &at))
            continue;
        ret->route = i;
        ret->name = at.name;
        ret->name_len = at.name_len;
        if (strlen(routes[i].method) == head->method_len &&
            memcmp(routes[i].method, head->method, head->method_len) == 0)
            return HTTP_MATCHED;
        if (allow_len < sizeof(ret->allow))
            allow_len += (size_t)snprintf(ret->allow + allow_len, sizeof(ret->allow) - allow_len,
                                          "%s%s", allow_len ? ", " : "", routes[i].method);
    }
    return allow_len ? HTTP_NO_SUCH_METHOD : HTTP_NO_SUCH_PATH;
}

static int http_decode(const char *data, size_t len, struct buf *ret)
{
    buf_clear(ret);
    for (size_t i = 0; i < len; i++) {
        char c = data[i];
        if (c == '+')
            c = ' ';
        if (c == '%') {
            int high = i + 2 < len ? hex_digit(data[i + 1]) : -1;
            int low = i + 2 < len ? hex_digit(data[i + 2]) : -1;
            if (high < 0 || low < 0)
                return -EINVAL;
            c = (char)(high << 4 | low);
            i += 2;
        }
        if (!c || buf_append(ret, &c, 1) < 0)
            return -EINVAL;
    }
    return 0;
}

int http_query_next(const char **query, size_t *query_len, struct buf *ret_name,
                    struct buf *ret_value)
{
    const char *end = *query + *query_len;
    const char *at = *query;
    if (!at || at == end)
        return 0;
    const char *ampersand = memchr(at, '&', (size_t)(end - at));
    const char *stop = ampersand ? ampersand : end;
    const char *equals = memchr(at, '=', (size_t)(stop - at));
    const char *value = equals ? equals + 1 : stop;
    int r = http_decode(at, (size_t)((equals ? equals : stop) - at), ret_name);
    if (r == 0)
        r = http_decode(value, (size_t)(stop - value), ret_value);
    *query = ampersand ? ampersand + 1 : end;
    *query_len = (size_t)(end - *query);
    return r < 0 ? r : 1;
}
