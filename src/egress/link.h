/*
 * What the parts of the way out share; nothing for others. An origin is where requests may go: a
 * host, how it is reached and whom it must be trusted by. It has links (connections), kept when
 * they are idle, and exchanges that wait for one. A link speaks HTTP/1.1 or HTTP/2, as its
 * handshake found. upstream.c: origins and exchanges; link.c: a link's life and bytes; link_h1.c,
 * link_h2.c.
 */
#pragma once

#include <nghttp2/nghttp2.h>
#include <openssl/ssl.h>

#include "egress/dial.h"
#include "egress/http1.h"
#include "egress/trust.h"
#include "egress/turn.h"
#include "egress/upstream.h"
#include "util/limits.h"

#define LINK_READ_BYTES (64 * 1024)
/* Bytes of an answer that are given at once: a client's queue has room for so many beyond its
 * limit. */
#define GIVE_BYTES ((size_t)32 * 1024)
#define ORIGIN_BUCKETS 256
/* Interim answers to one request; more are a flood. */
#define INTERIM_MAX 32

struct link;

struct origin {
    struct egress_upstreams *upstreams;
    struct origin *next; /* in its bucket */
    uint64_t owner;
    char host[POLICY_HOST_MAX];
    uint16_t port;
    char connect_host[POLICY_HOST_MAX]; /* "": the host itself */
    uint16_t connect_port;
    struct trust *trust;
    bool is_plain; /* no TLS */
    SSL_SESSION *session;
    struct link *links;
    struct egress_exchange *waiting, *waiting_last; /* for a link */
    size_t waiting_count;
    size_t exchange_count; /* all that began here: it is there as long as they are */
    size_t dialing;
    bool is_known;  /* a handshake was made */
    bool speaks_h2; /* as the last one found */
    uint64_t used_at;
};

struct egress_upstreams {
    uv_loop_t *loop;
    struct turn_queue *turns;
    uv_timer_t sweep;
    struct trust *system;
    char proxy_host[256]; /* "": none */
    uint16_t proxy_port;
    char proxy_authorization[512]; /* of "Basic", base64 */
    struct origin *buckets[ORIGIN_BUCKETS];
    size_t origin_count;
    size_t link_count;
    size_t idle_links;
    struct egress_exchange *exchanges; /* all of them */
    char scratch[LINK_READ_BYTES];     /* what was just read, of whichever link */
};

/* How a link's protocol takes part in its life. */
struct link_protocol {
    /* The handshake is done. 0 or -ENOMEM. */
    int (*open)(struct link *link);
    void (*close)(struct link *link); /* frees what open made; exchanges are told before */
    bool (*has_room)(const struct link *link);
    /* Sends the exchange's head. It is this link's from now on. */
    void (*submit)(struct link *link, struct egress_exchange *exchange);
    /* Bytes that came. False: the link is over, link_fail was called. */
    bool (*feed)(struct link *link, const char *data, size_t len);
    bool (*wants_input)(const struct link *link);
    /* Fills link->out, as far as it is sensible. False: the link is over. */
    bool (*fill)(struct link *link);
    /* The peer ended the connection, cleanly or not. */
    void (*ended)(struct link *link, bool is_clean);
    /* The link is lost: each exchange ends so. */
    void (*fail)(struct link *link, enum egress_failure failure, const char *reason);
    size_t (*write)(struct egress_exchange *exchange, const char *data, size_t len, size_t most);
    void (*write_end)(struct egress_exchange *exchange);
    void (*resume)(struct egress_exchange *exchange); /* from a turn of its own */
    void (*drop)(struct egress_exchange *exchange);   /* was cancelled */
};
extern const struct link_protocol link_h1;
extern const struct link_protocol link_h2;

enum link_phase { LINK_DIAL, LINK_TUNNEL, LINK_HANDSHAKE, LINK_OPEN, LINK_CLOSED };

struct link {
    struct egress_upstreams *upstreams;
    struct origin *origin;
    struct link *previous, *next; /* of the origin */
    enum link_phase phase;
    bool is_polling; /* the uv_poll_t is open */
    int poll_events;
    int fd;
    SSL *ssl;
    uv_poll_t poll;
    struct dial *dial;
    struct turn turn;
    uint64_t deadline; /* of the loop's clock; while it is made, or idle; 0: none */
    bool only_http1;
    bool was_used;
    bool is_idle;
    bool is_doomed;   /* is closed in its next turn; nobody waits for it */
    bool wants_write; /* TLS: reading needs the socket writable */
    struct buf in;    /* read, not yet used */
    struct buf out;
    size_t out_used;
    const struct link_protocol *protocol; /* NULL until the handshake is done */

