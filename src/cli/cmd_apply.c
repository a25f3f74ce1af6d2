/* paddock apply: puts the changes of a sandbox into the git work tree we stand in, all of them or
 * none. The user's own git does it: git-apply(1) refuses paths that lead out of the tree, through
 * symbolic links or into .git. */
#include <assert.h>
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

#define GIT_OUTPUT_BYTES ((size_t)1024 * 1024)
#define PATCH_ARGUMENTS 6

struct work_tree {
    bool is_json; /* nothing but JSON is printed */
    FILE *patch;
    char *top;   /* paths of a patch begin there */
    char *index; /* git's, by an absolute path */
};

static void work_tree_free(struct work_tree *tree)
{
    if (tree->patch)
        fclose(tree->patch);
    free(tree->top);
    free(tree->index);
}

#define cleanup_tree __attribute__((cleanup(work_tree_free)))

/* Runs git with the descriptor as its input; all it prints goes to *ret. Returns its exit status,
 * or a negative errno. */
static int run_git(const char *const *arguments, int input_fd, struct buf *ret)
{
    union { /* posix_spawn(3) changes neither strings nor array */
        const char *const *in;
        char *const *out;
    } argv = {.in = arguments};
    int pipe_fds[2];
    if (pipe2(pipe_fds, O_CLOEXEC) < 0)
        return -errno;
    cleanup_fd int read_fd = pipe_fds[0];
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, input_fd, STDIN_FILENO);
    posix_spawn_file_actions_adddup2(&actions, pipe_fds[1], STDOUT_FILENO);
    posix_spawn_file_actions_adddup2(&actions, pipe_fds[1], STDERR_FILENO);
    pid_t pid;
    int code = posix_spawnp(&pid, "git", &actions, NULL, argv.out, environ);
    posix_spawn_file_actions_destroy(&actions);
    close(pipe_fds[1]);
    if (code != 0)
        return -code;
    int result = fd_read_all(read_fd, ret);
    close(TAKE_FD(read_fd));
    int status;
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    if (result < 0)
        return result;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/* What git said, made safe: it names files of the patch. */
static enum cli_exit refuse(const struct work_tree *tree, const char *what, int status,
                            const struct buf *said, struct err *err)
{
    if (status < 0)
        return cli_fail(err, CLI_FAILED, "git: %s", strerror(-status));
    if (tree->is_json)
        return cli_fail(err, CLI_FAILED, "%s: %.800s", what, buf_text(said));
    cli_write(stderr, buf_text(said), said->len);
    return cli_fail(err, CLI_FAILED, "%s", what);
}

static enum cli_exit find_work_tree(struct work_tree *tree, struct err *err)
{
    static const char *const argv[] = {
        "git",   "rev-parse", "--path-format=absolute", "--show-toplevel", "--git-path",
        "index", NULL};
    cleanup_buf struct buf said = BUF_INIT(GIT_OUTPUT_BYTES);
    int status = run_git(argv, fileno(tree->patch), &said);
    if (status != 0)
        return refuse(tree, "stand in a git work tree, for example in your clone", status, &said,
                      err);
    char *lines[2] = {0};
    char *at = said.data;
    for (size_t i = 0; i < ARRAY_LEN(lines) && at; i++)
        lines[i] = strsep(&at, "\n");
    tree->top = lines[0] ? strdup(lines[0]) : NULL;
    tree->index = lines[1] ? strdup(lines[1]) : NULL;
    return tree->top && tree->index ? CLI_OK
                                    : cli_fail(err, CLI_FAILED, "git rev-parse told no work tree");
}

/* `git apply` of the patch, with up to two options. */
static int apply(const struct work_tree *tree, const char *first, const char *second,
                 struct buf *said)
{
    const char *argv[PATCH_ARGUMENTS + 2] = {"git", "-C", tree->top, "apply"};
    size_t count = 4;
    if (first)
        argv[count++] = first;
    if (second)
        argv[count++] = second;
    buf_clear(said);
    rewind(tree->patch);
    return run_git(argv, fileno(tree->patch), said);
}

