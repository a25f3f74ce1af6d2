/* The unpacking of an image's archive: tar as libarchive reads it, layers with their whiteouts,
 * every kind of entry. It is done whole, in a scratch folder beside a file that no archive may
 * touch.
 *
 * The first byte chooses: 't', a tar; 'l', up to three layers, of which the next two bytes tell the
 * first's and the second's length in blocks; else an archive as it comes. Of layers the archive is
 * made here, with the digests that fit, and the checksums in a tar are set right, so that few
 * inputs end at those. */
#include <assert.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "image/import.h"
#include "util/cleanup.h"
#include "util/fd.h"
#include "util/sha256.h"
#include "util/tree.h"

#define BLOCK 512
#define LAYERS 3
#define SIZE_MAX_INPUT (64 * 1024)
#ifdef __aarch64__
#define MACHINE "arm64"
#else
#define MACHINE "amd64"
#endif

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* ------------------------------------------------------------------------------- the scratch */

/* In memory where that can be had: an import ends with syncfs(2). */
static char scratch[] = "/dev/shm/paddock-fuzz-XXXXXX";
static int scratch_fd = -1;
static struct stat kept;

static void scratch_remove(void)
{
    tree_clear(scratch_fd, NULL);
    rmdir(scratch);
}

static void scratch_make(void)
{
    if (scratch_fd >= 0)
        return;
    if (access("/dev/shm", W_OK) < 0)
        snprintf(scratch, sizeof(scratch), "/tmp/paddock-fuzz-XXXXXX");
    assert(mkdtemp(scratch));
    scratch_fd = open(scratch, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    cleanup_fd int fd = openat(scratch_fd, "kept", O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
    assert(fd_write_all(fd, "kept\n", 5) == 0 && fstat(fd, &kept) == 0);
    atexit(scratch_remove);
}

/* The file outside of the image is as it was. */
static void scratch_check(void)
{
    struct stat now;
    assert(fstatat(scratch_fd, "kept", &now, AT_SYMLINK_NOFOLLOW) == 0);
    assert(now.st_ino == kept.st_ino && now.st_mode == kept.st_mode && now.st_size == kept.st_size);
    assert(now.st_nlink == 1 && now.st_uid == kept.st_uid);
    assert(now.st_mtim.tv_sec == kept.st_mtim.tv_sec &&
           now.st_ctim.tv_nsec == kept.st_ctim.tv_nsec);
}

static int check_file(const char *path, const struct stat *st, int kind, struct FTW *at)
{
    (void)path;
    (void)at;
    if (kind == FTW_NS)
        return 0;
    assert(S_ISREG(st->st_mode) || S_ISDIR(st->st_mode) || S_ISLNK(st->st_mode));
    assert(!S_ISREG(st->st_mode) || (st->st_mode & 06000) == 0);
    assert(st->st_uid <= UINT16_MAX && st->st_gid <= UINT16_MAX);
    return 0;
}

static void unpack(int archive_fd)
{
    char path[64];
    struct err err = {0};
    cleanup_free struct image_report *report = calloc(1, sizeof(*report));
    assert(report && mkdirat(scratch_fd, "out", 0755) == 0);
    cleanup_fd int out = openat(scratch_fd, "out", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    struct import_job job = {.in_fd = archive_fd, .out_fd = out, .is_squashed = geteuid() != 0};
    if (import_run(&job, report, &err) < 0) {
        assert(err.message[0]);
    } else {
        assert(image_config_is_valid(&report->config) && strlen(report->digest) == 64);
        snprintf(path, sizeof(path), "%s/out", scratch);
        nftw(path, check_file, 16, FTW_PHYS);
    }
    scratch_check();
    assert(tree_remove(scratch_fd, "out", NULL) == 0);
}

/* ----------------------------------------------------------------------------------- the tar */

static void set_checksum(uint8_t *header)
{
    unsigned sum = 0;
    memset(header + 148, ' ', 8);
    for (size_t i = 0; i < BLOCK; i++)
        sum += header[i];
    char text[8];
    snprintf(text, sizeof(text), "%06o", sum & 0777777);
    memcpy(header + 148, text, 7);
}

/* Sets the checksums of the headers right, as far as they can be found. */
static void mend(uint8_t *data, size_t size)
{
    for (size_t at = 0; at + BLOCK <= size;) {
        uint8_t *header = data + at;
        size_t len = 0;
        at += BLOCK;
        if (!header[0])
            continue;
        set_checksum(header);
        for (size_t i = 124; i < 135 && header[i] >= '0' && header[i] <= '7'; i++)
            len = len * 8 + (header[i] - '0');
        if (!strchr("123456", header[156] ? header[156] : '0') && len <= size - at)
            at += (len + BLOCK - 1) / BLOCK * BLOCK;
    }
}

static void append_file(struct buf *tar, const char *name, const void *data, size_t len)
{
    static const char zeros[BLOCK];
    uint8_t header[BLOCK] = {0};
    snprintf((char *)header, 100, "%s", name);
    snprintf((char *)header + 100, 8, "%07o", 0644);
    snprintf((char *)header + 124, 12, "%011zo", len);
    header[156] = '0';
    memcpy(header + 257, "ustar\00000", 8);
    set_checksum(header);
    assert(buf_append(tar, header, BLOCK) == 0 && buf_append(tar, data, len) == 0);
    assert(buf_append(tar, zeros, (BLOCK - len % BLOCK) % BLOCK) == 0);
}

/* As `docker save` writes it. */
static void pack(const struct sha256_part *layers, size_t count, struct buf *tar)
{
    cleanup_buf struct buf config = BUF_INIT(4096), manifest = BUF_INIT(4096);
    char digest[SHA256_HEX_SIZE], name[96];
    buf_appendf(&config,
                "{\"architecture\":\"%s\",\"os\":\"linux\",\"config\":{},\"rootfs\":"
                "{\"type\":\"layers\",\"diff_ids\":[",
                MACHINE);
    for (size_t i = 0; i < count; i++) {
        sha256_hex(&layers[i], 1, digest);
        buf_appendf(&config, "%s\"sha256:%s\"", i ? "," : "", digest);
    }
    buf_append_string(&config, "]}}");
    sha256_hex(&(struct sha256_part){config.data, config.len}, 1, digest);
    snprintf(name, sizeof(name), "%s.json", digest);
    buf_appendf(&manifest, "[{\"Config\":\"%s\",\"Layers\":[", name);
    append_file(tar, name, config.data, config.len);
    for (size_t i = 0; i < count; i++) {
        snprintf(name, sizeof(name), "%zu/layer.tar", i);
        append_file(tar, name, layers[i].data, layers[i].len);
        buf_appendf(&manifest, "%s\"%s\"", i ? "," : "", name);
    }
    buf_append_string(&manifest, "]}]");
    append_file(tar, "manifest.json", manifest.data, manifest.len);
}

static void pack_input(uint8_t *data, size_t size, struct buf *tar)
{
    struct sha256_part layers[LAYERS];
    size_t count = 0;
    size_t blocks[LAYERS] = {data[0], data[1], SIZE_MAX_INPUT};
    data += 2;
    size -= 2;
    for (; count < LAYERS && (count == 0 || size); count++) {
        size_t len = blocks[count] * BLOCK < size ? blocks[count] * BLOCK : size;
        mend(data, len);
        layers[count] = (struct sha256_part){data, len};
        data += len;
        size -= len;
    }
    pack(layers, count, tar);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    cleanup_buf struct buf tar = BUF_INIT((size_t)2 * SIZE_MAX_INPUT);
    if (size < 3 || size > SIZE_MAX_INPUT)
        return 0;
    cleanup_free uint8_t *copy = malloc(size - 1);
    assert(copy);
    memcpy(copy, data + 1, size - 1);
    scratch_make();
    if (data[0] == 'l')
        pack_input(copy, size - 1, &tar);
    else if (data[0] == 't')
        mend(copy, size - 1);
    cleanup_fd int archive = memfd_create("archive", MFD_CLOEXEC);
    bool is_packed = data[0] == 'l';
    assert(archive >= 0);
    assert(fd_write_all(archive, is_packed ? (void *)tar.data : copy,
                        is_packed ? tar.len : size - 1) == 0);
    assert(lseek(archive, 0, SEEK_SET) == 0);
    unpack(archive);
    return 0;
}
