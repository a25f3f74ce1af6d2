/* Answers that egress gives by itself: refusals and failures. text/plain, one line. */
#pragma once

#include <stdbool.h>

#include "policy/policy.h"
#include "util/buf.h"
#include "util/err.h"

/* Room for "<host> is not reachable from this sandbox\n" and for a reason. */
#define REFUSE_TEXT_MAX 1200
/* The methods that a 405 names. */
#define REFUSE_ALLOW "GET, HEAD, POST, PUT, PATCH, DELETE"

struct refusal {
    int status;
    bool is_final;              /* trying again is useless: x-should-retry: false */
    char text[REFUSE_TEXT_MAX]; /* the body, with its newline */
};

/* The answer to a verdict other than POLICY_ALLOWED. */
void refuse_by_verdict(const struct policy_verdict *verdict, const char *host, struct refusal *ret);

/* Any other: the text gets a newline; control characters in it become spaces. */
void refuse_with(int status, const char *reason, struct refusal *ret);

/* Appends the whole answer. `is_head`: without the body. 0 or as buf_append. */
int refuse_append(struct buf *out, const struct refusal *refusal, bool is_head, bool keep_alive);

/* "Not Found" for 404; "" for what has no name here. */
const char *refuse_status_text(int status);
