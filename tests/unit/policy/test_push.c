/* The promises of policy_push_read: which pushes a rule lets through, read in pieces of any size,
 * and what git is told of the others. */
#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "load.h"
#include "util/cleanup.h"
#include "util/limits.h"

#define ZERO "0000000000000000000000000000000000000000"
#define A "1111111111111111111111111111111111111111"
#define B "abcdefABCDEF1111111111111111111111111111"
#define LONG_A A "111111111111111111111111"
#define CAPS "\0 report-status-v2 side-band-64k object-format=sha1 agent=git/2.39.5"
#define PLAIN "\0report-status"

static const char rules[] =
    "{\"rules\": [{\"name\": \"hub\", \"host\": \"a.test\", \"git\": {\"push\": true, "
    "\"branches\": [\"agent/*\", \"exact\"]}},"
    "{\"host\": \"b.test\", \"git\": {\"push\": true, \"tags\": [\"v*\"], \"branches\": [\"*\"], "
    "\"delete\": true}},"
    "{\"host\": \"c.test\", \"git\": {\"push\": true, \"tags\": [\"v*\"]}}]}";

/* A packet of a line that may hold NULs: ends at the literal's end. */
#define LINE(text)                                                                                 \
    {                                                                                              \
        text, sizeof(text) - 1                                                                     \
    }
#define FLUSH                                                                                      \
    {                                                                                              \
        NULL, 0                                                                                    \
    }

struct line {
    const char *text;
    size_t len;
};

static void put_line(struct buf *body, const struct line *line)
{
    if (!line->text) {
        assert(buf_append_string(body, "0000") == 0);
        return;
    }
    assert(buf_appendf(body, "%04zx", line->len + 4) == 0);
    assert(buf_append(body, line->text, line->len) == 0);
}

/* Reads the body in pieces; the state must be the same whatever their size. */
static struct policy_push read_push(const struct policy_rule *rule, const struct buf *body,
                                    size_t piece)
{
    struct policy_push push = {0};
    for (size_t len = 0; push.state == POLICY_PUSH_MORE;) {
        len = body->len - len < piece ? body->len : len + piece;
        policy_push_read(&push, rule, buf_text(body), len, len == body->len);
    }
    return push;
}

struct push_case {
    size_t rule;
    struct line lines[5];
    enum policy_push_state state;
    const char *reason;
};

static void check_case(const struct policy *policy, const struct push_case *test)
{
    static const size_t pieces[] = {1, 3, 100, 100000};
    cleanup_buf struct buf body = BUF_INIT(1 << 20);
    for (size_t i = 0;
         i < ARRAY_LEN(test->lines) && (test->lines[i].text || i == 0 || test->lines[i - 1].text);
         i++)
        put_line(&body, &test->lines[i]);
    size_t list_len = body.len;
    assert(buf_append_string(&body, "PACK 0000 is not read any more") == 0);
    for (size_t i = 0; i < ARRAY_LEN(pieces); i++) {
        struct policy_push push = read_push(policy_rule_at(policy, test->rule), &body, pieces[i]);
        if (push.state != test->state || !strstr(push.reason, test->reason))
            fprintf(stderr, "%s: %d %s\n", test->lines[0].text, push.state, push.reason);
        assert(push.state == test->state && strstr(push.reason, test->reason));
        assert(!strpbrk(push.reason, "\r\n"));
        assert(push.state == POLICY_PUSH_UNREADABLE || push.read == list_len);
        assert((push.state == POLICY_PUSH_ALLOWED) == !push.reason[0]);
    }
}

