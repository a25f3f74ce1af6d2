/* What a doctor found, as JSON: one form for `paddockd --doctor --json` and `paddock doctor
 * --json`.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "json/json.h"

struct json_finding {
    const char *name, *level; /* "ok", "warn" or "fail" */
    const char *text, *lost, *cure;
};

/* Writes the members "ok" and "findings" of the object that is open. */
void json_write_findings(struct json_writer *writer, bool is_good,
                         const struct json_finding *findings, size_t count);
