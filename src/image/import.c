/*
 * An import from its archive to its root file system; see import.h. In a jail. A layer is read
 * twice: first whole, for its digests and for what it takes away from the layers below (an opaque
 * folder may be told after what the same layer puts into it), then for what it brings.
 */
#include "image/import.h"

#include <fcntl.h>
#include <locale.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "image/import_internal.h"
#include "util/cleanup.h"
#include "util/fd.h"
#include "util/tree.h"

#define IDS 65536

int import_is_squashed(bool *ret, struct err *err)
{
    cleanup_buf struct buf map = BUF_INIT(65536);
    int result = fd_read_file(AT_FDCWD, "/proc/self/uid_map", &map, err);
    if (result < 0)
        return result;
    unsigned long ids = 0;
    for (char *at = map.data; at && *at;) { /* inside, outside, count */
        strtoul(at, &at, 10);
        strtoul(at, &at, 10);
        ids += strtoul(at, &at, 10);
        at += strspn(at, " \n");
    }
    *ret = ids < IDS;
    return 0;
}

/* ----------------------------------------------------------------------------- one archive */

/* Unpacks what the reader holds; whiteouts are files like any other in an archive that is no
 * layer. */
static int unpack(struct import_tree *tree, struct archive *tar, bool is_layer, struct err *err)
{
    char path[LIMIT_IMPORT_PATH_BYTES + 1];
    struct archive_entry *entry;
    int result;
    while ((result = import_next(tar, &entry, path, err)) == 1) {
        const char *slash = strrchr(path, '/');
        if (is_layer && strncmp(slash ? slash + 1 : path, ".wh.", 4) == 0)
            continue;
        result = import_tree_add(tree, tar, entry, path, err);
        if (result < 0)
            return result;
    }
    return result;
}

static int take_away(struct import_tree *tree, struct archive *tar, struct err *err)
{
    char path[LIMIT_IMPORT_PATH_BYTES + 1];
    struct archive_entry *entry;
    bool is_one;
    int result;
    while ((result = import_next(tar, &entry, path, err)) == 1) {
        result = import_tree_whiteout(tree, path, &is_one, err);
        if (result < 0)
            return err_context(err, result, "/%.500s of a layer", path);
    }
    return result;
}

/* One pass over a layer; checked to its last byte when it has ended well. */
static int read_layer(struct import_tree *tree, const struct import_spool *spool,
                      const struct import_part *part, const char *diff_id, bool is_first,
                      struct err *err)
{
    cleanup_archive struct archive *member = NULL;
    cleanup_stream struct import_stream *stream = NULL;
    cleanup_archive struct archive *tar = NULL;
    int result = import_spool_find(spool, part->member, &member, err);
    if (result == 0)
        result = import_stream_open(-1, member, &stream, err);
    if (result == 0)
        result = import_stream_expect(stream, part->digest, diff_id, err);
    if (result == 0)
        result = import_stream_tar(stream, &tar, err);
    if (result == 0)
        result = is_first ? take_away(tree, tar, err) : unpack(tree, tar, true, err);
    return result < 0 ? result : import_stream_finish(stream, err);
}

static int unpack_layers(struct import_tree *tree, const struct import_spool *spool,
                         const struct import_image *image, const struct import_config *config,
                         struct err *err)
{
    if (image->layer_count != config->layer_count)
        return err_set(err, EINVAL, "the image has %zu layers, its configuration %zu",
                       image->layer_count, config->layer_count);
    int result = 0;
    for (size_t i = 0; i < image->layer_count && result == 0; i++) {
        const struct import_part *part = &image->layers[i];
        result = read_layer(tree, spool, part, config->diff_ids[i], true, err);
        if (result == 0)
            result = read_layer(tree, spool, part, config->diff_ids[i], false, err);
        if (result < 0)
            err_context(err, result, "layer %zu", i + 1);
    }
    return result;
}

/* ------------------------------------------------------------------- from archive to layers */

static int find_oci(const struct import_spool *spool, struct import_image *ret, struct err *err)
{
    struct import_part part = {.member = "index.json"};
    bool is_index = true;
    for (int i = 0; i < LIMIT_IMPORT_INDEXES && is_index; i++) {
        cleanup_buf struct buf text = BUF_INIT(LIMIT_IMPORT_JSON_BYTES);
        int result = import_spool_json(spool, &part, &text, err);
        if (result == 0)
            result = import_parse_index(buf_text(&text), text.len, &part, &is_index, err);
        if (result < 0)
            return result;
    }
    if (is_index)
        return err_set(err, EINVAL, "indexes lead to indexes, and to no image");
    cleanup_buf struct buf text = BUF_INIT(LIMIT_IMPORT_JSON_BYTES);
    int result = import_spool_json(spool, &part, &text, err);
    return result < 0 ? result : import_parse_manifest(buf_text(&text), text.len, ret, err);
}

