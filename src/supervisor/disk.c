/*
 * The limits of what a sandbox has on the disk (limits.disk_mib, limits.inodes), which nothing in
 * the kernel holds: they are watched. Each disk_check_ms the state's file system is asked how much
 * of it is in use, which costs nothing. A sandbox's files are counted, by the job `weigh` in a
 * jail, one sandbox after the other, when it runs and
 *
 *   the file system has filled by half of what the sandbox has left, since they were counted last;
 *   or nobody knows them: it is a former daemon's;
 *   or something runs in it: others may free as much as it takes, and some file systems do not tell
 *   their inodes. So all that are busy are counted in turn, with DISK_REST times as long a rest
 *   after each count.
 *
 * One that is over is stopped at once, and is so on record. Then tasks and clones are refused, each
 * after another count; programs may run in it, so that files can be deleted.
 */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "jail/jail.h"
#include "supervisor/jails.h"
#include "supervisor/table.h"
#include "util/cleanup.h"
#include "util/fd.h"
#include "util/log.h"

#define MIB (1024 * 1024)
#define DISK_REST 30

static struct {
    bool is_known; /* `used` is */
    struct jail_weight used;
    struct jail_weight grown; /* all that was added since the start, whatever went away */
    uint64_t turn;

    /* The count that is under way. */
    bool is_counting;
    struct sandbox *sandbox; /* NULL: it is gone meanwhile */
    bool is_asked_for;       /* an operation waits for it */
    bool lacks_ids;          /* the last one was not begun for want of them */
    struct jail_weight grown_before;
    int64_t begun_ms;
    struct event *rest; /* after it, or NULL */
    int report_fd;
} disk = {.report_fd = -1};

/* ------------------------------------------------------------------------- what is told */

static bool disk_is_over(const struct sandbox *sandbox)
{
    struct settings_disk limit;
    settings_disk(sandbox, &limit);
    return (limit.bytes && sandbox->disk.weight.bytes > limit.bytes) ||
           (limit.inodes && sandbox->disk.weight.inodes > limit.inodes);
}

void disk_explain(const struct sandbox *sandbox, char *ret, size_t size)
{
    struct settings_disk limit;
    const struct jail_weight *weight = &sandbox->disk.weight;
    settings_disk(sandbox, &limit);
    if (!sandbox->disk.is_known)
        snprintf(ret, size,
                 "it was over its limit of files (limits.disk_mib, limits.inodes), and they could "
                 "not be counted again");
    else if (sandbox->disk.is_uncountable)
        snprintf(ret, size, "its files are too many to be counted (limits.inodes)");
    else if (limit.bytes && weight->bytes > limit.bytes)
        snprintf(ret, size,
                 "its files take %" PRIu64 " MiB and its limit is %" PRIu64
                 " MiB (limits.disk_mib)",
                 (weight->bytes + MIB - 1) / MIB, limit.bytes / MIB);
    else
        snprintf(ret, size, "it has %" PRIu64 " files and its limit is %" PRIu64 " (limits.inodes)",
                 weight->inodes, limit.inodes);
}

/* ------------------------------------------------------------------------------ the end */

/* Over its limit since now, or so much more than then that it is not being tidied; or a former
 * daemon died before it stopped the task. */
static bool disk_must_stop(struct sandbox *sandbox, bool was_over)
{
    struct disk_use *use = &sandbox->disk;
    if (!was_over || !use->over.inodes)
        use->over = use->weight;
    return !was_over || sandbox->meta.task == TASK_RUNNING ||
           use->weight.bytes > use->over.bytes + LIMIT_TIDY_BYTES ||
           use->weight.inodes > use->over.inodes + LIMIT_TIDY_INODES;
}

static void disk_judge(struct sandbox *sandbox)
{
    bool was_over = sandbox->meta.is_over_disk;
    bool is_over = sandbox->disk.is_uncountable || disk_is_over(sandbox);
    char why[MSG_TEXT / 2];
    if (is_over != was_over) {
        sandbox->meta.is_over_disk = is_over;
        table_save(sandbox);
    }
    if (!is_over) {
        if (was_over)
            log_info("sandbox=%s is below its limit of files again", sandbox->meta.name);
        sandbox->disk.over = (struct jail_weight){0};
        return;
    }
    if (!disk_must_stop(sandbox, was_over))
        return;
    disk_explain(sandbox, why, sizeof(why));
    hits_note(sandbox, HIT_DISK);
    log_warn("sandbox=%s is stopped: %s", sandbox->meta.name, why);
    if (sandbox->state == SANDBOX_RUNNING)
        instance_stop_over_disk(sandbox, why);
}

