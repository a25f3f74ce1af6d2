/* The promises of util/: bounded buffers, error texts, safe opens, names, UTF-8. */
#include <assert.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#include "util/buf.h"
#include "util/cleanup.h"
#include "util/err.h"
#include "util/fd.h"
#include "util/limits.h"
#include "util/name.h"
#include "util/near.h"
#include "util/secret.h"
#include "util/utf8.h"

static void test_buf_never_passes_its_maximum(void)
{
    cleanup_buf struct buf buf = BUF_INIT(10);
    assert(buf_append(&buf, "0123456789", 10) == 0);
    assert(buf_append(&buf, "x", 1) == -EMSGSIZE);
    assert(buf_appendf(&buf, "%d", 1) == -EMSGSIZE);
    assert(buf.len == 10 && strcmp(buf.data, "0123456789") == 0);
    buf_consume(&buf, 4);
    assert(strcmp(buf_text(&buf), "456789") == 0);
    assert(buf_appendf(&buf, "%s", "abcd") == 0 && buf.len == 10);
    assert(buf_reserve(&buf, (size_t)-1) == NULL);
}

static void test_err_carries_context(void)
{
    struct err err;
    assert(err_errno(&err, ENOENT, "cannot open %s", "x") == -ENOENT);
    assert(strcmp(err.message, "cannot open x: No such file or directory") == 0);
    assert(err_context(&err, -ENOENT, "start of %s", "agent-1") == -ENOENT);
    assert(strncmp(err.message, "start of agent-1: cannot open x", 31) == 0);
    assert(err_set(NULL, EINVAL, "nobody reads this") == -EINVAL);
}

static void test_a_file_is_written_into_the_room_that_was_kept(void)
{
    char folder[] = "/tmp/paddock-test-XXXXXX";
    assert(mkdtemp(folder));
    cleanup_fd int dir = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    struct stat kept, st;
    assert(fd_reserve_file(dir, "file", 0600, 100, NULL) == 0);
    assert(fstatat(dir, "file.tmp", &kept, 0) == 0 && kept.st_size == 100 && kept.st_blocks > 0);
    assert(fstatat(dir, "file", &st, 0) < 0 && errno == ENOENT);
    assert(fd_write_file_atomic(dir, "file", 0600, "hello", 5, NULL) == 0);
    assert(fstatat(dir, "file", &st, 0) == 0 && st.st_ino == kept.st_ino);
    cleanup_buf struct buf text = BUF_INIT(100);
    assert(fd_read_file(dir, "file", &text, NULL) == 0 && strcmp(text.data, "hello") == 0);
    assert(unlinkat(dir, "file", 0) == 0 && rmdir(folder) == 0);
}

static void test_open_beneath_refuses_links_and_fifos(void)
{
    char folder[] = "/tmp/paddock-test-XXXXXX";
    assert(mkdtemp(folder));
    cleanup_fd int dir = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    struct err err = {0};
    assert(symlinkat("/etc/passwd", dir, "link") == 0);
    assert(mkfifoat(dir, "fifo", 0600) == 0);
    assert(fd_write_file_atomic(dir, "file", 0600, "hello", 5, &err) == 0);
    assert(fd_open_beneath(dir, "link", O_RDONLY, 0, true, &err) == -ELOOP);
    assert(fd_open_beneath(dir, "fifo", O_RDONLY, 0, true, &err) == -EINVAL);
    assert(fd_open_beneath(dir, "../../etc/passwd", O_RDONLY, 0, true, &err) == -EXDEV);
    assert(fd_open_beneath(dir, "/etc/passwd", O_RDONLY, 0, true, &err) == -EXDEV);
    cleanup_fd int fd = fd_open_beneath(dir, "file", O_RDONLY, 0, true, &err);
    assert(fd >= 0);
    cleanup_buf struct buf five = BUF_INIT(5);
    assert(fd_read_all(fd, &five) == 0 && strcmp(five.data, "hello") == 0);
    cleanup_buf struct buf four = BUF_INIT(4);
    assert(lseek(fd, 0, SEEK_SET) == 0 && fd_read_all(fd, &four) == -EMSGSIZE);
    assert(unlinkat(dir, "link", 0) == 0 && unlinkat(dir, "fifo", 0) == 0);
    assert(unlinkat(dir, "file", 0) == 0 && rmdir(folder) == 0);
}

