/* What `paddock doctor` finds beside paddockd's own findings. */
#pragma once

#include "cli/cli.h"

#define CLI_FINDINGS_MAX 80

struct cli_finding {
    const char *name, *level; /* "ok", "warn" or "fail" */
    char text[400], lost[200], cure[400];
};

/* doctor_daemon.c: whether a daemon answers, and is the one whose configuration was judged, which
 * listens at `judged` (a URL; NULL: not known); and whether the gateway at that URL (NULL: not
 * known) answers a sandbox of it and takes the token: a sandbox is made for one GET and removed,
 * also when this program is interrupted. What egress wrote into the audit (its path; NULL: not
 * known) counts; when that cannot be read, nobody but a program of the image says it, and no "ok"
 * is given. Appends at most two findings. Blocks, a minute at most. */
void cli_doctor_daemon(const struct cli *cli, const char *judged, const char *gateway,
                       const char *audit, struct cli_finding *findings, size_t *count);

/* What came of the request. */
struct cli_asked {
    int64_t status;   /* 0: no answer */
    char reason[200]; /* why egress did not ask; "": it did */
};

/* doctor_audit.c: the lines of the audit from now on. */
struct cli_audit {
    const char *path;
    int fd;        /* -1: it cannot be read */
    bool may_come; /* it is not there yet */
    int64_t offset;
};
void cli_audit_open(const char *path, struct cli_audit *ret);
void cli_audit_close(struct cli_audit *audit);
/* The first line of the sandbox about the gateway's host. False: there is none. Pure. */
bool cli_audit_find(const char *data, size_t len, const char *sandbox, const char *gateway,
                    struct cli_asked *ret);
/* As it is written: waits for it, three seconds at most. */
bool cli_audit_wait(struct cli_audit *audit, const char *sandbox, const char *gateway,
                    struct cli_asked *ret);
