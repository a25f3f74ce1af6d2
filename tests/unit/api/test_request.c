/* The promises about what clients send: what is accepted is exactly what the documents say. */
#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "api/outcome.h"
#include "api/request.h"
#include "api/usage.h"
#include "util/cleanup.h"

static struct spec spec;
static char repository[LIMIT_REPOSITORY_BYTES + 1];

static int clone_of(const char *json, struct err *err)
{
    static struct buf bytes = BUF_INIT(LIMIT_SPEC_BYTES);
    buf_clear(&bytes);
    int r = request_clone(json, strlen(json), false, &bytes, repository, err);
    if (r == 0)
        assert(spec_decode(bytes.data, bytes.len, &spec, NULL) == 0);
    return r;
}

static void test_only_repositories_of_github_are_cloned(void)
{
    static const char *const good[] = {"https://github.com/octocat/Hello-World",
                                       "https://github.com/a/b.git", "https://github.com/a/.github",
                                       "https://github.com/a/b/", "HTTPS://GitHub.com/a/b"};
    static const char *const bad[] = {
        "http://github.com/a/b",
        "https://github.com.evil.test/a/b",
        "https://evil.test/a/b",
        "https://user@github.com/a/b",
        "https://user:x@github.com/a/b",
        "https://github.com@evil.test/a/b",
        "https://github.com:443/a/b",
        "https://github.com:444/a/b",
        "https://github.com",
        "https://github.com/",
        "https://github.com/a",
        "https://github.com/a/",
        "https://github.com/a/b/c",
        "https://github.com/a//b",
        "https://github.com/../b",
        "https://github.com/a/..",
        "https://github.com/-a/b",
        "https://github.com/a/--upload-pack",
        "https://github.com/a/b?x",
        "https://github.com/a/b#x",
        "https://github.com/a/b%2f",
        "https://github.com/a/b\n",
        " https://github.com/a/b",
        "--upload-pack=x",
        "ssh://git@github.com/a/b",
        "git@github.com:a/b",
        "file:///etc",
        "ext::sh",
        "",
    };
    for (size_t i = 0; i < ARRAY_LEN(good); i++) {
        cleanup_buf struct buf url = BUF_INIT(200);
        assert(request_url(good[i], strlen(good[i]), &url));
        assert(strncmp(url.data, "https://github.com/", 19) == 0);
        assert(url.data[url.len - 1] != '/');
    }
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        cleanup_buf struct buf url = BUF_INIT(200);
        assert(!request_url(bad[i], strlen(bad[i]), &url) && url.len == 0);
    }
}

static void test_a_clone_is_the_command_that_is_documented(void)
{
    struct err err;
    assert(clone_of("{\"url\":\"https://github.com/a/b\",\"ref\":\"v1.0\",\"more\":1}", &err) == 0);
    assert(strcmp(repository, "a/b") == 0);
    static const char *const argv[] = {"git",
                                       "clone",
                                       "--depth",
                                       "1",
                                       "--branch",
                                       "v1.0",
                                       "--",
                                       "https://github.com/a/b",
                                       "/workspace/repo"};
    assert(spec.argc == ARRAY_LEN(argv) && strcmp(spec.cwd, "/workspace") == 0);
    for (size_t i = 0; i < ARRAY_LEN(argv); i++)
        assert(strcmp(spec.argv[i], argv[i]) == 0);
    assert(clone_of("{\"url\":\"https://github.com/a/b\"}", &err) == 0 && spec.argc == 7);
}

