/*
 * Images: built by paddock-image-build in a namespace of its own, or imported by the jail, put in
 * place here when that ended well, removed. What fails leaves nothing; the image that was there
 * stays.
 */
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "image/image.h"
#include "jail/jail.h"
#include "sandbox/inside.h"
#include "supervisor/jails.h"
#include "supervisor/outputs.h"
#include "supervisor/table.h"
#include "util/cleanup.h"
#include "util/fd.h"
#include "util/log.h"
#include "json/json.h"

struct image_build {
    struct image_build *next;
    struct supervisor *supervisor;
    struct reply reply;
    struct image_info info;
    int report_fd; /* memfd where the builder tells the size, the importer what it found */
    bool is_whole; /* of an import: the client sent its archive to the end */
    char from[64]; /* of a build: the image that it begins as, or "" */
    struct image_config *config; /* of that image: this one's too; or NULL */
};

static bool images_is_building(const struct supervisor *supervisor, const char *name)
{
    const struct image_build *build = supervisor->builds;
    while (build && strcmp(build->info.name, name) != 0)
        build = build->next;
    return build;
}

/* -EAGAIN when no other may be begun. */
static int images_check_count(const struct supervisor *supervisor, struct err *err)
{
    size_t count = 0;
    for (const struct image_build *build = supervisor->builds; build; build = build->next)
        count++;
    return count < LIMIT_BUILDS
               ? 0
               : err_set(err, EAGAIN, "%d images are being built or imported: try again",
                         LIMIT_BUILDS);
}

static void images_build_free(struct image_build *build)
{
    struct image_build **at = &build->supervisor->builds;
    while (*at && *at != build)
        at = &(*at)->next;
    if (*at)
        *at = build->next;
    if (build->report_fd >= 0)
        close(build->report_fd);
    free(build->config);
    free(build);
}

static void images_on_built(void *ctx, const struct task_end *end, const char *text)
{
    struct image_build *build = ctx;
    struct supervisor *supervisor = build->supervisor;
    struct err err = {0};
    struct task_end told = *end;
    int result = 0;
    if (end->kind != TASK_END_EXITED || end->code != 0) {
        err_set(&err, EIO, "%s", text);
        image_build_discard(supervisor->state_fd, build->info.name);
    } else {
        build->info.built = clock_unix_ms() / 1000;
        result = image_build_report_read(build->report_fd, &build->info.size_bytes, &err);
        if (result == 0)
            result = image_build_commit(supervisor->state_fd, &build->info, build->config, &err);
        if (result < 0) {
            told.kind = TASK_END_FAILED;
            told.code = -result;
            image_build_discard(supervisor->state_fd, build->info.name);
        }
    }
    log_info("image=%s build %s%s%s", build->info.name,
             told.kind == TASK_END_EXITED && told.code == 0 ? "done" : "failed",
             err.message[0] ? ": " : "", err.message);
    runs_tell_end(supervisor, build->reply, &told, err.message);
    images_build_free(build);
    trash_empty(supervisor);
}

/* The root of the image that the build begins as, and that image's configuration; -1: there is
 * none.
 */
static int images_open_parent(struct image_build *build, struct err *err)
{
    int state_fd = build->supervisor->state_fd;
    if (!build->from[0])
        return -1;
    build->config = must_alloc(sizeof(*build->config));
    int result = image_config_read(state_fd, build->from, build->config, err);
    return result < 0 ? result : image_open(state_fd, build->from, err);
}

/* The place of the job's report, and the new image's root, empty, as the sandboxes' root has it. */
static int images_prepare(struct image_build *build, struct err *err)
{
    static const struct sandbox_gift gift = {"", 0, false};
    struct supervisor *supervisor = build->supervisor;
    build->report_fd = memfd_create("report", MFD_CLOEXEC);
    if (build->report_fd < 0)
        return err_errno(err, errno, "cannot make a memfd");
    cleanup_fd int root = image_build_prepare(supervisor->state_fd, build->info.name, err);
    int result = root < 0 ? root : sandbox_give(supervisor->host, root, &gift, 1, err);
    if (result == 0)
        return TAKE_FD(root);
    image_build_discard(supervisor->state_fd, build->info.name);
    return result;
}

