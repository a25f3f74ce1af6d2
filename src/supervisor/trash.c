/*
 * STATE/trash: what was renamed there is removed by the jail's job `remove`, as many entries at a
 * time as there are, in the background; a start waits for none of it. Images stay while an instance
 * runs, since it may have them mounted.
 */
#include <dirent.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "supervisor/jails.h"
#include "util/cleanup.h"
#include "util/log.h"

/* So that sandboxes that are removed one after the other share a jail. */
#define TRASH_DELAY_MS 250
#define TRASH_BATCH 64

/* The entries that trash_jail works on, in its order. */
static struct {
    char names[TRASH_BATCH][NAME_MAX + 1];
    size_t count;
} trash;

/* An entry whose removal failed is put aside under a hidden name, so that it holds up no other; the
 * next start of the daemon tries it again. */
#define TRASH_ASIDE ".failed-"

static bool trash_may_go(const struct supervisor *supervisor, const char *name)
{
    return supervisor->instance_count == 0 || strncmp(name, "image-", 6) != 0;
}

/* Collects what is to be removed. False: there is nothing. */
static bool trash_find(struct supervisor *supervisor)
{
    int fd = openat(supervisor->trash_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    trash.count = 0;
    if (!dir)
        return false;
    for (const struct dirent *entry; trash.count < TRASH_BATCH && (entry = readdir(dir));) {
        if (entry->d_name[0] == '.' || !trash_may_go(supervisor, entry->d_name))
            continue;
        /* A file, or an empty folder, goes at once. */
        if (unlinkat(supervisor->trash_fd, entry->d_name, 0) == 0 ||
            unlinkat(supervisor->trash_fd, entry->d_name, AT_REMOVEDIR) == 0)
            continue;
        snprintf(trash.names[trash.count++], sizeof(trash.names[0]), "%s", entry->d_name);
    }
    closedir(dir);
    return trash.count > 0;
}

/* False: it is still in the way. */
static bool trash_put_aside(struct supervisor *supervisor, const char *name, const char *why)
{
    char aside[NAME_MAX + 1 + sizeof(TRASH_ASIDE)];
    snprintf(aside, sizeof(aside), TRASH_ASIDE "%s", name);
    log_error("trash/%s could not be removed%s%s: it is tried again at the next start", name,
              why[0] ? ": " : "", why);
    if (renameat(supervisor->trash_fd, name, supervisor->trash_fd, aside) == 0)
        return true;
    log_error("trash/%s cannot be put aside: %s", name, strerror(errno));
    return false;
}

/* What is left failed; of a jail that was killed only the first one, which it was at. */
static void trash_on_done(void *ctx, const struct task_end *end, const char *text)
{
    struct supervisor *supervisor = ctx;
    bool goes_on = true;
    bool was_killed = end->kind != TASK_END_EXITED;
    supervisor->trash_jail = NULL;
    for (size_t i = 0; i < trash.count; i++) {
        if (faccessat(supervisor->trash_fd, trash.names[i], F_OK, AT_SYMLINK_NOFOLLOW) < 0)
            continue;
        goes_on = trash_put_aside(supervisor, trash.names[i], text) && goes_on;
        if (was_killed)
            break;
    }
    if (goes_on)
        trash_empty(supervisor);
}

static int trash_start(struct supervisor *supervisor, struct err *err)
{
    const char *argv[TRASH_BATCH + 3] = {"paddock-jail", "remove"};
    for (size_t i = 0; i < trash.count; i++)
        argv[2 + i] = trash.names[i];
    struct sandbox_jail_folder folder = {supervisor->trash_fd, "/out", true};
    struct jail_job job = {.kind = SANDBOX_JAIL_JOB,
                           .argv = argv,
                           .folders = &folder,
                           .folder_count = 1,
                           .stdout_fd = -1,
                           .stderr_fd = -1,
                           .is_idle = true,
                           .done = trash_on_done,
                           .ctx = supervisor};
    return jails_start(supervisor, &job, &supervisor->trash_jail, err);
}

static void trash_on_timer(void *ctx)
{
    struct supervisor *supervisor = ctx;
    struct err err = {0};
    event_free(&supervisor->trash_timer);
    if (!trash_find(supervisor))
        return;
    int result = trash_start(supervisor, &err);
    if (result == 0 || result == -EAGAIN)
        return; /* no ids are free for a jail: an instance that stops comes here again */
    if (trash_put_aside(supervisor, trash.names[0], err.message))
        trash_empty(supervisor);
}

void trash_empty(struct supervisor *supervisor)
{
    if (!supervisor->trash_jail && !supervisor->trash_timer)
        supervisor->trash_timer =
            event_timer(&supervisor->loop, TRASH_DELAY_MS, 0, trash_on_timer, supervisor);
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
