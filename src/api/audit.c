/*
 * See audit.h. Files are read backwards, a piece at a time, until there are lines enough. A line is
 * the sandbox's by what egress itself wrote in front of all that a sandbox can influence.
 */
#include "api/audit.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "util/cleanup.h"
#include "util/limits.h"
#include "json/json.h"

#define PIECE_BYTES ((off_t)256 * 1024)
#define TIME_BYTES 24 /* 2026-12-02T00:00:00.123Z */
#define TIME_AT (sizeof("{\"time\":\"") - 1)

struct lines {
    const struct audit_query *query;
    char created[TIME_BYTES + 1];
    char sandbox[MSG_NAME + 32]; /* what follows the time in a line of this sandbox */
    struct line {
        char *text;
        size_t len;
    } * list; /* the newest first */
    size_t count, bytes;
    char *piece;
};

static void lines_free(struct lines *lines)
{
    for (size_t i = 0; i < lines->count; i++)
        free(lines->list[i].text);
    free(lines->list);
    free(lines->piece);
}
#define cleanup_lines __attribute__((cleanup(lines_free)))

static int lines_open(const struct audit_query *query, struct lines *ret)
{
    time_t seconds = (time_t)(query->created_ms / 1000);
    struct tm tm;
    *ret = (struct lines){.query = query};
    if (gmtime_r(&seconds, &tm)) {
        char day[20] = "", text[48];
        strftime(day, sizeof(day), "%Y-%m-%dT%H:%M:%S", &tm);
        snprintf(text, sizeof(text), "%s.%03dZ", day, (int)(query->created_ms % 1000));
        memcpy(ret->created, text, TIME_BYTES);
    }
    snprintf(ret->sandbox, sizeof(ret->sandbox), "\",\"sandbox\":\"%s\",", query->name);
    ret->list = calloc(query->limit + 1, sizeof(*ret->list));
    ret->piece = malloc((size_t)PIECE_BYTES);
    return ret->list && ret->piece ? 0 : -ENOMEM;
}

static bool is_wanted(const struct lines *lines, const char *line, size_t len)
{
    size_t sandbox_len = strlen(lines->sandbox);
    cleanup_json struct json *json = NULL;
    return len > TIME_AT + TIME_BYTES + sandbox_len &&
           memcmp(line + TIME_AT + TIME_BYTES, lines->sandbox, sandbox_len) == 0 &&
           memcmp(line + TIME_AT, lines->created, TIME_BYTES) >= 0 &&
           json_parse(line, len, JSON_STRICT, &json, NULL) == 0; /* it may be torn */
}

/* 1: there are enough. */
static int take_line(struct lines *lines, const char *line, size_t len)
{
    if (!is_wanted(lines, line, len))
        return 0;
    if (lines->count == lines->query->limit || lines->bytes + len > LIMIT_AUDIT_ANSWER_BYTES)
        return 1;
    char *text = strndup(line, len);
    if (!text)
        return -ENOMEM;
    lines->list[lines->count++] = (struct line){text, len};
    lines->bytes += len;
    return lines->count == lines->query->limit;
}

/* The whole lines of piece[0..len), the last one first; what stands before the first newline is
 * taken only at the file's start. *ret_used: so many bytes at the end were used. */
static int take_piece(struct lines *lines, size_t len, bool is_start, size_t *ret_used)
{
    const char *piece = lines->piece;
    size_t end = len;
    int result = 0;
    while (end > 0 && result == 0) {
        const char *newline = end > 1 ? memrchr(piece, '\n', end - 1) : NULL;
        if (!newline && !is_start)
            break;
        size_t start = newline ? (size_t)(newline - piece) + 1 : 0;
        bool is_whole = piece[end - 1] == '\n'; /* else it is still being written */
        if (is_whole)
            result = take_line(lines, piece + start, end - 1 - start);
        end = start;
    }
    *ret_used = len - end;
    return result;
}

/* 1: there are enough. A file that cannot be read any more has no more lines. */
static int take_file(struct lines *lines, int fd, off_t end)
{
    int result = 0;
    while (end > 0 && result == 0) {
        off_t start = end > PIECE_BYTES ? end - PIECE_BYTES : 0;
        size_t len = (size_t)(end - start), used = 0;
        if (pread(fd, lines->piece, len, start) != (ssize_t)len)
            return 0;
        result = take_piece(lines, len, start == 0, &used);
        end -= (off_t)(used ? used : len); /* no line of ours is that long */
    }
    return result;
}

int audit_lines(const struct audit_query *query, const int *fds, size_t fd_count,
                int (*found)(void *ctx, const char *line, size_t len), void *ctx)
{
    cleanup_lines struct lines lines;
    bool is_reached = !query->is_bounded;
    int result = lines_open(query, &lines);
    for (size_t i = 0; i < fd_count && result == 0 && query->limit; i++) {
        struct stat st;
        if (fstat(fds[i], &st) < 0)
            continue;
        bool is_last = query->is_bounded && (uint64_t)st.st_ino == query->inode;
        is_reached = is_reached || is_last;
        off_t end = is_last && query->size < st.st_size ? (off_t)query->size : st.st_size;
        if (is_reached)
            result = take_file(&lines, fds[i], end);
    }
    result = result < 0 ? result : 0;
    for (size_t i = lines.count; i-- > 0 && result == 0;)
        result = found(ctx, lines.list[i].text, lines.list[i].len);
    return result;
}
