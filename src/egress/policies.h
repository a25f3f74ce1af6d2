/*
 * How a policy comes into force: its folder's files arrive one by one and are held in memory, the
 * load asks the supervisor for every secret that a rule names, one after the other, and only then
 * is the policy parsed for good, put into force together with its secrets, and answered. Whatever
 * fails leaves the policy and the secrets in force as they are.
 */
#pragma once

#include "egress/egress.h"
#include "ipc/ipc.h"
#include "json/json.h"

struct egress_policies;

/* `sock` goes to the supervisor; *egress gets the policy. Takes `vars` (an object; NULL: none). */
int egress_policies_open(int sock, struct egress *egress, struct json *vars,
                         struct egress_policies **ret, struct err *err);
void egress_policies_close(struct egress_policies *policies);

/* POLICY_FILE, POLICY_LOAD, and SECRET or STATUS as an answer to SECRET_GET. Negative: the peer
 * breaks the protocol, or does not read. A policy that is refused is no error: it is answered. */
int egress_policies_on_file(struct egress_policies *policies, struct ipc_message *message,
                            struct err *err);
int egress_policies_on_load(struct egress_policies *policies, const struct ipc_message *message,
                            struct err *err);
int egress_policies_on_secret(struct egress_policies *policies, struct ipc_message *message,
                              struct err *err);

/* A secret in force, or NULL. */
const struct secret *egress_policies_secret(const struct egress_policies *policies,
                                            const char *name);
