/* See places.h. */
#include "util/places.h"

#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "util/buf.h"
#include "util/fd.h"

#define MAP_MAX (64 * 1024)

bool places_is_host_root(void)
{
    cleanup_buf struct buf map = BUF_INIT(MAP_MAX);
    if (geteuid() != 0 || fd_read_file(AT_FDCWD, "/proc/self/uid_map", &map, NULL) < 0)
        return false;
    char *rest;
    unsigned long inside = strtoul(buf_text(&map), &rest, 10);
    unsigned long outside = strtoul(rest, &rest, 10);
    return inside == 0 && outside == 0 && strtoul(rest, NULL, 10) == UINT32_MAX;
}

bool places_is_own_folder(const char *path)
{
    struct stat st;
    return lstat(path, &st) == 0 && S_ISDIR(st.st_mode) && st.st_uid == geteuid() &&
           !(st.st_mode & (S_IWGRP | S_IWOTH));
}

static const char *absolute(const char *path)
{
    return path && path[0] == '/' ? path : NULL;
}

/* FOLDER/NAME, else HOME/BELOW/NAME. */
static void join(char ret[PLACES_MAX], const char *folder, const char *home, const char *below,
                 const char *name)
{
    int len = -1;
    if (folder)
        len = snprintf(ret, PLACES_MAX, "%s/%s", folder, name);
    else if (home)
        len = snprintf(ret, PLACES_MAX, "%s/%s/%s", home, below, name);
    if (len < 0 || len >= PLACES_MAX)
        ret[0] = '\0';
}

bool places_find(bool is_user, const char *(*lookup)(const char *name), struct places *ret)
{
    *ret = (struct places){.is_user = is_user};
    if (!is_user) {
        *ret = (struct places){.config = "/etc/paddock/paddock.json",
                               .state = "/var/lib/paddock",
                               .secrets = "/etc/paddock/secrets",
                               .socket = "/run/paddock/paddock.sock"};
        return true;
    }
    const char *home = absolute(lookup("HOME"));
    const char *config = absolute(lookup("XDG_CONFIG_HOME"));
    const char *state = absolute(lookup("XDG_STATE_HOME"));
    const char *runtime = absolute(lookup("XDG_RUNTIME_DIR"));
    join(ret->config, config, home, ".config", "paddock/paddock.json");
    join(ret->secrets, config, home, ".config", "paddock/secrets");
    join(ret->state, state, home, ".local/state", "paddock");
    join(ret->fallback, state, home, ".local/state", "paddock/paddock.sock");
    if (runtime && places_is_own_folder(runtime))
        join(ret->socket, runtime, NULL, "", "paddock/paddock.sock");
    else
        memcpy(ret->socket, ret->fallback, sizeof(ret->socket));
    return ret->state[0] && ret->config[0] && ret->socket[0];
}
