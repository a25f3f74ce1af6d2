/* paddock doctor: runs `paddockd --doctor --json`, which knows what a sandbox needs, and renders
 * its findings, and asks the daemon that runs for its own (doctor_daemon.c). paddockd is looked for
 * beside this program and where it is installed, never in PATH. */
#include <fcntl.h>
#include <limits.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/doctor.h"
#include "util/cleanup.h"
#include "util/fd.h"
#include "util/limits.h"
#include "json/findings.h"

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

static void print_finding(const struct cli_finding *finding)
{
    bool is_ok = strcmp(finding->level, "ok") == 0;
    bool is_fail = strcmp(finding->level, "fail") == 0;
    enum cli_color color = is_ok ? CLI_COLOR_GREEN : is_fail ? CLI_COLOR_RED : CLI_COLOR_YELLOW;
    printf("%s%s%s ", cli_color(stdout, color),
           is_ok     ? "ok  "
           : is_fail ? "FAIL"
                     : "warn",
           cli_color(stdout, CLI_COLOR_NONE));
    cli_write_cell(stdout, finding->name, 15);
    fputc(' ', stdout);
    print_wrapped(finding->text);
    print_more("lost: ", finding->lost);
    print_more("cure: ", finding->cure);
}

static void copy_text(const struct json *json, const char *key, char *ret, size_t size)
{
    const char *text = json_text(json_get(json, key));
    snprintf(ret, size, "%s", text ? text : "");
}

/* paddockd's; what the strings of name and level point to is the JSON's. */
static void read_findings(const struct json *list, struct cli_finding *findings, size_t *count)
{
    for (size_t i = 0; i < json_count(list) && *count < CLI_FINDINGS_MAX - 2; i++) {
        const struct json *json = json_at(list, i);
        struct cli_finding *finding = &findings[*count];
        finding->name = json_text(json_get(json, "name"));
        finding->level = json_text(json_get(json, "level"));
        copy_text(json, "text", finding->text, sizeof(finding->text));
        copy_text(json, "lost", finding->lost, sizeof(finding->lost));
        copy_text(json, "cure", finding->cure, sizeof(finding->cure));
        *count += finding->name && finding->level;
    }
}

static void print_json(const struct cli_finding *findings, size_t count, bool is_good)
{
    struct json_finding list[CLI_FINDINGS_MAX];
    cleanup_buf struct buf text = BUF_INIT(LIMIT_CONFIG_BYTES);
    struct json_writer *writer = json_writer_new(&text, true);
    if (!writer)
        return;
    for (size_t i = 0; i < count; i++)
        list[i] = (struct json_finding){findings[i].name, findings[i].level, findings[i].text,
                                        findings[i].lost, findings[i].cure};
    json_write_object_begin(writer);
    json_write_findings(writer, is_good, list, count);
    json_write_object_end(writer);
    if (json_writer_end(writer) == 0)
        cli_print_json(&text);
}

static enum cli_exit tell(const struct cli *cli, const struct cli_finding *findings, size_t count)
{
    bool is_good = true;
    for (size_t i = 0; i < count; i++) {
        is_good = is_good && strcmp(findings[i].level, "fail") != 0;
        if (!cli->values[OPTION_JSON])
            print_finding(&findings[i]);
    }
    if (cli->values[OPTION_JSON])
        print_json(findings, count, is_good);
    return is_good ? CLI_OK : CLI_FAILED;
}

enum cli_exit cmd_doctor(struct cli *cli, struct err *err)
{
    char path[PATH_MAX];
    size_t count = 0;
    cleanup_buf struct buf text = BUF_INIT(LIMIT_CONFIG_BYTES);
    cleanup_json struct json *json = NULL;
    if (!find_daemon(path))
        return cli_fail(err, CLI_FAILED,
                        "paddockd is not beside this program, nor where it is installed");
    enum cli_exit status = run_daemon(path, cli->values[OPTION_CONFIG], &text, err);
    if (status != CLI_OK)
        return status;
    if (json_parse(buf_text(&text), text.len, JSON_STRICT, &json, NULL) < 0 ||
        json_count(json_get(json, "findings")) == 0)
        return cli_fail(err, CLI_FAILED, "%s --doctor --json printed no findings", path);
    cleanup_free struct cli_finding *findings = calloc(CLI_FINDINGS_MAX, sizeof(*findings));
    if (!findings)
        return cli_fail(err, CLI_FAILED, "out of memory");
    read_findings(json_get(json, "findings"), findings, &count);
    /* a configuration that is named tells where its daemon listens, unless --url does */
    if (cli->values[OPTION_CONFIG] && !cli->values[OPTION_URL])
        cli->values[OPTION_URL] = json_text(json_get(json, "url"));
    cli_doctor_daemon(cli, json_text(json_get(json, "url")), json_text(json_get(json, "gateway")),
                      json_text(json_get(json, "audit")), findings, &count);
    if (cli_is_interrupted())
        return CLI_INTERRUPTED;
    return tell(cli, findings, count);
}
