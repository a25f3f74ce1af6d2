/* The promises of the sandbox table: one start for many requests, order, what a failed start leaves
 * (nothing), the task's states and records, what the next supervisor makes of what it finds. The
 * test plays api and init; instances are fakes. */
#include <assert.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "fake_sandbox.h"
#include "supervisor/table.h"
#include "util/cleanup.h"
#include "util/fd.h"
#include "util/log.h"

/* In place of src/util/clock.c: the wall's clock as the test sets it. */
static int64_t wall_ms, program_ms;

int64_t clock_unix_ms(void)
{
    return wall_ms ? wall_ms : (int64_t)time(NULL) * 1000;
}

int64_t clock_program_ms(void)
{
    return program_ms;
}

int64_t clock_monotonic_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static struct {
    struct supervisor supervisor;
    struct config config;
    struct event *tick;
    int api; /* api's end */
    char path[64];
    uint64_t id;
} t;

static void on_api(void *ctx, struct ipc_message *message)
{
    assert(dispatch_api(ctx, message));
}

static void on_broken(void *ctx, const char *why)
{
    (void)ctx;
    fprintf(stderr, "api's channel broke: %s\n", why);
    abort();
}

static void on_tick(void *ctx)
{
    (void)ctx;
}

/* ------------------------------------------------------------------ messages of the test */

/* Turns the loop until a message arrives there. */
static void next(int sock, enum ipc_peer self, enum ipc_type type, struct ipc_message *ret)
{
    int64_t until = clock_monotonic_ms() + 20000;
    int result = -EAGAIN;
    while (result == -EAGAIN && clock_monotonic_ms() < until) {
        result = ipc_recv(sock, self, IPC_SUPERVISOR, ret, NULL);
        if (result == -EAGAIN)
            uv_run(&t.supervisor.loop, UV_RUN_ONCE);
    }
    if (result != 1 || ret->header.type != type)
        fprintf(stderr, "wanted %s, got %s\n", ipc_type_name(type),
                result == 1 ? ipc_type_name(ret->header.type) : "nothing");
    if (result == 1 && ret->header.type != type && ret->header.type == IPC_STATUS)
        fprintf(stderr, "%s\n", IPC_BODY(ret, msg_status)->text);
    assert(result == 1 && ret->header.type == type);
}

static uint64_t ask(enum ipc_type type, const void *body, int fd)
{
    assert(ipc_send(t.api, type, ++t.id, body, &fd, fd >= 0, NULL) == 0);
    return t.id;
}

static uint64_t ask_name(enum ipc_type type, const char *name)
{
    struct msg_task_start body = {0}; /* a name comes first in all of them */
    IPC_SET_TEXT(body.name, name);
    cleanup_fd int fd = type == IPC_TASK_START ? fd_sealed("prompt", "p", 1, NULL) : -1;
    return ask(type, &body, fd);
}

static uint64_t ask_exec(const char *name, bool is_clone)
{
    struct msg_exec body = {.is_clone = is_clone};
    IPC_SET_TEXT(body.name, name);
    cleanup_fd int fd = fd_sealed("spec", "s", 1, NULL);
    return ask(IPC_EXEC, &body, fd);
}

static void expect_status(uint64_t id, enum ipc_status code, const char *text)
{
    cleanup_ipc_message struct ipc_message message;
    next(t.api, IPC_API, IPC_STATUS, &message);
    const struct msg_status *body = IPC_BODY(&message, msg_status);
    if (message.header.id != id || body->code != (int32_t)code || strcmp(body->text, text) != 0)
        fprintf(stderr, "id %d code %d: %s\n", (int)message.header.id, body->code, body->text);
    assert(message.header.id == id && body->code == (int32_t)code);
    assert(strcmp(body->text, text) == 0);
}

static void expect(enum ipc_type type, uint64_t id, size_t fds)
{
    cleanup_ipc_message struct ipc_message message;
    next(t.api, IPC_API, type, &message);
    assert(message.header.id == id && message.fd_count == fds);
}

/* -------------------------------------------------------------------------- what init does */

