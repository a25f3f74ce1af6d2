/* The policy that is the first argument, read as the daemon would. */
#pragma once

#include "cli/cli.h"
#include "policy/policy.h"

/* Variables come from --var and --config, secrets count as set when they are there. The caller
 * frees *ret with policy_unref. Each problem of the policy is a line of *problems (which may lack
 * what has no room there), the first is in err too. */
enum cli_exit cli_policy_load(const struct cli *cli, struct policy **ret, struct buf *problems,
                              struct err *err);