static void test_what_may_be_pushed(void)
{
    static const struct push_case cases[] = {
        {0, {LINE(ZERO " " A " refs/heads/agent/x" CAPS)}, POLICY_PUSH_ALLOWED, ""},
        {0, {LINE(A " " B " refs/heads/exact\n")}, POLICY_PUSH_ALLOWED, ""},
        {0, {LINE(A " " B " refs/heads/agent/a/b\0caps\n")}, POLICY_PUSH_ALLOWED, ""},
        {0,
         {LINE("shallow " A), LINE("shallow " B "\n"), LINE(ZERO " " A " refs/heads/agent/x" CAPS)},
         POLICY_PUSH_ALLOWED,
         ""},
        {0,
         {LINE(LONG_A " " LONG_A " refs/heads/exact" CAPS),
          LINE(LONG_A " " LONG_A " refs/heads/agent/1")},
         POLICY_PUSH_ALLOWED,
         ""},
        {0, {FLUSH}, POLICY_PUSH_ALLOWED, ""}, /* git's probe before a large push */
        {0,
         {LINE(ZERO " " A " refs/heads/main" CAPS)},
         POLICY_PUSH_REFUSED,
         "refs/heads/main may not be changed from this sandbox (rule hub)"},
        {0,
         {LINE(ZERO " " A " refs/heads/agent/x" CAPS), LINE(A " " B " refs/heads/exact2"),
          LINE(A " " B " refs/heads/main")},
         POLICY_PUSH_REFUSED,
         "refs/heads/exact2 may not"},
        {0, {LINE(A " " ZERO " refs/heads/agent/x" CAPS)}, POLICY_PUSH_REFUSED, "deleted"},
        {0, {LINE(ZERO " " A " refs/tags/agent/x" CAPS)}, POLICY_PUSH_REFUSED, "changed"},
        {0, {LINE(ZERO " " A " refs/heads/agent" CAPS)}, POLICY_PUSH_REFUSED, "changed"},
        {0, {LINE(ZERO " " A " refs/heads/Agent/x" CAPS)}, POLICY_PUSH_REFUSED, "changed"},
        {0, {LINE(ZERO " " A " refs/for/main" CAPS)}, POLICY_PUSH_REFUSED, "changed"},
        {0, {LINE(ZERO " " A " agent/x" CAPS)}, POLICY_PUSH_REFUSED, "changed"},
        {0, {LINE(ZERO " " A " HEAD" CAPS)}, POLICY_PUSH_REFUSED, "changed"},
        {0, {LINE(ZERO " " A " refs/heads/agent/../main")}, POLICY_PUSH_REFUSED, "no name"},
        {0, {LINE(ZERO " " A " refs/heads/agent//x")}, POLICY_PUSH_REFUSED, "no name"},
        {0, {LINE(ZERO " " A " refs/heads/agent/x ")}, POLICY_PUSH_REFUSED, "no name"},
        {0, {LINE(ZERO " " A " refs/heads/agent/x\n\n")}, POLICY_PUSH_REFUSED, "agent/x? is no"},
        {0, {LINE(ZERO " " A " refs/heads/agent/\xc3\xa9")}, POLICY_PUSH_ALLOWED, ""},
        {0, {LINE(ZERO " " A " refs/heads/")}, POLICY_PUSH_REFUSED, "no name"},
        {1, {LINE(A " " ZERO " refs/heads/any" CAPS)}, POLICY_PUSH_ALLOWED, ""},
        {1, {LINE(A " " ZERO " refs/tags/v1" CAPS)}, POLICY_PUSH_ALLOWED, ""},
        {1, {LINE(A " " ZERO " refs/tags/w1" CAPS)}, POLICY_PUSH_REFUSED, "changed"},
        {1, {LINE(ZERO " " A " refs/notes/x" CAPS)}, POLICY_PUSH_REFUSED, "changed"},
        {2, {LINE(ZERO " " A " refs/tags/v1" CAPS)}, POLICY_PUSH_ALLOWED, ""},
        {2, {LINE(ZERO " " A " refs/heads/x" CAPS)}, POLICY_PUSH_REFUSED, "changed"},
        {0,
         {LINE(ZERO " " A " refs/heads/exact\0report-status push-options")},
         POLICY_PUSH_UNREADABLE,
         "options"},
        {0,
         {LINE(ZERO " " A " refs/heads/exact\0report-status\tpush-options=1")},
         POLICY_PUSH_UNREADABLE,
         "options"},
        {0, {LINE("push-cert\0report-status\n")}, POLICY_PUSH_UNREADABLE, "signed"},
        {0, {LINE("hello")}, POLICY_PUSH_UNREADABLE, "OLD NEW REF"},
        {0, {LINE("\n")}, POLICY_PUSH_UNREADABLE, "OLD NEW REF"},
        {0, {LINE("shallow x")}, POLICY_PUSH_UNREADABLE, "shallow"},
        {0,
         {LINE(ZERO " " A " refs/heads/exact"), LINE("shallow " A)},
         POLICY_PUSH_UNREADABLE,
         "OLD NEW REF"},
        {0,
         {LINE(ZERO " " A " refs/heads/exact"), LINE(ZERO " " A " refs/heads/exact" CAPS)},
         POLICY_PUSH_UNREADABLE,
         "OLD NEW REF"},
        {0,
         {LINE(ZERO " " A " refs/heads/exact"), LINE(LONG_A " " LONG_A " refs/heads/exact")},
         POLICY_PUSH_UNREADABLE,
         "OLD NEW REF"},
        {0, {LINE(ZERO " " A " refs/heads/exact\0a\0b")}, POLICY_PUSH_UNREADABLE, "OLD NEW REF"},
        {0, {LINE(ZERO " " A "1 refs/heads/exact")}, POLICY_PUSH_UNREADABLE, "OLD NEW REF"},
        {0, {LINE(ZERO "  " A " refs/heads/exact")}, POLICY_PUSH_UNREADABLE, "OLD NEW REF"},
        {0, {LINE(ZERO " " A)}, POLICY_PUSH_UNREADABLE, "OLD NEW REF"},
        {0, {LINE(ZERO " " A " ")}, POLICY_PUSH_UNREADABLE, "OLD NEW REF"},
    };
    struct policy *policy = loaded(rules, true);
    for (size_t i = 0; i < ARRAY_LEN(cases); i++)
        check_case(policy, &cases[i]);
    policy_unref(policy);
}

