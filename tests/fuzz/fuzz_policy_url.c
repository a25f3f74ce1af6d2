/* Canonical hosts and targets against another reader of URLs, libcurl's (this program alone links
 * it for that): what is sent must mean to others what was judged. */
#include <assert.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <curl/curl.h>

#include "policy/policy.h"
#include "util/cleanup.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

/* A part of a URL as libcurl has it, or NULL: it is none, or has no such part. */
static char *part_of(const char *url, CURLUPart part)
{
    CURLU *handle = curl_url();
    char *text = NULL;
    assert(handle);
    if (curl_url_set(handle, CURLUPART_URL, url, 0) == CURLUE_OK &&
        curl_url_get(handle, part, &text, part == CURLUPART_PORT ? CURLU_DEFAULT_PORT : 0) !=
            CURLUE_OK)
        text = NULL;
    curl_url_cleanup(handle);
    return text;
}

static bool has_escaped_dot(const char *target)
{
    return strstr(target, "%2e") || strstr(target, "%2E");
}

/* The canonical path is libcurl's own of it; and that of the target as it came is, canonical, the
 * same (where dots are escaped, versions of libcurl differ). */
static void check_target(const char *target)
{
    cleanup_buf struct buf path = BUF_INIT(1 << 20);
    cleanup_buf struct buf query = BUF_INIT(1 << 20);
    cleanup_buf struct buf again = BUF_INIT(1 << 20);
    cleanup_buf struct buf none = BUF_INIT(1 << 20);
    cleanup_buf struct buf url = BUF_INIT(1 << 20);
    if (policy_canonical_target(target, strlen(target), &path, &query, NULL) < 0)
        return;
    assert(buf_appendf(&url, "https://a.test%s?%s", path.data, buf_text(&query)) == 0);
    char *theirs = part_of(url.data, CURLUPART_PATH);
    char *their_query = part_of(url.data, CURLUPART_QUERY);
    assert(theirs && strcmp(theirs, path.data) == 0);
    assert(strcmp(their_query ? their_query : "", buf_text(&query)) == 0);
    curl_free(theirs);
    curl_free(their_query);
    buf_clear(&url);
    assert(buf_appendf(&url, "https://a.test%s", target) == 0);
    theirs = part_of(url.data, CURLUPART_PATH);
    assert(theirs);
    if (!has_escaped_dot(target)) {
        assert(policy_canonical_target(theirs, strlen(theirs), &again, &none, NULL) == 0);
        assert(strcmp(again.data, path.data) == 0);
    }
    curl_free(theirs);
}

/* libcurl takes every host that we take, for the same one. */
static void check_host(const char *host)
{
    char ours[POLICY_HOST_MAX];
    uint16_t port;
    cleanup_buf struct buf url = BUF_INIT(1 << 20);
    if (policy_canonical_host(host, strlen(host), 443, ours, &port, NULL) < 0)
        return;
    assert(buf_appendf(&url, "https://%s/", host) == 0);
    char *theirs = part_of(url.data, CURLUPART_HOST);
    char *their_port = part_of(url.data, CURLUPART_PORT);
    assert(theirs && their_port && strtoul(their_port, NULL, 10) == port);
    size_t len = strlen(theirs);
    if (len && theirs[len - 1] == '.')
        theirs[--len] = '\0';
    assert(strcasecmp(theirs, ours) == 0);
    curl_free(theirs);
    curl_free(their_port);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    char *text = strndup(len ? (const char *)data : "", len);
    assert(text);
    check_target(text);
    check_host(text);
    free(text);
    return 0;
}
