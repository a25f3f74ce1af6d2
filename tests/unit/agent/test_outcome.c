/* The promise of outcomes: whatever the agent printed, the state that is told is the true one. */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include "agent/agent.h"
#include "util/cleanup.h"
#include "util/fd.h"
#include "util/limits.h"
#include "json/json.h"

#define INIT_EVENT "{\"type\":\"system\",\"subtype\":\"init\",\"cwd\":\"/workspace/repo\"}\n"
#define GOOD_END "\"stop_reason\":\"end_turn\",\"terminal_reason\":\"completed\""
#define GOOD_EVENT                                                                                 \
    "{\"subtype\":\"success\",\"is_error\":false,\"num_turns\":2,\"result\":\"All "                \
    "done.\"," GOOD_END                                                                            \
    ",\"type\":\"result\",\"usage\":{\"result\":\"not this\",\"type\":\"x\"}}\n"

static const struct task_end exited = {
    .kind = TASK_END_EXITED, .started_ms = 1764669600000, .ended_ms = 1764669601500};

static int file_of(const char *data, size_t len)
{
    int fd = memfd_create("log", MFD_CLOEXEC);
    assert(fd >= 0 && fd_write_all(fd, data, len) == 0);
    return fd;
}

static struct json *judge_bytes(const char *adapter, const struct task_end *end, const char *out,
                                size_t len, const char *errors)
{
    cleanup_fd int stdout_fd = file_of(out, len);
    cleanup_fd int stderr_fd = file_of(errors, strlen(errors));
    cleanup_buf struct buf text = BUF_INIT(LIMIT_OUTCOME_BYTES);
    struct err err = {0};
    struct agent_ended task = {adapter, "claude", "", end, stdout_fd, stderr_fd};
    int r = agent_outcome(&task, &text, &err);
    if (r < 0)
        fprintf(stderr, "%s\n", err.message);
    assert(r == 0);
    struct json *json = NULL;
    assert(json_parse(text.data, text.len, JSON_STRICT, &json, &err) == 0);
    return json;
}

static struct json *judge(int code, const char *out, const char *errors)
{
    struct task_end end = exited;
    end.code = code;
    return judge_bytes("claude-stream-json", &end, out, strlen(out), errors);
}

static void expect(struct json *json, const char *state, const char *text)
{
    const char *key = strcmp(state, "succeeded") == 0 ? "result" : "error";
    const char *found = json_text(json_get(json, key));
    if (!found || strcmp(found, text) != 0)
        fprintf(stderr, "wanted %s, found %s\n", text, found ? found : "nothing");
    assert(strcmp(json_text(json_get(json, "state")), state) == 0);
    assert(found && strcmp(found, text) == 0);
    json_free(json);
}

static void test_a_complete_answer_is_a_success(void)
{
    struct json *json = judge(0, INIT_EVENT GOOD_EVENT, "");
    assert(json_integer(json_get(json, "exitCode")) == 0 && json_get(json, "exitCode"));
    assert(json_integer(json_get(json, "oomKills")) == 0);
    assert(strcmp(json_text(json_get(json, "startedAt")), "2025-12-02T10:00:00.000Z") == 0);
    assert(strcmp(json_text(json_get(json, "endedAt")), "2025-12-02T10:00:01.500Z") == 0);
    expect(json, "succeeded", "All done.");
    expect(judge(0, "{\"type\":\"result\",\"is_error\":false," GOOD_END "}", ""), "succeeded", "");
}

static void test_the_last_result_event_decides(void)
{
    static const char error[] = "{\"type\":\"result\",\"is_error\":true,\"subtype\":\"success\","
                                "\"result\":\"API Error: 402 "
                                "Insufficient wholesale credits\"}\n";
    char out[2048];
    snprintf(out, sizeof(out), "%s%s", GOOD_EVENT, error);
    expect(judge(1, out, ""), "failed", "API Error: 402 Insufficient wholesale credits");
    snprintf(out, sizeof(out), "%s%s%s", error, GOOD_EVENT, INIT_EVENT);
    expect(judge(0, out, ""), "succeeded", "All done.");
}

static void test_an_error_without_result_tells_errors_then_subtype(void)
{
    expect(judge(0,
                 "{\"type\":\"result\",\"subtype\":\"error_during_execution\",\"is_error\":true,"
                 "\"terminal_reason\":\"aborted_tools\",\"errors\":[\"interrupted\"]}\n",
                 ""),
           "failed", "interrupted");
    expect(
        judge(0, "{\"type\":\"result\",\"subtype\":\"error_max_turns\",\"is_error\":true}\n", ""),
        "failed", "error_max_turns");
}

