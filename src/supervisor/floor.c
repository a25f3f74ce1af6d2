/* What the machine must have left for a start: one sandbox more must not take those that run with
 * it. */
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "supervisor/supervisor.h"
#include "util/cleanup.h"

#define MIB (1024 * 1024)

/* MemAvailable of /proc/meminfo, in MiB; -1 when the kernel does not tell. */
static int64_t floor_memory_mib(void)
{
    static const char label[] = "MemAvailable:";
    char text[1024];
    cleanup_fd int fd = open("/proc/meminfo", O_RDONLY | O_CLOEXEC);
    ssize_t len = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);
    text[len < 0 ? 0 : len] = '\0';
    const char *line = strstr(text, label);
    return line ? strtoll(line + strlen(label), NULL, 10) / 1024 : -1;
}

static int floor_refuse(const char *what, int64_t has, const char *key, int64_t least,
                        struct err *err)
{
    return err_set(err, EAGAIN,
                   "only %" PRId64 " MiB of %s are free, and no sandbox is started below %" PRId64
                   " (%s): stop one or free some",
                   has, what, least, key);
}

int floor_check(const struct supervisor *supervisor, struct err *err)
{
    const struct config *config = supervisor->config;
    struct statvfs fs;
    if (config->floor_disk_mib && fstatvfs(supervisor->state_fd, &fs) == 0 && fs.f_blocks) {
        int64_t has = (int64_t)(fs.f_bavail * fs.f_frsize / MIB);
        if (has < config->floor_disk_mib)
            return floor_refuse("the disk of state_dir", has, "floor.disk_mib",
                                config->floor_disk_mib, err);
    }
    int64_t memory = config->floor_memory_mib ? floor_memory_mib() : -1;
    if (memory >= 0 && memory < config->floor_memory_mib)
        return floor_refuse("memory", memory, "floor.memory_mib", config->floor_memory_mib, err);
    return 0;
}