static enum policy_push_state state_of(const struct policy_rule *rule, const char *body,
                                       bool is_end, const char *says)
{
    struct policy_push push = {0};
    policy_push_read(&push, rule, body, strlen(body), is_end);
    assert(strstr(push.reason, says));
    return push.state;
}

static void test_packets_that_are_no_line_end_it(void)
{
    static const char *const broken[] = {"0001", "0002",   "0003", "0004", "fff1",
                                         "00g0", "{\"a\"", "PACK", "-001"};
    struct policy *policy = loaded(rules, true);
    const struct policy_rule *rule = policy_rule_at(policy, 0);
    for (size_t i = 0; i < ARRAY_LEN(broken); i++)
        assert(state_of(rule, broken[i], false, "begin") == POLICY_PUSH_UNREADABLE);
    assert(state_of(rule, "", false, "") == POLICY_PUSH_MORE);
    assert(state_of(rule, "000", false, "") == POLICY_PUSH_MORE);
    assert(state_of(rule, "fff0", false, "") == POLICY_PUSH_MORE);
    assert(state_of(rule, "", true, "cut off") == POLICY_PUSH_UNREADABLE);
    assert(state_of(rule, "000", true, "cut off") == POLICY_PUSH_UNREADABLE);
    assert(state_of(rule, "fff0", true, "cut off") == POLICY_PUSH_UNREADABLE);
    policy_unref(policy);
}

static void test_a_list_is_bounded(void)
{
    static const struct line line = LINE(ZERO " " A " refs/heads/exact");
    struct policy *policy = loaded(rules, true);
    const struct policy_rule *rule = policy_rule_at(policy, 0);
    cleanup_buf struct buf body = BUF_INIT(1 << 20);
    while (body.len <= LIMIT_POLICY_PUSH_BYTES)
        put_line(&body, &line);
    struct policy_push push = {0};
    assert(policy_push_read(&push, rule, body.data, LIMIT_POLICY_PUSH_BYTES, false) ==
           POLICY_PUSH_UNREADABLE);
    assert(strstr(push.reason, "too many"));
    put_line(&body, &(struct line)FLUSH);
    push = read_push(rule, &body, body.len);
    assert(push.state == POLICY_PUSH_UNREADABLE && strstr(push.reason, "too many"));
    policy_unref(policy);
}

