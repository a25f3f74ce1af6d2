/* paddock clone: git clone inside the sandbox; git's own words are printed. */
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/progress.h"
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

/* What git tells while it clones: lines, or what overwrites itself, ended by a return. The last
 * line is the answer that comes at once where nobody watches. */
struct watching {
    struct cli_progress progress, phase;
    char name[64];   /* of the phase: "Receiving objects" */
    struct buf line; /* begun, or the last one */
    bool is_whole;
};

/* git tells share and rate of each phase; what is left of it is reckoned here. */
static void tell_phase(struct watching *watching, const char *line)
{
    char text[256], left[40] = "";
    size_t len = strcspn(line, ":");
    if (line[0] == '{' || len == 0)
        return;
    if (strncmp(watching->name, line, len) != 0 || watching->name[len]) {
        snprintf(watching->name, sizeof(watching->name), "%.*s", (int)len, line);
        cli_progress_begin(&watching->phase);
    }
    if (!cli_progress_is_due(&watching->progress))
        return;
    double share = cli_progress_share(line);
    if (share < 1)
        cli_progress_left(share, cli_progress_seconds(&watching->phase), left, sizeof(left));
    size_t end = strlen(line);
    while (end && line[end - 1] == ' ')
        end--;
    snprintf(text, sizeof(text), "%.*s%s", (int)(end < 200 ? end : 200), line, left);
    cli_progress_tell(&watching->progress, text);
}

static void on_progress(void *ctx, const char *data, size_t len)
{
    struct watching *watching = ctx;
    while (len > 0) {
        size_t n = 0;
        while (n < len && data[n] != '\r' && data[n] != '\n')
            n++;
        if (watching->is_whole)
            buf_clear(&watching->line);
        watching->is_whole = n < len;
        if (buf_append(&watching->line, data, n) < 0)
            buf_clear(&watching->line);
        else if (watching->is_whole)
            tell_phase(watching, buf_text(&watching->line));
        n += n < len;
        data += n;
        len -= n;
    }
}

static enum cli_exit ask(const struct cli *cli, struct cli_request *request, struct cli_reply *ret,
                         struct err *err)
{
    struct watching watching = {.line = BUF_INIT(LIMIT_CLI_REPLY_BYTES)};
    cli_progress_begin(&watching.progress);
    if (!watching.progress.is_wanted)
        return cli_call(cli, request, ret, err);
    request->stream = on_progress;
    request->ctx = &watching;
    enum cli_exit status = cli_call(cli, request, ret, err);
    cli_progress_clear(&watching.progress);
    if (ret->body.len == 0) {
        buf_free(&ret->body);
        ret->body = watching.line;
        watching.line = (struct buf){0};
    }
    buf_free(&watching.line);
    return status;
}

enum cli_exit cmd_clone(struct cli *cli, struct err *err)
{
    char path[128];
    cleanup_buf struct buf body = BUF_INIT(LIMIT_API_JSON_BYTES);
    cleanup_reply struct cli_reply reply = {0};
    cleanup_json struct json *json = NULL;
    if (write_body(cli, &body) < 0)
        return cli_fail(err, CLI_USAGE, "the URL and the ref must be UTF-8 text");
    snprintf(path, sizeof(path), "/sandboxes/%s/repository%s", cli->args[0],
             isatty(STDERR_FILENO) == 1 ? "?progress=1" : "");
    struct cli_request request = {.method = "POST",
                                  .path = path,
                                  .content_type = "application/json",
                                  .body = buf_text(&body),
                                  .body_len = body.len};
    enum cli_exit status = ask(cli, &request, &reply, err);
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
    int64_t code = json_integer(json_get(json, "exitCode"));
    if (reply.status == 200 && code == 0)
        return CLI_OK;
    const char *errors = json_text(json_get(json, "stderr"));
    if (errors && strstr(errors, "/workspace/repo' already exists"))
        return cli_fail(err, CLI_FAILED,
                        "%s has a repository already: clone into a sandbox of another name, or "
                        "`paddock rm %s` first, which removes its files",
                        cli->args[0], cli->args[0]);
    return cli_fail(err, CLI_FAILED, "%s: git clone failed (exit %lld)", cli->args[0],
                    (long long)code);
}
