/*
 * The client of the egress bench: the same program straight to the server, through our egress and
 * through a peer. Prints one JSON object.
 *
 *   bench_client load URL CONNECTIONS REQUESTS [OPTION...]   keep-alive GETs, each with a 200 and a
 * body bench_client fresh URL COUNT [OPTION...]      each GET over a connection and to a host of
 * its own:
 *                                                 "@" in URL becomes random letters
 *   bench_client bulk URL BYTES [OPTION...]       one GET of so many bytes
 *   bench_client put URL BYTES [OPTION...]        one PUT of so many bytes
 *   bench_client events URL [OPTION...]           how late each event of bench_origin comes
 *   bench_client idle URL CONNECTIONS [OPTION...] a GET on each, then holds them until stdin ends
 * Options: --ca FILE, --to ADDRESS[:PORT] (connect there), --proxy URL, --http2
 */
#include <curl/curl.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

struct options {
    const char *url;
    const char *ca;
    const char *proxy;
    struct curl_slist *to;
    long http;
};

/* What is measured of the requests of a run, in microseconds. */
struct samples {
    int64_t *us;
    long count;
    long size;
};

static void die(const char *what, const char *why) __attribute__((noreturn));
static void die(const char *what, const char *why)
{
    fprintf(stderr, "bench_client: %s: %s\n", what, why);
    exit(1);
}

static void check(CURLcode result, const char *what)
{
    if (result != CURLE_OK)
        die(what, curl_easy_strerror(result));
}

static int64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static long to_count(const char *text)
{
    char *end;
    long value = strtol(text, &end, 10);
    if (*end || value <= 0)
        die(text, "not a number above zero");
    return value;
}

static void add_sample(struct samples *samples, int64_t us)
{
    if (samples->count == samples->size) {
        samples->size = samples->size ? 2 * samples->size : 1024;
        samples->us = realloc(samples->us, (size_t)samples->size * sizeof(*samples->us));
        if (!samples->us)
            die("no memory", "for the samples");
    }
    samples->us[samples->count++] = us;
}

static int compare(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a;
    int64_t y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

static void print_samples(struct samples *samples, int64_t started_ns, long connections)
{
    if (samples->count == 0)
        die("nothing", "was measured");
    qsort(samples->us, (size_t)samples->count, sizeof(*samples->us), compare);
    printf("{\"count\": %ld, \"seconds\": %.6f, \"connections\": %ld, \"p50_us\": %" PRId64
           ", \"p99_us\": %" PRId64 "}\n",
           samples->count, (double)(now_ns() - started_ns) / 1e9, connections,
           samples->us[samples->count / 2], samples->us[samples->count * 99 / 100]);
}

static size_t count_bytes(char *data, size_t size, size_t count, void *ctx)
{
    (void)data;
    *(int64_t *)ctx += (int64_t)(size * count);
    return size * count;
}

/* A handle whose body's bytes are counted in *bytes, which is its CURLOPT_PRIVATE. */
static CURL *make_easy(const struct options *options, int64_t *bytes)
{
    CURL *easy = curl_easy_init();
    if (!easy || !bytes)
        die("no memory", "for a request");
    curl_easy_setopt(easy, CURLOPT_URL, options->url);
    curl_easy_setopt(easy, CURLOPT_CAINFO, options->ca);
    curl_easy_setopt(easy, CURLOPT_HTTP_VERSION, options->http);
    curl_easy_setopt(easy, CURLOPT_SSLVERSION, (long)CURL_SSLVERSION_TLSv1_3);
    curl_easy_setopt(easy, CURLOPT_TLS13_CIPHERS, "TLS_AES_128_GCM_SHA256");
    curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, count_bytes);
    curl_easy_setopt(easy, CURLOPT_WRITEDATA, bytes);
    curl_easy_setopt(easy, CURLOPT_PRIVATE, bytes);
    curl_easy_setopt(easy, CURLOPT_CONNECT_TO, options->to);
    curl_easy_setopt(easy, CURLOPT_PROXY, options->proxy ? options->proxy : "");
    curl_easy_setopt(easy, CURLOPT_TIMEOUT, 300L);
    return easy;
}

/* Of a request that ended well: a 200, over the protocol that was asked for, with a body. */
static void check_answer(const struct options *options, CURL *easy)
{
    long status = 0;
    long version = 0;
    int64_t *bytes = NULL;
    curl_easy_getinfo(easy, CURLINFO_RESPONSE_CODE, &status);
    curl_easy_getinfo(easy, CURLINFO_HTTP_VERSION, &version);
    curl_easy_getinfo(easy, CURLINFO_PRIVATE, (char **)&bytes);
    if (status != 200)
        die("a request failed", "its status is not 200");
    if ((version == CURL_HTTP_VERSION_2_0) != (options->http != CURL_HTTP_VERSION_1_1))
        die("a request failed", "it went over the other version of HTTP");
    if (*bytes == 0)
        die("a request failed", "its answer has no body");
}

