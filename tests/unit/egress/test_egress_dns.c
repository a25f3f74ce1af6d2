/* DNS: every question is answered locally, as a stub resolver expects it. */
#include <arpa/inet.h>
#include <assert.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "egress/dns.h"

#define TYPE_A 1
#define TYPE_AAAA 28

static uint8_t query[600], answer[EGRESS_DNS_ANSWER_MAX];

/* A query for a dotted name, with `extra` (EDNS) behind it. */
static size_t make_query(const char *name, unsigned type, const char *extra, size_t extra_len)
{
    memset(query, 0, sizeof(query));
    memcpy(query, "\x12\x34\x01\x10\0\1", 6);
    query[11] = extra_len ? 1 : 0;
    size_t at = 12;
    while (*name) {
        size_t label = strcspn(name, ".");
        query[at++] = (uint8_t)label;
        memcpy(query + at, name, label);
        at += label;
        name += label + (name[label] == '.');
    }
    memcpy(query + at, "\0\0\0\0\1", 5);
    query[at + 2] = (uint8_t)type;
    at += 5;
    memcpy(query + at, extra, extra_len);
    return at + extra_len;
}

/* The address in the answer as text, or "" when there is none. */
static const char *resolve(const char *name, unsigned type)
{
    static char text[INET6_ADDRSTRLEN];
    size_t len = make_query(name, type, "", 0);
    size_t size = egress_dns_answer(query, len, answer);
    assert(size >= len && memcmp(answer + 12, query + 12, len - 12) == 0);
    assert(memcmp(answer, "\x12\x34\x85\x90\0\1", 6) == 0); /* QR AA RD RA CD, NOERROR */
    text[0] = '\0';
    if (answer[7] == 0) {
        assert(size == len);
        return text;
    }
    size_t address = type == TYPE_A ? 4 : 16;
    assert(size == len + 12 + address);
    assert(memcmp(answer + len, "\xc0\x0c\0", 3) == 0 && answer[len + 3] == type);
    assert(memcmp(answer + len + 4, "\0\1\0\0\x01\x2c\0", 7) == 0 && answer[len + 11] == address);
    inet_ntop(type == TYPE_A ? AF_INET : AF_INET6, answer + len + 12, text, sizeof(text));
    return text;
}

static void test_a_name_has_one_synthetic_address(void)
{
    char first[INET6_ADDRSTRLEN];
    snprintf(first, sizeof(first), "%s", resolve("github.com", TYPE_A));
    assert(strncmp(first, "198.18.", 7) == 0 || strncmp(first, "198.19.", 7) == 0);
    assert(strcmp(first, resolve("GitHub.COM", TYPE_A)) == 0);
    assert(strcmp(first, resolve("gitlab.com", TYPE_A)) != 0);
    snprintf(first, sizeof(first), "%s", resolve("github.com", TYPE_AAAA));
    assert(strncmp(first, "fd70:6164:646f:636b::", 21) == 0);
    assert(strcmp(first, resolve("GITHUB.com", TYPE_AAAA)) == 0);
    assert(strcmp(first, resolve("gitlab.com", TYPE_AAAA)) != 0);
}

static void test_other_types_are_empty(void)
{
    static const unsigned types[] = {2, 5, 6, 12, 15, 16, 33, 65, 255};
    for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++)
        assert(resolve("secret.attacker.test", types[i])[0] == '\0');
    assert(resolve("", TYPE_A)[0] == '\0');
}

static void test_localhost_is_the_loopback(void)
{
    assert(strcmp(resolve("localhost", TYPE_A), "127.0.0.1") == 0);
    assert(strcmp(resolve("App.LocalHost", TYPE_A), "127.0.0.1") == 0);
    assert(strcmp(resolve("app.localhost", TYPE_AAAA), "::1") == 0);
    assert(strncmp(resolve("notlocalhost", TYPE_A), "198.1", 5) == 0);
    assert(strncmp(resolve("localhost.com", TYPE_A), "198.1", 5) == 0);
    assert(strncmp(resolve("x9localhost", TYPE_A), "198.1", 5) == 0);
}

static void test_the_longest_name_fits(void)
{
    char name[256];
    memset(name, 'a', sizeof(name));
    name[63] = name[127] = name[191] = '.';
    name[253] = '\0';
    assert(resolve(name, TYPE_AAAA)[0] == 'f');
    name[253] = 'a';
    name[254] = '\0'; /* 256 bytes as labels: one too many */
    size_t len = make_query(name, TYPE_A, "", 0);
    assert(egress_dns_answer(query, len, answer) == 12 && (answer[3] & 15) == 1);
}

static void test_edns_is_answered_in_kind(void)
{
    static const char opt[] = "\0\0\x29\x10\0\0\0\x80\0\0\x0c\0\x0a\0\x08"
                              "12345678";
    size_t len = make_query("github.com", TYPE_A, opt, sizeof(opt) - 1);
    size_t size = egress_dns_answer(query, len, answer);
    assert(answer[11] == 1 && (answer[3] & 15) == 0 && answer[7] == 1);
    assert(memcmp(answer + size - 11, "\0\0\x29\x04\xd0\0\0\0\0\0\0", 11) == 0);
    static const char version_1[] = "\0\0\x29\x10\0\0\1\0\0\0\0";
    len = make_query("github.com", TYPE_A, version_1, sizeof(version_1) - 1);
    size = egress_dns_answer(query, len, answer);
    assert(answer[7] == 0 && answer[size - 6] == 1 && (answer[3] & 15) == 0); /* BADVERS */
    len = make_query("github.com", TYPE_A, opt, sizeof(opt) - 2);             /* cut short */
    assert(egress_dns_answer(query, len, answer) == 12 && (answer[3] & 15) == 1);
}

static void test_what_is_no_query_is_refused_or_dropped(void)
{
    size_t len = make_query("github.com", TYPE_A, "", 0);
    for (size_t cut = 0; cut < len; cut++) {
        size_t size = egress_dns_answer(query, cut, answer);
        assert(cut < 12 ? size == 0 : size == 12 && (answer[3] & 15) == 1);
    }
    query[2] |= 0x80; /* an answer */
    assert(egress_dns_answer(query, len, answer) == 0);
    query[2] = 0x28; /* UPDATE */
    assert(egress_dns_answer(query, len, answer) == 12 && (answer[3] & 15) == 4);
    query[2] = 1;
    query[5] = 2; /* two questions */
    assert(egress_dns_answer(query, len, answer) == 12 && (answer[3] & 15) == 1);
    query[5] = 1;
    query[12] = 0xc0; /* a pointer in the question */
    assert(egress_dns_answer(query, len, answer) == 12 && (answer[3] & 15) == 1);
    query[12] = 0x40; /* a label of 64 bytes */
    assert(egress_dns_answer(query, len, answer) == 12 && (answer[3] & 15) == 1);
}

int main(void)
{
    test_a_name_has_one_synthetic_address();
    test_other_types_are_empty();
    test_localhost_is_the_loopback();
    test_the_longest_name_fits();
    test_edns_is_answered_in_kind();
    test_what_is_no_query_is_refused_or_dropped();
    return 0;
}
