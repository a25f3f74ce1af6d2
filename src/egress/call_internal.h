/* What call*.c share; nothing for others. */
#pragma once

#include "egress/call.h"

extern const struct egress_exchange_events call_exchange_events;
/* Our own answer; `decision` is the audit's word. */
void call_answer_refusal(struct call *call, const struct refusal *refusal, const char *decision);
/* call_audit.c. An answer's head came: what its upstream speaks. */
void call_note_upstream(struct call *call);
/* The call's one line; later ones are dropped. */
void call_audit(struct call *call, const char *decision, const char *reason, const char *ended_by);