static void test_a_bad_clone_body_is_told_what_to_send(void)
{
    static const char *const bodies[] = {
        "",
        "null",
        "[]",
        "{}",
        "{\"url\":1}",
        "{\"url\":\"https://github.com/a/b\"",
        "{\"url\":\"https://github.com/a/b\",\"ref\":\"\"}",
        "{\"url\":\"https://github.com/a/b\",\"ref\":null}",
        "{\"url\":\"https://github.com/a/b\",\"ref\":\"a\\u0000\"}",
        "{\"url\":\"https://github.com/a/b\\u0000\"}"};
    struct err err;
    for (size_t i = 0; i < ARRAY_LEN(bodies); i++) {
        assert(clone_of(bodies[i], &err) == -EINVAL);
        assert(strcmp(err.message, "Send {\"url\": \"https://github.com/OWNER/REPOSITORY\"}") == 0);
    }
    assert(clone_of("{\"url\":\"https://github.com/a/b\",\"ref\":\"--x\"}", &err) == -EINVAL);
    assert(strstr(err.message, "no hyphen in front"));
    assert(clone_of("{\"url\":\"https://github.com/a/b\",\"ref\":\"a\\nb\"}", &err) == -EINVAL);
}

static struct request_exec exec_request;

static int exec_of(const char *json, struct msg_exec *ret)
{
    struct err err;
    request_exec_free(&exec_request);
    int r = request_exec(json, strlen(json), &exec_request, &err);
    if (r == 0)
        assert(spec_decode(exec_request.spec.data, exec_request.spec.len, &spec, NULL) == 0);
    *ret = exec_request.body;
    return r;
}

static void test_an_exec_has_a_time_an_input_and_variables(void)
{
    struct msg_exec exec;
    assert(exec_of("{\"argv\":[\"ls\"]}", &exec) == 0);
    assert(!exec.timeout_ms && !exec.has_stdin && !exec.is_ended_apart && spec.envc == 0);
    assert(exec_of("{\"argv\":[\"ls\"],\"timeout_ms\":1,\"end_with_client\":true,"
                   "\"stdin\":\"a\\u0000b\",\"env\":{\"A\":\"1\",\"B_2\":\"\"}}",
                   &exec) == 0);
    assert(exec.timeout_ms == 1 && exec.has_stdin && exec.is_ended_apart && spec.envc == 2);
    assert(strcmp(spec.envp[0], "A=1") == 0 && strcmp(spec.envp[1], "B_2=") == 0);
    assert(exec_request.input.len == 3 && memcmp(exec_request.input.data, "a\0b", 3) == 0);
    assert(exec_of("{\"argv\":[\"ls\"],\"stdin\":\"\",\"end_with_client\":false}", &exec) == 0);
    assert(exec.has_stdin && !exec_request.input.len && !exec.is_ended_apart);
    static const char *const bad[] = {"\"timeout_ms\":0",      "\"timeout_ms\":604800001",
                                      "\"timeout_ms\":\"1\"",  "\"timeout_ms\":1.5",
                                      "\"stdin\":1",           "\"stdin\":null",
                                      "\"end_with_client\":1", "\"env\":[]",
                                      "\"env\":{\"\":\"x\"}",  "\"env\":{\"A=\":\"x\"}",
                                      "\"env\":{\"A\":1}",     "\"env\":{\"A\":\"\\u0000\"}"};
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        char json[128];
        snprintf(json, sizeof(json), "{\"argv\":[\"ls\"],%s}", bad[i]);
        assert(exec_of(json, &exec) == -EINVAL);
    }
}

static void test_exec_takes_what_is_documented_and_nothing_else(void)
{
    struct msg_exec exec;
    assert(exec_of("{\"argv\":[\"ls\",\"\"]}", &exec) == 0 && exec.user == EXEC_AS_AGENT);
    assert(exec.no_cwd && spec.argc == 2 && strcmp(spec.cwd, "/workspace") == 0);
    assert(exec_of("{\"argv\":[\"ls\"],\"cwd\":\"/\",\"user\":\"root\"}", &exec) == 0);
    assert(exec.user == EXEC_AS_ROOT && !exec.no_cwd && strcmp(spec.cwd, "/") == 0);
    static const char *const bad[] = {"",
                                      "{}",
                                      "{\"argv\":[]}",
                                      "{\"argv\":\"ls\"}",
                                      "{\"argv\":[1]}",
                                      "{\"argv\":[\"\"]}",
                                      "{\"argv\":[\"ls\"],\"user\":\"nobody\"}",
                                      "{\"argv\":[\"ls\"],\"user\":0}",
                                      "{\"argv\":[\"ls\"],\"cwd\":5}",
                                      "{\"argv\":[\"ls\"],\"cwd\":\"tmp\"}",
                                      "{\"argv\":[\"a\\u0000b\"]}",
                                      "{\"argv\":[\"ls\"],\"more\":1}"};
    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        assert(exec_of(bad[i], &exec) == -EINVAL);
}

