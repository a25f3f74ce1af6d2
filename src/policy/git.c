/*
 * Git over smart HTTP (git's Documentation/gitprotocol-http): which of its requests a rule with
 * `git` allows. Everything else at that host is refused, with a text that git shows as "remote:".
 * Owner and repository are compared as they are written: to take "Acme" for "acme" could open
 * another owner's repository on a server that tells them apart.
 */
#include <stdio.h>
#include <string.h>

#include "policy/internal.h"

struct git_path {
    char owner[128];
    char repository[128];
    const char *rest; /* behind "/OWNER/REPO(.git)/" */
};

static bool is_name_char(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '_' || c == '.';
}

/* Copies a name up to the next "/", without its suffix ".git" when `is_repository`; moves *at
 * behind the "/". */
static bool name_take(const char **at, bool is_repository, char ret[128])
{
    const char *slash = strchr(*at, '/');
    size_t len = slash ? (size_t)(slash - *at) : 0;
    const char *name = *at;
    if (is_repository && len > 4 && strncmp(name + len - 4, ".git", 4) == 0)
        len -= 4;
    bool is_special =
        len == 1 || (len == 2 && name[1] == '.') || (len == 4 && strncmp(name, ".git", 4) == 0);
    bool is_hidden = name[0] == '.' && (!is_repository || is_special);
    if (len == 0 || len >= 128 || is_hidden)
        return false;
    for (size_t i = 0; i < len; i++)
        if (!is_name_char(name[i]))
            return false;
    memcpy(ret, name, len);
    ret[len] = '\0';
    *at = slash + 1;
    return true;
}

static bool git_path_read(const char *path, struct git_path *ret)
{
    const char *at = path + (path[0] == '/');
    if (!name_take(&at, false, ret->owner) || !name_take(&at, true, ret->repository))
        return false;
    ret->rest = at;
    return true;
}

/* Linear in space; the time grows at worst with the product of the two lengths. */
bool policy_glob_matches(const char *pattern, size_t pattern_len, const char *text, size_t len)
{
    const char *end = pattern + pattern_len;
    const char *text_end = text + len;
    const char *star = NULL;
    const char *star_text = NULL;
    while (text < text_end) {
        if (pattern < end && *pattern == '*') {
            star = pattern++;
            star_text = text;
        } else if (pattern < end && *pattern == *text) {
            pattern++;
            text++;
        } else if (star) {
            pattern = star + 1;
            text = ++star_text;
        } else {
            return false;
        }
    }
    while (pattern < end && *pattern == '*')
        pattern++;
    return pattern == end;
}

/* "@cloned" stands for the repository of the sandbox's clone. */
static bool is_cloned(const struct git_path *path, const char *cloned)
{
    size_t owner_len = strlen(path->owner);
    return cloned && strncmp(cloned, path->owner, owner_len) == 0 && cloned[owner_len] == '/' &&
           strcmp(cloned + owner_len + 1, path->repository) == 0;
}

static bool repository_matches(const struct policy_git *git, const struct git_path *path,
                               const char *cloned)
{
    if (git->repositories.count == 0)
        return true;
    for (size_t i = 0; i < git->repositories.count; i++) {
        const char *pattern = git->repositories.items[i];
        const char *slash = strchr(pattern, '/');
        if (!slash && is_cloned(path, cloned))
            return true;
        if (slash &&
            policy_glob_matches(pattern, (size_t)(slash - pattern), path->owner,
                                strlen(path->owner)) &&
            policy_glob_matches(slash + 1, strlen(slash + 1), path->repository,
                                strlen(path->repository)))
            return true;
    }
    return false;
}

bool policy_git_pattern_is_valid(const char *pattern)
{
    const char *slash = strchr(pattern, '/');
    if (strcmp(pattern, "@cloned") == 0)
        return true;
    if (!slash || slash == pattern || !slash[1] || strchr(slash + 1, '/'))
        return false;
    for (const char *c = pattern; *c; c++)
        if (!is_name_char(*c) && *c != '*' && *c != '/')
            return false;
    return true;
}

bool policy_ref_name_is_valid(const char *name, size_t len)
{
    static const char lock[] = ".lock";
    char before = '/';
    for (size_t i = 0; i < len; i++) {
        char c = name[i];
        bool is_bad = (unsigned char)c <= 0x20 || c == 0x7f || strchr("~^:?[\\", c) ||
                      (before == '/' && (c == '/' || c == '.')) || (before == '.' && c == '.') ||
                      (before == '@' && c == '{');
        bool ends_lock = (c == '/' || i + 1 == len) && i + (c != '/') >= strlen(lock) &&
                         strncmp(name + i + (c != '/') - strlen(lock), lock, strlen(lock)) == 0;
        if (is_bad || ends_lock)
            return false;
        before = c;
    }
    return before != '/' && before != '.';
}

