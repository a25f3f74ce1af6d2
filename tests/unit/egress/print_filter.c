/* Prints the seccomp filter of egress, for the test that starts the real binary with it. */
#include <stdio.h>
#include <unistd.h>

#include "sandbox/profile.h"
#include "util/fd.h"

int main(void)
{
    cleanup_buf struct buf filter = BUF_INIT(SECCOMP_FILTER_MAX);
    struct err err = {0};
    if (profile_compile(SECCOMP_EGRESS, &filter, &err) < 0) {
        fprintf(stderr, "%s\n", err.message);
        return 1;
    }
    return fd_write_all(STDOUT_FILENO, filter.data, filter.len) < 0;
}
