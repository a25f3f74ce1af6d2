/*
 * What a start finds: sandboxes and the instances of a former supervisor, which are taken over;
 * and what it left half made, which is cleared away. Whatever the former one was doing when it
 * died, one of these holds:
 *
 *   folder without meta.json       it was being made, or its first start was not on record yet:
 *                                  to the trash; its control groups are found, killed
 *   meta.json without a lease      stopped; or its start was not on record yet: the same cgroup
 *   meta.json with a lease         alive: taken over; dead: what it left is cleared away, its task
 *                                  has ended (exit-code is there) or is lost
 *   base.new, images/.build-*      half made: replaced or to the trash
 */
#include <dirent.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "image/image.h"
#include "supervisor/table.h"
#include "util/cleanup.h"
#include "util/fd.h"
#include "util/log.h"
#include "util/name.h"

static DIR *recover_open(int dir_fd, const char *path)
{
    int fd = openat(dir_fd, path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    if (!dir && fd >= 0)
        close(fd);
    return dir;
}

/* One folder of sandboxes/. Only a newer schema is an error: with it the daemon does not start. */
static int recover_sandbox(struct supervisor *supervisor, const char *name, struct err *err)
{
    cleanup_fd int folder =
        openat(supervisor->sandboxes_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (folder < 0 || !name_is_valid(name, strlen(name))) {
        log_warn("sandboxes/%s is not a sandbox; it is left alone", name);
        return 0;
    }
    struct meta meta;
    int result = meta_read(folder, name, &meta, err);
    bool has_record = result == 0 && meta.lease.pid;
    if (!has_record && sandbox_instance_end_unrecorded(folder))
        log_warn("sandbox=%s has an instance that is on no record; it is ended", name);
    if (result == 0) {
        table_add(supervisor, &meta, TAKE_FD(folder));
        return 0;
    }
    if (result == -EPROTONOSUPPORT)
        return result;
    if (result != -ENOENT) {
        log_error("%s: the sandbox is left alone and cannot be used", err->message);
        return 0;
    }
    log_warn("sandbox=%s was half made; it is cleared away", name);
    return state_to_trash(supervisor, supervisor->sandboxes_fd, name, "sandbox", err);
}

static int recover_sandboxes(struct supervisor *supervisor, struct err *err)
{
    DIR *dir = recover_open(supervisor->sandboxes_fd, ".");
    if (!dir)
        return err_errno(err, errno, "cannot read the folder sandboxes of the state");
    int result = 0;
    for (const struct dirent *entry; result == 0 && (entry = readdir(dir));)
        if (entry->d_name[0] != '.')
            result = recover_sandbox(supervisor, entry->d_name, err);
    closedir(dir);
    return result;
}

static void recover_builds(struct supervisor *supervisor)
{
    DIR *dir = recover_open(supervisor->state_fd, "images");
    if (!dir)
        return;
    for (const struct dirent *entry; (entry = readdir(dir));)
        if (strncmp(entry->d_name, ".build-", 7) == 0)
            image_build_discard(supervisor->state_fd, entry->d_name + 7);
    closedir(dir);
}

static void recover_on_group(void *ctx, const char *group)
{
    struct supervisor *supervisor = ctx;
    if (table_has_group(supervisor, group))
        return;
    log_warn("the instance of boot id %s is on no record; it is ended", group);
    leftovers_kill(supervisor, group);
}

/* ----------------------------------------------------------------------------- take-over */

static void recover_instance(struct sandbox *sandbox)
{
    struct supervisor *supervisor = sandbox->supervisor;
    bool had_lease = sandbox->meta.lease.pid;
    struct err err = {0};
    if (had_lease && instance_adopt(sandbox, &err) == 0)
        return;
    if (had_lease) {
        log_warn("sandbox=%s its instance is gone: %s", sandbox->meta.name, err.message);
        /* Where the record's pid says nothing: the former daemon saw other pids than we do. */
        sandbox_instance_end_unrecorded(sandbox->folder_fd);
        leftovers_kill(supervisor, sandbox->meta.lease.boot_id);
        sandbox->meta.lease = (struct meta_lease){0};
        expiry_note_stop(sandbox);
        sandbox->meta.is_cloning = false;
    }
    bool had_task = sandbox->meta.task == TASK_RUNNING;
    tasks_instance_gone(sandbox);
    if (had_lease && !had_task)
        table_save(sandbox);
}

int recover_state(struct supervisor *supervisor, struct err *err)
{
    int result = recover_sandboxes(supervisor, err);
    if (result < 0)
        return result;
    for (struct sandbox *sandbox = supervisor->sandboxes; sandbox; sandbox = sandbox->next) {
        recover_instance(sandbox);
        expiry_watch(sandbox);
    }
    if (sandbox_instance_list(supervisor->host, recover_on_group, supervisor, err) < 0)
        log_warn("%s", err->message);
    recover_builds(supervisor);
    trash_reopen(supervisor);
    trash_empty(supervisor);
    return 0;
}