static void test_an_incomplete_answer_is_a_failure(void)
{
#define EVENT(rest) "{\"type\":\"result\",\"is_error\":false,\"result\":\"half\"" rest "}\n"
    expect(judge(0, EVENT(",\"stop_reason\":null,\"terminal_reason\":\"completed\""), ""), "failed",
           "claude ended without a complete answer (stop_reason null, exit 0)");
    expect(judge(0, EVENT(",\"terminal_reason\":\"completed\""), ""), "failed",
           "claude ended without a complete answer (stop_reason absent, exit 0)");
    expect(judge(0, EVENT(",\"stop_reason\":\"max_tokens\",\"terminal_reason\":\"completed\""), ""),
           "failed", "claude ended without a complete answer (stop_reason max_tokens, exit 0)");
    expect(judge(0, EVENT(",\"stop_reason\":\"end_turn\",\"terminal_reason\":\"api_error\""), ""),
           "failed",
           "claude ended without a complete answer (stop_reason end_turn, terminal_reason "
           "api_error, exit 0)");
    expect(judge(3, EVENT("," GOOD_END), ""), "failed",
           "claude ended without a complete answer (stop_reason end_turn, exit 3)");
}

static void test_no_result_event_tells_the_end_of_stderr(void)
{
    expect(judge(1, INIT_EVENT, "bad option\n"), "failed", "claude exited with 1: bad option\n");
    expect(judge(0, "", ""), "failed", "claude exited with 0: ");
    char errors[9001];
    for (int i = 0; i < 3000; i++)
        snprintf(errors + (size_t)3 * i, 4, "\xe2\x82\xac"); /* a euro sign: three bytes */
    struct json *json = judge(1, "", errors);
    size_t len = 0;
    assert(json_string(json_get(json, "error"), &len));
    assert(len == strlen("claude exited with 1: ") + (size_t)3 * LIMIT_STDERR_TAIL);
    json_free(json);
}

static void test_lines_that_only_look_like_a_result_do_not_count(void)
{
    static const char *const lines[] = {
        "{\"type\":\"result\",\"is_error\":false,\"result\":\"x\"," GOOD_END,      /* cut off */
        "{\"type\":\"result\",\"is_error\":false,\"result\":\"x\"," GOOD_END "}}", /* too much */
        "{\"type\":\"result\",\"is_error\":\"false\",\"result\":\"x\"," GOOD_END "}",
        "{\"type\":\"result\",\"result\":\"x\"," GOOD_END "}",
        "[{\"type\":\"result\",\"is_error\":false,\"result\":\"x\"," GOOD_END "}]",
        "{\"a\":{\"type\":\"result\",\"is_error\":false,\"result\":\"x\"," GOOD_END "}}",
        "{\"type\":\"assistant\",\"text\":\"{\\\"type\\\":\\\"result\\\",\\\"is_error\\\":false}"
        "\"}",
        "{\"type\":\"result\",\"type\":\"assistant\",\"is_error\":false," GOOD_END "}",
        "{'type':'result'}",
        "{\"type\":\"result\",\"is_error\":falsy," GOOD_END "}",
        "{\"type\":\"result\" \"is_error\":false," GOOD_END "}",
        "{\"type\":\"result\",\"is_error\":false," GOOD_END ",}",
        "{\"type\":\"result\",\"is_error\":false,\"result\":\"\\x\"," GOOD_END "}",
        "{\"type\":\"result\",\"is_error\":false,\"result\":\"\\u12g4\"," GOOD_END "}",
        "\"type\"",
        "result",
    };
    for (size_t i = 0; i < ARRAY_LEN(lines); i++)
        expect(judge(1, lines[i], "no"), "failed", "claude exited with 1: no");
}

static void test_escapes_and_bytes_that_are_not_utf8_become_text(void)
{
    expect(judge(0,
                 "{\"type\":\"result\",\"is_error\":false," GOOD_END
                 ",\"result\":\"\\n\\t\\\"\\u00e9\\ud83d\\ude00\\ud83d!\\ude00\xff\"}",
                 ""),
           "succeeded", "\n\t\"\xc3\xa9\xf0\x9f\x98\x80\xef\xbf\xbd!\xef\xbf\xbd\xef\xbf\xbd");
}

/* A result event whose text has `len` bytes, all `filler`. */
static struct json *judge_large(size_t len, char filler, const char *in_front)
{
    cleanup_buf struct buf out = BUF_INIT(len + 65536);
    assert(buf_append_string(&out, "{\"type\":\"result\",\"is_error\":false,") == 0);
    assert(buf_append_string(&out, in_front) == 0);
    assert(buf_append_string(&out, "\"result\":\"") == 0);
    char *text = buf_reserve(&out, len);
    assert(text);
    memset(text, filler, len);
    out.len += len;
    assert(buf_append_string(&out, "\"," GOOD_END "}") == 0);
    return judge_bytes("claude-stream-json", &exited, out.data, out.len, "");
}

