/* Log lines on standard error; see log.h. */
#include "util/log.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define LOG_LINE_MAX 2048

static const char *log_process = "paddock";
static enum log_level log_lowest = LOG_INFO;

void log_init(const char *process, enum log_level level)
{
    log_process = process;
    log_lowest = level;
}

static size_t log_escape(char *line, size_t at, const char *text)
{
    for (; *text && at + 6 < LOG_LINE_MAX; text++) {
        unsigned char c = (unsigned char)*text;
        if (c < 0x20 || c == 0x7f)
            at += (size_t)snprintf(line + at, 5, "\\x%02x", c);
        else
            line[at++] = (char)c;
    }
    return at;
}

void log_write(enum log_level level, const char *format, ...)
{
    static const char *const names[] = {"debug", "info", "warn", "error"};
    if (level < log_lowest)
        return;
    char text[LOG_LINE_MAX];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);

    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    struct tm tm;
    gmtime_r(&now.tv_sec, &tm);
    char line[LOG_LINE_MAX];
    size_t at = strftime(line, sizeof(line), "%Y-%m-%dT%H:%M:%S", &tm);
    at += (size_t)snprintf(line + at, sizeof(line) - at, ".%03ldZ %s %s ", now.tv_nsec / 1000000,
                           log_process, names[level]);
    at = log_escape(line, at, text);
    line[at++] = '\n';
    ssize_t n = write(STDERR_FILENO, line, at);
    (void)n; /* there is nowhere to tell that the log is gone */
}
