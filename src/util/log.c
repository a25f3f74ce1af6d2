/* Log lines on standard error; see log.h. Nothing is allocated; what does not fit is cut. */
#include "util/log.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "util/utf8.h"

#define LOG_TEXT_MAX 2048
/* Six bytes (\u00XX) for each of the text, and what stands around it. */
#define LOG_LINE_MAX (6 * LOG_TEXT_MAX + 1024)

static const char *log_process = "paddock";
static enum log_level log_lowest = LOG_INFO;
static struct log_style log_current;

struct log_line {
    char data[LOG_LINE_MAX];
    size_t len;
};

static const char *const level_names[] = {"debug", "info", "warn", "error"};
static const char level_priorities[] = "7643"; /* syslog(3) */

void log_init(const char *process, enum log_level level)
{
    log_process = process;
    log_lowest = level;
}

void log_set_style(struct log_style style)
{
    log_current = style;
}

static const char *const style_arguments[2][2] = {{"--log=text", "--log=text,priority"},
                                                  {"--log=json", "--log=json,priority"}};

const char *log_style_argument(void)
{
    return style_arguments[log_current.is_json][log_current.has_priority];
}

bool log_take_argument(const char *argument)
{
    for (int i = 0; i < 4; i++) {
        struct log_style style = {.is_json = i / 2, .has_priority = i % 2};
        if (strcmp(argument, style_arguments[style.is_json][style.has_priority]) == 0) {
            log_current = style;
            return true;
        }
    }
    return false;
}

bool log_is_journal(const char *journal_stream)
{
    struct stat st;
    char *end;
    if (!journal_stream || fstat(STDERR_FILENO, &st) < 0)
        return false;
    uintmax_t device = strtoumax(journal_stream, &end, 10);
    return *end == ':' && device == st.st_dev && strtoumax(end + 1, NULL, 10) == st.st_ino;
}

static void log_put(struct log_line *line, const char *data, size_t len)
{
    if (len > sizeof(line->data) - 1 - line->len) /* 1 for the end of the line */
        len = sizeof(line->data) - 1 - line->len;
    memcpy(line->data + line->len, data, len);
    line->len += len;
}

static void log_put_text(struct log_line *line, const char *text)
{
    log_put(line, text, strlen(text));
}

/* One character, or one byte that belongs to none: in JSON RFC 8259's escapes. Returns its length.
 */
static size_t log_put_character(struct log_line *line, const char *text, size_t len)
{
    char escape[16];
    unsigned char c = (unsigned char)*text;
    size_t sequence = utf8_sequence(text, len);
    bool is_control =
        c < 0x20 || c == 0x7f || (sequence == 2 && c == 0xc2 && (unsigned char)text[1] < 0xa0);
    if (sequence == 0 && log_current.is_json) {
        log_put_text(line, "\xef\xbf\xbd");
    } else if (sequence == 0 || (is_control && !log_current.is_json)) {
        for (size_t i = 0; i < (sequence ? sequence : 1); i++) {
            snprintf(escape, sizeof(escape), "\\x%02x", (unsigned char)text[i]);
            log_put_text(line, escape);
        }
    } else if (is_control) {
        snprintf(escape, sizeof(escape), "\\u%04x", sequence == 2 ? (unsigned char)text[1] : c);
        log_put_text(line, escape);
    } else {
        if (log_current.is_json && (c == '"' || c == '\\'))
            log_put_text(line, "\\");
        log_put(line, text, sequence);
    }
    return sequence ? sequence : 1;
}

static void log_put_foreign(struct log_line *line, const char *text, size_t len)
{
    for (size_t at = 0; at < len;)
        at += log_put_character(line, text + at, len - at);
}

/* How many fields stand first in a format: only what we wrote ourselves makes one. */
static int log_count_fields(const char *format)
{
    int count = 0;
    for (;;) {
        size_t key = strspn(format, "abcdefghijklmnopqrstuvwxyz_");
        size_t word = strcspn(format, " ");
        if (key == 0 || format[key] != '=' || format[word] != ' ')
            return count;
        count++;
        format += word + 1;
    }
}

static void log_put_json_pair(struct log_line *line, const char *key, size_t key_len,
                              const char *value, size_t len)
{
    log_put_text(line, line->data[line->len - 1] == '{' ? "\"" : ",\"");
    log_put(line, key, key_len);
    log_put_text(line, "\":\"");
    log_put_foreign(line, value, len);
    log_put_text(line, "\"");
}

static void log_put_json(struct log_line *line, const char *time, const char *level, int fields,
                         const char *text)
{
    log_put_text(line, "{");
    log_put_json_pair(line, "time", 4, time, strlen(time));
    log_put_json_pair(line, "process", 7, log_process, strlen(log_process));
    log_put_json_pair(line, "level", 5, level, strlen(level));
    for (; fields > 0; fields--) {
        size_t key = strcspn(text, "=");
        size_t word = strcspn(text, " ");
        if (key > word || !text[word])
            break; /* cut in the midst of a field */
        log_put_json_pair(line, text, key, text + key + 1, word - key - 1);
        text += word + 1;
    }
    log_put_json_pair(line, "message", 7, text, strlen(text));
    log_put_text(line, "}");
}

static void log_put_plain(struct log_line *line, const char *time, const char *level,
                          const char *text)
{
    const char *const words[] = {time, log_process, level};
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
        log_put_text(line, words[i]);
        log_put_text(line, " ");
    }
    log_put_foreign(line, text, strlen(text));
}

void log_write(enum log_level level, const char *format, ...)
{
    if (level < log_lowest)
        return;
    char text[LOG_TEXT_MAX], time[64];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);

    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    struct tm tm;
    gmtime_r(&now.tv_sec, &tm);
    size_t at = strftime(time, sizeof(time), "%Y-%m-%dT%H:%M:%S", &tm);
    snprintf(time + at, sizeof(time) - at, ".%03ldZ", now.tv_nsec / 1000000);

    struct log_line line = {.len = 0};
    if (log_current.has_priority) {
        char priority[] = {'<', level_priorities[level], '>'};
        log_put(&line, priority, sizeof(priority));
    }
    if (log_current.is_json)
        log_put_json(&line, time, level_names[level], log_count_fields(format), text);
    else
        log_put_plain(&line, time, level_names[level], text);
    line.data[line.len++] = '\n';
    ssize_t n = write(STDERR_FILENO, line.data, line.len);
    (void)n; /* there is nowhere to tell that the log is gone */
}
