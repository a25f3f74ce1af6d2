/*
 * Running git; see git.h. Process: paddock-jail. Invariants: the environment of every git is the
 * one made here; each git is watched for silence and killed with its group.
 */
#include "repo/git.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>

#include "util/cleanup.h"
#include "util/fd.h"
#include "util/limits.h"

#define GIT_PATH "/usr/bin/git"
#define MAX_ARGS 24
#define READ_CHUNK 65536
#define SLICE_MS 500

/* The same for every git. LC_ALL decides how the patterns of built-in diff drivers see bytes. */
static const char *const fixed_environment[] = {
    "PATH=/nonexistent",
    "HOME=/nonexistent",
    "LC_ALL=C",
    "TZ=UTC",
    "GIT_CONFIG_NOSYSTEM=1",
    "GIT_CONFIG_GLOBAL=/dev/null",
    "GIT_ATTR_NOSYSTEM=1",
    "GIT_NO_REPLACE_OBJECTS=1",
    "GIT_LITERAL_PATHSPECS=1",
    "GIT_OPTIONAL_LOCKS=0",
    "GIT_ALLOW_PROTOCOL=none",
    "GIT_TERMINAL_PROMPT=0",
};

#define PLACE_VARIABLES 3

static int build_environment(const struct git_place *place, struct buf *text,
                             const char *ret[ARRAY_LEN(fixed_environment) + PLACE_VARIABLES + 1])
{
    const struct {
        const char *name, *value;
    } variables[PLACE_VARIABLES] = {
        {"GIT_DIR", place->git_dir},
        {"GIT_WORK_TREE", place->work_tree},
        {"GIT_EXEC_PATH", place->exec_path},
    };
    size_t offsets[PLACE_VARIABLES], count = 0;
    for (size_t i = 0; i < PLACE_VARIABLES; i++) {
        if (!variables[i].value)
            continue;
        offsets[count++] = text->len;
        int r = buf_appendf(text, "%s=%s%c", variables[i].name, variables[i].value, '\0');
        if (r < 0)
            return r;
    }
    size_t n = 0;
    for (; n < ARRAY_LEN(fixed_environment); n++)
        ret[n] = fixed_environment[n];
    for (size_t i = 0; i < count; i++)
        ret[n++] = text->data + offsets[i];
    ret[n] = NULL;
    return 0;
}

/* posix_spawn(3) with the three standard descriptors and, for a work tree, its folder. */
static int spawn(const struct git_place *place, const char *const *argv,
                 const char *const *environment, const int fds[3], pid_t *ret_pid)
{
    /* It changes neither, in spite of its types. */
    const union {
        const char *const *given;
        char *const *wanted;
    } arguments = {argv}, variables = {environment};
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    sigset_t defaults;
    posix_spawn_file_actions_init(&actions);
    posix_spawnattr_init(&attributes);
    for (int i = 0; i < 3; i++)
        posix_spawn_file_actions_adddup2(&actions, fds[i], i);
    if (place->work_tree)
        posix_spawn_file_actions_addchdir_np(&actions, place->work_tree);
    sigemptyset(&defaults);
    sigaddset(&defaults, SIGPIPE);
    posix_spawnattr_setsigdefault(&attributes, &defaults);
    posix_spawnattr_setpgroup(&attributes, 0);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGDEF);
    int r = /* NOLINTNEXTLINE(clang-analyzer-core.NonNullParamChecker): it is lost in the union */
        posix_spawn(ret_pid, GIT_PATH, &actions, &attributes, arguments.wanted, variables.wanted);
    posix_spawn_file_actions_destroy(&actions);
    posix_spawnattr_destroy(&attributes);
    return -r;
}

