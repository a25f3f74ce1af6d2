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

static bool npm_folder_fits(int modules_fd, const char *name)
{
    char path[2 * NAME_MAX + 32];
    snprintf(path, sizeof(path), "%s/package.json", name);
    cleanup_fd int fd = fd_open_beneath(modules_fd, path, O_RDONLY, 0, true, NULL);
    cleanup_buf struct buf text = BUF_INIT(LIMIT_CONFIG_BYTES);
    if (fd < 0 || fd_read_all(fd, &text) < 0)
        return true;
    return build_npm_fits(buf_text(&text), text.len);
}

/* Looks at the packages of one folder: of node_modules itself, or of the scope `@scope`. */
static int npm_prune_folder(int modules_fd, const char *scope, struct err *err)
{
    cleanup_fd int fd = fd_open_beneath(modules_fd, scope, O_RDONLY | O_DIRECTORY, 0, false, err);
    if (fd < 0)
        return fd;
    DIR *dir = fdopendir(fd);
    if (!dir)
        return err_errno(err, errno, "cannot read %s of node_modules", scope);
    (void)TAKE_FD(fd); /* the stream's now */
    int result = 0;
    for (const struct dirent *entry; result == 0 && (entry = readdir(dir));) {
        char name[2 * NAME_MAX + 2];
        snprintf(name, sizeof(name), "%s/%s", scope, entry->d_name);
        if (entry->d_name[0] == '.' || (entry->d_type != DT_DIR && entry->d_type != DT_UNKNOWN))
            continue;
        if (entry->d_name[0] == '@' && strcmp(scope, ".") == 0)
            result = npm_prune_folder(modules_fd, entry->d_name, err);
        else if (!npm_folder_fits(modules_fd, name))
            result = build_remove(modules_fd, name, false, err);
    }
    closedir(dir);
    return result;
}

int build_npm_prune(int modules_fd, struct err *err)
{
    return npm_prune_folder(modules_fd, ".", err);
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
    if (mkdir(BUILD_ROOT RECIPE_NPM_FOLDER, 0755) < 0 || mkdir(MODULES, 0755) < 0)
        return err_errno(err, errno, "cannot make %s of the image", RECIPE_NPM_FOLDER);
    memcpy(argv, options, sizeof(options));
    for (size_t i = 0; i < recipe->npm_count; i++)
        argv[ARRAY_LEN(options) + i] = recipe->npm[i];
    int result = build_run(argv, NULL, err);
    if (result < 0)
        return err_context(err, result, "npm");
    cleanup_fd int modules = open(MODULES, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (modules < 0)
        return err_errno(err, errno, "cannot open %s", MODULES);
    return build_npm_prune(modules, err);
}
