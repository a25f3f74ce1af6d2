/* The promises of the REST API: statuses, bodies and texts, told by a fake supervisor over real
 * messages; and that a client that hangs up, or a supervisor that does, leaves nothing behind. */
#include <assert.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fake.h"
#include "task/spec.h"
#include "util/cleanup.h"
#include "util/fd.h"

#define BAD_NAME                                                                                   \
    "The sandbox name must be 1-63 lowercase letters, digits, or hyphens, with no hyphen at "      \
    "either end"

static void test_path_name_method_and_body_are_checked_in_this_order(void)
{
    fake_start(false);
    client_answer(client_request("PATCH", "/", ""), 404, "Not found");
    client_answer(client_request("GET", "/sandboxes/A/other", ""), 404, "Not found");
    client_answer(client_request("GET", "/sandboxes//task", ""), 404, "Not found");
    client_answer(client_request("PATCH", "/sandboxes/%2e%2e/task", "x"), 400, BAD_NAME);
    client_answer(client_request("GET", "/sandboxes/../task", ""), 400, BAD_NAME);
    client_answer(client_request("GET", "/sandboxes/A", ""), 400, BAD_NAME);
    client_answer(client_request("DELETE", "/images/a_b", ""), 400, NULL);
    const char *text =
        client_answer(client_request("PATCH", "/sandboxes/a/task", ""), 405, "Method not allowed");
    assert(strstr(text, "\r\nAllow: POST, GET, DELETE\r\n"));
    client_answer(client_request("POST", "/sandboxes/a/task", ""), 400, "Send a prompt");
    client_answer(client_request("POST", "/sandboxes/a/repository", "{}"), 400,
                  "Send {\"url\": \"https://github.com/OWNER/REPOSITORY\"}");
    client_answer(client_request("GET", "/sandboxes/a/task/log?from=x", ""), 400, NULL);
    client_answer(client_request("GET", "/sandboxes/a/diff?against=-O", ""), 400, NULL);
    client_answer(client_request("GET", "/sandboxes", "body"), 413, "This request takes no body");
    fake_expect_nothing();
    fake_stop();
}

static void test_a_prompt_of_128_kib_is_too_large_and_one_byte_less_arrives(void)
{
    static char prompt[LIMIT_PROMPT_BYTES + 2];
    fake_start(false);
    memset(prompt, 'p', LIMIT_PROMPT_BYTES + 1);
    client_answer(client_request("POST", "/sandboxes/a/task", prompt), 413,
                  "Send a prompt smaller than 128 KiB");
    prompt[LIMIT_PROMPT_BYTES] = '\0';
    int fd = client_request("POST", "/sandboxes/a/task", prompt);
    fake_expect(IPC_TASK_START);
    assert(strcmp(IPC_TEXT(IPC_BODY(&fake_message, msg_task_start)->name), "a") == 0);
    cleanup_buf struct buf got = BUF_INIT(LIMIT_PROMPT_BYTES);
    int file = fake_message.fds[0]; /* fake.c closes it */
    assert(fd_is_sealed(file) && fd_read_all(file, &got) == 0 && strcmp(got.data, prompt) == 0);
    fake_status(IPC_STATUS_OK, "");
    client_answer(fd, 202, "{\"state\":\"running\"}");
    fd = client_request("POST", "/sandboxes/a/task", "again");
    fake_expect(IPC_TASK_START);
    fake_status(IPC_STATUS_CONFLICT, "A task is already running");
    client_answer(fd, 409, "A task is already running");
    fake_stop();
}

static void test_a_clone_is_run_and_told(void)
{
    int pipes[2];
    for (int code = 0; code <= 128; code += 128) {
        fake_start(false);
        int fd = client_request("POST", "/sandboxes/a/repository",
                                "{\"url\":\"https://github.com/octocat/Hello-World\"}");
        fake_expect(IPC_EXEC);
        const struct msg_exec *body = IPC_BODY(&fake_message, msg_exec);
        assert(body->is_clone && body->user == EXEC_AS_AGENT && fake_message.fd_count == 1);
        fake_started(pipes);
        assert(fd_write_all(pipes[1], "Cloning\xff\n", 9) == 0);
        close(pipes[0]);
        close(pipes[1]);
        fake_ended(TASK_END_EXITED, code, "");
        client_answer(
            fd, code ? 502 : 200,
            code ? "{\"exitCode\":128,\"stdout\":\"\",\"stderr\":\"Cloning\xef\xbf\xbd\\n\"}"
                 : "{\"exitCode\":0,\"stdout\":\"\",\"stderr\":\"Cloning\xef\xbf\xbd\\n\"}");
        fake_stop();
    }
}

