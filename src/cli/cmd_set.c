/* paddock create, paddock set: what is set of a sandbox. `create` sends it whole with PUT, `set`
 * sends what is to change with PATCH, so that two of them do not undo each other. */
#include <stdlib.h>
#include <string.h>

#include "cli/table.h"
#include "util/cleanup.h"
#include "util/limits.h"

#define BODY_BYTES (8 * (LIMIT_ENV_BYTES + LIMIT_LABELS_BYTES))

/* Thousandths of "1.5"; -1: it is no such number. */
static int64_t read_number(const char *text, bool with_fraction)
{
    char *end = NULL;
    size_t digits = strspn(text, with_fraction ? "0123456789." : "0123456789");
    if (digits == 0 || digits > 12 || text[digits])
        return -1;
    double number = strtod(text, &end);
    return *end ? -1 : (int64_t)(number * 1000 + 0.5);
}

static enum cli_exit check_limit(const struct cli *cli, enum cli_option_id id, struct err *err)
{
    const char *text = cli->values[id];
    if (!text || read_number(text, id == OPTION_CPUS) >= 0)
        return CLI_OK;
    return cli_fail(err, CLI_USAGE, "--%s takes %s, not \"%.80s\"", cli_options[id].name,
                    id == OPTION_CPUS ? "a number of cpus, as 1.5" : "a whole number", text);
}

enum cli_exit cli_check_list(const struct cli *cli, enum cli_option_id id, bool may_remove,
                             struct err *err)
{
    const char *text;
    for (size_t at = 0; (text = cli_next_value(cli, id, &at));) {
        const char *equals = strchr(text, '=');
        size_t len = strlen(text);
        if (equals ? equals > text : may_remove && len > 1 && text[len - 1] == '-')
            continue;
        return cli_fail(err, CLI_USAGE, "--%s takes NAME=VALUE%s, not \"%.80s\"",
                        cli_options[id].name, may_remove ? " or NAME-" : "", text);
    }
    return CLI_OK;
}

static enum cli_exit check_options(const struct cli *cli, bool may_remove, struct err *err)
{
    enum cli_exit status = check_limit(cli, OPTION_MEMORY, err);
    if (status == CLI_OK)
        status = check_limit(cli, OPTION_CPUS, err);
    if (status == CLI_OK)
        status = check_limit(cli, OPTION_PIDS, err);
    if (status == CLI_OK)
        status = check_limit(cli, OPTION_DISK, err);
    if (status == CLI_OK)
        status = check_limit(cli, OPTION_INODES, err);
    if (status == CLI_OK)
        status = check_limit(cli, OPTION_BUDGET_OUTPUT_TOKENS, err);
    if (status == CLI_OK)
        status = check_limit(cli, OPTION_BUDGET_REQUESTS, err);
    if (status == CLI_OK)
        status = cli_check_list(cli, OPTION_ENV, may_remove, err);
    if (status == CLI_OK)
        status = cli_check_list(cli, OPTION_LABEL, may_remove, err);
    return status;
}

/* ------------------------------------------------------------------------------- the body */

static void write_null(struct json_writer *writer, const char *key)
{
    json_write_key(writer, key);
    json_write_null(writer);
}

/* What is empty or 0 is the daemon's: a patch takes away what is set. */
static void write_name(struct json_writer *writer, const struct cli *cli, enum cli_option_id id,
                       bool may_remove)
{
    const char *text = cli->values[id];
    if (text && text[0])
        json_write_pair_string(writer, cli_options[id].name, text);
    else if (text && may_remove)
        write_null(writer, cli_options[id].name);
}

static void write_limit(struct json_writer *writer, const struct cli *cli, enum cli_option_id id,
                        const char *key, bool is_patch)
{
    int64_t thousandths = cli->values[id] ? read_number(cli->values[id], true) : 0;
    if (thousandths) {
        json_write_key(writer, key);
        json_write_thousandths(writer, thousandths);
    } else if (cli->values[id] && is_patch) {
        write_null(writer, key);
    }
}

/* Of NAME=VALUE or NAME-; the caller frees. NULL: no memory. */
static char *name_of(const char *text)
{
    const char *equals = strchr(text, '=');
    return strndup(text, equals ? (size_t)(equals - text) : strlen(text) - 1);
}

/* Whether a later option is for the same name: it counts. */
static bool comes_again(const struct cli *cli, enum cli_option_id id, size_t at, const char *name)
{
    for (const char *text; (text = cli_next_value(cli, id, &at));) {
        cleanup_free char *other = name_of(text);
        if (other && strcmp(other, name) == 0)
            return true;
    }
    return false;
}

