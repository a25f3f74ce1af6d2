/*
 * One easy handle for one request. Process: paddock-egress. Invariants: nothing goes out that is
 * not in the request (no default header, no proxy or .netrc from the environment, no redirect); TLS
 * is always verified, for the request's host; each address is judged before connect(2). libcurl
 * keys its pool by host, port, CONNECT_TO and TLS settings, CAINFO_BLOB among them: a connection
 * made for a rule's upstream is never used for the host's own address.
 */
#include <netinet/in.h>
#include <openssl/ssl.h>
#include <stdlib.h>
#include <string.h>

#include "egress/address.h"
#include "egress/upstream_curl.h"
#include "util/cleanup.h"

static curl_socket_t on_open_socket(void *ctx, curlsocktype purpose, struct curl_sockaddr *address)
{
    (void)purpose;
    struct egress_exchange *exchange = ctx;
    if (!exchange->may_be_private && !egress_address_is_public(&address->addr)) {
        snprintf(
            exchange->failure, sizeof(exchange->failure),
            "the name leads to an address that is not public; the policy would have to name it "
            "as the rule's upstream");
        return CURL_SOCKET_BAD;
    }
    return socket(address->family, address->socktype | SOCK_CLOEXEC | SOCK_NONBLOCK,
                  address->protocol);
}

/* libcurl 7.88 takes the end of a connection without close_notify for a clean one, so that a cut
 * answer without a length would look whole. OpenSSL tells each alert to a callback of the context;
 * the note it is written to hangs on the connection (SSL_set_ex_data(3)). */
void upstream_tls_end_unref(struct tls_end *end)
{
    if (end && --end->references == 0)
        free(end);
}

static void on_ssl_free(void *parent, void *pointer, CRYPTO_EX_DATA *data, int index, long argl,
                        void *argp)
{
    (void)parent;
    (void)data;
    (void)index;
    (void)argl;
    (void)argp;
    upstream_tls_end_unref(pointer);
}

static int tls_end_index(void)
{
    static int index = -1;
    if (index < 0)
        index = SSL_get_ex_new_index(0, NULL, NULL, NULL, on_ssl_free);
    return index;
}

static void on_ssl_info(const SSL *ssl, int where, int value)
{
    struct tls_end *end = SSL_get_ex_data(ssl, tls_end_index());
    if (end && where == SSL_CB_READ_ALERT && (value & 0xff) == SSL_AD_CLOSE_NOTIFY)
        end->is_clean = true;
}

static CURLcode on_ssl_context(CURL *easy, void *context, void *ctx)
{
    (void)easy;
    (void)ctx;
    SSL_CTX_set_info_callback(context, on_ssl_info);
    SSL_CTX_set_mode(context, SSL_MODE_RELEASE_BUFFERS);
    return CURLE_OK;
}

int upstream_watch_tls_end(struct egress_exchange *exchange)
{
    struct curl_tlssessioninfo *info = NULL;
    curl_easy_getinfo(exchange->easy, CURLINFO_TLS_SSL_PTR, &info);
    if (!info || info->backend != CURLSSLBACKEND_OPENSSL || !info->internals)
        return -ENOTSUP;
    struct tls_end *end = calloc(1, sizeof(*end));
    if (!end)
        return -ENOMEM;
    if (SSL_set_ex_data(info->internals, tls_end_index(), end) != 1) {
        free(end);
        return -ENOMEM;
    }
    end->references = 2;
    exchange->tls_end = end;
    return 0;
}

static int append_line(struct curl_slist **list, const char *line)
{
    struct curl_slist *longer = curl_slist_append(*list, line);
    if (!longer)
        return -ENOMEM;
    *list = longer;
    return 0;
}

/* "name: value", or "name;", libcurl's way to write an empty value. */
static int append_header(struct egress_exchange *exchange, const struct http_field *header,
                         const char *rider)
{
    struct buf line = BUF_INIT(LIMIT_EGRESS_ANSWER_HEAD_BYTES);
    int result = buf_append(&line, header->name, header->name_len);
    if (!result && header->value_len == 0 && !*rider)
        result = buf_append_string(&line, ";");
    else if (!result)
        result = buf_append_string(&line, ": ");
    if (!result)
        result = buf_append(&line, header->value, header->value_len);
    if (!result)
        result = buf_append_string(&line, rider);
    if (!result)
        result = append_line(&exchange->headers, line.data);
    if (line.data)
        explicit_bzero(line.data, line.len);
    buf_free(&line);
    return result;
}

/* Expect rides on another header's line: libcurl acts by itself on one of its own (it repeats the
 * request after 417, and waits with a clock), while here the sandbox's client decides. */
static int append_headers(struct egress_exchange *exchange, const struct egress_request *request)
{
    static const struct http_field accept_all = {"accept", 6, "*/*", 3};
    const char *rider = request->expects_continue ? "\r\nExpect: 100-continue" : "";
    size_t count = request->header_count;
    int result = 0;
    for (size_t i = 0; i < count && !result; i++)
        result = append_header(exchange, &request->headers[i], i + 1 == count ? rider : "");
    if (!result && count == 0 && *rider)
        result = append_header(exchange, &accept_all, rider);
    /* Names without a value: libcurl leaves its own default out. */
    if (!result)
        result = append_line(&exchange->headers, "Accept:");
    if (!result)
        result = append_line(&exchange->headers, "Expect:");
    return result;
}

void upstream_easy_free_lists(struct egress_exchange *exchange)
{
    for (struct curl_slist *item = exchange->headers; item; item = item->next)
        explicit_bzero(item->data, strlen(item->data));
    curl_slist_free_all(exchange->headers);
    curl_slist_free_all(exchange->connect_to);
    exchange->headers = exchange->connect_to = NULL;
}

