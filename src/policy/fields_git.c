/* The keys of a rule's "git", one reader each. Pure. */
#include <string.h>

#include "policy/internal.h"
#include "util/cleanup.h"

static int check_repository(struct policy_parser *parser, const struct json *value, char *text)
{
    if (policy_git_pattern_is_valid(text))
        return 0;
    return policy_refuse(parser, value,
                         "\"%s\" is not OWNER/REPOSITORY (\"*\" may stand in either), as in "
                         "\"acme/*\", nor \"@cloned\"",
                         text);
}

static int check_ref(struct policy_parser *parser, const struct json *value, char *text)
{
    if (strncmp(text, "refs/", 5) == 0)
        return policy_refuse(parser, value, "\"%.100s\": leave \"refs/...\" out, as in \"agent/*\"",
                             text);
    if (!policy_ref_name_is_valid(text, strlen(text)))
        return policy_refuse(parser, value,
                             "\"%.100s\" can be no name of a branch or tag (git-check-ref-format)",
                             text);
    return 0;
}

static int read_fetch(struct policy_parser *parser, struct policy_rule *rule,
                      const struct json *value)
{
    (void)parser;
    rule->git.fetch = json_bool(value);
    return 0;
}

static int read_push(struct policy_parser *parser, struct policy_rule *rule,
                     const struct json *value)
{
    (void)parser;
    rule->git.push = json_bool(value);
    return 0;
}

static int read_lfs(struct policy_parser *parser, struct policy_rule *rule,
                    const struct json *value)
{
    (void)parser;
    rule->git.lfs = json_bool(value);
    return 0;
}

static int read_delete(struct policy_parser *parser, struct policy_rule *rule,
                       const struct json *value)
{
    (void)parser;
    rule->git.deletes = json_bool(value);
    return 0;
}

static int read_repositories(struct policy_parser *parser, struct policy_rule *rule,
                             const struct json *value)
{
    return policy_read_strings(parser, value, check_repository, &rule->git.repositories);
}

static int read_branches(struct policy_parser *parser, struct policy_rule *rule,
                         const struct json *value)
{
    rule->git.binds_refs = true;
    return policy_read_strings(parser, value, check_ref, &rule->git.branches);
}

static int read_tags(struct policy_parser *parser, struct policy_rule *rule,
                     const struct json *value)
{
    rule->git.binds_refs = true;
    return policy_read_strings(parser, value, check_ref, &rule->git.tags);
}

int policy_read_git(struct policy_parser *parser, struct policy_rule *rule,
                    const struct json *value)
{
    static const struct policy_key keys[] = {
        {"fetch", JSON_BOOL, read_fetch},
        {"push", JSON_BOOL, read_push},
        {"lfs", JSON_BOOL, read_lfs},
        {"repositories", JSON_ARRAY, read_repositories},
        {"branches", JSON_ARRAY, read_branches},
        {"tags", JSON_ARRAY, read_tags},
        {"delete", JSON_BOOL, read_delete},
    };
    rule->has_git = true;
    return policy_read_object(parser, value, keys, ARRAY_LEN(keys), rule);
}

int policy_check_git(struct policy_parser *parser, const struct policy_rule *rule,
                     const struct json *json)
{
    const struct json *git = json_get(json, "git");
    if (rule->has_git && (json_get(json, "path") || json_get(json, "methods")))
        return policy_refuse(parser, git,
                             "\"git\" decides paths and methods itself: leave \"path\" and "
                             "\"methods\" out");
    if (rule->git.binds_refs && !rule->git.push)
        return policy_refuse(
            parser, json_get(git, json_get(git, "branches") ? "branches" : "tags"),
            "\"branches\" and \"tags\" say what a push may change: \"push\": true is needed");
    if (json_get(git, "delete") && !rule->git.binds_refs)
        return policy_refuse(parser, json_get(git, "delete"),
                             "\"delete\" is for a rule with \"branches\" or \"tags\"; without them "
                             "a push may delete any ref");
    if (rule->plain_http && rule->git.push)
        return policy_refuse(parser, json_get(git, "push"), "a push never goes over plain HTTP");
    return 0;
}
