/* What an agent prints is shown in readable form and never reaches the terminal as commands. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "util/cleanup.h"
#include "util/limits.h"

/* Renders in pieces of `step` bytes: the result must not depend on where the log was cut. */
static void render(const char *log, size_t len, size_t step, struct buf *out)
{
    struct cli_events events;
    cli_events_init(&events);
    for (size_t at = 0; at < len; at += step)
        cli_events_feed(&events, log + at, len - at < step ? len - at : step, out);
    cli_events_end(&events, out);
    cli_events_free(&events);
}

static void test_events_are_readable(void)
{
    static const struct {
        const char *log, *shown;
    } cases[] = {
        {"{\"type\":\"system\",\"subtype\":\"init\",\"model\":\"m-1\"}\n",
         "* started, model m-1\n"},
        {"{\"message\":{\"content\":[{\"type\":\"text\",\"text\":\"one\\ntwo\"}]},\"type\":"
         "\"assistant\"}\n",
         "one\ntwo\n"},
        {"{\"type\":\"assistant\",\"message\":{\"content\":[{\"type\":\"tool_use\",\"name\":"
         "\"Bash\",\"input\":{\"description\":\"d\",\"command\":\"ls -l\\n pwd\"}}]}}\n",
         "> Bash ls -l  pwd\n"},
        {"{\"type\":\"assistant\",\"message\":{\"content\":[{\"type\":\"tool_use\",\"name\":"
         "\"Write\",\"input\":{\"content\":\"x\",\"file_path\":\"/workspace/repo/N\"}}]}}\n",
         "> Write /workspace/repo/N\n"},
        {"{\"type\":\"user\",\"message\":{\"content\":[{\"type\":\"tool_result\",\"content\":"
         "\"fine\"}]}}\n",
         ""},
        {"{\"type\":\"user\",\"message\":{\"content\":[{\"type\":\"tool_result\",\"is_error\":"
         "true,\"content\":[{\"type\":\"text\",\"text\":\"no\\nway\"}]}]}}\n",
         "  ! no way\n"},
        {"{\"type\":\"system\",\"subtype\":\"api_retry\",\"attempt\":2,\"max_retries\":10,"
         "\"retry_delay_ms\":1200,\"error_status\":429,\"error\":\"rate_limit\"}\n",
         "* no answer of the model (429, rate_limit): try 2 of 10 in 1.2 s\n"},
        {"{\"type\":\"system\",\"subtype\":\"api_retry\",\"attempt\":1,\"max_retries\":10,"
         "\"retry_delay_ms\":596.5,\"error_status\":null,\"error\":\"unknown\"}\n",
         "* no answer of the model (unknown): try 1 of 10 in 0.6 s\n"},
        {"{\"type\":\"result\",\"result\":\"x\"}\n{\"type\":\"news\"}\n{}\n", ""},
        {"plain words\nand more", "plain words\nand more\n"},
        {"[1,2]\n", "[1,2]\n"},
        {"{\"type\":\"assistant\",\"message\":{\"content\":5}}\n", ""},
        {"{\"type\":7,\"message\":[]}\n", ""},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        for (size_t step = 1; step <= 1000; step += 333) {
            cleanup_buf struct buf out = BUF_INIT(10000);
            render(cases[i].log, strlen(cases[i].log), step, &out);
            if (strcmp(buf_text(&out), cases[i].shown) != 0)
                fprintf(stderr, "%s%s", cases[i].log, buf_text(&out));
            assert(strcmp(buf_text(&out), cases[i].shown) == 0);
        }
    }
}

static void test_hostile_bytes_are_shown_not_sent(void)
{
    static const char *const cases[] = {
        "\x1b]0;title\x07\x1b[2J\x1b[6n",
        "a\rb\x08\x7f\x0b",
        "\xc2\x9b"
        "31m\xc2\x90",                       /* C1 */
        "\xe2\x80\xae gpj.exe \xe2\x81\xa6", /* bidirectional */
        "\xff\xfe\xc0\x80\xed\xa0\x80",      /* not UTF-8 */
        "{\"type\":\"assistant\",\"message\":{\"content\":[{\"type\":\"text\",\"text\":"
        "\"\\u001b[2J\\u009b\\u202e\"}]}}",
        "{\"type\":\"assistant\",\"message\":{\"content\":[{\"type\":\"tool_use\",\"name\":"
        "\"\\u001b[0m\",\"input\":{\"command\":\"\\u001b]52;c;x\\u0007\"}}]}}",
        "{\"type\":\"system\",\"subtype\":\"init\",\"model\":\"\\u001b[m\"}",
        "{\"type\":\"system\",\"subtype\":\"api_retry\",\"error\":\"\\u001b[m\"}",
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        cleanup_buf struct buf out = BUF_INIT(10000);
        render(cases[i], strlen(cases[i]), 7, &out);
        assert(out.len > 1);
        for (size_t j = 0; j < out.len; j++) {
            unsigned char c = (unsigned char)out.data[j];
            assert(c == '\n' || c == '\t' || (c >= 0x20 && c != 0x7f));
        }
        assert(!strstr(out.data, "\xc2\x9b") && !strstr(out.data, "\xe2\x80\xae"));
    }
}

static void test_text_is_bounded_and_whole(void)
{
    cleanup_buf struct buf out = BUF_INIT(1000);
    assert(cli_text_append(&out, "h\xc3\xa9\xf0\x9f\x98\x80\tx\r\ny\n", 13, false, 100) == 0);
    assert(strcmp(out.data, "h\xc3\xa9\xf0\x9f\x98\x80\tx\ny\n") == 0);
    buf_clear(&out);
    assert(cli_text_append(&out, "abcdef", 6, false, 3) == 0);
    assert(strcmp(out.data, "abc...") == 0);
    buf_clear(&out);
    assert(cli_text_append(&out, "a\0b", 3, true, 3) == 0);
    assert(strcmp(out.data, "a\\x00b") == 0);
}

static void test_a_line_without_end_is_bounded(void)
{
    size_t len = (size_t)LIMIT_CLI_LINE_BYTES + 10;
    char *line = malloc(len);
    assert(line);
    memset(line, 'x', len);
    line[len - 2] = '\n';
    cleanup_buf struct buf out = BUF_INIT(1000);
    render(line, len, 1 << 16, &out);
    assert(strcmp(out.data, "* (an event that is too long to show)\nx\n") == 0);
    free(line);
}

static void test_a_tool_fits_its_line(void)
{
    char log[1000];
    char long_text[400];
    memset(long_text, 'y', sizeof(long_text));
    snprintf(log, sizeof(log),
             "{\"type\":\"assistant\",\"message\":{\"content\":[{\"type\":\"tool_use\",\"name\":"
             "\"Bash\",\"input\":{\"command\":\"%.300s\"}}]}}\n",
             long_text);
    cleanup_buf struct buf out = BUF_INIT(1000);
    render(log, strlen(log), 100, &out);
    assert(out.len <= 80 && strstr(out.data, "y...\n"));
}

int main(void)
{
    test_events_are_readable();
    test_hostile_bytes_are_shown_not_sent();
    test_text_is_bounded_and_whole();
    test_a_line_without_end_is_bounded();
    test_a_tool_fits_its_line();
    return 0;
}
