/* The table of verbs and options. Parsing and help come from here; nothing else lists them. */
#include "cli/cli.h"
#include "util/cleanup.h"

#define HAS(option) (1U << OPTION_##option)

const struct cli_option cli_options[OPTION_COUNT] = {
    [OPTION_HELP] = {"help", 'h', NULL, "print help and exit"},
    [OPTION_VERSION] = {"version", 0, NULL, "print the version and exit"},
    [OPTION_URL] = {"url", 0, "URL", "where the daemon listens: unix:PATH or http://HOST:PORT"},
    [OPTION_JSON] = {"json", 0, NULL, "print the daemon's JSON answer as it is"},
    [OPTION_DETACH] = {"detach", 'd', NULL, "start the task and do not follow it"},
    [OPTION_ROOT] = {"root", 0, NULL, "run as root of the sandbox, not as the agent"},
    [OPTION_CWD] = {"cwd", 0, "DIR", "working directory in the sandbox"},
    [OPTION_REF] = {"ref", 0, "REF", "branch or tag to clone"},
    [OPTION_FOLLOW] = {"follow", 'f', NULL, "go on until the task ends"},
    [OPTION_STDERR] = {"stderr", 0, NULL, "the agent's standard error"},
    [OPTION_EVENTS] = {"events", 0, NULL, "events in readable form, as `run` shows them"},
    [OPTION_AGAINST] = {"against", 0, "REV", "compare with index, head or a revision"},
    [OPTION_RENAMES] = {"renames", 0, NULL, "show renamed files as such"},
    [OPTION_REBUILD] = {"rebuild", 0, NULL, "build even when nothing changed"},
    [OPTION_PREFIX] = {"prefix", 0, "PREFIX", "only for sandboxes whose names begin so"},
    [OPTION_READ_ONLY] = {"read-only", 0, NULL, "may look, and change nothing"},
    [OPTION_EXPIRES] = {"expires", 0, "TIME", "ends after so long: 90s, 30m, 12h or 7d"},
    [OPTION_CONFIG] = {"config", 0, "FILE", "the daemon's configuration"},
    [OPTION_VAR] = {"var", 0, "NAME=VALUE", "set a variable (may be repeated)"},
};

const struct cli_verb cli_verbs[] = {
    {"clone", "NAME URL", "clone a repository into a sandbox (made if needed)",
     "The repository's changes since this clone are what `paddock diff` shows.", 2, 2, 0, HAS(REF),
     true, cmd_clone},
    {"run", "NAME PROMPT...", "start the agent on a prompt and follow it",
     "With \"-\" for PROMPT it is read from standard input. Ctrl-C stops following;\n"
     "the task goes on. The exit status tells how the task ended.",
     2, CLI_ARGS_ANY, 0, HAS(DETACH), true, cmd_run},
    {"status", "NAME", "tell how the task of a sandbox is doing", NULL, 1, 1, 0, HAS(JSON), true,
     cmd_status},
    {"log", "NAME", "print what the agent printed", NULL, 1, 1, 0,
     HAS(FOLLOW) | HAS(STDERR) | HAS(EVENTS), true, cmd_log},
    {"diff", "NAME", "print all changes since the clone", NULL, 1, 1, 0,
     HAS(AGAINST) | HAS(RENAMES), true, cmd_diff},
    {"apply", "NAME", "put the changes since the clone into your work tree",
     "Stand in a git work tree. Where the changes do not fit as they are, a three-way\n"
     "merge is tried; when that leaves conflicts, nothing is changed.",
     1, 1, 0, 0, true, cmd_apply},
    {"cancel", "NAME", "end the running task", NULL, 1, 1, 0, 0, true, cmd_cancel},
    {"exec", "NAME [--] PROGRAM [ARGUMENT...]", "run a program in a sandbox",
     "Its output is printed when it ends (the last 1 MiB of each stream). The exit\n"
     "status is the program's own, or 125 when it could not be run.",
     2, CLI_ARGS_ANY, 2, HAS(ROOT) | HAS(CWD) | HAS(JSON), true, cmd_exec},
    {"ls", "", "list the sandboxes", NULL, 0, 0, 0, HAS(JSON), false, cmd_ls},
    {"stop", "NAME", "stop a sandbox; its files are kept", NULL, 1, 1, 0, 0, true, cmd_stop},
    {"rm", "NAME...", "remove sandboxes and their files", NULL, 1, CLI_ARGS_ANY, 0, 0, true,
     cmd_rm},
    {"image build", "NAME", "build an agent's image, if its recipe changed", NULL, 1, 1, 0,
     HAS(REBUILD), true, cmd_image_build},
    {"image ls", "", "list the images", NULL, 0, 0, 0, HAS(JSON), false, cmd_image_ls},
    {"image rm", "NAME", "remove an image", NULL, 1, 1, 0, 0, true, cmd_image_rm},
    {"token create", "", "make a token for the daemon's TCP address, and print it",
     "It is shown this once; the daemon keeps its hash alone. Clients have it in\n"
     "PADDOCK_TOKEN. A prefix that ends in \"-\" cannot begin another one's names.",
     0, 0, 0, HAS(PREFIX) | HAS(READ_ONLY) | HAS(EXPIRES) | HAS(JSON), false, cmd_token_create},
    {"token ls", "", "list the tokens, without their texts", NULL, 0, 0, 0, HAS(JSON), false,
     cmd_token_ls},
    {"token rm", "ID", "remove a token", NULL, 1, 1, 0, 0, true, cmd_token_rm},
    {"policy check", "FILE", "check a policy and tell which rules are inactive",
     "Variables come from --var and from the configuration; secrets count as set\n"
     "when secrets_dir or the environment has them. They are not read.",
     1, 1, 0, HAS(CONFIG) | HAS(VAR), false, cmd_policy_check},
    {"doctor", "", "tell what this machine lacks, and the cure", NULL, 0, 0, 0,
     HAS(JSON) | HAS(CONFIG), false, cmd_doctor},
    {"help", "[VERB]", "print help", NULL, 0, 2, 0, 0, false, cmd_help},
    {"version", "", "print the version", NULL, 0, 0, 0, 0, false, cmd_version},
};
const size_t cli_verb_count = ARRAY_LEN(cli_verbs);
