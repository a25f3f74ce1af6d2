/* What is counted of a sandbox, and what the supervisor said of it. Process: paddock-egress. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "task/usage.h"

struct egress_meter {
    uint64_t id;  /* of the attached sandbox: no other one has had it since the process began */
    int64_t task; /* the number of the one that runs in the sandbox, from 1 on; 0: none */
    int64_t budget_output_tokens, budget_requests; /* 0: no limit */
    int64_t output_tokens, requests;               /* that were used of it */
    size_t decoders;                               /* decompressors at work, or soon */
    size_t wide_sockets;                           /* LIMIT_EGRESS_WIDE_SOCKETS */
    size_t wide;                                   /* answers whose window is large */
    /* what the supervisor does not know yet, and of which task it is */
    struct model_usage pending;
    int64_t pending_task;
};
