/* Bytes of an archive on their way; see import_internal.h. Invariant: a digest is of all the bytes,
 * those behind the end of the compressed data and of the tar included. */
#include "image/import_internal.h"

#include <openssl/evp.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "util/cleanup.h"

#define STREAM_BYTES 65536

struct side {
    EVP_MD_CTX *hash; /* NULL: not hashed */
    char expected[IMPORT_DIGEST_SIZE];
};

struct import_stream {
    int fd;
    struct archive *member;
    struct archive *filter;
    struct side raw, plain;
    int64_t plain_bytes;
    struct err err; /* of a callback */
    char buffer[STREAM_BYTES];
};

static ssize_t read_raw(struct import_stream *stream)
{
    ssize_t n;
    if (stream->member) {
        n = archive_read_data(stream->member, stream->buffer, STREAM_BYTES);
        if (n < 0)
            err_set(&stream->err, EINVAL, "the archive is broken: %s",
                    archive_error_string(stream->member));
    } else {
        do
            n = read(stream->fd, stream->buffer, STREAM_BYTES);
        while (n < 0 && errno == EINTR);
        if (n < 0)
            err_errno(&stream->err, errno, "cannot read the archive");
    }
    if (n > 0 && stream->raw.hash)
        EVP_DigestUpdate(stream->raw.hash, stream->buffer, (size_t)n);
    return n;
}

static la_ssize_t on_read_raw(struct archive *archive, void *ctx, const void **ret)
{
    struct import_stream *stream = ctx;
    ssize_t n = read_raw(stream);
    if (n < 0)
        archive_set_error(archive, EINVAL, "%s", stream->err.message);
    *ret = stream->buffer;
    return n < 0 ? ARCHIVE_FATAL : n;
}

/* Only those that libarchive does itself: others it would start programs for. */
static int open_filter(struct import_stream *stream, struct err *err)
{
    stream->filter = archive_read_new();
    if (!stream->filter)
        return err_set(err, ENOMEM, "no memory for an archive");
    archive_read_support_filter_gzip(stream->filter);
    archive_read_support_filter_xz(stream->filter);
    archive_read_support_filter_zstd(stream->filter);
    archive_read_support_filter_bzip2(stream->filter);
    archive_read_support_format_raw(stream->filter);
    struct archive_entry *entry;
    if (archive_read_open(stream->filter, stream, NULL, on_read_raw, NULL) != ARCHIVE_OK ||
        archive_read_next_header(stream->filter, &entry) < ARCHIVE_WARN)
        return err_set(err, EINVAL, "the archive is empty or broken: %s",
                       archive_error_string(stream->filter));
    return 0;
}

static int begin_hash(struct side *side, const char *expected, struct err *err)
{
    if (!expected[0])
        return 0;
    memcpy(side->expected, expected, strlen(expected) + 1);
    side->hash = EVP_MD_CTX_new();
    const EVP_MD *kind = strncmp(expected, "sha512:", 7) == 0 ? EVP_sha512() : EVP_sha256();
    if (!side->hash || EVP_DigestInit_ex(side->hash, kind, NULL) != 1)
        return err_set(err, ENOMEM, "libcrypto cannot hash");
    return 0;
}

int import_stream_open(int fd, struct archive *member, struct import_stream **ret, struct err *err)
{
    struct import_stream *stream = calloc(1, sizeof(*stream));
    if (!stream)
        return err_set(err, ENOMEM, "no memory for an archive");
    stream->fd = fd;
    stream->member = member;
    *ret = stream;
    return 0;
}

void import_stream_close(struct import_stream *stream)
{
    if (!stream)
        return;
    archive_read_free(stream->filter);
    EVP_MD_CTX_free(stream->raw.hash);
    EVP_MD_CTX_free(stream->plain.hash);
    free(stream);
}

int import_stream_expect(struct import_stream *stream, const char *raw, const char *plain,
                         struct err *err)
{
    int result = begin_hash(&stream->raw, raw, err);
    return result < 0 ? result : begin_hash(&stream->plain, plain, err);
}

