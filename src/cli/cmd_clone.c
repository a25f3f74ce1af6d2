/* paddock clone: git clone inside the sandbox; git's own words are printed. */
#include <string.h>

#include "cli/cli.h"
#include "util/cleanup.h"
#include "util/limits.h"
#include "json/json.h"

/* Arguments of the command line may be any bytes; JSON may not. */
static int write_body(const struct cli *cli, struct buf *ret)
{
    struct json_writer *writer = json_writer_new(ret, false);
    if (!writer)
        return -ENOMEM;
    json_write_object_begin(writer);
    json_write_pair_string(writer, "url", cli->args[1]);
    if (cli->values[OPTION_REF])
        json_write_pair_string(writer, "ref", cli->values[OPTION_REF]);
    json_write_object_end(writer);
    return json_writer_end(writer);
}

static void print_member(const struct json *json, const char *key)
{
    size_t len;
    const char *text = json_string(json_get(json, key), &len);
    if (text)
        cli_write(stderr, text, len);
}

enum cli_exit cmd_clone(struct cli *cli, struct err *err)
{
    char path[128];
    cleanup_buf struct buf body = BUF_INIT(LIMIT_API_JSON_BYTES);
    cleanup_reply struct cli_reply reply = {0};
    cleanup_json struct json *json = NULL;
    if (write_body(cli, &body) < 0)
        return cli_fail(err, CLI_USAGE, "the URL and the ref must be UTF-8 text");
    snprintf(path, sizeof(path), "/sandboxes/%s/repository", cli->args[0]);
    struct cli_request request = {.method = "POST",
                                  .path = path,
                                  .content_type = "application/json",
                                  .body = buf_text(&body),
                                  .body_len = body.len};
    enum cli_exit status = cli_call(cli, &request, &reply, err);
    if (status != CLI_OK)
        return status;
    bool is_json = (reply.status == 200 || reply.status == 502) &&
                   json_parse(buf_text(&reply.body), reply.body.len, JSON_STRICT, &json, NULL) == 0;
    if (reply.status == 400 && strncmp(buf_text(&reply.body), "Send {", 6) == 0)
        return cli_fail(err, CLI_FAILED,
                        "\"%.200s\" cannot be cloned: the URL must be "
                        "https://github.com/OWNER/REPOSITORY",
                        cli->args[1]);
    if (!is_json)
        return cli_refused(cli, &reply, err);
    if (cli->values[OPTION_JSON]) {
        cli_print_json(&reply.body);
    } else {
        print_member(json, "stdout");
        print_member(json, "stderr");
    }
    if (reply.status == 200)
        return CLI_OK;
    const char *errors = json_text(json_get(json, "stderr"));
    if (errors && strstr(errors, "/workspace/repo' already exists"))
        return cli_fail(err, CLI_FAILED,
                        "%s has a repository already: clone into a sandbox of another name, or "
                        "`paddock rm %s` first, which removes its files",
                        cli->args[0], cli->args[0]);
    return cli_fail(err, CLI_FAILED, "%s: git clone failed (exit %lld)", cli->args[0],
                    (long long)json_integer(json_get(json, "exitCode")));
}