/* A file in $TMPDIR; its path is needed by git. A negative errno. */
static int make_temporary(char ret[PATH_MAX])
{
    const char *folder = getenv("TMPDIR");
    int len = snprintf(ret, PATH_MAX, "%s/paddock-apply.XXXXXX",
                       folder && folder[0] == '/' ? folder : "/tmp");
    if (len < 0 || len >= PATH_MAX)
        return -ENAMETOOLONG;
    int fd = mkostemp(ret, O_CLOEXEC);
    return fd < 0 ? -errno : fd;
}

/* One without a name. NULL with errno. */
static FILE *temporary(void)
{
    char path[PATH_MAX];
    int fd = make_temporary(path);
    if (fd < 0) {
        errno = -fd;
        return NULL;
    }
    unlink(path);
    FILE *file = fdopen(fd, "w+");
    if (!file)
        close(fd);
    return file;
}

static bool copy_file(const char *from, int to_fd)
{
    cleanup_fd int fd = open(from, O_RDONLY | O_CLOEXEC);
    char chunk[65536];
    ssize_t n = fd < 0 ? -1 : 1;
    while (n > 0 && (n = read(fd, chunk, sizeof(chunk))) > 0)
        if (fd_write_all(to_fd, chunk, (size_t)n) < 0)
            return false;
    return n == 0;
}

/* A three-way merge leaves conflict marks where it fails: it is tried in a copy of the index. */
static int try_three_way(const struct work_tree *tree, struct buf *said)
{
    assert(tree->index); /* find_work_tree */
    char copy[PATH_MAX];
    cleanup_fd int fd = make_temporary(copy);
    if (fd < 0)
        return fd;
    int status = -EIO;
    if (copy_file(tree->index, fd) && setenv("GIT_INDEX_FILE", copy, 1) == 0) {
        status = apply(tree, "--3way", "--cached", said);
        unsetenv("GIT_INDEX_FILE");
    }
    unlink(copy);
    return status;
}

static enum cli_exit apply_all(const struct work_tree *tree, struct err *err)
{
    cleanup_buf struct buf said = BUF_INIT(GIT_OUTPUT_BYTES);
    int status = apply(tree, "--check", NULL, &said);
    const char *mode = NULL;
    if (status > 0) {
        status = try_three_way(tree, &said);
        mode = "--3way";
    }
    if (status == 0)
        status = apply(tree, mode, NULL, &said);
    if (status != 0)
        return refuse(tree, "the changes do not fit this work tree; nothing was changed", status,
                      &said, err);
    return CLI_OK;
}

static void on_patch(void *ctx, const char *data, size_t len)
{
    fwrite(data, 1, len, ctx);
}

enum cli_exit cmd_apply(struct cli *cli, struct err *err)
{
    cleanup_tree struct work_tree tree = {.is_json = cli->values[OPTION_JSON] != NULL,
                                          .patch = temporary()};
    if (!tree.patch)
        return cli_fail(err, CLI_FAILED, "a temporary file in $TMPDIR: %s", strerror(errno));
    enum cli_exit status = find_work_tree(&tree, err);
    if (status == CLI_OK)
        status = cli_diff(cli, true, on_patch, tree.patch, err);
    if (status != CLI_OK)
        return status;
    if (fflush(tree.patch) != 0 || ferror(tree.patch))
        return cli_fail(err, CLI_FAILED, "the changes cannot be kept in a temporary file: %s",
                        strerror(errno));
    if (ftell(tree.patch) == 0) {
        puts(cli->values[OPTION_JSON] ? "{\"applied\":false}"
                                      : "nothing has changed since the clone");
        return CLI_OK;
    }
    status = apply_all(&tree, err);
    if (status == CLI_OK && cli->values[OPTION_JSON])
        puts("{\"applied\":true}");
    return status;
}
