/*
 * The parts of paddock-image-build: one shot, as root of a user namespace of its own, in a jail
 * that shows the host's / read-only and the image's empty root folder at BUILD_ROOT. What the
 * packages' scripts can do ends at that folder. Everything here blocks, and writes its log to
 * standard output.
 *
 * Package clients get the host's settings by reading them where they are; build_scrub takes
 * whatever they left of them out of the image.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "image/recipe.h"
#include "util/buf.h"
#include "util/err.h"

#define BUILD_ROOT "/out"
#define BUILD_FROM "/from" /* the root of the image that the recipe is from, read-only */
/* A private tmpfs of the jail. */
#define BUILD_HOME "/tmp/home"

#define BUILD_RECIPE_FD 3 /* the recipe's text */
#define BUILD_REPORT_FD 4 /* takes the image's size in bytes; may be missing */

/* A line of the build's log: "==> text". */
void build_say(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Refuses to go on unless this process is in a user namespace with 65,536 ids, none of which is the
 * host's root: -EPERM (user_namespaces(7)). */
int build_check_namespace(struct err *err);
/* As above, over the text of a uid_map; pure. */
int build_check_map(const char *map, struct err *err);

/* Runs a program to its end with the clean environment of package clients; what it prints goes to
 * the log, or to `output` when that is given. -ENOENT: it is not installed; -ECHILD: it failed. */
int build_run(const char *const *argv, struct buf *output, struct err *err);
/* -ENOENT with what to install when `program` is not on the fixed PATH. */
int build_need(const char *program, const char *package, struct err *err);

/* The steps, in the order in which build_image takes them. */
int build_debian(const struct recipe *recipe, struct err *err);
int build_npm(const struct recipe *recipe, struct err *err);
/* Part of build_npm: removes packages whose package.json says that they are for another C library.
 */
int build_npm_prune(int modules_fd, struct err *err);
/* Part of build_npm: a package.json that needs every package of node_modules in the version that it
 * has. */
int build_npm_keep(int modules_fd, struct buf *ret, struct err *err);
/* Is the package that this package.json describes for glibc, or for any? Pure. */
bool build_npm_fits(const char *package_json, size_t len);
int build_furnish(int root_fd, const struct recipe *recipe, struct err *err);
int build_scrub(int root_fd, struct err *err);
/* Flushes the image to disk and tells the bytes that it takes. */
int build_measure(int root_fd, int64_t *ret_size_bytes, struct err *err);

/* Removes what is below `dir_fd`/`path` and, unless keep_top, `path` itself. No path is followed
 * out of dir_fd, no symlink at all. What is not there is no error. */
int build_remove(int dir_fd, const char *path, bool keep_top, struct err *err);

/* The lines of `lines` ("URI RELEASE COMPONENT") that are of the suite, each once, as lines of a
 * sources.list; pure. */
int build_select_sources(const char *lines, const char *suite, struct buf *ret);
/* The settings of apt's `apt-config dump` that tell how to fetch; pure. */
int build_select_apt_settings(const char *dump, struct buf *ret);

/* All of it. */
int build_image(const char *name, const struct recipe *recipe, struct err *err);
