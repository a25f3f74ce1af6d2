/* Finds the row that holds here; see row.h. Supervisor, at start, and the doctor. */
#include "sandbox/row.h"

#include <fcntl.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "util/buf.h"
#include "util/cleanup.h"
#include "util/fd.h"

#define FILE_MAX (1024 * 1024)
#define NAME_MAX_BYTES 256
#define WHOLE_MAP UINT32_MAX

struct map_line {
    uint32_t inside, outside, count;
};

/* Reads one line of uid_map and returns the next; NULL at the end. */
static const char *next_map_line(const char *text, struct map_line *ret)
{
    char *rest;
    ret->inside = (uint32_t)strtoul(text, &rest, 10);
    if (rest == text)
        return NULL;
    ret->outside = (uint32_t)strtoul(rest, &rest, 10);
    ret->count = (uint32_t)strtoul(rest, &rest, 10);
    return rest + strcspn(rest, "\n");
}

bool row_map_is_whole(const char *map)
{
    struct map_line line;
    return next_map_line(map, &line) && line.inside == 0 && line.outside == 0 &&
           line.count == WHOLE_MAP;
}

bool row_map_find_range(const char *map, uint32_t *ret_first, uint32_t *ret_count)
{
    struct map_line line;
    while ((map = next_map_line(map, &line))) {
        uint32_t own = line.inside == 0 && line.count > 0;
        if (line.count - own < ROW_IDS_LEAST)
            continue;
        *ret_first = line.inside + own;
        *ret_count = line.count - own < ROW_IDS ? line.count - own : ROW_IDS;
        return true;
    }
    return false;
}

bool row_find_subordinate(const char *text, const char *name, uint32_t id, uint32_t *ret_first)
{
    char number[16];
    snprintf(number, sizeof(number), "%u", id);
    for (const char *line = text; *line; line += *line == '\n') {
        size_t owner = strcspn(line, ":\n");
        bool is_theirs = (owner == strlen(name) && strncmp(line, name, owner) == 0) ||
                         (owner == strlen(number) && strncmp(line, number, owner) == 0);
        const char *end = line + strcspn(line, "\n");
        if (is_theirs && line[owner] == ':') {
            char *rest;
            unsigned long long first = strtoull(line + owner + 1, &rest, 10);
            unsigned long long count = *rest == ':' ? strtoull(rest + 1, &rest, 10) : 0;
            if (rest == end && first && count >= ROW_IDS && first + ROW_IDS <= UINT32_MAX) {
                *ret_first = (uint32_t)first;
                return true;
            }
        }
        line = end;
    }
    return false;
}

const char *row_name(enum sandbox_row kind)
{
    static const char *const names[] = {
        [ROW_ROOT] = "root", [ROW_SUBORDINATE] = "subordinate", [ROW_SINGLE] = "single"};
    return names[kind];
}

uid_t row_root_on_disk(const struct row *row)
{
    switch (row->kind) {
    case ROW_ROOT:
        return 0;
    case ROW_SUBORDINATE:
        return row->first_uid;
    case ROW_SINGLE:
        break;
    }
    return row->uid;
}

/* ------------------------------------------------------------------------- what is there */

/* A program that changes ids for us, by its set-user-id bit or its file capabilities. */
static bool find_helper(const char *name, char ret[64])
{
    static const char *const folders[] = {"/usr/bin", "/usr/local/bin", "/run/wrappers/bin"};
    for (size_t i = 0; i < ARRAY_LEN(folders); i++) {
        struct stat st;
        snprintf(ret, 64, "%s/%s", folders[i], name);
        if (access(ret, X_OK) < 0 || stat(ret, &st) < 0)
            continue;
        bool is_set_uid = st.st_uid == 0 && (st.st_mode & S_ISUID);
        if (is_set_uid || getxattr(ret, "security.capability", NULL, 0) > 0)
            return true;
    }
    return false;
}

static void be_single(struct row *ret, const char *why, const char *cure)
{
    ret->kind = ROW_SINGLE;
    snprintf(ret->why, sizeof(ret->why), "%s", why);
    snprintf(ret->cure, sizeof(ret->cure), "%s", cure);
}

static bool find_range_in(const char *path, const char *name, uid_t uid, uint32_t *ret_first)
{
    cleanup_buf struct buf text = BUF_INIT(FILE_MAX);
    return fd_read_file(AT_FDCWD, path, &text, NULL) == 0 &&
           row_find_subordinate(buf_text(&text), name, uid, ret_first);
}

/* For a user: what /etc/subuid and the package uidmap give. */
static void find_as_user(struct row *ret)
{
    const struct passwd *account = getpwuid(ret->uid);
    char name[NAME_MAX_BYTES];
    char cure[sizeof(ret->cure)];
    snprintf(name, sizeof(name), "%s", account ? account->pw_name : "");
    snprintf(cure, sizeof(cure),
             "as root: usermod --add-subuids 100000-165535 --add-subgids 100000-165535 %.64s "
             "(a range that nobody in /etc/subuid has)",
             name[0] ? name : "USER");
    ret->kind = ROW_SUBORDINATE;
    ret->count = ROW_IDS;
    if (!find_range_in("/etc/subuid", name, ret->uid, &ret->first_uid))
        be_single(ret, "/etc/subuid gives this user no range of 65536 ids", cure);
    else if (!find_range_in("/etc/subgid", name, ret->uid, &ret->first_gid))
        be_single(ret, "/etc/subgid gives this user no range of 65536 ids", cure);
    else if (!find_helper("newuidmap", ret->newuidmap) || !find_helper("newgidmap", ret->newgidmap))
        be_single(ret, "newuidmap and newgidmap are not installed, or not set-user-id root",
                  "as root: apt-get install uidmap");
    else if (prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 1)
        be_single(ret, "newuidmap cannot work: this process may gain no new privileges",
                  "start paddockd without no_new_privs (systemd: NoNewPrivileges=no)");
}

/* For uid 0 of a user namespace. */
static void find_in_namespace(const char *uid_map, const char *gid_map, struct row *ret)
{
    uint32_t uids = 0, gids = 0;
    if (row_map_find_range(uid_map, &ret->first_uid, &uids) &&
        row_map_find_range(gid_map, &ret->first_gid, &gids)) {
        ret->kind = ROW_SUBORDINATE;
        ret->is_ours = true;
        ret->count = uids < gids ? uids : gids;
        return;
    }
    be_single(ret, "the user namespace that paddockd runs in has fewer than 65536 ids",
              "start paddockd outside of it, or give it a range (podman unshare, unshare "
              "--map-auto)");
}

int row_find(struct row *ret, struct err *err)
{
    cleanup_buf struct buf uid_map = BUF_INIT(FILE_MAX);
    cleanup_buf struct buf gid_map = BUF_INIT(FILE_MAX);
    int result = fd_read_file(AT_FDCWD, "/proc/self/uid_map", &uid_map, err);
    if (result == 0)
        result = fd_read_file(AT_FDCWD, "/proc/self/gid_map", &gid_map, err);
    if (result < 0)
        return result;
    struct row row = {.kind = ROW_ROOT, .uid = geteuid(), .gid = getegid()};
    if (row.uid != 0)
        find_as_user(&row);
    else if (!row_map_is_whole(buf_text(&uid_map)))
        find_in_namespace(buf_text(&uid_map), buf_text(&gid_map), &row);
    *ret = row;
    return 0;
}