static void test_a_result_of_20_mb_without_newline_is_told_cut(void)
{
    struct json *json = judge_large(20 << 20, 'a', "");
    size_t len = 0;
    assert(strcmp(json_text(json_get(json, "state")), "succeeded") == 0);
    assert(json_string(json_get(json, "result"), &len) && len > 500000);
    assert(json_bool(json_get(json, "cut")));
    json_free(json);
    json = judge_large(1 << 20, '\x7f', "");
    assert(json_string(json_get(json, "result"), NULL));
    json_free(json);
    json = judge_large(20 << 20, '\xff', ""); /* each byte becomes three */
    assert(json_bool(json_get(json, "cut")));
    assert(json_string(json_get(json, "result"), &len) && len > 500000);
    json_free(json);
}

static void test_a_result_that_nests_10000_deep_is_read(void)
{
    cleanup_buf struct buf nest = BUF_INIT(65536);
    assert(buf_append_string(&nest, "\"x\":") == 0);
    for (int i = 0; i < 10000; i++)
        assert(buf_append(&nest, "[", 1) == 0);
    for (int i = 0; i < 10000; i++)
        assert(buf_append(&nest, "]", 1) == 0);
    assert(buf_append(&nest, ",", 1) == 0);
    expect(judge_large(3, 'y', nest.data), "succeeded", "yyy");
}

static void test_a_line_that_nests_beyond_the_limit_is_no_event(void)
{
    size_t len = LIMIT_AGENT_NESTING + 1;
    cleanup_free char *nest = malloc(len);
    assert(nest);
    memset(nest, '[', len);
    json_free(judge_bytes("claude-stream-json", &exited, nest, len, ""));
}

static void test_an_end_that_is_not_the_agents_doing_is_named(void)
{
    static const struct {
        struct task_end end;
        const char *error;
    } cases[] = {
        {{.kind = TASK_END_SIGNALED, .code = 11}, "claude was ended by signal 11 (SIGSEGV)"},
        {{.kind = TASK_END_CANCELLED, .code = 15}, "the task was cancelled"},
        {{.kind = TASK_END_DEADLINE}, "the task's deadline passed"},
        {{.kind = TASK_END_OOM, .oom_kills = 1, .memory_limit = 256LL << 20},
         "claude ran out of memory: the sandbox's limit is 256 MiB"},
        {{.kind = TASK_END_FAILED, .code = ENOENT},
         "claude could not be started: No such file or directory"},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++)
        expect(judge_bytes("claude-stream-json", &cases[i].end, GOOD_EVENT, strlen(GOOD_EVENT), ""),
               "failed", cases[i].error);
}

static void test_an_oom_kill_of_a_child_leaves_the_real_outcome(void)
{
    struct task_end end = exited;
    end.oom_kills = 1;
    struct json *json = judge_bytes("claude-stream-json", &end, GOOD_EVENT, strlen(GOOD_EVENT), "");
    assert(json_integer(json_get(json, "oomKills")) == 1);
    expect(json, "succeeded", "All done.");
}

static void test_the_exit_code_adapter_believes_the_exit_code(void)
{
    struct task_end end = exited;
    expect(judge_bytes("exit-code", &end, "hello\n", 6, "noise"), "succeeded", "hello\n");
    end.code = 2;
    expect(judge_bytes("exit-code", &end, "hello\n", 6, "why"), "failed",
           "claude exited with 2: why");
}

static void test_a_hint_is_added_to_failures_only(void)
{
    cleanup_buf struct buf text = BUF_INIT(LIMIT_OUTCOME_BYTES);
    cleanup_fd int good = file_of(GOOD_EVENT, strlen(GOOD_EVENT));
    struct agent_ended task = {"claude-stream-json", "claude", "Set X", &exited, good, -1};
    assert(agent_outcome(&task, &text, NULL) == 0 && !strstr(text.data, "Set X"));
    buf_clear(&text);
    task.stdout_fd = -1;
    assert(agent_outcome(&task, &text, NULL) == 0);
    assert(strstr(text.data, "claude exited with 0: \\nSet X"));
    task.adapter = "none";
    assert(agent_outcome(&task, &text, NULL) == -ENOENT);
}

int main(void)
{
    test_a_complete_answer_is_a_success();
    test_the_last_result_event_decides();
    test_an_error_without_result_tells_errors_then_subtype();
    test_an_incomplete_answer_is_a_failure();
    test_no_result_event_tells_the_end_of_stderr();
    test_lines_that_only_look_like_a_result_do_not_count();
    test_escapes_and_bytes_that_are_not_utf8_become_text();
    test_a_result_of_20_mb_without_newline_is_told_cut();
    test_a_result_that_nests_10000_deep_is_read();
    test_a_line_that_nests_beyond_the_limit_is_no_event();
    test_an_end_that_is_not_the_agents_doing_is_named();
    test_an_oom_kill_of_a_child_leaves_the_real_outcome();
    test_the_exit_code_adapter_believes_the_exit_code();
    test_a_hint_is_added_to_failures_only();
    return 0;
}
