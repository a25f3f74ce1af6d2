/* paddock policy check: tells what is wrong with a policy, or what each of its rules lacks. */
#include <errno.h>
#include <string.h>

#include "cli/policy_file.h"
#include "util/cleanup.h"
#include "util/limits.h"
#include "json/json.h"

static void tell_rules_json(const struct policy *policy)
{
    cleanup_buf struct buf text = BUF_INIT(LIMIT_CLI_REPLY_BYTES);
    struct json_writer *writer = json_writer_new(&text, false);
    if (!writer)
        return;
    json_write_object_begin(writer);
    json_write_key(writer, "rules");
    json_write_array_begin(writer);
    for (size_t i = 0; i < policy_rule_count(policy); i++) {
        const struct policy_rule *rule = policy_rule_at(policy, i);
        const char *why = policy_rule_inactive(rule);
        json_write_object_begin(writer);
        json_write_pair_string(writer, "name", policy_rule_name(rule));
        json_write_pair_bool(writer, "active", !why);
        if (why)
            json_write_pair_string(writer, "reason", why);
        json_write_object_end(writer);
    }
    json_write_array_end(writer);
    json_write_object_end(writer);
    if (json_writer_end(writer) == 0)
        cli_print_json(&text);
}

static void tell_rules(const struct policy *policy)
{
    for (size_t i = 0; i < policy_rule_count(policy); i++) {
        const struct policy_rule *rule = policy_rule_at(policy, i);
        const char *why = policy_rule_inactive(rule);
        printf("%s: %s%s\n", policy_rule_name(rule), why ? "inactive: " : "active", why ? why : "");
    }
    if (policy_rule_count(policy) == 0)
        puts("no rules: nothing is reachable");
}

/* All problems: as lines that an editor can jump to, or as JSON. */
static void tell_problems(const struct cli *cli, const struct buf *problems, struct err *err)
{
    cleanup_buf struct buf text = BUF_INIT(LIMIT_CLI_REPLY_BYTES);
    size_t count = 0;
    for (const char *at = buf_text(problems); *at; at = strchr(at, '\n') + 1)
        count++;
    if (count < 2)
        return;
    if (!cli->values[OPTION_JSON]) {
        cli_write(stderr, problems->data, problems->len);
        err_set(err, EINVAL, "%zu problems in %s", count, cli->args[0]);
        return;
    }
    struct json_writer *writer = json_writer_new(&text, false);
    if (!writer)
        return;
    json_write_object_begin(writer);
    json_write_key(writer, "problems");
    json_write_array_begin(writer);
    for (const char *at = problems->data; *at; at = strchr(at, '\n') + 1)
        json_write_bytes(writer, at, strcspn(at, "\n"));
    json_write_array_end(writer);
    json_write_object_end(writer);
    if (json_writer_end(writer) == 0)
        cli_print_json(&text);
}

enum cli_exit cmd_policy_check(struct cli *cli, struct err *err)
{
    cleanup_buf struct buf problems = BUF_INIT(LIMIT_CONFIG_BYTES);
    struct policy *policy = NULL;
    enum cli_exit status = cli_policy_load(cli, &policy, &problems, err);
    if (status != CLI_OK) {
        tell_problems(cli, &problems, err);
        return status;
    }
    if (cli->values[OPTION_JSON])
        tell_rules_json(policy);
    else
        tell_rules(policy);
    policy_unref(policy);
    return CLI_OK;
}
