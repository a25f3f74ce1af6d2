/* What the tests of policies share: policies read with variables, secrets and files that are made
 * up (ACCOUNT, GATEWAY, BREAK; TOKEN, and LOCKED, which is refused; see load.c for the files). */
#pragma once

#include "policy/policy.h"

/* policy_parse of "p.json"; variables and secrets are set when `is_configured`. */
int load(const char *text, bool is_configured, struct policy **ret, struct err *err);
/* The problems that the last load was told of, a line each. */
const char *load_problems(void);
/* The same of a text that must be taken. */
struct policy *loaded(const char *text, bool is_configured);
/* Of one that must be refused with a reason that has `says` in it: the reason, until the next call.
 */
const char *refused(const char *text, const char *says);
/* The verdict on a request whose method, is_tls and cloned are set; of the host len bytes count. */
struct policy_verdict judge_request(const struct policy *policy, struct policy_request request,
                                    const char *host, size_t len, const char *target);
/* The verdict on a request over TLS; `host` may have a port, `target` a query. */
struct policy_verdict judge(const struct policy *policy, const char *method, const char *host,
                            const char *target);
