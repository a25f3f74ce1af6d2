/* Bodies of requests, by length or chunked. Runs in api on a client's bytes. Invariant: never more
 * than the route's limit is kept, nor more framing around it than HTTP_FRAMING_BYTES allows. The
 * framing was settled by head.c; llhttp, in its strict build, decodes the chunks. */
#include <assert.h>
#include <string.h>

#include "http/connection.h"

/* Chunk sizes, extensions and trailers around a body: a chunk of one byte has five bytes more. */
#define HTTP_FRAMING_BYTES(body_max) (8 * (body_max) + 65536)

/* Keeps the bytes, or gives them on. */
static int http_body_take(struct http_exchange *exchange, const char *data, size_t len)
{
    if (!exchange->is_body_streamed)
        return buf_append(&exchange->body, data, len);
    const struct http_config *config = http_server_config(exchange->connection->server);
    if (!config->handler->on_body_data(config->ctx, exchange, data, len))
        exchange->is_body_paused = true;
    exchange->chunked_bytes = 0; /* the framing is counted between two pieces */
    return 0;
}

static int http_on_chunk_data(llhttp_t *parser, const char *data, size_t len)
{
    struct http_exchange *exchange = parser->data;
    if (http_body_take(exchange, data, len) == 0)
        return 0;
    exchange->is_too_large = true;
    return HPE_USER;
}

static int http_on_chunks_complete(llhttp_t *parser)
{
    (void)parser;
    return HPE_PAUSED; /* what follows is the next request, not ours to parse here */
}

void http_body_begin(struct http_exchange *exchange)
{
    static const char head[] = "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n";
    static llhttp_settings_t settings;
    llhttp_settings_init(&settings);
    settings.on_body = http_on_chunk_data;
    settings.on_message_complete = http_on_chunks_complete;
    exchange->chunked_bytes = 0;
    exchange->body_bytes = 0;
    llhttp_init(&exchange->chunks, HTTP_REQUEST, &settings);
    exchange->chunks.data = exchange;
    if (exchange->head.is_chunked) {
        llhttp_errno_t error = llhttp_execute(&exchange->chunks, head, sizeof(head) - 1);
        assert(error == HPE_OK); /* our own bytes */
    }
}

static int http_chunks_read(struct http_exchange *exchange, struct buf *in)
{
    if (in->len == 0)
        return 0;
    llhttp_errno_t error = llhttp_execute(&exchange->chunks, in->data, in->len);
    if (error == HPE_PAUSED) {
        const char *end = llhttp_get_error_pos(&exchange->chunks);
        buf_consume(in, (size_t)(end - in->data));
        return 1;
    }
    if (exchange->is_too_large)
        return 413;
    if (error != HPE_OK)
        return 400;
    exchange->chunked_bytes += in->len;
    buf_clear(in);
    return exchange->chunked_bytes > HTTP_FRAMING_BYTES(exchange->body.max) ? 400 : 0;
}

bool http_body_is_coming(const struct http_exchange *exchange)
{
    return exchange->head.is_chunked || exchange->head.content_length > 0;
}

int http_body_read(struct http_exchange *exchange, struct buf *in)
{
    if (exchange->head.is_chunked)
        return http_chunks_read(exchange, in);
    int64_t length = exchange->head.content_length > 0 ? exchange->head.content_length : 0;
    int64_t missing = length - exchange->body_bytes;
    size_t take = missing < (int64_t)in->len ? (size_t)missing : in->len;
    if (take && http_body_take(exchange, in->data, take) < 0)
        return 503; /* no memory: the length was checked against the limit */
    exchange->body_bytes += (int64_t)take;
    if (take)
        buf_consume(in, take);
    return exchange->body_bytes == length;
}
