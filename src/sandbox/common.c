/* The files that all sandboxes share; see common.h. Nothing foreign is read: the folder is below
 * STATE, and sandboxes see it through a mount that is read-only. */
#include "sandbox/common.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "sandbox/network.h"
#include "util/cleanup.h"
#include "util/fd.h"

#define PATH_ROOM 128

/* Every TLS connection of the sandbox ends at egress, whose certificates our CA signs: the bundle
 * holds our CA alone, since to trust another would only hide a mistake. update-ca-certificates, run
 * when a package brings a CA, keeps ours: it is in the distribution's place for local ones too.
 * The sandbox's own name needs no line in hosts: every name has an address there. */
const struct common_file common_files[COMMON_FILES] = {
    {"etc/hosts", "127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n", COMMON_TEXT,
     false},
    {"etc/resolv.conf", "nameserver " NETWORK_IPV4 "\n", COMMON_TEXT, false},
    {"etc/ssl/certs/ca-certificates.crt", NULL, COMMON_CA, false},
    {"usr/lib/ssl/cert.pem", NULL, COMMON_CA, false}, /* OpenSSL without its variable */
    {"etc/ssl/certs/java/cacerts", NULL, COMMON_CA_JAVA, false},
    {"usr/local/share/ca-certificates/paddock.crt", NULL, COMMON_CA, false},
    {"etc/gitconfig",
     "[user]\n\tname = Paddock Agent\n\temail = agent@localhost\n"
     "[safe]\n\tdirectory = *\n[init]\n\tdefaultBranch = main\n",
     COMMON_TEXT, true}, /* an image may bring its own */
};

const char *common_text(const struct common_file *file, const struct sandbox_trust *trust,
                        size_t *ret_len)
{
    switch (file->kind) {
    case COMMON_TEXT:
        *ret_len = strlen(file->text);
        return file->text;
    case COMMON_CA:
        *ret_len = trust->pem_len;
        return trust->pem;
    case COMMON_CA_JAVA:
        break;
    }
    *ret_len = trust->java_len;
    return trust->java;
}

bool common_is_same(int dir_fd, const char *path, uid_t owner, const char *data, size_t len)
{
    cleanup_fd int fd = fd_open_beneath(dir_fd, path, O_RDONLY, 0, false, NULL);
    struct stat st;
    if (fd < 0 || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) || st.st_size != (off_t)len ||
        st.st_uid != owner || (st.st_mode & 07777) != 0644)
        return false;
    char chunk[4096];
    for (size_t done = 0; done < len;) {
        ssize_t n = read(fd, chunk, sizeof(chunk));
        if (n <= 0 || (size_t)n > len - done || memcmp(chunk, data + done, (size_t)n) != 0)
            return false;
        done += (size_t)n;
    }
    return true;
}

static void file_path(const struct common_file *file, char ret[PATH_ROOM])
{
    snprintf(ret, PATH_ROOM, "%s/%s", file->is_below ? COMMON_BELOW : COMMON_ABOVE, file->path);
}

bool common_is_current(int common_fd, uid_t owner, const struct sandbox_trust *trust)
{
    for (size_t i = 0; i < COMMON_FILES; i++) {
        char path[PATH_ROOM];
        size_t len;
        const char *text = common_text(&common_files[i], trust, &len);
        file_path(&common_files[i], path);
        if (!common_is_same(common_fd, path, owner, text, len))
            return false;
    }
    return true;
}

/* The folders above the last component. */
static int make_parents(int dir_fd, const char *path, struct err *err)
{
    char part[PATH_ROOM];
    snprintf(part, sizeof(part), "%s", path);
    for (char *slash = strchr(part, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        if (mkdirat(dir_fd, part, 0755) < 0 && errno != EEXIST)
            return err_errno(err, errno, "cannot make the folder common/%s", part);
        *slash = '/';
    }
    return 0;
}

int common_fill(int common_fd, const struct sandbox_trust *trust, struct err *err)
{
    for (size_t i = 0; i < COMMON_FILES; i++) {
        char path[PATH_ROOM];
        size_t len;
        const char *text = common_text(&common_files[i], trust, &len);
        file_path(&common_files[i], path);
        int result = make_parents(common_fd, path, err);
        if (result < 0)
            return result;
        cleanup_fd int fd =
            openat(common_fd, path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0644);
        if (fd < 0)
            return err_errno(err, errno, "cannot make common/%s", path);
        result = fd_write_all(fd, text, len);
        if (result < 0)
            return err_errno(err, -result, "cannot write common/%s", path);
    }
    return 0;
}
