/* What the host offers and what every start needs; see host.h. Supervisor only. */
#include <fcntl.h>
#include <linux/sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "sandbox/host_internal.h"
#include "sandbox/host_settings.h"
#include "sandbox/host_trial.h"
#include "sandbox/launch.h"
#include "util/cleanup.h"
#include "util/fd.h"
#include "util/places.h"

#define INIT_BINARY_MAX (16 * 1024 * 1024)

static int load_init(const char *path, struct sandbox_host *host, struct err *err)
{
    cleanup_buf struct buf binary = BUF_INIT(INIT_BINARY_MAX);
    int result = fd_read_file(AT_FDCWD, path, &binary, err);
    if (result < 0)
        return result;
    host->init_fd = fd_sealed("paddock-init", binary.data, binary.len, err);
    return host->init_fd < 0 ? host->init_fd : 0;
}

static int load_filter(struct sandbox_host *host, int profile, struct err *err)
{
    cleanup_buf struct buf program = BUF_INIT(SECCOMP_FILTER_MAX);
    int result = profile_compile(profile, &program, err);
    if (result < 0)
        return result;
    int fd = host->seccomp_fds[profile] = fd_sealed("seccomp", program.data, program.len, err);
    if (fd < 0)
        return fd;
    void *mapped = mmap(NULL, program.len, PROT_READ, MAP_PRIVATE, fd, 0);
    if (mapped == MAP_FAILED)
        return err_errno(err, errno, "cannot map a seccomp filter");
    host->filters[profile].filter = mapped;
    host->filters[profile].len = (unsigned short)(program.len / sizeof(struct sock_filter));
    return 0;
}

static bool probe_ipv6(void)
{
    cleanup_fd int sock = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
    return sock >= 0;
}

static int refuse_userns(int result, struct err *err)
{
    struct host_settings settings;
    host_settings_read("", &settings);
    struct host_cause cause = host_settings_userns(&settings, places_is_host_root());
    return err_context(err, result,
                       "user namespaces cannot be made here, and without them there is no sandbox: "
                       "%s; cure: %s (`paddock doctor` tells more)",
                       cause.cause, cause.cure);
}

/* As a user: the kernel may let a namespace be made and then allow nothing in it. */
static int try_userns(struct err *err)
{
    struct host_trial trial;
    int result = host_trial_run(&trial, err);
    if (result < 0)
        return result;
    for (int i = 0; i < TRIAL_STEPS; i++)
        if (trial.codes[i] != 0 && i != TRIAL_CGROUP)
            return refuse_userns(err_errno(err, trial.codes[i] > 0 ? trial.codes[i] : EPERM,
                                           "step %d of the trial", i),
                                 err);
    return 0;
}

/* A sandbox that is weaker than it should be is never started: so what it needs is tried first. */
static int open_ids(const struct sandbox_host_config *config, struct sandbox_host *host,
                    struct err *err)
{
    int result;
    if (host->row.kind == ROW_ROOT) {
        result = ids_new(config->ids_base, config->ids_count, &host->ids, err);
        int fd = result < 0 ? result : ids_userns(host->ids, 1, err);
        return result == 0 && fd < 0 ? refuse_userns(fd, err) : result;
    }
    result = try_userns(err);
    if (result == 0)
        result = ids_new_shared(&host->ids, err);
    if (result == 0 && host->row.kind == ROW_SUBORDINATE)
        result = host->range_fd = launch_make_range(&host->row, err);
    return result < 0 ? result : 0;
}

int sandbox_host_open(const struct sandbox_host_config *config, struct sandbox_host **ret,
                      struct err *err)
{
    struct sandbox_host *host = calloc(1, sizeof(*host));
    if (!host)
        return err_set(err, ENOMEM, "no memory for the host");
    host->init_fd = host->range_fd = -1;
    host->row = *config->row;
    for (int i = 0; i < SECCOMP_PROFILES; i++)
        host->seccomp_fds[i] = -1;
    cgroups_open(config->state_name, &host->cgroups);
    cgroup_end_jails(&host->cgroups);
    host->has_ipv6 = probe_ipv6();
    int result = open_ids(config, host, err);
    if (result == 0)
        result = load_init(config->init_path, host, err);
    for (int i = 0; i < SECCOMP_PROFILES && result == 0; i++)
        result = load_filter(host, i, err);
    if (result == 0)
        result = network_build_requests(host->has_ipv6, &host->network, err);
    if (result < 0) {
        sandbox_host_close(host);
        return result;
    }
    *ret = host;
    return 0;
}

void sandbox_host_close(struct sandbox_host *host)
{
    if (!host)
        return;
    for (int i = 0; i < SECCOMP_PROFILES; i++) {
        cleanup_fd_at(&host->seccomp_fds[i]);
        if (host->filters[i].filter)
            munmap(host->filters[i].filter, host->filters[i].len * sizeof(struct sock_filter));
    }
    cleanup_fd_at(&host->init_fd);
    cleanup_fd_at(&host->range_fd);
    cgroup_end_jails(&host->cgroups);
    cgroups_close(&host->cgroups);
    ids_free(host->ids);
    free(host);
}

const struct row *sandbox_host_row(const struct sandbox_host *host)
{
    return &host->row;
}

struct ids *sandbox_host_ids(struct sandbox_host *host)
{
    return host->ids;
}

enum cgroup_layout sandbox_host_cgroups(const struct sandbox_host *host)
{
    return host->cgroups.layout;
}

struct host_unheld sandbox_host_unheld(const struct sandbox_host *host)
{
    return (struct host_unheld){.memory = !cgroups_has(&host->cgroups, CGROUP_MEMORY),
                                .cpus = !cgroups_has(&host->cgroups, CGROUP_CPU),
                                .pids = !cgroups_has(&host->cgroups, CGROUP_PIDS)};
}

bool sandbox_host_has_ipv6(const struct sandbox_host *host)
{
    return host->has_ipv6;
}

int sandbox_host_seccomp_fd(struct sandbox_host *host, enum seccomp_profile profile)
{
    return host->seccomp_fds[profile];
}
