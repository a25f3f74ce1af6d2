/*
 * The configuration of paddockd: one JSON file with comments, every key with a default, all from
 * one table (config.c). Read once, before anything else. Supervisor only.
 */
#pragma once

#include <stdint.h>
#include <stdio.h>

#include "util/err.h"
#include "util/limits.h"
#include "util/places.h"

struct config_var {
    char *name;
    char *value;
};

/* A named set of limits; 0: that of "limits". */
struct config_size {
    char name[LIMIT_NAME_BYTES + 1];
    int64_t memory_mib, cpu_millis, pids, disk_mib, inodes;
};

struct config {
    char *state_dir;
    char *listen[LIMIT_LISTEN_SOCKETS]; /* "unix:/PATH" or "tcp:127.0.0.1:PORT" */
    size_t listen_count;
    char *policy; /* the file; its folder holds what it refers to */
    char *secrets_dir;
    char *recipes_dir;
    char *upstream_proxy; /* "" none */
    char *default_agent;
    char *log_format; /* "text" or "json" */
    int64_t ids_base, ids_count;
    int64_t egress_processes;
    int64_t egress_idle_ms;
    int64_t audit_max_bytes, audit_keep;
    int64_t max_running; /* 0: as many as there are ids */
    int64_t memory_mib;  /* 0: no limit; so are the next two */
    int64_t cpu_millis;
    int64_t pids;
    int64_t open_files;       /* of a process */
    int64_t disk_mib, inodes; /* of a sandbox's files; 0: no limit */
    int64_t log_mib;          /* of each log of a task */
    int64_t deadline_ms;      /* of a task that names none; 0: none */
    int64_t floor_disk_mib, floor_disk_files, floor_memory_mib; /* 0: no floor */
    int64_t inactivity_ms;
    int64_t stopped_ttl_ms; /* 0: never */
    int64_t task_check_ms;
    int64_t disk_check_ms;
    struct config_var vars[LIMIT_CONFIG_VARS];
    size_t var_count;
    struct config_var prefixes[LIMIT_POLICY_PREFIXES]; /* of sandboxes' names; their policies */
    size_t prefix_count;
    struct config_size sizes[LIMIT_SIZES];
    size_t size_count;
};

/* Fills *ret from the text, every absent key from its default. `file` names it in errors
 * ("FILE:LINE:COLUMN: reason"), `data_dir` is the folder that holds policy/ and images/, `places`
 * are the other defaults of paths (NULL: the machine's). Pure: no I/O. -EINVAL; then *ret is freed
 * already. The caller frees with config_free. */
int config_parse(const char *file, const char *text, size_t len, const char *data_dir,
                 const struct places *places, struct config *ret, struct err *err);

/* As config_parse, from the file; NULL: the defaults alone. */
int config_load(const char *file, const char *data_dir, const struct places *places,
                struct config *ret, struct err *err);
void config_free(struct config *config);

/* The gateway's and the model's variables that "vars" does not have: from the environment, else
 * their defaults. -ENOMEM, -EMSGSIZE. */
int config_add_environment(struct config *config, const char *(*lookup)(const char *name));
const char *config_var(const struct config *config, const char *name); /* or NULL */
/* The policy of "policy_prefixes" for a sandbox of this name: of the longest prefix; NULL: none. */
const char *config_prefix_policy(const struct config *config, const char *sandbox);

/* The size of that name, or NULL. */
const struct config_size *config_size(const struct config *config, const char *name);

/* The table of keys with defaults, for --help. */
void config_print_keys(FILE *out);