ssize_t import_stream_read(struct import_stream *stream, const void **ret, struct err *err)
{
    la_int64_t offset;
    size_t len = 0;
    int result = stream->filter ? 0 : open_filter(stream, err);
    if (result < 0)
        return result;
    result = archive_read_data_block(stream->filter, ret, &len, &offset);
    if (result == ARCHIVE_EOF)
        return 0;
    if (result < ARCHIVE_WARN)
        return err_set(err, EINVAL, "the archive is broken: %s",
                       archive_error_string(stream->filter));
    stream->plain_bytes += (int64_t)len;
    if (stream->plain_bytes > LIMIT_IMPORT_BYTES)
        return err_set(err, EMSGSIZE, "the archive has more than %lld GiB without its compression",
                       LIMIT_IMPORT_BYTES >> 30);
    if (stream->plain.hash)
        EVP_DigestUpdate(stream->plain.hash, *ret, len);
    return (ssize_t)len;
}

/* Hex digits of the hash, with its NUL. */
static void hash_hex(EVP_MD_CTX *hash, char ret[129])
{
    static const char digits[] = "0123456789abcdef";
    unsigned char bytes[EVP_MAX_MD_SIZE];
    unsigned len = 0;
    EVP_DigestFinal_ex(hash, bytes, &len);
    for (unsigned i = 0; i < len; i++) {
        ret[2 * i] = digits[bytes[i] >> 4];
        ret[2 * i + 1] = digits[bytes[i] & 15];
    }
    ret[2 * len] = '\0';
}

static int check_side(struct side *side, const char *what, struct err *err)
{
    char hex[129];
    if (!side->hash || strlen(side->expected) == 7) /* "sha256:": to be told, not compared */
        return 0;
    hash_hex(side->hash, hex);
    if (strcmp(side->expected + 7, hex) == 0)
        return 0;
    return err_set(err, EBADMSG,
                   "the archive is broken: %s must have the digest %.20s..., not %.13s", what,
                   side->expected, hex);
}

int import_stream_finish(struct import_stream *stream, struct err *err)
{
    const void *data;
    ssize_t n;
    while ((n = import_stream_read(stream, &data, err)) > 0) {
    }
    while (n == 0 && (n = read_raw(stream)) > 0)
        n = 0;
    if (n < 0) {
        if (stream->err.message[0])
            *err = stream->err;
        return (int)n;
    }
    int result = check_side(&stream->raw, "a file in it", err);
    return result < 0 ? result : check_side(&stream->plain, "a layer", err);
}

void import_stream_digest(struct import_stream *stream, char ret[65])
{
    char hex[129];
    hash_hex(stream->raw.hash, hex);
    memcpy(ret, hex, 65);
}

/* ------------------------------------------------------------------------------------- tar */

static la_ssize_t on_read_plain(struct archive *archive, void *ctx, const void **ret)
{
    struct err err = {0};
    ssize_t n = import_stream_read(ctx, ret, &err);
    if (n < 0)
        archive_set_error(archive, (int)-n, "%s", err.message);
    return n < 0 ? ARCHIVE_FATAL : n;
}

int import_stream_tar(struct import_stream *stream, struct archive **ret, struct err *err)
{
    struct archive *tar = archive_read_new();
    if (!tar)
        return err_set(err, ENOMEM, "no memory for an archive");
    archive_read_support_format_tar(tar);
    archive_read_support_format_empty(tar);
    if (archive_read_open(tar, stream, NULL, on_read_plain, NULL) != ARCHIVE_OK) {
        int result = err_set(err, EINVAL, "this is no tar archive: %s", archive_error_string(tar));
        archive_read_free(tar);
        return result;
    }
    *ret = tar;
    return 0;
}

int import_next(struct archive *tar, struct archive_entry **ret,
                char ret_path[LIMIT_IMPORT_PATH_BYTES + 1], struct err *err)
{
    int result = archive_read_next_header(tar, ret);
    if (result == ARCHIVE_EOF)
        return 0;
    if (result < ARCHIVE_WARN)
        return err_set(err, EINVAL, "the archive is broken, or no tar: %s",
                       archive_error_string(tar));
    const char *path = archive_entry_pathname(*ret);
    if (!path)
        return err_set(err, EINVAL, "the archive has an entry without a name");
    result = import_clean_path(path, ret_path, err);
    return result < 0 ? result : 1;
}
