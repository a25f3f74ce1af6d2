/* `paddockd --doctor`: what this host and this configuration can do, what is lost, what cures it.
 */
#pragma once

#include <stdbool.h>

#include "supervisor/config.h"
#include "supervisor/paths.h"
#include "supervisor/secrets.h"

/* Prints the findings to standard output, as JSON ({"ok","findings":[{"name","level","text",
 * "lost","cure"}],"gateway","audit","url"}) or as text. True when none is a failure. */
bool doctor_run(const struct config *config, const struct paths *paths,
                const struct secrets *secrets, bool as_json);
