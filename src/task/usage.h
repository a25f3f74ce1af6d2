/* What was used of models: of a sandbox, of its last task, or since the last message. */
#pragma once

#include <stdint.h>

#define MODEL_NAME_BYTES 63

struct model_usage {
    int64_t requests; /* that were sent */
    int64_t errors;   /* of them: answered by a status of 400 or more */
    int64_t unread;   /* of them: answered by what could not be read for its tokens */
    int64_t input_tokens, output_tokens;
    int64_t cache_read_tokens, cache_creation_tokens; /* not among input_tokens */
    char model[MODEL_NAME_BYTES + 1];                 /* of the last answer that told one */
};

static inline void model_usage_add(struct model_usage *to, const struct model_usage *more)
{
    to->requests += more->requests;
    to->errors += more->errors;
    to->unread += more->unread;
    to->input_tokens += more->input_tokens;
    to->output_tokens += more->output_tokens;
    to->cache_read_tokens += more->cache_read_tokens;
    to->cache_creation_tokens += more->cache_creation_tokens;
    for (unsigned i = 0; more->model[0] && i < sizeof(to->model); i++)
        to->model[i] = more->model[i];
}
