/*
 * Views of repositories; see view.h. Process: paddock-jail. Invariants: the agent's files are
 * opened beneath the work tree, without following links, regular files only, and copied whole up to
 * a limit; what git reads by itself later (objects, loose refs, the work tree) is data to it.
 */
#include "repo/view.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/sendfile.h>
#include <sys/stat.h>

#include "repo/config.h"
#include "util/cleanup.h"
#include "util/fd.h"
#include "util/limits.h"

/* git asks for `git status` in each submodule, with the submodule's own configuration. It finds
 * this instead: the same in the submodule's view, or nothing where there is none. */
#define SUBMODULE_GIT                                                                              \
    "#!/usr/bin/sh\n"                                                                              \
    "cd -P . && view=%s/views$PWD/.git && test -d \"$view\" || exit 0\n"                           \
    "export GIT_DIR=\"$view\" GIT_WORK_TREE=\"$PWD\"\n"                                            \
    "exec /usr/bin/git \"$@\"\n"

/* Over the agent's settings. Caches that an agent could have forged are not used; names that only
 * other systems mind are shown. */
#define OWN_SETTINGS                                                                               \
    "[core]\n\tuntrackedCache = false\n\tfsmonitor = false\n\tcommitGraph = false\n"               \
    "\tmultiPackIndex = false\n\tprotectNTFS = false\n\tprotectHFS = false\n"

/* The files that are copied, where they are. */
static const struct {
    const char *name;
    off_t max_bytes;
} copied[] = {
    {"HEAD", LIMIT_REPO_PATHS_BYTES},       {"index", LIMIT_REPO_INDEX_BYTES},
    {"packed-refs", LIMIT_REPO_REFS_BYTES}, {"shallow", LIMIT_REPO_REFS_BYTES},
    {"info/exclude", LIMIT_CONFIG_BYTES},   {"info/attributes", LIMIT_CONFIG_BYTES},
};

bool repo_path_is_plain(const char *path, size_t len)
{
    for (size_t begin = 0, end; begin <= len; begin = end + 1) {
        const char *slash = memchr(path + begin, '/', len - begin);
        end = slash ? (size_t)(slash - path) : len;
        const char *part = path + begin;
        size_t part_len = end - begin;
        bool is_dots = part_len <= 2 && memcmp(part, "..", part_len) == 0; /* "" as well */
        if (is_dots || (part_len == 4 && strncasecmp(part, ".git", 4) == 0))
            return false;
    }
    return true;
}

