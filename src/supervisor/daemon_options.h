/* The command line of paddockd, for its --help and for paddockd(8). Includes nothing, so that the
 * generator of the manual can compile it alone. */
#pragma once

#include <stddef.h>

#define DAEMON_DEFAULT_CONFIG "/etc/paddock/paddock.json"

struct daemon_option {
    const char *name; /* with its value: "--config FILE" */
    const char *help;
};

static const struct daemon_option daemon_options[] = {
    {"--config FILE", "the configuration; else " DAEMON_DEFAULT_CONFIG ", for a user's daemon "
                      "~/.config/paddock/paddock.json, when it is there"},
    {"--doctor", "tell what this machine and this configuration can do, and end"},
    {"--json", "with --doctor: as JSON"},
    {"--help", "print help, with every key of the configuration, and end"},
    {"--version", "print the version and end"},
};

/* What a signal does. */
static const struct daemon_option daemon_signals[] = {
    {"SIGHUP", "reads policy and secrets again; a bad policy is refused, the one in force stays"},
    {"SIGTERM", "ends the daemon; sandboxes and their tasks go on"},
};
