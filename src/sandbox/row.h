/*
 * Which row of the table in docs/rootless.md holds here: as the host's root, as a user with
 * subordinate ids, or as a user with one id. Decided once, at the daemon's start, by what is there
 * (user_namespaces(7), subuid(5)), never by the name of the user.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "util/err.h"

enum sandbox_row {
    ROW_ROOT,        /* the host's root: ranges of the configuration, idmapped mounts */
    ROW_SUBORDINATE, /* one range of ids beside our own, the same for all sandboxes */
    ROW_SINGLE,      /* our own id, which is the agent's too */
};

/* A sandbox has ids 0 to 65535; 65535 itself is nobody's, so one less will do. */
#define ROW_IDS 65536
#define ROW_IDS_LEAST (ROW_IDS - 1)

struct row {
    enum sandbox_row kind;
    uid_t uid; /* ours, in the user namespace that we run in; so are the next */
    gid_t gid;
    uint32_t first_uid, first_gid, count; /* SUBORDINATE: the range */
    bool is_ours;           /* SUBORDINATE: our own namespace maps the range, and we are its root */
    uint32_t first_outside; /* the first id of sandboxes, as the namespace around ours calls it:
                               who owns the files on disk, wherever the daemon is started */
    char shared_with[64];   /* SUBORDINATE: who else has ids of the range by /etc/subuid or
                               /etc/subgid: may signal the sandboxes' processes; else "" */
    char newuidmap[64], newgidmap[64]; /* SUBORDINATE and not is_ours: their paths */
    char why[256];                     /* SINGLE: why there are no subordinate ids; else "" */
    char cure[256];                    /* SINGLE: what brings them */
};

/* Looks at /proc/self, /etc/subuid, /etc/subgid and for newuidmap(1). May ask the name service for
 * the user's name. Errors: /proc cannot be read. */
int row_find(struct row *ret, struct err *err);

/* "root", "subordinate" or "single": in STATE/meta.json and for people. */
const char *row_name(enum sandbox_row kind);

/* The owner on disk, by our own ids, of a file that id 0 of a sandbox has. */
uid_t row_root_on_disk(const struct row *row);

/* The parts of row_find that look at text alone, for its tests. */

/* The text of uid_map or gid_map: true when it is the host's own. */
bool row_map_is_whole(const char *map);
/* A run of at least ROW_IDS_LEAST ids of the map beside id 0; count is at most ROW_IDS. */
bool row_map_find_range(const char *map, uint32_t *ret_first, uint32_t *ret_outside,
                        uint32_t *ret_count);

/* Who looks into a file of subuid(5). */
struct row_owner {
    const char *name; /* "": has none */
    uint32_t uid;
    uint32_t own_id; /* the uid for subuid, the gid for subgid: no range may have it */
};
/* The first ROW_IDS ids of a range that the file gives to the user, by name or number. Lines that
 * are not as subuid(5) has them count as absent. */
bool row_find_subordinate(const char *text, const struct row_owner *owner, uint32_t *ret_first);
/* Another owner of some of those ids but root, who may do all anyway: its name as the file has it,
 * cut to fit. */
bool row_find_sharer(const char *text, const struct row_owner *owner, uint32_t first, char ret[64]);
