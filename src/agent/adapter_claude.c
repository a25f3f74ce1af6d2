/* The adapter `claude-stream-json`: Claude Code with --output-format stream-json; see adapter.h.
 * One JSON event per line; the last one of type "result" decides. Claude Code exits with 0 after a
 * stream that ended too early and after SIGINT, and calls that a success, so only an answer that
 * says it is complete (end_turn, completed, exit 0) is one. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agent/adapter.h"
#include "agent/scan.h"
#include "util/cleanup.h"

#define CLAUDE_CHUNK 65536
/* subtype, stop_reason, terminal_reason and the like are short words */
#define CLAUDE_WORD_BYTES 64

enum { TYPE, IS_ERROR, RESULT, STOP_REASON, TERMINAL_REASON, SUBTYPE, ERRORS, FIELD_COUNT };

static const char *const claude_paths[FIELD_COUNT] = {
    [TYPE] = "type",
    [IS_ERROR] = "is_error",
    [RESULT] = "result",
    [STOP_REASON] = "stop_reason",
    [TERMINAL_REASON] = "terminal_reason",
    [SUBTYPE] = "subtype",
    [ERRORS] = "errors.[]",
};

/* The line that is read, and the last result event that was. They change places. */
struct claude {
    struct scan scan;
    struct scan_value lines[2][FIELD_COUNT];
    int current;
    bool has_result;
    char chunk[CLAUDE_CHUNK];
};

static bool claude_is(const struct scan_value *value, const char *text)
{
    return value->kind == SCAN_STRING && !value->is_cut && value->text.len == strlen(text) &&
           memcmp(buf_text(&value->text), text, value->text.len) == 0;
}

static void claude_end_line(struct claude *claude)
{
    const struct scan_value *line = claude->lines[claude->current];
    if (scan_end_line(&claude->scan) && claude_is(&line[TYPE], "result") &&
        (line[IS_ERROR].kind == SCAN_TRUE || line[IS_ERROR].kind == SCAN_FALSE)) {
        claude->has_result = true;
        claude->current = !claude->current;
        claude->scan.values = claude->lines[claude->current];
    }
    scan_next_line(&claude->scan);
}

static void claude_feed(struct claude *claude, const char *data, size_t len)
{
    const char *end = data + len;
    while (data < end) {
        const char *newline = memchr(data, '\n', (size_t)(end - data));
        scan_feed(&claude->scan, data, (size_t)((newline ? newline : end) - data));
        if (!newline)
            return;
        claude_end_line(claude);
        data = newline + 1;
    }
}

static int claude_read(struct claude *claude, int fd, struct err *err)
{
    off_t at = 0;
    while (fd >= 0) {
        ssize_t n = pread(fd, claude->chunk, sizeof(claude->chunk), at);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return err_errno(err, errno, "cannot read the task's output");
        if (n == 0)
            break;
        claude_feed(claude, claude->chunk, (size_t)n);
        at += n;
    }
    claude_end_line(claude); /* the last line may have no newline */
    return 0;
}

static const char *claude_word(const struct scan_value *value)
{
    if (value->kind == SCAN_STRING)
        return buf_text(&value->text);
    return value->kind == SCAN_NULL ? "null" : value->kind == SCAN_ABSENT ? "absent" : "unknown";
}

static int claude_take(struct agent_verdict *ret, const struct scan_value *value)
{
    ret->is_cut = value->is_cut;
    return buf_append(&ret->text, buf_text(&value->text), value->text.len);
}

static int claude_incomplete(const struct agent_ended *task, const struct scan_value *event,
                             struct agent_verdict *ret)
{
    int r = buf_appendf(&ret->text, "%s ended without a complete answer (stop_reason %s, ",
                        task->agent_name, claude_word(&event[STOP_REASON]));
    if (r == 0 && !claude_is(&event[TERMINAL_REASON], "completed"))
        r = buf_appendf(&ret->text, "terminal_reason %s, ", claude_word(&event[TERMINAL_REASON]));
    return r == 0 ? buf_appendf(&ret->text, "exit %d)", task->end->code) : r;
}

static int claude_judge_event(const struct agent_ended *task, const struct scan_value *event,
                              struct agent_verdict *ret)
{
    if (event[IS_ERROR].kind == SCAN_TRUE) {
        const int texts[] = {RESULT, ERRORS, SUBTYPE};
        for (size_t i = 0; i < ARRAY_LEN(texts); i++)
            if (event[texts[i]].kind == SCAN_STRING && event[texts[i]].text.len)
                return claude_take(ret, &event[texts[i]]);
        return buf_appendf(&ret->text, "%s reported an error without a text", task->agent_name);
    }
    if (!claude_is(&event[STOP_REASON], "end_turn") ||
        !claude_is(&event[TERMINAL_REASON], "completed") || task->end->code != 0)
        return claude_incomplete(task, event, ret);
    ret->is_success = true;
    return event[RESULT].kind == SCAN_STRING ? claude_take(ret, &event[RESULT]) : 0;
}

static int claude_judge_nothing(const struct agent_ended *task, struct agent_verdict *ret,
                                struct err *err)
{
    if (task->end->hits & TASK_HIT_STDOUT)
        return buf_appendf(&ret->text,
                           "%s exited with %d, and its output was cut at its limit "
                           "(limits.log_mib) before a result",
                           task->agent_name, task->end->code);
    return agent_judge_by_stderr(task, ret, err);
}

static int claude_judge(const struct agent_ended *task, struct agent_verdict *ret, struct err *err)
{
    struct claude *claude = calloc(1, sizeof(*claude));
    if (!claude)
        return err_set(err, ENOMEM, "out of memory");
    for (int line = 0; line < 2; line++)
        for (int field = 0; field < FIELD_COUNT; field++)
            claude->lines[line][field].text.max =
                field == RESULT || field == ERRORS ? LIMIT_AGENT_VALUE_BYTES : CLAUDE_WORD_BYTES;
    scan_init(&claude->scan, claude_paths, claude->lines[0], FIELD_COUNT);
    int r = claude_read(claude, task->stdout_fd, err);
    if (r == 0 && claude->has_result)
        r = claude_judge_event(task, claude->lines[!claude->current], ret);
    else if (r == 0)
        r = claude_judge_nothing(task, ret, err);
    for (int line = 0; line < 2; line++)
        for (int field = 0; field < FIELD_COUNT; field++)
            buf_free(&claude->lines[line][field].text);
    free(claude);
    return r;
}

const struct agent_adapter agent_adapter_claude = {"claude-stream-json", claude_judge};
