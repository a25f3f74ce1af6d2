/* paddock policy check: reads a policy as the daemon would, and tells what each rule lacks. Reads
 * files with the user's rights; of secrets only whether they are there. */
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/cli.h"
#include "policy/policy.h"
#include "util/cleanup.h"
#include "util/fd.h"
#include "util/limits.h"
#include "json/json.h"

struct source {
    const struct cli *cli;
    struct json *config; /* of --config, or NULL */
    int folder_fd;       /* of the policy */
};

static const char *variable(void *ctx, const char *name)
{
    const struct source *source = ctx;
    size_t len = strlen(name);
    const char *last = NULL;
    size_t at = 0;
    for (const char *var; (var = cli_next_value(source->cli, OPTION_VAR, &at));)
        if (strncmp(var, name, len) == 0 && var[len] == '=')
            last = var + len + 1;
    return last ? last : json_text(json_get(json_get(source->config, "vars"), name));
}

static const char *secret_lack(void *ctx, const char *name)
{
    const struct source *source = ctx;
    const char *folder = json_text(json_get(source->config, "secrets_dir"));
    char path[PATH_MAX];
    struct stat st;
    int len = folder ? snprintf(path, sizeof(path), "%s/%s", folder, name) : -1;
    if (len > 0 && len < (int)sizeof(path) && lstat(path, &st) == 0)
        return !S_ISREG(st.st_mode) ? "its file in secrets_dir is not a regular file"
               : st.st_mode & 0077  ? "its file in secrets_dir must have mode 0600 or stricter"
               : st.st_size == 0    ? "it is empty"
                                    : NULL;
    const char *value = getenv(name);
    return value && value[0] ? NULL : "";
}

static int file(void *ctx, const char *name, struct buf *ret)
{
    const struct source *source = ctx;
    return fd_read_file(source->folder_fd, name, ret, NULL);
}

static enum cli_exit read_config(struct source *source, struct err *err)
{
    const char *path = source->cli->values[OPTION_CONFIG];
    cleanup_buf struct buf text = BUF_INIT(LIMIT_CONFIG_BYTES);
    if (!path)
        return CLI_OK;
    if (fd_read_file(AT_FDCWD, path, &text, err) < 0)
        return CLI_FAILED;
    struct err inner = {0};
    if (json_parse(buf_text(&text), text.len, JSON_COMMENTS, &source->config, &inner) < 0)
        return cli_fail(err, CLI_FAILED, "%s:%s", path, inner.message);
    return CLI_OK;
}

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

static enum cli_exit check(struct source *source, const char *path, struct err *err)
{
    cleanup_buf struct buf text = BUF_INIT(LIMIT_CONFIG_BYTES);
    cleanup_free char *copy = strdup(path);
    if (!copy)
        return cli_fail(err, CLI_FAILED, "out of memory");
    if (fd_read_file(AT_FDCWD, path, &text, err) < 0)
        return CLI_FAILED;
    cleanup_fd int folder_fd = open(dirname(copy), O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (folder_fd < 0)
        return cli_fail(err, CLI_FAILED, "the folder of %s: %s", path, strerror(errno));
    source->folder_fd = folder_fd;
    enum cli_exit status = read_config(source, err);
    if (status != CLI_OK)
        return status;
    struct policy_env env = {
        .ctx = source, .variable = variable, .secret_lack = secret_lack, .file = file};
    struct policy *policy = NULL;
    if (policy_parse(path, buf_text(&text), text.len, &env, &policy, err) < 0)
        return CLI_FAILED;
    if (source->cli->values[OPTION_JSON])
        tell_rules_json(policy);
    else
        tell_rules(policy);
    policy_unref(policy);
    return CLI_OK;
}

enum cli_exit cmd_policy_check(struct cli *cli, struct err *err)
{
    struct source source = {.cli = cli, .folder_fd = -1};
    size_t at = 0;
    for (const char *var; (var = cli_next_value(cli, OPTION_VAR, &at));)
        if (!strchr(var, '=') || var[0] == '=')
            return cli_fail(err, CLI_USAGE, "--var takes NAME=VALUE, not \"%s\"", var);
    enum cli_exit status = check(&source, cli->args[0], err);
    json_free(source.config);
    return status;
}
