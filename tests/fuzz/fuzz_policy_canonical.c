/* Canonical forms of any bytes: a canonical form is its own, and no dot segment is left. */
#include <assert.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "policy/policy.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

static void check_target(const char *data, size_t len)
{
    cleanup_buf struct buf path = BUF_INIT(1 << 20);
    cleanup_buf struct buf query = BUF_INIT(1 << 20);
    cleanup_buf struct buf again = BUF_INIT(1 << 20);
    if (policy_canonical_target(data, len, &path, &query, NULL) < 0)
        return;
    assert(path.len > 0 && path.data[0] == '/' && strlen(path.data) == path.len);
    assert(!strstr(path.data, "/../") && !strstr(path.data, "/./"));
    assert(path.len < 3 || strcmp(path.data + path.len - 3, "/..") != 0);
    assert(path.len < 2 || strcmp(path.data + path.len - 2, "/.") != 0);
    assert(policy_canonical_target(path.data, path.len, &again, &query, NULL) == 0);
    assert(strcmp(path.data, again.data) == 0 && query.len == 0);
}

static void check_host(const char *data, size_t len)
{
    char host[POLICY_HOST_MAX];
    char again[POLICY_HOST_MAX];
    uint16_t port;
    if (policy_canonical_host(data, len, 443, host, &port, NULL) < 0)
        return;
    assert(host[0] && port > 0 && !strpbrk(host, ":/%@_ *"));
    assert(policy_canonical_host(host, strlen(host), 443, again, &port, NULL) == 0);
    assert(strcmp(host, again) == 0 && port == 443);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    check_target((const char *)data, len);
    check_host((const char *)data, len);
    return 0;
}
