/* See fake_sandbox.h. */
#include "fake_sandbox.h"

#include <assert.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "ipc/ipc.h"
#include "sandbox/inside.h"

struct sandbox_host {
    struct ids *ids;
};

struct fake_instance fake_instances[8];
int fake_starts;
int fake_jails;
int fake_busy_cleanups;

struct sandbox_host *fake_host(void)
{
    static struct sandbox_host host;
    for (size_t i = 0; !host.ids && i < 8; i++)
        fake_instances[i].socket = -1;
    if (!host.ids)
        assert(ids_new(1879048192, 64 * 65536, &host.ids, NULL) == 0);
    return &host;
}

struct fake_instance *fake_find(const char *name)
{
    for (size_t i = 0; i < 8; i++)
        if (fake_instances[i].socket >= 0 && strcmp(fake_instances[i].name, name) == 0)
            return &fake_instances[i];
    return NULL;
}

void fake_end(struct fake_instance *instance)
{
    close(instance->socket);
    instance->socket = -1;
    kill(instance->pid, SIGKILL);
}

const struct row *sandbox_host_row(const struct sandbox_host *host)
{
    static const struct row row = {.kind = ROW_ROOT};
    (void)host;
    return &row;
}

struct host_unheld sandbox_host_unheld(const struct sandbox_host *host)
{
    (void)host;
    return (struct host_unheld){0};
}

int sandbox_run_inside(struct sandbox_host *host, int (*work)(void *ctx, struct err *err),
                       void *ctx, struct err *err)
{
    (void)host;
    return work(ctx, err);
}

bool sandbox_instance_end_unrecorded(int folder_fd)
{
    (void)folder_fd;
    return false;
}

int sandbox_give(struct sandbox_host *host, int dir_fd, const struct sandbox_gift *list,
                 size_t count, struct err *err)
{
    (void)host;
    (void)err;
    for (size_t i = 0; i < count; i++)
        assert(fchownat(dir_fd, list[i].path, list[i].id, list[i].id,
                        AT_SYMLINK_NOFOLLOW | AT_EMPTY_PATH) == 0);
    return 0;
}

struct ids *sandbox_host_ids(struct sandbox_host *host)
{
    return host->ids;
}

int sandbox_host_seccomp_fd(struct sandbox_host *host, enum seccomp_profile profile)
{
    (void)host;
    (void)profile;
    return -ENOENT;
}

static struct sandbox_process fake_process(bool is_waiting)
{
    pid_t pid = fork();
    assert(pid >= 0);
    if (pid == 0) {
        while (is_waiting)
            pause();
        _exit(0);
    }
    return (struct sandbox_process){
        .pid = pid, .pidfd = (int)syscall(SYS_pidfd_open, pid, 0), .start_time = 1};
}

int sandbox_instance_make(struct sandbox_host *host, const struct sandbox_make *make,
                          struct sandbox_instance *ret, struct err *err)
{
    struct fake_instance *fake = fake_instances;
    int pair[2];
    (void)host;
    while (fake->socket >= 0)
        fake++;
    assert(ipc_pair(pair, err) == 0);
    *ret = (struct sandbox_instance){.init = fake_process(true), .socket = pair[0]};
    ret->block = make->block;
    snprintf(ret->boot_id, sizeof(ret->boot_id), "%s", make->boot_id);
    snprintf(fake->boot_id, sizeof(fake->boot_id), "%s", make->boot_id);
    fake->name[0] = '\0';
    fake->socket = pair[1];
    fake->pid = ret->init.pid;
    return 0;
}

static struct fake_instance *find_boot_id(const char *boot_id)
{
    for (size_t i = 0; i < 8; i++)
        if (fake_instances[i].socket >= 0 && strcmp(fake_instances[i].boot_id, boot_id) == 0)
            return &fake_instances[i];
    return NULL;
}

