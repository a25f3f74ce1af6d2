/* paddock doctor: runs `paddockd --doctor --json`, which knows what a sandbox needs, and renders
 * its findings. paddockd is looked for beside this program and where it is installed, never in
 * PATH. */
#include <fcntl.h>
#include <limits.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/cli.h"
#include "util/cleanup.h"
#include "util/fd.h"
#include "util/limits.h"
#include "json/json.h"

#define INDENT 21 /* where texts begin */
#define COLUMNS 80

static bool find_daemon(char ret[PATH_MAX])
{
    static const char *const places[] = {"paddockd", PADDOCK_DAEMON}; /* PADDOCK_DAEMON: meson */
    char own[PATH_MAX];
    ssize_t len = readlink("/proc/self/exe", own, sizeof(own) - 1);
    if (len <= 0)
        return false;
    own[len] = '\0';
    *strrchr(own, '/') = '\0';
    for (size_t i = 0; i < ARRAY_LEN(places); i++) {
        int n = snprintf(ret, PATH_MAX, "%s/%s", own, places[i]);
        if (n > 0 && n < PATH_MAX && access(ret, X_OK) == 0)
            return true;
    }
    return false;
}

/* Runs it and reads what it prints. Its exit status tells nothing that its findings do not. */
static enum cli_exit run_daemon(const char *path, const char *config, struct buf *ret,
                                struct err *err)
{
    int pipe_fds[2];
    if (pipe2(pipe_fds, O_CLOEXEC) < 0)
        return cli_fail(err, CLI_FAILED, "a pipe: %s", strerror(errno));
    cleanup_fd int read_fd = pipe_fds[0];
    char name[] = "paddockd", doctor[] = "--doctor", json[] = "--json", option[] = "--config";
    cleanup_free char *file = config ? strdup(config) : NULL; /* argv is not const */
    char *const argv[] = {name, doctor, json, file ? option : NULL, file, NULL};
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, pipe_fds[1], STDOUT_FILENO);
    pid_t pid;
    int code = posix_spawn(&pid, path, &actions, NULL, argv, environ);
    posix_spawn_file_actions_destroy(&actions);
    close(pipe_fds[1]);
    if (code != 0)
        return cli_fail(err, CLI_FAILED, "%s: %s", path, strerror(code));
    int result = fd_read_all(read_fd, ret);
    close(TAKE_FD(read_fd)); /* so that it cannot wait for us when it says too much */
    while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
        ;
    return result < 0 ? cli_fail(err, CLI_FAILED, "%s --doctor: %s", path, strerror(-result))
                      : CLI_OK;
}

static const char *text_of(const struct json *finding, const char *key)
{
    const char *text = json_text(json_get(finding, key));
    return text ? text : "";
}

/* Breaks the text at blanks; the first line begins behind what was printed. */
static void print_wrapped(const char *text)
{
    size_t column = INDENT;
    while (*text) {
        size_t len = strcspn(text, " ");
        if (column > INDENT && column + 1 + len > COLUMNS) {
            printf("\n%*s", INDENT, "");
            column = INDENT;
        } else if (column > INDENT) {
            putchar(' ');
            column++;
        }
        cli_write(stdout, text, len);
        column += len;
        text += len + (text[len] == ' ');
    }
    putchar('\n');
}

static void print_more(const char *label, const char *text)
{
    char whole[1024];
    if (!text[0])
        return;
    snprintf(whole, sizeof(whole), "%s%s", label, text);
    printf("%*s", INDENT, "");
    print_wrapped(whole);
}

/* Returns whether it is one that stops sandboxes from working. */
static bool print_finding(const struct json *finding)
{
    const char *level = text_of(finding, "level");
    bool is_ok = strcmp(level, "ok") == 0;
    bool is_fail = strcmp(level, "fail") == 0;
    printf("%s ", is_ok ? "ok  " : is_fail ? "FAIL" : "warn");
    cli_write_cell(stdout, text_of(finding, "name"), 15);
    fputc(' ', stdout);
    print_wrapped(text_of(finding, "text"));
    print_more("lost: ", text_of(finding, "lost"));
    print_more("cure: ", text_of(finding, "cure"));
    return is_fail;
}

enum cli_exit cmd_doctor(struct cli *cli, struct err *err)
{
    char path[PATH_MAX];
    cleanup_buf struct buf text = BUF_INIT(LIMIT_CONFIG_BYTES);
    cleanup_json struct json *json = NULL;
    if (!find_daemon(path))
        return cli_fail(err, CLI_FAILED,
                        "paddockd is not beside this program, nor where it is installed");
    enum cli_exit status = run_daemon(path, cli->values[OPTION_CONFIG], &text, err);
    if (status != CLI_OK)
        return status;
    if (json_parse(buf_text(&text), text.len, JSON_STRICT, &json, NULL) < 0)
        return cli_fail(err, CLI_FAILED, "%s --doctor --json printed no JSON", path);
    if (cli->values[OPTION_JSON])
        fwrite(buf_text(&text), 1, text.len, stdout);
    const struct json *findings = json_type(json) == JSON_ARRAY ? json : json_get(json, "findings");
    bool has_failure = json_count(findings) == 0;
    for (size_t i = 0; i < json_count(findings); i++) {
        const struct json *finding = json_at(findings, i);
        bool is_fail = cli->values[OPTION_JSON] ? strcmp(text_of(finding, "level"), "fail") == 0
                                                : print_finding(finding);
        has_failure = has_failure || is_fail;
    }
    return has_failure ? CLI_FAILED : CLI_OK;
}