/* ------------------------------------------------------------------------------------------ load
 */

struct load {
    const struct options *options;
    CURLM *multi;
    long started;
    long wanted;
    long connections_made;
    int64_t expected_bytes;
    struct samples samples;
};

static void start_next(struct load *load, CURL *easy)
{
    int64_t *bytes = NULL;
    curl_easy_getinfo(easy, CURLINFO_PRIVATE, (char **)&bytes);
    *bytes = 0;
    load->started++;
    curl_multi_add_handle(load->multi, easy);
}

static void finish(struct load *load, CURL *easy, CURLcode result)
{
    long connects = 0;
    curl_off_t total_us = 0;
    int64_t *bytes = NULL;
    check(result, "a request failed");
    check_answer(load->options, easy);
    curl_easy_getinfo(easy, CURLINFO_NUM_CONNECTS, &connects);
    curl_easy_getinfo(easy, CURLINFO_TOTAL_TIME_T, &total_us);
    curl_easy_getinfo(easy, CURLINFO_PRIVATE, (char **)&bytes);
    if (load->expected_bytes == 0)
        load->expected_bytes = *bytes;
    if (*bytes != load->expected_bytes)
        die("a request failed", "its body has another length than the first");
    add_sample(&load->samples, total_us);
    load->connections_made += connects;
    curl_multi_remove_handle(load->multi, easy);
    if (load->started < load->wanted)
        start_next(load, easy);
}

static void run_load(const struct options *options, long connections, long requests, bool holds)
{
    struct load load = {.options = options, .multi = curl_multi_init(), .wanted = requests};
    int64_t *bytes = calloc((size_t)connections, sizeof(*bytes));
    curl_multi_setopt(load.multi, CURLMOPT_MAXCONNECTS, connections);
    curl_multi_setopt(load.multi, CURLMOPT_PIPELINING, (long)CURLPIPE_NOTHING);
    int64_t started = now_ns();
    for (long i = 0; i < connections && i < requests; i++)
        start_next(&load, make_easy(options, &bytes[i]));
    while (load.samples.count < load.wanted) {
        int running;
        int left;
        curl_multi_perform(load.multi, &running);
        for (CURLMsg *message; (message = curl_multi_info_read(load.multi, &left));)
            if (message->msg == CURLMSG_DONE)
                finish(&load, message->easy_handle, message->data.result);
        if (load.samples.count < load.wanted)
            curl_multi_poll(load.multi, NULL, 0, 1000, NULL);
    }
    print_samples(&load.samples, started, load.connections_made);
    fflush(stdout);
    char byte;
    while (holds && read(STDIN_FILENO, &byte, 1) > 0)
        continue;
}

/* ----------------------------------------------------------------------------------------- fresh
 */

/* The URL with its "@" replaced; the caller frees. */
static char *random_url(const char *url)
{
    uint64_t name;
    char *text = NULL;
    const char *at = strchr(url, '@');
    if (!at || getrandom(&name, sizeof(name), 0) != sizeof(name) ||
        asprintf(&text, "%.*s%016" PRIx64 "%s", (int)(at - url), url, name, at + 1) < 0)
        die(url, "has no @, or there is no memory");
    return text;
}

static void run_fresh(const struct options *options, long count)
{
    struct samples samples = {0};
    int64_t started = now_ns();
    for (long i = 0; i < count; i++) {
        int64_t bytes = 0;
        curl_off_t total_us = 0;
        char *url = random_url(options->url);
        CURL *easy = make_easy(options, &bytes);
        curl_easy_setopt(easy, CURLOPT_URL, url);
        check(curl_easy_perform(easy), "a request to a new host failed");
        check_answer(options, easy);
        curl_easy_getinfo(easy, CURLINFO_TOTAL_TIME_T, &total_us);
        add_sample(&samples, total_us);
        curl_easy_cleanup(easy);
        free(url);
    }
    print_samples(&samples, started, count);
}

/* ------------------------------------------------------------------------------------------ bulk
 */

static size_t give_bytes(char *data, size_t size, size_t count, void *ctx)
{
    int64_t *left = ctx;
    size_t most = size * count;
    if ((int64_t)most > *left)
        most = (size_t)*left;
    memset(data, 'x', most);
    *left -= (int64_t)most;
    return most;
}

