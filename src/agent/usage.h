/* The JSON of what was used of models. Supervisor and api. */
#pragma once

#include "task/usage.h"
#include "json/json.h"

/* {"requests","errors","unread","input_tokens","output_tokens","cache_read_tokens",
 * "cache_creation_tokens","model"} under the key; nothing when no request was made. */
void model_usage_write(struct json_writer *writer, const char *key,
                       const struct model_usage *usage);
/* What is not there, or is no number that can be, is 0. */
void model_usage_read(const struct json *json, struct model_usage *ret);
