/*
 * STATE/trash: what was renamed there is removed by the jail's job `remove`, one entry at a time,
 * in the background; a start waits for none of it. Images stay while an instance runs, since it may
 * have them mounted.
 */
#include <dirent.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "supervisor/jails.h"
#include "util/cleanup.h"
#include "util/fd.h"
#include "util/log.h"

static char trash_name[NAME_MAX + 1]; /* the entry that trash_jail works on */

/* An entry whose removal failed is put aside under a hidden name, so that it holds up no other; the
 * next start of the daemon tries it again. */
#define TRASH_ASIDE ".failed-"

static bool trash_may_go(const struct supervisor *supervisor, const char *name)
{
    return supervisor->instance_count == 0 || strncmp(name, "image-", 6) != 0;
}

static bool trash_find(struct supervisor *supervisor)
{
    int fd = openat(supervisor->trash_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    if (!dir)
        return false;
    trash_name[0] = '\0';
    for (const struct dirent *entry; !trash_name[0] && (entry = readdir(dir));) {
        if (entry->d_name[0] == '.' || !trash_may_go(supervisor, entry->d_name))
            continue;
        /* A file, or an empty folder, goes at once. */
        if (unlinkat(supervisor->trash_fd, entry->d_name, 0) == 0 ||
            unlinkat(supervisor->trash_fd, entry->d_name, AT_REMOVEDIR) == 0)
            continue;
        snprintf(trash_name, sizeof(trash_name), "%s", entry->d_name);
    }
    closedir(dir);
    return trash_name[0] != '\0';
}

/* False: it is still in the way. */
static bool trash_put_aside(struct supervisor *supervisor, const char *why)
{
    char aside[sizeof(trash_name) + sizeof(TRASH_ASIDE)];
    snprintf(aside, sizeof(aside), TRASH_ASIDE "%s", trash_name);
    log_error("trash/%s could not be removed%s%s: it is tried again at the next start", trash_name,
              why[0] ? ": " : "", why);
    if (renameat(supervisor->trash_fd, trash_name, supervisor->trash_fd, aside) == 0)
        return true;
    log_error("trash/%s cannot be put aside: %s", trash_name, strerror(errno));
    return false;
}

static void trash_on_done(void *ctx, const struct task_end *end, const char *text)
{
    struct supervisor *supervisor = ctx;
    supervisor->trash_jail = NULL;
    bool is_good = end->kind == TASK_END_EXITED && end->code == 0 &&
                   unlinkat(supervisor->trash_fd, trash_name, AT_REMOVEDIR) == 0;
    if (is_good || trash_put_aside(supervisor, text))
        trash_empty(supervisor);
}

static int trash_start(struct supervisor *supervisor, struct err *err)
{
    cleanup_fd int entry =
        fd_open_beneath(supervisor->trash_fd, trash_name, O_PATH | O_DIRECTORY, 0, false, err);
    if (entry < 0)
        return entry;
    struct sandbox_jail_folder folder = {entry, "/out", true};
    static const char *const argv[] = {"paddock-jail", "remove", NULL};
    struct jail_job job = {.kind = SANDBOX_JAIL_JOB,
                           .argv = argv,
                           .folders = &folder,
                           .folder_count = 1,
                           .stdout_fd = -1,
                           .stderr_fd = -1,
                           .done = trash_on_done,
                           .ctx = supervisor};
    return jails_start(supervisor, &job, &supervisor->trash_jail, err);
}

void trash_empty(struct supervisor *supervisor)
{
    while (!supervisor->trash_jail && trash_find(supervisor)) {
        struct err err = {0};
        int result = trash_start(supervisor, &err);
        if (result == -EAGAIN)
            return; /* no ids are free for a jail: an instance that stops comes here again */
        if (result < 0 && !trash_put_aside(supervisor, err.message))
            return;
    }
}

void trash_reopen(struct supervisor *supervisor)
{
    int fd = openat(supervisor->trash_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    if (!dir)
        return;
    for (const struct dirent *entry; (entry = readdir(dir));)
        if (strncmp(entry->d_name, TRASH_ASIDE, strlen(TRASH_ASIDE)) == 0)
            renameat(supervisor->trash_fd, entry->d_name, supervisor->trash_fd,
                     entry->d_name + strlen(TRASH_ASIDE));
    closedir(dir);
}
