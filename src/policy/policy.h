/*
 * The policy: which requests may leave a sandbox and what is changed in them. Pure functions, no
 * I/O: whoever reads files gives their bytes. Used by egress and by `paddock policy check`.
 *
 * The order at a request: canonicalise (policy_canonical_*), compare SNI with Host, decide
 * (policy_decide), then remove and set headers. What was judged is what is sent.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "util/buf.h"
#include "util/err.h"
#include "util/secret.h"

#define POLICY_HOST_MAX 254 /* RFC 1035: 253 characters and the NUL */
#define POLICY_PORT_HTTP 80
#define POLICY_PORT_HTTPS 443
/* Ports of one policy beside those two: each is a listener in the sandbox. */
#define POLICY_PORTS_MAX 8

/* Canonical host of a Host header, :authority or SNI: lower case, no trailing dot, LDH labels only
 * (underscore refused, IDN as its A-label). An IP literal, an empty or over-long name is -EINVAL.
 * A port in "host:port" is split off into *ret_port (default_port when absent). */
int policy_canonical_host(const char *host, size_t len, uint16_t default_port,
                          char ret[POLICY_HOST_MAX], uint16_t *ret_port, struct err *err);

/* Canonical path of a request target in origin form ("/a/b?q"): dot segments and %2e resolved,
 * other percent-encodings of unreserved characters decoded, hex in upper case, %2F and %5C kept,
 * "//", "\", ";" kept as bytes. Refused (-EINVAL): a raw byte outside 0x21..0x7e, "%00", a bad
 * escape,
 * "#", what leaves the root. ret_path gets "/a/b"; ret_query what follows "?" unchanged ("" when
 * none). */
int policy_canonical_target(const char *target, size_t len, struct buf *ret_path,
                            struct buf *ret_query, struct err *err);

struct policy;
struct policy_rule;

/* What a policy text may refer to. */
struct policy_env {
    void *ctx;
    const char *(*variable)(void *ctx, const char *name); /* value, or NULL: not set */
    /* NULL: it is there; "": it is not set; else why what is there cannot be used. */
    const char *(*secret_lack)(void *ctx, const char *name);
    /* A *.pem or *.json beside it; -ENOENT and the like. */
    int (*file)(void *ctx, const char *name, struct buf *ret);
    /* When set, told of every problem that makes policy_parse fail, in its form. */
    void (*problem)(void *ctx, const char *message);
};

/* Parses, also the files that it includes. Errors (-EINVAL): "FILE:LINE:COLUMN: reason" of the
 * first problem; unknown keys are errors. A rule that names an unset variable or secret is loaded
 * inactive. The caller frees with policy_unref (counted: a request in flight keeps the policy it
 * was judged by). */
int policy_parse(const char *file, const char *data, size_t len, const struct policy_env *env,
                 struct policy **ret, struct err *err);
struct policy *policy_ref(struct policy *policy);
void policy_unref(struct policy *policy);

size_t policy_rule_count(const struct policy *policy);
const struct policy_rule *policy_rule_at(const struct policy *policy, size_t index);
const char *policy_rule_name(const struct policy_rule *rule); /* given, or "rule 3" */
/* NULL when active, else why not: "secret AI_GATEWAY_TOKEN is not set (file secrets_dir/... or
 * ...)". */
const char *policy_rule_inactive(const struct policy_rule *rule);
/* The port that the rule is for. */
uint16_t policy_rule_port(const struct policy_rule *rule);
/* True: the rule is for plain HTTP alone, towards the upstream too. False: for TLS alone. */
bool policy_rule_is_plain(const struct policy_rule *rule);

struct policy_port {
    uint16_t port;
    bool is_tls; /* else plain HTTP; a port is one of them in the whole policy */
};
/* The ports beside 80 (plain) and 443 (TLS) that some rule, active or not, is for, in the order of
 * the rules, each once. Returns how many. */
size_t policy_ports(const struct policy *policy, struct policy_port ret[POLICY_PORTS_MAX]);

/* Calls back for every secret the rule names; to have them fetched before the first request. */
void policy_rule_secrets(const struct policy_rule *rule, void (*found)(void *ctx, const char *name),
                         void *ctx);

struct policy_request {
    const char *method;
    const char *host;  /* canonical */
    uint16_t port;     /* where the client connected to, which is what its Host must name */
    const char *path;  /* canonical */
    const char *query; /* "" when none */
    bool is_tls;
    const char *cloned; /* OWNER/REPOSITORY of the sandbox's clone, which "@cloned" stands for; ""
                         * or NULL: none */
};

enum policy_decision {
    POLICY_ALLOWED,
    POLICY_DENIED,     /* 403 "<host> is not reachable from this sandbox\n" */
    POLICY_DENIED_GIT, /* 403 with a reason that git prints (text/plain) */
    POLICY_PLAIN_HTTP, /* 403 "<host> is reachable only over HTTPS\n": no rule for plain HTTP is
                        * for this host and port */
    POLICY_INACTIVE,   /* 503 with the rule's reason */
};

struct policy_verdict {
    enum policy_decision decision;
    const struct policy_rule *rule; /* NULL: none matched */
    char reason[512]; /* one line, no newline, for the body and the audit; "" allowed */
};

/* The first rule that matches decides; none: denied. Never fails. */
void policy_decide(const struct policy *policy, const struct policy_request *request,
                   struct policy_verdict *ret);