static struct fake_instance *init_is_started(const char *name)
{
    int64_t until = clock_monotonic_ms() + 20000;
    struct fake_instance *init;
    while (!(init = fake_find(name)) && clock_monotonic_ms() < until)
        uv_run(&t.supervisor.loop, UV_RUN_ONCE);
    assert(init);
    return init;
}

static struct fake_instance *init_gets_ready(const char *name)
{
    struct fake_instance *init = init_is_started(name);
    struct msg_init_state state = {.task = TASK_NONE};
    IPC_SET_TEXT(state.boot_id, init->boot_id);
    int fds[4] = {0, 0, 0, 0};
    assert(ipc_send(init->socket, IPC_INIT_STATE, 0, &state, fds, 4, NULL) == 0);
    return init;
}

/* Takes the request to run something and says that it runs; returns its number. */
static uint64_t init_starts(const struct fake_instance *init, enum ipc_type type)
{
    cleanup_ipc_message struct ipc_message message;
    next(init->socket, IPC_INIT, type, &message);
    struct msg_init_started started = {.pid = 5};
    int fds[2] = {0, 0};
    assert(ipc_send(init->socket, IPC_INIT_STARTED, message.header.id, &started, fds,
                    type == IPC_INIT_EXEC ? 2 : 0, NULL) == 0);
    return message.header.id;
}

static void init_ends(const struct fake_instance *init, enum ipc_type type, uint64_t number)
{
    struct msg_init_ended ended = {.exec = number, .end = {.kind = TASK_END_EXITED}};
    assert(ipc_send(init->socket, type, 0, &ended, NULL, 0, NULL) == 0);
}

/* INIT_STOP arrives, after what else it is sent; it exits. */
static void init_stops(struct fake_instance *init, bool had_task)
{
    cleanup_ipc_message struct ipc_message message;
    if (had_task) {
        next(init->socket, IPC_INIT, IPC_INIT_TASK_CANCEL, &message);
        ipc_message_close(&message);
    }
    next(init->socket, IPC_INIT, IPC_INIT_STOP, &message);
    fake_end(init);
}

/* What is at sandboxes/NAME and the rest of the path. */
static bool exists(const char *name, const char *rest)
{
    char path[256];
    struct stat st;
    snprintf(path, sizeof(path), "sandboxes/%s%s", name, rest);
    return fstatat(t.supervisor.state_fd, path, &st, AT_SYMLINK_NOFOLLOW) == 0;
}