static int images_run(struct image_build *build, const struct buf *recipe,
                      const struct outputs *outputs, struct err *err)
{
    struct supervisor *supervisor = build->supervisor;
    cleanup_fd int text = fd_sealed("recipe", recipe->data, recipe->len, err);
    if (text < 0)
        return text;
    cleanup_fd int root = images_prepare(build, err);
    if (root < 0)
        return root;
    cleanup_fd int parent = images_open_parent(build, err);
    if (parent < 0 && build->from[0]) {
        image_build_discard(supervisor->state_fd, build->info.name);
        return parent;
    }
    struct sandbox_jail_folder folders[] = {{root, "/out", true}, {parent, "/from", false}};
    const char *const argv[] = {"paddock-image-build", build->info.name, NULL};
    int inherit[2] = {text, build->report_fd};
    struct jail_job job = {.kind = SANDBOX_JAIL_BUILD,
                           .argv = argv,
                           .folders = folders,
                           .folder_count = parent < 0 ? 1 : 2,
                           .inherit = inherit,
                           .inherit_count = ARRAY_LEN(inherit),
                           .stdout_fd = outputs->write_fds[0],
                           .stderr_fd = outputs->write_fds[1],
                           .done = images_on_built,
                           .ctx = build};
    int result = jails_start(supervisor, &job, NULL, err);
    if (result < 0)
        image_build_discard(supervisor->state_fd, build->info.name);
    return result;
}

/* True when the image is there and was made from this very recipe. */
static bool images_is_up_to_date(struct supervisor *supervisor, const char *name,
                                 const char digest[65])
{
    struct image_info info;
    return image_info_read(supervisor->state_fd, name, &info, NULL) == 0 &&
           strcmp(info.digest, digest) == 0;
}

static void images_tell_up_to_date(struct supervisor *supervisor, struct reply reply,
                                   const char *name, const struct outputs *outputs)
{
    struct task_end end = {.kind = TASK_END_EXITED, .ended_ms = clock_unix_ms()};
    char text[128];
    snprintf(text, sizeof(text), "%s is up to date", name);
    reply_send(supervisor, reply, IPC_RUN_STARTED, NULL, outputs->read_fds, 2);
    runs_tell_end(supervisor, reply, &end, text);
}

static int images_check_row(const struct supervisor *supervisor, struct err *err)
{
    const struct row *row = &supervisor->row;
    if (row->kind != ROW_SINGLE)
        return 0;
    return err_set(err, EOPNOTSUPP,
                   "An image cannot be built with a single id, its packages need more: import one "
                   "(paddock image import), or get subordinate ids. %s; %s",
                   row->why, row->cure);
}

static int images_try_build(struct supervisor *supervisor, struct reply reply, const char *name,
                            bool is_rebuild, struct err *err)
{
    cleanup_buf struct buf recipe = BUF_INIT(LIMIT_CONFIG_BYTES);
    char digest[65], from[64];
    int result = image_recipe_read(supervisor->recipes_fd, supervisor->state_fd, name, &recipe,
                                   digest, from, err);
    cleanup_outputs struct outputs outputs = {{-1, -1}, {-1, -1}};
    if (result == 0)
        result = outputs_open(&outputs, err);
    if (result < 0)
        return result;
    if (!is_rebuild && images_is_up_to_date(supervisor, name, digest)) {
        images_tell_up_to_date(supervisor, reply, name, &outputs);
        return 0;
    }
    result = images_check_count(supervisor, err);
    if (result == 0)
        result = images_check_row(supervisor, err);
    if (result < 0)
        return result;
    struct image_build *build = must_alloc(sizeof(*build));
    *build = (struct image_build){.supervisor = supervisor, .reply = reply, .report_fd = -1};
    snprintf(build->info.name, sizeof(build->info.name), "%s", name);
    memcpy(build->info.digest, digest, sizeof(digest));
    memcpy(build->from, from, sizeof(from));
    result = images_run(build, &recipe, &outputs, err);
    if (result < 0) {
        images_build_free(build);
        return result;
    }
    build->next = supervisor->builds;
    supervisor->builds = build;
    log_info(REQUEST_FIELD "image=%s build started", reply.id, name);
    reply_send(supervisor, reply, IPC_RUN_STARTED, NULL, outputs.read_fds, 2);
    return 0;
}

void images_build(struct supervisor *supervisor, struct reply reply, const char *name,
                  bool is_rebuild)
{
    struct err err = {0};
    if (images_is_building(supervisor, name)) {
        reply_status(supervisor, reply, IPC_STATUS_CONFLICT,
                     "%s is being built or imported already", name);
        return;
    }
    int result = supervisor->recipes_fd < 0
                     ? err_set(&err, ENOENT, "recipes_dir %s cannot be opened",
                               supervisor->config->recipes_dir)
                     : images_try_build(supervisor, reply, name, is_rebuild, &err);
    if (result == 0)
        return;
    log_error(REQUEST_FIELD "image=%s %s", reply.id, name, err.message);
    if (result == -ENOENT)
        reply_status(supervisor, reply, IPC_STATUS_NOT_FOUND, "%s", err.message);
    else if (result == -EINVAL)
        reply_status(supervisor, reply, IPC_STATUS_BAD_REQUEST, "%s", err.message);
    else if (result == -EOPNOTSUPP)
        reply_status(supervisor, reply, IPC_STATUS_CONFLICT, "%s", err.message);
    else
        reply_failure(supervisor, reply, result, err.message);
}