void cli_write_list(struct json_writer *writer, const struct cli *cli, enum cli_option_id id,
                    const char *key)
{
    const char *text;
    json_write_key(writer, key);
    json_write_object_begin(writer);
    for (size_t at = 0; (text = cli_next_value(cli, id, &at));) {
        cleanup_free char *name = name_of(text);
        const char *equals = strchr(text, '=');
        if (!name || comes_again(cli, id, at, name))
            continue;
        if (equals)
            json_write_pair_string(writer, name, equals + 1);
        else
            write_null(writer, name);
    }
    json_write_object_end(writer);
}

static enum cli_exit make_body(const struct cli *cli, bool is_patch, struct buf *ret,
                               struct err *err)
{
    struct json_writer *writer = json_writer_new(ret, false);
    if (!writer)
        return cli_fail(err, CLI_FAILED, "out of memory");
    json_write_object_begin(writer);
    write_name(writer, cli, OPTION_AGENT, false);
    write_name(writer, cli, OPTION_POLICY, is_patch);
    write_name(writer, cli, OPTION_SIZE, is_patch);
    json_write_key(writer, "limits");
    json_write_object_begin(writer);
    write_limit(writer, cli, OPTION_MEMORY, "memory_mib", is_patch);
    write_limit(writer, cli, OPTION_CPUS, "cpus", is_patch);
    write_limit(writer, cli, OPTION_PIDS, "pids", is_patch);
    write_limit(writer, cli, OPTION_DISK, "disk_mib", is_patch);
    write_limit(writer, cli, OPTION_INODES, "inodes", is_patch);
    json_write_object_end(writer);
    if (cli->values[OPTION_BUDGET_OUTPUT_TOKENS] || cli->values[OPTION_BUDGET_REQUESTS]) {
        json_write_key(writer, "budget");
        json_write_object_begin(writer);
        write_limit(writer, cli, OPTION_BUDGET_OUTPUT_TOKENS, "output_tokens", is_patch);
        write_limit(writer, cli, OPTION_BUDGET_REQUESTS, "requests", is_patch);
        json_write_object_end(writer);
    }
    cli_write_list(writer, cli, OPTION_ENV, "env");
    cli_write_list(writer, cli, OPTION_LABEL, "labels");
    json_write_object_end(writer);
    return json_writer_end(writer) == 0
               ? CLI_OK
               : cli_fail(err, CLI_USAGE, "a value is not UTF-8, or it is too much in all");
}

static enum cli_exit send(const struct cli *cli, bool is_patch, struct cli_reply *ret,
                          struct err *err)
{
    char path[128];
    cleanup_buf struct buf body = BUF_INIT(BODY_BYTES);
    snprintf(path, sizeof(path), "/sandboxes/%s", cli->args[0]);
    enum cli_exit status = make_body(cli, is_patch, &body, err);
    struct cli_request request = {.method = is_patch ? "PATCH" : "PUT",
                                  .path = path,
                                  .content_type = is_patch ? "application/merge-patch+json"
                                                           : "application/json",
                                  .body = buf_text(&body),
                                  .body_len = body.len,
                                  .is_only_new = !is_patch};
    return status == CLI_OK ? cli_call(cli, &request, ret, err) : status;
}

static enum cli_exit tell(const struct cli *cli, const struct cli_reply *reply, struct err *err)
{
    if (reply->status < 200 || reply->status > 299)
        return cli_refused(cli, reply, err);
    if (cli->values[OPTION_JSON])
        cli_print_json(&reply->body);
    return CLI_OK;
}

enum cli_exit cmd_create(struct cli *cli, struct err *err)
{
    cleanup_reply struct cli_reply reply = {0};
    enum cli_exit status = check_options(cli, false, err);
    if (status == CLI_OK)
        status = send(cli, false, &reply, err);
    if (status != CLI_OK)
        return status;
    if (reply.status == 412)
        return cli_fail(err, CLI_FAILED,
                        "there is a sandbox %s already: `paddock set` changes what is set of it",
                        cli->args[0]);
    return tell(cli, &reply, err);
}

enum cli_exit cmd_set(struct cli *cli, struct err *err)
{
    cleanup_reply struct cli_reply reply = {0};
    enum cli_exit status = check_options(cli, true, err);
    if (status == CLI_OK)
        status = send(cli, true, &reply, err);
    return status == CLI_OK ? tell(cli, &reply, err) : status;
}