/* What it points to lives until the next one is read. */
static struct meta read_meta(const char *name)
{
    static struct meta meta;
    struct err err = {0};
    settings_free(&meta.settings);
    cleanup_fd int folder =
        openat(t.supervisor.sandboxes_fd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert(folder >= 0 && meta_read(folder, name, &meta, &err) == 0);
    return meta;
}

static void write_file(const char *path, const char *text)
{
    cleanup_fd int fd =
        openat(t.supervisor.state_fd, path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    assert(fd >= 0 && fd_write_all(fd, text, strlen(text)) == 0);
}

static void remove_sandbox(const char *name)
{
    uint64_t id = ask_name(IPC_SANDBOX_REMOVE, name);
    struct fake_instance *init = fake_find(name);
    if (init)
        init_stops(init, table_find(&t.supervisor, name)->meta.task == TASK_RUNNING);
    expect_status(id, IPC_STATUS_OK, "");
    assert(!table_find(&t.supervisor, name) && !exists(name, ""));
}

/* -------------------------------------------------------------------------------- promises */

static void test_one_start_for_many_requests(void)
{
    fake_starts = 0;
    uint64_t ids[3];
    for (int i = 0; i < 3; i++)
        ids[i] = ask_exec("many", false);
    struct fake_instance *init = init_gets_ready("many");
    for (int i = 0; i < 3; i++) {
        uint64_t number = init_starts(init, IPC_INIT_EXEC);
        expect(IPC_RUN_STARTED, ids[i], 2);
        init_ends(init, IPC_INIT_EXEC_ENDED, number);
        expect(IPC_RUN_ENDED, ids[i], 0);
    }
    assert(fake_starts == 1 && read_meta("many").lease.pid == init->pid);
    remove_sandbox("many");
    assert(t.supervisor.instance_count == 0);
}

static void test_a_failed_start_leaves_nothing(void)
{
    uint64_t first = ask_exec("fails", false);
    uint64_t second = ask_exec("fails", false);
    struct fake_instance *init = init_is_started("fails");
    struct msg_status status = {.code = ENOMEM};
    IPC_SET_TEXT(status.text, "no room");
    assert(ipc_send(init->socket, IPC_INIT_FAILED, 0, &status, NULL, 0, NULL) == 0);
    expect_status(first, IPC_STATUS_FAILED, "The sandbox cannot be started: no room");
    expect_status(second, IPC_STATUS_FAILED, "The sandbox cannot be started: no room");
    assert(!table_find(&t.supervisor, "fails") && !exists("fails", ""));
    assert(t.supervisor.instance_count == 0);
}

static void test_a_stop_is_in_its_place_in_the_queue(void)
{
    uint64_t first = ask_exec("order", false);
    uint64_t stop = ask_name(IPC_SANDBOX_STOP, "order");
    uint64_t second = ask_exec("order", false);
    struct fake_instance *init = init_gets_ready("order");
    init_starts(init, IPC_INIT_EXEC);
    expect(IPC_RUN_STARTED, first, 2);
    init_stops(init, false);
    expect(IPC_RUN_ENDED, first, 0); /* killed by the stop */
    expect_status(stop, IPC_STATUS_OK, "");
    init = init_gets_ready("order");
    init_ends(init, IPC_INIT_EXEC_ENDED, init_starts(init, IPC_INIT_EXEC));
    expect(IPC_RUN_STARTED, second, 2);
    expect(IPC_RUN_ENDED, second, 0);
    remove_sandbox("order");
}

/* Clones into `name`, as git that ended well would. */
static struct fake_instance *clone_into(const char *name)
{
    uint64_t id = ask_exec(name, true);
    struct fake_instance *init = init_gets_ready(name);
    uint64_t number = init_starts(init, IPC_INIT_EXEC);
    expect(IPC_RUN_STARTED, id, 2);
    assert(read_meta(name).is_cloning && !read_meta(name).is_cloned);
    init_ends(init, IPC_INIT_EXEC_ENDED, number);
    expect(IPC_RUN_ENDED, id, 0);
    assert(read_meta(name).is_cloned && !read_meta(name).is_cloning);
    assert(exists(name, "/base.git") && !exists(name, "/base.new"));
    return init;
}

static void test_a_task_from_start_to_end(void)
{
    expect_status(ask_name(IPC_TASK_START, "task"), IPC_STATUS_CONFLICT,
                  "Clone a repository first");
    struct fake_instance *init = clone_into("task");
    write_file("sandboxes/task/task/outcome.json", "of the last task");
    uint64_t id = ask_name(IPC_TASK_START, "task");
    init_starts(init, IPC_INIT_TASK);
    assert(!exists("task", "/task/outcome.json"));
    assert(read_meta("task").task == TASK_RUNNING);
    expect_status(id, IPC_STATUS_OK, "");
    expect_status(ask_name(IPC_TASK_START, "task"), IPC_STATUS_CONFLICT,
                  "A task is already running");
    expect(IPC_TASK_STATE, ask_name(IPC_TASK_GET, "task"), 0);
    write_file("sandboxes/task/task/end.json", "{}");
    write_file("sandboxes/task/task/stdout.log", "");
    write_file("sandboxes/task/task/stderr.log", "");
    init_ends(init, IPC_INIT_TASK_ENDED, 0);
    expect(IPC_TASK_FINISHED, 0, 4);
    assert(read_meta("task").task == TASK_ENDED);
    expect(IPC_TASK_STATE, ask_name(IPC_TASK_GET, "task"), 4);
    expect_status(ask_name(IPC_TASK_CANCEL, "task"), IPC_STATUS_CONFLICT, "No task is running");
    remove_sandbox("task");
}

static void test_a_task_whose_instance_dies_is_lost(void)
{
    struct fake_instance *init = clone_into("lost");
    uint64_t id = ask_name(IPC_TASK_START, "lost");
    init_starts(init, IPC_INIT_TASK);
    expect_status(id, IPC_STATUS_OK, "");
    uint64_t cancel = ask_name(IPC_TASK_CANCEL, "lost");
    cleanup_ipc_message struct ipc_message message;
    next(init->socket, IPC_INIT, IPC_INIT_TASK_CANCEL, &message);
    fake_end(init);
    expect_status(cancel, IPC_STATUS_OK, "");
    assert(read_meta("lost").task == TASK_LOST && read_meta("lost").lease.pid == 0);
    remove_sandbox("lost");
}

/* Whoever cancels a task that never came to run is not left waiting. */
static void test_a_cancel_of_a_failed_start_is_answered(void)
{
    struct fake_instance *init = clone_into("never");
    uint64_t start = ask_name(IPC_TASK_START, "never");
    cleanup_ipc_message struct ipc_message message;
    next(init->socket, IPC_INIT, IPC_INIT_TASK, &message);
    uint64_t number = message.header.id;
    uint64_t cancel = ask_name(IPC_TASK_CANCEL, "never");
    next(init->socket, IPC_INIT, IPC_INIT_TASK_CANCEL, &message);
    struct msg_init_started started = {.code = ENOENT};
    IPC_SET_TEXT(started.text, "no such program");
    assert(ipc_send(init->socket, IPC_INIT_STARTED, number, &started, NULL, 0, NULL) == 0);
    expect_status(start, IPC_STATUS_UNAVAILABLE,
                  "The agent fake cannot be started: no such program");
    expect_status(cancel, IPC_STATUS_OK, "");
    remove_sandbox("never");
}

static void test_groups_that_empty_late_are_removed(void)
{
    int64_t until = clock_monotonic_ms() + 20000;
    uint64_t id = ask_exec("late", false);
    struct fake_instance *init = init_gets_ready("late");
    init_ends(init, IPC_INIT_EXEC_ENDED, init_starts(init, IPC_INIT_EXEC));
    expect(IPC_RUN_STARTED, id, 2);
    expect(IPC_RUN_ENDED, id, 0);
    fake_busy_cleanups = 3;
    remove_sandbox("late");
    while (fake_busy_cleanups && clock_monotonic_ms() < until)
        uv_run(&t.supervisor.loop, UV_RUN_ONCE);
    assert(fake_busy_cleanups == 0);
}

/* The fake jail removes nothing. */
static void test_trash_that_cannot_be_removed_holds_up_no_other(void)
{
    static const char *const folders[] = {"trash/a-1", "trash/a-1/full", "trash/b-2",
                                          "trash/b-2/full"};
    int64_t until = clock_monotonic_ms() + 20000;
    struct stat st;
    for (size_t i = 0; i < ARRAY_LEN(folders); i++)
        assert(mkdirat(t.supervisor.state_fd, folders[i], 0700) == 0);
    trash_empty(&t.supervisor);
    while ((t.supervisor.trash_jail || t.supervisor.trash_timer) && clock_monotonic_ms() < until)
        uv_run(&t.supervisor.loop, UV_RUN_ONCE);
    assert(fstatat(t.supervisor.trash_fd, ".failed-a-1", &st, 0) == 0);
    assert(fstatat(t.supervisor.trash_fd, ".failed-b-2", &st, 0) == 0);
    trash_reopen(&t.supervisor);
    assert(fstatat(t.supervisor.trash_fd, "a-1", &st, 0) == 0);
    assert(fstatat(t.supervisor.trash_fd, "b-2", &st, 0) == 0);
}

/* A supervisor died during a second clone: the commit of the first stays what a diff compares with.
 */
static void test_a_second_clone_that_was_cut_off_changes_no_base(void)
{
    clone_into("again");
    struct sandbox *sandbox = table_find(&t.supervisor, "again");
    int jails = fake_jails;
    sandbox->meta.is_cloning = true;
    runs_resume_clone(sandbox);
    assert(fake_jails == jails && !sandbox->base_jail);
    assert(read_meta("again").is_cloned && !read_meta("again").is_cloning);
    remove_sandbox("again");
}

/* The first thing that is moved away from or to base.git. */
static uint32_t first_move_of_base(int watch)
{
    _Alignas(struct inotify_event) char data[4096];
    ssize_t n = read(watch, data, sizeof(data));
    const struct inotify_event *event;
    for (ssize_t at = 0; at < n; at += (ssize_t)(sizeof(*event) + event->len)) {
        event = (const struct inotify_event *)(const void *)(data + at);
        if (event->len && strcmp(event->name, "base.git") == 0)
            return event->mask & (IN_MOVED_FROM | IN_MOVED_TO);
    }
    return 0;
}

static void test_a_second_clone_leaves_no_moment_without_a_base(void)
{
    struct fake_instance *init = clone_into("twice");
    char path[64];
    snprintf(path, sizeof(path), "/proc/self/fd/%d", table_find(&t.supervisor, "twice")->folder_fd);
    cleanup_fd int watch = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
    assert(inotify_add_watch(watch, path, IN_MOVED_FROM | IN_MOVED_TO) >= 0);
    write_file("sandboxes/twice/base.git/old", "");
    uint64_t id = ask_exec("twice", true);
    uint64_t number = init_starts(init, IPC_INIT_EXEC);
    expect(IPC_RUN_STARTED, id, 2);
    init_ends(init, IPC_INIT_EXEC_ENDED, number);
    expect(IPC_RUN_ENDED, id, 0);
    assert(!exists("twice", "/base.git/old") && !exists("twice", "/base.new"));
    assert(first_move_of_base(watch) == IN_MOVED_TO);
    remove_sandbox("twice");
}

static void test_too_many_diffs_at_once_are_refused(void)
{
    clone_into("diffs");
    struct msg_diff diff = {0};
    IPC_SET_TEXT(diff.name, "diffs");
    uint64_t first = t.id + 1;
    for (int i = 0; i <= LIMIT_DIFFS; i++)
        ask(IPC_DIFF, &diff, -1);
    for (uint64_t i = 0; i < LIMIT_DIFFS; i++)
        expect(IPC_RUN_STARTED, first + i, 2);
    expect_status(first + LIMIT_DIFFS, IPC_STATUS_UNAVAILABLE,
                  "32 diffs are being made: try again");
    for (int i = 0; i < LIMIT_DIFFS; i++) { /* in the order in which they end */
        cleanup_ipc_message struct ipc_message message;
        next(t.api, IPC_API, IPC_RUN_ENDED, &message);
    }
    assert(t.supervisor.diff_count == 0);
    expect(IPC_RUN_STARTED, ask(IPC_DIFF, &diff, -1), 2);
    expect(IPC_RUN_ENDED, t.id, 0);
    remove_sandbox("diffs");
}

/* A PUT, its lists packed behind one another. */
static uint64_t ask_put(const char *name, const char *agent, const char *env, bool only_new)
{
    struct msg_sandbox_put body = {.is_only_new = only_new};
    size_t len = strlen(env);
    IPC_SET_TEXT(body.name, name);
    IPC_SET_TEXT(body.agent, agent);
    body.env_bytes = (uint32_t)(len ? len + 1 : 0);
    cleanup_fd int fd = fd_sealed("settings", env, body.env_bytes, NULL);
    return ask(IPC_SANDBOX_PUT, &body, fd);
}

static void expect_document(uint64_t id, bool is_new)
{
    cleanup_ipc_message struct ipc_message message;
    next(t.api, IPC_API, IPC_DOCUMENT, &message);
    assert(message.header.id == id && message.fd_count == 1);
    assert(IPC_BODY(&message, msg_document)->is_new == is_new);
}

static void test_a_put_makes_a_sandbox_or_sets_it_and_is_the_same_twice(void)
{
    expect_document(ask_put("set", "fake", "A=1", true), true);
    assert(read_meta("set").settings.env.len == 4 && !read_meta("set").was_started);
    expect_document(ask_put("set", "", "A=1", false), false);
    expect_status(ask_put("set", "", "A=1", true), IPC_STATUS_EXISTS,
                  "There is a sandbox set already");
    expect_status(ask_put("set", "fakd", "", false), IPC_STATUS_BAD_REQUEST,
                  "There is no agent fakd: did you mean fake? There are: fake, other");
    expect_document(ask_put("set", "other", "", false), false);
    assert(strcmp(read_meta("set").image, "lies-on-it") == 0 &&
           read_meta("set").settings.env.len == 0);
    expect_document(ask_put("set", "fake", "", false), false);

    /* another environment needs a new start, the same one none */
    uint64_t id = ask_exec("set", false);
    struct fake_instance *init = init_gets_ready("set");
    uint64_t number = init_starts(init, IPC_INIT_EXEC);
    expect(IPC_RUN_STARTED, id, 2);
    expect_document(ask_put("set", "fake", "", false), false);
    expect_status(ask_put("set", "fake", "A=2", false), IPC_STATUS_CONFLICT,
                  "A program is running in it, and other limits or another environment need a new "
                  "start: wait for its end, or stop the sandbox");
    init_ends(init, IPC_INIT_EXEC_ENDED, number);
    expect(IPC_RUN_ENDED, id, 0);
    expect_status(ask_put("set", "other", "", false), IPC_STATUS_CONFLICT,
                  "set was started with the image fake, and the agent other needs lies-on-it: what "
                  "was installed in it lies on its image. Remove it, or make another sandbox");
    id = ask_put("set", "fake", "A=2", false);
    init_stops(init, false);
    expect_document(id, false);
    assert(table_find(&t.supervisor, "set")->state == SANDBOX_STOPPED);
    assert(read_meta("set").was_started && read_meta("set").stopped_ms > 0);
    remove_sandbox("set");
    expect_status(ask_put("none", "nobody", "", false), IPC_STATUS_BAD_REQUEST,
                  "There is no agent nobody. There are: fake, other");
    assert(!table_find(&t.supervisor, "none") && !exists("none", ""));
}

/* A start that fails discards what it made, and not what a PUT made. */
static void test_a_sandbox_that_was_put_outlives_a_failed_start(void)
{
    expect_document(ask_put("kept", "other", "", false), true);
    uint64_t id = ask_exec("kept", false);
    cleanup_ipc_message struct ipc_message message;
    next(t.api, IPC_API, IPC_STATUS, &message); /* there is no such image */
    assert(message.header.id == id);
    assert(table_find(&t.supervisor, "kept"));
    remove_sandbox("kept");
}

static void test_unknown_names_are_not_made(void)
{
    expect(IPC_TASK_STATE, ask_name(IPC_TASK_GET, "nobody"), 0);
    expect_status(ask_name(IPC_SANDBOX_GET, "nobody"), IPC_STATUS_NOT_FOUND,
                  "There is no sandbox nobody");
    expect_status(ask_name(IPC_SANDBOX_REMOVE, "nobody"), IPC_STATUS_NOT_FOUND,
                  "There is no sandbox nobody");
    struct msg_diff diff = {0};
    IPC_SET_TEXT(diff.name, "nobody");
    expect_status(ask(IPC_DIFF, &diff, -1), IPC_STATUS_BAD_GATEWAY,
                  "There is no repository: clone one first");
    assert(!exists("nobody", ""));
}

/* ----------------------------------------------------------------- what a start finds */

static void leave_sandbox(const char *name, pid_t pid)
{
    char path[128];
    struct meta meta = {.agent = "fake", .image = "fake", .task = TASK_RUNNING};
    snprintf(meta.name, sizeof(meta.name), "%s", name);
    meta.lease = (struct meta_lease){pid, 1, 3, "boot"};
    snprintf(path, sizeof(path), "%s/task", name);
    assert(mkdirat(t.supervisor.sandboxes_fd, name, 0700) == 0);
    assert(mkdirat(t.supervisor.sandboxes_fd, path, 0755) == 0);
    cleanup_fd int folder =
        openat(t.supervisor.sandboxes_fd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert(meta_write(folder, &meta, NULL) == 0);
}

static void test_what_a_dead_supervisor_left(void)
{
    struct err err = {0};
    leave_sandbox("gone", 99);
    leave_sandbox("done", 98);
    write_file("sandboxes/done/task/exit-code", "0\n");
    assert(mkdirat(t.supervisor.sandboxes_fd, "half", 0700) == 0);
    assert(recover_state(&t.supervisor, &err) == 0);
    assert(read_meta("gone").task == TASK_LOST && read_meta("gone").lease.pid == 0);
    assert(read_meta("done").task == TASK_ENDED && read_meta("done").lease.pid == 0);
    assert(!exists("half", "") && !table_find(&t.supervisor, "half"));
    remove_sandbox("gone");
    remove_sandbox("done");
}

/* As the next supervisor finds it on the disk. */
static struct sandbox *forget_and_recover(const char *name)
{
    struct err err = {0};
    for (struct sandbox *at = t.supervisor.sandboxes, *rest; at; at = rest) {
        rest = at->next;
        event_free(&at->expiry);
        close(at->folder_fd);
        settings_free(&at->meta.settings);
        free(at);
    }
    t.supervisor.sandboxes = NULL;
    assert(recover_state(&t.supervisor, &err) == 0);
    return table_find(&t.supervisor, name);
}

/* Whether it is removed when so much time has gone by. */
static bool is_removed_within(const char *name, int64_t ms)
{
    int64_t until = clock_monotonic_ms() + ms;
    while (table_find(&t.supervisor, name) && clock_monotonic_ms() < until)
        uv_run(&t.supervisor.loop, UV_RUN_ONCE);
    return !table_find(&t.supervisor, name);
}

#define DAY_MS (24 * 3600 * INT64_C(1000))

/* The machine went down with a sandbox that ran, and has no clock of its own: it boots long before,
 * and later the time is set. What stopped just now was not stopped for days. */
static void test_a_clock_that_was_early_removes_nothing(void)
{
    const int64_t now = INT64_C(1796000000000);
    t.config.stopped_ttl_ms = 3600 * 1000;
    wall_ms = now;
    leave_sandbox("early", 97);
    struct sandbox *sandbox = forget_and_recover("early"); /* it has a record of today now */
    assert(sandbox->meta.stopped_ms == now && sandbox->meta.latest_ms == now);
    sandbox->meta.lease = (struct meta_lease){97, 1, 3, "boot"};
    assert(table_save(sandbox) == 0);

    wall_ms = now - 30 * DAY_MS;  /* after the boot */
    for (int i = 0; i < 2; i++) { /* also when the daemon is started once more */
        sandbox = forget_and_recover("early");
        assert(sandbox->state == SANDBOX_STOPPED && sandbox->meta.stopped_ms == 0);
    }
    wall_ms = now + 1000; /* the time is set, and the daemon started again */
    sandbox = forget_and_recover("early");
    assert(sandbox && sandbox->meta.stopped_ms == wall_ms && !is_removed_within("early", 100));
    wall_ms += t.config.stopped_ttl_ms; /* and its own hour counts */
    (void)forget_and_recover("early");
    assert(is_removed_within("early", 20000) && !exists("early", ""));

    /* made while the clock was before this program: since when it is stopped is not known */
    wall_ms = 1000;
    program_ms = now;
    expect_document(ask_put("early", "fake", "", false), true);
    assert(read_meta("early").stopped_ms == 0);
    wall_ms = now + 1;
    sandbox = forget_and_recover("early");
    assert(sandbox->meta.stopped_ms == wall_ms && !is_removed_within("early", 100));
    t.config.stopped_ttl_ms = 0;
    wall_ms = program_ms = 0;
    remove_sandbox("early");
}

static void test_a_newer_record_is_refused(void)
{
    struct err err = {0};
    assert(mkdirat(t.supervisor.sandboxes_fd, "newer", 0700) == 0);
    write_file("sandboxes/newer/meta.json", "{\"schema\": 99}");
    assert(recover_state(&t.supervisor, &err) == -EPROTONOSUPPORT);
    assert(strstr(err.message, "newer Paddock"));
}

/* ----------------------------------------------------------------------------------- main */

static void set_up(void)
{
    static const char agent[] = "{\"image\": \"fake\", \"command\": [\"/bin/a\", \"${PROMPT}\"], "
                                "\"env\": {}, \"rules\": [], \"outcome\": \"exit-code\"}";
    struct err err = {0};
    int pair[2];
    snprintf(t.path, sizeof(t.path), "/tmp/test-table-XXXXXX");
    assert(mkdtemp(t.path));
    char text[256];
    int len = snprintf(text, sizeof(text),
                       "{\"state_dir\": \"%s/state\", \"default_agent\": \"fake\"}", t.path);
    assert(config_parse("test", text, (size_t)len, t.path, NULL, &t.config, &err) == 0);
    struct supervisor *supervisor = &t.supervisor;
    supervisor->config = &t.config;
    supervisor->host = fake_host();
    supervisor->jail_fd = STDIN_FILENO;
    assert(uv_loop_init(&supervisor->loop) == 0 && state_open(supervisor, &err) == 0);
    supervisor->recipes_fd = supervisor->state_fd;
    supervisor->ca_pem = BUF_INIT(100);
    assert(buf_append_string(&supervisor->ca_pem, "pem") == 0);
    static const char *const folders[] = {"fake", "other", "images", "images/fake",
                                          "images/fake/rootfs"};
    for (size_t i = 0; i < ARRAY_LEN(folders); i++)
        assert(mkdirat(supervisor->state_fd, folders[i], 0700) == 0);
    write_file("fake/agent.json", agent);
    write_file("other/agent.json",
               "{\"image\": \"lies-on-it\", \"command\": [\"a\", \"${PROMPT}\"], "
               "\"outcome\": \"exit-code\"}");
    write_file("images/fake/image.json",
               "{\"schema\":1,\"name\":\"fake\",\"digest\":\"0\",\"built\":1,\"size_bytes\":1}");
    assert(ipc_pair(pair, &err) == 0);
    struct channel_owner owner = {supervisor, on_api, on_broken};
    supervisor->api.channel = channel_open(&supervisor->loop, pair[0], IPC_API, &owner);
    t.api = pair[1];
    t.tick = event_timer(&supervisor->loop, 5, 5, on_tick, NULL);
}

static int remove_entry(const char *path, const struct stat *st, int kind, struct FTW *ftw)
{
    (void)st;
    (void)kind;
    (void)ftw;
    return remove(path);
}

static void test_labels_without_an_end_are_not_read(void)
{
    struct msg_sandbox_list body = {.label_count = 1};
    struct ipc_message message = {.header = {.type = IPC_SANDBOX_LIST, .id = ++t.id}};
    memset(body.labels, 'x', sizeof(body.labels));
    memcpy(message.body, &body, sizeof(body));
    assert(!dispatch_api(&t.supervisor, &message));
}

int main(void)
{
    if (geteuid() != 0)
        return 77; /* files are given to the agent's uid */
    log_init("test", LOG_ERROR + 1);
    set_up();
    test_one_start_for_many_requests();
    test_a_failed_start_leaves_nothing();
    test_a_stop_is_in_its_place_in_the_queue();
    test_a_task_from_start_to_end();
    test_a_task_whose_instance_dies_is_lost();
    test_a_cancel_of_a_failed_start_is_answered();
    test_a_second_clone_that_was_cut_off_changes_no_base();
    test_a_second_clone_leaves_no_moment_without_a_base();
    test_too_many_diffs_at_once_are_refused();
    test_groups_that_empty_late_are_removed();
    test_trash_that_cannot_be_removed_holds_up_no_other();
    test_a_put_makes_a_sandbox_or_sets_it_and_is_the_same_twice();
    test_a_sandbox_that_was_put_outlives_a_failed_start();
    test_unknown_names_are_not_made();
    test_labels_without_an_end_are_not_read();
    test_what_a_dead_supervisor_left();
    test_a_clock_that_was_early_removes_nothing();
    test_a_newer_record_is_refused();
    return nftw(t.path, remove_entry, 8, FTW_DEPTH | FTW_PHYS);
}
