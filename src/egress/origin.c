/*
 * Where requests go: found by sandbox, host, route, and what each side must show the other.
 * Process: paddock-egress. Invariant: two requests share an origin, and so its links, only when all
 * of that is the same. What one sandbox makes an upstream think of its connection (a flood that
 * ends it, a window that is used up, an answer too many, NTLM) never meets another's requests.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "egress/link.h"

/* Hosts that are remembered, without a link. */
#define ORIGINS_MAX 4096

static unsigned bucket_of(const struct egress_request *request)
{
    uint32_t hash = 2166136261U; /* FNV-1a */
    for (const char *at = request->host; *at; at++)
        hash = (hash ^ (unsigned char)*at) * 16777619U;
    return (unsigned)((hash ^ request->port ^ request->owner) % ORIGIN_BUCKETS);
}

static bool origin_is_of(const struct origin *origin, const struct egress_request *request)
{
    const char *connect_host = request->connect_host ? request->connect_host : "";
    return origin->owner == request->owner && origin->port == request->port &&
           strcmp(origin->host, request->host) == 0 &&
           strcmp(origin->connect_host, connect_host) == 0 &&
           (!*connect_host || origin->connect_port == request->connect_port) &&
           origin->is_plain == request->is_plain && trust_is_of(origin->trust, &request->trust);
}

/* The trust of another origin with the same CA and certificate, or a new one. */
static struct trust *find_trust(struct egress_upstreams *upstreams,
                                const struct egress_request *request, struct err *err)
{
    if (trust_is_of(upstreams->system, &request->trust))
        return trust_ref(upstreams->system);
    for (size_t i = 0; i < ORIGIN_BUCKETS; i++)
        for (struct origin *origin = upstreams->buckets[i]; origin; origin = origin->next)
            if (trust_is_of(origin->trust, &request->trust))
                return trust_ref(origin->trust);
    struct trust *trust = NULL;
    return trust_open(&request->trust, &trust, err) ? NULL : trust;
}

static void origin_free(struct origin *origin)
{
    SSL_SESSION_free(origin->session);
    trust_unref(origin->trust);
    origin->upstreams->origin_count--;
    free(origin);
}

void origins_forget(struct egress_upstreams *upstreams, uint64_t idle_ms)
{
    uint64_t now = uv_now(upstreams->loop);
    for (size_t i = 0; i < ORIGIN_BUCKETS; i++) {
        struct origin **at = &upstreams->buckets[i];
        while (*at) {
            struct origin *origin = *at;
            if (origin->links || origin->exchange_count || now - origin->used_at < idle_ms) {
                at = &origin->next;
                continue;
            }
            *at = origin->next;
            origin_free(origin);
        }
    }
}

static struct origin *origin_make(struct egress_upstreams *upstreams,
                                  const struct egress_request *request, int *ret_result,
                                  struct err *err)
{
    if (upstreams->origin_count >= ORIGINS_MAX)
        origins_forget(upstreams, 0);
    struct origin *origin = calloc(1, sizeof(*origin));
    if (!origin) {
        *ret_result = err_set(err, ENOMEM, "out of memory for an upstream");
        return NULL;
    }
    origin->upstreams = upstreams;
    origin->owner = request->owner;
    origin->port = request->port;
    origin->connect_port = request->connect_port;
    origin->is_plain = request->is_plain;
    snprintf(origin->host, sizeof(origin->host), "%s", request->host);
    if (request->connect_host)
        snprintf(origin->connect_host, sizeof(origin->connect_host), "%s", request->connect_host);
    origin->trust = find_trust(upstreams, request, err);
    if (!origin->trust) {
        free(origin);
        *ret_result = -EINVAL;
        return NULL;
    }
    unsigned bucket = bucket_of(request);
    origin->next = upstreams->buckets[bucket];
    upstreams->buckets[bucket] = origin;
    upstreams->origin_count++;
    return origin;
}

struct origin *origin_find(struct egress_upstreams *upstreams, const struct egress_request *request,
                           int *ret_result, struct err *err)
{
    struct origin *origin = upstreams->buckets[bucket_of(request)];
    while (origin && !origin_is_of(origin, request))
        origin = origin->next;
    if (!origin)
        origin = origin_make(upstreams, request, ret_result, err);
    if (origin)
        origin->used_at = uv_now(upstreams->loop);
    return origin;
}
