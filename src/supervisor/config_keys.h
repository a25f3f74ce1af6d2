/*
 * The table of the configuration's keys (config_keys.c). From it come parsing, --help, the man page
 * paddock.json(5) and the table in docs/operations.md; no key is listed anywhere else. The
 * generator of the man pages (src/manual) compiles it alone.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "supervisor/config.h"

#define CONFIG_KEYS_MAX 64

enum key_type {
    KEY_PATH,
    KEY_PROXY,
    KEY_NAME,
    KEY_FORMAT,
    KEY_INTEGER,
    KEY_THOUSANDTHS,
    KEY_LISTEN,
    KEY_VARS,
    KEY_PREFIXES,
    KEY_SIZES
};

struct config_key {
    const char *name; /* "key" or "group.key" */
    enum key_type type;
    size_t offset;
    int64_t min, max;     /* of a number, in the file's unit */
    const char *text;     /* default of a path, text or name; "@/" stands for the data folder */
    int64_t number;       /* default of a number, in the struct's unit */
    const char *describe; /* one line for --help */
    const char *details;  /* more for the manual and docs/operations.md, in Markdown; or NULL */
};

extern const struct config_key config_keys[];
extern const size_t config_key_count; /* CONFIG_KEYS_MAX at most */
