/* The doctor's findings about the state folder: whose it is, what file system it is on, how much is
 * free; whether the clock can be right; how long the CA holds. Nothing is made or changed. */
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>
#include <time.h>
#include <unistd.h>

#include "sandbox/process.h"
#include "supervisor/doctor_internal.h"
#include "supervisor/spawn.h"
#include "util/cleanup.h"
#include "util/clock.h"
#include "util/fd.h"
#include "util/places.h"

#define MIB (1024 * 1024)
#define TIGHT_MIB 2048
#define TIGHT_FILES 50000 /* an image has some 20,000 */
#define DAY_S 86400
#define CA_WARN_DAYS 30
#define CA_DATES_WAIT_MS 10000
#define NOBODY 65534
#define CLOCK_SLACK_S DAY_S

/* statfs(2) and linux/magic.h; what cannot hold the upper layer of an overlay, or map ids, says so.
 */
static const struct file_system {
    uint64_t type;
    const char *name;
    enum finding_level level;
    const char *lost;
} file_systems[] = {
    {0xef53, "ext4", FINDING_OK, ""},
    {0x58465342, "xfs", FINDING_OK, ""},
    {0x9123683e, "btrfs", FINDING_OK, ""},
    {0xf2f52010, "f2fs", FINDING_OK, ""},
    {0xca451a4e, "bcachefs", FINDING_OK, ""},
    {0x2fc12fc1, "zfs", FINDING_OK, ""},
    {0x01021994, "tmpfs", FINDING_WARN, "images and sandboxes are gone after a reboot"},
    {0x858458f6, "ramfs", FINDING_WARN, "images and sandboxes are gone after a reboot"},
    {0x794c7630, "overlay", FINDING_FAIL,
     "no sandbox can be started: an overlay cannot lie on another"},
    {0x6969, "nfs", FINDING_FAIL,
     "no sandbox can be started: nfs holds no overlay and maps no ids"},
    {0xff534d42, "cifs", FINDING_FAIL, "no sandbox can be started: cifs holds no overlay"},
    {0xfe534d42, "smb", FINDING_FAIL, "no sandbox can be started: smb holds no overlay"},
    {0x65735546, "fuse", FINDING_FAIL,
     "no sandbox can be started: most fuse file systems hold no overlay"},
    {0x01021997, "9p", FINDING_FAIL, "no sandbox can be started: 9p holds no overlay"},
    {0x4d44, "vfat", FINDING_FAIL, "no sandbox can be started: vfat has no owners of files"},
    {0x2011bab0, "exfat", FINDING_FAIL, "no sandbox can be started: exfat has no owners of files"},
};

#define MOVE_CURE "set state_dir to a folder on ext4, xfs or btrfs"

static void judge_type(uint64_t type, struct sandbox_finding *ret)
{
    SAY(ret->text, "file system of type 0x%llx", (unsigned long long)type);
    for (size_t i = 0; i < ARRAY_LEN(file_systems); i++) {
        const struct file_system *known = &file_systems[i];
        if (known->type != type)
            continue;
        SAY(ret->text, "%s", known->name);
        SAY(ret->lost, "%s", known->lost);
        ret->level = known->level;
        if (known->level != FINDING_OK)
            SAY(ret->cure, MOVE_CURE);
        return;
    }
}

void doctor_judge_place(const struct doctor_place *place, struct sandbox_finding *ret)
{
    judge_type(place->type, ret);
    size_t len = strlen(ret->text);
    snprintf(ret->text + len, sizeof(ret->text) - len, ", %llu MiB free",
             (unsigned long long)place->free_mib);
    if (place->is_read_only || place->is_noexec) {
        ret->level = FINDING_FAIL;
        SAY(ret->lost, "%s",
            place->is_read_only ? "the daemon does not start"
                                : "no program of an image can be run");
        SAY(ret->cure, "mount the file system of state_dir with %s, or choose another state_dir",
            place->is_read_only ? "rw" : "exec");
        len = strlen(ret->text);
        snprintf(ret->text + len, sizeof(ret->text) - len, ", mounted %s",
                 place->is_read_only ? "ro" : "noexec");
    }
    if (ret->level == FINDING_FAIL)
        return;
    bool is_below = place->free_mib < (uint64_t)place->floor_mib;
    bool has_few = place->counts_files && place->free_files < TIGHT_FILES;
    bool has_too_few = place->counts_files && place->free_files < (uint64_t)place->floor_files;
    if (is_below || place->free_mib < TIGHT_MIB || has_few || has_too_few) {
        ret->level = is_below || has_too_few ? FINDING_FAIL : FINDING_WARN;
        if ((has_few || has_too_few) && !is_below)
            SAY(ret->text, "only %llu files more can be made there",
                (unsigned long long)place->free_files);
        if (is_below)
            SAY(ret->lost, "no sandbox is started: floor.disk_mib is %lld",
                (long long)place->floor_mib);
        else if (has_too_few)
            SAY(ret->lost, "no sandbox is started: floor.disk_files is %lld",
                (long long)place->floor_files);
        else
            SAY(ret->lost, "an image or a large clone may not fit");
        SAY(ret->cure, "free some space (`paddock df` tells what takes it), or set state_dir to a "
                       "larger file system");
    }
}

