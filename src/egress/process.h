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
/* Listens on these ports too, and on no others any more but 80 and 443: a socket for each, taken. A
 * connection there is served where the sandbox's policy is for that port, else reset. Negative: one
 * cannot be watched. */
int egress_sandbox_set_ports(struct egress_sandbox *sandbox, const uint16_t *ports, size_t count,
                             const int *listeners, struct err *err);
void egress_sandbox_detach(struct egress_sandbox *sandbox);
