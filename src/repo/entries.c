/*
 * Entries of a view's index; see entries.h. Process: paddock-jail. Invariants: paths come from git
 * and go to git as records ended by NUL; nothing of the work tree is opened here but through views.
 */
#include "repo/entries.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "util/cleanup.h"
#include "util/fd.h"
#include "util/limits.h"

#define WRITE_CHUNK 65536

/* Any object but a blob that a file could have: git then looks at the file itself. */
#define NO_OBJECT "1111111111111111111111111111111111111111111111111111111111111111"
#define SHA1_DIGITS 40
#define SHA256_DIGITS 64

struct untracked {
    const struct repo_scratch *scratch;
    const struct repo_view *view;
    int to_fd; /* stdin of `git update-index` */
    struct buf pending;
};

static int flush(struct untracked *untracked, struct err *err)
{
    int r = fd_write_all(untracked->to_fd, buf_text(&untracked->pending), untracked->pending.len);
    buf_clear(&untracked->pending);
    return r < 0 ? err_errno(err, -r, "cannot hand paths to git update-index") : 0;
}

/* The commit of a nested clone in *ret; 1 when it has one. A refused one counts as none: git could
 * not add it either. */
static int nested_head(const struct untracked *untracked, const char *path, struct buf *ret)
{
    struct repo_view *view = malloc(sizeof(*view));
    int r = view ? repo_view_make(untracked->scratch, path, NULL, view, NULL) : -ENOMEM;
    if (r == 0)
        r = git_resolve(&view->place, "HEAD", ret, NULL);
    free(view);
    return r == 1;
}

/* One record of `git ls-files --others`: a file, or a nested clone with a slash behind. */
static int add_path(void *ctx, const char *path, size_t len, struct err *err)
{
    struct untracked *untracked = ctx;
    bool is_nested = len > 0 && path[len - 1] == '/';
    if (is_nested)
        len--;
    if (!repo_path_is_plain(path, len))
        return 0;
    cleanup_buf struct buf head = BUF_INIT(SHA256_DIGITS + 1);
    cleanup_buf struct buf name = BUF_INIT(LIMIT_REPO_PATHS_BYTES);
    int r = buf_append(&name, path, len);
    if (r < 0)
        return err_errno(err, -r, "the path of an untracked file is too long");
    if (is_nested && !nested_head(untracked, name.data, &head))
        return 0;
    int digits = untracked->view->is_sha256 ? SHA256_DIGITS : SHA1_DIGITS;
    r = buf_appendf(&untracked->pending, "%s %.*s\t%s%c", is_nested ? "160000" : "100644", digits,
                    is_nested ? head.data : NO_OBJECT, name.data, '\0');
    if (r < 0)
        return err_errno(err, -r, "cannot keep the path of an untracked file");
    return untracked->pending.len >= WRITE_CHUNK ? flush(untracked, err) : 0;
}

/* Starts a git that reads from a pipe; *ret_fd is the end to write to. */
static int start_reader(const struct repo_view *view, const char *const *args,
                        struct git_process *ret, int *ret_fd, struct err *err)
{
    int fds[2];
    if (pipe2(fds, O_CLOEXEC) < 0)
        return err_errno(err, errno, "cannot make a pipe");
    cleanup_fd int read_fd = fds[0], write_fd = fds[1];
    int r = git_start(&view->place, args, read_fd, ret, err);
    if (r == 0)
        *ret_fd = TAKE_FD(write_fd);
    return r;
}

/* Waits for a git that prints nothing. */
static int finish_quiet(struct git_process *process, struct err *err)
{
    char byte;
    ssize_t n;
    while ((n = git_read(process, &byte, 1, err)) > 0)
        ;
    return n < 0 ? (int)n : git_finish(process, 0, err);
}

/* Entries on their way from a file to a new index. */
struct entries {
    int fd;
    struct buf pending;
    struct buf last; /* the last path that has several stages */
};

static int entries_flush(struct entries *entries, struct err *err)
{
    int r = fd_write_all(entries->fd, buf_text(&entries->pending), entries->pending.len);
    buf_clear(&entries->pending);
    return r < 0 ? err_errno(err, -r, "cannot keep the entries of the index") : 0;
}

/* An unmerged path takes the place of what the tree has there: "0" removes (git-update-index(1)).
 */
