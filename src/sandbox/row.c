/* Finds the row that holds here; see row.h. Supervisor, at start, and the doctor. */
#include "sandbox/row.h"

#include <ctype.h>
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

bool row_map_find_range(const char *map, uint32_t *ret_first, uint32_t *ret_outside,
                        uint32_t *ret_count)
{
    struct map_line line;
    while ((map = next_map_line(map, &line))) {
        uint32_t own = line.inside == 0 && line.count > 0;
        if (line.count - own < ROW_IDS_LEAST)
            continue;
        *ret_first = line.inside + own;
        *ret_outside = line.outside + own;
        *ret_count = line.count - own < ROW_IDS ? line.count - own : ROW_IDS;
        return true;
    }
    return false;
}

struct subordinate_line {
    char name[NAME_MAX_BYTES];
    uint64_t first, count;
};

/* Digits and nothing else: strtoull(3) would take a sign and spaces too. */
static bool read_number(const char **at, char end, uint64_t *ret)
{
    char *rest;
    if (!isdigit((unsigned char)**at))
        return false;
    *ret = strtoull(*at, &rest, 10);
    *at = rest;
    return *rest == end || (end == '\n' && !*rest);
}

/* NAME:FIRST:COUNT; false for any other line, and for one with ids that there are not. */
static bool read_subordinate(const char *line, struct subordinate_line *ret)
{
    size_t len = strcspn(line, ":\n");
    if (len == 0 || len >= sizeof(ret->name) || line[len] != ':')
        return false;
    snprintf(ret->name, sizeof(ret->name), "%.*s", (int)len, line);
    line += len + 1;
    if (!read_number(&line, ':', &ret->first) || ret->first > UINT32_MAX)
        return false;
    line++;
    return read_number(&line, '\n', &ret->count) && ret->count > 0 && ret->count <= UINT32_MAX;
}

static const char *next_line(const char *line)
{
    line += strcspn(line, "\n");
    return line + (*line == '\n');
}

static bool is_theirs(const struct subordinate_line *line, const struct row_owner *owner)
{
    char number[16];
    snprintf(number, sizeof(number), "%u", owner->uid);
    return strcmp(line->name, owner->name) == 0 || strcmp(line->name, number) == 0;
}

bool row_find_subordinate(const char *text, const struct row_owner *owner, uint32_t *ret_first)
{
    struct subordinate_line found;
    for (const char *line = text; *line; line = next_line(line)) {
        if (!read_subordinate(line, &found) || !is_theirs(&found, owner))
            continue;
        uint64_t end = found.first + ROW_IDS;
        bool has_own = owner->own_id >= found.first && owner->own_id < end;
        if (found.first && found.count >= ROW_IDS && end <= UINT32_MAX && !has_own) {
            *ret_first = (uint32_t)found.first;
            return true;
        }
    }
    return false;
}

bool row_find_sharer(const char *text, const struct row_owner *owner, uint32_t first, char ret[64])
{
    struct subordinate_line found;
    for (const char *line = text; *line; line = next_line(line)) {
        if (!read_subordinate(line, &found) || is_theirs(&found, owner))
            continue;
        bool is_root = strcmp(found.name, "root") == 0 || strcmp(found.name, "0") == 0;
        if (!is_root && found.first < (uint64_t)first + ROW_IDS &&
            first < found.first + found.count) {
            snprintf(ret, 64, "%.63s", found.name);
            return true;
        }
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

static bool find_range_in(const char *path, const struct row_owner *owner, uint32_t *ret_first,
                          char ret_sharer[64])
{
    cleanup_buf struct buf text = BUF_INIT(FILE_MAX);
    if (fd_read_file(AT_FDCWD, path, &text, NULL) < 0 ||
        !row_find_subordinate(buf_text(&text), owner, ret_first))
        return false;
    row_find_sharer(buf_text(&text), owner, *ret_first, ret_sharer);
    return true;
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
    const struct row_owner uids = {name, ret->uid, ret->uid};
    const struct row_owner gids = {name, ret->uid, ret->gid};
    ret->kind = ROW_SUBORDINATE;
    ret->count = ROW_IDS;
    if (!find_range_in("/etc/subuid", &uids, &ret->first_uid, ret->shared_with))
        be_single(ret, "/etc/subuid gives this user no range of 65536 ids beside its own", cure);
    else if (!find_range_in("/etc/subgid", &gids, &ret->first_gid, ret->shared_with))
        be_single(ret, "/etc/subgid gives this user no range of 65536 ids beside its own", cure);
    else if (!find_helper("newuidmap", ret->newuidmap) || !find_helper("newgidmap", ret->newgidmap))
        be_single(ret, "newuidmap and newgidmap are not installed, or not set-user-id root",
                  "as root: apt-get install uidmap");
    else if (prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 1)
        be_single(ret, "newuidmap cannot work: this process may gain no new privileges",
                  "start paddockd without no_new_privs (systemd: NoNewPrivileges=no)");
    ret->first_outside = ret->kind == ROW_SINGLE ? ret->uid : ret->first_uid;
}

/* For uid 0 of a user namespace. */
static void find_in_namespace(const char *uid_map, const char *gid_map, struct row *ret)
{
    uint32_t uids = 0, gids = 0, outside_gid;
    struct map_line own = {0};
    if (row_map_find_range(uid_map, &ret->first_uid, &ret->first_outside, &uids) &&
        row_map_find_range(gid_map, &ret->first_gid, &outside_gid, &gids)) {
        ret->kind = ROW_SUBORDINATE;
        ret->is_ours = true;
        ret->count = uids < gids ? uids : gids;
        return;
    }
    next_map_line(uid_map, &own);
    ret->first_outside = own.outside; /* unshare(1) and podman put our own id first */
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
