/* Measuring the state; see jail.h. Process: paddock-jail. The walk over what agents wrote is that
 * of the host's du(1), which bounds its descriptors however wide and deep a tree is and counts a
 * file of several names once; the jail bounds its memory. */
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "jail/jail.h"

#define DU "/usr/bin/du"

int jail_measure(const char *sandboxes, const char *trash, const char *images, struct err *err)
{
    struct statvfs fs;
    if (statvfs(sandboxes, &fs) < 0)
        return err_errno(err, errno, "cannot look at the disk");
    printf("disk %" PRIu64 " %" PRIu64 "\n", (uint64_t)fs.f_blocks * fs.f_frsize,
           (uint64_t)fs.f_bavail * fs.f_frsize);
    fflush(stdout);
    /* what goes away meanwhile is no error */
    if (!freopen("/dev/null", "w", stderr))
        return err_errno(err, errno, "cannot open /dev/null");
    bool has_images = access(images, F_OK) == 0;
    execl(DU, "du", "-x", "-d2", "--block-size=1", "--", sandboxes, trash,
          has_images ? images : (char *)NULL, (char *)NULL);
    return err_errno(err, errno, "cannot run " DU);
}
