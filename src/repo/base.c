/*
 * The saved pack of a clone; see diff.h. Process: paddock-jail. Git packs what HEAD's commit needs,
 * as a commit without parents, from a view of the repository; a second git indexes the stream,
 * which computes the name of every object anew. HEAD is written last: a broken copy has none.
 */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "repo/diff.h"
#include "repo/view.h"
#include "util/cleanup.h"
#include "util/fd.h"
#include "util/limits.h"

#define NO_COMMIT "ref: refs/heads/none\n"

/* An empty bare repository with the view's format of objects. */
static int make_bare(int dir_fd, const struct repo_view *view, struct err *err)
{
    static const char *const folders[] = {"objects", "objects/info", "objects/pack", "refs"};
    for (size_t i = 0; i < ARRAY_LEN(folders); i++)
        if (mkdirat(dir_fd, folders[i], 0755) < 0)
            return err_errno(err, errno, "cannot make %s of the saved clone", folders[i]);
    const char *config = view->is_sha256 ? "[core]\n\trepositoryformatversion = 1\n\tbare = true\n"
                                           "[extensions]\n\tobjectformat = sha256\n"
                                         : "[core]\n\trepositoryformatversion = 0\n\tbare = true\n";
    int r = fd_write_file_atomic(dir_fd, "config", 0644, config, strlen(config), err);
    return r < 0 ? r
                 : fd_write_file_atomic(dir_fd, "HEAD", 0644, NO_COMMIT, strlen(NO_COMMIT), err);
}

/* A sealed memfd with one line, at its beginning. */
static int line_fd(const struct buf *line, struct err *err)
{
    return fd_sealed("commit", line->data, line->len, err);
}

/* In view and copy the commit has no parents, be the clone shallow or not. */
static int cut_history(const struct repo_view *view, int base_fd, const struct buf *line,
                       struct err *err)
{
    cleanup_fd int view_fd = open(view->git_dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
    int r = fd_write_file_atomic(view_fd, "shallow", 0644, line->data, line->len, err);
    return r < 0 ? r : fd_write_file_atomic(base_fd, "shallow", 0644, line->data, line->len, err);
}

static int copy_objects(const struct repo_view *view, const char *base_git, const struct buf *line,
                        struct err *err)
{
    static const char *const pack[] = {"pack-objects", "-q",          "--revs", "--stdout",
                                       "--window=0",   "--threads=1", NULL};
    static const char *const index[] = {"index-pack", "--stdin", "--threads=1", NULL};
    const struct git_place base = {.git_dir = base_git, .exec_path = view->place.exec_path};
    cleanup_fd int stdin_fd = line_fd(line, err);
    if (stdin_fd < 0)
        return stdin_fd;
    cleanup_git struct git_process from = GIT_PROCESS_NONE, to = GIT_PROCESS_NONE;
    int r = git_start(&view->place, pack, stdin_fd, &from, err);
    if (r == 0)
        r = git_start(&base, index, from.stdout_fd, &to, err);
    if (r < 0)
        return r;
    to.feeder = from.pid;
    close(TAKE_FD(from.stdout_fd)); /* else pack-objects would not notice that index-pack is gone */
    char chunk[256];
    ssize_t n;
    while ((n = git_read(&to, chunk, sizeof(chunk), err)) > 0)
        ;
    if (n < 0)
        return (int)n;
    /* A pack cut short makes both fail: the reason is the first one's. */
    struct err index_err = {0};
    int index_result = git_finish(&to, 0, &index_err);
    r = git_finish(&from, 0, err);
    return r < 0 || index_result == 0 ? r : err_set(err, -index_result, "%s", index_err.message);
}

static int save_head(const struct repo_view *view, const char *base_git, int base_fd,
                     struct err *err)
{
    cleanup_buf struct buf head = BUF_INIT(128);
    int r = git_resolve(&view->place, "HEAD", &head, err);
    if (r <= 0)
        return r;
    if (buf_append_string(&head, "\n") < 0)
        return err_set(err, ENOMEM, "out of memory");
    r = cut_history(view, base_fd, &head, err);
    if (r == 0)
        r = copy_objects(view, base_git, &head, err);
    if (r == 0)
        r = fd_write_file_atomic(base_fd, "HEAD", 0644, head.data, head.len, err);
    return r;
}

int repo_save_base(const char *workspace, const char *base_git, struct err *err)
{
    cleanup_scratch struct repo_scratch scratch = REPO_SCRATCH_NONE;
    cleanup_free struct repo_view *view = malloc(sizeof(*view));
    int r = view ? repo_scratch_open(workspace, &scratch, err) : -ENOMEM;
    if (r == 0)
        r = repo_view_make(&scratch, ".", NULL, view, err);
    if (r < 0)
        return r;
    cleanup_fd int base_fd = open(base_git, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (base_fd < 0)
        return err_errno(err, errno, "cannot open %s", base_git);
    r = make_bare(base_fd, view, err);
    if (r == 0)
        r = save_head(view, base_git, base_fd, err);
    return r < 0 ? err_context(err, r, "cannot save the clone") : 0;
}
