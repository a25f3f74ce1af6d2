/* The promises of a jail: sees its folders and nothing else, has no network, dies of its limits,
 * leaves nothing. Needs root; skipped (77) without. */
#undef NDEBUG
#include <assert.h>
#include <fcntl.h>
#include <glob.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "harness.h"
#include "util/cleanup.h"
#include "util/fd.h"

static struct rig rig;
static char out[16384];

/* Runs the program in a jail with /in (workspace, read-only) and /out (task, writable); returns the
 * wait status. */
static int run_jail(const char *binary, enum sandbox_jail_kind kind, const char *const *argv,
                    int64_t memory_bytes)
{
    struct err err = {0};
    int fds[2];
    uint32_t block;
    siginfo_t info;
    cleanup_fd int binary_fd = open(binary, O_PATH | O_CLOEXEC);
    cleanup_fd int in = openat(rig.folder_fd, "workspace", O_PATH | O_DIRECTORY | O_CLOEXEC);
    cleanup_fd int output = openat(rig.folder_fd, "task", O_PATH | O_DIRECTORY | O_CLOEXEC);
    const struct sandbox_jail_folder folders[] = {{in, "/in/workspace", false},
                                                  {output, "/out", true}};
    assert(pipe2(fds, O_CLOEXEC) == 0 && ids_lease(sandbox_host_ids(rig.host), &block, &err) == 0);
    struct sandbox_jail_start start = {
        .kind = kind,
        .name = "job-1",
        .block = block,
        .binary_fd = binary_fd,
        .argv = argv,
        .environment = (const char *const[]){"PATH=/usr/sbin:/usr/bin:/sbin:/bin", NULL},
        .folders = folders,
        .folder_count = 2,
        .stdout_fd = fds[1],
        .stderr_fd = fds[1],
        .memory_bytes = memory_bytes,
        .cpu_seconds = 10,
    };
    struct sandbox_process process;
    if (sandbox_jail_start(rig.host, &start, &process, &err) < 0)
        fprintf(stderr, "%s\n", err.message);
    close(fds[1]);
    cleanup_buf struct buf text = BUF_INIT(sizeof(out) - 1);
    assert(fd_read_all(fds[0], &text) == 0);
    close(fds[0]);
    snprintf(out, sizeof(out), "%s", buf_text(&text));
    assert(waitid((idtype_t)P_PIDFD, (id_t)process.pidfd, &info, WEXITED) == 0);
    sandbox_jail_cleanup(rig.host, "job-1");
    sandbox_process_release(&process);
    ids_release(sandbox_host_ids(rig.host), block);
    printf("--- %s\n%s", argv[0], out); /* shown when an assertion fails */
    return info.si_code == CLD_EXITED ? info.si_status : 128 + info.si_status;
}

static int run_shell(enum sandbox_jail_kind kind, const char *script)
{
    return run_jail("/bin/sh", kind, (const char *const[]){"sh", "-c", script, NULL}, 64LL << 20);
}

static void test_a_job_sees_its_folders_alone(void)
{
    static const char *const script =
        "id -u; cat /in/workspace/secret; echo made >/out/made && cat /out/made; "
        "echo no >/in/workspace/no || echo refused; ls /; ls /etc /home /root 2>/dev/null; "
        "grep -c : /proc/net/dev; true >/usr/x || echo refused too";
    assert(run_shell(SANDBOX_JAIL_JOB, script) != 127);
    assert(strncmp(out, "0\nread\nmade\n", 12) == 0);
    assert(strstr(out, "refused\n") && strstr(out, "refused too\n"));
    assert(!strstr(out, "home") && !strstr(out, "passwd") && !strstr(out, "root"));
    assert(strstr(out, "\n1\n")); /* lo alone */
    struct stat st;
    assert(fstatat(rig.folder_fd, "task/made", &st, 0) == 0 && st.st_uid == 0);
}

static void test_a_job_has_few_capabilities(void)
{
    assert(run_shell(SANDBOX_JAIL_JOB, "grep -E '^(CapBnd|Seccomp|NoNewPrivs):' /proc/self/status; "
                                       "unshare -U true || echo no namespaces") == 0);
    /* dac_override, dac_read_search, fowner */
    assert(strstr(out, "CapBnd:\t000000000000000e\n") && strstr(out, "Seccomp:\t2\n"));
    assert(strstr(out, "NoNewPrivs:\t1\n") && strstr(out, "no namespaces\n"));
}

