/*
 * What init is to run: argv, additional environment, working directory, encoded in a sealed memfd.
 * Written by the supervisor (tasks, from agent.json) or by api (exec, clone); read by init, which
 * treats it as foreign. Pure functions: bytes and length in, struct out; a fuzz target reads them.
 *
 * Format: struct spec_header, then the strings, each with its NUL: cwd, argv[argc], env[envc].
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "util/buf.h"
#include "util/err.h"
#include "util/limits.h"

#define SPEC_NO_PROMPT UINT32_MAX

struct spec_header {
    char magic[4]; /* "PSP1" */
    uint32_t argc;
    uint32_t envc;
    uint32_t prompt; /* index of the argument that is replaced by the prompt, or SPEC_NO_PROMPT */
};

/* Points into the encoded bytes, which must outlive it. argv and envp end with NULL. */
struct spec {
    const char *cwd;
    uint32_t argc;
    uint32_t envc;
    uint32_t prompt;
    const char *argv[LIMIT_SPEC_STRINGS + 1];
    const char *envp[LIMIT_SPEC_STRINGS + 1]; /* NAME=VALUE, added to the base environment */
};

/* Encodes. Errors: -EMSGSIZE over LIMIT_SPEC_BYTES or LIMIT_SPEC_STRINGS, -EINVAL (no argument,
 * empty argv[0], relative cwd, an environment string without a name and "="). */
int spec_encode(const struct spec *spec, struct buf *ret, struct err *err);

/* Decodes and checks the same rules. Errors: -EINVAL. Allocates nothing. */
int spec_decode(const char *data, size_t len, struct spec *ret, struct err *err);
