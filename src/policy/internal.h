/* What the files of src/policy share: the parsed form of a policy. Strings are owned by the rule.
 */
#pragma once

#include "policy/policy.h"
#include "json/json.h"

/* A header's value: literals and secrets in turn, variables already put in. */
struct policy_part {
    char *text; /* the bytes, or the secret's name */
    bool is_secret;
    char *basic_user; /* NULL, or of a secret: what is put in is the base64 of "USER:SECRET" */
};

struct policy_value {
    struct policy_part *parts;
    size_t count;
};

struct policy_header {
    char *name; /* lower case */
    struct policy_value value;
};

struct policy_strings {
    char **items;
    size_t count;
};

void policy_strings_free(struct policy_strings *strings);

struct policy_git {
    bool fetch, push, lfs;
    struct policy_strings repositories; /* "owner/repo" patterns */
    bool binds_refs;                    /* a push may change only these: */
    struct policy_strings branches, tags;
    bool deletes; /* and delete them too */
};

enum policy_scheme { POLICY_SCHEME_NONE, POLICY_SCHEME_HTTPS, POLICY_SCHEME_HTTP };

struct policy_rule {
    char *name;
    /* Canonical; of "*.example.org" what follows the "*"; NULL, and nothing matches, in an inactive
     * rule whose host names a variable that is not set. */
    char *host;
    bool is_wildcard; /* labels before `host` are needed */
    uint16_t port;
    bool plain_http;
    struct policy_strings methods; /* none: every method */
    /* Canonical, no "/" at its end; NULL: every path, also of an inactive rule whose path names a
     * variable that is not set. */
    char *path;
    bool has_git;
    struct policy_git git;
    struct policy_strings remove; /* lower case */
    struct policy_header *set;
    size_t set_count;
    char *upstream;
    uint16_t upstream_port;
    enum policy_scheme upstream_scheme; /* as it was written */
    char *upstream_ca;
    size_t upstream_ca_len;
    char *upstream_cert;
    size_t upstream_cert_len;
    char *upstream_key; /* the secret's name */
    enum policy_usage usage;
    char *inactive; /* NULL: active */
};

struct policy {
    unsigned references;
    struct policy_rule *rules;
    size_t count;
};

/* As policy_ports, of `count` rules; POLICY_PORTS_MAX + 1: there are more than fit. */
size_t policy_ports_of(const struct policy_rule *rules, size_t count,
                       struct policy_port ret[POLICY_PORTS_MAX]);

/* decide.c: true when some server could take the canonical path for one that climbs: "..%2F",
 * "..\",
 * "..;x", "%252e%252e". Such a path never fits a rule that is bound to a path, or git's. */
bool policy_path_hides_dots(const char *path);

/* git.c: decides a request for the host of a rule with `git`. */
void policy_git_decide(const struct policy_rule *rule, const struct policy_request *request,
                       struct policy_verdict *ret);
/* True when `pattern` is OWNER/REPO, each made of name characters and "*". */
bool policy_git_pattern_is_valid(const char *pattern);
/* True when `text` is what the pattern, in which only "*" is special, stands for. */
bool policy_glob_matches(const char *pattern, size_t pattern_len, const char *text, size_t len);
/* What git-check-ref-format(1) lets be the end of a ref; "*" too, in patterns. */
bool policy_ref_name_is_valid(const char *name, size_t len);

#define POLICY_INCLUDE_DEPTH 8

/* A file that is being read, and the one that includes it. */
struct policy_frame {
    const char *file;
    const struct policy_frame *includer; /* NULL: the policy itself */
};

/* The reading of a policy: where it stands, and what the rule being read misses. */
struct policy_parser {
    const char *file;
    const struct policy_env *env;
    struct err *err; /* the first problem */
    size_t problems;
    const struct policy_frame *frame;
    struct policy_strings included; /* names of the files that were read beside the policy's own */
    struct buf missing;             /* reasons, joined by "; ", of the rule being read */
};

/* Notes the problem "FILE:LINE:COLUMN: reason" and returns -EINVAL; the caller may read on. */
int policy_refuse(struct policy_parser *parser, const struct json *at, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* template.c: puts variables into a string. *ret_text stays NULL when one is not set (noted in
 * parser->missing). Secrets are refused. */
int policy_expand_text(struct policy_parser *parser, const struct json *json, char **ret_text);
/* The same with secrets kept as parts; a secret that is not there is noted as missing too. */
int policy_expand_value(struct policy_parser *parser, const struct json *json,
                        struct policy_value *ret);
void policy_value_free(struct policy_value *value);

/* A table of the keys an object may have. */
struct policy_key {
    const char *name;
    enum json_type type;
    int (*read)(struct policy_parser *parser, struct policy_rule *rule, const struct json *value);
};
int policy_read_object(struct policy_parser *parser, const struct json *json,
                       const struct policy_key *keys, size_t count, struct policy_rule *rule);

/* Reads an array of strings, each given to `check`, which refuses or returns 0. */
int policy_read_strings(struct policy_parser *parser, const struct json *list,
                        int (*check)(struct policy_parser *parser, const struct json *value,
                                     char *text),
                        struct policy_strings *ret);

/* fields.c: the reader of each key of a rule. */
extern const struct policy_key policy_rule_keys[];
extern const size_t policy_rule_key_count;
/* What no single key can tell: needed keys, keys that exclude each other, the port without one. */
int policy_rule_check(struct policy_parser *parser, struct policy_rule *rule,
                      const struct json *json);

/* fields_git.c and fields_upstream.c: their keys. */
int policy_read_git(struct policy_parser *parser, struct policy_rule *rule,
                    const struct json *value);
int policy_check_git(struct policy_parser *parser, const struct policy_rule *rule,
                     const struct json *json);
int policy_read_upstream(struct policy_parser *parser, struct policy_rule *rule,
                         const struct json *value);
int policy_read_upstream_ca(struct policy_parser *parser, struct policy_rule *rule,
                            const struct json *value);
int policy_read_upstream_cert(struct policy_parser *parser, struct policy_rule *rule,
                              const struct json *value);
int policy_read_upstream_key(struct policy_parser *parser, struct policy_rule *rule,
                             const struct json *value);
int policy_check_upstream(struct policy_parser *parser, const struct policy_rule *rule,
                          const struct json *json);