static void test_a_clone_that_a_signal_ended_is_502(void)
{
    int pipes[2];
    fake_start(false);
    int fd = client_request("POST", "/sandboxes/a/repository",
                            "{\"url\":\"https://github.com/octocat/Hello-World\"}");
    fake_expect(IPC_EXEC);
    fake_started(pipes);
    fake_ended(TASK_END_SIGNALED, 9, "the sandbox was stopped");
    client_answer(fd, 502,
                  "{\"exitCode\":137,\"stdout\":\"\",\"stderr\":\"the sandbox was stopped\\n\"}");
    close(pipes[0]);
    close(pipes[1]);
    fake_stop();
}

/* What was overwritten on the way is streamed, and is not in the last line. */
static void test_a_clone_streams_its_progress_when_asked(void)
{
    static const char first[] = "Cloning\nReceiving:  50% (1/2)\r";
    static const char rest[] = "Receiving: 100% (2/2), done.\nfatal: no";
    int pipes[2];
    fake_start(false);
    int fd = client_request("POST", "/sandboxes/a/repository?progress=1",
                            "{\"url\":\"https://github.com/octocat/Hello-World\"}");
    fake_expect(IPC_EXEC);
    fake_started(pipes);
    assert(fd_write_all(pipes[1], first, strlen(first)) == 0);
    assert(strstr(client_until(fd, "50% (1/2)\r"), "HTTP/1.1 200 OK\r\n"));
    assert(fd_write_all(pipes[1], rest, strlen(rest)) == 0);
    client_until(fd, "fatal: no");
    fake_ended(TASK_END_EXITED, 128, "");
    const char *text = client_until(fd, NULL);
    assert(strstr(text,
                  "\n{\"exitCode\":128,\"stdout\":\"\",\"stderr\":\"Cloning\\nReceiving: 100% "
                  "(2/2), done.\\nfatal: no\"}\n\r\n0\r\n\r\n"));
    close(fd);
    close(pipes[0]);
    close(pipes[1]);

    /* nothing was started: the answer is as it is without progress */
    fd = client_request("POST", "/sandboxes/a/repository?progress=1",
                        "{\"url\":\"https://github.com/octocat/Hello-World\"}");
    fake_expect(IPC_EXEC);
    fake_status(IPC_STATUS_CONFLICT, "no");
    client_answer(fd, 409, "no");
    client_answer(client_request("POST", "/sandboxes/a/repository?progress=2", "{}"), 400,
                  "The query may be progress=1");
    fake_stop();
}

static void test_exec_answers_at_the_end_of_the_program_not_of_its_pipes(void)
{
    int pipes[2];
    fake_start(false);
    int fd = client_request("POST", "/sandboxes/a/exec",
                            "{\"argv\":[\"sh\",\"-c\",\"sleep 60 & echo hi\"],\"user\":\"root\"}");
    fake_expect(IPC_EXEC);
    assert(IPC_BODY(&fake_message, msg_exec)->user == EXEC_AS_ROOT);
    fake_started(pipes);
    assert(fd_write_all(pipes[0], "hi\n", 3) == 0);
    fake_ended(TASK_END_EXITED, 0, ""); /* the pipes are open still */
    client_answer(fd, 200, "{\"exitCode\":0,\"stdout\":\"hi\\n\",\"stderr\":\"\"}");
    close(pipes[0]);
    close(pipes[1]);
    fake_stop();
}

static int events_request(const char *json)
{
    return client_request_with("POST", "/sandboxes/a/exec",
                               "Accept: text/html, Text/Event-Stream\r\n", json);
}

