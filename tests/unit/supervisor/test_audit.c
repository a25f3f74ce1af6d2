/* The audit's files: turning them loses no line, wherever it was broken off before. */
#include <assert.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "supervisor/supervisor.h"
#include "util/cleanup.h"
#include "util/fd.h"
#include "util/tree.h"

#define FULL 16

static struct config config = {.audit_max_bytes = FULL};
static struct supervisor supervisor = {.config = &config};

static void put(const char *name, const char *text)
{
    cleanup_fd int fd = openat(supervisor.state_fd, name, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    assert(fd >= 0 && fd_write_all(fd, text, strlen(text)) == 0);
}

/* What the file holds; "-" when it is not there. */
static bool has(const char *name, const char *text)
{
    cleanup_buf struct buf found = BUF_INIT(4096);
    if (fd_read_file(supervisor.state_fd, name, &found, NULL) < 0)
        return strcmp(text, "-") == 0;
    return strcmp(buf_text(&found), text) == 0;
}

static char folder[] = "/tmp/paddock-test-audit-XXXXXX";

static void leave(void)
{
    assert(tree_clear(supervisor.state_fd, NULL) == 0 && rmdir(folder) == 0);
    close(supervisor.state_fd);
}

static void fresh(int64_t keep)
{
    if (supervisor.state_fd > 0)
        leave();
    memset(strrchr(folder, '-') + 1, 'X', 6);
    assert(mkdtemp(folder));
    supervisor.state_fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert(supervisor.state_fd >= 0);
    config.audit_keep = keep;
}

static void test_former_files_are_kept_by_count(void)
{
    fresh(2);
    put("audit.jsonl", "the first line\n\n");
    audit_turn(&supervisor);
    assert(has("audit.jsonl", "") && has("audit.jsonl.1", "the first line\n\n"));
    put("audit.jsonl", "the second line\n");
    audit_turn(&supervisor);
    put("audit.jsonl", "the third line\n\n");
    audit_turn(&supervisor);
    assert(has("audit.jsonl", "") && has("audit.jsonl.1", "the third line\n\n") &&
           has("audit.jsonl.2", "the second line\n") && has("audit.jsonl.3", "-"));
    config.audit_keep = 0;
    put("audit.jsonl", "the fourth line\n");
    audit_turn(&supervisor);
    assert(has("audit.jsonl", "") && has("audit.jsonl.1", "-") && has("audit.jsonl.2", "-"));
}

static void test_what_is_not_full_is_not_turned(void)
{
    fresh(1);
    put("audit.jsonl", "short\n");
    put("audit.jsonl.1", "former\n");
    audit_turn(&supervisor);
    assert(has("audit.jsonl", "short\n") && has("audit.jsonl.1", "former\n"));
}

static void test_a_turn_that_was_broken_off_loses_nothing(void)
{
    /* after the renames: the present file is not there */
    fresh(3);
    put("audit.jsonl.1", "newest\n");
    put("audit.jsonl.2", "older\n");
    struct err err;
    cleanup_fd int fd = audit_open(&supervisor, &err);
    assert(fd >= 0 && has("audit.jsonl", "") && has("audit.jsonl.1", "newest\n"));
    /* between two renames: 2 is not there */
    fresh(3);
    put("audit.jsonl", "the present file\n");
    put("audit.jsonl.1", "newest\n");
    put("audit.jsonl.3", "older\n");
    audit_turn(&supervisor);
    assert(has("audit.jsonl.1", "the present file\n") && has("audit.jsonl.2", "newest\n"));
    assert(has("audit.jsonl", "") && has("audit.jsonl.3", "-"));
}

static void test_a_torn_line_is_ended(void)
{
    fresh(1);
    struct err err;
    put("audit.jsonl", "{\"whole\":1}\n{\"to");
    cleanup_fd int fd = audit_open(&supervisor, &err);
    assert(fd >= 0 && write(fd, "{}\n", 3) == 3);
    assert(has("audit.jsonl", "{\"whole\":1}\n{\"to\n{}\n"));
    cleanup_fd int again = audit_open(&supervisor, &err);
    assert(again >= 0 && has("audit.jsonl", "{\"whole\":1}\n{\"to\n{}\n"));
}

int main(void)
{
    test_former_files_are_kept_by_count();
    test_what_is_not_full_is_not_turned();
    test_a_turn_that_was_broken_off_loses_nothing();
    test_a_torn_line_is_ended();
    leave();
    return 0;
}
