/* The promises of supervisor/channel, spawn and children: order and descriptors under
 * back-pressure, a child with nothing but what it was given, restarts, the end of one that breaks
 * the protocol. The program that is started is this test itself. */
#include <assert.h>
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "supervisor/children.h"
#include "supervisor/spawn.h"
#include "util/cleanup.h"
#include "util/clock.h"
#include "util/log.h"

#define CHILD_ID 1879048193

/* ------------------------------------------------------------------------------- channel */

struct heard {
    uint64_t last;
    size_t fds;
    int broken;
};

static void on_message(void *ctx, struct ipc_message *message)
{
    struct heard *heard = ctx;
    heard->last = message->header.id;
    heard->fds += message->fd_count;
}

static void on_broken(void *ctx, const char *why)
{
    struct heard *heard = ctx;
    (void)why;
    heard->broken++;
}

struct chatter {
    int peer;
    int heard;
};

static void on_chatter(void *ctx, struct ipc_message *message)
{
    struct chatter *chatter = ctx;
    struct msg_status status = {0};
    (void)message;
    if (++chatter->heard < 100 * 1000)
        assert(ipc_send(chatter->peer, IPC_STATUS, 1, &status, NULL, 0, NULL) == 0);
}

static void test_a_peer_that_never_stops_sending_does_not_hold_a_drain_up(void)
{
    uv_loop_t loop;
    int pair[2];
    assert(uv_loop_init(&loop) == 0 && ipc_pair(pair, NULL) == 0);
    struct chatter chatter = {.peer = pair[1]};
    struct channel_owner owner = {&chatter, on_chatter, on_broken};
    struct channel *channel = channel_open(&loop, pair[0], IPC_API, &owner);
    struct msg_status status = {0};
    for (int i = 0; i < 50; i++)
        assert(ipc_send(pair[1], IPC_STATUS, 1, &status, NULL, 0, NULL) == 0);
    channel_drain(channel);
    assert(chatter.heard >= 50 && chatter.heard < 100 * 1000);
    channel_close(&channel);
    uv_run(&loop, UV_RUN_DEFAULT);
    assert(uv_loop_close(&loop) == 0);
    close(pair[1]);
}

static void test_messages_wait_in_order(void)
{
    uv_loop_t loop;
    int pair[2];
    struct heard heard = {0};
    struct channel_owner owner = {&heard, on_message, on_broken};
    assert(uv_loop_init(&loop) == 0 && ipc_pair(pair, NULL) == 0);
    struct channel *channel = channel_open(&loop, pair[0], IPC_API, &owner);
    struct msg_status status = {0};
    cleanup_fd int null_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    uint64_t sent = 0;
    for (; sent < 1000; sent++)
        if (sent % 2)
            channel_send(channel, IPC_STATUS, sent + 1, &status, NULL, 0);
        else
            channel_send(channel, IPC_DOCUMENT, sent + 1, NULL, &null_fd, 1);
    uint64_t got = 0;
    size_t fds = 0;
    while (got < sent) {
        cleanup_ipc_message struct ipc_message message;
        int result = ipc_recv(pair[1], IPC_API, IPC_SUPERVISOR, &message, NULL);
        if (result == -EAGAIN) {
            uv_run(&loop, UV_RUN_ONCE);
            continue;
        }
        assert(result == 1 && message.header.id == ++got);
        fds += message.fd_count;
    }
    assert(fds == 500 && heard.broken == 0);
    close(pair[1]);
    uv_run(&loop, UV_RUN_ONCE);
    assert(heard.broken == 1);
    channel_send(channel, IPC_STATUS, 1, &status, NULL, 0); /* swallowed */
    channel_close(&channel);
    assert(channel == NULL);
    uv_run(&loop, UV_RUN_DEFAULT);
    assert(uv_loop_close(&loop) == 0);
}

/* ------------------------------------------------------------------------------ children */

static struct {
    uv_loop_t loop;
    struct child child;
    const char *mode;
    int starts;
    int gone;
    char text[MSG_TEXT];
} test;