static void test_exec_tells_what_is_printed_as_it_comes(void)
{
    int pipes[2];
    fake_start(false);
    int fd = events_request("{\"argv\":[\"x\"]}");
    fake_expect(IPC_EXEC);
    fake_started(pipes);
    const char *text = client_until(fd, ":\n\n"); /* it runs; and comments go on */
    assert(strstr(text, "200 OK") && strstr(text, "text/event-stream"));
    client_until(fd, ":\n\n");
    assert(fd_write_all(pipes[0], "a\xc3", 2) == 0); /* half a character waits for the other */
    client_until(fd, "event: stdout\ndata: {\"text\":\"a\"}\n\n");
    assert(fd_write_all(pipes[0], "\xa9", 1) == 0);
    client_until(fd, "event: stdout\ndata: {\"text\":\"\xc3\xa9\"}\n\n");
    assert(fd_write_all(pipes[1], "no\n\xe2\x82", 5) == 0);
    client_until(fd, "event: stderr\ndata: {\"text\":\"no\\n\"}\n\n");
    fake_ended(TASK_END_DEADLINE, SIGTERM, "its time was over");
    text = client_until(fd, NULL);
    close(fd);
    assert(strstr(text, "event: stderr\ndata: {\"text\":\"\xef\xbf\xbd\xef\xbf\xbd\"}\n\n"));
    assert(strstr(text, "event: exit\ndata: {\"exitCode\":124,\"error\":\"its time was over\"}"));
    close(pipes[0]);
    close(pipes[1]);
    fd = events_request("{\"argv\":[]}"); /* before anything runs it is an answer like any other */
    client_answer(fd, 400, NULL);
    fd = events_request("{\"argv\":[\"x\"]}");
    fake_expect(IPC_EXEC);
    fake_status(IPC_STATUS_UNAVAILABLE, "not now");
    client_answer(fd, 503, "not now");
    fake_stop();
}

static void test_a_client_that_goes_away_ends_the_program_only_if_it_said_so(void)
{
    static const char *const bodies[] = {"{\"argv\":[\"x\"]}",
                                         "{\"argv\":[\"x\"],\"end_with_client\":true}"};
    int pipes[2];
    for (int ends = 0; ends < 2; ends++) {
        fake_start(false);
        int fd = events_request(bodies[ends]);
        fake_expect(IPC_EXEC);
        assert(IPC_BODY(&fake_message, msg_exec)->is_ended_apart == (uint32_t)ends);
        fake_started(pipes);
        client_until(fd, ":\n\n");
        close(fd);
        if (ends)
            fake_expect(IPC_EXEC_END);
        else
            fake_expect_nothing();
        fake_ended(TASK_END_CANCELLED, SIGTERM, "");
        close(pipes[0]);
        close(pipes[1]);
        fake_stop();
    }
}

static void write_much(int fd, size_t len, char filler)
{
    static char chunk[16384];
    memset(chunk, filler, sizeof(chunk));
    while (len) {
        ssize_t n = write(fd, chunk, len < sizeof(chunk) ? len : sizeof(chunk));
        if (n > 0)
            len -= (size_t)n;
        else
            assert(errno == EAGAIN);
        fake_turn();
    }
}

static void test_exec_keeps_the_last_mebibyte(void)
{
    int pipes[2];
    fake_start(false);
    int fd = client_request("POST", "/sandboxes/a/exec", "{\"argv\":[\"x\"]}");
    fake_expect(IPC_EXEC);
    fake_started(pipes);
    write_much(pipes[0], 3 << 20, 'a');
    assert(fd_write_all(pipes[0], "end", 3) == 0);
    fake_ended(TASK_END_SIGNALED, SIGTERM, "");
    const char *text = client_answer(fd, 200, NULL);
    const char *output = strstr(text, "\"stdout\":\"");
    assert(strstr(text, "{\"exitCode\":143,") && output);
    assert(strspn(output + 10, "a") == LIMIT_EXEC_OUTPUT_BYTES - 3);
    assert(strstr(text, "aend\""));
    close(pipes[0]);
    close(pipes[1]);
    fake_stop();
}