static void test_an_exec_over_the_limit_is_too_big(void)
{
    cleanup_buf struct buf json = BUF_INIT(LIMIT_API_JSON_BYTES);
    assert(buf_append_string(&json, "{\"argv\":[\"") == 0);
    char *text = buf_reserve(&json, LIMIT_SPEC_BYTES);
    memset(text, 'a', LIMIT_SPEC_BYTES);
    json.len += LIMIT_SPEC_BYTES;
    assert(buf_append_string(&json, "\"]}") == 0);
    struct msg_exec exec;
    assert(exec_of(json.data, &exec) == -EMSGSIZE);
}

static void test_prompts(void)
{
    static const char wide[] = "\xc2\xa0\xe2\x80\xa8\xef\xbb\xbf \t\n";
    struct err err;
    assert(request_prompt("do it", 5, &err) == 0);
    assert(request_prompt("\xc2\xa0\xc3\xa9", 4, &err) == 0);
    assert(request_prompt("", 0, &err) == -EINVAL && strcmp(err.message, "Send a prompt") == 0);
    assert(request_prompt(wide, sizeof(wide) - 1, &err) == -EINVAL);
    assert(strcmp(err.message, "Send a prompt") == 0);
    assert(request_prompt("a\0b", 3, &err) == -EINVAL);
    assert(strcmp(err.message, "Send the prompt as UTF-8 text without NUL bytes") == 0);
    assert(request_prompt("\xff", 1, &err) == -EINVAL);
    assert(request_prompt("\0", 1, &err) == -EINVAL);
}

static void test_queries(void)
{
    struct request_log log;
    struct msg_diff diff;
    struct err err;
    assert(request_log(NULL, 0, &log, &err) == 0 && log.from == 0 && !log.follow);
    assert(request_log("from=12&follow=1&stream=stderr", 30, &log, &err) == 0);
    assert(log.from == 12 && log.follow && log.stream == TASK_LOG_STDERR);
    struct request_egress egress;
    assert(request_egress("", 0, &egress, &err) == 0);
    assert(!egress.follow && egress.limit == LIMIT_AUDIT_LINES_DEFAULT);
    assert(request_egress("limit=1000&follow=1", 19, &egress, &err) == 0);
    assert(egress.follow && egress.limit == LIMIT_AUDIT_LINES);
    assert(request_egress("limit=1001", 10, &egress, &err) == -EINVAL);
    assert(request_egress("limit=-1", 8, &egress, &err) == -EINVAL);
    assert(request_egress("from=1", 6, &egress, &err) == -EINVAL);
    static const char *const bad[] = {
        "from=-1",    "from=",    "from=1x", "from=9999999999999999999",
        "follow=yes", "stream=x", "more=1",  "from=%"};
    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        assert(request_log(bad[i], strlen(bad[i]), &log, &err) == -EINVAL);
    assert(request_diff("", 0, &diff, &err) == 0 && diff.against == DIFF_SINCE_CLONE);
    assert(request_diff("against=head&renames=1", 22, &diff, &err) == 0);
    assert(diff.against == DIFF_HEAD && diff.renames == 1 && !diff.revision[0]);
    assert(request_diff("against=HEAD%7E2", 16, &diff, &err) == 0);
    assert(diff.against == DIFF_REVISION && strcmp(diff.revision, "HEAD~2") == 0);
    assert(request_diff("binary=1&binary=x", 17, &diff, &err) == -EINVAL);
    assert(request_diff("binary=1", 8, &diff, &err) == 0 && diff.binary && !diff.renames);
    assert(request_diff("against=-O", 10, &diff, &err) == -EINVAL);
    assert(request_diff("against=", 8, &diff, &err) == -EINVAL);
    assert(request_diff("renames=2", 9, &diff, &err) == -EINVAL);
}

