/*
 * Log lines on standard error, one write(2) each, in one of two styles:
 *   2026-12-02T10:11:12.123Z paddockd warn sandbox=agent-1 request=17 message text
 *   {"time":"2026-12-02T10:11:12.123Z","process":"paddockd","level":"warn","sandbox":"agent-1",
 *    "request":"17","message":"message text"}
 * A format begins with its fields: words KEY=%..., which must print no space. Control characters
 * and bytes that are not UTF-8 are shown as \xNN (U+FFFD in JSON), so that nobody can forge a line.
 * Secrets never come here: they have their own type (util/secret.h), which has no way to print.
 */
#pragma once

#include <stdbool.h>

enum log_level { LOG_DEBUG, LOG_INFO, LOG_WARN, LOG_ERROR };

struct log_style {
    bool is_json;
    bool has_priority; /* <N> in front, for the journal: sd-daemon(3) */
};

/* The name of this process in its lines, and the lowest level that is written. */
void log_init(const char *process, enum log_level level);
void log_set_style(struct log_style style);

/* The argument that tells a child of ours the style in force: --log=text, --log=json, each with
 * ",priority" behind it or not. */
const char *log_style_argument(void);
/* Takes it. False: it is no such argument. */
bool log_take_argument(const char *argument);

/* Whether standard error is the journal, given the value of JOURNAL_STREAM (NULL: not set):
 * systemd.exec(5). */
bool log_is_journal(const char *journal_stream);

void log_write(enum log_level level, const char *format, ...) __attribute__((format(printf, 2, 3)));

#define log_debug(...) log_write(LOG_DEBUG, __VA_ARGS__)
#define log_info(...) log_write(LOG_INFO, __VA_ARGS__)
#define log_warn(...) log_write(LOG_WARN, __VA_ARGS__)
#define log_error(...) log_write(LOG_ERROR, __VA_ARGS__)