static void test_what_could_not_be_started_says_why(void)
{
    int pipes[2];
    fake_start(false);
    int fd = client_request("POST", "/sandboxes/a/exec", "{\"argv\":[\"/no\"]}");
    fake_expect(IPC_EXEC);
    fake_started(pipes);
    fake_ended(TASK_END_FAILED, ENOENT, "cannot run /no: No such file or directory");
    client_answer(fd, 200,
                  "{\"exitCode\":127,\"stdout\":\"\",\"stderr\":\"cannot run /no: No such file or "
                  "directory\\n\"}");
    close(pipes[0]);
    close(pipes[1]);
    fake_stop();
}

static void test_a_client_that_hangs_up_does_not_hold_up_the_program(void)
{
    int pipes[2];
    fake_start(false);
    int fd = client_request("POST", "/sandboxes/a/exec", "{\"argv\":[\"x\"]}");
    fake_expect(IPC_EXEC);
    fake_started(pipes);
    fake_turn();
    close(fd);
    write_much(pipes[0], 2 << 20, 'a'); /* more than a pipe holds */
    fake_ended(TASK_END_EXITED, 0, "");
    for (int i = 0; i < 20; i++)
        fake_turn();
    assert(write(pipes[0], "x", 1) < 0 && errno == EPIPE); /* nothing is kept open */
    close(pipes[0]);
    close(pipes[1]);
    fake_stop();
}

static void send_task_state(enum ipc_type type, int state, const int *fds, size_t count)
{
    struct msg_task_state body = {.state = state};
    IPC_SET_TEXT(body.name, "a");
    IPC_SET_TEXT(body.agent, "claude");
    IPC_SET_TEXT(body.adapter, "claude-stream-json");
    if (type == IPC_TASK_STATE)
        fake_send(type, &body, fds, count);
    else
        fake_send_unasked(type, &body, fds, count);
}

static void test_the_states_of_a_task(void)
{
    static const struct {
        int state;
        const char *body;
    } cases[] = {{TASK_NONE, "{\"state\":\"none\"}"},
                 {TASK_RUNNING, "{\"state\":\"running\"}"},
                 {TASK_LOST, "{\"state\":\"lost\"}"}};
    fake_start(false);
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        int fd = client_request("GET", "/sandboxes/a/task", "");
        fake_expect(IPC_TASK_GET);
        send_task_state(IPC_TASK_STATE, cases[i].state, NULL, 0);
        client_answer(fd, 200, cases[i].body);
    }
    fake_stop();
}

#define RESULT                                                                                     \
    "{\"type\":\"result\",\"is_error\":false,\"result\":\"Done.\",\"stop_reason\":\"end_turn\","   \
    "\"terminal_reason\":\"completed\"}\n"
#define OUTCOME                                                                                    \
    "{\"state\":\"succeeded\",\"result\":\"Done.\",\"end\":\"exited\",\"exitCode\":0,"             \
    "\"oomKills\":0}"

static void open_task(int fds[4], const char *outcome)
{
    char end[TASK_END_JSON_MAX];
    task_end_write(&(struct task_end){.kind = TASK_END_EXITED}, end);
    fds[0] = fake_file(outcome);
    fds[1] = fake_file(end);
    fds[2] = fake_file(RESULT);
    fds[3] = fake_file("");
}

static void close_task(const int fds[4], const char *outcome)
{
    char text[4096] = "";
    assert(pread(fds[0], text, sizeof(text) - 1, 0) >= 0);
    assert(strcmp(text, outcome) == 0);
    for (int i = 0; i < 4; i++)
        close(fds[i]);
}

