/*
 * A push whose rule is bound to branches or tags (gitprotocol-http(5)): its request is held,
 * nothing goes upstream, until the list of refs at the start of its body is whole and judged; then
 * exactly those bytes go, and the rest streams. One that is refused is read to its end and dropped,
 * so that git reads the answer, in which it is told why each ref stays as it was. Process:
 * paddock-egress.
 */
#include <stdlib.h>
#include <string.h>

#include "egress/call_internal.h"
#include "util/cleanup.h"

static void refuse(struct call *call, const char *reason, const struct buf *report)
{
    struct refusal refusal;
    refuse_with(403, reason, &refusal);
    if (report->len) {
        refusal.status = 200;
        refusal.is_final = false;
        refusal.own_type = "application/x-git-receive-pack-result";
        refusal.own_body = report->data;
        refusal.own_len = report->len;
    }
    call->bytes_out = 0; /* none of them went */
    call_answer_refusal(call, &refusal, "denied");
}

/* The body is read by no other form than the one it has. */
static bool is_encoded(const struct call_request *request)
{
    for (size_t i = 0; i < request->field_count; i++)
        if (http_field_is(&request->fields[i], "content-encoding"))
            return true;
    return false;
}

bool call_push_begin(struct call *call, const struct call_request *request)
{
    if (is_encoded(request)) {
        struct buf none = BUF_INIT(0);
        refuse(call, "this push cannot be judged: it has a Content-Encoding", &none);
        return false;
    }
    /* the client waits for that, and the upstream is not asked yet */
    if (call->expects_continue && call->front->interim(call, 100, "Continue", NULL, 0)) {
        call_fail(call, 502, "out of memory for the answer", "limit");
        return false;
    }
    call->expects_continue = false;
    return true;
}

static void refuse_refs(struct call *call, const char *body)
{
    cleanup_buf struct buf report = BUF_INIT(REFUSE_BODY_MAX);
    if (policy_push_report(call->push, call->rule, body, &report))
        buf_clear(&report);
    refuse(call, call->push->reason, &report);
}

static void judge(struct call *call, bool is_end)
{
    size_t len = 0;
    const char *body = egress_exchange_held(call->exchange, &len);
    struct buf none = BUF_INIT(0);
    switch (policy_push_read(call->push, call->rule, body, len, is_end)) {
    case POLICY_PUSH_MORE:
        break;
    case POLICY_PUSH_ALLOWED:
        free(call->push);
        call->push = NULL;
        egress_exchange_release(call->exchange);
        break;
    case POLICY_PUSH_REFUSED:
        if (is_end)
            refuse_refs(call, body);
        break;
    case POLICY_PUSH_UNREADABLE:
        refuse(call, call->push->reason, &none);
        break;
    }
}

size_t call_push_write(struct call *call, const char *data, size_t len, size_t most)
{
    if (call->push->state == POLICY_PUSH_REFUSED)
        return len;
    size_t taken = egress_exchange_write(call->exchange, data, len, most);
    call->bytes_out += taken;
    judge(call, false);
    if (taken == len || !call->exchange || !call->push)
        return taken;
    /* nothing of it goes before all of the list is there, so that there will be no room */
    call_fail(call, 503, "too many bytes of this sandbox's requests and answers wait to be taken",
              "limit");
    return len;
}

void call_push_end(struct call *call)
{
    judge(call, true);
}
