/* Those who watch the audit, each the lines of one sandbox. Inside egress_audit alone. */
#pragma once

#include <stddef.h>
#include <sys/types.h>

#include "util/limits.h"

struct audit_watchers {
    struct audit_watcher {
        char sandbox[LIMIT_NAME_BYTES + 1];
        int fd;
        unsigned long lost; /* lines that did not fit */
    } list[LIMIT_AUDIT_WATCHERS];
    size_t count;
};

/* Takes the socket and sends the place. */
void audit_watchers_add(struct audit_watchers *watchers, const char *sandbox, int fd, ino_t inode,
                        off_t size);
void audit_watchers_forget(struct audit_watchers *watchers, const char *sandbox); /* NULL: all */
/* `line` is without its newline. Who is gone is forgotten. Never blocks. */
void audit_watchers_tell(struct audit_watchers *watchers, const char *sandbox, const char *line,
                         size_t len);
