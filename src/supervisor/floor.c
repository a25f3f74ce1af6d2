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
                   "only %" PRId64 " %s are free, and no sandbox is started below %" PRId64
                   " (%s): stop one or free some",
                   has, what, least, key);
}

static int floor_check_disk(const struct config *config, int state_fd, struct err *err)
{
    struct statvfs fs;
    if (fstatvfs(state_fd, &fs) < 0)
        return 0;
    int64_t mib = (int64_t)(fs.f_bavail * fs.f_frsize / MIB);
    int64_t files = (int64_t)fs.f_favail;
    if (config->floor_disk_mib && fs.f_blocks && mib < config->floor_disk_mib)
        return floor_refuse("MiB of the disk of state_dir", mib, "floor.disk_mib",
                            config->floor_disk_mib, err);
    if (config->floor_disk_files && fs.f_files && files < config->floor_disk_files)
        return floor_refuse("inodes of the disk of state_dir", files, "floor.disk_files",
                            config->floor_disk_files, err);
    return 0;
}

int floor_check(const struct supervisor *supervisor, struct err *err)
{
    const struct config *config = supervisor->config;
    int result = floor_check_disk(config, supervisor->state_fd, err);
    int64_t memory = config->floor_memory_mib ? floor_memory_mib() : -1;
    if (result == 0 && memory >= 0 && memory < config->floor_memory_mib)
        return floor_refuse("MiB of memory", memory, "floor.memory_mib", config->floor_memory_mib,
                            err);
    return result;
}