static int clear_unmerged(struct entries *entries, const char *path)
{
    if (entries->last.len && strcmp(entries->last.data, path) == 0)
        return 0;
    buf_clear(&entries->last);
    int r = buf_append_string(&entries->last, path);
    if (r == 0)
        r = buf_appendf(&entries->pending, "0 %.*s\t%s%c", SHA1_DIGITS, NO_OBJECT, path, '\0');
    return r;
}

/* One record of ls-tree ("MODE TYPE OBJECT\tPATH") or of ls-files ("MODE OBJECT STAGE\tPATH"). */
static int keep_entry(void *ctx, const char *record, size_t len, struct err *err)
{
    struct entries *entries = ctx;
    const char *tab = memchr(record, '\t', len);
    int r = 0;
    if (!tab || !repo_path_is_plain(tab + 1, len - (size_t)(tab + 1 - record)))
        return 0;
    if (tab - record > 2 && tab[-2] == ' ' && tab[-1] != '0')
        r = clear_unmerged(entries, tab + 1);
    if (r == 0)
        r = buf_append(&entries->pending, record, len + 1);
    if (r < 0)
        return err_errno(err, -r, "the path of a file is too long");
    return entries->pending.len >= WRITE_CHUNK ? entries_flush(entries, err) : 0;
}

static int list_entries(const struct repo_view *view, const char *tree, struct entries *entries,
                        struct err *err)
{
    static const char *const staged[] = {"ls-files", "-z", "--stage", NULL};
    const char *const in_tree[] = {"ls-tree", "-r", "-z", "--full-tree", tree, NULL};
    int r = tree ? git_records(&view->place, in_tree, keep_entry, entries, err) : 0;
    if (r >= 0)
        r = git_records(&view->place, staged, keep_entry, entries, err);
    return r < 0 ? r : entries_flush(entries, err);
}

/* What git does by itself with an honest index: notes the times of files that are as they were. */
static int refresh(const struct repo_view *view, struct err *err)
{
    static const char *const args[] = {"update-index", "-q", "--unmerged", "--refresh", NULL};
    cleanup_buf struct buf text = BUF_INIT(LIMIT_REPO_PATHS_BYTES);
    int r = git_capture(&view->place, args, -1, 1, &text, err); /* 1: some are changed */
    return r < 0 ? r : 0;
}

