/* Finds programs and data; see paths.h. PADDOCK_PROGRAMS and PADDOCK_DATA are meson.build's: the
 * way from the folder of paddockd to theirs, once installed. */
#include "supervisor/paths.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "util/cleanup.h"

/* A build folder lies at most so deep below the source tree: build/src/main. */
#define PATHS_LEVELS 5

static void paths_join(char ret[PATH_MAX], const char *folder, const char *name)
{
    if (snprintf(ret, PATH_MAX, "%s/%s", folder, name) >= PATH_MAX)
        ret[0] = '\0';
}

static void paths_program(char ret[PATH_MAX], const char *folder, const char *name)
{
    paths_join(ret, folder, name);
    if (access(ret, X_OK) == 0)
        return;
    char installed[PATH_MAX];
    paths_join(installed, folder, PADDOCK_PROGRAMS);
    char other[PATH_MAX], real[PATH_MAX];
    paths_join(other, installed, name);
    if (access(other, X_OK) == 0 && realpath(other, real))
        memcpy(ret, real, sizeof(real));
}

static void paths_data(char ret[PATH_MAX], const char *folder)
{
    char probe[PATH_MAX];
    paths_join(probe, folder, PADDOCK_DATA);
    if (!realpath(probe, ret)) /* where it is missing, messages name the place */
        memcpy(ret, probe, sizeof(probe));
    paths_join(probe, ret, "policy/default.json");
    char level[PATH_MAX];
    snprintf(level, sizeof(level), "%s", folder);
    for (int i = 0; i < PATHS_LEVELS && access(probe, R_OK) < 0; i++) {
        char *slash = strrchr(level, '/');
        if (!slash || slash == level)
            return;
        *slash = '\0';
        paths_join(probe, level, "policy/default.json");
        if (access(probe, R_OK) == 0)
            memcpy(ret, level, sizeof(level));
    }
}

int paths_find(struct paths *ret, struct err *err)
{
    char folder[PATH_MAX];
    ssize_t len = readlink("/proc/self/exe", folder, sizeof(folder) - 1);
    if (len <= 0)
        return err_errno(err, errno, "cannot read /proc/self/exe: is /proc mounted?");
    folder[len] = '\0';
    char *slash = strrchr(folder, '/');
    if (!slash)
        return err_set(err, EINVAL, "/proc/self/exe is not a path: %s", folder);
    *slash = '\0';
    paths_program(ret->api, folder, "paddock-api");
    paths_program(ret->egress, folder, "paddock-egress");
    paths_program(ret->init, folder, "paddock-init");
    paths_program(ret->jail, folder, "paddock-jail");
    paths_program(ret->image_build, folder, "paddock-image-build");
    paths_data(ret->data, folder);
    return 0;
}
