/* The promises of util/tree.h: a tree goes whole, however deep, and nothing outside of it. */
#include <assert.h>
#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "util/cleanup.h"
#include "util/tree.h"

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
    assert(tree_clear(in, NULL) == 0);
    assert(rmdir(inside) == 0 && faccessat(out, "kept", F_OK, 0) == 0);
    assert(unlinkat(out, "kept", 0) == 0 && rmdir(outside) == 0);
}

static void test_one_name_goes_and_nothing_beside_it(void)
{
    char path[] = "/tmp/paddock-test.XXXXXX";
    cleanup_fd int fd = open_new(path);
    assert(mkdirat(fd, "kept", 0700) == 0 && symlinkat("kept", fd, "link") == 0);
    touch(fd, "kept/file");
    assert(tree_remove(fd, "link", NULL) == 0 && faccessat(fd, "kept/file", F_OK, 0) == 0);
    assert(tree_remove(fd, "link", NULL) == 0);
    assert(tree_remove(fd, "kept", NULL) == 0 && faccessat(fd, "kept", F_OK, 0) != 0);
    assert(rmdir(path) == 0);
}

static void test_depth_costs_nothing(void)
{
    char path[] = "/tmp/paddock-test.XXXXXX";
    int fd = open_new(path);
    cleanup_fd int top = openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    for (int i = 0; i < DEPTH; i++) {
        touch(fd, "a");
        assert(mkdirat(fd, "d", 0700) == 0);
        int next = openat(fd, "d", O_PATH | O_DIRECTORY | O_CLOEXEC);
        assert(next >= 0);
        close(fd);
        fd = next;
    }
    close(fd);
    assert(tree_clear(top, NULL) == 0 && rmdir(path) == 0);
}

static void test_folders_deeper_than_those_that_stay_open_go_with_all_beside_them(void)
{
    char path[] = "/tmp/paddock-test.XXXXXX", name[16];
    int fd = open_new(path);
    cleanup_fd int top = openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    for (int depth = 0; depth < 80; depth++) {
        for (int i = 0; i < 5; i++) {
            snprintf(name, sizeof(name), "%d", i);
            assert(mkdirat(fd, name, 0700) == 0);
            snprintf(name, sizeof(name), "%d/full", i);
            assert(mkdirat(fd, name, 0700) == 0);
            snprintf(name, sizeof(name), "%d/full/x", i);
            touch(fd, name);
        }
        int next = openat(fd, "4", O_PATH | O_DIRECTORY | O_CLOEXEC);
        close(fd);
        fd = next;
    }
    close(fd);
    assert(tree_clear(top, NULL) == 0 && rmdir(path) == 0);
}

static int opened;

DIR *fdopendir(int fd) /* of the code under test too */
{
    static DIR *(*real)(int fd);
    if (!real)
        *(void **)&real = dlsym(RTLD_NEXT, "fdopendir");
    opened++;
    return real(fd);
}

static void test_a_folder_of_many_folders_is_read_once(void)
{
    char path[] = "/tmp/paddock-test.XXXXXX", name[16];
    cleanup_fd int fd = open_new(path);
    for (int i = 0; i < 200; i++) {
        snprintf(name, sizeof(name), "%d", i);
        assert(mkdirat(fd, name, 0700) == 0);
        snprintf(name, sizeof(name), "%d/x", i);
        touch(fd, name);
    }
    opened = 0;
    assert(tree_clear(fd, NULL) == 0 && rmdir(path) == 0);
    assert(opened == 201);
}

int main(void)
{
    test_links_are_removed_and_not_followed();
    test_one_name_goes_and_nothing_beside_it();
    test_depth_costs_nothing();
    test_folders_deeper_than_those_that_stay_open_go_with_all_beside_them();
    test_a_folder_of_many_folders_is_read_once();
    return 0;
}
