/* paddock policy ls, paddock policy reload: what the daemon has in force. */
#include <string.h>

#include "cli/table.h"
#include "util/cleanup.h"

static const struct cli_column columns[] = {
    {"NAME", "name", CLI_COLUMN_TEXT},
    {"DEFAULT", "default", CLI_COLUMN_TEXT},
    {"IN FORCE", "inForce", CLI_COLUMN_TEXT},
    {"RULES", "rules", CLI_COLUMN_TEXT},
    {"INACTIVE", "inactiveRules", CLI_COLUMN_TEXT},
    {"SANDBOXES", "sandboxes", CLI_COLUMN_TEXT},
};

static void tell(const char *name, const char *text)
{
    cli_write_cell(stderr, name, 0);
    fputs(": ", stderr);
    cli_write_cell(stderr, text, 0);
    fputc('\n', stderr);
}

/* The numbers of the table raise the question which rules, and why. */
enum cli_exit cmd_policy_ls(struct cli *cli, struct err *err)
{
    cleanup_json struct json *json = NULL;
    enum cli_exit status = cli_get(cli, "/policies", &json, err);
    if (status != CLI_OK || !json)
        return status;
    if (json_count(json) == 0)
        fputs("no policy is in force: `paddock policy reload` tells why\n", stderr);
    else
        cli_table_print(stdout, json, "policies", columns, ARRAY_LEN(columns));
    for (size_t i = 0; i < json_count(json); i++) {
        const struct json *policy = json_at(json, i);
        const char *why = json_text(json_get(policy, "error"));
        const char *hint = json_text(json_get(policy, "hint"));
        if (why || hint)
            tell(json_text(json_get(policy, "name")), why ? why : hint);
    }
    return CLI_OK;
}

/* A file that is refused matters when a sandbox is under it; the folder may hold others. */
static enum cli_exit tell_refused(const struct json *policies, struct err *err)
{
    for (size_t i = 0; i < json_count(policies); i++) {
        const struct json *policy = json_at(policies, i);
        const char *why = json_text(json_get(policy, "error"));
        const char *hint = json_text(json_get(policy, "hint"));
        if (hint)
            tell(json_text(json_get(policy, "name")), hint);
        if (why && json_integer(json_get(policy, "sandboxes")))
            return cli_fail(err, CLI_FAILED, "refused: %s; its former version stays in force", why);
        if (why)
            tell("not a policy", why);
    }
    return CLI_OK;
}

enum cli_exit cmd_policy_reload(struct cli *cli, struct err *err)
{
    cleanup_reply struct cli_reply reply = {0};
    cleanup_json struct json *json = NULL;
    struct cli_request request = {.method = "POST", .path = "/policies/reload"};
    enum cli_exit status = cli_ask(cli, &request, &reply, err);
    if (status != CLI_OK)
        return status;
    if (json_parse(buf_text(&reply.body), reply.body.len, JSON_STRICT, &json, NULL) < 0)
        return cli_fail(err, CLI_FAILED, "the daemon's answer is not JSON");
    if (cli->values[OPTION_JSON])
        cli_print_json(&reply.body);
    else
        cli_table_print(stdout, json, "policies", columns, ARRAY_LEN(columns));
    return tell_refused(json, err);
}