static void look_at_place(struct doctor *doctor)
{
    struct statfs fs;
    if (doctor->place_fd < 0 || fstatfs(doctor->place_fd, &fs) < 0)
        return;
    struct doctor_place place = {
        .type = (uint64_t)fs.f_type & UINT32_MAX,
        .is_read_only = (fs.f_flags & ST_RDONLY) != 0,
        .is_noexec = (fs.f_flags & ST_NOEXEC) != 0,
        .free_mib = (uint64_t)fs.f_bavail * (uint64_t)fs.f_bsize / MIB,
        .free_files = (uint64_t)fs.f_ffree,
        .counts_files = fs.f_files > 0,
        .floor_mib = doctor->config->floor_disk_mib,
        .floor_files = doctor->config->floor_disk_files,
    };
    doctor_judge_place(&place, doctor_add(doctor, "state-disk", FINDING_OK));
}

static void look_at_folder(struct doctor *doctor)
{
    const char *path = doctor->config->state_dir;
    struct sandbox_finding *finding = doctor_add(doctor, "state", FINDING_OK);
    struct stat st;
    if (stat(path, &st) < 0) {
        bool is_absent = errno == ENOENT;
        SAY(finding->text, "%.200s %s", path,
            is_absent ? "is not there yet; the daemon makes it" : strerror(errno));
        if (is_absent)
            return;
        finding->level = FINDING_FAIL;
        SAY(finding->lost, "the daemon does not start");
        SAY(finding->cure,
            "run this as the daemon's user, or set state_dir to a folder of your own");
        return;
    }
    SAY(finding->text, "%.200s", path);
    if (!S_ISDIR(st.st_mode) || st.st_uid != geteuid()) {
        finding->level = FINDING_FAIL;
        SAY(finding->text, "%.200s %s", path,
            S_ISDIR(st.st_mode) ? "belongs to somebody else" : "is no folder");
        SAY(finding->lost, "the daemon does not start");
        SAY(finding->cure,
            S_ISDIR(st.st_mode) ? "chown -R %u '%.200s', or set another state_dir"
                                : "set another state_dir",
            geteuid(), path);
    }
}

void doctor_judge_clock(int64_t now, int64_t newest, int64_t suspended_s,
                        struct sandbox_finding *ret)
{
    char date[64] = "";
    struct tm tm;
    time_t seconds = (time_t)now;
    if (gmtime_r(&seconds, &tm))
        strftime(date, sizeof(date), "%Y-%m-%d %H:%M UTC", &tm);
    SAY(ret->text, "%s", date);
    if (suspended_s > 0)
        SAY(ret->text, "%s; this machine slept %lld s since it booted, which no time limit counts",
            date, (long long)suspended_s);
    if (now + CLOCK_SLACK_S >= newest)
        return;
    ret->level = FINDING_FAIL;
    SAY(ret->text, "it says %s, which is before Paddock or its CA was made", date);
    SAY(ret->lost, "certificates are not valid yet: sandboxes reach nothing");
    SAY(ret->cure, "set the clock: timedatectl set-ntp true, or date -s 'YYYY-MM-DD HH:MM'");
}

static int64_t clock_s(clockid_t clock)
{
    struct timespec now = {0};
    clock_gettime(clock, &now);
    return now.tv_sec;
}

