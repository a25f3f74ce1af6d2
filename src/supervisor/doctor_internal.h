/* The doctor's parts; for src/supervisor/doctor*.c and their tests only. */
#pragma once

#include <stdint.h>
#include <stdio.h>

#include "sandbox/host.h"
#include "supervisor/doctor.h"

#define DOCTOR_MAX 64
#define SAY(field, ...) snprintf((field), sizeof(field), __VA_ARGS__)

struct doctor {
    const struct config *config;
    const struct paths *paths;
    const struct secrets *secrets;
    int state_fd;      /* -1: there is no state yet, or it is not for us to see */
    char gateway[512]; /* where the default agent asks its model; "": not known */
    int place_fd;      /* the state, or the nearest folder above it that is there */
    struct sandbox_finding findings[DOCTOR_MAX];
    size_t count;
};

/* Adds a finding; the caller fills in texts. */
struct sandbox_finding *doctor_add(struct doctor *doctor, const char *name,
                                   enum finding_level level);

/* doctor_state.c: the folder, its file system, free space, clocks, the CA. */
void doctor_state(struct doctor *doctor);

/* What statfs(2) tells of the state folder's place. */
struct doctor_place {
    uint64_t type; /* f_type */
    bool is_read_only, is_noexec;
    uint64_t free_mib;
    uint64_t free_files;
    bool counts_files;              /* the file system has a fixed number of them */
    int64_t floor_mib, floor_files; /* of the configuration */
};
/* Level, text, lost and cure. Pure. */
void doctor_judge_place(const struct doctor_place *place, struct sandbox_finding *ret);

/* All in Unix seconds; `newest` is the date of something that was made before now for sure, 0:
 * none. Pure. */
void doctor_judge_clock(int64_t now, int64_t newest, int64_t suspended_s,
                        struct sandbox_finding *ret);
void doctor_judge_ca(int64_t now, int64_t begin, int64_t end, const char *state_dir,
                     struct sandbox_finding *ret);
