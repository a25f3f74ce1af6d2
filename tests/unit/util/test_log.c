/* A log line is one line of its style, whatever is in it, and only a format makes fields. */
#undef NDEBUG
#include <assert.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "util/log.h"

static char line[16384];

/* What log_write wrote, after its time. */
static const char *logged(const char *style)
{
    ssize_t len = pread(STDERR_FILENO, line, sizeof(line) - 1, 0);
    assert(len > 0 && ftruncate(STDERR_FILENO, 0) == 0 && lseek(STDERR_FILENO, 0, SEEK_SET) == 0);
    line[len] = '\0';
    assert(strchr(line, '\n') == line + len - 1);
    line[len - 1] = '\0';
    assert(strncmp(line, style, strlen(style)) == 0);
    return line + strlen(style) + strlen("2026-12-02T10:11:12.123Z");
}

static void must_be(const char *style, const char *expected)
{
    const char *found = logged(style);
    if (strcmp(found, expected) != 0)
        printf("found %s\nnot   %s\n", found, expected);
    assert(strcmp(found, expected) == 0);
}

static void test_text(void)
{
    assert(log_take_argument("--log=text"));
    log_warn("sandbox=%s it %s", "agent-1", "says \x1b[1m\n<3> forged \xff \xc2\x9b \xc3\xa9 \"\\");
    must_be("", " paddockd warn sandbox=agent-1 it says \\x1b[1m\\x0a<3> forged \\xff \\xc2\\x9b "
                "\xc3\xa9 \"\\");
    log_debug("below the level");
    assert(lseek(STDERR_FILENO, 0, SEEK_END) == 0);
    assert(log_take_argument("--log=text,priority"));
    log_error("a");
    must_be("<3>", " paddockd error a");
    log_info("b");
    must_be("<6>", " paddockd info b");
}

static void test_json(void)
{
    assert(log_take_argument("--log=json"));
    assert(strcmp(log_style_argument(), "--log=json") == 0);
    log_warn("request=%d sandbox=%s it %s", 17, "a", "says \x01\n \xff \xc2\x9b \xc3\xa9 \"\\");
    must_be("{\"time\":\"",
            "\",\"process\":\"paddockd\",\"level\":\"warn\",\"request\":\"17\",\"sandbox\":\"a\","
            "\"message\":\"it says \\u0001\\u000a \xef\xbf\xbd \\u009b \xc3\xa9 \\\"\\\\\"}");
    log_info("%s", "sandbox=forged it did not happen");
    must_be("{\"time\":\"", "\",\"process\":\"paddockd\",\"level\":\"info\","
                            "\"message\":\"sandbox=forged it did not happen\"}");
    char many[4000];
    memset(many, '\x02', sizeof(many) - 1);
    many[sizeof(many) - 1] = '\0';
    log_info("a=%s then", many); /* cut, but a whole line and object */
    const char *found = logged("{\"time\":\"");
    assert(strcmp(found + strlen(found) - 2, "\"}") == 0);
    assert(log_take_argument("--log=json,priority"));
    log_warn("c");
    must_be("<4>{\"time\":\"", "\",\"process\":\"paddockd\",\"level\":\"warn\",\"message\":\"c\"}");
}

static void test_journal(void)
{
    struct stat st;
    char stream[64];
    assert(fstat(STDERR_FILENO, &st) == 0);
    snprintf(stream, sizeof(stream), "%ju:%ju", (uintmax_t)st.st_dev, (uintmax_t)st.st_ino);
    assert(log_is_journal(stream));
    snprintf(stream, sizeof(stream), "%ju:%ju", (uintmax_t)st.st_dev, (uintmax_t)st.st_ino + 1);
    assert(!log_is_journal(stream));
    assert(!log_is_journal("nonsense") && !log_is_journal("") && !log_is_journal(NULL));
}

int main(void)
{
    int fd = memfd_create("log", 0);
    assert(fd >= 0 && dup2(fd, STDERR_FILENO) == STDERR_FILENO);
    log_init("paddockd", LOG_INFO);
    assert(!log_take_argument("--log=xml") && !log_take_argument("--log") &&
           !log_take_argument(""));
    test_text();
    test_json();
    test_journal();
    return 0;
}