/* --------------------------------------------------------------------------------- imports */

/* The answer's JSON; it fits, since the user has no character that JSON makes longer than two. */
static int images_describe(const struct image_build *build, const struct image_report *report,
                           struct buf *ret, struct err *err)
{
    struct json_writer *writer = json_writer_new(ret, false);
    if (!writer)
        return err_set(err, ENOMEM, "no memory for the answer");
    json_write_object_begin(writer);
    json_write_pair_string(writer, "name", build->info.name);
    json_write_pair_string(writer, "digest", build->info.digest);
    json_write_pair_integer(writer, "sizeBytes", report->size_bytes);
    json_write_pair_integer(writer, "dropped", (int64_t)report->dropped);
    json_write_pair_string(writer, "user", report->config.user);
    json_write_object_end(writer);
    int result = json_writer_end(writer);
    if (result == 0)
        result = buf_append_string(ret, "\n");
    return result < 0 ? err_set(err, -result, "cannot write the answer") : 0;
}

/* Takes what the import found for the image, which is whole and in its place when this returns 0.
 * On success *ret is the answer's JSON. */
static int images_take_import(struct image_build *build, struct buf *ret, struct err *err)
{
    struct supervisor *supervisor = build->supervisor;
    cleanup_free struct image_report *report = must_alloc(sizeof(*report));
    if (!build->is_whole) { /* it may have come, and wait to be read */
        channel_drain(supervisor->api.channel);
        if (!build->is_whole)
            return err_set(err, EINVAL, "the archive did not come to its end");
    }
    int result = image_import_report_read(build->report_fd, report, err);
    if (result < 0)
        return result;
    build->info.built = clock_unix_ms() / 1000;
    build->info.size_bytes = report->size_bytes;
    build->info.is_imported = true;
    memcpy(build->info.digest, report->digest, sizeof(build->info.digest));
    result = images_describe(build, report, ret, err);
    return result < 0
               ? result
               : image_build_commit(supervisor->state_fd, &build->info, &report->config, err);
}

/* How the import ended, from the end of its jail. With `result` negative the archive is at fault
 * (-EINVAL), or the machine. */
static struct task_end images_judge(const struct task_end *end, int result)
{
    struct task_end told = *end;
    if (end->kind == TASK_END_EXITED && end->code == JAIL_EXIT_FULL)
        result = -ENOSPC;
    else if (end->kind == TASK_END_EXITED &&
             (end->code == SANDBOX_JAIL_SETUP_FAILED || end->code == JAIL_EXIT_FAILED))
        result = -EIO; /* its own words are what api logs */
    if (result < 0) {
        told.kind = result == -EINVAL ? TASK_END_EXITED : TASK_END_FAILED;
        told.code = result == -EINVAL ? JAIL_EXIT_REFUSED : -result;
    }
    return told;
}

static void images_on_imported(void *ctx, const struct task_end *end, const char *text)
{
    struct image_build *build = ctx;
    struct supervisor *supervisor = build->supervisor;
    struct err err = {0};
    cleanup_buf struct buf answer = BUF_INIT(MSG_TEXT - 1);
    int result = 0;
    if (end->kind == TASK_END_EXITED && end->code == 0)
        result = images_take_import(build, &answer, &err);
    else
        err_set(&err, EIO, "%s", text); /* which is empty when the jail has said it itself */
    struct task_end told = images_judge(end, result);
    bool is_ok = told.kind == TASK_END_EXITED && told.code == 0;
    if (!is_ok)
        image_build_discard(supervisor->state_fd, build->info.name);
    log_info("image %s: import %s%s%s", build->info.name, is_ok ? "done" : "failed",
             err.message[0] ? ": " : "", err.message);
    runs_tell_end(supervisor, build->reply, &told, is_ok ? buf_text(&answer) : err.message);
    images_build_free(build);
    trash_empty(supervisor);
}

