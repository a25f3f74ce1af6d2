/*
 * npm's part of an image, for paddock-image-build: the recipe's packages, without their scripts.
 *
 * Programs come as optional packages, one for each system, of which npm takes those that fit.
 * Before version 10 it cannot tell C libraries apart and takes those of both: the other one goes.
 */
#include "image/build.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "util/cleanup.h"
#include "util/fd.h"
#include "util/limits.h"
#include "json/json.h"

#define MODULES BUILD_ROOT RECIPE_NPM_FOLDER "/node_modules"

bool build_npm_fits(const char *package_json, size_t len)
{
    cleanup_json struct json *json = NULL;
    if (json_parse(package_json, len, JSON_STRICT, &json, NULL) < 0)
        return true; /* not ours to judge */
    const struct json *libc = json_get(json, "libc");
    for (size_t i = 0; i < json_count(libc); i++) {
        const char *name = json_text(json_at(libc, i));
        if (name && strcmp(name, "glibc") == 0)
            return true;
    }
    return json_count(libc) == 0;
}

/* The package.json of a package, in *ret; false: there is none to read. */
static bool npm_read_package(int modules_fd, const char *name, struct buf *ret)
{
    char path[2 * NAME_MAX + 32];
    snprintf(path, sizeof(path), "%s/package.json", name);
    cleanup_fd int fd = fd_open_beneath(modules_fd, path, O_RDONLY, 0, true, NULL);
    return fd >= 0 && fd_read_all(fd, ret) == 0;
}

/* Takes a package by its name, "NAME" or "@SCOPE/NAME". */
typedef int npm_visit(void *ctx, int modules_fd, const char *name, struct err *err);

/* Visits the packages of one folder: of node_modules itself, or of the scope `@scope`. */
static int npm_each(int modules_fd, const char *scope, npm_visit *visit, void *ctx, struct err *err)
{
    cleanup_fd int fd =
        fd_open_beneath(modules_fd, scope ? scope : ".", O_RDONLY | O_DIRECTORY, 0, false, err);
    if (fd < 0)
        return fd;
    DIR *dir = fdopendir(fd);
    if (!dir)
        return err_errno(err, errno, "cannot read %s of node_modules",
                         scope ? scope : "the folder");
    (void)TAKE_FD(fd); /* the stream's now */
    int result = 0;
    for (const struct dirent *entry; result == 0 && (entry = readdir(dir));) {
        char name[2 * NAME_MAX + 2];
        snprintf(name, sizeof(name), "%s%s%s", scope ? scope : "", scope ? "/" : "", entry->d_name);
        if (entry->d_name[0] == '.' || (entry->d_type != DT_DIR && entry->d_type != DT_UNKNOWN))
            continue;
        if (entry->d_name[0] == '@' && !scope)
            result = npm_each(modules_fd, entry->d_name, visit, ctx, err);
        else
            result = visit(ctx, modules_fd, name, err);
    }
    closedir(dir);
    return result;
}

static int npm_prune_one(void *ctx, int modules_fd, const char *name, struct err *err)
{
    cleanup_buf struct buf text = BUF_INIT(LIMIT_CONFIG_BYTES);
    (void)ctx;
    if (!npm_read_package(modules_fd, name, &text) || build_npm_fits(buf_text(&text), text.len))
        return 0;
    return build_remove(modules_fd, name, false, err);
}

int build_npm_prune(int modules_fd, struct err *err)
{
    return npm_each(modules_fd, NULL, npm_prune_one, NULL, err);
}

/* ------------------------------------------------------------- what is there stays as it is */

static int npm_keep_one(void *ctx, int modules_fd, const char *name, struct err *err)
{
    cleanup_buf struct buf text = BUF_INIT(LIMIT_CONFIG_BYTES);
    cleanup_json struct json *json = NULL;
    (void)err;
    if (npm_read_package(modules_fd, name, &text))
        json_parse(buf_text(&text), text.len, JSON_STRICT, &json, NULL);
    const char *version = json_text(json_get(json, "version"));
    json_write_pair_string(ctx, name, version ? version : "*");
    return 0;
}

