/* The log of a task, followed to the end of the task. A stream that breaks off (the daemon was
 * restarted; the task goes on without it) is taken up again where it broke. */
#include <poll.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "util/limits.h"
#include "json/json.h"

#define RETRY_WAIT_MS 500
#define RETRIES_MAX 60 /* without a byte in between: half a minute for a daemon to come back */

struct follower {
    const struct cli_follow *follow;
    struct cli_events events;
    struct cli_writer writer;
    uint64_t offset; /* bytes of the log that were seen */
};

/* Events are safe text already. */
static void show(struct follower *follower, const struct buf *text)
{
    if (follower->follow->is_silent)
        return;
    if (follower->writer.json_key)
        cli_writer_feed(&follower->writer, buf_text(text), text->len);
    else
        fwrite(buf_text(text), 1, text->len, stdout);
    fflush(stdout);
}

static void on_log(void *ctx, const char *data, size_t len)
{
    struct follower *follower = ctx;
    follower->offset += len;
    if (!follower->follow->events) {
        cli_writer_feed(&follower->writer, data, len);
        fflush(stdout);
        return;
    }
    cleanup_buf struct buf text = BUF_INIT(LIMIT_CLI_REPLY_BYTES);
    cli_events_feed(&follower->events, data, len, &text);
    show(follower, &text);
}

static enum cli_exit read_log(const struct cli *cli, struct follower *follower, struct err *err)
{
    char path[256];
    snprintf(path, sizeof(path), "/sandboxes/%s/task/log?from=%llu%s%s", follower->follow->name,
             (unsigned long long)follower->offset, follower->follow->follow ? "&follow=1" : "",
             follower->follow->is_stderr ? "&stream=stderr" : "");
    cleanup_reply struct cli_reply reply = {0};
    struct cli_request request = {.method = "GET", .path = path, .stream = on_log, .ctx = follower};
    return cli_ask(cli, &request, &reply, err);
}

static bool task_is_running(const struct cli *cli, const char *name)
{
    char path[128];
    struct err ignored = {0};
    snprintf(path, sizeof(path), "/sandboxes/%s/task", name);
    cleanup_reply struct cli_reply reply = {0};
    struct cli_request request = {.method = "GET", .path = path};
    if (cli_ask(cli, &request, &reply, &ignored) != CLI_OK)
        return false;
    struct json *json = NULL;
    if (json_parse(buf_text(&reply.body), reply.body.len, JSON_STRICT, &json, NULL) < 0)
        return false;
    const char *state = json_text(json_get(json, "state"));
    bool is_running = state && strcmp(state, "running") == 0;
    json_free(json);
    return is_running;
}

enum cli_exit cli_follow(const struct cli *cli, const struct cli_follow *follow, struct err *err)
{
    const char *json_key = cli->values[OPTION_JSON] && !follow->is_silent ? "log" : NULL;
    struct follower follower = {.follow = follow, .writer = {.out = stdout, .json_key = json_key}};
    cli_events_init(&follower.events);
    enum cli_exit status;
    unsigned retries = 0;
    for (;;) {
        uint64_t before = follower.offset;
        *err = (struct err){0};
        status = read_log(cli, &follower, err);
        if (follower.offset != before)
            retries = 0;
        bool is_broken = status == CLI_UNREACHABLE && follower.offset > 0;
        bool is_early = status == CLI_OK && follow->follow && task_is_running(cli, follow->name);
        if ((!is_broken && !is_early) || !follow->follow || retries++ == RETRIES_MAX)
            break;
        poll(NULL, 0, RETRY_WAIT_MS); /* a restarting daemon has nothing to wait on */
        if (cli_is_interrupted())
            break;
    }
    if (follow->events) {
        struct buf text = BUF_INIT(LIMIT_CLI_REPLY_BYTES);
        cli_events_end(&follower.events, &text);
        show(&follower, &text);
        buf_free(&text);
    }
    cli_writer_end(&follower.writer, status == CLI_OK);
    cli_events_free(&follower.events);
    return cli_is_interrupted() ? CLI_INTERRUPTED : status;
}
