/*
 * The client of the egress bench: keep-alive HTTPS GETs over a number of connections, the same
 * program straight to the server, through our egress and through a peer's proxy.
 *
 *   bench_load URL CONNECTIONS REQUESTS CAFILE [--resolve HOST:PORT:ADDRESS] [--proxy URL]
 * prints one line: requests, seconds, connections made, p50 and p99 in microseconds.
 */
#include <curl/curl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct load {
    CURLM *multi;
    long started;
    long finished;
    long wanted;
    long connections_made;
    size_t expected_bytes;
    int64_t *latencies_us;
};

static size_t discard(char *data, size_t size, size_t count, void *ctx)
{
    (void)data;
    *(size_t *)ctx += size * count;
    return size * count;
}

static void die(const char *what, const char *why) __attribute__((noreturn));
static void die(const char *what, const char *why)
{
    fprintf(stderr, "bench_load: %s: %s\n", what, why);
    exit(1);
}

static void start_next(struct load *load, CURL *easy)
{
    size_t *bytes = NULL;
    curl_easy_getinfo(easy, CURLINFO_PRIVATE, (char **)&bytes);
    *bytes = 0;
    load->started++;
    curl_multi_add_handle(load->multi, easy);
}

static void finish(struct load *load, CURL *easy, CURLcode result)
{
    long status = 0;
    long connects = 0;
    curl_off_t total_us = 0;
    size_t *bytes = NULL;
    curl_easy_getinfo(easy, CURLINFO_RESPONSE_CODE, &status);
    curl_easy_getinfo(easy, CURLINFO_NUM_CONNECTS, &connects);
    curl_easy_getinfo(easy, CURLINFO_TOTAL_TIME_T, &total_us);
    curl_easy_getinfo(easy, CURLINFO_PRIVATE, (char **)&bytes);
    if (result != CURLE_OK)
        die("request failed", curl_easy_strerror(result));
    if (status != 200)
        die("request failed", "the status is not 200");
    if (load->expected_bytes == 0)
        load->expected_bytes = *bytes;
    if (*bytes != load->expected_bytes || *bytes == 0)
        die("request failed", "the body has another length");
    load->latencies_us[load->finished++] = total_us;
    load->connections_made += connects;
    curl_multi_remove_handle(load->multi, easy);
    if (load->started < load->wanted)
        start_next(load, easy);
}

static int compare(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a;
    int64_t y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

static CURL *make_easy(char **argv, struct curl_slist *resolve, const char *proxy)
{
    CURL *easy = curl_easy_init();
    size_t *bytes = calloc(1, sizeof(*bytes));
    if (!easy || !bytes)
        die("no memory", "for a connection");
    curl_easy_setopt(easy, CURLOPT_URL, argv[1]);
    curl_easy_setopt(easy, CURLOPT_CAINFO, argv[4]);
    curl_easy_setopt(easy, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
    curl_easy_setopt(easy, CURLOPT_SSLVERSION, (long)CURL_SSLVERSION_TLSv1_3);
    curl_easy_setopt(easy, CURLOPT_TLS13_CIPHERS, "TLS_AES_128_GCM_SHA256");
    curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, discard);
    curl_easy_setopt(easy, CURLOPT_WRITEDATA, bytes);
    curl_easy_setopt(easy, CURLOPT_PRIVATE, bytes);
    curl_easy_setopt(easy, CURLOPT_RESOLVE, resolve);
    curl_easy_setopt(easy, CURLOPT_PROXY, proxy ? proxy : "");
    curl_easy_setopt(easy, CURLOPT_TIMEOUT, 60L);
    return easy;
}

int main(int argc, char **argv)
{
    if (argc < 5)
        die("usage", "bench_load URL CONNECTIONS REQUESTS CAFILE [--resolve R] [--proxy P]");
    long connections = atol(argv[2]);
    struct load load = {.multi = curl_multi_init(), .wanted = atol(argv[3])};
    struct curl_slist *resolve = NULL;
    const char *proxy = NULL;
    for (int i = 5; i + 1 < argc; i += 2) {
        if (strcmp(argv[i], "--resolve") == 0)
            resolve = curl_slist_append(resolve, argv[i + 1]);
        else if (strcmp(argv[i], "--proxy") == 0)
            proxy = argv[i + 1];
    }
    load.latencies_us = calloc((size_t)load.wanted, sizeof(int64_t));
    if (!load.latencies_us)
        die("no memory", "for the latencies");
    curl_multi_setopt(load.multi, CURLMOPT_MAXCONNECTS, connections);
    curl_multi_setopt(load.multi, CURLMOPT_PIPELINING, (long)CURLPIPE_NOTHING);
    for (long i = 0; i < connections && i < load.wanted; i++)
        start_next(&load, make_easy(argv, resolve, proxy));
    struct timespec from;
    struct timespec to;
    clock_gettime(CLOCK_MONOTONIC, &from);
    while (load.finished < load.wanted) {
        int running;
        int left;
        curl_multi_perform(load.multi, &running);
        for (CURLMsg *message; (message = curl_multi_info_read(load.multi, &left));)
            if (message->msg == CURLMSG_DONE)
                finish(&load, message->easy_handle, message->data.result);
        if (load.finished < load.wanted)
            curl_multi_poll(load.multi, NULL, 0, 1000, NULL);
    }
    clock_gettime(CLOCK_MONOTONIC, &to);
    double seconds = (double)(to.tv_sec - from.tv_sec) + (double)(to.tv_nsec - from.tv_nsec) / 1e9;
    qsort(load.latencies_us, (size_t)load.finished, sizeof(int64_t), compare);
    printf("%ld %.3f %ld %lld %lld\n", load.finished, seconds, load.connections_made,
           (long long)load.latencies_us[load.finished / 2],
           (long long)load.latencies_us[load.finished * 99 / 100]);
    return 0;
}
