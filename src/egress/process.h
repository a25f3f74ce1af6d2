/* The serving process: everything behind main/egress.c. */
#pragma once

#include "egress/egress.h"

/* Serves the supervisor's messages on `sock` and the sandboxes, until the supervisor is gone (0) or
 * something makes going on senseless (negative; the supervisor starts egress anew). Blocks. */
int egress_process_run(int sock, struct err *err);

/* sandbox.c: takes the four listeners (TCP 80, 443, 53, UDP 53; as INIT_STATE has them). */
#define EGRESS_LISTENERS 4
int egress_sandbox_attach(struct egress *egress, const char *name, const char *boot_id,
                          const int listeners[EGRESS_LISTENERS], struct egress_sandbox **ret,
                          struct err *err);
/* Ends its listeners and connections, and drops the reference that attach gave. */
void egress_sandbox_detach(struct egress_sandbox *sandbox);