static void test_an_ended_task_is_judged_once_and_again_when_its_outcome_is_broken(void)
{
    static const char *const there[] = {"", "{\"state\":\"succ",
                                        "not json, and a lot longer than "
                                        "what will be written in its place"
                                        ", so that a rest would be seen; "
                                        "and longer, and longer"};
    int fds[4];
    fake_start(false);
    for (size_t i = 0; i < ARRAY_LEN(there); i++) {
        open_task(fds, there[i]);
        int fd = client_request("GET", "/sandboxes/a/task", "");
        fake_expect(IPC_TASK_GET);
        send_task_state(IPC_TASK_STATE, TASK_ENDED, fds, 4);
        client_answer(fd, 200, OUTCOME);
        close_task(fds, OUTCOME);
    }
    static const char kept[] = "{\"state\":\"failed\",\"error\":\"as it was judged then\"}";
    open_task(fds, kept);
    int fd = client_request("GET", "/sandboxes/a/task", "");
    fake_expect(IPC_TASK_GET);
    send_task_state(IPC_TASK_STATE, TASK_ENDED, fds, 4);
    client_answer(fd, 200, kept);
    close_task(fds, kept);
    fake_stop();
}

static void test_a_task_that_finished_is_judged_at_once(void)
{
    int fds[4];
    fake_start(false);
    open_task(fds, "");
    send_task_state(IPC_TASK_FINISHED, TASK_ENDED, fds, 4);
    char byte;
    for (int i = 0; i < 5000 && pread(fds[0], &byte, 1, sizeof(OUTCOME) - 2) != 1; i++) {
        fake_turn();
        usleep(1000);
    }
    close_task(fds, OUTCOME);
    send_task_state(IPC_TASK_FINISHED, TASK_ENDED, NULL, 0); /* files missing: logged, no more */
    for (int i = 0; i < 10; i++)
        fake_turn();
    assert(!fake_is_lost());
    fake_stop();
}

/* Others are answered while a large log is judged; who asks for the same meanwhile waits with the
 * first. */
static void test_judging_a_large_log_holds_up_nobody(void)
{
    static char events[1024 * 1024];
    static const char event[] = "{\"a\":[1,[],{\"b\":\"\\u0041\\n\"},true,null,\"\",\"\"]}\n";
    int fds[4];
    char byte;
    size_t len = 0;
    for (; len + sizeof(event) <= sizeof(events); len += sizeof(event) - 1)
        memcpy(events + len, event, sizeof(event) - 1);
    fake_start(false);
    open_task(fds, "");
    for (off_t at = 0; at < 64; at++)
        assert(pwrite(fds[2], events, len, at * (off_t)len) == (ssize_t)len);
    assert(pwrite(fds[2], RESULT, sizeof(RESULT) - 1, 64 * (off_t)len) == sizeof(RESULT) - 1);
    int first = client_request("GET", "/sandboxes/a/task", "");
    fake_expect(IPC_TASK_GET);
    send_task_state(IPC_TASK_STATE, TASK_ENDED, fds, 4);
    int second = client_request("GET", "/sandboxes/a/task", "");
    fake_expect(IPC_TASK_GET);
    send_task_state(IPC_TASK_STATE, TASK_ENDED, fds, 4);
    int gone = client_request("GET", "/sandboxes/a/task", "");
    fake_expect(IPC_TASK_GET);
    send_task_state(IPC_TASK_STATE, TASK_ENDED, fds, 4);
    close(gone);
    client_answer(client_request("GET", "/", ""), 404, "Not found");
    assert(pread(fds[0], &byte, 1, 0) == 0); /* it is not judged yet */
    client_answer(first, 200, OUTCOME);
    client_answer(second, 200, OUTCOME);
    close_task(fds, OUTCOME);
    fake_stop();
}

static void test_a_cancel_tells_the_real_outcome(void)
{
    int fds[4];
    fake_start(false);
    int fd = client_request("DELETE", "/sandboxes/a/task", "");
    fake_expect(IPC_TASK_CANCEL);
    fake_status(IPC_STATUS_OK, "");
    fake_expect(IPC_TASK_GET);
    open_task(fds, "");
    send_task_state(IPC_TASK_STATE, TASK_ENDED, fds, 4);
    client_answer(fd, 200, OUTCOME);
    close_task(fds, OUTCOME);
    fake_stop();
}

