/*
 * STATE: the folder, its one lock, its fixed folders, the fresh names in trash/; and the sockets
 * that the API listens on, which the supervisor makes (they may need rights that api lacks) and
 * hands over.
 */
#include <arpa/inet.h>
#include <fcntl.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include "sandbox/common.h"
#include "sandbox/inside.h"
#include "supervisor/supervisor.h"
#include "util/cleanup.h"
#include "util/clock.h"
#include "util/fd.h"
#include "util/log.h"
#include "json/json.h"

#define STATE_SCHEMA 1
#define STATE_META_BYTES 4096
#define STATE_LOCK_MS 2000
#define COMMON "common"
#define COMMON_NEW "common.new"

/* Makes the folder and those above it. */
static int state_make_folders(const char *path, mode_t mode, struct err *err)
{
    char part[LIMIT_CONFIG_TEXT_BYTES + 1];
    snprintf(part, sizeof(part), "%s", path);
    for (char *slash = strchr(part + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        if (mkdir(part, 0755) < 0 && errno != EEXIST)
            return err_errno(err, errno, "cannot make %s", part);
        *slash = '/';
    }
    if (mkdir(part, mode) < 0 && errno != EEXIST)
        return err_errno(err, errno, "cannot make %s", part);
    return 0;
}

static int state_make_folder(int state_fd, const char *name, int *ret_fd, struct err *err)
{
    if (mkdirat(state_fd, name, 0700) < 0 && errno != EEXIST)
        return err_errno(err, errno, "cannot make the folder %s of the state", name);
    int fd = openat(state_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return err_errno(err, errno, "cannot open the folder %s of the state", name);
    *ret_fd = fd;
    return 0;
}

static void on_alarm(int number)
{
    (void)number;
}

/* A child of a supervisor that was killed just now may have the lock until it has ended, too: it is
 * waited for. The alarm comes again, so that one in front of flock(2) does no harm. */
static int state_wait_for_lock(int fd)
{
    const struct itimerval often = {{0, STATE_LOCK_MS * 100}, {0, STATE_LOCK_MS * 100}};
    const struct itimerval never = {0};
    const struct sigaction action = {.sa_handler = on_alarm};
    struct sigaction before;
    int64_t until = clock_monotonic_ms() + STATE_LOCK_MS;
    int result;
    sigaction(SIGALRM, &action, &before);
    setitimer(ITIMER_REAL, &often, NULL);
    do
        result = flock(fd, LOCK_EX) < 0 ? -errno : 0;
    while (result == -EINTR && clock_monotonic_ms() < until);
    setitimer(ITIMER_REAL, &never, NULL);
    sigaction(SIGALRM, &before, NULL);
    return result;
}

static int state_lock(struct supervisor *supervisor, const char *path, struct err *err)
{
    cleanup_fd int fd =
        openat(supervisor->state_fd, "lock", O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0)
        return err_errno(err, errno, "cannot open %s/lock", path);
    int result = state_wait_for_lock(fd);
    if (result == -EINTR)
        return err_set(err, EBUSY,
                       "another paddockd works on %s: stop it first, or give this one a "
                       "state_dir of its own",
                       path);
    if (result < 0)
        return err_errno(err, -result, "cannot lock %s/lock", path);
    supervisor->lock_fd = TAKE_FD(fd);
    return 0;
}

static int state_write_meta(int state_fd, const struct row *row, struct err *err)
{
    char text[256];
    int len = snprintf(text, sizeof(text), "{\"schema\": %d, \"row\": \"%s\", \"first_id\": %u}\n",
                       STATE_SCHEMA, row_name(row->kind), row->first_outside);
    return fd_write_file_atomic(state_fd, "meta.json", 0600, text, (size_t)len, err);
}

/* The owners of all files below depend on the row: with another they could be neither used nor
 * removed. A state of before there were rows is root's. */
static int state_check_row(const struct json *json, const struct row *row, const char *path,
                           struct err *err)
{
    const char *was = json_text(json_get(json, "row"));
    int64_t first = json_integer(json_get(json, "first_id"));
    if (!was)
        was = row_name(ROW_ROOT);
    if (strcmp(was, row_name(row->kind)) == 0 && first == (int64_t)row->first_outside)
        return 0;
    return err_set(err, EPERM,
                   "%s was made with %s ids (from %lld on) and this paddockd has %s ids (from %u "
                   "on): start it as before, or use another state_dir. %s%s%s",
                   path, was, (long long)first, row_name(row->kind), row->first_outside, row->why,
                   row->why[0] ? "; " : "", row->cure);
}

/* STATE's own meta.json: its schema, so that an older daemon refuses a newer layout, and the row.
 */
static int state_check_meta(int state_fd, const struct row *row, const char *path, struct err *err)
{
    cleanup_buf struct buf text = BUF_INIT(STATE_META_BYTES);
    int result = fd_read_file(state_fd, "meta.json", &text, err);
    if (result == -ENOENT)
        return state_write_meta(state_fd, row, err);
    if (result < 0)
        return err_context(err, result, "%s", path);
    cleanup_json struct json *json = NULL;
    result = json_parse(text.data, text.len, JSON_STRICT, &json, err);
    if (result < 0)
        return err_context(err, result, "%s/meta.json", path);
    int64_t schema = json_integer(json_get(json, "schema"));
    if (schema != STATE_SCHEMA)
        return err_set(err, EPROTONOSUPPORT,
                       "%s has schema %lld and this paddockd knows %d: it was written by another "
                       "version; start that one, or use another state_dir",
                       path, (long long)schema, STATE_SCHEMA);
    return state_check_row(json, row, path, err);
}

int state_open(struct supervisor *supervisor, struct err *err)
{
    const char *path = supervisor->config->state_dir;
    int result = state_make_folders(path, 0700, err);
    if (result < 0)
        return result;
    supervisor->state_fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (supervisor->state_fd < 0)
        return err_errno(err, errno, "cannot open state_dir %s", path);
    struct stat st;
    if (fstat(supervisor->state_fd, &st) < 0 || st.st_uid != geteuid())
        return err_set(err, EPERM, "state_dir %s does not belong to uid %u", path, geteuid());
    if (fchmod(supervisor->state_fd, 0700) < 0)
        return err_errno(err, errno, "cannot close %s to others", path);
    result = state_lock(supervisor, path, err);
    if (result == 0)
        result = state_check_meta(supervisor->state_fd, &supervisor->row, path, err);
    if (result == 0)
        result =
            state_make_folder(supervisor->state_fd, "sandboxes", &supervisor->sandboxes_fd, err);
    if (result == 0)
        result = state_make_folder(supervisor->state_fd, "trash", &supervisor->trash_fd, err);
    return result;
}

void state_name(const struct supervisor *supervisor, char ret[9])
{
    /* FNV-1a of device and inode: the same after a restart and when the path is another. */
    struct stat st = {0};
    fstat(supervisor->state_fd, &st);
    uint64_t parts[2] = {st.st_dev, st.st_ino};
    uint32_t hash = 2166136261U;
    for (size_t i = 0; i < sizeof(parts); i++)
        hash = (hash ^ (uint8_t)(parts[i / 8] >> (i % 8 * 8))) * 16777619U;
    snprintf(ret, 9, "%08" PRIx32, hash);
}

int state_to_trash(struct supervisor *supervisor, int dir_fd, const char *name, const char *kind,
                   struct err *err)
{
    uint64_t token;
    if (getrandom(&token, sizeof(token), 0) != sizeof(token))
        return err_errno(err, errno, "cannot get random bytes");
    char fresh[64];
    snprintf(fresh, sizeof(fresh), "%s-%016" PRIx64, kind, token);
    if (renameat(dir_fd, name, supervisor->trash_fd, fresh) < 0)
        return err_errno(err, errno, "cannot move %s to trash", name);
    return 0;
}

/* What is free but kept back (ext4: 2 % for itself, and what mke2fs reserves for root) is no room.
 */
int state_check_room(const struct supervisor *supervisor, struct err *err)
{
    struct statvfs fs;
    if (fstatvfs(supervisor->state_fd, &fs) < 0 || fs.f_blocks == 0 ||
        fs.f_bavail * fs.f_frsize >= LIMIT_STATE_ROOM_BYTES)
        return 0;
    return err_set(err, ENOSPC, "the disk of state_dir %s is full: free some space on it",
                   supervisor->config->state_dir);
}

/* ---------------------------------------------------------------------- the common files */

struct state_filling {
    int fd;
    struct sandbox_trust trust;
};

struct sandbox_trust supervisor_trust(const struct supervisor *supervisor)
{
    const struct buf *pem = &supervisor->ca_pem, *java = &supervisor->ca_java;
    return (struct sandbox_trust){
        .pem = pem->data, .pem_len = pem->len, .java = java->data, .java_len = java->len};
}

static int state_fill_common(void *ctx, struct err *err)
{
    const struct state_filling *filling = ctx;
    return common_fill(filling->fd, &filling->trust, err);
}

/* What is there belongs to instances that run: it goes to the trash as an image does, never changed
 * under them. */
static int state_renew_common(struct supervisor *supervisor, struct err *err)
{
    int result = state_to_trash(supervisor, supervisor->state_fd, COMMON_NEW, "common", NULL);
    if (result < 0 && result != -ENOENT)
        return err_errno(err, -result, "cannot move the old " COMMON_NEW " away");
    int fd = -1;
    result = state_make_folder(supervisor->state_fd, COMMON_NEW, &fd, err);
    cleanup_fd int fresh = fd;
    if (result == 0 && fchmod(fresh, 0755) < 0)
        result = err_errno(err, errno, "cannot open " COMMON_NEW " to others");
    struct state_filling filling = {.fd = fresh, .trust = supervisor_trust(supervisor)};
    if (result == 0)
        result = sandbox_run_inside(supervisor->host, state_fill_common, &filling, err);
    if (result < 0)
        return result;
    result = state_to_trash(supervisor, supervisor->state_fd, COMMON, "image-common", NULL);
    if (result < 0 && result != -ENOENT)
        return err_errno(err, -result, "cannot move the old " COMMON " away");
    if (renameat(supervisor->state_fd, COMMON_NEW, supervisor->state_fd, COMMON) < 0)
        return err_errno(err, errno, "cannot put " COMMON " in its place");
    return 0;
}

int state_make_common(struct supervisor *supervisor, struct err *err)
{
    const struct sandbox_trust trust = supervisor_trust(supervisor);
    const int flags = O_PATH | O_DIRECTORY;
    int fd = fd_open_beneath(supervisor->state_fd, COMMON, flags, 0, false, NULL);
    if (fd < 0 || !common_is_current(fd, row_root_on_disk(&supervisor->row), &trust)) {
        cleanup_fd_at(&fd);
        int result = state_renew_common(supervisor, err);
        if (result < 0)
            return result;
        fd = fd_open_beneath(supervisor->state_fd, COMMON, flags, 0, false, err);
        if (fd < 0)
            return fd;
    }
    cleanup_fd_at(&supervisor->common_fd);
    supervisor->common_fd = fd;
    return 0;
}

/* --------------------------------------------------------------------- listening sockets */

/* A socket that was left behind refuses; anything else than that means that somebody is there. */
static bool state_is_listened_on(const struct sockaddr_un *address)
{
    cleanup_fd int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    return fd >= 0 && (connect(fd, (const struct sockaddr *)address, sizeof(*address)) == 0 ||
                       errno == EAGAIN);
}

/* Members of the socket's group may use the machine's daemon; a user's is theirs alone. */
static int state_listen_unix(const char *path, bool is_user, struct err *err)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    if (strlen(path) >= sizeof(address.sun_path))
        return err_set(err, ENAMETOOLONG, "cannot listen on unix:%s: the path is longer than %zu",
                       path, sizeof(address.sun_path) - 1);
    memcpy(address.sun_path, path, strlen(path));
    char folder[sizeof(address.sun_path)];
    snprintf(folder, sizeof(folder), "%s", path);
    char *slash = strrchr(folder, '/');
    *slash = '\0';
    int result = folder[0] ? state_make_folders(folder, is_user ? 0700 : 0755, err) : 0;
    if (result < 0)
        return result;
    struct stat st;
    if (state_is_listened_on(&address))
        return err_set(err, EADDRINUSE,
                       "cannot listen on unix:%s: another daemon does; stop it first, or set "
                       "\"listen\" to another path",
                       path);
    if (lstat(path, &st) == 0 && S_ISSOCK(st.st_mode))
        unlink(path);
    cleanup_fd int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return err_errno(err, errno, "cannot make a socket");
    mode_t old = umask(is_user ? 0177 : 0117);
    int bound = bind(fd, (struct sockaddr *)&address, sizeof(address));
    int code = errno;
    umask(old);
    if (bound < 0)
        return err_errno(err, code, "cannot listen on unix:%s", path);
    if (listen(fd, SOMAXCONN) < 0)
        return err_errno(err, errno, "cannot listen on unix:%s", path);
    return TAKE_FD(fd);
}

/* `text` is "127.0.0.1:PORT" or "[::1]:PORT", checked by config.c. */
static int state_listen_tcp(const char *text, struct err *err)
{
    uint16_t port = htons((uint16_t)strtol(strrchr(text, ':') + 1, NULL, 10));
    struct sockaddr_in v4 = {
        .sin_family = AF_INET, .sin_port = port, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct sockaddr_in6 v6 = {
        .sin6_family = AF_INET6, .sin6_port = port, .sin6_addr = IN6ADDR_LOOPBACK_INIT};
    bool is_v6 = text[0] == '[';
    cleanup_fd int fd =
        socket(is_v6 ? AF_INET6 : AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return err_errno(err, errno, "cannot make a socket");
    int yes = 1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
    int result = is_v6 ? bind(fd, (struct sockaddr *)&v6, sizeof(v6))
                       : bind(fd, (struct sockaddr *)&v4, sizeof(v4));
    if (result < 0 || listen(fd, SOMAXCONN) < 0)
        return err_errno(err, errno, "cannot listen on tcp:%s", text);
    return TAKE_FD(fd);
}

int state_listen(struct supervisor *supervisor, struct err *err)
{
    const struct config *config = supervisor->config;
    bool is_user = supervisor->row.kind != ROW_ROOT;
    for (size_t i = 0; i < config->listen_count; i++) {
        const char *address = config->listen[i];
        bool is_tcp = strncmp(address, "tcp:", 4) == 0;
        int fd = is_tcp ? state_listen_tcp(address + 4, err)
                        : state_listen_unix(address + 5, is_user, err);
        if (fd < 0)
            return fd;
        struct listen_socket *socket = &supervisor->listeners[supervisor->listener_count++];
        socket->fd = fd;
        socket->body.is_tcp = is_tcp;
        IPC_SET_TEXT(socket->body.address, address);
        log_info("listening on %s", address);
    }
    return 0;
}
