/* What the jail's job `measure` says, as the JSON of GET /df. Pure; the bytes are taken as foreign.
 * Inside src/api only. */
#pragma once

#include <stddef.h>

#include "json/json.h"

/* Appends the JSON. Lines that make no sense are passed over. 0, or as json_writer_end. */
int usage_json(const char *data, size_t len, struct buf *ret);
