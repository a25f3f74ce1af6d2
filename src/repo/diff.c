/*
 * The diff; see diff.h. Process: paddock-jail. The text must equal git's byte for byte, in every
 * corner of attributes, encodings, split indexes and submodules, which libgit2's deltas and hunks
 * do not (UTF-16 by working-tree-encoding is binary to it, a split index an error): so the host's
 * git itself prints, on a view of the repository (view.h). Invariants: nothing is written outside
 * of /tmp; memory is bounded by the part held back.
 */
#include "repo/diff.h"

#include <ctype.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "repo/abbrev.h"
#include "repo/entries.h"
#include "repo/view.h"
#include "util/cleanup.h"
#include "util/fd.h"
#include "util/limits.h"

#define READ_CHUNK 65536

/* The beginning of the text, held back until it is sure or too long. */
struct output {
    int fd;
    bool is_begun; /* something was printed: no second try */
    struct buf held;
};

static int output_flush(struct output *output, struct err *err)
{
    int r = fd_write_all(output->fd, buf_text(&output->held), output->held.len);
    if (output->held.len > 0)
        output->is_begun = true;
    buf_clear(&output->held);
    return r < 0 ? err_set(err, EIO, "cannot print the diff: %s", strerror(-r)) : 0;
}

static int relay(const struct git_process *process, struct output *output, struct err *err)
{
    for (;;) {
        char *room = buf_reserve(&output->held, READ_CHUNK);
        if (!room)
            return err_set(err, ENOMEM, "out of memory for the diff");
        ssize_t n = git_read(process, room, READ_CHUNK, err);
        if (n <= 0)
            return (int)n;
        output->held.len += (size_t)n;
        if (output->is_begun || output->held.len > LIMIT_DIFF_HELD_BYTES) {
            int r = output_flush(output, err);
            if (r < 0)
                return r;
        }
    }
}

/* `object` NULL: the index. */
static int print_diff(const struct repo_diff_options *options, const struct repo_view *view,
                      const char *object, struct output *output, struct err *err)
{
    const char *args[10] = {"diff", "--no-ext-diff", "--no-textconv",
                            options->renames ? "--find-renames" : "--no-renames"};
    size_t n = 4;
    if (options->binary) {
        args[n++] = "--binary";
        args[n++] = "--full-index";
    }
    if (object)
        args[n++] = object;
    args[n++] = "--";
    cleanup_git struct git_process process = GIT_PROCESS_NONE;
    int r = git_start(&view->place, args, -1, &process, err);
    if (r == 0)
        r = relay(&process, output, err);
    if (r == 0)
        r = git_finish(&process, 0, err);
    return r;
}

/* The commit that repo_save_base left, or none (0): the clone had no commit. */
static int read_base(const char *base_git, struct buf *ret, struct err *err)
{
    cleanup_fd int dir_fd = open(base_git, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (dir_fd < 0)
        return errno == ENOENT ? 0 : err_errno(err, errno, "cannot open %s", base_git);
    cleanup_fd int fd = fd_open_beneath(dir_fd, "HEAD", O_RDONLY, 0, true, err);
    if (fd == -ENOENT)
        return 0;
    int r = fd < 0 ? fd : fd_read_all(fd, ret);
    if (r < 0)
        return err_context(err, r, "the saved clone");
    while (ret->len > 0 && ret->data[ret->len - 1] == '\n')
        ret->data[--ret->len] = '\0';
    for (size_t i = 0; i < ret->len; i++)
        if (!isxdigit((unsigned char)ret->data[i]))
            return 0;
    return ret->len > 0;
}

/* The object to compare with, in *ret: what was asked for, or the empty tree where there is no
 * commit yet. */
static int find_object(const struct repo_diff_options *options, const struct repo_view *view,
                       struct buf *ret, struct err *err)
{
    int found = 0;
    if (options->against == REPO_SINCE_CLONE && options->base_git) {
        found = read_base(options->base_git, ret, err);
    } else if (options->against == REPO_HEAD) {
        found = git_resolve(&view->place, "HEAD", ret, err);
    } else if (options->against == REPO_REVISION) {
        cleanup_buf struct buf commit = BUF_INIT(LIMIT_REVISION_BYTES + 16);
        if (buf_appendf(&commit, "%s^{commit}", options->revision) < 0)
            return err_set(err, EINVAL, "the revision is too long");
        found = git_resolve(&view->place, commit.data, ret, err);
        if (found == 0)
            return err_set(err, EINVAL, "there is no such revision");
    }
    if (found < 0)
        return err_context(err, -EINVAL, "cannot find the commit to compare with");
    if (found == 1)
        return 0;
    buf_clear(ret);
    return buf_append_string(ret, view->is_sha256 ? REPO_EMPTY_TREE_SHA256 : REPO_EMPTY_TREE_SHA1);
}

/* git shortens names by how many objects are in packs, of which base.git holds some a second time:
 * it is told the length that it would find in the repository alone. */
static int set_abbreviation(const struct repo_scratch *scratch, const struct repo_view *view,
                            struct err *err)
{
    char setting[64];
    snprintf(setting, sizeof(setting), "[core]\n\tabbrev = %d\n",
             repo_abbrev_of(scratch->root_fd, view->agent_git_dir));
    return repo_view_configure(view, setting, err);
}

static int try_diff(const struct repo_diff_options *options, struct output *output, struct err *err)
{
    cleanup_scratch struct repo_scratch scratch = REPO_SCRATCH_NONE;
    cleanup_free struct repo_view *view = malloc(sizeof(*view));
    cleanup_buf struct buf object = BUF_INIT(128);
    int r = view ? repo_scratch_open(options->workspace, &scratch, err) : -ENOMEM;
    bool is_index = options->against == REPO_INDEX;
    if (r == 0)
        r = repo_view_make(&scratch, ".", is_index ? NULL : options->base_git, view, err);
    if (r == 0 && !is_index)
        r = find_object(options, view, &object, err);
    if (r == 0)
        r = set_abbreviation(&scratch, view, err);
    if (r == 0 && !is_index)
        r = repo_trust_no_index(view, object.data, err);
    if (r == 0)
        r = is_index ? repo_intend_untracked(view, err) : repo_add_untracked(&scratch, view, err);
    if (r == 0)
        r = repo_view_submodules(&scratch, view, err);
    if (r == 0)
        r = print_diff(options, view, is_index ? NULL : object.data, output, err);
    return r;
}

int repo_diff(const struct repo_diff_options *options, int out_fd, struct err *err)
{
    struct output output = {.fd = out_fd, .held = BUF_INIT(LIMIT_DIFF_HELD_BYTES + 2 * READ_CHUNK)};
    int r;
    int tries = 0;
    do {
        buf_clear(&output.held);
        r = try_diff(options, &output, err);
    } while (r < 0 && r != -ENOENT && r != -ETIMEDOUT && !output.is_begun &&
             ++tries < LIMIT_DIFF_TRIES);
    if (r == 0)
        r = output_flush(&output, err);
    buf_free(&output.held);
    return r;
}
