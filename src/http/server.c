/* The listeners and the list of connections; see server.h. Runs in api. */
#include "http/server.h"

#include <stdlib.h>

#include "http/connection.h"

#define HTTP_LISTENERS 8
#define HTTP_BACKLOG 511

struct http_listener {
    struct http_server *server;
    bool is_tcp;
    union {
        uv_stream_t stream;
        uv_tcp_t tcp;
        uv_pipe_t pipe;
        uv_handle_t any;
    };
};

struct http_server {
    uv_loop_t *loop;
    struct http_config config;
    struct http_listener listeners[HTTP_LISTENERS];
    size_t listener_count;
    size_t open_listeners;
    struct http_connection *connections;
    size_t connection_count;
    bool is_closing;
    char scratch[HTTP_READ_BYTES];
};

const struct http_config *http_server_config(const struct http_server *server)
{
    return &server->config;
}

uv_loop_t *http_server_loop(struct http_server *server)
{
    return server->loop;
}

char *http_server_scratch(struct http_server *server)
{
    return server->scratch;
}

bool http_server_add(struct http_server *server, struct http_connection *connection)
{
    connection->next = server->connections;
    if (connection->next)
        connection->next->previous = connection;
    server->connections = connection;
    return ++server->connection_count <= server->config.max_connections;
}

static void http_server_free_when_empty(struct http_server *server)
{
    if (server->is_closing && !server->connections && server->open_listeners == 0)
        free(server);
}

void http_server_remove(struct http_server *server, struct http_connection *connection)
{
    if (connection->next)
        connection->next->previous = connection->previous;
    if (connection->previous)
        connection->previous->next = connection->next;
    else
        server->connections = connection->next;
    server->connection_count--;
    http_server_free_when_empty(server);
}

int http_server_new(uv_loop_t *loop, const struct http_config *config, struct http_server **ret,
                    struct err *err)
{
    struct http_server *server = calloc(1, sizeof(*server));
    if (!server)
        return err_set(err, ENOMEM, "out of memory");
    server->loop = loop;
    server->config = *config;
    *ret = server;
    return 0;
}

static void http_on_connection(uv_stream_t *stream, int status)
{
    struct http_listener *listener = stream->data;
    /* Without memory for it a connection cannot even be refused, and libuv would not tell of
     * another one: end, and be started again. */
    if (status == 0 && http_connection_accept(listener->server, stream, listener->is_tcp) < 0)
        abort();
}

int http_server_listen(struct http_server *server, int fd, bool is_tcp, struct err *err)
{
    if (server->listener_count == HTTP_LISTENERS)
        return err_set(err, ENOSPC, "more than %d listening sockets", HTTP_LISTENERS);
    struct http_listener *listener = &server->listeners[server->listener_count];
    listener->server = server;
    listener->is_tcp = is_tcp;
    int r;
    if (is_tcp) {
        uv_tcp_init(server->loop, &listener->tcp);
        r = uv_tcp_open(&listener->tcp, fd);
    } else {
        uv_pipe_init(server->loop, &listener->pipe, 0);
        r = uv_pipe_open(&listener->pipe, fd);
    }
    listener->stream.data = listener;
    server->listener_count++;
    server->open_listeners++;
    if (r == 0)
        r = uv_listen(&listener->stream, HTTP_BACKLOG, http_on_connection);
    return r < 0 ? err_errno(err, -r, "cannot listen on the socket") : 0;
}

static void http_on_listener_closed(uv_handle_t *handle)
{
    struct http_listener *listener = handle->data;
    listener->server->open_listeners--;
    http_server_free_when_empty(listener->server);
}

void http_server_close(struct http_server *server)
{
    server->is_closing = true;
    for (struct http_connection *at = server->connections; at; at = at->next)
        http_connection_close(at, false);
    for (size_t i = 0; i < server->listener_count; i++)
        uv_close(&server->listeners[i].any, http_on_listener_closed);
    if (server->listener_count == 0)
        http_server_free_when_empty(server);
}

const struct http_head *http_exchange_head(const struct http_exchange *exchange)
{
    return &exchange->head;
}

const struct buf *http_exchange_body(const struct http_exchange *exchange)
{
    return &exchange->body;
}

bool http_exchange_is_tcp(const struct http_exchange *exchange)
{
    return exchange->connection->is_tcp;
}

void http_exchange_set_user(struct http_exchange *exchange, void *user)
{
    exchange->user = user;
}

void *http_exchange_user(const struct http_exchange *exchange)
{
    return exchange->user;
}