static int find_docker(const struct import_spool *spool, struct import_image *ret, struct err *err)
{
    static const struct import_part part = {.member = "manifest.json"};
    cleanup_buf struct buf text = BUF_INIT(LIMIT_IMPORT_JSON_BYTES);
    int result = import_spool_json(spool, &part, &text, err);
    return result < 0 ? result : import_parse_docker(buf_text(&text), text.len, ret, err);
}

static int unpack_image(struct import_tree *tree, const struct import_spool *spool,
                        enum import_kind kind, struct image_config *ret, struct err *err)
{
    cleanup_free struct import_image *image = calloc(1, sizeof(*image));
    cleanup_free struct import_config *config = calloc(1, sizeof(*config));
    cleanup_buf struct buf text = BUF_INIT(LIMIT_IMPORT_JSON_BYTES);
    if (!image || !config)
        return err_set(err, ENOMEM, "no memory for an image");
    int result = kind == IMPORT_OCI ? find_oci(spool, image, err) : find_docker(spool, image, err);
    if (result == 0)
        result = import_spool_json(spool, &image->config, &text, err);
    if (result == 0)
        result = import_parse_config(buf_text(&text), text.len, config, err);
    if (result == 0)
        result = unpack_layers(tree, spool, image, config, err);
    if (result == 0)
        *ret = config->kept;
    return result;
}

static int unpack_rootfs(struct import_tree *tree, const struct import_spool *spool,
                         struct err *err)
{
    cleanup_archive struct archive *tar = NULL;
    int result = import_spool_tar(spool, &tar, err);
    return result < 0 ? result : unpack(tree, tar, false, err);
}

/* ------------------------------------------------------------------------------- the image */

/* A folder in a folder, or sources, imported by mistake, would be noticed at the first start only.
 */
static int check_root(const struct import_tree *tree, struct err *err)
{
    static const char *const names[] = {"usr", "bin", "etc"};
    for (size_t i = 0; i < ARRAY_LEN(names); i++)
        if (faccessat(tree->root_fd, names[i], F_OK, AT_SYMLINK_NOFOLLOW) == 0)
            return 0;
    return err_set(err, EINVAL,
                   "the archive holds no root file system: there is no usr, bin or etc at its top");
}

static int find_user(const struct import_tree *tree, struct image_config *config, struct err *err)
{
    cleanup_buf struct buf passwd = BUF_INIT(LIMIT_IMPORT_ACCOUNTS_BYTES);
    cleanup_buf struct buf group = BUF_INIT(LIMIT_IMPORT_ACCOUNTS_BYTES);
    int result = import_tree_read(tree, "etc/passwd", &passwd, err);
    if (result == 0)
        result = import_tree_read(tree, "etc/group", &group, err);
    return result < 0 ? result : import_find_user(config, buf_text(&passwd), buf_text(&group), err);
}

static int fill(struct import_tree *tree, const struct import_job *job, struct image_report *ret,
                struct err *err)
{
    struct import_spool spool = {.fd = -1};
    enum import_kind kind;
    int result = import_spool_fill(job->in_fd, job->out_fd, job->floor_bytes, &spool, err);
    if (result == 0)
        result = import_spool_kind(&spool, &kind, err);
    if (result == 0)
        result = kind == IMPORT_ROOTFS ? unpack_rootfs(tree, &spool, err)
                                       : unpack_image(tree, &spool, kind, &ret->config, err);
    memcpy(ret->digest, spool.digest, sizeof(ret->digest));
    cleanup_fd_at(&spool.fd);
    return result;
}

int import_run(const struct import_job *job, struct image_report *ret, struct err *err)
{
    /* Names in pax headers are UTF-8, and come out as they are only in a locale that is. */
    if (!setlocale(LC_CTYPE, "C.UTF-8"))
        return err_set(err, ENOSYS, "there is no locale C.UTF-8");
    struct import_tree tree = {
        .root_fd = job->out_fd, .is_squashed = job->is_squashed, .floor_bytes = job->floor_bytes};
    *ret = (struct image_report){0};
    if (fchmod(job->out_fd, 0755) < 0) /* an archive need not have an entry for the root */
        return err_errno(err, errno, "cannot set the mode of the image's root");
    int result = fill(&tree, job, ret, err);
    if (result == 0)
        result = check_root(&tree, err);
    if (result == 0)
        result = find_user(&tree, &ret->config, err);
    if (result == 0)
        result = tree_measure(job->out_fd, &ret->size_bytes, err);
    if (result == 0 && syncfs(job->out_fd) < 0)
        result = err_errno(err, errno, "cannot write the image to the disk");
    ret->dropped = tree.dropped;
    return result;
}
