/* The promises of the image store: an image is there whole or not at all, and a build of the same
 * recipe is seen to be the same. */
#include <assert.h>
#include <dirent.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "image/image.h"
#include "util/cleanup.h"
#include "util/fd.h"

static char folder[] = "/tmp/paddock-test-image-XXXXXX";
static int state;

static int count_entries(const char *path)
{
    int count = 0;
    DIR *dir = fdopendir(openat(state, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    assert(dir);
    for (const struct dirent *entry; (entry = readdir(dir));)
        count += entry->d_name[0] != '.' || strlen(entry->d_name) > 2;
    closedir(dir);
    return count;
}

static bool exists(const char *path)
{
    return faccessat(state, path, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

static void count_image(void *ctx, const struct image_info *info)
{
    assert(strcmp(info->name, "claude") == 0);
    ++*(int *)ctx;
}

static int list_count(void)
{
    int count = 0;
    assert(image_list(state, count_image, &count, NULL) == 0);
    return count;
}

static void test_no_image(void)
{
    struct err err = {0};
    assert(list_count() == 0);
    assert(image_open(state, "claude", &err) == -ENOENT);
    assert(strstr(err.message, "paddock image build claude"));
    assert(image_remove(state, "claude", NULL) == -ENOENT);
    image_build_discard(state, "claude");
    assert(image_open(state, "../x", &err) == -EINVAL &&
           image_build_prepare(state, "A", &err) == -EINVAL);
}

static void build(const char *mark, int64_t size)
{
    struct image_info info = {.name = "claude", .built = 1700000000, .size_bytes = size};
    memset(info.digest, 'a', 64);
    cleanup_fd int rootfs = image_build_prepare(state, "claude", NULL);
    assert(rootfs >= 0 && mkdirat(rootfs, mark, 0755) == 0);
    struct stat st;
    assert(fstat(rootfs, &st) == 0 && (st.st_mode & 07777) == 0755);
    assert(image_build_commit(state, &info, NULL, NULL) == 0);
}

static void test_build_commit_replace_remove(void)
{
    cleanup_fd int unfinished = image_build_prepare(state, "claude", NULL);
    assert(unfinished >= 0 && list_count() == 0);
    assert(image_open(state, "claude", NULL) == -ENOENT);

    build("first", 5); /* the unfinished one went to the trash */
    assert(count_entries("trash") == 1 && !exists("images/.build-claude") && list_count() == 1);
    struct image_info info;
    assert(image_info_read(state, "claude", &info, NULL) == 0);
    assert(info.size_bytes == 5 && info.built == 1700000000 && strlen(info.digest) == 64);
    cleanup_fd int mounted = image_open(state, "claude", NULL);
    assert(mounted >= 0 && faccessat(mounted, "first", F_OK, 0) == 0);

    build("second", 6);
    assert(faccessat(mounted, "first", F_OK, 0) == 0); /* what runs keeps what it has */
    cleanup_fd int again = image_open(state, "claude", NULL);
    assert(faccessat(again, "second", F_OK, 0) == 0 && faccessat(again, "first", F_OK, 0) != 0);
    assert(count_entries("trash") == 2 && count_entries("images") == 1);

    cleanup_fd int discarded = image_build_prepare(state, "claude", NULL);
    image_build_discard(state, "claude");
    assert(discarded >= 0 && !exists("images/.build-claude") && list_count() == 1);
    assert(image_remove(state, "claude", NULL) == 0);
    assert(list_count() == 0 && count_entries("images") == 0 && count_entries("trash") == 4);
}

static void test_commit_without_build_is_refused(void)
{
    struct image_info info = {.name = "claude"};
    assert(image_build_commit(state, &info, NULL, NULL) == -ENOENT);
    assert(count_entries("images") == 0);
}

static void test_a_newer_schema_is_refused(void)
{
    build("x", 1);
    cleanup_fd int dir = openat(state, "images/claude", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    static const char newer[] = "{\"schema\": 2, \"digest\": \"x\"}";
    assert(fd_write_file_atomic(dir, "image.json", 0600, newer, strlen(newer), NULL) == 0);
    struct err err = {0};
    assert(image_open(state, "claude", &err) == -EINVAL && strstr(err.message, "schema"));
}

static void write_recipe(const char *text)
{
    cleanup_fd int dir = openat(state, "recipes/claude", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert(fd_write_file_atomic(dir, "build.json", 0644, text, strlen(text), NULL) == 0);
}

static void test_digest_tells_a_change(void)
{
    assert(mkdirat(state, "recipes", 0755) == 0 && mkdirat(state, "recipes/claude", 0755) == 0);
    cleanup_fd int recipes = openat(state, "recipes", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    char first[65] = "", second[65] = "", third[65] = "";
    cleanup_buf struct buf text = BUF_INIT(10000);
    struct err err = {0};
    char from[64];
    assert(image_recipe_read(recipes, -1, "claude", &text, first, from, &err) == -ENOENT);

    static const char good[] = "{\"debian\": {\"suite\": \"s\", \"packages\": [\"git\"]}}";
    write_recipe(good);
    assert(image_recipe_read(recipes, -1, "claude", &text, first, from, &err) == 0);
    assert(strcmp(text.data, good) == 0 && strlen(first) == 64);
    assert(image_recipe_read(recipes, -1, "claude", &text, second, from, &err) == 0);
    assert(strcmp(first, second) == 0);
    write_recipe("{\"debian\": {\"suite\": \"s\", \"packages\": [\"gitk\"]}}");
    assert(image_recipe_read(recipes, -1, "claude", &text, third, from, &err) == 0);
    assert(strcmp(first, third) != 0);

    write_recipe("{\"debian\": {\"suite\": \"s\", \"packages\": [\"--git\"]}}");
    buf_clear(&text);
    assert(image_recipe_read(recipes, -1, "claude", &text, third, from, &err) == -EINVAL &&
           text.len == 0);
    assert(strncmp(err.message, "claude/build.json:1:", 20) == 0);
}

static void test_report(void)
{
    static const struct {
        const char *text;
        int64_t size;
    } cases[] = {{"", -1}, {"12345", 12345}, {"-1", -1}, {"12 ", -1}, {"9999999999999999999", -1}};
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        int64_t size = -1;
        cleanup_fd int fd = fd_sealed("report", cases[i].text, strlen(cases[i].text), NULL);
        assert((image_build_report_read(fd, &size, NULL) == 0) == (cases[i].size > 0));
        assert(size == cases[i].size);
    }
}

int main(void)
{
    assert(mkdtemp(folder));
    state = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    test_no_image();
    test_build_commit_replace_remove();
    test_commit_without_build_is_refused();
    test_a_newer_schema_is_refused();
    test_digest_tells_a_change();
    test_report();
    execlp("rm", "rm", "-rf", "--", folder, (char *)NULL);
    return 1;
}
