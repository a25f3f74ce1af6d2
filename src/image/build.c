/*
 * Building an image, step by step; see build.h. Nothing is done before it is sure that this process
 * is not the host's root: packages' scripts run with all that this process may do.
 */
#include "image/build.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "util/cleanup.h"
#include "util/fd.h"
#include "util/limits.h"

#define IDS_NEEDED 65536

/* Each line: first id inside, first id outside, count. */
int build_check_map(const char *map, struct err *err)
{
    unsigned long root_count = 0;
    while (*map) {
        char *rest;
        unsigned long inside = strtoul(map, &rest, 10);
        unsigned long outside = strtoul(rest, &rest, 10);
        unsigned long count = strtoul(rest, &rest, 10);
        if (outside == 0)
            return err_set(err, EPERM,
                           "this is the host's root: packages' scripts run only in a user "
                           "namespace of their own, which paddockd makes");
        if (inside == 0)
            root_count = count;
        map = rest + strcspn(rest, "\n");
        map += *map == '\n';
    }
    if (root_count < IDS_NEEDED)
        return err_set(err, EPERM, "root has %lu ids in this user namespace, packages need %d",
                       root_count, IDS_NEEDED);
    return 0;
}

int build_check_namespace(struct err *err)
{
    static const char *const maps[] = {"/proc/self/uid_map", "/proc/self/gid_map"};
    for (size_t i = 0; i < ARRAY_LEN(maps); i++) {
        cleanup_buf struct buf map = BUF_INIT(LIMIT_CONFIG_BYTES);
        int result = fd_read_file(AT_FDCWD, maps[i], &map, err);
        if (result == 0)
            result = build_check_map(buf_text(&map), err);
        if (result < 0)
            return result;
    }
    return 0;
}

static int build_check_tools(const struct recipe *recipe, struct err *err)
{
    int result = recipe->suite ? build_need("mmdebstrap", "mmdebstrap", err) : 0;
    if (result == 0 && recipe->npm_count)
        result = build_need("npm", "npm", err);
    return result;
}

static int build_report(int64_t size_bytes, struct err *err)
{
    char text[32];
    int len = snprintf(text, sizeof(text), "%" PRId64, size_bytes);
    if (fcntl(BUILD_REPORT_FD, F_GETFD) < 0)
        return 0; /* nobody wants to know */
    if (pwrite(BUILD_REPORT_FD, text, (size_t)len, 0) != len)
        return err_errno(err, errno, "cannot report the image's size");
    return 0;
}

static int build_finish(const struct recipe *recipe, int64_t *ret_size_bytes, struct err *err)
{
    cleanup_fd int root = open(BUILD_ROOT, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (root < 0)
        return err_errno(err, errno, "cannot open %s", BUILD_ROOT);
    int result = build_scrub(root, err);
    if (result == 0)
        result = build_furnish(root, recipe, err);
    return result < 0 ? result : build_measure(root, ret_size_bytes, err);
}

/* Which step of how many: a recipe has those that it needs, and that which finishes. */
struct build_steps {
    unsigned step, steps;
};

static struct build_steps build_count(const struct recipe *recipe)
{
    return (struct build_steps){.steps = (unsigned)(recipe->from != NULL) +
                                         (recipe->suite != NULL) + (recipe->npm_count > 0) + 1};
}

/* Begins as a copy of another image. */
static int build_begin(const char *name, const struct recipe *recipe, struct build_steps *steps,
                       struct err *err)
{
    static const char *const argv[] = {"cp",       "-a", "--reflink=auto", "--", (BUILD_FROM "/."),
                                       BUILD_ROOT, NULL};
    if (!recipe->from)
        return 0;
    build_say("[%u/%u] image %s: a copy of the image %s", ++steps->step, steps->steps, name,
              recipe->from);
    if (recipe->suite && access(BUILD_FROM "/var/lib/dpkg/status", F_OK) < 0)
        return err_set(err, ENOENT,
                       "the image %s is not of Debian: no Debian packages can be installed on it",
                       recipe->from);
    return build_run(argv, NULL, err);
}

static int build_packages(const char *name, const struct recipe *recipe, struct build_steps *steps,
                          struct err *err)
{
    int result = 0;
    if (recipe->suite) {
        build_say("[%u/%u] image %s: %zu packages of Debian %s and what they need", ++steps->step,
                  steps->steps, name, recipe->package_count, recipe->suite);
        result = build_debian(recipe, err);
    }
    if (result == 0 && recipe->npm_count) {
        build_say("[%u/%u] image %s: %zu packages of npm", ++steps->step, steps->steps, name,
                  recipe->npm_count);
        result = build_npm(recipe, err);
    }
    return result;
}

int build_image(const char *name, const struct recipe *recipe, struct err *err)
{
    struct build_steps steps = build_count(recipe);
    int64_t size_bytes = 0;
    int result = build_check_tools(recipe, err);
    if (result < 0)
        return result;
    if (mkdir(BUILD_HOME, 0700) < 0 && errno != EEXIST)
        return err_errno(err, errno, "cannot make %s", BUILD_HOME);
    result = build_begin(name, recipe, &steps, err);
    if (result == 0)
        result = build_packages(name, recipe, &steps, err);
    if (result < 0)
        return result;
    build_say("[%u/%u] image %s: cleaned, measured and written to the disk", ++steps.step,
              steps.steps, name);
    result = build_finish(recipe, &size_bytes, err);
    if (result == 0)
        result = build_report(size_bytes, err);
    if (result == 0)
        build_say("image %s: done, %" PRId64 " MiB", name, size_bytes >> 20);
    return result;
}
