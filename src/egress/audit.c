/* The audit; see audit.h. Runs in paddock-egress. A line is made whole in memory and appended with
 * one write(2), so that several writers of one file never mix lines; every text that a sandbox
 * chose is cut and made UTF-8, and JSON escapes what could end the line. */
#include "egress/audit.h"

#include "egress/audit_watch.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "util/cleanup.h"
#include "util/limits.h"
#include "util/log.h"
#include "util/utf8.h"
#include "json/json.h"

struct egress_audit {
    int fd;
    bool is_torn;    /* the last write was short: the next line starts on a fresh one */
    bool is_failing; /* told once, until a write succeeds again */
    int64_t bytes;   /* of the file */
    int64_t full_at; /* bytes at which `full` is due; 0: never */
    int64_t max_bytes;
    bool (*full)(void *ctx);
    void *ctx;
    struct audit_watchers watchers;
};

/* Takes the descriptor, which must be open for appending. */
int egress_audit_open(int fd, struct egress_audit **ret, struct err *err)
{
    cleanup_fd int owned = fd;
    if (fd < 0)
        return err_set(err, EBADF, "no descriptor for the audit was given");
    struct egress_audit *audit = calloc(1, sizeof(*audit));
    if (!audit)
        return err_errno(err, ENOMEM, "cannot open the audit");
    audit->fd = TAKE_FD(owned);
    *ret = audit;
    return 0;
}

static void audit_look_at_size(struct egress_audit *audit)
{
    if (audit->full_at && audit->bytes >= audit->full_at && audit->full(audit->ctx))
        audit->full_at = audit->bytes + audit->max_bytes;
}

void egress_audit_turn(struct egress_audit *audit, int fd, int64_t max_bytes,
                       bool (*full)(void *ctx), void *ctx)
{
    struct stat st;
    close(audit->fd);
    audit->fd = fd;
    audit->is_torn = false;
    audit->bytes = fstat(fd, &st) < 0 ? 0 : st.st_size;
    audit->full_at = audit->max_bytes = max_bytes;
    audit->full = full;
    audit->ctx = ctx;
    audit_look_at_size(audit);
}

void egress_audit_watch(struct egress_audit *audit, const char *sandbox, int fd)
{
    struct stat st;
    if (fd < 0)
        audit_watchers_forget(&audit->watchers, sandbox);
    else if (fstat(audit->fd, &st) < 0)
        close(fd);
    else
        audit_watchers_add(&audit->watchers, sandbox, fd, st.st_ino, st.st_size);
}

void egress_audit_close(struct egress_audit *audit)
{
    if (!audit)
        return;
    audit_watchers_forget(&audit->watchers, NULL);
    close(audit->fd);
    free(audit);
}

static void audit_pair_text(struct json_writer *writer, const char *key, const char *text)
{
    json_write_key(writer, key);
    if (!text) {
        json_write_null(writer);
        return;
    }
    cleanup_buf struct buf clean = BUF_INIT(3 * LIMIT_AUDIT_TEXT_BYTES + 1);
    if (utf8_append_lossy(&clean, text, strnlen(text, LIMIT_AUDIT_TEXT_BYTES)) < 0)
        json_write_string(writer, "");
    else
        json_write_bytes(writer, buf_text(&clean), clean.len);
}

/* How much of a query is written: names of parameters in use are short, and few. */
#define QUERY_BYTES 1024
#define QUERY_NAME_BYTES 64

