/* What `paddock doctor` finds beside paddockd's own findings. */
#pragma once

#include "cli/cli.h"

#define CLI_FINDINGS_MAX 80

struct cli_finding {
    const char *name, *level; /* "ok", "warn" or "fail" */
    char text[400], lost[200], cure[400];
};

/* doctor_daemon.c: whether a daemon answers, and whether the gateway at that URL (NULL: not known)
 * answers a sandbox of it and takes the token: a sandbox is made for one GET and removed. Appends
 * at most two findings. Blocks, a minute at most. */
void cli_doctor_daemon(const struct cli *cli, const char *gateway, struct cli_finding *findings,
                       size_t *count);