int git_start(const struct git_place *place, const char *const *args, int stdin_fd,
              struct git_process *ret, struct err *err)
{
    const char *argv[MAX_ARGS + 2] = {"git"};
    for (size_t i = 0; args[i]; i++) {
        if (i == MAX_ARGS)
            return err_set(err, E2BIG, "git: too many arguments");
        argv[i + 1] = args[i];
    }
    cleanup_buf struct buf text = BUF_INIT(LIMIT_REPO_PATHS_BYTES);
    const char *environment[ARRAY_LEN(fixed_environment) + PLACE_VARIABLES + 1];
    int r = build_environment(place, &text, environment);
    if (r < 0)
        return err_errno(err, -r, "git: cannot build the environment");

    cleanup_fd int null_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    cleanup_fd int stderr_fd = memfd_create("git-stderr", MFD_CLOEXEC);
    int pipe_fds[2];
    if (null_fd < 0 || stderr_fd < 0 || pipe2(pipe_fds, O_CLOEXEC) < 0)
        return err_errno(err, errno, "git: cannot open its descriptors");
    cleanup_fd int read_fd = pipe_fds[0], write_fd = pipe_fds[1];
    struct git_process process = GIT_PROCESS_NONE;
    r = spawn(place, argv, environment,
              (int[3]){stdin_fd < 0 ? null_fd : stdin_fd, write_fd, stderr_fd}, &process.pid);
    if (r < 0)
        return err_errno(err, -r, "cannot run %s", GIT_PATH);
    process.stdout_fd = TAKE_FD(read_fd);
    process.stderr_fd = TAKE_FD(stderr_fd);
    *ret = process;
    return 0;
}

/* What a process has used of the processor, or 0 where that cannot be told. */
static int64_t process_cpu_ns(pid_t pid)
{
    clockid_t clock;
    struct timespec used;
    if (!pid || clock_getcpuclockid(pid, &clock) != 0 || clock_gettime(clock, &used) < 0)
        return 0;
    return (int64_t)used.tv_sec * 1000000000 + used.tv_nsec;
}

static int64_t cpu_ns(const struct git_process *process)
{
    return process_cpu_ns(process->pid) + process_cpu_ns(process->feeder);
}

/* Waits for output. A git that neither says nor computes anything is held up, by a FIFO in the
 * place of a file, say; one that computes has far more time. */
static int wait_for_output(const struct git_process *process, struct err *err)
{
    struct pollfd wait = {.fd = process->stdout_fd, .events = POLLIN};
    int64_t used = cpu_ns(process);
    int idle_ms = 0;
    for (int silent_ms = 0; silent_ms < LIMIT_GIT_SILENCE_MS && idle_ms < LIMIT_GIT_IDLE_MS;
         silent_ms += SLICE_MS) {
        if (poll(&wait, 1, SLICE_MS) != 0)
            return 0;
        int64_t before = used;
        used = cpu_ns(process);
        idle_ms = used == before ? idle_ms + SLICE_MS : 0;
    }
    return err_set(
        err, ETIMEDOUT, "git made no progress for %d s; look for a FIFO where git expects a file",
        idle_ms >= LIMIT_GIT_IDLE_MS ? LIMIT_GIT_IDLE_MS / 1000 : LIMIT_GIT_SILENCE_MS / 1000);
}

ssize_t git_read(const struct git_process *process, void *data, size_t len, struct err *err)
{
    for (;;) {
        int r = wait_for_output(process, err);
        if (r < 0)
            return r;
        ssize_t n = read(process->stdout_fd, data, len);
        if (n >= 0)
            return n;
        if (errno != EINTR)
            return err_errno(err, errno, "cannot read from git");
    }
}

/* The end of what git said on stderr, newlines as spaces, in the message. */
static int failure(const struct git_process *process, int code, struct err *err)
{
    char text[ERR_MESSAGE_MAX / 2];
    off_t size = lseek(process->stderr_fd, 0, SEEK_END);
    off_t from = size > (off_t)sizeof(text) - 1 ? size - (off_t)sizeof(text) + 1 : 0;
    ssize_t n = pread(process->stderr_fd, text, sizeof(text) - 1, from);
    size_t len = n > 0 ? (size_t)n : 0;
    while (len > 0 && text[len - 1] == '\n')
        len--;
    text[len] = '\0';
    for (char *c = text; *c; c++)
        if ((unsigned char)*c < 0x20 || *c == 0x7f)
            *c = ' ';
    return err_set(err, EINVAL, "git exited with %d: %s", code, text);
}

