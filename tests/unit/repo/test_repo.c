/* The promises of repo/: what is kept of a configuration, which paths are plain, how long names
 * are, and what is refused. The text itself: tests/integration/test_diff_property.py. */
#include <assert.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "repo/abbrev.h"
#include "repo/config.h"
#include "repo/diff.h"
#include "repo/view.h"
#include "util/cleanup.h"
#include "util/limits.h"

#define LIST(text) text, sizeof(text) - 1

static void keep(const char *list, size_t len, const char *expected, bool sha256)
{
    cleanup_buf struct buf text = BUF_INIT(LIMIT_CONFIG_BYTES);
    bool is_sha256 = !sha256;
    assert(repo_config_keep(list, len, &text, &is_sha256, NULL) == 0);
    assert(strcmp(buf_text(&text), expected) == 0 && is_sha256 == sha256);
}

static void test_only_the_named_settings_are_kept(void)
{
    keep(
        LIST("core.filemode\nfalse\0core.fsmonitor\nevil\0core.hookspath\n/x\0diff.external\nevil\0"
             "include.path\n/x\0core.worktree\n/\0corex.eol\nlf\0filter.x.clean\nevil\0"),
        "[core]\n\tfilemode = \"false\"\n", false);
    keep(LIST("extensions.objectformat\nsha256\0extensions.noop\0extensions.a.b\nx\0"),
         "[extensions]\n\tobjectformat = \"sha256\"\n[extensions]\n\tnoop\n", true);
    keep(LIST("extensions.\nx\0extensions.1a\nx\0extensions\nx\0.eol\nx\0"), "", false);
    keep(LIST(""), "", false);
}

static void test_a_value_cannot_end_its_quotes(void)
{
    keep(LIST("core.eol\na\"\\\n[diff]\0"), "[core]\n\teol = \"a\\\"\\\\\\n[diff]\"\n", false);
}

static void test_a_cut_list_is_refused_and_gives_nothing(void)
{
    cleanup_buf struct buf text = BUF_INIT(LIMIT_CONFIG_BYTES);
    bool is_sha256;
    struct err err;
    assert(repo_config_keep(LIST("core.eol\nlf\0core.eol\nlf"), &text, &is_sha256, &err) ==
           -EINVAL);
    assert(text.len == 0);
}

static void test_plain_paths(void)
{
    static const char *const plain[] = {"a", "a/b", "a b/\xff", ".gitmodules", "..a/...", "x.git"};
    static const char *const others[] = {"",      "/a",   "a/",     "a//b",   "..",   "a/../b",
                                         "a/./b", ".git", "a/.GIT", ".gIt/x", "../a", "."};
    for (size_t i = 0; i < ARRAY_LEN(plain); i++)
        assert(repo_path_is_plain(plain[i], strlen(plain[i])));
    for (size_t i = 0; i < ARRAY_LEN(others); i++)
        assert(!repo_path_is_plain(others[i], strlen(others[i])));
}

static void test_digits_grow_with_the_packs(void)
{
    assert(repo_abbrev_digits(0) == 7 && repo_abbrev_digits(16383) == 7);
    assert(repo_abbrev_digits(16384) == 8 && repo_abbrev_digits(65535) == 8);
    assert(repo_abbrev_digits(65536) == 9 && repo_abbrev_digits(UINT64_MAX) == 32);
}

static void test_counts_of_both_versions_of_an_index(void)
{
    unsigned char head[REPO_PACK_INDEX_HEAD_BYTES] = {0};
    head[1022] = 1;
    head[1023] = 2;
    assert(repo_pack_index_count(head, 1024) == 258);
    assert(repo_pack_index_count(head, 1023) == 0);
    memcpy(head, "\377tOc\0\0\0\2", 8);
    head[1031] = 9;
    assert(repo_pack_index_count(head, sizeof(head)) == 9);
    assert(repo_pack_index_count(head, 1031) == 0 && repo_pack_index_count(head, 0) == 0);
}

/* A work tree with what `make` puts into it, and how the diff of it fails. */
static int fail(void (*make)(int dir_fd), struct err *err)
{
    char path[] = "/tmp/paddock-test.XXXXXX";
    assert(mkdtemp(path));
    cleanup_fd int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    make(fd);
    struct repo_diff_options options = {.workspace = path};
    cleanup_fd int out = open("/dev/null", O_WRONLY | O_CLOEXEC);
    int r = repo_diff(&options, out, err);
    static const char *const made[] = {".git/HEAD", ".git/objects", ".git/refs", ".git/commondir"};
    for (size_t i = 0; i < ARRAY_LEN(made); i++)
        if (unlinkat(fd, made[i], 0) < 0)
            unlinkat(fd, made[i], AT_REMOVEDIR);
    if (unlinkat(fd, ".git", 0) < 0)
        unlinkat(fd, ".git", AT_REMOVEDIR);
    assert(rmdir(path) == 0);
    return r;
}

static void make_nothing(int dir_fd)
{
    (void)dir_fd;
}

static void make_link(int dir_fd)
{
    assert(symlinkat("/etc", dir_fd, ".git") == 0);
}

static void make_gitfile(int dir_fd, const char *text)
{
    cleanup_fd int fd = openat(dir_fd, ".git", O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    assert(fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text));
}

static void make_file_leading_up(int dir_fd)
{
    make_gitfile(dir_fd, "gitdir: ../x\n");
}

static void make_absolute_file(int dir_fd)
{
    make_gitfile(dir_fd, "gitdir: /tmp/x\n");
}

static void make_linked_work_tree(int dir_fd)
{
    static const char *const folders[] = {".git", ".git/objects", ".git/refs"};
    for (size_t i = 0; i < ARRAY_LEN(folders); i++)
        assert(mkdirat(dir_fd, folders[i], 0700) == 0);
    close(openat(dir_fd, ".git/commondir", O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
}

static void make_fifo(int dir_fd)
{
    assert(mkfifoat(dir_fd, ".git", 0600) == 0);
}

static void test_what_leads_out_is_refused(void)
{
    struct err err;
    assert(fail(make_nothing, &err) == -ENOENT && strstr(err.message, "no repository"));
    assert(fail(make_link, &err) == -EINVAL && strstr(err.message, "symbolic link"));
    assert(fail(make_file_leading_up, &err) == -EINVAL && strstr(err.message, "leads out"));
    assert(fail(make_absolute_file, &err) == -EINVAL && strstr(err.message, "leads out"));
    assert(fail(make_linked_work_tree, &err) == -EINVAL && strstr(err.message, "commondir"));
    assert(fail(make_fifo, &err) == -EINVAL);
}

int main(void)
{
    test_only_the_named_settings_are_kept();
    test_a_value_cannot_end_its_quotes();
    test_a_cut_list_is_refused_and_gives_nothing();
    test_plain_paths();
    test_digits_grow_with_the_packs();
    test_counts_of_both_versions_of_an_index();
    test_what_leads_out_is_refused();
    return 0;
}
