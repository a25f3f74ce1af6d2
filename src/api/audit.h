/* Reading the audit: the lines of one sandbox, the newest of them, from its files. Blocks on the
 * disk: for a thread of the pool. Inside src/api only. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "ipc/messages.h"
#include "util/buf.h"

struct audit_query {
    char name[MSG_NAME]; /* of the sandbox */
    int64_t created_ms;  /* lines of another one of this name are older */
    size_t limit;
    /* With is_bounded: nothing behind this place, which is told by egress. */
    bool is_bounded;
    uint64_t inode;
    int64_t size;
};

/* Calls back with each line, oldest first, without its newline; each is JSON. At most `limit`, and
 * LIMIT_AUDIT_ANSWER_BYTES in all. `fds`: the newest file first. 0 or -ENOMEM, or what `found`
 * returned. */
int audit_lines(const struct audit_query *query, const int *fds, size_t fd_count,
                int (*found)(void *ctx, const char *line, size_t len), void *ctx);
