/* Dispatch and arguments of the jobs; see jail.h. Process: paddock-jail. */
#include <fcntl.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "image/import.h"
#include "jail/jail.h"
#include "repo/diff.h"
#include "util/cleanup.h"
#include "util/fd.h"
#include "util/limits.h"
#include "util/tree.h"

#define REPOSITORY "/in/workspace/repo"
#define BASE_GIT "/in/base.git"
#define OUT "/out"
/* Of the job import. */
#define IMPORT_IN_FD 3
#define IMPORT_REPORT_FD 4
/* Of the job weigh. */
#define WEIGH_REPORT_FD 3

static const char *const against_names[] = {
    [REPO_SINCE_CLONE] = "clone",
    [REPO_INDEX] = "index",
    [REPO_HEAD] = "head",
    [REPO_REVISION] = "revision",
};

static int parse_diff(int argc, const char *const *argv, struct repo_diff_options *ret,
                      struct err *err)
{
    size_t against = 0;
    if (argc < 3 || argc > 4)
        return err_set(err, EINVAL, "usage: diff AGAINST RENAMES BINARY [REVISION]");
    while (against < ARRAY_LEN(against_names) && strcmp(argv[0], against_names[against]) != 0)
        against++;
    if (against == ARRAY_LEN(against_names))
        return err_set(err, EINVAL, "diff: AGAINST is clone, index, head or revision");
    for (int i = 1; i < 3; i++)
        if (strcmp(argv[i], "0") != 0 && strcmp(argv[i], "1") != 0)
            return err_set(err, EINVAL, "diff: RENAMES and BINARY are 0 or 1");
    if ((against == REPO_REVISION) != (argc == 4))
        return err_set(err, EINVAL, "diff: a REVISION belongs to revision, and to nothing else");
    if (argc == 4 && (argv[3][0] == '\0' || strlen(argv[3]) > LIMIT_REVISION_BYTES))
        return err_set(err, EINVAL, "diff: REVISION is empty or too long");
    *ret = (struct repo_diff_options){
        .workspace = REPOSITORY,
        .base_git = BASE_GIT,
        .against = (enum repo_against)against,
        .revision = argc == 4 ? argv[3] : NULL,
        .renames = argv[1][0] == '1',
        .binary = argv[2][0] == '1',
    };
    return 0;
}

static int job_diff(int argc, const char *const *argv, struct err *err)
{
    struct repo_diff_options options;
    int r = parse_diff(argc, argv, &options, err);
    if (r < 0)
        return r;
    if (access(BASE_GIT, F_OK) < 0)
        options.base_git = NULL;
    return repo_diff(&options, STDOUT_FILENO, err);
}

static int job_base(int argc, const char *const *argv, struct err *err)
{
    (void)argv;
    return argc == 0 ? repo_save_base(REPOSITORY, OUT, err)
                     : err_set(err, EINVAL, "base takes no arguments");
}

/* All of them are tried; the first that is left is told. */
static int job_remove(int argc, const char *const *argv, struct err *err)
{
    for (int i = 0; i < argc; i++)
        if (!argv[i][0] || strchr(argv[i], '/') || argv[i][0] == '.')
            return err_set(err, EINVAL, "usage: remove NAME...");
    cleanup_fd int out = open(OUT, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    int result = out < 0 ? err_errno(err, errno, "cannot open " OUT) : 0;
    if (result < 0)
        return result;
    for (int i = 0; i < argc; i++) {
        int one = tree_remove(out, argv[i], result < 0 ? NULL : err);
        result = result < 0 ? result : one;
    }
    return result;
}

static int job_import(int argc, const char *const *argv, struct err *err)
{
    struct import_job job = {.in_fd = IMPORT_IN_FD};
    cleanup_free struct image_report *report = calloc(1, sizeof(*report));
    if (argc != 1 || !argv[0][0] || strspn(argv[0], "0123456789") != strlen(argv[0]))
        return err_set(err, EINVAL, "usage: import FLOOR_BYTES");
    job.floor_bytes = strtoll(argv[0], NULL, 10);
    cleanup_fd int out = open(OUT, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (!report || out < 0)
        return err_errno(err, errno, "cannot open " OUT);
    job.out_fd = out;
    int result = import_is_squashed(&job.is_squashed, err);
    if (result == 0)
        result = import_run(&job, report, err);
    if (result < 0)
        return result;
    result = fd_write_all(IMPORT_REPORT_FD, report, sizeof(*report));
    return result < 0 ? err_errno(err, -result, "cannot report") : 0;
}

static int job_measure(int argc, const char *const *argv, struct err *err)
{
    (void)argv;
    return argc == 0 ? jail_measure("/in/sandboxes", "/in/trash", "/in/images", err)
                     : err_set(err, EINVAL, "measure takes no arguments");
}

static int job_weigh(int argc, const char *const *argv, struct err *err)
{
    struct jail_weight weight;
    (void)argv;
    if (argc != 0)
        return err_set(err, EINVAL, "weigh takes no arguments");
    int result = jail_weigh("/in/workspace", "/in/overlay", &weight, err);
    if (result < 0)
        return result;
    result = fd_write_all(WEIGH_REPORT_FD, &weight, sizeof(weight));
    return result < 0 ? err_errno(err, -result, "cannot report") : 0;
}

static const struct {
    const char *name;
    int (*run)(int argc, const char *const *argv, struct err *err);
} jobs[] = {
#define JAIL_JOB(name, memory_mib, cpu_seconds, wall_seconds) {#name, job_##name},
#include "jail/jobs.def"
#undef JAIL_JOB
};

enum jail_exit jail_exit_of(int result)
{
    switch (-result) {
    case ENOSPC:
    case EDQUOT:
        return JAIL_EXIT_FULL;
    case ENOMEM:
    case EIO:
        return JAIL_EXIT_FAILED;
    default:
        return JAIL_EXIT_REFUSED;
    }
}

int jail_run(int argc, const char *const *argv, struct err *err)
{
    for (size_t i = 0; argc >= 2 && i < ARRAY_LEN(jobs); i++)
        if (strcmp(argv[1], jobs[i].name) == 0)
            return jobs[i].run(argc - 2, argv + 2, err);
    return err_set(err, EINVAL, "%s: no such job", argc >= 2 ? argv[1] : "paddock-jail");
}
