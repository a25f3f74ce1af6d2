/*
 * Canonical hosts and request targets: what is judged is what is sent. Runs in egress on bytes of a
 * sandbox, and in the CLI. Pure; a fuzz target holds that a canonical form is its own canonical
 * form.
 */
#include <string.h>

#include "policy/policy.h"
#include "util/hex.h"

#define HOST_LABEL_MAX 63 /* RFC 1035, 2.3.4 */

static bool is_ldh(unsigned char c)
{
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-';
}

/* A last label of digits, or "0x...", is an address in one of its spellings (127.1, 0x7f.1,
 * 2130706433) for some resolvers, and a name for none. */
static bool label_is_number(const char *label, size_t len)
{
    if (len >= 2 && label[0] == '0' && label[1] == 'x')
        return true;
    for (size_t i = 0; i < len; i++)
        if (label[i] < '0' || label[i] > '9')
            return false;
    return true;
}

static int host_check_labels(const char *host, size_t len, struct err *err)
{
    for (size_t start = 0; start <= len;) {
        const char *dot = memchr(host + start, '.', len - start);
        size_t label_len = dot ? (size_t)(dot - host) - start : len - start;
        const char *label = host + start;
        if (label_len == 0)
            return err_set(err, EINVAL, "the host has an empty label");
        if (label_len > HOST_LABEL_MAX)
            return err_set(err, EINVAL, "the host has a label longer than %d", HOST_LABEL_MAX);
        for (size_t i = 0; i < label_len; i++)
            if (!is_ldh((unsigned char)label[i]))
                return err_set(err, EINVAL,
                               "the host holds something else than letters, digits and hyphens");
        if (label[0] == '-' || label[label_len - 1] == '-')
            return err_set(err, EINVAL, "a label of the host begins or ends with a hyphen");
        if (!dot && label_is_number(label, label_len))
            return err_set(err, EINVAL, "the host is an address, not a name");
        start += label_len + 1;
    }
    return 0;
}

static int port_read(const char *text, size_t len, uint16_t *ret, struct err *err)
{
    unsigned port = 0;
    if (len == 0 || len > 5 || text[0] == '0')
        return err_set(err, EINVAL, "the port is not a number from 1 to 65535");
    for (size_t i = 0; i < len; i++) {
        if (text[i] < '0' || text[i] > '9')
            return err_set(err, EINVAL, "the port is not a number from 1 to 65535");
        port = port * 10 + (unsigned)(text[i] - '0');
    }
    if (port > UINT16_MAX)
        return err_set(err, EINVAL, "the port is not a number from 1 to 65535");
    *ret = (uint16_t)port;
    return 0;
}

int policy_canonical_host(const char *host, size_t len, uint16_t default_port,
                          char ret[POLICY_HOST_MAX], uint16_t *ret_port, struct err *err)
{
    uint16_t port = default_port;
    if (len && host[0] == '[')
        return err_set(err, EINVAL, "the host is an address, not a name");
    const char *colon = len ? memchr(host, ':', len) : NULL;
    if (colon) {
        size_t host_len = (size_t)(colon - host);
        int result = port_read(colon + 1, len - host_len - 1, &port, err);
        if (result < 0)
            return result;
        len = host_len;
    }
    if (len && host[len - 1] == '.')
        len--;
    if (len == 0)
        return err_set(err, EINVAL, "the host is empty");
    if (len >= POLICY_HOST_MAX)
        return err_set(err, EINVAL, "the host is longer than %d", POLICY_HOST_MAX - 1);
    char lower[POLICY_HOST_MAX];
    for (size_t i = 0; i < len; i++)
        lower[i] = (char)(host[i] >= 'A' && host[i] <= 'Z' ? host[i] - 'A' + 'a' : host[i]);
    lower[len] = '\0';
    int result = host_check_labels(lower, len, err);
    if (result < 0)
        return result;
    memcpy(ret, lower, len + 1);
    *ret_port = port;
    return 0;
}

static bool is_unreserved(int c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '.' || c == '_' || c == '~';
}

static int target_check_bytes(const char *target, size_t len, struct err *err)
{
    if (len == 0 || target[0] != '/')
        return err_set(err, EINVAL, "the request target does not begin with \"/\"");
    for (size_t i = 0; i < len; i++)
        if (target[i] < 0x21 || target[i] > 0x7e || target[i] == '#')
            return err_set(err, EINVAL, "the request target holds a byte that must be escaped");
    return 0;
}

/* Decodes escapes of unreserved characters and writes the others with upper-case digits. Never
 * longer than what it reads. */
static int path_normalize_escapes(const char *path, size_t len, struct buf *ret, struct err *err)
{
    static const char digits[] = "0123456789ABCDEF";
    char *out = buf_reserve(ret, len);
    if (!out)
        return err_set(err, EMSGSIZE, "the path is too long");
    size_t out_len = 0;
    for (size_t i = 0; i < len; i++) {
        if (path[i] != '%') {
            out[out_len++] = path[i];
            continue;
        }
        int high = i + 2 < len ? hex_digit(path[i + 1]) : -1;
        int low = i + 2 < len ? hex_digit(path[i + 2]) : -1;
        if (high < 0 || low < 0)
            return err_set(err, EINVAL, "the path holds a \"%%\" without two hex digits");
        int byte = high * 16 + low;
        if (byte == 0)
            return err_set(err, EINVAL, "the path holds %%00");
        if (is_unreserved(byte)) {
            out[out_len++] = (char)byte;
        } else {
            out[out_len++] = '%';
            out[out_len++] = digits[high];
            out[out_len++] = digits[low];
        }
        i += 2;
    }
    ret->len += out_len;
    ret->data[ret->len] = '\0';
    return 0;
}

/* RFC 3986, 5.2.4, in place; what would leave the root is refused, not cut. `path` begins with
 * "/". */
static int path_resolve_dots(struct buf *path, struct err *err)
{
    char *data = path->data;
    size_t out = 0;
    for (size_t in = 0; in < path->len;) {
        const char *slash = memchr(data + in + 1, '/', path->len - in - 1);
        size_t next = slash ? (size_t)(slash - data) : path->len;
        size_t len = next - in - 1;
        bool is_dot = len == 1 && data[in + 1] == '.';
        bool is_dot_dot = len == 2 && data[in + 1] == '.' && data[in + 2] == '.';
        if (is_dot_dot) {
            if (out == 0)
                return err_set(err, EINVAL, "the path leaves the root");
            while (data[--out] != '/')
                ;
        }
        if (!is_dot && !is_dot_dot) {
            memmove(data + out, data + in, len + 1);
            out += len + 1;
        } else if (next == path->len) {
            data[out++] = '/'; /* "/a/.." is the folder "/", "/a/." is "/a/" */
        }
        in = next;
    }
    path->len = out;
    data[out] = '\0';
    return 0;
}

int policy_canonical_target(const char *target, size_t len, struct buf *ret_path,
                            struct buf *ret_query, struct err *err)
{
    buf_clear(ret_path);
    buf_clear(ret_query);
    int result = target_check_bytes(target, len, err);
    if (result < 0)
        return result;
    const char *mark = memchr(target, '?', len);
    size_t path_len = mark ? (size_t)(mark - target) : len;
    result = path_normalize_escapes(target, path_len, ret_path, err);
    if (result == 0)
        result = path_resolve_dots(ret_path, err);
    if (result == 0 && mark && buf_append(ret_query, mark + 1, len - path_len - 1) < 0)
        result = err_set(err, EMSGSIZE, "the query is too long");
    if (result < 0)
        buf_clear(ret_path);
    return result;
}
