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

/* An entry whose removal failed stays until the next start of the daemon. */
static bool trash_has_failed;

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

static void trash_on_done(void *ctx, const struct task_end *end, const char *text)
{
    struct supervisor *supervisor = ctx;
    supervisor->trash_jail = NULL;
    bool is_good = end->kind == TASK_END_EXITED && end->code == 0 &&
                   unlinkat(supervisor->trash_fd, trash_name, AT_REMOVEDIR) == 0;
    if (!is_good) {
        log_error("trash/%s could not be removed%s%s: it is tried again at the next start",
                  trash_name, text[0] ? ": " : "", text);
        trash_has_failed = true;
    }
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
    struct err err = {0};
    if (supervisor->trash_jail || trash_has_failed || !trash_find(supervisor))
        return;
    if (trash_start(supervisor, &err) < 0) {
        log_error("trash/%s could not be removed: %s", trash_name, err.message);
        trash_has_failed = true;
    }
}
