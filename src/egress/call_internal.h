/* What call*.c share; nothing for others. */
#pragma once

#include "egress/call.h"

extern const struct egress_exchange_events call_exchange_events;
/* Our own answer; `decision` is the audit's word. */
void call_answer_refusal(struct call *call, const struct refusal *refusal, const char *decision);
/* call_audit.c. An answer's head came: what its upstream speaks. */
void call_note_upstream(struct call *call);
/* As call_answer_refusal, also of a call under way: its exchange ends, and an answer that was begun
 * is cut. */
void call_stop(struct call *call, const struct refusal *refusal, const char *decision,
               const char *ended_by);
/* call_judge.c: asks the policy; what it does not allow is answered. */
bool call_is_allowed(struct call *call);
/* call_push.c: for a call with `push`. Begin: false when it was refused at once. Write takes all
 * that is needed, and what it takes may be dropped. End comes before that of the exchange, which
 * may be gone then. */
bool call_push_begin(struct call *call, const struct call_request *request);
size_t call_push_write(struct call *call, const char *data, size_t len, size_t most);
void call_push_end(struct call *call);
/* call_usage.c. False: the sandbox has no budget left for this rule, and the call is answered. */
bool call_has_budget(struct call *call);
/* True: the call is an upgrade, what comes of it would spend a budget unseen by `rule`, and it is
 * answered, or cut. */
bool call_is_blind(struct call *call, const struct policy_rule *rule);
/* A header of the request that must not go along. */
bool call_usage_drops(struct call *call, const struct http_field *header);
void call_usage_begin(struct call *call); /* it was sent */
void call_usage_head(struct call *call, int status, const struct http_field *fields, size_t count);
void call_usage_body(struct call *call, const char *data, size_t len);
void call_usage_end(struct call *call);
void call_usage_free(struct call *call);
/* The call's one line; later ones are dropped. */
void call_audit(struct call *call, const char *decision, const char *reason, const char *ended_by);
