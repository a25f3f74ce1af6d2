/*
 * The tables of the command line (verbs.c): verbs, options, exit statuses, environment. Parsing,
 * --help, the man page, docs/cli.md, completion and the suggestions for mistyped words come from
 * them; nothing else lists a verb or an option. The generator of the man pages (src/manual)
 * compiles them alone, so they include nothing but the C library.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Exit statuses; cli_statuses says them to people. */
enum cli_exit {
    CLI_OK = 0,
    CLI_FAILED = 1,        /* the task failed, or what was asked could not be done */
    CLI_USAGE = 2,         /* the command line is wrong; nothing was asked of the daemon */
    CLI_LOST = 3,          /* run: the task's end is not known */
    CLI_UNREACHABLE = 4,   /* no daemon, or no permission to talk to it */
    CLI_EXEC_FAILED = 125, /* exec: the program was not run; else its own status */
    CLI_INTERRUPTED = 130, /* run, log, egress: Ctrl-C; the task goes on */
};

enum cli_option_id {
    OPTION_HELP,
    OPTION_VERSION,
    OPTION_URL,
    OPTION_JSON,
    OPTION_DETACH,
    OPTION_ROOT,
    OPTION_CWD,
    OPTION_REF,
    OPTION_FOLLOW,
    OPTION_STDERR,
    OPTION_EVENTS,
    OPTION_AGAINST,
    OPTION_RENAMES,
    OPTION_BINARY,
    OPTION_REBUILD,
    OPTION_PREFIX,
    OPTION_READ_ONLY,
    OPTION_EXPIRES,
    OPTION_CONFIG,
    OPTION_VAR,
    OPTION_AGENT,
    OPTION_POLICY,
    OPTION_MEMORY,
    OPTION_CPUS,
    OPTION_PIDS,
    OPTION_DISK,
    OPTION_INODES,
    OPTION_ENV,
    OPTION_LABEL,
    OPTION_STATE,
    OPTION_ALL,
    OPTION_YES,
    OPTION_DRY_RUN,
    OPTION_OLDER,
    OPTION_LIMIT,
    OPTION_HEADER,
    OPTION_CLONED,
    OPTION_BUDGET_OUTPUT_TOKENS,
    OPTION_BUDGET_REQUESTS,
    OPTION_TIMEOUT,
    OPTION_SIZE,
    OPTION_TTY,
    OPTION_COUNT
};

/* What a word names. Names are checked before anything is asked; completion offers what there is;
 * and what is not there is told with the near name that is. */
enum cli_kind {
    CLI_KIND_TEXT, /* anything: not checked, nothing to offer */
    CLI_KIND_SANDBOX,
    CLI_KIND_IMAGE,
    CLI_KIND_RECIPE, /* the name of a recipe: as a name, and images are offered */
    CLI_KIND_TOKEN,
    CLI_KIND_AGENT,
    CLI_KIND_POLICY,
    CLI_KIND_VERB,
    CLI_KIND_FILE, /* a path on this machine */
};

struct cli_option {
    const char *name;   /* long, without dashes */
    const char *value;  /* what it takes, for --help; NULL: it is a flag */
    const char *help;   /* 55 characters at most */
    const char *words;  /* what its value can be, or often is, separated by blanks; or NULL */
    const char *also;   /* a spelling that other tools have taught, understood and not told */
    enum cli_kind kind; /* of its value */
    char letter;        /* 0: none */
    bool is_global;     /* every verb has it */
    bool is_repeated;   /* may be given more than once: read it with cli_next_value */
    bool is_choice;     /* its value is one of `words` and nothing else */
};

#define CLI_ARGS_ANY UINT32_MAX

struct cli;
struct err;

struct cli_verb {
    const char *name;      /* of one word, or "image build" */
    const char *arguments; /* for --help: "NAME URL" */
    const char *summary;   /* one line of help: lower case, no full stop, 60 characters at most */
    const char *details;   /* more lines for its --help, 79 columns at most, or NULL */
    uint32_t min_args;
    uint32_t max_args;
    uint32_t literal_after; /* this many arguments in, the rest is not read for options; 0: never */
    uint64_t options;       /* bit 1 << enum cli_option_id; the global ones always */
    enum cli_kind kind;     /* of the first argument; of all with NAME... */
    bool is_hidden;         /* not told in help: for programs, such as a shell's completion */
    /* Returns the exit status; a message left in err is printed. */
    enum cli_exit (*run)(struct cli *cli, struct err *err);
};

struct cli_status {
    enum cli_exit status;
    const char *text;
};

struct cli_variable { /* of the environment */
    const char *name;
    const char *text;
};

extern const struct cli_option cli_options[OPTION_COUNT];
extern const struct cli_verb cli_verbs[];
extern const size_t cli_verb_count;
extern const struct cli_status cli_statuses[];
extern const size_t cli_status_count;
extern const struct cli_variable cli_variables[];
extern const size_t cli_variable_count;

/* Whether the verb takes the option; NULL: whether any could. */
static inline bool cli_verb_takes(const struct cli_verb *verb, enum cli_option_id id)
{
    return !verb || cli_options[id].is_global || (verb->options & UINT64_C(1) << id) != 0;
}