static void run_bulk(const struct options *options, int64_t wanted, bool puts)
{
    struct samples samples = {0};
    int64_t bytes = 0;
    int64_t left = wanted;
    curl_off_t sent = 0;
    CURL *easy = make_easy(options, &bytes);
    struct curl_slist *headers = curl_slist_append(NULL, "expect:");
    curl_easy_setopt(easy, CURLOPT_BUFFERSIZE, 128L * 1024);
    curl_easy_setopt(easy, CURLOPT_UPLOAD_BUFFERSIZE, 128L * 1024);
    if (puts) {
        curl_easy_setopt(easy, CURLOPT_UPLOAD, 1L);
        curl_easy_setopt(easy, CURLOPT_INFILESIZE_LARGE, (curl_off_t)wanted);
        curl_easy_setopt(easy, CURLOPT_READFUNCTION, give_bytes);
        curl_easy_setopt(easy, CURLOPT_READDATA, &left);
        curl_easy_setopt(easy, CURLOPT_HTTPHEADER, headers);
    }
    int64_t started = now_ns();
    check(curl_easy_perform(easy), "the transfer failed");
    check_answer(options, easy);
    curl_easy_getinfo(easy, CURLINFO_SIZE_UPLOAD_T, &sent);
    if ((puts ? (int64_t)sent : bytes) != wanted)
        die("the transfer failed", "another number of bytes was moved");
    add_sample(&samples, (now_ns() - started) / 1000);
    print_samples(&samples, started, 1);
}

/* ---------------------------------------------------------------------------------------- events
 */

struct events {
    char line[64]; /* of the event that is being read */
    size_t len;
    struct samples samples;
};

/* Lines "data: NANOSECONDS", the clock of the moment of sending. */
static size_t on_events(char *data, size_t size, size_t count, void *ctx)
{
    struct events *events = ctx;
    int64_t now = now_ns();
    for (size_t i = 0; i < size * count; i++) {
        if (data[i] != '\n') {
            if (events->len < sizeof(events->line) - 1)
                events->line[events->len++] = data[i];
            continue;
        }
        events->line[events->len] = '\0';
        if (strncmp(events->line, "data: ", 6) == 0)
            add_sample(&events->samples, (now - strtoll(events->line + 6, NULL, 10)) / 1000);
        events->len = 0;
    }
    return size * count;
}

static void run_events(const struct options *options)
{
    struct events events = {0};
    int64_t bytes = 1; /* what comes is counted in events */
    CURL *easy = make_easy(options, &bytes);
    curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, on_events);
    curl_easy_setopt(easy, CURLOPT_WRITEDATA, &events);
    int64_t started = now_ns();
    check(curl_easy_perform(easy), "the stream failed");
    check_answer(options, easy);
    print_samples(&events.samples, started, 1);
}

/* ---------------------------------------------------------------------------------------------- */

static void read_options(struct options *options, char **at)
{
    for (; *at; at++) {
        if (strcmp(*at, "--http2") == 0) {
            options->http = CURL_HTTP_VERSION_2TLS;
            continue;
        }
        if (!at[1])
            die(*at, "no such option, or no value for it");
        if (strcmp(*at, "--ca") == 0) {
            options->ca = *++at;
        } else if (strcmp(*at, "--proxy") == 0) {
            options->proxy = *++at;
        } else if (strcmp(*at, "--to") == 0) {
            char *text = NULL;
            if (asprintf(&text, "::%s", *++at) < 0)
                die("no memory", "for an option");
            options->to = curl_slist_append(options->to, text);
        } else {
            die(*at, "no such option");
        }
    }
}

int main(int argc, char **argv)
{
    struct options options = {.http = CURL_HTTP_VERSION_1_1};
    const char *mode = argc > 2 ? argv[1] : "";
    bool has_number = argc > 3 && strncmp(argv[3], "--", 2) != 0;
    bool is_load = strcmp(mode, "load") == 0 && argc > 4;
    options.url = argv[argc > 2 ? 2 : 0];
    read_options(&options, argv + (argc > 2 ? 3 : argc) + has_number + is_load);
    if (is_load)
        run_load(&options, to_count(argv[3]), to_count(argv[4]), false);
    else if (strcmp(mode, "idle") == 0 && has_number)
        run_load(&options, to_count(argv[3]), to_count(argv[3]), true);
    else if (strcmp(mode, "fresh") == 0 && has_number)
        run_fresh(&options, to_count(argv[3]));
    else if (strcmp(mode, "bulk") == 0 && has_number)
        run_bulk(&options, to_count(argv[3]), false);
    else if (strcmp(mode, "put") == 0 && has_number)
        run_bulk(&options, to_count(argv[3]), true);
    else if (strcmp(mode, "events") == 0)
        run_events(&options);
    else
        die("usage", "bench_client MODE URL ...; see the top of client.c");
    return 0;
}
