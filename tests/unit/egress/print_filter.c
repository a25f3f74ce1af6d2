/* Prints the seccomp filter of egress, for the test that starts the real binary with it. Compiles
 * the others too: so a machine of another kind is asked whether it can (tests/slow). */
#include <stdio.h>
#include <unistd.h>

#include "sandbox/profile.h"
#include "util/fd.h"

int main(void)
{
    cleanup_buf struct buf filter = BUF_INIT(SECCOMP_FILTER_MAX);
    struct err err = {0};
    for (int profile = 0; profile < SECCOMP_PROFILES; profile++) {
        cleanup_buf struct buf any = BUF_INIT(SECCOMP_FILTER_MAX);
        struct buf *ret = profile == SECCOMP_EGRESS ? &filter : &any;
        if (profile_compile((enum seccomp_profile)profile, ret, &err) < 0) {
            fprintf(stderr, "%s\n", err.message);
            return 1;
        }
    }
    return fd_write_all(STDOUT_FILENO, filter.data, filter.len) < 0;
}