    /* HTTP/1.1 */
    struct egress_exchange *exchange;
    int h1_state;
    struct http1_body h1_body;
    size_t h1_scanned; /* of link->in, for the end of the head */
    bool h1_keeps;

    /* HTTP/2 */
    nghttp2_session *session;
    size_t streams;
    bool is_going; /* GOAWAY came, or ids ran out: no new stream */
};

struct egress_exchange {
    struct egress_upstreams *upstreams;
    struct origin *origin;
    struct link *link;                       /* NULL: it waits for one */
    struct egress_exchange *previous, *next; /* of all */
    struct egress_exchange *next_waiting;
    const struct egress_exchange_events *events;
    void *ctx;
    struct turn turn; /* tells a failure, or frees what was cancelled */
    bool is_cancelled;

    char *text; /* what the request's texts point to; wiped */
    size_t text_len;
    const char *method;
    const char *target;
    const char *upgrade;
    struct http_field *headers;
    size_t header_count;
    enum egress_body body;
    uint64_t body_length;
    bool expects_continue;
    bool takes_trailers;
    bool is_head_request;
    bool was_sent;
    bool was_tried;       /* on a link that ended before an answer began */
    bool is_held;         /* not released yet */
    bool is_alone;        /* needs a link of its own */
    bool is_on_used_link; /* which may have been ended before the request came there */

    struct buf out; /* of the body, not yet with the link */
    size_t out_used;
    bool out_began; /* a byte of it went to a link: the request cannot be sent again */
    bool out_ended;
    bool out_was_short;  /* a write was not taken whole: `writable` is due */
    struct buf trailers; /* of the request: name NUL value NUL ... */
    size_t trailer_count;

    bool was_refused; /* by the upstream, before it looked at the request */
    bool answer_began;
    unsigned interims;
    bool is_paused;

    /* HTTP/2 */
    int32_t stream;
    struct buf in; /* DATA that was not taken yet, from in_used on */
    size_t in_used;
    bool in_ended;
    bool window_is_large;
    struct buf
        lines; /* of the head that comes: name NUL value NUL ...; its `max` is what may come */
    size_t line_count;
    int status;

    enum egress_failure failure;
    char reason[512];
};

/* origin.c */
/* The origin of such a request, made when there is none. NULL: *ret_result is -ENOMEM, or -EINVAL
 * when CA, certificate or key cannot be used. */
struct origin *origin_find(struct egress_upstreams *upstreams, const struct egress_request *request,
                           int *ret_result, struct err *err);
/* Forgets those that nobody used for so long. */
void origins_forget(struct egress_upstreams *upstreams, uint64_t idle_ms);

/* upstream.c */
/* There is a link: it is looked at as long as there are any. */
void upstreams_begin_sweep(struct egress_upstreams *upstreams);
/* A link was opened, or has room again, or somebody waits anew: who waits is sent, or dialled for.
 */
void origin_serve(struct origin *origin);
/* A link that was never open is lost; `only_http1` is what it was made for. */
void origin_dial_failed(struct origin *origin, bool only_http1, enum egress_failure failure,
                        const char *reason);
/* The exchange is over; calls back, and frees it. */
void exchange_end(struct egress_exchange *exchange, enum egress_failure failure,
                  const char *reason);
/* As the link is lost before an answer came: it is sent once more, if that cannot do harm. */
void exchange_lost(struct egress_exchange *exchange, enum egress_failure failure,
                   const char *reason);
/* As exchange_end, from the loop later: within a call. */
void exchange_end_later(struct egress_exchange *exchange, enum egress_failure failure,
                        const char *reason);
/* An interim head of so many bytes came: so many fewer may come behind it. */
void exchange_count_interim(struct egress_exchange *exchange, size_t len);
/* There is room for its body again, if somebody waits for that. */
void exchange_writable(struct egress_exchange *exchange);

/* link.c */
int link_open(struct origin *origin, bool only_http1);
void link_close(struct link *link); /* nothing is told */
/* Everything that waits for it ends, and so does it. */
void link_fail(struct link *link, enum egress_failure failure, const char *reason);
/* Its bytes are moved soon: output was added, or input is wanted again. */
void link_ask_turn(struct link *link);
/* No exchange uses it: it may be used again, or is closed. */
void link_set_idle(struct link *link, bool is_idle);