static void test_a_log_is_followed_from_its_offset_to_its_end(void)
{
    int watcher[2];
    fake_start(false);
    int fd = client_request("GET", "/sandboxes/a/task/log?from=2&follow=1&stream=stderr", "");
    fake_expect(IPC_TASK_LOG);
    const struct msg_task_log *body = IPC_BODY(&fake_message, msg_task_log);
    assert(body->follow && body->stream == TASK_LOG_STDERR);
    assert(pipe2(watcher, O_CLOEXEC) == 0);
    int file = fake_file("0123");
    int fds[2] = {file, watcher[0]};
    struct msg_task_log_opened opened = {.running = 1};
    fake_send(IPC_TASK_LOG_OPENED, &opened, fds, 2);
    close(watcher[0]);
    const char *text = client_until(fd, "2\r\n23\r\n");
    assert(strstr(text, "Transfer-Encoding: chunked\r\n") && strstr(text, "2\r\n23\r\n"));
    assert(pwrite(file, "45", 2, 4) == 2 && write(watcher[1], "x", 1) == 1);
    assert(strcmp(client_until(fd, "45\r\n"), "2\r\n45\r\n") == 0);
    assert(pwrite(file, "6", 1, 6) == 1);
    close(watcher[1]);
    assert(strcmp(client_until(fd, NULL), "1\r\n6\r\n0\r\n\r\n") == 0);
    close(fd);
    close(file);
    fake_stop();
}

static void test_a_follower_that_hangs_up_leaves_nothing_open(void)
{
    int watcher[2];
    fake_start(false);
    int fd = client_request("GET", "/sandboxes/a/task/log?follow=1", "");
    fake_expect(IPC_TASK_LOG);
    assert(pipe2(watcher, O_CLOEXEC) == 0);
    int fds[2] = {fake_file("x"), watcher[0]};
    struct msg_task_log_opened opened = {.running = 1};
    fake_send(IPC_TASK_LOG_OPENED, &opened, fds, 2);
    close(fds[0]);
    close(fds[1]);
    client_until(fd, "x\r\n");
    close(fd);
    for (int i = 0; i < 20; i++)
        fake_turn();
    assert(write(watcher[1], "x", 1) < 0 && errno == EPIPE);
    close(watcher[1]);
    fake_stop();
}

static void test_a_large_log_goes_out_as_the_client_takes_it(void)
{
    enum { SIZE = 3 << 20 };
    fake_start(false);
    char *large = malloc(SIZE + 1);
    assert(large);
    memset(large, 'l', SIZE);
    large[SIZE] = '\0';
    int fd = client_request("GET", "/sandboxes/a/task/log", "");
    fake_expect(IPC_TASK_LOG);
    int file = fake_file(large);
    fake_send(IPC_TASK_LOG_OPENED, NULL, &file, 1);
    close(file);
    for (int i = 0; i < 50; i++)
        fake_turn(); /* nobody reads yet */
    const char *text = client_until(fd, NULL);
    size_t count = 0;
    for (const char *at = strstr(text, "\r\n\r\n"); *at; at++)
        count += *at == 'l';
    assert(count == SIZE && strcmp(text + strlen(text) - 7, "\r\n0\r\n\r\n") == 0);
    close(fd);
    free(large);
    fake_stop();
}

static void test_a_diff_is_streamed_and_its_failure_never_looks_complete(void)
{
    int pipes[2];
    fake_start(false);
    int fd = client_request("GET", "/sandboxes/a/diff?against=HEAD~1&renames=1", "");
    fake_expect(IPC_DIFF);
    const struct msg_diff *body = IPC_BODY(&fake_message, msg_diff);
    assert(body->against == DIFF_REVISION && body->renames);
    assert(strcmp(IPC_TEXT(body->revision), "HEAD~1") == 0);
    fake_started(pipes);
    assert(fd_write_all(pipes[0], "diff --git", 10) == 0);
    const char *text = client_until(fd, "diff --git");
    assert(strncmp(text, "HTTP/1.1 200 OK\r\n", 17) == 0);
    assert(strstr(text, "Content-Type: text/plain\r\n"));
    fake_ended(TASK_END_EXITED, 0, "");
    close(pipes[0]);
    close(pipes[1]);
    const char *rest = client_until(fd, NULL);
    assert(strcmp(rest + strlen(rest) - 5, "0\r\n\r\n") == 0);
    close(fd);

    fd = client_request("GET", "/sandboxes/a/diff", "");
    fake_expect(IPC_DIFF);
    fake_started(pipes);
    assert(fd_write_all(pipes[0], "half", 4) == 0);
    client_until(fd, "half");
    fake_ended(TASK_END_EXITED, 1, "");
    assert(!strstr(client_until(fd, NULL), "0\r\n"));
    close(pipes[0]);
    close(pipes[1]);
    close(fd);
    fake_stop();
}

