/* paddock exec: runs a program in a sandbox; its output, as it comes, and exit status become ours.
 */
#include <string.h>

#include "cli/cli.h"
#include "util/cleanup.h"
#include "util/limits.h"
#include "json/json.h"

static void write_body(struct json_writer *writer, const struct cli_exec *exec)
{
    json_write_object_begin(writer);
    json_write_key(writer, "argv");
    json_write_array_begin(writer);
    for (size_t i = 0; i < exec->count; i++)
        json_write_string(writer, exec->argv[i]);
    json_write_array_end(writer);
    if (exec->cwd)
        json_write_pair_string(writer, "cwd", exec->cwd);
    json_write_pair_string(writer, "user", exec->is_root ? "root" : "agent");
    if (exec->env_of)
        cli_write_list(writer, exec->env_of, OPTION_ENV, "env");
    if (exec->timeout_ms)
        json_write_pair_integer(writer, "timeout_ms", exec->timeout_ms);
    if (exec->ends_with_client) {
        json_write_key(writer, "end_with_client");
        json_write_bool(writer, true);
    }
    json_write_object_end(writer);
}

int cli_exec_body(const struct cli_exec *exec, struct buf *ret)
{
    struct json_writer *writer = json_writer_new(ret, false);
    if (!writer)
        return -ENOMEM;
    write_body(writer, exec);
    return json_writer_end(writer);
}

static void print_member(FILE *out, const struct json *json, const char *key)
{
    size_t len;
    const char *text = json_string(json_get(json, key), &len);
    if (text)
        cli_write(out, text, len);
}

/* ---------------------------------------------------------------------- as it is printed */

struct output {
    struct cli_writer writers[2]; /* stdout, stderr */
    int64_t code;                 /* -1: it has not come */
};

static void on_event(void *ctx, const char *event, const char *data, size_t data_len)
{
    struct output *output = ctx;
    cleanup_json struct json *json = NULL;
    size_t len = 0;
    if (json_parse(data, data_len, JSON_STRICT, &json, NULL) < 0)
        return;
    const char *text = json_string(json_get(json, "text"), &len);
    if (strcmp(event, "exit") == 0) {
        output->code = json_integer(json_get(json, "exitCode"));
        print_member(stderr, json, "error");
        if (json_get(json, "error"))
            fputc('\n', stderr);
    } else if (text) {
        struct cli_writer *writer = &output->writers[strcmp(event, "stderr") == 0];
        cli_writer_feed(writer, text, len);
        fflush(writer->out);
    }
}

static enum cli_exit follow(const struct cli *cli, struct cli_request *request, struct err *err)
{
    struct output output = {.writers = {{.out = stdout}, {.out = stderr}}, .code = -1};
    struct cli_sse sse = {
        .line = BUF_INIT(LIMIT_CLI_REPLY_BYTES), .on_data = on_event, .ctx = &output};
    cleanup_reply struct cli_reply reply = {0};
    request->accept = "text/event-stream";
    request->stream = cli_sse_feed;
    request->ctx = &sse;
    cli_catch_interrupt();
    enum cli_exit status = cli_ask(cli, request, &reply, err);
    buf_free(&sse.line);
    for (int i = 0; i < 2; i++)
        cli_writer_end(&output.writers[i], true);
    if (cli_is_interrupted())
        return CLI_INTERRUPTED;
    if (status != CLI_OK)
        return CLI_EXEC_FAILED;
    if (output.code < 0 || output.code > 255)
        return cli_fail(err, CLI_EXEC_FAILED,
                        "the daemon's answer broke off: what became of the program is not known");
    return (enum cli_exit)output.code;
}

/* ------------------------------------------------------------------------------- as JSON */

static enum cli_exit print_json(const struct cli *cli, const struct cli_request *request,
                                struct err *err)
{
    cleanup_reply struct cli_reply reply = {0};
    cleanup_json struct json *json = NULL;
    if (cli_ask(cli, request, &reply, err) != CLI_OK)
        return CLI_EXEC_FAILED;
    if (json_parse(buf_text(&reply.body), reply.body.len, JSON_STRICT, &json, NULL) < 0 ||
        json_type(json_get(json, "exitCode")) != JSON_INTEGER)
        return cli_fail(err, CLI_EXEC_FAILED, "the daemon's answer is not understood");
    cli_print_json(&reply.body);
    int64_t code = json_integer(json_get(json, "exitCode"));
    return code >= 0 && code <= 255 ? (enum cli_exit)code : CLI_EXEC_FAILED;
}

enum cli_exit cmd_shell(struct cli *cli, struct err *err)
{
    struct cli_exec exec = {.is_root = cli->values[OPTION_ROOT] != NULL,
                            .cwd = cli->values[OPTION_CWD],
                            .env_of = cli->values[OPTION_ENV] ? cli : NULL};
    return cli_terminal(cli, &exec, err);
}

enum cli_exit cmd_exec(struct cli *cli, struct err *err)
{
    char path[128];
    cleanup_buf struct buf body = BUF_INIT(LIMIT_API_JSON_BYTES);
    struct cli_exec exec = {.argv = cli->args + 1,
                            .count = cli->arg_count - 1,
                            .cwd = cli->values[OPTION_CWD],
                            .is_root = cli->values[OPTION_ROOT] != NULL,
                            .env_of = cli->values[OPTION_ENV] ? cli : NULL,
                            .timeout_ms = cli_read_ms(cli, OPTION_TIMEOUT, err),
                            .ends_with_client = !cli->values[OPTION_JSON]};
    if (exec.timeout_ms < 0 || cli_check_list(cli, OPTION_ENV, false, err) != CLI_OK)
        return CLI_EXEC_FAILED;
    if (cli->values[OPTION_TTY])
        return cli_terminal(cli, &exec, err);
    int result = cli_exec_body(&exec, &body);
    if (result == -EMSGSIZE)
        return cli_fail(err, CLI_EXEC_FAILED, "the arguments are longer than %d bytes",
                        LIMIT_API_JSON_BYTES);
    if (result < 0)
        return cli_fail(err, CLI_EXEC_FAILED, "the arguments must be UTF-8 text");
    snprintf(path, sizeof(path), "/sandboxes/%s/exec", cli->args[0]);
    struct cli_request request = {.method = "POST",
                                  .path = path,
                                  .content_type = "application/json",
                                  .body = buf_text(&body),
                                  .body_len = body.len};
    return cli->values[OPTION_JSON] ? print_json(cli, &request, err) : follow(cli, &request, err);
}
