/*
 * The image store STATE/images and the recipes that images are built from. Supervisor only; files
 * that none but root (or the invoking user) can write.
 *
 *   images/<image>/rootfs/     owned on disk by ids 0..65535
 *   images/<image>/image.json  {"schema":1,"name","digest","built","size_bytes"}, and of an image
 *                              that was imported, or built from one, "imported", "user", "uid",
 *                              "gid", "home", "workdir", "env"; written last: an image without it
 *                              does not exist
 * A recipe is recipes_dir/<image>/build.json:
 *   { "from": "base",       // an image that it begins as; then the rest may be missing
 *     "debian": { "suite": "bookworm", "packages": ["bash", ...] },
 *     "npm": ["@anthropic-ai/claude-code@2.1.280"],
 *     "links": { "/usr/local/bin/claude": "/opt/npm/node_modules/.../claude" } }
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "image/config.h"
#include "util/buf.h"
#include "util/err.h"

struct image_info {
    char name[64];
    char digest[65]; /* hex SHA-256 of recipe and build format: tells whether a build is due; of an
                        imported image that of its archive */
    bool is_imported;
    int64_t built; /* Unix seconds */
    int64_t size_bytes;
};

/* O_PATH descriptor of images/<name>/rootfs. -ENOENT: no such image (message tells the cure:
 * `paddock image build NAME`). */
int image_open(int state_fd, const char *name, struct err *err);
int image_info_read(int state_fd, const char *name, struct image_info *ret, struct err *err);
/* What the image itself says of its programs; all empty when it says nothing. Some 35 KiB. */
int image_config_read(int state_fd, const char *name, struct image_config *ret, struct err *err);
int image_list(int state_fd, void (*found)(void *ctx, const struct image_info *info), void *ctx,
               struct err *err);

/* Reads and checks recipes_dir/<name>/build.json; ret_text gets its bytes, ret_digest its digest,
 * in which that of the image that it is from, and the time when it was made, have their part;
 * ret_from the name of that image, or "". -ENOENT: there is no such recipe, or not that image. */
int image_recipe_read(int recipes_fd, int state_fd, const char *name, struct buf *ret_text,
                      char ret_digest[65], char ret_from[64], struct err *err);
/* True when the image was built from a recipe that is there, but not from what it is now. */
bool image_is_stale(int recipes_fd, int state_fd, const struct image_info *info);

/* What paddock-image-build reports when it is done: the bytes that the image takes on disk, from
 * the memfd that it got as descriptor 4. -EINVAL: nothing (sensible) was reported. */
int image_build_report_read(int report_fd, int64_t *ret_size_bytes, struct err *err);

/* What the jail's job import reports, checked. -EPROTO: it is not one. */
int image_import_report_read(int report_fd, struct image_report *ret, struct err *err);

/* A build, or an import, goes to images/.build-<name>/; committed by writing image.json there and
 * renaming; the old image, if any, is moved to trash/. Running instances keep what they have
 * mounted. */
int image_build_prepare(int state_fd, const char *name,
                        struct err *err); /* O_PATH of its rootfs/ */
int image_build_commit(int state_fd, const struct image_info *info,
                       const struct image_config *config, struct err *err);
void image_build_discard(int state_fd, const char *name);          /* into trash/ */
int image_remove(int state_fd, const char *name, struct err *err); /* into trash/; -ENOENT */
