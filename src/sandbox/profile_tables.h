/* The tables of the seccomp profiles: names of system calls, and why some are refused. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

/* Every call a sandbox may make: the allow-list that Docker ships (for a container without
 * capabilities), minus what profile_refused names. A name that this libseccomp does not know is
 * passed over. Ends with NULL. */
extern const char *const profile_allowed[];

/* Refused by name with EPERM, as a program expects of a container. Ends with a NULL name. */
struct profile_refusal {
    const char *name;
    const char *reason;
};
extern const struct profile_refusal profile_refused[];

/* Refused to api, egress and jobs of the jail on top of that. */
extern const struct profile_refusal profile_refused_daemon[];