static void test_sealed_memfd_cannot_change(void)
{
    struct err err;
    cleanup_fd int fd = fd_sealed("test", "abc", 3, &err);
    assert(fd >= 0 && fd_is_sealed(fd));
    assert(write(fd, "x", 1) < 0 && errno == EPERM);
    assert(ftruncate(fd, 0) < 0 && errno == EPERM);
    assert(!fd_is_sealed(0));
}

static void test_names_are_exactly_the_pattern(void)
{
    static const char *const good[] = {"a", "agent-1", "0", "a--b"};
    static const char *const bad[] = {"",    "-a",     "a-",  "A",       "..",
                                      "a/b", "%2e%2e", "a_b", "\xc3\xa9"};
    for (size_t i = 0; i < ARRAY_LEN(good); i++)
        assert(name_is_valid(good[i], strlen(good[i])));
    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        assert(!name_is_valid(bad[i], strlen(bad[i])));
    char name[109];
    memset(name, 'a', sizeof(name));
    assert(name_is_valid(name, 63) && !name_is_valid(name, 64) && !name_is_valid(name, 108));
    assert(!name_is_valid("a\0b", 3));
}

static void test_utf8_is_strict_and_lossy_replaces(void)
{
    assert(utf8_is_valid("h\xc3\xa9\xf0\x9f\x98\x80", 7));
    static const char *const bad[] = {"\xc0\x80", "\xed\xa0\x80", "\xf4\x90\x80\x80", "\xff",
                                      "\xc3"};
    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        assert(!utf8_is_valid(bad[i], strlen(bad[i])));
    cleanup_buf struct buf buf = BUF_INIT(100);
    assert(utf8_append_lossy(&buf,
                             "a\xff"
                             "b",
                             3) == 0);
    assert(strcmp(buf.data, "a\xef\xbf\xbd"
                            "b") == 0);
}

static const char *nearest(const char *word)
{
    static const char *const names[] = {"run", "rm", "status", "stop", "detach"};
    struct near near = {.word = word};
    for (size_t i = 0; i < ARRAY_LEN(names); i++)
        near_consider(&near, names[i]);
    return near.best;
}

static void test_near_names_are_found(void)
{
    assert(strcmp(nearest("statsu"), "status") == 0);
    assert(strcmp(nearest("sttus"), "status") == 0);
    assert(strcmp(nearest("stap"), "stop") == 0);
    assert(strcmp(nearest("runn"), "run") == 0);
    assert(strcmp(nearest("detatch"), "detach") == 0);
    assert(!nearest("frobnicate") && !nearest("") && !nearest("x"));
    assert(!nearest("a-word-that-is-much-longer-than-any-verb-could-ever-be"));
}

static void test_secrets_are_appended(void)
{
    struct secret secret = {0};
    assert(secret_append(&secret, "ab", 2) == 0 && secret_append(&secret, "", 0) == 0);
    assert(secret_append(&secret, "c", 1) == 0);
    assert(secret.len == 3 && strcmp(secret.data, "abc") == 0);
    secret_free(&secret);
    assert(!secret.data);
}

int main(void)
{
    test_near_names_are_found();
    test_secrets_are_appended();
    test_buf_never_passes_its_maximum();
    test_err_carries_context();
    test_a_file_is_written_into_the_room_that_was_kept();
    test_open_beneath_refuses_links_and_fifos();
    test_sealed_memfd_cannot_change();
    test_names_are_exactly_the_pattern();
    test_utf8_is_strict_and_lossy_replaces();
    return 0;
}