static void test_a_job_dies_of_its_memory_limit(const char *probe)
{
    if (sandbox_host_cgroups(rig.host) == CGROUP_NONE)
        return;
    const char *const argv[] = {"probe", "eat", NULL};
    assert(run_jail(probe, SANDBOX_JAIL_JOB, argv, 32LL << 20) == 128 + SIGKILL);
}

static void test_a_build_sees_the_clients_settings_and_no_secret(void)
{
    static const char *const script =
        "cat /etc/resolv.conf >/dev/null 2>&1; ls /etc; ls /home; test -e /etc/shadow && "
        "echo shadow; touch /var/lib/apt/lists/x /tmp/x /var/tmp/x && echo folders; "
        "mkdir -p /tmp/m && mount -t tmpfs x /tmp/m && echo mounts; mkdir /tmp/p && "
        "mount -t proc p /tmp/p && echo proc; chown 1000:1000 /out && echo owns; "
        "grep -c : /proc/net/dev";
    assert(run_shell(SANDBOX_JAIL_BUILD, script) == 0);
    assert(strstr(out, "apt\n") && strstr(out, "folders\n") && strstr(out, "mounts\n"));
    assert(strstr(out, "proc\n") && strstr(out, "owns\n"));
    assert(!strstr(out, "shadow") && !strstr(out, "ssh"));
}

static void test_a_jail_that_cannot_be_set_up_says_why(void)
{
    const char *const argv[] = {"nothing", NULL};
    assert(run_jail("/etc/passwd", SANDBOX_JAIL_JOB, argv, 0) == SANDBOX_JAIL_SETUP_FAILED);
    assert(strstr(out, "cannot execute nothing"));
}

/* A start of a process that the host's end finds running. */
static void start_jail_that_waits(void)
{
    struct err err = {0};
    uint32_t block;
    cleanup_fd int binary = open("/bin/sleep", O_PATH | O_CLOEXEC);
    cleanup_fd int null_fd = open("/dev/null", O_WRONLY | O_CLOEXEC);
    assert(ids_lease(sandbox_host_ids(rig.host), &block, &err) == 0);
    struct sandbox_jail_start start = {
        .kind = SANDBOX_JAIL_JOB,
        .name = "waits",
        .block = block,
        .binary_fd = binary,
        .argv = (const char *const[]){"sleep", "60", NULL},
        .environment = (const char *const[]){NULL},
        .stdout_fd = null_fd,
        .stderr_fd = STDERR_FILENO,
        .cpu_seconds = 10,
    };
    struct sandbox_process process;
    assert(sandbox_jail_start(rig.host, &start, &process, &err) == 0);
    sandbox_process_release(&process);
}

static int count_groups(void)
{
    char pattern[64];
    glob_t found;
    snprintf(pattern, sizeof(pattern), "/sys/fs/cgroup{,/*}/paddock-%s", rig.token);
    if (glob(pattern, GLOB_BRACE, NULL, &found) != 0)
        return 0;
    int count = (int)found.gl_pathc;
    globfree(&found);
    return count;
}

static void test_the_end_of_the_host_ends_jails_and_leaves_no_group(void)
{
    start_jail_that_waits();
    assert(count_groups() > 0 || sandbox_host_cgroups(rig.host) == CGROUP_NONE);
    rig_close(&rig);
    assert(count_groups() == 0);
}

int main(int argc, char **argv)
{
    if (geteuid() != 0 || argc < 3)
        return 77;
    setvbuf(stdout, NULL, _IONBF, 0);
    rig_open(&rig, argv[1], argv[2]);
    int fd = openat(rig.folder_fd, "workspace/secret", O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    assert(fd >= 0 && write(fd, "read\n", 5) == 5 && fchown(fd, 1000, 1000) == 0);
    close(fd);
    test_a_job_sees_its_folders_alone();
    test_a_job_has_few_capabilities();
    test_a_job_dies_of_its_memory_limit(argv[2]);
    test_a_build_sees_the_clients_settings_and_no_secret();
    test_a_jail_that_cannot_be_set_up_says_why();
    test_the_end_of_the_host_ends_jails_and_leaves_no_group();
    return 0;
}