static void test_a_diff_without_bytes_is_empty_or_502(void)
{
    int pipes[2];
    fake_start(false);
    int fd = client_request("GET", "/sandboxes/a/diff", "");
    fake_expect(IPC_DIFF);
    fake_started(pipes);
    close(pipes[0]);
    close(pipes[1]);
    fake_ended(TASK_END_EXITED, 0, "");
    client_answer(fd, 200, "");

    fd = client_request("GET", "/sandboxes/a/diff", "");
    fake_expect(IPC_DIFF);
    fake_started(pipes);
    assert(fd_write_all(pipes[1], "broken\n", 7) == 0);
    close(pipes[0]);
    close(pipes[1]);
    fake_ended(TASK_END_EXITED, 1, "");
    client_answer(fd, 502, "{\"exitCode\":1,\"stdout\":\"\",\"stderr\":\"broken\\n\"}");

    fd = client_request("GET", "/sandboxes/a/diff", "");
    fake_expect(IPC_DIFF);
    fake_status(IPC_STATUS_BAD_GATEWAY, "There is no repository");
    client_answer(fd, 502,
                  "{\"exitCode\":128,\"stdout\":\"\",\"stderr\":\"There is no repository\"}");
    fake_stop();
}

static void test_a_build_ends_with_a_line_that_tells_how(void)
{
    int pipes[2];
    fake_start(false);
    int fd = client_request("POST", "/images", "{\"name\":\"claude\",\"rebuild\":true}");
    fake_expect(IPC_IMAGE_BUILD);
    assert(IPC_BODY(&fake_message, msg_image_name)->rebuild);
    fake_started(pipes);
    assert(fd_write_all(pipes[0], "unpacking", 9) == 0);
    client_until(fd, "unpacking");
    fake_ended(TASK_END_EXITED, 2, "no such package");
    const char *text = client_until(fd, NULL);
    assert(strstr(text, "\n{\"exitCode\":2,\"error\":\"no such package\"}\n\r\n0\r\n\r\n"));
    close(fd);
    close(pipes[0]);
    close(pipes[1]);

    fd = client_request("POST", "/images", "{\"name\":\"claude\"}");
    fake_expect(IPC_IMAGE_BUILD);
    fake_started(pipes);
    fake_ended(TASK_END_EXITED, 0, "");
    assert(strstr(client_until(fd, NULL), "\r\n\r\nf\r\n{\"exitCode\":0}\n\r\n0\r\n\r\n"));
    close(fd);
    close(pipes[0]);
    close(pipes[1]);
    fake_stop();
}

