/*
 * What egress wrote of the doctor's request into the audit: the one witness that no program of the
 * image can influence. The audit is the daemon's; whoever may not read it is told so.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "cli/doctor.h"
#include "util/cleanup.h"
#include "util/limits.h"
#include "json/json.h"

/* A sandbox of one request: a few lines, and some of others. */
#define AUDIT_BYTES (64 * LIMIT_AUDIT_LINE_BYTES)
/* The line comes when the answer was sent whole: at about the time when the program ends. */
#define AUDIT_TRIES 60
#define AUDIT_PAUSE_NS (50L * 1000 * 1000)

static void try_to_open(struct cli_audit *audit)
{
    struct stat st;
    audit->fd = open(audit->path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    audit->may_come = audit->fd < 0 && errno == ENOENT;
    if (audit->fd >= 0 && (fstat(audit->fd, &st) < 0 || !S_ISREG(st.st_mode))) {
        close(audit->fd);
        audit->fd = -1;
    }
    audit->offset = audit->fd < 0 ? 0 : st.st_size;
}

void cli_audit_open(const char *path, struct cli_audit *ret)
{
    *ret = (struct cli_audit){.path = path, .fd = -1};
    if (path)
        try_to_open(ret);
}

static bool is_text(const struct json *line, const char *key, const char *wanted, size_t len)
{
    const char *text = json_text(json_get(line, key));
    return text && strlen(text) == len && strncmp(text, wanted, len) == 0;
}

bool cli_audit_find(const char *data, size_t len, const char *sandbox, const char *gateway,
                    struct cli_asked *ret)
{
    const char *host = strstr(gateway, "://");
    host = host ? host + 3 : gateway;
    size_t host_len = strcspn(host, ":/");
    while (len) {
        const char *end = memchr(data, '\n', len);
        cleanup_json struct json *line = NULL;
        if (!end)
            return false;
        if (json_parse(data, (size_t)(end - data), JSON_STRICT, &line, NULL) == 0 &&
            is_text(line, "sandbox", sandbox, strlen(sandbox)) &&
            is_text(line, "host", host, host_len)) {
            const char *reason = json_text(json_get(line, "reason"));
            bool is_allowed = is_text(line, "decision", "allowed", strlen("allowed"));
            ret->status = json_integer(json_get(line, "status"));
            snprintf(ret->reason, sizeof(ret->reason), "%s", !is_allowed && reason ? reason : "");
            return true;
        }
        len -= (size_t)(end + 1 - data);
        data = end + 1;
    }
    return false;
}

/* The audit has gone on in a new file (audit.max_bytes), and this one was read to its end. */
static void try_to_turn(struct cli_audit *audit)
{
    struct stat ours, there;
    if (fstat(audit->fd, &ours) < 0 || lstat(audit->path, &there) < 0 ||
        (ours.st_ino == there.st_ino && ours.st_dev == there.st_dev))
        return;
    cleanup_fd_at(&audit->fd);
    try_to_open(audit);
    audit->offset = 0;
}

bool cli_audit_wait(struct cli_audit *audit, const char *sandbox, const char *gateway,
                    struct cli_asked *ret)
{
    static const struct timespec pause = {.tv_nsec = AUDIT_PAUSE_NS};
    cleanup_buf struct buf text = BUF_INIT(AUDIT_BYTES);
    char *room = buf_reserve(&text, AUDIT_BYTES - 1);
    for (int i = 0; room && i < AUDIT_TRIES; i++) {
        if (audit->may_come) { /* egress was just being started: all of it is new */
            try_to_open(audit);
            audit->offset = 0;
        }
        if (audit->fd < 0 && !audit->may_come)
            return false;
        ssize_t n = pread(audit->fd, room, AUDIT_BYTES - 1, audit->offset);
        if (n > 0 && cli_audit_find(room, (size_t)n, sandbox, gateway, ret))
            return true;
        if (audit->fd >= 0)
            try_to_turn(audit);
        nanosleep(&pause, NULL);
    }
    return false;
}

void cli_audit_close(struct cli_audit *audit)
{
    cleanup_fd_at(&audit->fd);
}
