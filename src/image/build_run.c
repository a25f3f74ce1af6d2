/*
 * Running package clients, for paddock-image-build: with a fixed PATH, a home in the jail's own
 * /tmp and, of the caller's environment, only what tells a client how to reach its registry.
 */
#include "image/build.h"

#include <fcntl.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "util/cleanup.h"
#include "util/fd.h"

#define FIXED_PATH "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
#define USER_NPMRC "/root/.npmrc"

/* Settings of package clients that live in the environment. */
static const char *const passed_names[] = {
    "http_proxy",          "https_proxy",   "no_proxy",     "HTTP_PROXY",
    "HTTPS_PROXY",         "NO_PROXY",      "all_proxy",    "ALL_PROXY",
    "NODE_EXTRA_CA_CERTS", "SSL_CERT_FILE", "SSL_CERT_DIR",
};
static const char passed_prefix[] = "npm_config_";

void build_say(const char *format, ...)
{
    char text[512];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    printf("==> %s\n", text);
    fflush(stdout);
}

static bool is_passed(const char *variable)
{
    size_t len = strcspn(variable, "=");
    for (size_t i = 0; i < ARRAY_LEN(passed_names); i++)
        if (strlen(passed_names[i]) == len && strncmp(variable, passed_names[i], len) == 0)
            return true;
    return strncmp(variable, passed_prefix, strlen(passed_prefix)) == 0;
}

/* The environment of every client; freed with free (its strings are not its own). NULL: no memory.
 */
static const char **build_environment(void)
{
    static const char *const fixed[] = {
        "PATH=" FIXED_PATH,
        "HOME=" BUILD_HOME,
        "LANG=C.UTF-8",
        "TZ=UTC",
        "DEBIAN_FRONTEND=noninteractive",
        "npm_config_update_notifier=false",
        "npm_config_cache=" BUILD_HOME "/npm-cache",
    };
    size_t count = 0;
    while (environ[count])
        count++;
    const char **result = calloc(count + ARRAY_LEN(fixed) + 2, sizeof(*result));
    if (!result)
        return NULL;
    size_t used = 0;
    for (size_t i = 0; i < count; i++)
        if (is_passed(environ[i]))
            result[used++] = environ[i];
    if (access(USER_NPMRC, R_OK) == 0) /* the jail shows it where the host's root has one */
        result[used++] = "npm_config_userconfig=" USER_NPMRC;
    for (size_t i = 0; i < ARRAY_LEN(fixed); i++)
        result[used++] = fixed[i];
    return result;
}

static int build_wait(pid_t pid, const char *program, struct err *err)
{
    int status;
    while (waitpid(pid, &status, 0) < 0)
        if (errno != EINTR)
            return err_errno(err, errno, "cannot wait for %s", program);
    if (WIFSIGNALED(status))
        return err_set(err, ECHILD, "%s was ended by signal %d", program, WTERMSIG(status));
    if (WEXITSTATUS(status) == 127)
        return err_set(err, ENOENT, "%s could not be run", program);
    if (WEXITSTATUS(status) != 0)
        return err_set(err, ECHILD, "%s failed with exit status %d: the log above says why",
                       program, WEXITSTATUS(status));
    return 0;
}

/* exec(3) and environ(7) want strings that are not const, and change none. */
static char **without_const(const char *const *strings)
{
    char **result;
    memcpy(&result, &strings, sizeof(result));
    return result;
}

/* The child between fork and exec: finds the program on the fixed PATH. Does not return. */
static void build_exec(const char *const *argv, const char **environment, int output)
{
    if (output >= 0 && dup2(output, STDOUT_FILENO) < 0)
        _exit(127);
    environ = without_const(environment);
    execvp(argv[0], without_const(argv));
    _exit(127);
}

int build_run(const char *const *argv, struct buf *output, struct err *err)
{
    cleanup_free const char **environment = build_environment();
    if (!environment)
        return err_set(err, ENOMEM, "no memory to run %s", argv[0]);
    int ends[2] = {-1, -1};
    if (output && pipe2(ends, O_CLOEXEC) < 0)
        return err_errno(err, errno, "cannot make a pipe for %s", argv[0]);
    cleanup_fd int reading = ends[0];
    cleanup_fd int writing = ends[1];
    pid_t pid = fork();
    if (pid < 0)
        return err_errno(err, errno, "cannot start %s", argv[0]);
    if (pid == 0)
        build_exec(argv, environment, writing);
    int result = 0;
    if (output) {
        close(TAKE_FD(writing));
        result = fd_read_all(reading, output);
        close(TAKE_FD(reading)); /* a child that still writes ends by SIGPIPE */
    }
    int waited = build_wait(pid, argv[0], err);
    if (waited < 0)
        return waited;
    return result < 0 ? err_errno(err, -result, "cannot read what %s says", argv[0]) : 0;
}

int build_need(const char *program, const char *package, struct err *err)
{
    for (const char *folder = FIXED_PATH; *folder; folder += *folder == ':') {
        size_t len = strcspn(folder, ":");
        char path[256];
        snprintf(path, sizeof(path), "%.*s/%s", (int)len, folder, program);
        if (access(path, X_OK) == 0)
            return 0;
        folder += len;
    }
    return err_set(err, ENOENT, "%s is not installed on this host: apt-get install %s", program,
                   package);
}
