/* The audit: one line of JSON per request, whatever a sandbox sends. */
#include <assert.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "egress/audit.h"
#include "util/cleanup.h"
#include "util/fd.h"
#include "util/limits.h"
#include "json/json.h"

static void written(int fd, struct buf *ret)
{
    cleanup_fd int copy = dup(fd);
    assert(lseek(copy, 0, SEEK_SET) == 0 && fd_read_all(copy, ret) == 0);
}

static struct egress_audit *open_audit(int *ret_fd)
{
    struct err err;
    struct egress_audit *audit = NULL;
    int fd = memfd_create("audit", MFD_CLOEXEC);
    assert(fd >= 0 && fcntl(fd, F_SETFL, O_APPEND) == 0);
    *ret_fd = dup(fd);
    assert(egress_audit_open(fd, &audit, &err) == 0);
    return audit;
}

static void test_a_request_is_one_line_with_every_field(void)
{
    cleanup_fd int fd = -1;
    struct egress_audit *audit = open_audit(&fd);
    struct egress_audit_entry entry = {.started_ms = 1796169600123,
                                       .sandbox = "agent-1",
                                       .boot_id = "b",
                                       .task = 3,
                                       .rule = "github",
                                       .decision = "allowed",
                                       .reason = "",
                                       .method = "GET",
                                       .host = "github.com",
                                       .port = 443,
                                       .path = "/a/b",
                                       .query = "x=hidden&y[]=1",
                                       .protocol = "h2",
                                       .upstream_protocol = "http/1.1",
                                       .tls = "TLSv1.3",
                                       .status = 200,
                                       .bytes_out = 1,
                                       .bytes_in = 1ULL << 40,
                                       .first_byte_ms = 5,
                                       .duration_ms = 9,
                                       .ended_by = "upstream",
                                       .secrets = {"ONE", "TWO"},
                                       .secret_count = 2};
    egress_audit_write(audit, &entry);
    cleanup_buf struct buf text = BUF_INIT(LIMIT_AUDIT_LINE_BYTES);
    written(fd, &text);
    assert(strcmp(text.data,
                  "{\"time\":\"2026-12-02T00:00:00.123Z\",\"sandbox\":\"agent-1\",\"boot_id\":"
                  "\"b\",\"task\":3,\"rule\":\"github\",\"decision\":\"allowed\",\"reason\":\"\","
                  "\"method\":"
                  "\"GET\",\"host\":\"github.com\",\"port\":443,\"path\":\"/a/b?x=…&y[]=…\","
                  "\"protocol\":\"h2\",\"tls\":\"TLSv1.3\",\"upstream_protocol\":\"http/1.1\","
                  "\"upstream_tls\":null,\"status\":200,\"bytes_out\":"
                  "1,\"bytes_in\":1099511627776,\"first_byte_ms\":5,\"duration_ms\":9,"
                  "\"ended_by\":\"upstream\",\"secrets\":[\"ONE\",\"TWO\"]}\n") == 0);
    egress_audit_close(audit);
}

/* What a line has of this query. */
static void path_of(const char *query, char *ret, size_t size)
{
    cleanup_fd int fd = -1;
    struct egress_audit *audit = open_audit(&fd);
    struct egress_audit_entry entry = {.path = "/", .query = query};
    egress_audit_write(audit, &entry);
    cleanup_buf struct buf text = BUF_INIT(LIMIT_AUDIT_LINE_BYTES);
    written(fd, &text);
    cleanup_json struct json *json = NULL;
    assert(json_parse(text.data, text.len, JSON_STRICT, &json, NULL) == 0);
    snprintf(ret, size, "%s", json_text(json_get(json, "path")));
    egress_audit_close(audit);
}

static void test_no_value_of_a_query_is_written(void)
{
    static const char *const queries[][2] = {
        {"", "/"},
        {"a=1&b=2", "/?a=…&b=…"},
        {"tok3n", "/?…"},
        {"=tok3n", "/?…"},
        {"a=&tok3n&", "/?a=…&…"},
        {"a%20b=tok3n", "/?…"},
        {"a=b=tok3n", "/?a=…"},
        {"a=1&name\"=tok3n", "/?a=…&…"},
    };
    char path[4096];
    for (size_t i = 0; i < ARRAY_LEN(queries); i++) {
        path_of(queries[i][0], path, sizeof(path));
        assert(strcmp(path, queries[i][1]) == 0);
    }
    /* a query of any length leaves a line that is one */
    static char query[60000];
    for (size_t i = 0; i + 3 < sizeof(query); i += 3)
        memcpy(query + i, "n=&", 3);
    path_of(query, path, sizeof(path));
    assert(strlen(path) < 1200 && strcmp(path + strlen(path) - 9, "n=…&…") == 0);
    memset(query, 'n', sizeof(query) - 1);
    query[sizeof(query) - 2] = '=';
    path_of(query, path, sizeof(path));
    assert(strcmp(path, "/?…") == 0);
}

