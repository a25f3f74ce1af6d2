/* See harness.h. */
#undef NDEBUG
#include "harness.h"

#include <assert.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "sandbox/common.h"
#include "task/spec.h"
#include "util/cleanup.h"
#include "util/fd.h"

#define WAIT_MS 10000
static const struct sandbox_trust RIG_TRUST = {"OUR CA\n", 7, "JAVA", 4};

/* The rig whose instance must not outlive a failed assertion. */
static struct rig *current;

static void kill_current(int number)
{
    (void)number; /* SIGABRT; the process ends when this returns */
    if (current && current->instance.init.pid)
        sandbox_instance_kill(current->host, &current->instance, NULL);
}

static void copy_file(const char *from, int dir_fd, const char *to)
{
    cleanup_buf struct buf buf = BUF_INIT(64 * 1024 * 1024);
    assert(fd_read_file(AT_FDCWD, from, &buf, NULL) == 0);
    cleanup_fd int fd = openat(dir_fd, to, O_WRONLY | O_CREAT | O_CLOEXEC, 0755);
    assert(fd >= 0 && fd_write_all(fd, buf.data, buf.len) == 0);
}

static void make_image(int state, const char *probe_path)
{
    static const char *const folders[] = {"rootfs", "rootfs/bin", "rootfs/etc", "rootfs/usr"};
    for (size_t i = 0; i < ARRAY_LEN(folders); i++)
        assert(mkdirat(state, folders[i], 0755) == 0);
    copy_file(probe_path, state, "rootfs/bin/probe");
    assert(symlinkat("/nowhere", state, "rootfs/etc/resolv.conf") == 0);
}

static void make_sandbox(int state)
{
    static const char *const folders[] = {
        "sandbox",         "sandbox/workspace",     "sandbox/task",
        "sandbox/overlay", "sandbox/overlay/upper", "sandbox/overlay/work"};
    for (size_t i = 0; i < ARRAY_LEN(folders); i++)
        assert(mkdirat(state, folders[i], 0755) == 0);
    assert(fchownat(state, "sandbox/workspace", 1000, 1000, 0) == 0);
}

static int listen_at(int folder_fd)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    snprintf(address.sun_path, sizeof(address.sun_path), "/proc/self/fd/%d/init.sock", folder_fd);
    unlinkat(folder_fd, "init.sock", 0);
    int sock = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    assert(bind(sock, (const struct sockaddr *)&address, sizeof(address)) == 0);
    assert(listen(sock, 4) == 0);
    return sock;
}

