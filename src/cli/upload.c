/* Archives on their way to the daemon; see upload.h. A folder is packed as libarchive finds it, a
 * piece each time some is asked for, so that nothing has to be kept. */
#include "cli/upload.h"

#include <archive.h>
#include <archive_entry.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "util/buf.h"
#include "util/cleanup.h"

/* A piece of a packed folder: a header with a long name, or a block of a file. */
#define PIECE_BYTES (4 * 1024 * 1024)

struct cli_upload {
    int fd; /* -1: a folder */
    int64_t size;
    struct archive *disk;
    struct archive *tar;
    struct archive_entry *entry;
    size_t prefix; /* length of the folder's path in front of each name */
    bool is_in_file;
    bool is_done;
    struct buf out;
    struct err err;
};

static la_ssize_t on_packed(struct archive *archive, void *ctx, const void *data, size_t len)
{
    struct cli_upload *upload = ctx;
    if (buf_append(&upload->out, data, len) == 0)
        return (la_ssize_t)len;
    archive_set_error(archive, ENOMEM, "out of memory");
    return -1;
}

static int open_folder(struct cli_upload *upload, const char *path, struct err *err)
{
    char layout[4096];
    if (snprintf(layout, sizeof(layout), "%s/oci-layout", path) >= (int)sizeof(layout) ||
        access(layout, F_OK) < 0)
        return err_set(err, EINVAL,
                       "%.500s is no OCI image layout: it has no file oci-layout (a root file "
                       "system is imported as a tar of it)",
                       path);
    upload->prefix = strlen(path);
    upload->disk = archive_read_disk_new();
    upload->tar = archive_write_new();
    upload->entry = archive_entry_new();
    if (!upload->disk || !upload->tar || !upload->entry)
        return err_set(err, ENOMEM, "out of memory");
    archive_read_disk_set_symlink_physical(upload->disk);
    /* whole files, zeros for holes: what pack_data passes on has no offset */
    archive_read_disk_set_behavior(upload->disk, ARCHIVE_READDISK_NO_SPARSE);
    archive_write_set_format_pax_restricted(upload->tar);
    archive_write_set_bytes_per_block(upload->tar, 0);
    if (archive_read_disk_open(upload->disk, path) != ARCHIVE_OK ||
        archive_write_open(upload->tar, upload, NULL, on_packed, NULL) != ARCHIVE_OK)
        return err_set(err, EIO, "cannot pack %.500s", path);
    return 0;
}

int cli_upload_open(const char *path, struct cli_upload **ret, struct err *err)
{
    struct stat st;
    bool is_stdin = strcmp(path, "-") == 0;
    cleanup_fd int fd = is_stdin ? dup(STDIN_FILENO) : open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st) < 0)
        return err_errno(err, errno, "cannot open %.500s", path);
    cleanup_upload struct cli_upload *upload = calloc(1, sizeof(*upload));
    if (!upload)
        return err_set(err, ENOMEM, "out of memory");
    upload->fd = -1;
    upload->out = BUF_INIT(PIECE_BYTES);
    upload->size = S_ISREG(st.st_mode) && !is_stdin ? st.st_size : -1;
    if (!S_ISDIR(st.st_mode))
        upload->fd = TAKE_FD(fd);
    int result = upload->fd < 0 ? open_folder(upload, path, err) : 0;
    if (result == 0)
        *ret = TAKE_PTR(upload);
    return result;
}

void cli_upload_close(struct cli_upload *upload)
{
    if (!upload)
        return;
    cleanup_fd_at(&upload->fd);
    archive_read_free(upload->disk);
    archive_write_free(upload->tar);
    archive_entry_free(upload->entry);
    buf_free(&upload->out);
    free(upload);
}

int64_t cli_upload_size(const struct cli_upload *upload)
{
    return upload->size;
}

const struct err *cli_upload_error(const struct cli_upload *upload)
{
    return &upload->err;
}

static int fail(struct cli_upload *upload, struct archive *archive)
{
    return err_set(&upload->err, EIO, "cannot pack the layout: %s", archive_error_string(archive));
}

/* The next entry of the folder; its name without the folder's own. */
static int pack_header(struct cli_upload *upload)
{
    int result = archive_read_next_header2(upload->disk, upload->entry);
    if (result == ARCHIVE_EOF) {
        upload->is_done = true;
        return archive_write_close(upload->tar) == ARCHIVE_OK ? 0 : fail(upload, upload->tar);
    }
    if (result != ARCHIVE_OK)
        return fail(upload, upload->disk);
    archive_read_disk_descend(upload->disk);
    const char *name = archive_entry_pathname(upload->entry) + upload->prefix;
    cleanup_free char *copy = strdup(name + strspn(name, "/"));
    if (!copy || !copy[0]) /* the folder itself */
        return copy ? 0 : err_set(&upload->err, ENOMEM, "out of memory");
    archive_entry_set_pathname(upload->entry, copy);
    if (archive_write_header(upload->tar, upload->entry) != ARCHIVE_OK)
        return fail(upload, upload->tar);
    upload->is_in_file = archive_entry_filetype(upload->entry) == AE_IFREG;
    return 0;
}

static int pack_data(struct cli_upload *upload)
{
    const void *data;
    size_t len;
    la_int64_t offset;
    int result = archive_read_data_block(upload->disk, &data, &len, &offset);
    if (result == ARCHIVE_EOF) {
        upload->is_in_file = false;
        return 0;
    }
    if (result != ARCHIVE_OK)
        return fail(upload, upload->disk);
    return archive_write_data(upload->tar, data, len) < 0 ? fail(upload, upload->tar) : 0;
}

static ssize_t read_packed(struct cli_upload *upload, char *data, size_t max)
{
    while (upload->out.len == 0 && !upload->is_done) {
        int result = upload->is_in_file ? pack_data(upload) : pack_header(upload);
        if (result < 0)
            return result;
    }
    size_t len = upload->out.len < max ? upload->out.len : max;
    if (len == 0)
        return 0;
    memcpy(data, upload->out.data, len);
    buf_consume(&upload->out, len);
    return (ssize_t)len;
}

ssize_t cli_upload_read(void *ctx, char *data, size_t max)
{
    struct cli_upload *upload = ctx;
    ssize_t n;
    if (upload->fd < 0)
        return read_packed(upload, data, max);
    do
        n = read(upload->fd, data, max);
    while (n < 0 && errno == EINTR);
    return n < 0 ? err_errno(&upload->err, errno, "cannot read the archive") : n;
}
