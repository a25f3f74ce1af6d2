/* The promises of jail/: a tree goes whole, however deep, and nothing outside of it; wrong
 * arguments are refused before anything is touched. */
#include <assert.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "jail/jail.h"
#include "util/cleanup.h"

#define DEPTH 5000

static int open_new(char *path)
{
    assert(mkdtemp(path));
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert(fd >= 0);
    return fd;
}

static void touch(int dir_fd, const char *name)
{
    int fd = openat(dir_fd, name, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    assert(fd >= 0);
    close(fd);
}

static void test_links_are_removed_and_not_followed(void)
{
    char inside[] = "/tmp/paddock-test.XXXXXX", outside[] = "/tmp/paddock-test.XXXXXX";
    cleanup_fd int in = open_new(inside), out = open_new(outside);
    touch(out, "kept");
    touch(in, "file");
    assert(symlinkat(outside, in, "link") == 0 && symlinkat("nowhere", in, "dangling") == 0);
    assert(mkdirat(in, "folder", 0) == 0 && symlinkat("..", in, "folder/up") == 0);
    assert(mkfifoat(in, "folder/fifo", 0600) == 0 && mkdirat(in, "folder/empty", 0700) == 0);
    touch(in, "folder/\xff\n name");
    assert(jail_remove_beneath(inside, NULL) == 0);
    assert(rmdir(inside) == 0 && faccessat(out, "kept", F_OK, 0) == 0);
    assert(unlinkat(out, "kept", 0) == 0 && rmdir(outside) == 0);
}

static void test_a_folder_that_is_a_link_is_refused(void)
{
    char path[] = "/tmp/paddock-test.XXXXXX";
    cleanup_fd int fd = open_new(path);
    char link[64] = "";
    strcat(strcat(link, path), "/l");
    assert(symlinkat(".", fd, "l") == 0);
    struct err err;
    assert(jail_remove_beneath(link, &err) == -ENOTDIR || strstr(err.message, link));
    assert(unlinkat(fd, "l", 0) == 0 && rmdir(path) == 0);
}

static void test_depth_costs_nothing(void)
{
    char path[] = "/tmp/paddock-test.XXXXXX";
    int fd = open_new(path);
    for (int i = 0; i < DEPTH; i++) {
        touch(fd, "a");
        assert(mkdirat(fd, "d", 0700) == 0);
        int next = openat(fd, "d", O_PATH | O_DIRECTORY | O_CLOEXEC);
        assert(next >= 0);
        close(fd);
        fd = next;
    }
    close(fd);
    assert(jail_remove_beneath(path, NULL) == 0 && rmdir(path) == 0);
}

static void test_wrong_arguments_are_refused(void)
{
    static const char *const wrong[][6] = {
        {"jail", NULL},
        {"jail", "nothing", NULL},
        {"jail", "remove", "/", NULL},
        {"jail", "base", "x", NULL},
        {"jail", "diff", NULL},
        {"jail", "diff", "clone", NULL},
        {"jail", "diff", "clones", "0", NULL},
        {"jail", "diff", "clone", "2", NULL},
        {"jail", "diff", "clone", "0", "HEAD", NULL},
        {"jail", "diff", "revision", "0", NULL},
        {"jail", "diff", "revision", "0", "", NULL},
    };
    for (size_t i = 0; i < ARRAY_LEN(wrong); i++) {
        int argc = 0;
        while (wrong[i][argc])
            argc++;
        struct err err = {0};
        assert(jail_run(argc, wrong[i], &err) == -EINVAL && err.message[0] != '\0');
    }
}

int main(void)
{
    test_links_are_removed_and_not_followed();
    test_a_folder_that_is_a_link_is_refused();
    test_depth_costs_nothing();
    test_wrong_arguments_are_refused();
    return 0;
}