static void test_images(void)
{
    struct msg_image_name image;
    struct err err;
    assert(request_image("{\"name\":\"claude\"}", 17, &image, &err) == 0 && !image.rebuild);
    assert(request_image("{\"name\":\"a\",\"rebuild\":true}", 27, &image, &err) == 0);
    assert(image.rebuild && strcmp(image.name, "a") == 0);
    assert(request_image("{\"name\":\"../a\"}", 15, &image, &err) == -EINVAL);
    assert(request_image("{\"name\":\"a\",\"x\":1}", 18, &image, &err) == -EINVAL);
}

static void test_an_outcome_is_one_only_when_whole(void)
{
    static const char good[] = "{\"state\":\"failed\",\"error\":\"x\",\"exitCode\":1}";
    for (size_t len = 0; len < sizeof(good) - 1; len++)
        assert(!outcome_is_valid(good, len));
    assert(outcome_is_valid(good, sizeof(good) - 1));
    assert(!outcome_is_valid("{\"state\":\"succeeded\",\"error\":\"x\"}", 33));
    assert(!outcome_is_valid("{\"state\":\"running\"}", 19));
}

/* Folders stand behind what is in them; what has no name of ours is passed over. */
static void test_what_du_says_becomes_json(void)
{
    static const char said[] = "disk 100 40\n"
                               "5\t/in/sandboxes/a/workspace\n7\t/in/sandboxes/a/base.git\n"
                               "12\t/in/sandboxes/a\n"
                               "9\t/in/sandboxes/B/task\n9\t/in/sandboxes/B\n"
                               "3\t/in/sandboxes/c\n"
                               "x\t/in/sandboxes/d\n-1\t/in/sandboxes/e\n1 /in/sandboxes/f\n"
                               "30\t/in/sandboxes\n6\t/in/trash/image-1\n6\t/in/trash\n"
                               "8\t/in/images/i\n8\t/in/images/.build-j\n16\t/in/images";
    static const char wanted[] =
        "{\"disk\":{\"totalBytes\":100,\"freeBytes\":40},\"sandboxes\":["
        "{\"name\":\"a\",\"bytes\":12,\"workspaceBytes\":5,\"overlayBytes\":0,\"taskBytes\":0,"
        "\"baseBytes\":7},"
        "{\"name\":\"c\",\"bytes\":3,\"workspaceBytes\":0,\"overlayBytes\":0,\"taskBytes\":0,"
        "\"baseBytes\":0}],\"sandboxesBytes\":30,\"images\":[{\"name\":\"i\",\"bytes\":8}],"
        "\"imagesBytes\":16,\"trashBytes\":6}";
    cleanup_buf struct buf json = BUF_INIT(4096);
    assert(usage_json(said, sizeof(said) - 1, &json) == 0);
    assert(strcmp(buf_text(&json), wanted) == 0);
}

static void test_what_is_set_is_packed_for_the_supervisor(void)
{
    static const char body[] = "{\"agent\":\"a\",\"limits\":{\"cpus\":0.25,\"pids\":20},"
                               "\"env\":{\"A\":\"1\",\"B\":\"\"},\"labels\":{\"x.y/z\":\"1\"}}";
    cleanup_buf struct buf lists = BUF_INIT(2 * (LIMIT_ENV_BYTES + LIMIT_LABELS_BYTES));
    struct msg_sandbox_put put;
    struct err err;
    assert(request_sandbox_put(body, sizeof(body) - 1, false, &put, &lists, &err) == 0);
    assert(strcmp(put.agent, "a") == 0 && !put.policy[0] && put.cpu_millis == 250);
    assert(put.pids == 20 && put.memory_mib == 0 && put.env_bytes == 7 && put.label_bytes == 8);
    assert(memcmp(lists.data, "A=1\0B=\0x.y/z=1", 15) == 0);
    buf_clear(&lists);
    assert(request_sandbox_put("", 0, false, &put, &lists, &err) == 0 && put.env_bytes == 0);
    assert(request_sandbox_put("null", 4, false, &put, &lists, &err) == -EINVAL);
    assert(request_sandbox_put("{\"env\":{\"A\":null}}", 18, false, &put, &lists, &err) == -EINVAL);
    assert(request_sandbox_put("{\"policy\":null}", 15, false, &put, &lists, &err) == -EINVAL);
}

