/*
 * Log lines on standard error, one write(2) each:
 *   2026-12-02T10:11:12.123Z paddockd warn sandbox=agent-1 request=17 message text
 * Control characters in the text are shown as \xNN, so that nobody can forge a line. Secrets never
 * come here: they have their own type (util/secret.h), which has no way to print.
 */
#pragma once

enum log_level { LOG_DEBUG, LOG_INFO, LOG_WARN, LOG_ERROR };

/* The name of this process in its lines, and the lowest level that is written. */
void log_init(const char *process, enum log_level level);

void log_write(enum log_level level, const char *format, ...) __attribute__((format(printf, 2, 3)));

#define log_debug(...) log_write(LOG_DEBUG, __VA_ARGS__)
#define log_info(...) log_write(LOG_INFO, __VA_ARGS__)
#define log_warn(...) log_write(LOG_WARN, __VA_ARGS__)
#define log_error(...) log_write(LOG_ERROR, __VA_ARGS__)
