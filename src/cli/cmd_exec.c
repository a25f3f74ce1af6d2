/* paddock exec: runs a program in a sandbox; its output and exit status become ours. */
#include <string.h>

#include "cli/cli.h"
#include "util/cleanup.h"
#include "util/limits.h"
#include "json/json.h"

int cli_exec_body(const char *const *argv, size_t count, const char *cwd, bool is_root,
                  struct buf *ret)
{
    struct json_writer *writer = json_writer_new(ret, false);
    if (!writer)
        return -ENOMEM;
    json_write_object_begin(writer);
    json_write_key(writer, "argv");
    json_write_array_begin(writer);
    for (size_t i = 0; i < count; i++)
        json_write_string(writer, argv[i]);
    json_write_array_end(writer);
    if (cwd)
        json_write_pair_string(writer, "cwd", cwd);
    json_write_pair_string(writer, "user", is_root ? "root" : "agent");
    json_write_object_end(writer);
    return json_writer_end(writer);
}

static void print_member(FILE *out, const struct json *json, const char *key)
{
    size_t len;
    const char *text = json_string(json_get(json, key), &len);
    if (text)
        cli_write(out, text, len);
}

/* The program's status; what cannot be one is ours. */
static enum cli_exit finish(const struct cli *cli, const struct cli_reply *reply, struct err *err)
{
    cleanup_json struct json *json = NULL;
    if (json_parse(buf_text(&reply->body), reply->body.len, JSON_STRICT, &json, NULL) < 0 ||
        json_type(json_get(json, "exitCode")) != JSON_INTEGER)
        return cli_fail(err, CLI_EXEC_FAILED, "the daemon's answer is not understood");
    if (cli->values[OPTION_JSON]) {
        cli_print_json(&reply->body);
    } else {
        print_member(stdout, json, "stdout");
        fflush(stdout);
        print_member(stderr, json, "stderr");
    }
    int64_t code = json_integer(json_get(json, "exitCode"));
    return code >= 0 && code <= 255 ? (enum cli_exit)code : CLI_EXEC_FAILED;
}

enum cli_exit cmd_exec(struct cli *cli, struct err *err)
{
    char path[128];
    cleanup_buf struct buf body = BUF_INIT(LIMIT_API_JSON_BYTES);
    cleanup_reply struct cli_reply reply = {0};
    int result = cli_exec_body(cli->args + 1, cli->arg_count - 1, cli->values[OPTION_CWD],
                               cli->values[OPTION_ROOT] != NULL, &body);
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
    if (cli_ask(cli, &request, &reply, err) != CLI_OK)
        return CLI_EXEC_FAILED;
    return finish(cli, &reply, err);
}