void rig_open(struct rig *rig, const char *init_path, const char *probe_path)
{
    const char *parent = getenv("TMPDIR");
    *rig = (struct rig){.listeners = {-1, -1, -1, -1}};
    snprintf(rig->folder, sizeof(rig->folder), "%s/paddock-test-XXXXXX", parent ? parent : "/tmp");
    current = rig;
    signal(SIGABRT, kill_current);
    umask(022);
    assert(mkdtemp(rig->folder));
    cleanup_fd int state = open(rig->folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    make_image(state, probe_path);
    make_sandbox(state);
    assert(mkdirat(state, "common", 0755) == 0);
    rig->common_fd = openat(state, "common", O_PATH | O_DIRECTORY | O_CLOEXEC);
    assert(common_fill(rig->common_fd, &RIG_TRUST, NULL) == 0);
    rig->image_fd = openat(state, "rootfs", O_PATH | O_DIRECTORY | O_CLOEXEC);
    rig->folder_fd = openat(state, "sandbox", O_PATH | O_DIRECTORY | O_CLOEXEC);
    struct stat st;
    assert(fstat(state, &st) == 0); /* tools/check finds our control groups by it */
    snprintf(rig->token, sizeof(rig->token), "%08x", (unsigned)st.st_ino);
    static const struct row row = {.kind = ROW_ROOT};
    struct sandbox_host_config config = {.row = &row,
                                         .ids_base = 1879048192,
                                         .ids_count = 4 * IDS_PER_BLOCK,
                                         .init_path = init_path,
                                         .state_name = rig->token};
    struct err err = {0};
    if (sandbox_host_open(&config, &rig->host, &err) < 0) {
        fprintf(stderr, "%s\n", err.message);
        abort();
    }
}

void rig_receive(struct rig *rig, enum ipc_type type, struct ipc_message *ret)
{
    struct err err = {0};
    struct pollfd poll_fd = {.fd = rig->instance.socket, .events = POLLIN};
    assert(poll(&poll_fd, 1, WAIT_MS) == 1);
    int result = ipc_recv(rig->instance.socket, IPC_SUPERVISOR, IPC_INIT, ret, &err);
    if (result != 1 || ret->header.type != type)
        fprintf(stderr, "wanted %s, got %d %s %s %s\n", ipc_type_name(type), result,
                ipc_type_name((enum ipc_type)ret->header.type), err.message,
                ret->header.type == IPC_INIT_FAILED ? IPC_BODY(ret, msg_status)->text : "");
    assert(result == 1 && ret->header.type == type);
}

static void wait_for_end(int pidfd)
{
    struct pollfd poll_fd = {.fd = pidfd, .events = POLLIN};
    siginfo_t info;
    assert(poll(&poll_fd, 1, WAIT_MS) == 1);
    assert(waitid((idtype_t)P_PIDFD, (id_t)pidfd, &info, WEXITED) == 0);
}

static void clone_instance(struct rig *rig, const char *name)
{
    static unsigned count;
    static const char *const environment[] = {"PATH=/bin:/usr/bin", "HOME=/home/agent", "TZ=UTC",
                                              NULL};
    char boot_id[40];
    snprintf(boot_id, sizeof(boot_id), "5b1f8a52-9d0e-4c68-8f3e-%012u", ++count);
    struct err err = {0};
    assert(ids_lease(sandbox_host_ids(rig->host), &rig->block, &err) == 0);
    cleanup_fd int listen_fd = listen_at(rig->folder_fd);
    const struct sandbox_make make = {
        .boot_id = boot_id,
        .block = rig->block,
        .limits = {.memory_bytes = 64LL << 20, .cpu_millis = 1000, .pids = 64},
        .trust = RIG_TRUST,
    };
    const struct sandbox_start start = {
        .name = name,
        .image_fd = rig->image_fd,
        .common_fd = rig->common_fd,
        .folder_fd = rig->folder_fd,
        .listen_fd = listen_fd,
        .environment = environment,
    };
    int result = sandbox_instance_make(rig->host, &make, &rig->instance, &err);
    if (result == 0)
        result = sandbox_instance_start(rig->host, &start, &rig->instance, &err);
    if (result < 0)
        fprintf(stderr, "%s\n", err.message);
    assert(result == 0);
}

void rig_start(struct rig *rig, const char *name)
{
    struct ipc_message message;
    clone_instance(rig, name);
    rig_receive(rig, IPC_INIT_STATE, &message);
    assert(message.fd_count == 4);
    for (size_t i = 0; i < 4; i++)
        rig->listeners[i] = ipc_take_fd(&message, i);
    assert(strcmp(IPC_BODY(&message, msg_init_state)->boot_id, rig->instance.boot_id) == 0);
}

int rig_start_message(struct rig *rig, const char *name, enum ipc_type type, struct err *err)
{
    struct ipc_message message;
    clone_instance(rig, name);
    rig_receive(rig, type, &message);
    int code = IPC_BODY(&message, msg_status)->code;
    err_set(err, code, "%s", IPC_BODY(&message, msg_status)->text);
    wait_for_end(rig->instance.init.pidfd);
    assert(sandbox_instance_cleanup(rig->host, rig->instance.group, NULL) == 0);
    ids_release(sandbox_host_ids(rig->host), rig->block);
    sandbox_instance_release(&rig->instance);
    return code > 0 ? 0 : -EINVAL;
}

void rig_stop(struct rig *rig)
{
    struct err err = {0};
    assert(sandbox_instance_kill(rig->host, &rig->instance, &err) == 0);
    wait_for_end(rig->instance.init.pidfd);
    for (size_t i = 0; i < 4; i++)
        close(rig->listeners[i]);
    int result = sandbox_instance_cleanup(rig->host, rig->instance.group, &err);
    if (result < 0)
        fprintf(stderr, "%s\n", err.message);
    assert(result == 0);
    ids_release(sandbox_host_ids(rig->host), rig->block);
    sandbox_instance_release(&rig->instance);
}

void rig_close(struct rig *rig)
{
    sandbox_host_close(rig->host);
    close(rig->image_fd);
    close(rig->common_fd);
    close(rig->folder_fd);
    char command[128];
    snprintf(command, sizeof(command), "rm -rf %s", rig->folder);
    assert(system(command) == 0); /* NOLINT(cert-env33-c): the test's own folder */
}

int rig_spec(const char *const *argv, const char *cwd)
{
    static struct spec spec;
    spec = (struct spec){.cwd = cwd, .envc = 1, .envp = {"EXTRA=yes"}, .prompt = SPEC_NO_PROMPT};
    spec.argv[spec.argc++] = "probe"; /* found through PATH */
    for (; *argv; argv++) {
        if (strcmp(*argv, "PROMPT") == 0)
            spec.prompt = spec.argc;
        spec.argv[spec.argc++] = *argv;
    }
    cleanup_buf struct buf buf = BUF_INIT(LIMIT_SPEC_BYTES);
    assert(spec_encode(&spec, &buf, NULL) == 0);
    int fd = fd_sealed("spec", buf.data, buf.len, NULL);
    assert(fd >= 0);
    return fd;
}

static void drain(int fd, char *text, size_t size)
{
    cleanup_buf struct buf buf = BUF_INIT(size - 1);
    fd_read_all(fd, &buf);
    snprintf(text, size, "%s", buf_text(&buf));
    close(fd);
}

void rig_exec(struct rig *rig, uint32_t user, const char *const *argv, struct rig_result *ret)
{
    static uint64_t exec;
    char group_name[32];
    snprintf(group_name, sizeof(group_name), "exec-%u", (unsigned)++exec);
    struct sandbox_group group;
    assert(sandbox_group_create(rig->host, &rig->instance, group_name, &group, NULL) == 0);
    cleanup_fd int spec = rig_spec(argv, "/");
    struct msg_init_exec body = {.exec = exec, .user = user};
    int fds[3] = {spec, group.procs_fd, group.kill_fd};
    assert(ipc_send(rig->instance.socket, IPC_INIT_EXEC, 7, &body, fds, 3, NULL) == 0);
    struct ipc_message message;
    rig_receive(rig, IPC_INIT_STARTED, &message);
    const struct msg_init_started *started = IPC_BODY(&message, msg_init_started);
    if (started->code)
        fprintf(stderr, "exec: %s\n", started->text);
    assert(started->code == 0 && message.header.id == 7 && message.fd_count == 2);
    int out = ipc_take_fd(&message, 0);
    int error = ipc_take_fd(&message, 1);
    rig_receive(rig, IPC_INIT_EXEC_ENDED, &message);
    assert(IPC_BODY(&message, msg_init_ended)->exec == exec);
    ret->end = IPC_BODY(&message, msg_init_ended)->end;
    fd_set_nonblock(out, true);
    fd_set_nonblock(error, true);
    drain(out, ret->out, sizeof(ret->out));
    drain(error, ret->err, sizeof(ret->err));
    sandbox_group_close(&group);
}

void rig_task(struct rig *rig, const char *const *argv, const char *prompt, int64_t deadline_ms)
{
    struct sandbox_group group;
    assert(sandbox_group_create(rig->host, &rig->instance, "task", &group, NULL) == 0);
    cleanup_fd int spec = rig_spec(argv, "/workspace");
    cleanup_fd int prompt_fd =
        fd_sealed("prompt", prompt ? prompt : "", prompt ? strlen(prompt) : 0, NULL);
    struct msg_init_task body = {.deadline_ms = deadline_ms, .memory_limit = 64LL << 20};
    int fds[5] = {spec, prompt_fd, group.procs_fd, group.kill_fd, group.oom_fd};
    assert(ipc_send(rig->instance.socket, IPC_INIT_TASK, 9, &body, fds, 5, NULL) == 0);
    struct ipc_message message;
    rig_receive(rig, IPC_INIT_STARTED, &message);
    const struct msg_init_started *started = IPC_BODY(&message, msg_init_started);
    if (started->code)
        fprintf(stderr, "task: %s\n", started->text);
    assert(started->code == 0 && started->pid > 1);
    sandbox_group_close(&group);
}

/* Removing a group succeeds only when no process is in it; one that was just killed may take a
 * moment to leave. */
bool rig_group_is_empty(struct rig *rig, const char *group)
{
    for (int i = 0; i < 500; i++) {
        if (sandbox_group_remove(rig->host, &rig->instance, group, NULL) == 0)
            return true;
        poll(NULL, 0, 10);
    }
    return false;
}
