/*
 * The image store; see image.h. Runs in the supervisor: short system calls only, nothing below
 * rootfs/ is ever opened. An image appears and disappears by one rename; what is replaced goes to
 * STATE/trash, which the jail's job `remove` empties.
 */
#include "image/image.h"

#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "image/recipe.h"
#include "util/cleanup.h"
#include "util/fd.h"
#include "util/limits.h"
#include "util/name.h"
#include "util/sha256.h"
#include "json/json.h"

#define IMAGE_SCHEMA 1
/* Counted up when paddock-image-build makes another image of the same recipe. */
#define IMAGE_BUILD_FORMAT "paddock image format 1\n"
#define PATH_SIZE 128

static int image_check_name(const char *name, struct err *err)
{
    if (!name_is_valid(name, strlen(name)))
        return err_set(err, EINVAL, "%.80s is not a name of an image: use a-z, 0-9 and -", name);
    return 0;
}

static int image_no_such(const char *name, struct err *err)
{
    return err_set(err, ENOENT, "there is no image %s: build it with `paddock image build %s`",
                   name, name);
}

static int image_open_folder(int dir_fd, const char *path, int flags)
{
    int fd = openat(dir_fd, path, flags | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    return fd < 0 ? -errno : fd;
}

/* Makes the folder when it is not there and opens it. */
static int image_make_folder(int dir_fd, const char *name, struct err *err)
{
    if (mkdirat(dir_fd, name, 0700) < 0 && errno != EEXIST)
        return err_errno(err, errno, "cannot make the folder %s of the state", name);
    int fd = image_open_folder(dir_fd, name, O_RDONLY);
    return fd < 0 ? err_errno(err, -fd, "cannot open the folder %s of the state", name) : fd;
}

/* Renames dir_fd/entry to a fresh name in STATE/trash. -ENOENT: it is not there. */
static int image_to_trash(int state_fd, int dir_fd, const char *entry, struct err *err)
{
    cleanup_fd int trash = image_make_folder(state_fd, "trash", err);
    if (trash < 0)
        return trash;
    uint64_t token;
    if (getrandom(&token, sizeof(token), 0) != sizeof(token))
        return err_errno(err, errno, "cannot get random bytes");
    char fresh[PATH_SIZE];
    snprintf(fresh, sizeof(fresh), "image-%016" PRIx64, token);
    if (renameat(dir_fd, entry, trash, fresh) < 0)
        return err_errno(err, errno, "cannot move images/%s to trash/", entry);
    return 0;
}

/* ------------------------------------------------------------------------------- reading */

int image_open(int state_fd, const char *name, struct err *err)
{
    struct image_info info;
    int result = image_info_read(state_fd, name, &info, err);
    if (result < 0)
        return result;
    char path[PATH_SIZE];
    snprintf(path, sizeof(path), "images/%s/rootfs", name);
    int fd = image_open_folder(state_fd, path, O_PATH);
    return fd < 0 ? err_errno(err, -fd, "cannot open %s", path) : fd;
}

/* images/NAME/image.json, of our schema. -ENOENT: no such image. */
static int image_json_read(int state_fd, const char *name, struct json **ret, struct err *err)
{
    int result = image_check_name(name, err);
    if (result < 0)
        return result;
    char path[PATH_SIZE];
    snprintf(path, sizeof(path), "images/%s/image.json", name);
    cleanup_buf struct buf text = BUF_INIT(LIMIT_CONFIG_BYTES);
    result = fd_read_file(state_fd, path, &text, err);
    if (result == -ENOENT)
        return image_no_such(name, err);
    cleanup_json struct json *json = NULL;
    if (result == 0)
        result = json_parse(buf_text(&text), text.len, JSON_STRICT, &json, err);
    if (result < 0)
        return err_context(err, result, "images/%s/image.json", name);
    if (json_integer(json_get(json, "schema")) != IMAGE_SCHEMA)
        return err_set(err, EINVAL,
                       "images/%s/image.json is not of schema %d: build the image again", name,
                       IMAGE_SCHEMA);
    *ret = TAKE_PTR(json);
    return 0;
}

int image_info_read(int state_fd, const char *name, struct image_info *ret, struct err *err)
{
    cleanup_json struct json *json = NULL;
    int result = image_json_read(state_fd, name, &json, err);
    if (result < 0)
        return result;
    const char *digest = json_text(json_get(json, "digest"));
    if (!digest || strlen(digest) >= sizeof(ret->digest))
        return err_set(err, EINVAL, "images/%s/image.json has no digest", name);
    struct image_info info = {.built = json_integer(json_get(json, "built")),
                              .size_bytes = json_integer(json_get(json, "size_bytes")),
                              .is_imported = json_bool(json_get(json, "imported"))};
    snprintf(info.name, sizeof(info.name), "%s", name);
    snprintf(info.digest, sizeof(info.digest), "%s", digest);
    *ret = info;
    return 0;
}

static void image_copy_text(char *ret, size_t size, const struct json *value)
{
    const char *text = json_text(value);
    snprintf(ret, size, "%s", text ? text : "");
}

int image_config_read(int state_fd, const char *name, struct image_config *ret, struct err *err)
{
    cleanup_json struct json *json = NULL;
    int result = image_json_read(state_fd, name, &json, err);
    if (result < 0)
        return result;
    const struct json *env = json_get(json, "env");
    *ret = (struct image_config){.uid = (uint32_t)json_integer(json_get(json, "uid")),
                                 .gid = (uint32_t)json_integer(json_get(json, "gid"))};
    image_copy_text(ret->user, sizeof(ret->user), json_get(json, "user"));
    image_copy_text(ret->home, sizeof(ret->home), json_get(json, "home"));
    image_copy_text(ret->workdir, sizeof(ret->workdir), json_get(json, "workdir"));
    for (size_t i = 0; i < json_count(env) && result == 0; i++) {
        const char *entry = json_text(json_at(env, i));
        result = image_config_env_add(ret, entry ? entry : "", err);
    }
    if (result == 0 && !image_config_is_valid(ret))
        result = err_set(err, EINVAL, "it is not one that Paddock wrote");
    return result < 0 ? err_context(err, result, "images/%s/image.json", name) : 0;
}

static void cleanup_dir_at(DIR **dir)
{
    if (*dir)
        closedir(*dir);
}

int image_list(int state_fd, void (*found)(void *ctx, const struct image_info *info), void *ctx,
               struct err *err)
{
    int fd = image_open_folder(state_fd, "images", O_RDONLY);
    if (fd == -ENOENT)
        return 0;
    __attribute__((cleanup(cleanup_dir_at))) DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    if (!dir) {
        int code = fd < 0 ? -fd : errno;
        if (fd >= 0)
            close(fd);
        return err_errno(err, code, "cannot open the folder images of the state");
    }
    for (const struct dirent *entry; (entry = readdir(dir));) {
        struct image_info info;
        if (!name_is_valid(entry->d_name, strlen(entry->d_name)))
            continue;
        int result = image_info_read(state_fd, entry->d_name, &info, err);
        if (result == -ENOENT)
            continue;
        if (result < 0)
            return result;
        found(ctx, &info);
    }
    return 0;
}

/* "NAME DIGEST TIME" of the image that another is built from. */
static int image_parent_mark(int state_fd, const char *from, char ret[PATH_SIZE * 2],
                             struct err *err)
{
    struct image_info info = {.built = 0};
    ret[0] = '\0';
    if (!from)
        return 0;
    int result = image_info_read(state_fd, from, &info, err);
    if (result < 0)
        return err_context(err, result, "the image that it is from");
    snprintf(ret, PATH_SIZE * 2, "%s %s %" PRId64, info.name, info.digest, info.built);
    return 0;
}

int image_recipe_read(int recipes_fd, int state_fd, const char *name, struct buf *ret_text,
                      char ret_digest[65], char ret_from[64], struct err *err)
{
    int result = image_check_name(name, err);
    if (result < 0)
        return result;
    char path[PATH_SIZE];
    char mark[PATH_SIZE * 2];
    snprintf(path, sizeof(path), "%s/build.json", name);
    cleanup_buf struct buf text = BUF_INIT(LIMIT_CONFIG_BYTES);
    result = fd_read_file(recipes_fd, path, &text, err);
    if (result == -ENOENT)
        return err_set(err, ENOENT, "there is no recipe %s in the recipes' folder", path);
    cleanup_recipe struct recipe recipe = {0};
    if (result == 0)
        result = recipe_parse(path, buf_text(&text), text.len, &recipe, err);
    if (result == 0)
        result = image_parent_mark(state_fd, recipe.from, mark, err);
    if (result == 0)
        result = buf_append(ret_text, buf_text(&text), text.len);
    if (result < 0)
        return result;
    snprintf(ret_from, 64, "%s", recipe.from ? recipe.from : "");
    const struct sha256_part parts[] = {{IMAGE_BUILD_FORMAT, strlen(IMAGE_BUILD_FORMAT)},
                                        {recipe_arch(), strlen(recipe_arch())},
                                        {buf_text(&text), text.len},
                                        {mark, strlen(mark)}};
    sha256_hex(parts, ARRAY_LEN(parts), ret_digest);
    return 0;
}

bool image_is_stale(int recipes_fd, int state_fd, const struct image_info *info)
{
    cleanup_buf struct buf text = BUF_INIT(LIMIT_CONFIG_BYTES);
    char digest[65], from[64];
    if (recipes_fd < 0 || info->is_imported ||
        image_recipe_read(recipes_fd, state_fd, info->name, &text, digest, from, NULL) < 0)
        return false;
    return strcmp(digest, info->digest) != 0;
}

/* ------------------------------------------------------------------------------- building */

static void image_build_name(const char *name, char ret[PATH_SIZE])
{
    snprintf(ret, PATH_SIZE, ".build-%s", name);
}

int image_build_prepare(int state_fd, const char *name, struct err *err)
{
    int result = image_check_name(name, err);
    if (result < 0)
        return result;
    image_build_discard(state_fd, name); /* of a build that was cut off */
    cleanup_fd int images = image_make_folder(state_fd, "images", err);
    if (images < 0)
        return images;
    char build[PATH_SIZE];
    image_build_name(name, build);
    if (mkdirat(images, build, 0700) < 0)
        return err_errno(err, errno, "cannot make images/%s", build);
    cleanup_fd int folder = image_open_folder(images, build, O_RDONLY);
    if (folder < 0)
        return err_errno(err, -folder, "cannot open images/%s", build);
    /* chmod: the mode of the image's / does not depend on our umask */
    if (mkdirat(folder, "rootfs", 0755) < 0 || fchmodat(folder, "rootfs", 0755, 0) < 0)
        return err_errno(err, errno, "cannot make images/%s/rootfs", build);
    int rootfs = image_open_folder(folder, "rootfs", O_PATH);
    return rootfs < 0 ? err_errno(err, -rootfs, "cannot open images/%s/rootfs", build) : rootfs;
}

int image_build_report_read(int report_fd, int64_t *ret_size_bytes, struct err *err)
{
    char text[32];
    ssize_t n = pread(report_fd, text, sizeof(text) - 1, 0);
    if (n < 0)
        return err_errno(err, errno, "cannot read the report of the image's build");
    int64_t size = 0;
    for (ssize_t i = 0; i < n; i++) {
        if (text[i] < '0' || text[i] > '9' || i >= 18)
            return err_set(err, EINVAL, "the report of the image's build is not a number");
        size = size * 10 + (text[i] - '0');
    }
    if (size == 0)
        return err_set(err, EINVAL, "the image's build ended without a report");
    *ret_size_bytes = size;
    return 0;
}

int image_import_report_read(int report_fd, struct image_report *ret, struct err *err)
{
    ssize_t n = pread(report_fd, ret, sizeof(*ret), 0);
    if (n < 0)
        return err_errno(err, errno, "cannot read the report of the import");
    if (n != sizeof(*ret) || ret->digest[64] != '\0' ||
        strspn(ret->digest, "0123456789abcdef") != 64 || ret->size_bytes <= 0 ||
        !image_config_is_valid(&ret->config))
        return err_set(err, EPROTO, "the import ended without a report");
    return 0;
}

static void image_config_write(struct json_writer *writer, const struct image_config *config)
{
    json_write_pair_string(writer, "user", config->user);
    json_write_pair_integer(writer, "uid", config->uid);
    json_write_pair_integer(writer, "gid", config->gid);
    json_write_pair_string(writer, "home", config->home);
    json_write_pair_string(writer, "workdir", config->workdir);
    json_write_key(writer, "env");
    json_write_array_begin(writer);
    for (const char *at = NULL; (at = image_config_env_next(config, at));)
        json_write_string(writer, at);
    json_write_array_end(writer);
}

static int image_info_write(int folder_fd, const struct image_info *info,
                            const struct image_config *config, struct err *err)
{
    cleanup_buf struct buf text = BUF_INIT(LIMIT_CONFIG_BYTES);
    struct json_writer *writer = json_writer_new(&text, true);
    if (!writer)
        return err_set(err, ENOMEM, "no memory for image.json");
    json_write_object_begin(writer);
    json_write_pair_integer(writer, "schema", IMAGE_SCHEMA);
    json_write_pair_string(writer, "name", info->name);
    json_write_pair_string(writer, "digest", info->digest);
    json_write_pair_integer(writer, "built", info->built);
    json_write_pair_integer(writer, "size_bytes", info->size_bytes);
    if (info->is_imported)
        json_write_pair_bool(writer, "imported", true);
    if (config)
        image_config_write(writer, config);
    json_write_object_end(writer);
    int result = json_writer_end(writer);
    if (result < 0)
        return err_set(err, -result, "cannot write image.json of %s", info->name);
    return fd_write_file_atomic(folder_fd, "image.json", 0600, text.data, text.len, err);
}

/* Puts images/<build> in the place of images/<name>; an old one ends at the name of the build. */
static int image_swap(int images_fd, const char *build, const char *name, struct err *err)
{
    if (renameat2(images_fd, build, images_fd, name, RENAME_NOREPLACE) < 0 &&
        (errno != EEXIST || renameat2(images_fd, build, images_fd, name, RENAME_EXCHANGE) < 0))
        return err_errno(err, errno, "cannot put the image %s in its place", name);
    if (fsync(images_fd) < 0)
        return err_errno(err, errno, "cannot sync the folder images of the state");
    return 0;
}

int image_build_commit(int state_fd, const struct image_info *info,
                       const struct image_config *config, struct err *err)
{
    int result = image_check_name(info->name, err);
    if (result < 0)
        return result;
    cleanup_fd int images = image_make_folder(state_fd, "images", err);
    if (images < 0)
        return images;
    char build[PATH_SIZE];
    image_build_name(info->name, build);
    cleanup_fd int folder = image_open_folder(images, build, O_RDONLY);
    if (folder < 0)
        return err_errno(err, -folder, "there is no build of the image %s", info->name);
    result = image_info_write(folder, info, config, err);
    if (result == 0)
        result = image_swap(images, build, info->name, err);
    if (result == 0)
        image_build_discard(state_fd, info->name);
    return result;
}

void image_build_discard(int state_fd, const char *name)
{
    char build[PATH_SIZE];
    if (image_check_name(name, NULL) < 0)
        return;
    image_build_name(name, build);
    cleanup_fd int images = image_open_folder(state_fd, "images", O_RDONLY);
    if (images >= 0 && faccessat(images, build, F_OK, AT_SYMLINK_NOFOLLOW) == 0)
        image_to_trash(state_fd, images, build, NULL);
}

int image_remove(int state_fd, const char *name, struct err *err)
{
    struct image_info info;
    int result = image_info_read(state_fd, name, &info, err);
    if (result < 0)
        return result;
    cleanup_fd int images = image_make_folder(state_fd, "images", err);
    return images < 0 ? images : image_to_trash(state_fd, images, name, err);
}