static void disk_next(struct supervisor *supervisor);

static void disk_on_rested(void *ctx)
{
    event_free(&disk.rest);
    disk_next(ctx);
}

static void disk_rest(struct supervisor *supervisor)
{
    int64_t took = clock_monotonic_ms() - disk.begun_ms;
    event_free(&disk.rest);
    disk.rest = event_timer(&supervisor->loop, took * DISK_REST + 1, 0, disk_on_rested, supervisor);
}

static void disk_on_counted(void *ctx, const struct task_end *end, const char *text)
{
    struct supervisor *supervisor = ctx;
    struct sandbox *sandbox = disk.sandbox;
    struct jail_weight weight;
    bool is_killed = end->kind == TASK_END_SIGNALED;
    bool is_counted = end->kind == TASK_END_EXITED && end->code == 0 &&
                      pread(disk.report_fd, &weight, sizeof(weight), 0) == sizeof(weight);
    cleanup_fd_at(&disk.report_fd);
    disk.report_fd = -1;
    disk.is_counting = false;
    disk.sandbox = NULL;
    disk_rest(supervisor);
    if (sandbox) {
        struct disk_use *use = &sandbox->disk;
        use->grown_before = disk.grown_before;
        /* An agent can make trees that nobody can count in the jail's time and memory. */
        use->is_uncountable = is_killed;
        use->is_known = use->is_known || is_counted || is_killed;
        if (is_counted)
            use->weight = weight;
        else
            log_error("sandbox=%s its files cannot be counted: %s", sandbox->meta.name,
                      text[0] ? text : "see above");
        if (use->is_known)
            disk_judge(sandbox);
        use->is_answered = disk.is_asked_for && sandbox->meta.is_over_disk;
        table_pump(sandbox); /* it may be gone afterwards */
    }
    disk_next(supervisor);
}

/* ---------------------------------------------------------------------------- the count */

static int disk_count_in(struct sandbox *sandbox, struct err *err)
{
    int flags = O_PATH | O_DIRECTORY;
    cleanup_fd int workspace =
        fd_open_beneath(sandbox->folder_fd, "workspace", flags, 0, false, err);
    if (workspace < 0)
        return workspace;
    cleanup_fd int overlay = fd_open_beneath(sandbox->folder_fd, "overlay", flags, 0, false, err);
    if (overlay < 0)
        return overlay;
    cleanup_fd int report = memfd_create("weight", MFD_CLOEXEC);
    if (report < 0)
        return err_errno(err, errno, "cannot make a memfd");
    struct sandbox_jail_folder folders[] = {{workspace, "/in/workspace", false},
                                            {overlay, "/in/overlay", false}};
    static const char *const argv[] = {"paddock-jail", "weigh", NULL};
    struct jail_job job = {.kind = SANDBOX_JAIL_JOB,
                           .argv = argv,
                           .folders = folders,
                           .folder_count = ARRAY_LEN(folders),
                           .inherit = &report,
                           .inherit_count = 1,
                           .stdout_fd = -1,
                           .stderr_fd = -1,
                           .done = disk_on_counted,
                           .ctx = sandbox->supervisor};
    int result = jails_start(sandbox->supervisor, &job, NULL, err);
    if (result == 0)
        disk.report_fd = TAKE_FD(report);
    return result;
}

/* False: it could not be begun, and an operation that waits for it has its answer. */
static bool disk_count(struct sandbox *sandbox)
{
    struct err err = {0};
    int result = disk_count_in(sandbox, &err);
    sandbox->disk.turn = disk.turn;
    disk.is_asked_for = sandbox->disk.is_asked;
    sandbox->disk.is_asked = false;
    if (result < 0) {
        /* No ids are free for a jail: told once, until there are some again. */
        if (result != -EAGAIN || !disk.lacks_ids)
            log_error("sandbox=%s its files cannot be counted: %s", sandbox->meta.name,
                      err.message);
        disk.lacks_ids = result == -EAGAIN;
        sandbox->disk.is_answered = disk.is_asked_for;
        return false;
    }
    disk.is_counting = true;
    disk.lacks_ids = false;
    disk.begun_ms = clock_monotonic_ms();
    disk.sandbox = sandbox;
    disk.grown_before = disk.grown;
    return true;
}