static void test_documents_and_statuses_are_passed_on(void)
{
    fake_start(false);
    int fd = client_request("GET", "/sandboxes", "");
    fake_expect(IPC_SANDBOX_LIST);
    int file = fake_file("{\"sandboxes\":[]}");
    fake_send(IPC_DOCUMENT, NULL, &file, 1);
    close(file);
    const char *text = client_answer(fd, 200, "{\"sandboxes\":[]}");
    assert(strstr(text, "Content-Type: application/json\r\n"));
    static const struct {
        const char *method, *path;
        enum ipc_type type;
        enum ipc_status code;
        int status;
        const char *body;
    } cases[] = {
        {"GET", "/healthz", IPC_HEALTH, IPC_STATUS_UNAVAILABLE, 503, "why"},
        {"GET", "/sandboxes/a", IPC_SANDBOX_GET, IPC_STATUS_NOT_FOUND, 404, "why"},
        {"DELETE", "/sandboxes/a", IPC_SANDBOX_REMOVE, IPC_STATUS_OK, 204, ""},
        {"POST", "/sandboxes/a/stop", IPC_SANDBOX_STOP, IPC_STATUS_OK, 204, ""},
        {"GET", "/images", IPC_IMAGE_LIST, IPC_STATUS_FAILED, 500, "Sandbox request failed"},
        {"DELETE", "/images/claude", IPC_IMAGE_REMOVE, IPC_STATUS_CONFLICT, 409, "why"},
        {"DELETE", "/sandboxes/a/task", IPC_TASK_CANCEL, IPC_STATUS_CONFLICT, 409, "why"},
        {"GET", "/sandboxes/a/task/log", IPC_TASK_LOG, IPC_STATUS_NOT_FOUND, 404, "why"},
        {"GET", "/sandboxes/a/task", IPC_TASK_GET, IPC_STATUS_BAD_REQUEST, 400, "why"},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        fd = client_request(cases[i].method, cases[i].path, "");
        fake_expect(cases[i].type);
        fake_status(cases[i].code, "why");
        text = client_answer(fd, cases[i].status, cases[i].body);
        assert(strstr(text, "\r\nX-Request-Id: "));
        assert(!strstr(text, "Retry-After") == (cases[i].status != 503));
    }
    fake_stop();
}

static void test_over_tcp_everything_is_401(void)
{
    fake_start(true);
    client_answer(client_request("GET", "/healthz", ""), 401, "Send a token");
    client_answer(client_request("GET", "/none", ""), 401, "Send a token");
    client_answer(client_request("POST", "/sandboxes/a/exec", "{\"argv\":[\"x\"]}"), 401,
                  "Send a token");
    fake_expect_nothing();
    fake_stop();
}

static void test_a_supervisor_that_is_gone_ends_the_api(void)
{
    fake_start(false);
    int fd = client_request("GET", "/healthz", ""); /* stays unanswered, and leaves nothing */
    fake_expect(IPC_HEALTH);
    fake_hang_up();
    for (int i = 0; i < 10; i++)
        fake_turn();
    assert(fake_is_lost());
    close(fd);
    fake_stop();
}

static void test_a_supervisor_that_breaks_the_protocol_ends_the_api(void)
{
    fake_start(false);
    fake_send_unasked(IPC_EGRESS_START, NULL, NULL, 0); /* not for api */
    for (int i = 0; i < 10; i++)
        fake_turn();
    assert(fake_is_lost());
    fake_stop();
}

int main(void)
{
    signal(SIGPIPE, SIG_IGN);
    test_path_name_method_and_body_are_checked_in_this_order();
    test_a_prompt_of_128_kib_is_too_large_and_one_byte_less_arrives();
    test_a_clone_is_run_and_told();
    test_a_clone_that_a_signal_ended_is_502();
    test_a_clone_streams_its_progress_when_asked();
    test_exec_answers_at_the_end_of_the_program_not_of_its_pipes();
    test_exec_tells_what_is_printed_as_it_comes();
    test_a_client_that_goes_away_ends_the_program_only_if_it_said_so();
    test_exec_keeps_the_last_mebibyte();
    test_what_could_not_be_started_says_why();
    test_a_client_that_hangs_up_does_not_hold_up_the_program();
    test_the_states_of_a_task();
    test_an_ended_task_is_judged_once_and_again_when_its_outcome_is_broken();
    test_a_task_that_finished_is_judged_at_once();
    test_judging_a_large_log_holds_up_nobody();
    test_a_cancel_tells_the_real_outcome();
    test_a_log_is_followed_from_its_offset_to_its_end();
    test_a_follower_that_hangs_up_leaves_nothing_open();
    test_a_large_log_goes_out_as_the_client_takes_it();
    test_a_diff_is_streamed_and_its_failure_never_looks_complete();
    test_a_diff_without_bytes_is_empty_or_502();
    test_a_build_ends_with_a_line_that_tells_how();
    test_documents_and_statuses_are_passed_on();
    test_over_tcp_everything_is_401();
    test_a_supervisor_that_is_gone_ends_the_api();
    test_a_supervisor_that_breaks_the_protocol_ends_the_api();
    return 0;
}