int repo_trust_no_index(const struct repo_view *view, const char *tree, struct err *err)
{
    static const char *const update[] = {"update-index", "-z", "--index-info", NULL};
    cleanup_fd int dir_fd = open(view->git_dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
    cleanup_fd int fd = openat(dir_fd, "entries", O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0)
        return err_errno(err, errno, "cannot make a file for entries");
    struct entries entries = {.fd = fd,
                              .pending = BUF_INIT(WRITE_CHUNK + 4 * LIMIT_REPO_PATHS_BYTES),
                              .last = BUF_INIT(LIMIT_REPO_PATHS_BYTES)};
    int r = list_entries(view, tree, &entries, err);
    buf_free(&entries.pending);
    buf_free(&entries.last);
    if (r < 0)
        return r;
    if ((unlinkat(dir_fd, "index", 0) < 0 && errno != ENOENT) || lseek(fd, 0, SEEK_SET) < 0)
        return err_errno(err, errno, "cannot put an index in place");
    cleanup_git struct git_process process = GIT_PROCESS_NONE;
    r = git_start(&view->place, update, fd, &process, err);
    if (r == 0)
        r = finish_quiet(&process, err);
    unlinkat(dir_fd, "entries", 0);
    return r < 0 ? r : refresh(view, err);
}

int repo_add_untracked(const struct repo_scratch *scratch, const struct repo_view *view,
                       struct err *err)
{
    static const char *const list[] = {"ls-files", "-z", "--others", "--exclude-standard", NULL};
    static const char *const update[] = {"update-index", "-z", "--index-info", NULL};
    cleanup_git struct git_process process = GIT_PROCESS_NONE;
    cleanup_fd int to_fd = -1;
    int r = start_reader(view, update, &process, &to_fd, err);
    if (r < 0)
        return r;
    struct untracked untracked = {
        .scratch = scratch,
        .view = view,
        .to_fd = to_fd,
        .pending = BUF_INIT(WRITE_CHUNK + 2 * LIMIT_REPO_PATHS_BYTES),
    };
    r = git_records(&view->place, list, add_path, &untracked, err);
    if (r >= 0)
        r = flush(&untracked, err);
    buf_free(&untracked.pending);
    if (r < 0)
        return r;
    close(TAKE_FD(to_fd));
    return finish_quiet(&process, err);
}

int repo_intend_untracked(const struct repo_view *view, struct err *err)
{
    static const char *const list[] = {"ls-files", "-z", "--others", "--exclude-standard", NULL};
    static const char *const add[] = {"add",
                                      "--intent-to-add",
                                      "--ignore-errors",
                                      "--pathspec-from-file=-",
                                      "--pathspec-file-nul",
                                      NULL};
    cleanup_git struct git_process from = GIT_PROCESS_NONE, to = GIT_PROCESS_NONE;
    int r = git_start(&view->place, list, -1, &from, err);
    if (r == 0)
        r = git_start(&view->place, add, from.stdout_fd, &to, err);
    if (r < 0)
        return r;
    to.feeder = from.pid;
    close(TAKE_FD(from.stdout_fd)); /* else ls-files would not notice that add is gone */
    char byte;
    ssize_t n;
    while ((n = git_read(&to, &byte, 1, err)) > 0)
        ;
    r = n < 0 ? (int)n : git_finish(&to, 1, err); /* 1: some could not be added */
    return r < 0 ? r : git_finish(&from, 0, err);
}

struct submodules {
    const struct repo_scratch *scratch;
    const char *prefix; /* the work tree they are in, relative to the root, with a slash, or "" */
    int depth, *count;
};

static int view_submodules(const struct repo_view *view, struct submodules *submodules,
                           struct err *err);

/* The submodule at `path`: its view, and those in it. One that is not there or is refused gets no
 * view, and so counts as clean. */
static int view_submodule(const struct submodules *outer, const char *path, struct err *err)
{
    if (++*outer->count > LIMIT_REPO_SUBMODULES)
        return err_set(err, E2BIG, "more than %d submodules", LIMIT_REPO_SUBMODULES);
    struct repo_view *view = malloc(sizeof(*view));
    cleanup_buf struct buf prefix = BUF_INIT(LIMIT_REPO_PATHS_BYTES);
    int r = view ? buf_appendf(&prefix, "%s/", path) : -ENOMEM;
    if (r < 0) {
        free(view);
        return err_errno(err, -r, "cannot look into a submodule");
    }
    r = repo_view_make(outer->scratch, path, NULL, view, err);
    if (r == 0) {
        struct submodules inner = {outer->scratch, prefix.data, outer->depth + 1, outer->count};
        r = repo_trust_no_index(view, NULL, err);
        if (r == 0)
            r = view_submodules(view, &inner, err);
    } else if (r == -ENOENT || r == -EINVAL || r == -EEXIST) {
        r = 0;
    }
    free(view);
    return r;
}

/* One record of `git ls-files --stage`: "MODE OBJECT STAGE\tPATH". */
static int look_at_entry(void *ctx, const char *record, size_t len, struct err *err)
{
    const struct submodules *submodules = ctx;
    const char *tab = memchr(record, '\t', len);
    if (!tab || len < 7 || memcmp(record, "160000 ", 7) != 0)
        return 0;
    cleanup_buf struct buf path = BUF_INIT(LIMIT_REPO_PATHS_BYTES);
    int r = buf_appendf(&path, "%s%s", submodules->prefix, tab + 1);
    if (r < 0)
        return err_errno(err, -r, "the path of a submodule is too long");
    return view_submodule(submodules, path.data, err);
}

static int view_submodules(const struct repo_view *view, struct submodules *submodules,
                           struct err *err)
{
    static const char *const list[] = {"ls-files", "-z", "--stage", NULL};
    if (submodules->depth > LIMIT_REPO_SUBMODULE_DEPTH)
        return err_set(err, E2BIG, "submodules nest deeper than %d", LIMIT_REPO_SUBMODULE_DEPTH);
    return git_records(&view->place, list, look_at_entry, submodules, err);
}

int repo_view_submodules(const struct repo_scratch *scratch, const struct repo_view *view,
                         struct err *err)
{
    int count = 0;
    struct submodules top = {.scratch = scratch, .prefix = "", .count = &count};
    return view_submodules(view, &top, err);
}
