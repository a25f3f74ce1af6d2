/*
 * Where things are by default: the machine's for a daemon that the host's root runs, the user's own
 * (XDG Base Directory Specification) for any other. Daemon and command line find each other so.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#define PLACES_MAX 1024

struct places {
    bool is_user;              /* they are a user's */
    char config[PLACES_MAX];   /* the configuration file */
    char state[PLACES_MAX];    /* state_dir */
    char secrets[PLACES_MAX];  /* secrets_dir */
    char socket[PLACES_MAX];   /* where the daemon listens */
    char fallback[PLACES_MAX]; /* a user's: where it listens without a runtime folder; else "" */
};

/* True for uid 0 with the whole of the host's ids (/proc/self/uid_map): not for the root of a user
 * namespace. */
bool places_is_host_root(void);

/* True for a folder, and no link to one, that nobody but this user (and root) can put anything in
 * or take anything from. */
bool places_is_own_folder(const char *path);

/* From XDG_STATE_HOME, XDG_CONFIG_HOME, XDG_RUNTIME_DIR and HOME, as `lookup` (getenv(3)) gives
 * them; a value that is no absolute path counts as unset, as the specification wants, and so does
 * an XDG_RUNTIME_DIR that is not places_is_own_folder: another user could listen there first.
 * False: there is no HOME, so that a user's places are "". */
bool places_find(bool is_user, const char *(*lookup)(const char *name), struct places *ret);