int build_npm_keep(int modules_fd, struct buf *ret, struct err *err)
{
    struct json_writer *writer = json_writer_new(ret, false);
    if (!writer)
        return err_set(err, ENOMEM, "no memory for a package.json");
    json_write_object_begin(writer);
    json_write_key(writer, "dependencies");
    json_write_object_begin(writer);
    int result = npm_each(modules_fd, NULL, npm_keep_one, writer, err);
    json_write_object_end(writer);
    json_write_object_end(writer);
    int written = json_writer_end(writer);
    if (result == 0 && written < 0)
        result = err_set(err, -written, "cannot write a package.json of what is installed");
    return result;
}

/* Files by which a folder directs npm: those of an image that this one is from do not. */
static const char *const npm_directions[] = {
    ".npmrc",
    "package.json",
    "package-lock.json",
    "npm-shrinkwrap.json",
    "node_modules/.package-lock.json",
};

/* Makes the folder ready for npm. What is installed there already is told to npm as what the folder
 * needs: it takes away what it knows no need for. package.json goes when the image is scrubbed. */
static int npm_prepare(struct err *err)
{
    cleanup_buf struct buf kept = BUF_INIT(LIMIT_CONFIG_BYTES);
    static const char *const folders[] = {BUILD_ROOT "/opt", BUILD_ROOT RECIPE_NPM_FOLDER, MODULES};
    for (size_t i = 0; i < ARRAY_LEN(folders); i++)
        if (mkdir(folders[i], 0755) < 0 && errno != EEXIST)
            return err_errno(err, errno, "cannot make %s of the image", RECIPE_NPM_FOLDER);
    cleanup_fd int root = open(BUILD_ROOT, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (root < 0)
        return err_errno(err, errno, "cannot open %s", BUILD_ROOT);
    /* No link on the way, whatever the image below has there. */
    cleanup_fd int folder =
        fd_open_beneath(root, RECIPE_NPM_FOLDER + 1, O_RDONLY | O_DIRECTORY, 0, false, err);
    if (folder < 0)
        return folder;
    int result = 0;
    for (size_t i = 0; i < ARRAY_LEN(npm_directions) && result == 0; i++)
        result = build_remove(folder, npm_directions[i], false, err);
    cleanup_fd int modules =
        result < 0 ? -1
                   : fd_open_beneath(folder, "node_modules", O_RDONLY | O_DIRECTORY, 0, false, err);
    if (modules < 0)
        return result < 0 ? result : modules;
    result = build_npm_keep(modules, &kept, err);
    return result < 0
               ? result
               : fd_write_file_atomic(folder, "package.json", 0644, kept.data, kept.len, err);
}

/* Packages' own install scripts are not run: they could only fetch more, and what is needed of a
 * package is named by the recipe's links. npm works in the folder that it finds itself in, which is
 * the nearest with node_modules: --prefix would also move the host's settings out of its sight. */
int build_npm(const struct recipe *recipe, struct err *err)
{
    static const char in_folder[] = "--chdir=" BUILD_ROOT RECIPE_NPM_FOLDER;
    static const char *const options[] = {
        "env",
        in_folder,
        "npm",
        "install",
        "--no-audit",
        "--ignore-scripts",
        "--no-fund",
        "--no-save",
        "--omit=dev",
        "--no-bin-links",
        "--no-package-lock",
        "--loglevel=warn",
        "--",
    };
    const char *argv[ARRAY_LEN(options) + LIMIT_RECIPE_ITEMS + 1] = {0};
    if (recipe->npm_count == 0)
        return 0;
    int result = npm_prepare(err);
    if (result < 0)
        return result;
    memcpy(argv, options, sizeof(options));
    for (size_t i = 0; i < recipe->npm_count; i++)
        argv[ARRAY_LEN(options) + i] = recipe->npm[i];
    result = build_run(argv, NULL, err);
    if (result < 0)
        return err_context(err, result, "npm");
    cleanup_fd int modules = open(MODULES, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (modules < 0)
        return err_errno(err, errno, "cannot open %s", MODULES);
    return build_npm_prune(modules, err);
}
