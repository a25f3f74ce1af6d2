/* What is counted of a sandbox, and what the supervisor said of it. Process: paddock-egress. */
#pragma once

#include <stdint.h>

struct egress_meter {
    int64_t task; /* the number of the one that runs in the sandbox, from 1 on; 0: none */
};
