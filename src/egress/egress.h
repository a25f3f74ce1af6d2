/*
 * What the parts of egress share. One process, one thread, one libuv loop. A sandbox's listeners
 * arrive from the supervisor; each accepted connection becomes an egress_conn, which parses, asks
 * the policy and forwards through an upstream. Nothing a sandbox sends can end the process.
 *
 * Parts: process.c (messages, sandboxes, accept, policy and secrets), ca.c (CA, leaves), dns.c,
 * audit.c; conn*.c (a client's connection), call*.c (a request), refuse.c (answers of our own);
 * upstream.c and link*.c (the way out).
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <uv.h>

#include "egress/meter.h"
#include "policy/policy.h"
#include "util/err.h"
#include "util/limits.h"

struct egress_ca;
struct egress_audit;
struct egress_counts;
struct egress_upstreams;
struct turn_queue;

/* An attached sandbox. Connections hold a reference; after SANDBOX_DETACH it lives until the last
 * connection is closed, which detaching begins. */
struct egress_sandbox;
struct egress_sandbox *egress_sandbox_ref(struct egress_sandbox *sandbox);
void egress_sandbox_unref(struct egress_sandbox *sandbox);
const char *egress_sandbox_name(const struct egress_sandbox *sandbox);
const char *egress_sandbox_boot_id(const struct egress_sandbox *sandbox);
struct egress_meter *egress_sandbox_meter(struct egress_sandbox *sandbox);
/* The policy of the folder that the sandbox is under from its next request on; "": the main one. */
void egress_sandbox_set_policy(struct egress_sandbox *sandbox, const char *name,
                               const char *repository);
/* OWNER/REPOSITORY that was cloned into it, or "". */
const char *egress_sandbox_repository(const struct egress_sandbox *sandbox);

/* A policy of the folder by its name, which is that of its file without ".json". */
struct egress_named_policy {
    char name[LIMIT_NAME_BYTES + 1];
    struct policy *policy; /* NULL: its file was refused, and there is no former version */
    char reason[256];      /* why it was refused */
};

struct egress {
    uv_loop_t *loop;
    struct turn_queue *turns;
    struct egress_ca *ca;
    struct egress_audit *audit;
    struct egress_counts *counts; /* NULL: nothing is counted */
    struct egress_upstreams *upstreams;
    struct policy *policy;             /* in force; NULL: none, everything is refused */
    struct egress_named_policy *named; /* the others too */
    size_t named_count;
    char policy_refusal[512]; /* why there is no policy in force, if that is known */
    void (*policy_changed)(struct egress *egress); /* other policies are in force */
    /* Memory for the next connection that reads or answers: an idle one holds none. */
    struct buf spare_in, spare_out;
    /* Tells the supervisor; false: not now. NULL: nobody is told. */
    bool (*tell_usage)(struct egress *egress, const char *sandbox, int64_t task,
                       const struct model_usage *usage);
    int64_t idle_ms; /* a connection without a byte for so long is ended */
};

/* The policy that decides for the sandbox now, or NULL: everything is refused. */
struct policy *egress_policy_of(const struct egress_sandbox *sandbox);
/* Where it is NULL: why. */
void egress_policy_lack(const struct egress_sandbox *sandbox, char *ret, size_t size);

/* A secret by name, or NULL when it is not there; egress's own. For policy_rule_set_value. */
const struct secret *egress_secret(void *egress, const char *name);

/* conn.c: takes over a connection that was accepted from a sandbox (non-blocking socket) on
 * `port`. Owns fd from here on. Registers itself with the sandbox so that
 * egress_conn_close_all(sandbox) ends it. */
void egress_conn_start(struct egress *egress, struct egress_sandbox *sandbox, int fd, uint16_t port,
                       bool is_tls);
void egress_conn_close_all(struct egress_sandbox *sandbox);
/* The policy of the sandbox, or its budget, is another one: requests and tunnels that it does not
 * allow end. */
void egress_conn_judge_all(struct egress_sandbox *sandbox);

/* process.c: list of the sandbox's connections, for conn.c. */
struct egress_conn;
void egress_sandbox_add_conn(struct egress_sandbox *sandbox, struct egress_conn *conn);
void egress_sandbox_remove_conn(struct egress_sandbox *sandbox, struct egress_conn *conn);
/* Large buffers that the sandbox's connections hold: a connection tells its share when it changes.
 * True when they are at the limit: then only small ones may be filled. */
void egress_sandbox_count_bytes(struct egress_sandbox *sandbox, size_t before, size_t now);
bool egress_sandbox_is_full(const struct egress_sandbox *sandbox);
/* A stream begins; false: there are LIMIT_EGRESS_STREAMS. */
bool egress_sandbox_add_stream(struct egress_sandbox *sandbox);
void egress_sandbox_remove_stream(struct egress_sandbox *sandbox);
size_t egress_sandbox_conn_count(const struct egress_sandbox *sandbox);
/* Calls back for each; the callback may remove the one it is given, and no other. */
void egress_sandbox_each_conn(struct egress_sandbox *sandbox, void (*found)(struct egress_conn *));