static void test_a_patch_tells_what_it_names_and_what_goes(void)
{
    static const char body[] = "{\"policy\":null,\"limits\":{\"cpus\":null,\"pids\":20},"
                               "\"env\":{\"A\":null,\"B\":\"1\"},\"labels\":{\"x\":null}}";
    cleanup_buf struct buf lists = BUF_INIT(2 * (LIMIT_ENV_BYTES + LIMIT_LABELS_BYTES));
    struct msg_sandbox_put put;
    struct err err;
    assert(request_sandbox_put(body, sizeof(body) - 1, true, &put, &lists, &err) == 0);
    assert(put.is_patch && put.named == (PATCH_POLICY | PATCH_CPUS | PATCH_PIDS));
    assert(put.pids == 20 && put.cpu_millis == 0 && !put.policy[0]);
    assert(put.env_bytes == 4 && put.label_bytes == 0 && put.env_gone_bytes == 3);
    assert(put.label_gone_bytes == 3 && memcmp(lists.data, "B=1\0A=\0x=", 10) == 0);
    buf_clear(&lists);
    static const char whole[] = "{\"limits\":null,\"budget\":null,\"env\":null,\"labels\":null}";
    assert(request_sandbox_put(whole, sizeof(whole) - 1, true, &put, &lists, &err) == 0);
    assert(put.named == (PATCH_ALL & ~(PATCH_POLICY | PATCH_SIZE)) && lists.len == 0);
    assert(request_sandbox_put("{}", 2, true, &put, &lists, &err) == 0 && put.named == 0);
    assert(request_sandbox_put("{\"agent\":null}", 14, true, &put, &lists, &err) == -EINVAL);
}

static void test_filters_are_those_of_the_documents(void)
{
    struct msg_sandbox_list list;
    struct err err;
    static const char good[] = "label=a%3Db&state=running&label=c";
    assert(request_sandbox_list(good, sizeof(good) - 1, &list, &err) == 0);
    assert(list.state == 3 && list.label_count == 2 && memcmp(list.labels, "a=b\0c", 6) == 0);
    assert(request_sandbox_list(NULL, 0, &list, &err) == 0 && list.state == 0);
    static const char *const bad[] = {"state=", "state=on", "label==b", "label=a&label=%00",
                                      "labels=a"};
    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        assert(request_sandbox_list(bad[i], strlen(bad[i]), &list, &err) == -EINVAL);
}

static void test_the_repository_of_a_clone_is_told_as_a_policy_compares_it(void)
{
    struct err err;
    char text[600];
    assert(clone_of("{\"url\":\"HTTPS://GitHub.com/Acme/b.x.git/\"}", &err) == 0);
    assert(strcmp(repository, "Acme/b.x") == 0);
    snprintf(text, sizeof(text), "{\"url\":\"https://github.com/a/%0300d\"}", 0);
    assert(clone_of(text, &err) == 0 && !repository[0]);
}

int main(void)
{
    test_the_repository_of_a_clone_is_told_as_a_policy_compares_it();
    test_only_repositories_of_github_are_cloned();
    test_a_clone_is_the_command_that_is_documented();
    test_a_bad_clone_body_is_told_what_to_send();
    test_exec_takes_what_is_documented_and_nothing_else();
    test_an_exec_has_a_time_an_input_and_variables();
    test_an_exec_over_the_limit_is_too_big();
    test_prompts();
    test_queries();
    test_images();
    test_an_outcome_is_one_only_when_whole();
    test_what_du_says_becomes_json();
    test_what_is_set_is_packed_for_the_supervisor();
    test_a_patch_tells_what_it_names_and_what_goes();
    test_filters_are_those_of_the_documents();
    return 0;
}
