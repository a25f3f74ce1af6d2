/*
 * What the policy says of a call: when it begins, and again of one that is under way when another
 * policy comes into force. Process: paddock-egress.
 */
#include <stdlib.h>

#include "egress/call_internal.h"
#include "util/cleanup.h"

static struct policy_request asked_of(const struct call *call)
{
    return (struct policy_request){
        .method = call->method,
        .host = call->host,
        .port = call->port,
        .path = buf_text(&call->path),
        .query = buf_text(&call->query),
        .is_tls = call->is_tls,
        .cloned = egress_sandbox_repository(call->sandbox),
    };
}

static void decide(const struct call *call, const struct policy *policy, struct policy_verdict *ret)
{
    struct policy_request asked = asked_of(call);
    policy_decide(policy, &asked, ret);
    /* only a rule that says so may open plain HTTP, and such a one nothing else */
    if (ret->decision == POLICY_ALLOWED &&
        (!ret->rule || policy_rule_is_plain(ret->rule) == call->is_tls))
        ret->decision = call->is_tls ? POLICY_DENIED : POLICY_PLAIN_HTTP;
}

/* Judges the call by the sandbox's policy. Returns the audit's word: NULL when it is allowed, else
 * *ret says how to refuse it. */
static const char *judge(const struct call *call, struct policy *policy,
                         struct policy_verdict *verdict, struct refusal *ret)
{
    char reason[REFUSE_TEXT_MAX];
    if (!policy) {
        egress_policy_lack(call->sandbox, reason, sizeof(reason));
        refuse_with(503, reason, ret);
        ret->is_final = true;
        return "inactive";
    }
    decide(call, policy, verdict);
    if (verdict->decision == POLICY_ALLOWED)
        return NULL;
    refuse_by_verdict(verdict, call->host, ret);
    return verdict->decision == POLICY_INACTIVE ? "inactive" : "denied";
}

bool call_is_allowed(struct call *call)
{
    struct refusal refusal;
    struct policy_verdict verdict = {0};
    struct policy *policy = egress_policy_of(call->sandbox);
    const char *decision = judge(call, policy, &verdict, &refusal);
    call->policy = policy ? policy_ref(policy) : NULL;
    call->rule = verdict.rule;
    if (decision) {
        call_answer_refusal(call, &refusal, decision);
        return false;
    }
    struct policy_request asked = asked_of(call);
    if (!policy_rule_judges_push(call->rule, &asked))
        return true;
    call->push = calloc(1, sizeof(*call->push));
    if (!call->push)
        call_fail(call, 503, "out of memory for a push", "limit");
    return call->push != NULL;
}

/* A push's list of refs may be gone upstream: it is good for patterns that are the same, and for
 * other ones it is to be sent again. */
static const char *judge_push(const struct call *call, const struct policy_rule *rule,
                              struct refusal *ret)
{
    struct policy_request asked = asked_of(call);
    if (!policy_rule_judges_push(rule, &asked) || policy_rule_binds_alike(rule, call->rule))
        return NULL;
    refuse_with(403, "the policy's branches or tags were changed while this push came: push again",
                ret);
    ret->is_final = false;
    return "denied";
}

void call_judge_again(struct call *call)
{
    struct refusal refusal;
    struct policy_verdict verdict = {0};
    if (!call->exchange)
        return;
    const char *decision = judge(call, egress_policy_of(call->sandbox), &verdict, &refusal);
    if (!decision)
        decision = judge_push(call, verdict.rule, &refusal);
    if (decision)
        call_stop(call, &refusal, decision, "policy");
    else
        call_is_blind(call, verdict.rule);
}