static int write_new(int dir_fd, const char *name, mode_t mode, const struct buf *text,
                     struct err *err)
{
    cleanup_fd int fd = openat(dir_fd, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
    int r = fd < 0 ? -errno : fd_write_all(fd, buf_text(text), text->len);
    return r < 0 ? err_errno(err, -r, "cannot write %s", name) : 0;
}

int repo_scratch_open(const char *root, struct repo_scratch *ret, struct err *err)
{
    cleanup_scratch struct repo_scratch scratch = {.root = root,
                                                   .path = "/tmp/paddock-repo.XXXXXX"};
    scratch.root_fd = open(root, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (scratch.root_fd < 0 && (errno == ENOENT || errno == ENOTDIR))
        return err_set(err, ENOENT, "There is no repository. Clone one first");
    if (scratch.root_fd < 0)
        return err_errno(err, errno, "cannot open %s", root);
    if (!mkdtemp(scratch.path))
        return err_errno(err, errno, "cannot make a folder in /tmp");
    snprintf(scratch.exec_path, sizeof(scratch.exec_path), "%s/exec", scratch.path);
    cleanup_fd int scratch_fd = open(scratch.path, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (scratch_fd < 0 || mkdirat(scratch_fd, "exec", 0700) < 0 ||
        mkdirat(scratch_fd, "views", 0700) < 0)
        return err_errno(err, errno, "cannot make folders in %s", scratch.path);
    cleanup_buf struct buf script = BUF_INIT(LIMIT_REPO_PATHS_BYTES);
    int r = buf_appendf(&script, SUBMODULE_GIT, scratch.path);
    if (r == 0)
        r = write_new(scratch_fd, "exec/git", 0700, &script, err);
    if (r < 0)
        return r;
    *ret = scratch;
    scratch.root_fd = -1;
    return 0;
}

void repo_scratch_close(struct repo_scratch *scratch)
{
    cleanup_fd_at(&scratch->root_fd);
    scratch->root_fd = -1;
}

/* The folder that a gitfile names ("gitdir: RELATIVE"), relative to the root. */
static int read_gitfile(const struct repo_scratch *scratch, const char *path, char ret[PATH_MAX],
                        struct err *err)
{
    cleanup_buf struct buf text = BUF_INIT(PATH_MAX);
    char file[PATH_MAX];
    if ((size_t)snprintf(file, sizeof(file), "%s/.git", path) >= sizeof(file))
        return err_set(err, ENAMETOOLONG, "the path of a submodule is too long");
    cleanup_fd int fd = fd_open_beneath(scratch->root_fd, file, O_RDONLY, 0, true, err);
    int r = fd < 0 ? fd : fd_read_all(fd, &text);
    if (r < 0)
        return err_set(err, EINVAL, "%s cannot be read as a file that names a git folder", file);
    while (text.len > 0 && strchr("\r\n", text.data[text.len - 1]))
        text.data[--text.len] = '\0';
    static const char prefix[] = "gitdir: ";
    const char *target = buf_text(&text) + sizeof(prefix) - 1;
    if (strncmp(buf_text(&text), prefix, sizeof(prefix) - 1) != 0 ||
        strlen(buf_text(&text)) < text.len)
        return err_set(err, EINVAL, "%s does not name a git folder", file);
    if (target[0] == '/')
        return err_set(err, EINVAL, "%s leads out of the work tree by an absolute path", file);
    if ((size_t)snprintf(ret, PATH_MAX, "%s/%s", path, target) >= PATH_MAX)
        return err_set(err, ENAMETOOLONG, "%s names too long a path", file);
    return 0;
}

/* Finds the git folder of the work tree `path`, relative to the root. */
static int find_git_dir(const struct repo_scratch *scratch, const char *path, char ret[PATH_MAX],
                        struct err *err)
{
    bool is_top = strcmp(path, ".") == 0;
    if (!is_top && !repo_path_is_plain(path, strlen(path)))
        return err_set(err, EINVAL, "a submodule's path leads out of the work tree");
    if ((size_t)snprintf(ret, PATH_MAX, "%s%s.git", is_top ? "" : path, is_top ? "" : "/") >=
        PATH_MAX)
        return err_set(err, ENAMETOOLONG, "the path of a submodule is too long");
    struct stat st;
    cleanup_fd int fd = fd_open_beneath(scratch->root_fd, ret, O_PATH, 0, false, NULL);
    if (fd == -ENOENT || fd == -ENOTDIR)
        return err_set(err, ENOENT, "There is no repository. Clone one first");
    if (fd == -ELOOP)
        return err_set(err, EINVAL, "%s is a symbolic link, or behind one; it is not followed",
                       ret);
    if (fd < 0 || fstat(fd, &st) < 0)
        return err_errno(err, fd < 0 ? -fd : errno, "cannot look at %s", ret);
    if (S_ISDIR(st.st_mode))
        return 0;
    if (S_ISREG(st.st_mode))
        return read_gitfile(scratch, path, ret, err);
    return err_set(err, EINVAL, "%s is neither a folder nor a file", ret);
}

/* Opens it and makes sure of what git will reach through it. */
static int open_git_dir(const struct repo_scratch *scratch, const char *git_dir, struct err *err)
{
    cleanup_fd int fd =
        fd_open_beneath(scratch->root_fd, git_dir, O_PATH | O_DIRECTORY, 0, false, err);
    if (fd < 0)
        return err_set(err, EINVAL, "the git folder %s leads out of the work tree, or is missing",
                       git_dir);
    static const char *const folders[] = {"objects", "refs"};
    for (size_t i = 0; i < ARRAY_LEN(folders); i++) {
        cleanup_fd int folder =
            fd_open_beneath(fd, folders[i], O_PATH | O_DIRECTORY, 0, false, NULL);
        if (folder < 0)
            return err_set(err, EINVAL, "%s/%s is missing or no folder: the repository is broken",
                           git_dir, folders[i]);
    }
    if (faccessat(fd, "commondir", F_OK, AT_SYMLINK_NOFOLLOW) == 0)
        return err_set(err, EINVAL, "%s has its objects elsewhere (commondir); it is not followed",
                       git_dir);
    return TAKE_FD(fd);
}

/* Copies one file with its modification time, which decides what git's index takes for racy. */
static int copy_file(int from_fd, int to_fd, const char *name, off_t max_bytes, struct err *err)
{
    cleanup_fd int in = fd_open_beneath(from_fd, name, O_RDONLY, 0, true, err);
    if (in == -ENOENT)
        return 0;
    if (in < 0)
        return err_context(err, -EINVAL, "the git folder is refused");
    struct stat st;
    if (fstat(in, &st) < 0 || st.st_size > max_bytes)
        return err_set(err, EINVAL, "%s is larger than %lld bytes", name, (long long)max_bytes);
    cleanup_fd int out = openat(to_fd, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (out < 0)
        return err_errno(err, errno, "cannot make a copy of %s", name);
    for (off_t left = max_bytes; left > 0;) {
        ssize_t n = sendfile(out, in, NULL, (size_t)left);
        if (n < 0)
            return err_errno(err, errno, "cannot copy %s", name);
        if (n == 0)
            break;
        left -= n;
    }
    if (futimens(out, (struct timespec[]){st.st_atim, st.st_mtim}) < 0)
        return err_errno(err, errno, "cannot copy the time of %s", name);
    return 0;
}

/* The shared part of a split index (git-update-index(1)), by its name. */
static int copy_shared_indexes(int from_fd, int to_fd, struct err *err)
{
    cleanup_fd int fd = fd_open_beneath(from_fd, ".", O_RDONLY | O_DIRECTORY, 0, false, err);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    if (!dir)
        return err_set(err, EINVAL, "the git folder cannot be read");
    TAKE_FD(fd);
    int r = 0;
    const struct dirent *entry;
    for (int n = 0; r == 0 && (entry = readdir(dir));) {
        if (strncmp(entry->d_name, "sharedindex.", 12) != 0)
            continue;
        if (n++ == LIMIT_REPO_SHARED_INDEXES)
            break;
        r = copy_file(from_fd, to_fd, entry->d_name, LIMIT_REPO_INDEX_BYTES, err);
    }
    closedir(dir);
    return r;
}

/* The kept settings and ours, as the view's `config`. */
static int make_config(const struct repo_scratch *scratch, int git_fd, int view_fd,
                       bool *ret_sha256, struct err *err)
{
    static const char pattern[] = REPO_CONFIG_PATTERN;
    static const char *const args[] = {"config", "--file",       "-",     "--no-includes",
                                       "-z",     "--get-regexp", pattern, NULL};
    const struct git_place nowhere = {.git_dir = scratch->exec_path,
                                      .exec_path = scratch->exec_path};
    cleanup_fd int fd = fd_open_beneath(git_fd, "config", O_RDONLY, 0, true, err);
    if (fd < 0 && fd != -ENOENT)
        return err_context(err, -EINVAL, "the git folder is refused");
    cleanup_buf struct buf list = BUF_INIT(LIMIT_CONFIG_BYTES);
    cleanup_buf struct buf text = BUF_INIT(LIMIT_CONFIG_BYTES);
    int r = fd < 0 ? 0 : git_capture(&nowhere, args, fd, 1, &list, err);
    if (r >= 0)
        r = repo_config_keep(list.data, list.len, &text, ret_sha256, err);
    if (r < 0)
        return err_context(err, r, "the repository's configuration");
    if (buf_append_string(&text, OWN_SETTINGS) < 0)
        return err_set(err, EINVAL, "the repository's configuration is too long");
    return write_new(view_fd, "config", 0600, &text, err);
}

/* Where git finds objects and loose refs: base.git first, then the agent's. */
static int make_links(const char *git_path, const char *base_git, int view_fd, struct err *err)
{
    cleanup_buf struct buf text = BUF_INIT(2 * LIMIT_REPO_PATHS_BYTES);
    int r = base_git ? buf_appendf(&text, "%s/objects\n", base_git) : 0;
    if (r == 0)
        r = buf_appendf(&text, "%s/objects\n", git_path);
    if (r < 0)
        return err_errno(err, -r, "cannot name the objects of %s", git_path);
    r = write_new(view_fd, "objects/info/alternates", 0600, &text, err);
    if (r < 0)
        return r;
    char refs[PATH_MAX + 8];
    snprintf(refs, sizeof(refs), "%s/refs", git_path);
    if (symlinkat(refs, view_fd, "refs") < 0)
        return err_errno(err, errno, "cannot link the refs of %s", git_path);
    return 0;
}

/* SCRATCH/views/ABSOLUTE PATH/.git, every folder on the way made. No work tree holds a .git, so
 * views of submodules do not meet those around them. */
static int make_folders(const struct repo_scratch *scratch, const char *work_tree,
                        char ret[PATH_MAX], struct err *err)
{
    if ((size_t)snprintf(ret, PATH_MAX, "%s/views%s/.git", scratch->path, work_tree) >=
        PATH_MAX - 32)
        return err_set(err, ENAMETOOLONG, "the path of a submodule is too long");
    for (char *slash = ret + strlen(scratch->path) + 1; (slash = strchr(slash, '/')); slash++) {
        *slash = '\0';
        int r = mkdir(ret, 0700) < 0 && errno != EEXIST ? -errno : 0;
        if (r < 0)
            err_errno(err, -r, "cannot make %s", ret);
        *slash = '/';
        if (r < 0)
            return r;
    }
    if (mkdir(ret, 0700) < 0)
        return err_errno(err, errno, "cannot make %s", ret);
    cleanup_fd int fd = open(ret, O_PATH | O_DIRECTORY | O_CLOEXEC);
    static const char *const folders[] = {"objects", "objects/info", "objects/pack", "info"};
    for (size_t i = 0; i < ARRAY_LEN(folders); i++)
        if (mkdirat(fd, folders[i], 0700) < 0)
            return err_errno(err, errno, "cannot make %s/%s", ret, folders[i]);
    return TAKE_FD(fd);
}

int repo_view_make(const struct repo_scratch *scratch, const char *path, const char *base_git,
                   struct repo_view *ret, struct err *err)
{
    char git_path[PATH_MAX];
    char *git_dir = ret->agent_git_dir;
    int r = find_git_dir(scratch, path, git_dir, err);
    if (r < 0)
        return r;
    cleanup_fd int git_fd = open_git_dir(scratch, git_dir, err);
    if (git_fd < 0)
        return git_fd;
    bool is_top = strcmp(path, ".") == 0;
    if ((size_t)snprintf(git_path, sizeof(git_path), "%s/%s", scratch->root, git_dir) >=
            sizeof(git_path) ||
        (size_t)snprintf(ret->work_tree, sizeof(ret->work_tree), "%s%s%s", scratch->root,
                         is_top ? "" : "/", is_top ? "" : path) >= sizeof(ret->work_tree))
        return err_set(err, ENAMETOOLONG, "the path of a submodule is too long");
    cleanup_fd int view_fd = make_folders(scratch, ret->work_tree, ret->git_dir, err);
    if (view_fd < 0)
        return view_fd;
    r = make_config(scratch, git_fd, view_fd, &ret->is_sha256, err);
    for (size_t i = 0; r >= 0 && i < ARRAY_LEN(copied); i++)
        r = copy_file(git_fd, view_fd, copied[i].name, copied[i].max_bytes, err);
    if (r >= 0)
        r = copy_shared_indexes(git_fd, view_fd, err);
    if (r >= 0)
        r = make_links(git_path, base_git, view_fd, err);
    ret->place = (struct git_place){ret->git_dir, ret->work_tree, scratch->exec_path};
    return r < 0 ? r : 0;
}

int repo_view_configure(const struct repo_view *view, const char *setting, struct err *err)
{
    cleanup_fd int dir_fd = open(view->git_dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
    cleanup_fd int fd = openat(dir_fd, "config", O_WRONLY | O_APPEND | O_CLOEXEC);
    int r = fd < 0 ? -errno : fd_write_all(fd, setting, strlen(setting));
    return r < 0 ? err_errno(err, -r, "cannot write the configuration of a view") : 0;
}