int sandbox_instance_start(struct sandbox_host *host, const struct sandbox_start *start,
                           struct sandbox_instance *instance, struct err *err)
{
    struct fake_instance *fake = find_boot_id(instance->boot_id);
    (void)host;
    (void)err;
    assert(fake && !fake_find(start->name));
    snprintf(instance->name, sizeof(instance->name), "%s", start->name);
    snprintf(fake->name, sizeof(fake->name), "%s", start->name);
    fake_starts++;
    return 0;
}

void sandbox_instance_end(struct sandbox_host *host, struct sandbox_instance *instance)
{
    sandbox_instance_kill(host, instance, NULL);
    sandbox_instance_release(instance);
}

int sandbox_instance_adopt(struct sandbox_host *host, const struct sandbox_record *record,
                           struct sandbox_instance *ret, struct err *err)
{
    (void)host;
    (void)ret;
    return err_set(err, ESRCH, "%s is gone", record->name);
}

int sandbox_instance_kill(struct sandbox_host *host, struct sandbox_instance *instance,
                          struct err *err)
{
    struct fake_instance *fake = find_boot_id(instance->boot_id);
    (void)host;
    (void)err;
    if (fake)
        fake_end(fake);
    return 0;
}

int sandbox_group_kill(struct sandbox_host *host, const char *group, struct err *err)
{
    (void)host;
    (void)group;
    (void)err;
    return 0;
}

int sandbox_instance_cleanup(struct sandbox_host *host, const char *group, struct err *err)
{
    (void)host;
    if (fake_busy_cleanups == 0)
        return 0;
    fake_busy_cleanups--;
    return err_set(err, EBUSY, "%s is busy", group);
}

int sandbox_instance_cleanup_late(struct sandbox_host *host, const char *group, struct err *err)
{
    return sandbox_instance_cleanup(host, group, err);
}

void sandbox_instance_release(struct sandbox_instance *instance)
{
    sandbox_process_release(&instance->init);
    if (instance->socket >= 0)
        close(instance->socket);
    instance->socket = -1;
}

int sandbox_instance_list(struct sandbox_host *host, void (*found)(void *ctx, const char *group),
                          void *ctx, struct err *err)
{
    (void)host;
    (void)found;
    (void)ctx;
    (void)err;
    return 0;
}

int sandbox_group_create(struct sandbox_host *host, const struct sandbox_instance *instance,
                         const char *name, struct sandbox_group *ret, struct err *err)
{
    (void)host;
    (void)instance;
    (void)name;
    (void)err;
    *ret = (struct sandbox_group){-1, -1, -1};
    return 0;
}

void sandbox_groups_remove(struct sandbox_host *host, const struct sandbox_instance *instance,
                           const char *prefix)
{
    (void)host;
    (void)instance;
    (void)prefix;
}

int sandbox_group_remove(struct sandbox_host *host, const struct sandbox_instance *instance,
                         const char *name, struct err *err)
{
    (void)host;
    (void)instance;
    (void)name;
    (void)err;
    return 0;
}

void sandbox_group_close(struct sandbox_group *group)
{
    (void)group;
}

int sandbox_jail_start(struct sandbox_host *host, const struct sandbox_jail_start *start,
                       struct sandbox_process *ret, struct err *err)
{
    (void)host;
    (void)start;
    (void)err;
    fake_jails++;
    *ret = fake_process(false);
    return 0;
}

void sandbox_jail_cleanup(struct sandbox_host *host, const char *name)
{
    (void)host;
    (void)name;
}

void sandbox_process_release(struct sandbox_process *process)
{
    if (process->pidfd >= 0)
        close(process->pidfd);
    *process = (struct sandbox_process){.pidfd = -1};
}

void sandbox_instance_refused(struct sandbox_host *host, const struct sandbox_instance *instance,
                              struct sandbox_refused *ret)
{
    (void)host;
    (void)instance;
    *ret = (struct sandbox_refused){0};
}
