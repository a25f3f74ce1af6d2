/* Answers that egress gives by itself: refusals and failures. One line of text/plain, or the same
 * line in JSON, in a shape that the SDKs of Anthropic and OpenAI (`error.message`) and Git LFS
 * (`message`) show. */
#pragma once

#include <stdbool.h>

#include "egress/upstream.h"
#include "policy/policy.h"
#include "util/buf.h"
#include "util/err.h"

/* Room for "<host> is not reachable from this sandbox\n" and for a reason. */
#define REFUSE_TEXT_MAX 1200
/* Its body at most: the text twice in JSON, each character escaped, or one of its own. */
#define REFUSE_BODY_MAX (64 * 1024)
/* The methods that a 405 names. */
#define REFUSE_ALLOW "GET, HEAD, POST, PUT, PATCH, DELETE"

struct refusal {
    int status;
    bool is_final;              /* trying again is useless: x-should-retry: false */
    bool is_json;               /* the client asked for JSON */
    char text[REFUSE_TEXT_MAX]; /* the body, with its newline */
    const char *own_type;       /* NULL; else the body is another one, of this type */
    const char *own_body;       /* the caller's */
    size_t own_len;
};

/* The answer to a verdict other than POLICY_ALLOWED. */
void refuse_by_verdict(const struct policy_verdict *verdict, const char *host, struct refusal *ret);

/* Any other: the text gets a newline; control characters in it become spaces. Final: what is the
 * client's fault. */
void refuse_with(int status, const char *reason, struct refusal *ret);

/* The upstream could not be asked, or did not answer: 403, 502, 503 or 504 by the cause. Final:
 * what only a change of the policy, or of the upstream's certificate, can help. */
void refuse_by_failure(enum egress_failure failure, const char *host, const char *reason,
                       struct refusal *ret);

/* True when the request's Content-Type, or one of the types that its Accept names, is JSON. */
bool refuse_wants_json(const struct http_field *fields, size_t count);

const char *refuse_content_type(const struct refusal *refusal);
/* Appends the body. 0 or as buf_append. */
int refuse_append_body(struct buf *out, const struct refusal *refusal);

/* Appends the whole answer over HTTP/1.1. `is_head`: without the body. 0 or as buf_append. */
int refuse_append(struct buf *out, const struct refusal *refusal, bool is_head, bool keep_alive);

/* "Not Found" for 404; "" for what has no name here. */
const char *refuse_status_text(int status);