static void test_no_request_can_forge_or_break_a_line(void)
{
    cleanup_fd int fd = -1;
    struct egress_audit *audit = open_audit(&fd);
    static char path[100000];
    memset(path, '\x01', sizeof(path) - 1); /* six bytes each in JSON */
    struct egress_audit_entry entry = {
        .method = "GET\n{\"decision\":\"allowed\"}\n", .host = "\xff\xc0\x80\"\\", .path = path};
    egress_audit_write(audit, &entry);
    egress_audit_write(audit, &entry);
    cleanup_buf struct buf text = BUF_INIT(4 * LIMIT_AUDIT_LINE_BYTES);
    written(fd, &text);
    size_t lines = 0;
    for (char *line = text.data; *line; lines++) {
        char *end = strchr(line, '\n');
        cleanup_json struct json *json = NULL;
        struct err err;
        assert(end && json_parse(line, (size_t)(end - line), JSON_STRICT, &json, &err) == 0);
        assert(strcmp(json_text(json_get(json, "method")), entry.method) == 0);
        assert(json_type(json_get(json, "rule")) == JSON_NULL);
        assert(strlen(json_text(json_get(json, "path"))) == LIMIT_AUDIT_TEXT_BYTES);
        line = end + 1;
    }
    assert(lines == 2);
    egress_audit_close(audit);
}

static int asked;

static bool on_full(void *ctx)
{
    asked++;
    return *(bool *)ctx;
}

static void test_a_full_file_is_told_until_another_comes(void)
{
    cleanup_fd int first = -1, second = memfd_create("audit", MFD_CLOEXEC);
    struct egress_audit *audit = open_audit(&first);
    struct egress_audit_entry entry = {.method = "GET"};
    bool is_heard = false;
    egress_audit_write(audit, &entry); /* some 400 bytes */
    egress_audit_turn(audit, dup(first), 600, on_full, &is_heard);
    assert(asked == 0);
    egress_audit_write(audit, &entry);
    egress_audit_write(audit, &entry);
    assert(asked == 2); /* nobody heard it */
    is_heard = true;
    egress_audit_write(audit, &entry);
    assert(asked == 3);
    egress_audit_write(audit, &entry);
    assert(asked == 3);
    egress_audit_write(audit, &entry); /* as much again, and no other file */
    assert(asked == 4);
    cleanup_buf struct buf before = BUF_INIT(4 * LIMIT_AUDIT_LINE_BYTES);
    cleanup_buf struct buf after = BUF_INIT(4 * LIMIT_AUDIT_LINE_BYTES);
    written(first, &before);
    egress_audit_turn(audit, dup(second), 600, on_full, &is_heard);
    egress_audit_write(audit, &entry);
    written(second, &after);
    assert(asked == 4 && after.len && after.data[after.len - 1] == '\n');
    size_t len = before.len;
    buf_clear(&before);
    written(first, &before);
    assert(before.len == len);
    egress_audit_close(audit);
}

static void test_a_full_disk_is_no_end(void)
{
    struct err err;
    struct egress_audit *audit = NULL;
    assert(egress_audit_open(open("/dev/full", O_WRONLY | O_CLOEXEC), &audit, &err) == 0);
    struct egress_audit_entry entry = {.method = "GET"};
    egress_audit_write(audit, &entry);
    egress_audit_write(audit, &entry);
    egress_audit_close(audit);
    assert(egress_audit_open(-1, &audit, &err) == -EBADF);
}

int main(void)
{
    test_a_request_is_one_line_with_every_field();
    test_no_value_of_a_query_is_written();
    test_no_request_can_forge_or_break_a_line();
    test_a_full_file_is_told_until_another_comes();
    test_a_full_disk_is_no_end();
    return 0;
}
