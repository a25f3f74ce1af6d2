/* A policy as the daemon would read it; see policy_file.h. Reads files with the user's rights; of
 * secrets only whether they are there. */
#include "cli/policy_file.h"

#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "util/cleanup.h"
#include "util/fd.h"
#include "util/limits.h"
#include "json/json.h"

struct source {
    const struct cli *cli;
    struct json *config; /* of --config, or NULL */
    int folder_fd;       /* of the policy */
    struct buf *problems;
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

/* One that has no room is not told. */
static void problem(void *ctx, const char *message)
{
    const struct source *source = ctx;
    if (buf_appendf(source->problems, "%s\n", message) < 0)
        return;
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

static enum cli_exit load(struct source *source, const char *path, struct policy **ret,
                          struct err *err)
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
    struct policy_env env = {.ctx = source,
                             .variable = variable,
                             .secret_lack = secret_lack,
                             .file = file,
                             .problem = problem};
    return policy_parse(path, buf_text(&text), text.len, &env, ret, err) < 0 ? CLI_FAILED : CLI_OK;
}

enum cli_exit cli_policy_load(const struct cli *cli, struct policy **ret, struct buf *problems,
                              struct err *err)
{
    struct source source = {.cli = cli, .folder_fd = -1, .problems = problems};
    size_t at = 0;
    for (const char *var; (var = cli_next_value(cli, OPTION_VAR, &at));)
        if (!strchr(var, '=') || var[0] == '=')
            return cli_fail(err, CLI_USAGE, "--var takes NAME=VALUE, not \"%s\"", var);
    enum cli_exit status = load(&source, cli->args[0], ret, err);
    json_free(source.config);
    return status;
}