/* Whether `used` can have passed half of what is left. */
static bool disk_may_be_near(uint64_t limit, uint64_t used, uint64_t grown)
{
    uint64_t left = used < limit ? limit - used : 0;
    return limit && grown > left / 2;
}

static bool disk_is_watched(const struct sandbox *sandbox, struct settings_disk *ret_limit)
{
    settings_disk(sandbox, ret_limit);
    return sandbox->state == SANDBOX_RUNNING && sandbox->disk.turn != disk.turn &&
           (ret_limit->bytes || ret_limit->inodes);
}

/* Its files are to be counted now. */
static bool disk_is_due(const struct sandbox *sandbox)
{
    const struct disk_use *use = &sandbox->disk;
    struct settings_disk limit;
    if (use->is_asked)
        return true;
    if (!disk_is_watched(sandbox, &limit))
        return false;
    return !use->is_known || sandbox->meta.is_over_disk ||
           disk_may_be_near(limit.bytes, use->weight.bytes,
                            disk.grown.bytes - use->grown_before.bytes) ||
           disk_may_be_near(limit.inodes, use->weight.inodes,
                            disk.grown.inodes - use->grown_before.inodes);
}

/* The busy one whose files were counted longest ago, or NULL. */
static struct sandbox *disk_find_busy(const struct supervisor *supervisor)
{
    struct sandbox *found = NULL;
    struct settings_disk limit;
    for (struct sandbox *one = supervisor->sandboxes; one; one = one->next)
        if ((!found || one->disk.turn < found->disk.turn) && instance_is_busy(one) &&
            disk_is_watched(one, &limit))
            found = one;
    return found;
}

static void disk_next(struct supervisor *supervisor)
{
    struct sandbox *sandbox = supervisor->sandboxes;
    if (disk.is_counting)
        return;
    while (sandbox && !disk_is_due(sandbox))
        sandbox = sandbox->next;
    if (!sandbox && !disk.rest)
        sandbox = disk_find_busy(supervisor);
    if (sandbox && !disk_count(sandbox))
        table_pump(sandbox); /* others' turn is the next one */
}

/* ---------------------------------------------------------------------------- the watch */

static void disk_look(const struct supervisor *supervisor)
{
    struct statvfs fs;
    if (fstatvfs(supervisor->sandboxes_fd, &fs) < 0)
        return;
    struct jail_weight now = {.bytes = (uint64_t)(fs.f_blocks - fs.f_bfree) * fs.f_frsize,
                              .inodes = fs.f_files - fs.f_ffree};
    if (disk.is_known && now.bytes > disk.used.bytes)
        disk.grown.bytes += now.bytes - disk.used.bytes;
    if (disk.is_known && now.inodes > disk.used.inodes)
        disk.grown.inodes += now.inodes - disk.used.inodes;
    disk.used = now;
    disk.is_known = true;
}

static void disk_on_turn(void *ctx)
{
    struct supervisor *supervisor = ctx;
    disk.turn++;
    disk_look(supervisor);
    disk_next(supervisor);
}

void disk_start(struct supervisor *supervisor)
{
    int64_t check = supervisor->config->disk_check_ms;
    disk_look(supervisor);
    supervisor->disk_timer = event_timer(&supervisor->loop, check, check, disk_on_turn, supervisor);
}

void disk_begin(struct sandbox *sandbox)
{
    disk_look(sandbox->supervisor);
    sandbox->disk =
        (struct disk_use){.is_known = true, .grown_before = disk.grown, .turn = disk.turn};
}

bool disk_ask(struct sandbox *sandbox)
{
    struct disk_use *use = &sandbox->disk;
    if (use->is_answered) {
        use->is_answered = false;
        return true;
    }
    if (disk.sandbox == sandbox && disk.is_asked_for)
        return false;
    /* One that is under way may have passed what was deleted since. */
    use->is_asked = true;
    if (disk.is_counting || disk_count(sandbox))
        return false;
    use->is_answered = false;
    return true;
}

void disk_forget(const struct sandbox *sandbox)
{
    if (disk.sandbox == sandbox)
        disk.sandbox = NULL;
}