static void report_of(const char *first, size_t first_len, bool is_refused, struct buf *ret,
                      int expected)
{
    static const struct line second = LINE(A " " B " refs/heads/main\n");
    static const struct line third = LINE(A " " ZERO " refs/heads/agent/y");
    static const struct line shallow = LINE("shallow " A);
    struct policy *policy = loaded(rules, true);
    const struct policy_rule *rule = policy_rule_at(policy, 0);
    cleanup_buf struct buf body = BUF_INIT(1 << 20);
    struct policy_push push = {0};
    put_line(&body, &shallow);
    put_line(&body, &(struct line){first, first_len});
    if (is_refused) {
        put_line(&body, &second);
        put_line(&body, &third);
    }
    put_line(&body, &(struct line)FLUSH);
    policy_push_read(&push, rule, body.data, body.len, true);
    assert(policy_push_report(&push, rule, body.data, ret) == expected);
    policy_unref(policy);
}

#define REPORT(start)                                                                              \
    start "000eunpack ok\n"                                                                        \
          "003eng refs/heads/agent/x another ref of this push is refused\n"                        \
          "0047ng refs/heads/main may not be changed from this sandbox (rule hub)\n"               \
          "004ang refs/heads/agent/y may not be deleted from this sandbox (rule hub)\n"            \
          "0000"

static void test_git_is_told_of_each_ref(void)
{
    static const struct line plain = LINE(ZERO " " A " refs/heads/agent/x" PLAIN);
    static const struct line band = LINE(ZERO " " A " refs/heads/agent/x" CAPS);
    static const struct line none = LINE(ZERO " " A " refs/heads/agent/x\0agent=x");
    cleanup_buf struct buf report = BUF_INIT(LIMIT_POLICY_PUSH_REPORT_BYTES);
    report_of(plain.text, plain.len, true, &report, 0);
    if (strcmp(report.data, REPORT("")) != 0)
        fprintf(stderr, "%s\n", report.data);
    assert(strcmp(report.data, REPORT("")) == 0);
    buf_clear(&report);
    report_of(band.text, band.len, true, &report, 0);
    char expected[sizeof(REPORT("")) + 20];
    snprintf(expected, sizeof(expected), "%04zx\1%s0000", sizeof(REPORT("")) - 1 + 5, REPORT(""));
    assert(strcmp(report.data, expected) == 0);
    buf_clear(&report);
    report_of(none.text, none.len, true, &report, -EINVAL);
    report_of(band.text, band.len, false, &report, -EINVAL); /* it is allowed */
    struct buf small = BUF_INIT(100);
    report_of(plain.text, plain.len, true, &small, -EMSGSIZE);
    assert(report.len == 0 && small.len == 0);
}

static void test_a_push_that_was_judged_is_good_for_the_same_patterns_alone(void)
{
#define HUB(git) "{\"rules\": [{\"host\": \"a.test\", \"git\": {\"push\": true" git "}}]}"
#define BRANCHES(list) HUB(", \"branches\": [" list "]")
    static const char *const texts[] = {
        BRANCHES("\"a\""),
        BRANCHES("\"b\""),
        BRANCHES("\"a\", \"b\""),
        HUB(", \"tags\": [\"a\"]"),
        HUB(", \"branches\": [\"a\"], \"tags\": [\"a\"]"),
        HUB(", \"branches\": [\"a\"], \"delete\": true"),
        HUB(""),
    };
    for (size_t i = 0; i < ARRAY_LEN(texts); i++)
        for (size_t j = 0; j < ARRAY_LEN(texts); j++) {
            struct policy *now = loaded(texts[i], true);
            struct policy *before = loaded(texts[j], true);
            bool is_alike = i == j || i == 6 || (i == 5 && j == 0); /* nothing bound, or less */
            assert(policy_rule_binds_alike(policy_rule_at(now, 0), policy_rule_at(before, 0)) ==
                   is_alike);
            policy_unref(now);
            policy_unref(before);
        }
}

int main(void)
{
    test_a_push_that_was_judged_is_good_for_the_same_patterns_alone();
    test_what_may_be_pushed();
    test_packets_that_are_no_line_end_it();
    test_a_list_is_bounded();
    test_git_is_told_of_each_ref();
    return 0;
}