/* "NAME=…" of NAME=VALUE, "…" of what has no name that is one: it may be a value itself. */
static int audit_append_parameter(struct buf *ret, const char *text, size_t len)
{
    static const char name[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-[]";
    size_t name_len = strspn(text, name);
    bool is_named =
        name_len > 0 && name_len <= QUERY_NAME_BYTES && name_len < len && text[name_len] == '=';
    return buf_appendf(ret, "%.*s…", is_named ? (int)name_len + 1 : 0, text);
}

/* The path, and of the query which parameters there are. */
static void audit_pair_target(struct json_writer *writer, const char *path, const char *query)
{
    cleanup_buf struct buf text = BUF_INIT(LIMIT_AUDIT_TEXT_BYTES + QUERY_BYTES + 1);
    size_t path_len = path ? strnlen(path, LIMIT_AUDIT_TEXT_BYTES) : 0;
    const char *separator = "?";
    int result = path_len ? buf_append(&text, path, path_len) : 0;
    while (!result && query && *query) {
        size_t len = strcspn(query, "&");
        bool is_last = text.len > path_len + QUERY_BYTES - 2 * QUERY_NAME_BYTES;
        result = buf_append_string(&text, separator);
        if (!result)
            result = audit_append_parameter(&text, query, is_last ? 0 : len);
        query += is_last ? strlen(query) : len + (query[len] == '&');
        separator = "&";
    }
    json_write_key(writer, "path");
    cleanup_buf struct buf clean = BUF_INIT(3 * text.max);
    if (result || utf8_append_lossy(&clean, buf_text(&text), text.len) < 0)
        json_write_null(writer);
    else
        json_write_bytes(writer, buf_text(&clean), clean.len);
}

static void audit_pair_positive(struct json_writer *writer, const char *key, int64_t number)
{
    json_write_key(writer, key);
    if (number > 0)
        json_write_integer(writer, number);
    else
        json_write_null(writer);
}

static void audit_pair_secrets(struct json_writer *writer, const struct egress_audit_entry *entry)
{
    json_write_key(writer, "secrets");
    json_write_array_begin(writer);
    for (size_t i = 0; i < entry->secret_count; i++)
        json_write_string(writer, entry->secrets[i]);
    json_write_array_end(writer);
}

static void audit_pair_time(struct json_writer *writer, int64_t unix_ms)
{
    time_t seconds = (time_t)(unix_ms / 1000);
    struct tm tm;
    char day[32] = "", text[48];
    if (gmtime_r(&seconds, &tm))
        strftime(day, sizeof(day), "%Y-%m-%dT%H:%M:%S", &tm);
    snprintf(text, sizeof(text), "%s.%03dZ", day, (int)(unix_ms % 1000));
    json_write_pair_string(writer, "time", text);
}

static int audit_format(const struct egress_audit_entry *entry, struct buf *line)
{
    struct json_writer *writer = json_writer_new(line, false);
    if (!writer)
        return -ENOMEM;
    json_write_object_begin(writer);
    audit_pair_time(writer, entry->started_ms);
    audit_pair_text(writer, "sandbox", entry->sandbox);
    audit_pair_text(writer, "boot_id", entry->boot_id);
    audit_pair_positive(writer, "task", entry->task);
    audit_pair_text(writer, "rule", entry->rule);
    audit_pair_text(writer, "decision", entry->decision);
    audit_pair_text(writer, "reason", entry->reason);
    audit_pair_text(writer, "method", entry->method);
    audit_pair_text(writer, "host", entry->host);
    audit_pair_positive(writer, "port", entry->port);
    audit_pair_target(writer, entry->path, entry->query);
    audit_pair_text(writer, "protocol", entry->protocol);
    audit_pair_text(writer, "tls", entry->tls);
    audit_pair_text(writer, "upstream_protocol", entry->upstream_protocol);
    audit_pair_text(writer, "upstream_tls", entry->upstream_tls);
    json_write_pair_integer(writer, "status", entry->status);
    json_write_pair_integer(writer, "bytes_out", (int64_t)entry->bytes_out);
    json_write_pair_integer(writer, "bytes_in", (int64_t)entry->bytes_in);
    json_write_pair_integer(writer, "first_byte_ms", entry->first_byte_ms);
    json_write_pair_integer(writer, "duration_ms", entry->duration_ms);
    audit_pair_text(writer, "ended_by", entry->ended_by);
    audit_pair_secrets(writer, entry);
    json_write_object_end(writer);
    return json_writer_end(writer);
}

/* A full disk must not end egress, nor fill the log: the fault is told when it begins. */
static void audit_report(struct egress_audit *audit, int code)
{
    if (code && !audit->is_failing)
        log_error("cannot write the audit: %s; lines are lost until it can be written again",
                  strerror(code));
    audit->is_failing = code != 0;
}

void egress_audit_write(struct egress_audit *audit, const struct egress_audit_entry *entry)
{
    cleanup_buf struct buf line = BUF_INIT(LIMIT_AUDIT_LINE_BYTES);
    int result = audit->is_torn ? buf_append_string(&line, "\n") : 0;
    if (result == 0)
        result = audit_format(entry, &line);
    if (result == 0)
        result = buf_append_string(&line, "\n");
    if (result < 0) {
        audit_report(audit, -result);
        return;
    }
    size_t start = audit->is_torn;
    if (entry->sandbox && audit->watchers.count)
        audit_watchers_tell(&audit->watchers, entry->sandbox, line.data + start,
                            line.len - start - 1);
    ssize_t n;
    do
        n = write(audit->fd, line.data, line.len);
    while (n < 0 && errno == EINTR);
    if (n > 0)
        audit->is_torn = (size_t)n < line.len;
    audit->bytes += n > 0 ? n : 0;
    audit_report(audit, n < 0 ? errno : (size_t)n < line.len ? ENOSPC : 0);
    audit_look_at_size(audit);
}
