/*
 * Secrets: where egress's SECRET_GET finds them. secrets_dir/NAME, then $CREDENTIALS_DIRECTORY/NAME
 * (systemd.exec(5)), then the environment that paddockd was started with, which is wiped at start.
 * A file's content is never read here: its descriptor is passed on.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "util/err.h"

struct secrets;

/* Takes every variable out of `environment` (environ(7)): the strings are wiped where they lie, so
 * that /proc/PID/environ shows nothing. Call first of all in main. NULL: no memory. */
struct secrets *secrets_take(char **environment);
void secrets_free(struct secrets *secrets); /* wipes */

/* A variable of that environment, for settings that are no secret; NULL when not set. */
const char *secrets_variable(const char *name);

/* The folder of the configuration; opened at each look-up, so that a reload sees what is new. */
int secrets_open(const struct secrets *secrets, const char *secrets_dir, const char *name,
                 struct err *err);

/* ^[A-Za-z0-9_][A-Za-z0-9_.-]*$, at most 127 characters. */
bool secret_name_is_valid(const char *name);
