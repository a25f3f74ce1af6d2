/* paddock create, paddock set: what is set of a sandbox, sent whole with PUT. `set` asks first for
 * what there is, and changes what the options name. */
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

/* NAME=VALUE; of `set` also NAME-, which removes it. */
static enum cli_exit check_list(const struct cli *cli, enum cli_option_id id, bool may_remove,
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
        status = check_list(cli, OPTION_ENV, may_remove, err);
    if (status == CLI_OK)
        status = check_list(cli, OPTION_LABEL, may_remove, err);
    return status;
}

/* ------------------------------------------------------------------------------- the body */

static void write_name(struct json_writer *writer, const struct cli *cli, enum cli_option_id id,
                       const struct json *old)
{
    const char *key = cli_options[id].name;
    const char *text = cli->values[id] ? cli->values[id] : json_text(json_get(old, key));
    if (text && text[0])
        json_write_pair_string(writer, key, text);
}

static void write_limit(struct json_writer *writer, const struct cli *cli, enum cli_option_id id,
                        const char *key, const struct json *old)
{
    int64_t thousandths = (int64_t)(json_real(json_get(old, key)) * 1000 + 0.5);
    if (cli->values[id])
        thousandths = read_number(cli->values[id], true);
    if (thousandths == 0)
        return;
    json_write_key(writer, key);
    json_write_thousandths(writer, thousandths);
}

/* The last value of the option for this name, or NULL; *ret_removed: there is one, "NAME-". */
static const char *find_value(const struct cli *cli, enum cli_option_id id, const char *name,
                              bool *ret_removed)
{
    const char *found = NULL;
    const char *text;
    size_t len = strlen(name);
    *ret_removed = false;
    for (size_t at = 0; (text = cli_next_value(cli, id, &at));) {
        if (strncmp(text, name, len) != 0)
            continue;
        bool is_removed = strcmp(text + len, "-") == 0;
        if (!is_removed && text[len] != '=')
            continue;
        *ret_removed = is_removed;
        found = is_removed ? NULL : text + len + 1;
    }
    return found;
}

static void write_list(struct json_writer *writer, const struct cli *cli, enum cli_option_id id,
                       const char *key, const struct json *old)
{
    const struct json *members = json_get(old, key);
    bool is_removed;
    const char *text;
    json_write_key(writer, key);
    json_write_object_begin(writer);
    for (size_t i = 0; i < json_count(members); i++) {
        const char *name = json_key_at(members, i);
        const char *value = find_value(cli, id, name, &is_removed);
        const char *kept = value ? value : json_text(json_at(members, i));
        if (!is_removed && kept)
            json_write_pair_string(writer, name, kept);
    }
    for (size_t at = 0; (text = cli_next_value(cli, id, &at));) {
        cleanup_free char *name = strndup(text, strcspn(text, "="));
        const char *value = name ? find_value(cli, id, name, &is_removed) : NULL;
        /* once, at its last place */
        if (value && value == text + strlen(name) + 1 && !json_get(members, name))
            json_write_pair_string(writer, name, value);
    }
    json_write_object_end(writer);
}

static enum cli_exit make_body(const struct cli *cli, const struct json *old, struct buf *ret,
                               struct err *err)
{
    const struct json *limits = json_get(old, "limits");
    struct json_writer *writer = json_writer_new(ret, false);
    if (!writer)
        return cli_fail(err, CLI_FAILED, "out of memory");
    json_write_object_begin(writer);
    write_name(writer, cli, OPTION_AGENT, old);
    write_name(writer, cli, OPTION_POLICY, old);
    json_write_key(writer, "limits");
    json_write_object_begin(writer);
    write_limit(writer, cli, OPTION_MEMORY, "memory_mib", limits);
    write_limit(writer, cli, OPTION_CPUS, "cpus", limits);
    write_limit(writer, cli, OPTION_PIDS, "pids", limits);
    json_write_object_end(writer);
    write_list(writer, cli, OPTION_ENV, "env", old);
    write_list(writer, cli, OPTION_LABEL, "labels", old);
    json_write_object_end(writer);
    return json_writer_end(writer) == 0
               ? CLI_OK
               : cli_fail(err, CLI_USAGE, "a value is not UTF-8, or it is too much in all");
}

static enum cli_exit put(const struct cli *cli, const struct json *old, struct cli_reply *ret,
                         struct err *err)
{
    char path[128];
    cleanup_buf struct buf body = BUF_INIT(BODY_BYTES);
    snprintf(path, sizeof(path), "/sandboxes/%s", cli->args[0]);
    enum cli_exit status = make_body(cli, old, &body, err);
    struct cli_request request = {.method = "PUT",
                                  .path = path,
                                  .content_type = "application/json",
                                  .body = buf_text(&body),
                                  .body_len = body.len,
                                  .is_only_new = !old};
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
        status = put(cli, NULL, &reply, err);
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
    char path[128];
    cleanup_json struct json *old = NULL;
    cleanup_reply struct cli_reply found = {0};
    cleanup_reply struct cli_reply reply = {0};
    enum cli_exit status = check_options(cli, true, err);
    if (status != CLI_OK)
        return status;
    snprintf(path, sizeof(path), "/sandboxes/%s", cli->args[0]);
    struct cli_request request = {.method = "GET", .path = path};
    status = cli_ask(cli, &request, &found, err);
    if (status != CLI_OK)
        return status;
    if (json_parse(buf_text(&found.body), found.body.len, JSON_STRICT, &old, NULL) < 0)
        return cli_fail(err, CLI_FAILED, "the daemon's answer is not JSON");
    status = put(cli, old, &reply, err);
    return status == CLI_OK ? tell(cli, &reply, err) : status;
}