void doctor_judge_ca(int64_t now, int64_t begin, int64_t end, const char *state_dir,
                     struct sandbox_finding *ret)
{
    char date[32] = "?";
    struct tm tm;
    time_t seconds = (time_t)end;
    if (gmtime_r(&seconds, &tm))
        strftime(date, sizeof(date), "%Y-%m-%d", &tm);
    SAY(ret->text, "the CA is valid until %s", date);
    if (now >= begin && now + (int64_t)CA_WARN_DAYS * DAY_S < end)
        return;
    ret->level = now < begin || now >= end ? FINDING_FAIL : FINDING_WARN;
    SAY(ret->lost, "%s",
        now < begin  ? "it is not valid yet: sandboxes reach nothing"
        : now >= end ? "it has ended: egress does not start, sandboxes reach nothing"
                     : "from then on sandboxes reach nothing");
    if (now < begin)
        SAY(ret->cure, "set the clock: timedatectl set-ntp true");
    else
        SAY(ret->cure,
            "stop the daemon, rm '%.120s/ca.key' '%.120s/ca.crt', start it: it makes a new CA, "
            "which "
            "sandboxes trust from their next start",
            state_dir, state_dir);
}

/* Two numbers that `paddock-egress --ca-dates` tells: the one who reads a certificate has no
 * privilege. */
static int read_ca_dates(const struct doctor *doctor, int crt_fd, int64_t *ret_begin,
                         int64_t *ret_end)
{
    int ends[2];
    char text[64] = "";
    if (pipe2(ends, O_CLOEXEC) < 0)
        return -errno;
    cleanup_fd int read_end = ends[0], write_end = ends[1];
    const char *const argv[] = {"paddock-egress", "--ca-dates", NULL};
    const int fds[] = {crt_fd, write_end};
    struct spawn spawn = {.path = doctor->paths->egress,
                          .argv = argv,
                          .id = NOBODY,
                          .is_user = !places_is_host_root(),
                          .fds = fds,
                          .fd_count = ARRAY_LEN(fds)};
    struct sandbox_process process;
    int result = spawn_start(&spawn, &process, NULL);
    if (result < 0)
        return result;
    close(TAKE_FD(write_end));
    struct pollfd wait = {.fd = read_end, .events = POLLIN};
    ssize_t len =
        poll(&wait, 1, CA_DATES_WAIT_MS) > 0 ? read(read_end, text, sizeof(text) - 1) : -1;
    process_end(process.pidfd);
    char *rest;
    *ret_begin = strtoll(text, &rest, 10);
    *ret_end = strtoll(rest, NULL, 10);
    return len > 0 && *ret_end > 0 ? 0 : -EIO;
}

static void look_at_ca(struct doctor *doctor, int64_t *ret_begin)
{
    struct stat st;
    cleanup_fd int crt = doctor->state_fd < 0 ? -1
                                              : openat(doctor->state_fd, "ca.crt",
                                                       O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (crt < 0 || fstat(crt, &st) < 0 || st.st_size == 0) {
        SAY(doctor_add(doctor, "ca", FINDING_OK)->text, "there is no CA yet; the daemon makes it");
        return;
    }
    int64_t end = 0;
    struct sandbox_finding *finding = doctor_add(doctor, "ca", FINDING_OK);
    if (read_ca_dates(doctor, crt, ret_begin, &end) == 0) {
        doctor_judge_ca(clock_s(CLOCK_REALTIME), *ret_begin, end, doctor->config->state_dir,
                        finding);
        return;
    }
    finding->level = FINDING_FAIL;
    SAY(finding->text, "%.200s/ca.crt holds no certificate", doctor->config->state_dir);
    SAY(finding->lost, "egress does not start: sandboxes reach nothing");
    SAY(finding->cure, "restore ca.key and ca.crt, or remove both to have a new CA made");
}

void doctor_state(struct doctor *doctor)
{
    int64_t ca_begin = 0;
    look_at_folder(doctor);
    look_at_place(doctor);
    look_at_ca(doctor, &ca_begin);
    int64_t program = clock_program_ms() / 1000;
    doctor_judge_clock(clock_s(CLOCK_REALTIME), ca_begin > program ? ca_begin : program,
                       clock_s(CLOCK_BOOTTIME) - clock_s(CLOCK_MONOTONIC),
                       doctor_add(doctor, "clock", FINDING_OK));
}
