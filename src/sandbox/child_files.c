/* The files of a sandbox that are ours. Set-up child, after the root is entered, as root of the
 * namespace; allocates nothing. Most are there already, in the layers that all sandboxes share
 * (sandbox/common.h); what an agent changed is written again, into the upper layer. They are
 * ordinary files, since a mount over one of them breaks the installation of packages. Whatever an
 * agent left in their place (a FIFO, a link, a folder) is replaced: nothing foreign is opened but
 * regular files, and a file is written under a name that nobody could have guessed, then renamed.
 */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "sandbox/child.h"
#include "sandbox/common.h"
#include "util/cleanup.h"
#include "util/fd.h"

#define AGENT_ID 1000
#define ACCOUNTS_MAX (256 * 1024)

struct writer {
    char temp[64]; /* a name with the boot id in it, which is new and random */
    const struct sandbox_trust *trust;
};

/* Puts the temporary file in the place of `name`. A folder there cannot be renamed over: it is
 * exchanged, and removed when it is empty; one that is not stays under the temporary name, which no
 * other file of this start has. */
static int replace(int dir_fd, const char *temp, const char *name, struct err *err)
{
    if (renameat(dir_fd, temp, dir_fd, name) == 0)
        return 0;
    if (errno != EISDIR || renameat2(dir_fd, temp, dir_fd, name, RENAME_EXCHANGE) < 0) {
        int code = errno;
        unlinkat(dir_fd, temp, 0);
        return err_errno(err, code, "cannot put %s in its place", name);
    }
    unlinkat(dir_fd, temp, AT_REMOVEDIR);
    return 0;
}

static int write_file(const struct writer *writer, int dir_fd, const char *name, const char *data,
                      size_t len, struct err *err)
{
    if (common_is_same(dir_fd, name, geteuid(), data, len))
        return 0;
    char temp[128];
    snprintf(temp, sizeof(temp), "%s-%s", writer->temp, name);
    cleanup_fd int fd =
        openat(dir_fd, temp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0644);
    if (fd < 0)
        return err_errno(err, errno, "cannot create a file for %s", name);
    int result = fd_write_all(fd, data, len);
    if (result < 0) {
        unlinkat(dir_fd, temp, 0);
        return err_errno(err, -result, "cannot write %s", name);
    }
    return replace(dir_fd, temp, name, err);
}

/* The folder that holds the last component of the path, each on the way made when it is not one. */
static int make_folders(int root_fd, const char *path, struct err *err)
{
    cleanup_fd int at = fcntl(root_fd, F_DUPFD_CLOEXEC, 0);
    if (at < 0)
        return err_errno(err, errno, "cannot duplicate a descriptor");
    for (const char *slash; (slash = strchr(path, '/')); path = slash + 1) {
        char name[64];
        snprintf(name, sizeof(name), "%.*s", (int)(slash - path), path);
        int next = child_folder(at, name, 0755, err);
        if (next < 0)
            return next;
        close(at);
        at = next;
    }
    return TAKE_FD(at);
}

static int write_common(const struct writer *writer, int root_fd, const struct common_file *file,
                        struct err *err)
{
    size_t len;
    const char *text = common_text(file, writer->trust, &len);
    if (common_is_same(root_fd, file->path, geteuid(), text, len))
        return 0;
    if (file->is_below) { /* the image's own, or the agent's */
        cleanup_fd int other = fd_open_beneath(root_fd, file->path, O_RDONLY, 0, true, NULL);
        if (other >= 0)
            return 0;
    }
    const char *name = strrchr(file->path, '/') + 1;
    cleanup_fd int folder = make_folders(root_fd, file->path, err);
    return folder < 0 ? folder : write_file(writer, folder, name, text, len, err);
}

static bool has_account(const char *text, const char *name)
{
    size_t len = strlen(name);
    for (const char *line = text; line; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (strncmp(line, name, len) == 0 && line[len] == ':')
            return true;
    }
    return false;
}

/* Adds lines to passwd or group for the accounts that it does not have. What is not a regular file
 * or too long counts as empty. */
static int write_accounts(const struct writer *writer, int etc_fd, const char *file,
                          const char *const lines[2], struct err *err)
{
    static const char *const names[2] = {"root", "agent"};
    static char text[ACCOUNTS_MAX];
    size_t len = 0;
    cleanup_fd int fd = fd_open_beneath(etc_fd, file, O_RDONLY, 0, true, NULL);
    for (ssize_t n; fd >= 0 && (n = read(fd, text + len, sizeof(text) - 1024 - len)) > 0;)
        len += (size_t)n;
    if (len == sizeof(text) - 1024 || memchr(text, '\0', len))
        len = 0;
    text[len] = '\0';
    bool is_changed = false;
    for (size_t i = 0; i < 2; i++) {
        if (has_account(text, names[i]))
            continue;
        is_changed = true;
        len += (size_t)snprintf(text + len, sizeof(text) - len, "%s%s",
                                len && text[len - 1] != '\n' ? "\n" : "", lines[i]);
    }
    return is_changed ? write_file(writer, etc_fd, file, text, len, err) : 0;
}

static int write_etc(const struct writer *writer, int root_fd, const char *hostname,
                     struct err *err)
{
    static const char *const users[2] = {"root:x:0:0:root:/root:/bin/sh\n",
                                         "agent:x:1000:1000:agent:/home/agent:/bin/sh\n"};
    static const char *const groups[2] = {"root:x:0:\n", "agent:x:1000:\n"};
    cleanup_fd int etc = child_folder(root_fd, "etc", 0755, err);
    if (etc < 0)
        return etc;
    char text[128];
    int len = snprintf(text, sizeof(text), "%s\n", hostname);
    int result = write_file(writer, etc, "hostname", text, (size_t)len, err);
    if (result == 0)
        result = write_accounts(writer, etc, "passwd", users, err);
    if (result == 0)
        result = write_accounts(writer, etc, "group", groups, err);
    return result;
}

static int make_home(int root_fd, struct err *err)
{
    cleanup_fd int homes = child_folder(root_fd, "home", 0755, err);
    if (homes < 0)
        return homes;
    cleanup_fd int home = fd_open_beneath(homes, "agent", O_PATH | O_DIRECTORY, 0, false, NULL);
    if (home >= 0)
        return 0;
    home = child_folder(homes, "agent", 0755, err);
    if (home < 0)
        return home;
    if (fchownat(home, "", AGENT_ID, AGENT_ID, AT_EMPTY_PATH) < 0)
        return err_errno(err, errno, "cannot give the agent its home");
    return 0;
}

int child_write_files(const struct child_instance *child, struct err *err)
{
    struct writer writer = {.trust = &child->make->trust};
    snprintf(writer.temp, sizeof(writer.temp), ".paddock-%s", child->make->boot_id);
    cleanup_fd int root = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (root < 0)
        return err_errno(err, errno, "cannot open the new root");
    int result = write_etc(&writer, root, child->order->name, err);
    for (size_t i = 0; i < COMMON_FILES && result == 0; i++)
        result = write_common(&writer, root, &common_files[i], err);
    return result < 0 ? result : make_home(root, err);
}