static int start(void *ctx, struct child *child, struct err *err)
{
    (void)ctx;
    test.starts++;
    cleanup_fd int extra = open("/dev/zero", O_RDONLY | O_CLOEXEC);
    const char *const argv[] = {"test", test.mode, NULL};
    struct spawn spawn = {
        .path = "/proc/self/exe", .argv = argv, .id = CHILD_ID, .fds = &extra, .fd_count = 1};
    return child_run(child, &spawn, err);
}

static void on_child_message(void *ctx, struct ipc_message *message)
{
    (void)ctx;
    assert(message->header.type == IPC_STATUS);
    snprintf(test.text, sizeof(test.text), "%s", IPC_TEXT(IPC_BODY(message, msg_status)->text));
    uv_stop(&test.loop);
}

static void on_gone(void *ctx)
{
    (void)ctx;
    if (++test.gone == 3)
        uv_stop(&test.loop);
}

static void run_child(const char *mode)
{
    static const struct child_type type = {"test", IPC_API, start, on_child_message, on_gone};
    memset(&test, 0, sizeof(test));
    test.mode = mode;
    assert(uv_loop_init(&test.loop) == 0);
    child_open(&test.child, &type, &test.loop, NULL);
    uv_run(&test.loop, UV_RUN_DEFAULT);
    child_close(&test.child);
    uv_run(&test.loop, UV_RUN_DEFAULT);
    assert(uv_loop_close(&test.loop) == 0);
}

static void test_a_child_has_nothing_but_what_it_was_given(void)
{
    int leak = dup(STDERR_FILENO); /* not CLOEXEC on purpose */
    assert(leak >= 0 && setenv("SECRET", "x", 1) == 0);
    run_child("tell");
    close(leak);
    if (strcmp(test.text, "good") != 0)
        fprintf(stderr, "%s\n", test.text);
    assert(strcmp(test.text, "good") == 0 && test.starts == 1);
}

static void test_a_child_that_ends_is_started_again(void)
{
    int64_t before = clock_monotonic_ms();
    run_child("end");
    assert(test.starts == 3); /* at once, then after 100 ms */
    assert(clock_monotonic_ms() - before >= 100);
}

static void test_a_child_that_breaks_the_protocol_is_ended(void)
{
    run_child("break");
    assert(test.starts == 3);
}

/* ---------------------------------------------------------------------- inside the child */

static bool status_has(const char *line)
{
    cleanup_file FILE *file = fopen("/proc/self/status", "re");
    char text[256];
    while (file && fgets(text, sizeof(text), file))
        if (strncmp(text, line, strlen(line)) == 0)
            return true;
    return false;
}

static int count_fds(void)
{
    DIR *dir = opendir("/proc/self/fd");
    int count = -1; /* that of opendir */
    for (const struct dirent *entry; (entry = readdir(dir));)
        count += entry->d_name[0] != '.';
    closedir(dir);
    return count;
}

static const char *child_findings(void)
{
    if (environ[0])
        return "it has an environment";
    if (geteuid() != CHILD_ID || getegid() != CHILD_ID || getgroups(0, NULL) != 0)
        return "its ids are wrong";
    if (!status_has("NoNewPrivs:\t1") || !status_has("CapBnd:\t0000000000000000") ||
        !status_has("CapPrm:\t0000000000000000") || !status_has("CapInh:\t0000000000000000"))
        return "it has privileges";
    if (count_fds() != 5) /* 0, 1, 2, socket, extra */
        return "it has other descriptors";
    return "good";
}

static int child_main(const char *mode)
{
    if (strcmp(mode, "tell") == 0) {
        ipc_send_status(3, 1, 0, "%s", child_findings());
        return 0;
    }
    if (strcmp(mode, "break") == 0) {
        ssize_t n = send(3, "nonsense", 8, 0);
        while (n == 8)
            pause(); /* it would not end by itself */
    }
    return 0;
}

int main(int argc, char **argv)
{
    if (argc == 2)
        return child_main(argv[1]);
    log_init("test", LOG_ERROR);
    test_messages_wait_in_order();
    test_a_peer_that_never_stops_sending_does_not_hold_a_drain_up();
    if (geteuid() != 0)
        return 77; /* the rest needs root */
    test_a_child_has_nothing_but_what_it_was_given();
    test_a_child_that_ends_is_started_again();
    test_a_child_that_breaks_the_protocol_is_ended();
    return 0;
}