/* Why a rule does not match a request, in the order in which it is looked at. */
enum policy_lack {
    POLICY_LACK_HOST,
    POLICY_LACK_PROTOCOL, /* HTTPS, or plain HTTP */
    POLICY_LACK_PORT,
    POLICY_LACK_METHOD,
    POLICY_LACK_PATH,
    POLICY_LACK_CLIMBS, /* the path could be taken for one that climbs out of the rule's */
    POLICY_LACK_NONE,   /* it matches */
};
enum policy_lack policy_rule_lack(const struct policy_rule *rule,
                                  const struct policy_request *request);
/* Appends it in words. As buf_append. */
int policy_rule_explain(const struct policy_rule *rule, enum policy_lack lack, struct buf *ret);

/* True when this allowed request is a push whose body must be judged before any of it is sent: by
 * policy_push_read, and one with a Content-Encoding cannot be. */
bool policy_rule_judges_push(const struct policy_rule *rule, const struct policy_request *request);
/* True when a push that `before` lets through is one that `rule` lets through: it binds no refs, or
 * has the same patterns. */
bool policy_rule_binds_alike(const struct policy_rule *rule, const struct policy_rule *before);
/* The patterns of "branches", or of "tags"; NULL behind the last. */
const char *policy_rule_ref(const struct policy_rule *rule, bool is_tag, size_t index);

/* A push to git-receive-pack(1): its body begins with the list of the refs that it changes
 * (gitprotocol-pack(5), "Reference Update Request"), behind which stands the pack. */
enum policy_push_state {
    POLICY_PUSH_MORE,       /* the list is not whole yet */
    POLICY_PUSH_ALLOWED,    /* all may be sent */
    POLICY_PUSH_REFUSED,    /* nothing may be sent; policy_push_report tells git */
    POLICY_PUSH_UNREADABLE, /* no list, or one that asks for more than refs: 403 with the reason */
};
/* Zero at the start of a push. */
struct policy_push {
    enum policy_push_state state;
    size_t read;      /* bytes of the body that belong to the list, as far as it was read */
    size_t commands;  /* refs in it */
    size_t id_len;    /* letters of an object's name: 40 or 64 */
    char reason[512]; /* of REFUSED and UNREADABLE: one line of ASCII, without a newline */
};
/* Reads on. `body` holds the push from its first byte on, which the caller keeps until the state is
 * no longer MORE: never more than LIMIT_POLICY_PUSH_BYTES are needed. `is_end`: the body ends here;
 * then the state is never MORE. */
enum policy_push_state policy_push_read(struct policy_push *push, const struct policy_rule *rule,
                                        const char *body, size_t len, bool is_end);
/* Appends the body of an answer (200, application/x-git-receive-pack-result) from which git prints
 * why each ref of a REFUSED push stayed as it was. -EINVAL: the client asked for no report, so that
 * 403 with the reason is the answer; -EMSGSIZE, -ENOMEM: no room. `body` is the one that was read.
 */
int policy_push_report(const struct policy_push *push, const struct policy_rule *rule,
                       const char *body, struct buf *ret);

/* What an allowed request becomes. Names are compared as the most obliging server might: letters of
 * either case, and every character that is neither letter nor digit as "-" (CGI makes "_" of it).
 * Removed are the headers that the rule removes or sets, and those that name another host. */
bool policy_rule_removes_header(const struct policy_rule *rule, const char *name, size_t len);
/* True when a server could take another method or path from this header than those that were
 * judged, and the rule is bound to methods or paths: the request must not be sent. */
bool policy_rule_refuses_header(const struct policy_rule *rule, const char *name, size_t len);
/* The names in "remove", in lower case; NULL behind the last. */
const char *policy_rule_remove_name(const struct policy_rule *rule, size_t index);
size_t policy_rule_set_count(const struct policy_rule *rule);
const char *policy_rule_set_name(const struct policy_rule *rule, size_t index);
/* True when a secret is in the value. */
bool policy_rule_set_is_secret(const struct policy_rule *rule, size_t index);
/* The value with its secrets put in. `secret` gives a secret's bytes or NULL (then -ENOENT). A
 * value with CR, LF or NUL in it is -EINVAL. */
int policy_rule_set_value(const struct policy_rule *rule, size_t index,
                          const struct secret *(*secret)(void *ctx, const char *name), void *ctx,
                          struct secret *ret, struct err *err);

/* Whose answers those are, when they are read for the tokens that they tell of. */
enum policy_usage {
    POLICY_USAGE_NONE,
    POLICY_USAGE_ANTHROPIC,
    POLICY_USAGE_OPENAI,
    POLICY_USAGE_AUTO, /* either */
};
enum policy_usage policy_rule_usage(const struct policy_rule *rule);

/* Where to connect instead of the host's own address: NULL, or "host" with *ret_port; then loopback
 * and private addresses are allowed. Its certificate is checked for the rule's host; a rule for
 * plain HTTP has none. */
const char *policy_rule_upstream(const struct policy_rule *rule, uint16_t *ret_port);
/* PEM of the CA that signs that upstream, or NULL: the system's. */
const char *policy_rule_upstream_ca(const struct policy_rule *rule, size_t *ret_len);
/* PEM of the certificate, and its chain, to show that upstream (or the host itself), or NULL: none.
 * *ret_key becomes the name of the secret that holds its key in PEM; it is among
 * policy_rule_secrets. */
const char *policy_rule_upstream_cert(const struct policy_rule *rule, size_t *ret_len,
                                      const char **ret_key);