static void set_fixed(struct egress_exchange *exchange)
{
    CURL *easy = exchange->easy;
    curl_easy_setopt(easy, CURLOPT_PRIVATE, exchange);
    curl_easy_setopt(easy, CURLOPT_ERRORBUFFER, exchange->curl_error);
    curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(easy, CURLOPT_PROTOCOLS_STR, "https");
    curl_easy_setopt(easy, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
    curl_easy_setopt(easy, CURLOPT_FOLLOWLOCATION, 0L);
    curl_easy_setopt(easy, CURLOPT_SSL_VERIFYPEER, 1L);
    curl_easy_setopt(easy, CURLOPT_SSL_VERIFYHOST, 2L);
    curl_easy_setopt(easy, CURLOPT_SSLVERSION, (long)CURL_SSLVERSION_TLSv1_2);
    curl_easy_setopt(easy, CURLOPT_SSL_CTX_FUNCTION, on_ssl_context);
    curl_easy_setopt(easy, CURLOPT_CONNECTTIMEOUT_MS, (long)LIMIT_EGRESS_CONNECT_MS);
    curl_easy_setopt(easy, CURLOPT_TCP_KEEPALIVE, 1L);
    curl_easy_setopt(easy, CURLOPT_MAXAGE_CONN, UPSTREAM_POOL_IDLE_S);
    curl_easy_setopt(easy, CURLOPT_HEADEROPT, (long)CURLHEADER_SEPARATE);
    curl_easy_setopt(easy, CURLOPT_SUPPRESS_CONNECT_HEADERS, 1L);
    curl_easy_setopt(easy, CURLOPT_HEADERFUNCTION, upstream_on_header);
    curl_easy_setopt(easy, CURLOPT_HEADERDATA, exchange);
    curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, upstream_on_body);
    curl_easy_setopt(easy, CURLOPT_WRITEDATA, exchange);
    curl_easy_setopt(easy, CURLOPT_OPENSOCKETFUNCTION, on_open_socket);
    curl_easy_setopt(easy, CURLOPT_OPENSOCKETDATA, exchange);
}

static void set_body(struct egress_exchange *exchange, const struct egress_request *request)
{
    CURL *easy = exchange->easy;
    if (request->body != EGRESS_BODY_NONE) {
        bool is_chunked = request->body == EGRESS_BODY_CHUNKED;
        curl_easy_setopt(easy, CURLOPT_UPLOAD, 1L);
        curl_easy_setopt(easy, CURLOPT_READFUNCTION, upstream_on_read);
        curl_easy_setopt(easy, CURLOPT_READDATA, exchange);
        curl_easy_setopt(easy, CURLOPT_UPLOAD_BUFFERSIZE, 16384L); /* one TLS record, not 64 KiB */
        curl_easy_setopt(easy, CURLOPT_INFILESIZE_LARGE,
                         is_chunked ? (curl_off_t)-1 : (curl_off_t)request->body_length);
    }
    exchange->is_head_request = strcmp(request->method, "HEAD") == 0;
    if (exchange->is_head_request)
        curl_easy_setopt(easy, CURLOPT_NOBODY, 1L);
}

static int set_route(struct egress_exchange *exchange, const struct egress_request *request)
{
    CURL *easy = exchange->easy;
    const char *proxy = request->connect_host ? "" : exchange->upstreams->proxy;
    exchange->may_be_private = request->connect_host || *proxy;
    curl_easy_setopt(easy, CURLOPT_NOPROXY, "");
    if (curl_easy_setopt(easy, CURLOPT_PROXY, proxy))
        return -ENOMEM;
    if (*proxy)
        curl_easy_setopt(easy, CURLOPT_HTTPPROXYTUNNEL, 1L);
    if (request->connect_host) {
        char route[2 * POLICY_HOST_MAX + 32];
        bool is_ipv6 = strchr(request->connect_host, ':') && request->connect_host[0] != '[';
        snprintf(route, sizeof(route), "%s:%u:%s%s%s:%u", request->host, request->port,
                 is_ipv6 ? "[" : "", request->connect_host, is_ipv6 ? "]" : "",
                 request->connect_port);
        if (append_line(&exchange->connect_to, route))
            return -ENOMEM;
        curl_easy_setopt(easy, CURLOPT_CONNECT_TO, exchange->connect_to);
    }
    if (!request->ca_pem)
        return 0;
    struct curl_blob blob = {.len = request->ca_pem_len, .flags = CURL_BLOB_COPY};
    memcpy(&blob.data, &request->ca_pem, sizeof(blob.data)); /* only read, though not const */
    curl_easy_setopt(easy, CURLOPT_CAPATH, NULL);            /* that CA alone */
    return curl_easy_setopt(easy, CURLOPT_CAINFO_BLOB, &blob) ? -ENOMEM : 0;
}

int upstream_easy_prepare(struct egress_exchange *exchange, const struct egress_request *request,
                          struct err *err)
{
    CURL *easy = exchange->easy;
    char url[POLICY_HOST_MAX + 32];
    snprintf(url, sizeof(url), "https://%s:%u/", request->host, request->port);
    set_fixed(exchange);
    set_body(exchange, request);
    if (curl_easy_setopt(easy, CURLOPT_URL, url) ||
        curl_easy_setopt(easy, CURLOPT_REQUEST_TARGET, request->target) ||
        curl_easy_setopt(easy, CURLOPT_CUSTOMREQUEST, request->method) ||
        append_headers(exchange, request) || set_route(exchange, request))
        return err_set(err, ENOMEM, "out of memory for a request to %s", request->host);
    curl_easy_setopt(easy, CURLOPT_HTTPHEADER, exchange->headers);
    return 0;
}