int git_finish(struct git_process *process, int allowed, struct err *err)
{
    int status;
    pid_t r;
    do
        r = waitpid(process->pid, &status, 0);
    while (r < 0 && errno == EINTR);
    process->pid = 0;
    if (r < 0)
        return err_errno(err, errno, "cannot wait for git");
    if (!WIFEXITED(status))
        return err_set(err, EIO, "git was killed by signal %d", WTERMSIG(status));
    if (WEXITSTATUS(status) > allowed)
        return failure(process, WEXITSTATUS(status), err);
    return WEXITSTATUS(status);
}

void git_close(struct git_process *process)
{
    if (process->pid > 0) {
        kill(-process->pid, SIGKILL);
        while (waitpid(process->pid, NULL, 0) < 0 && errno == EINTR)
            ;
    }
    cleanup_fd_at(&process->stdout_fd);
    cleanup_fd_at(&process->stderr_fd);
    *process = GIT_PROCESS_NONE;
}

int git_capture(const struct git_place *place, const char *const *args, int stdin_fd, int allowed,
                struct buf *out, struct err *err)
{
    cleanup_git struct git_process process = GIT_PROCESS_NONE;
    int r = git_start(place, args, stdin_fd, &process, err);
    if (r < 0)
        return r;
    char chunk[4096];
    ssize_t n;
    while ((n = git_read(&process, chunk, sizeof(chunk), err)) > 0) {
        r = buf_append(out, chunk, (size_t)n);
        if (r < 0)
            return err_errno(err, -r, "git %s printed too much", args[0]);
    }
    return n < 0 ? (int)n : git_finish(&process, allowed, err);
}

int git_resolve(const struct git_place *place, const char *revision, struct buf *ret,
                struct err *err)
{
    const char *args[] = {"rev-parse", "-q", "--verify", "--end-of-options", revision, NULL};
    int code = git_capture(place, args, -1, 1, ret, err);
    if (code < 0)
        return code;
    if (ret->len > 0 && ret->data[ret->len - 1] == '\n')
        ret->data[--ret->len] = '\0';
    return code == 0 && ret->len > 0;
}

/* Hands on the whole records in `pending` and leaves the begun one. */
static int take_records(struct buf *pending, git_record_fn *each, void *ctx, struct err *err)
{
    size_t begin = 0;
    const char *nul;
    while (pending->len > begin &&
           (nul = memchr(pending->data + begin, '\0', pending->len - begin))) {
        size_t len = (size_t)(nul - pending->data) - begin;
        int r = each(ctx, pending->data + begin, len, err);
        if (r < 0)
            return r;
        begin += len + 1;
    }
    buf_consume(pending, begin);
    return 0;
}

int git_records(const struct git_place *place, const char *const *args, git_record_fn *each,
                void *ctx, struct err *err)
{
    cleanup_git struct git_process process = GIT_PROCESS_NONE;
    cleanup_buf struct buf pending = BUF_INIT(READ_CHUNK + LIMIT_REPO_PATHS_BYTES);
    int r = git_start(place, args, -1, &process, err);
    while (r >= 0) {
        char *room = buf_reserve(&pending, READ_CHUNK);
        if (!room)
            return err_set(err, EINVAL, "git %s printed a path that is too long", args[0]);
        ssize_t n = git_read(&process, room, READ_CHUNK, err);
        if (n < 0)
            return (int)n;
        if (n == 0)
            return git_finish(&process, 0, err);
        pending.len += (size_t)n;
        r = take_records(&pending, each, ctx, err);
    }
    return r;
}
