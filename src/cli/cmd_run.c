/* paddock run: starts a task, follows it, tells by its exit status how it ended. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"
#include "util/cleanup.h"
#include "util/fd.h"
#include "util/limits.h"
#include "json/json.h"

static enum cli_exit read_prompt(const struct cli *cli, struct buf *ret, struct err *err)
{
    int result = 0;
    if (cli->arg_count == 2 && strcmp(cli->args[1], "-") == 0) {
        result = fd_read_all(STDIN_FILENO, ret);
        if (result < 0 && result != -EMSGSIZE)
            return cli_fail(err, CLI_FAILED, "standard input: %s", strerror(-result));
    } else {
        for (size_t i = 1; i < cli->arg_count && result == 0; i++)
            result = buf_appendf(ret, "%s%s", i > 1 ? " " : "", cli->args[i]);
    }
    if (result < 0)
        return cli_fail(err, CLI_USAGE, "the prompt is longer than %d bytes", LIMIT_PROMPT_BYTES);
    return CLI_OK;
}

static enum cli_exit start(const struct cli *cli, const struct buf *prompt, struct err *err)
{
    char path[192], query[64] = "";
    int64_t deadline_ms = cli_read_ms(cli, OPTION_TIMEOUT, err);
    if (deadline_ms < 0)
        return CLI_USAGE;
    if (deadline_ms)
        snprintf(query, sizeof(query), "?deadline_ms=%" PRId64, deadline_ms);
    snprintf(path, sizeof(path), "/sandboxes/%s/task%s", cli->args[0], query);
    cleanup_reply struct cli_reply reply = {0};
    struct cli_request request = {.method = "POST",
                                  .path = path,
                                  .content_type = "text/plain; charset=utf-8",
                                  .body = buf_text(prompt),
                                  .body_len = prompt->len};
    enum cli_exit status = cli_ask(cli, &request, &reply, err);
    if (status == CLI_OK && cli->values[OPTION_DETACH]) {
        if (cli->values[OPTION_JSON])
            cli_print_json(&reply.body);
        else
            printf("started: `paddock status %s` tells how it is doing\n", cli->args[0]);
    }
    return status;
}

/* Reads the outcome. The result is not printed again: the agent's last text was its last event. */
static enum cli_exit tell_outcome(const struct cli *cli, struct err *err)
{
    char path[128];
    snprintf(path, sizeof(path), "/sandboxes/%s/task", cli->args[0]);
    cleanup_reply struct cli_reply reply = {0};
    cleanup_json struct json *json = NULL;
    struct cli_request request = {.method = "GET", .path = path};
    enum cli_exit status = cli_ask(cli, &request, &reply, err);
    if (status != CLI_OK)
        return status;
    if (json_parse(buf_text(&reply.body), reply.body.len, JSON_STRICT, &json, err) < 0)
        return cli_fail(err, CLI_FAILED, "the daemon's answer is not JSON");
    if (cli->values[OPTION_JSON])
        cli_print_json(&reply.body);
    const char *state = json_text(json_get(json, "state"));
    const char *error = json_text(json_get(json, "error"));
    if (!cli->values[OPTION_JSON])
        cli_print_usage(stderr, json);
    if (state && strcmp(state, "succeeded") == 0) {
        if (!cli->values[OPTION_JSON])
            fprintf(stderr, "%s: succeeded (`paddock diff %s` shows the changes)\n", cli->args[0],
                    cli->args[0]);
        return CLI_OK;
    }
    if (state && strcmp(state, "lost") == 0)
        return cli_fail(err, CLI_LOST,
                        "%s: lost: the sandbox ended before the task's end was "
                        "recorded%s%s",
                        cli->args[0], error ? ": " : "", error ? error : "");
    return cli_fail(err, CLI_FAILED, "%s: %s%s%s", cli->args[0], state ? state : "no state",
                    error ? ": " : "", error ? error : "");
}

enum cli_exit cmd_run(struct cli *cli, struct err *err)
{
    cleanup_buf struct buf prompt = BUF_INIT(LIMIT_PROMPT_BYTES);
    enum cli_exit status = read_prompt(cli, &prompt, err);
    if (status == CLI_OK)
        status = start(cli, &prompt, err);
    if (status != CLI_OK || cli->values[OPTION_DETACH])
        return status;
    cli_catch_interrupt();
    struct cli_follow follow = {.name = cli->args[0],
                                .follow = true,
                                .events = true,
                                .is_silent = cli->values[OPTION_JSON] != NULL};
    status = cli_follow(cli, &follow, err);
    if (status == CLI_INTERRUPTED)
        return cli_fail(err, status,
                        "the task goes on: `paddock log -f --events %s` follows it, "
                        "`paddock cancel %s` ends it",
                        cli->args[0], cli->args[0]);
    return status == CLI_OK ? tell_outcome(cli, err) : status;
}
