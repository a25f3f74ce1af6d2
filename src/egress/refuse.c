/* Answers of our own; see refuse.h. Process: paddock-egress. The texts are a promise: tests of
 * other parts compare them byte for byte. */
#include "egress/refuse.h"

#include <stdio.h>
#include <string.h>

#include "util/cleanup.h"

static const struct {
    int status;
    const char *text;
} statuses[] = {
    {400, "Bad Request"},
    {403, "Forbidden"},
    {405, "Method Not Allowed"},
    {408, "Request Timeout"},
    {414, "URI Too Long"},
    {417, "Expectation Failed"},
    {421, "Misdirected Request"},
    {431, "Request Header Fields Too Large"},
    {501, "Not Implemented"},
    {502, "Bad Gateway"},
    {503, "Service Unavailable"},
    {504, "Gateway Timeout"},
    {505, "HTTP Version Not Supported"},
};

const char *refuse_status_text(int status)
{
    for (size_t i = 0; i < ARRAY_LEN(statuses); i++)
        if (statuses[i].status == status)
            return statuses[i].text;
    return "";
}

/* Foreign bytes can stand in a reason: nothing in it may end the header line it goes into. */
static void make_printable(char *text)
{
    for (; *text; text++)
        if ((unsigned char)*text < 0x20 || (unsigned char)*text >= 0x7f)
            *text = ' ';
}

void refuse_with(int status, const char *reason, struct refusal *ret)
{
    ret->status = status;
    ret->is_final = false;
    snprintf(ret->text, sizeof(ret->text) - 1, "%s", reason);
    make_printable(ret->text);
    size_t len = strlen(ret->text);
    ret->text[len] = '\n';
    ret->text[len + 1] = '\0';
}

void refuse_by_verdict(const struct policy_verdict *verdict, const char *host, struct refusal *ret)
{
    char text[512];
    switch (verdict->decision) {
    case POLICY_PLAIN_HTTP:
        snprintf(text, sizeof(text), "%s is reachable only over HTTPS", host);
        refuse_with(403, text, ret);
        return;
    case POLICY_DENIED_GIT:
        refuse_with(403, verdict->reason, ret);
        return;
    case POLICY_INACTIVE:
        refuse_with(503, verdict->reason, ret);
        ret->is_final = true;
        return;
    case POLICY_ALLOWED:
    case POLICY_DENIED:
        break;
    }
    snprintf(text, sizeof(text), "%s is not reachable from this sandbox", host);
    refuse_with(403, text, ret);
}

int refuse_append(struct buf *out, const struct refusal *refusal, bool is_head, bool keep_alive)
{
    size_t len = strlen(refusal->text);
    return buf_appendf(out,
                       "HTTP/1.1 %d %s\r\ncontent-type: text/plain; charset=utf-8\r\n"
                       "content-length: %zu\r\nx-paddock-reason: %.*s\r\n%s%s%s\r\n%s",
                       refusal->status, refuse_status_text(refusal->status), len, (int)(len - 1),
                       refusal->text, refusal->is_final ? "x-should-retry: false\r\n" : "",
                       refusal->status == 405 ? "allow: " REFUSE_ALLOW "\r\n" : "",
                       keep_alive ? "" : "connection: close\r\n", is_head ? "" : refusal->text);
}