enum git_action { GIT_OTHER, GIT_FETCH, GIT_PUSH, GIT_LFS_READ, GIT_LFS_WRITE };

/* LFS: without the body nobody can tell a batch for download from one for upload; an upload's
 * bytes then go by PUT, which is a write. */
static enum git_action lfs_action(const struct policy_request *request, const char *rest)
{
    if (strcmp(request->method, "POST") == 0 && strcmp(rest, "objects/batch") == 0)
        return GIT_LFS_READ;
    return strcmp(request->method, "GET") == 0 ? GIT_LFS_READ : GIT_LFS_WRITE;
}

static enum git_action git_action(const struct policy_request *request, const char *rest)
{
    static const struct {
        const char *method, *rest, *query;
        enum git_action action;
    } table[] = {
        {"GET", "info/refs", "service=git-upload-pack", GIT_FETCH},
        {"GET", "info/refs", "service=git-receive-pack", GIT_PUSH},
        {"POST", "git-upload-pack", "", GIT_FETCH},
        {"POST", "git-receive-pack", "", GIT_PUSH},
    };
    for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++)
        if (strcmp(request->method, table[i].method) == 0 && strcmp(rest, table[i].rest) == 0 &&
            strcmp(request->query, table[i].query) == 0)
            return table[i].action;
    static const char lfs[] = "info/lfs/";
    if (strncmp(rest, lfs, strlen(lfs)) == 0)
        return lfs_action(request, rest + strlen(lfs));
    return GIT_OTHER;
}

static bool action_is_allowed(const struct policy_git *git, enum git_action action)
{
    switch (action) {
    case GIT_OTHER:
        return false;
    case GIT_FETCH:
        return git->fetch;
    case GIT_PUSH:
        return git->push;
    case GIT_LFS_READ:
        return git->lfs;
    case GIT_LFS_WRITE:
        return git->lfs && git->push;
    }
    return false;
}

static const char *action_text(enum git_action action)
{
    switch (action) {
    case GIT_OTHER:
        return "only git's smart HTTP is allowed";
    case GIT_FETCH:
        return "fetch is not allowed";
    case GIT_PUSH:
        return "push is not allowed";
    case GIT_LFS_READ:
        return "Git LFS is not allowed";
    case GIT_LFS_WRITE:
        return "writing with Git LFS is not allowed";
    }
    return "";
}

void policy_git_decide(const struct policy_rule *rule, const struct policy_request *request,
                       struct policy_verdict *ret)
{
    struct git_path path;
    enum git_action action = GIT_OTHER;
    ret->decision = POLICY_DENIED_GIT;
    if (!policy_path_hides_dots(request->path) && git_path_read(request->path, &path)) {
        action = git_action(request, path.rest);
        if (action != GIT_OTHER && !repository_matches(&rule->git, &path, request->cloned)) {
            snprintf(ret->reason, sizeof(ret->reason),
                     "repository %.100s/%.100s is not reachable from this sandbox (rule %.100s)",
                     path.owner, path.repository, rule->name);
            return;
        }
    }
    if (action_is_allowed(&rule->git, action)) {
        ret->decision = POLICY_ALLOWED;
        return;
    }
    snprintf(ret->reason, sizeof(ret->reason), "%s at %.253s from this sandbox (rule %.100s)",
             action_text(action), request->host, rule->name);
}

bool policy_rule_judges_push(const struct policy_rule *rule, const struct policy_request *request)
{
    static const char service[] = "/git-receive-pack";
    size_t len = strlen(request->path);
    return rule->git.binds_refs && strcmp(request->method, "POST") == 0 && len > strlen(service) &&
           strcmp(request->path + len - strlen(service), service) == 0;
}

static bool is_same(const struct policy_strings *one, const struct policy_strings *other)
{
    if (one->count != other->count)
        return false;
    for (size_t i = 0; i < one->count; i++)
        if (strcmp(one->items[i], other->items[i]) != 0)
            return false;
    return true;
}

bool policy_rule_binds_alike(const struct policy_rule *rule, const struct policy_rule *before)
{
    const struct policy_git *now = &rule->git;
    return !now->binds_refs ||
           (before->git.binds_refs && is_same(&now->branches, &before->git.branches) &&
            is_same(&now->tags, &before->git.tags) && (now->deletes || !before->git.deletes));
}