static int images_start_import(struct image_build *build, const struct outputs *outputs,
                               int archive_fd, struct err *err)
{
    struct supervisor *supervisor = build->supervisor;
    cleanup_fd int root = images_prepare(build, err);
    if (root < 0)
        return root;
    char floor_bytes[32];
    snprintf(floor_bytes, sizeof(floor_bytes), "%" PRId64,
             supervisor->config->floor_disk_mib * 1024 * 1024);
    struct sandbox_jail_folder folder = {root, "/out", true};
    const char *const argv[] = {"paddock-jail", "import", floor_bytes, NULL};
    int inherit[2] = {archive_fd, build->report_fd};
    struct jail_job job = {.kind = SANDBOX_JAIL_JOB,
                           .argv = argv,
                           .folders = &folder,
                           .folder_count = 1,
                           .inherit = inherit,
                           .inherit_count = ARRAY_LEN(inherit),
                           .stdout_fd = outputs->write_fds[0],
                           .stderr_fd = outputs->write_fds[1],
                           .gives_away = true,
                           .done = images_on_imported,
                           .ctx = build};
    int result = jails_start(supervisor, &job, NULL, err);
    if (result < 0)
        image_build_discard(supervisor->state_fd, build->info.name);
    return result;
}

static int images_try_import(struct supervisor *supervisor, struct reply reply, const char *name,
                             struct err *err)
{
    cleanup_outputs struct outputs outputs = {{-1, -1}, {-1, -1}};
    int ends[2];
    int result = outputs_open(&outputs, err);
    if (result < 0)
        return result;
    if (pipe2(ends, O_CLOEXEC) < 0)
        return err_errno(err, errno, "cannot make a pipe");
    cleanup_fd int reading = ends[0];
    cleanup_fd int writing = ends[1];
    struct image_build *build = must_alloc(sizeof(*build));
    *build = (struct image_build){.supervisor = supervisor, .reply = reply, .report_fd = -1};
    snprintf(build->info.name, sizeof(build->info.name), "%s", name);
    result = images_start_import(build, &outputs, reading, err);
    if (result < 0) {
        images_build_free(build);
        return result;
    }
    build->next = supervisor->builds;
    supervisor->builds = build;
    log_info("image %s: import started", name);
    int fds[3] = {outputs.read_fds[0], outputs.read_fds[1], writing};
    reply_send(supervisor, reply, IPC_RUN_STARTED, NULL, fds, ARRAY_LEN(fds));
    return 0;
}

void images_import(struct supervisor *supervisor, struct reply reply, const char *name)
{
    struct err err = {0};
    if (images_is_building(supervisor, name)) {
        reply_status(supervisor, reply, IPC_STATUS_CONFLICT,
                     "%s is being built or imported already", name);
        return;
    }
    int result = images_check_count(supervisor, &err);
    if (result == 0)
        result = images_try_import(supervisor, reply, name, &err);
    if (result < 0) {
        log_error("image %s: %s", name, err.message);
        reply_failure(supervisor, reply, result, err.message);
    }
}

void images_import_whole(struct supervisor *supervisor, struct reply reply)
{
    for (struct image_build *build = supervisor->builds; build; build = build->next)
        if (build->reply.id == reply.id && build->reply.generation == reply.generation)
            build->is_whole = true;
}

/* The names of the sandboxes that have the image, cut with "..." where they do not fit; 0: none. */
static size_t images_users(const struct supervisor *supervisor, const char *name, char *ret,
                           size_t size)
{
    size_t count = 0;
    size_t used = 0;
    ret[0] = '\0';
    for (const struct sandbox *at = supervisor->sandboxes; at; at = at->next) {
        if (strcmp(at->meta.image, name) != 0)
            continue;
        const char *comma = count++ ? ", " : "";
        bool is_cut = used + strlen(comma) + strlen(at->meta.name) + 8 > size;
        used += (size_t)snprintf(ret + used, size - used, "%s%s", comma,
                                 is_cut ? "..." : at->meta.name);
        if (is_cut)
            break;
    }
    return count;
}

void images_remove(struct supervisor *supervisor, struct reply reply, const char *name)
{
    struct err err = {0};
    char users[MSG_TEXT / 2];
    bool is_used = images_users(supervisor, name, users, sizeof(users));
    if (is_used || images_is_building(supervisor, name)) {
        reply_status(supervisor, reply, IPC_STATUS_CONFLICT, "%s is %s%s", name,
                     is_used ? "used by these sandboxes: " : "being built or imported", users);
        return;
    }
    int result = image_remove(supervisor->state_fd, name, &err);
    if (result < 0) {
        reply_status(supervisor, reply,
                     result == -ENOENT ? IPC_STATUS_NOT_FOUND : IPC_STATUS_FAILED, "%s",
                     err.message);
        return;
    }
    reply_status(supervisor, reply, IPC_STATUS_OK, "%s", "");
    trash_empty(supervisor);
}
