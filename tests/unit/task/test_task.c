/* The promises of task/: what one side wrote the other reads back whole, and nothing else. */
#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "task/record.h"
#include "task/settings.h"
#include "task/spec.h"
#include "util/cleanup.h"

static struct spec sample_spec(void)
{
    struct spec spec = {.cwd = "/workspace/repo",
                        .argc = 3,
                        .envc = 2,
                        .prompt = 2,
                        .argv = {"claude", "", "${PROMPT}"},
                        .envp = {"A=", "B=c=d"}};
    return spec;
}

static void test_a_spec_survives_the_journey(void)
{
    struct spec spec = sample_spec();
    static struct spec back;
    cleanup_buf struct buf bytes = BUF_INIT(LIMIT_SPEC_BYTES);
    assert(spec_encode(&spec, &bytes, NULL) == 0);
    assert(spec_decode(bytes.data, bytes.len, &back, NULL) == 0);
    assert(back.argc == 3 && back.envc == 2 && back.prompt == 2);
    assert(strcmp(back.cwd, "/workspace/repo") == 0 && strcmp(back.argv[0], "claude") == 0);
    assert(strcmp(back.argv[1], "") == 0 && !back.argv[3]);
    assert(strcmp(back.envp[1], "B=c=d") == 0 && !back.envp[2]);
}

static void test_every_cut_spec_is_refused(void)
{
    struct spec spec = sample_spec();
    static struct spec back;
    cleanup_buf struct buf bytes = BUF_INIT(LIMIT_SPEC_BYTES);
    assert(spec_encode(&spec, &bytes, NULL) == 0);
    for (size_t len = 0; len < bytes.len; len++)
        assert(spec_decode(bytes.data, len, &back, NULL) == -EINVAL);
    assert(buf_append(&bytes, "x", 1) == 0);
    assert(spec_decode(bytes.data, bytes.len, &back, NULL) == -EINVAL);
}

static void test_a_spec_against_the_rules_is_not_encoded(void)
{
    cleanup_buf struct buf bytes = BUF_INIT(LIMIT_SPEC_BYTES);
    struct err err;
    struct spec relative = sample_spec();
    relative.cwd = "workspace";
    assert(spec_encode(&relative, &bytes, &err) == -EINVAL);
    struct spec nameless = sample_spec();
    nameless.envp[0] = "=x";
    assert(spec_encode(&nameless, &bytes, &err) == -EINVAL);
    struct spec empty = sample_spec();
    empty.argv[0] = "";
    assert(spec_encode(&empty, &bytes, &err) == -EINVAL);
    struct spec none = sample_spec();
    none.argc = 0;
    assert(spec_encode(&none, &bytes, &err) == -EINVAL);
    struct spec prompt = sample_spec();
    prompt.prompt = 0; /* the prompt would be the program */
    assert(spec_encode(&prompt, &bytes, &err) == -EINVAL);
    assert(bytes.len == 0);
}

static void test_a_spec_over_its_limits_is_too_big(void)
{
    cleanup_buf struct buf bytes = BUF_INIT(LIMIT_SPEC_BYTES);
    struct spec spec = sample_spec();
    static char large[LIMIT_SPEC_BYTES];
    memset(large, 'x', sizeof(large) - 1);
    spec.argv[1] = large;
    assert(spec_encode(&spec, &bytes, NULL) == -EMSGSIZE);
    spec = sample_spec();
    spec.argc = LIMIT_SPEC_STRINGS + 1;
    assert(spec_encode(&spec, &bytes, NULL) == -EMSGSIZE);
    assert(bytes.len == 0);
}

static void test_an_end_survives_the_journey(void)
{
    const struct task_end ends[] = {
        {.kind = TASK_END_EXITED, .code = 0, .started_ms = 1, .ended_ms = 2},
        {.kind = TASK_END_SIGNALED, .code = 9, .oom_kills = UINT32_MAX, .hits = 15},
        {.kind = TASK_END_OOM, .code = INT32_MIN, .memory_limit = INT64_MAX},
        {.kind = TASK_END_FAILED, .code = INT32_MAX, .started_ms = INT64_MIN},
    };
    for (size_t i = 0; i < ARRAY_LEN(ends); i++) {
        char text[TASK_END_JSON_MAX];
        size_t len = task_end_write(&ends[i], text);
        struct task_end back;
        assert(task_end_read(text, len, &back, NULL) == 0);
        assert(memcmp(&back, &ends[i], sizeof(back)) == 0);
        for (size_t cut = 0; cut < len; cut++)
            assert(task_end_read(text, cut, &back, NULL) == -EINVAL);
    }
}

static void test_another_record_is_refused(void)
{
    static const char *const texts[] = {
        "{\"kind\":\"odd\",\"code\":0,\"oomKills\":0,\"logCut\":0,\"startedMs\":0,\"endedMs\":0,"
        "\"memoryLimit\":0}\n",
        "{\"kind\":\"exited\",\"code\":00,\"oomKills\":0,\"logCut\":0,\"startedMs\":0,\"endedMs\":"
        "0,\"memoryLimit\":0}\n",
        "{\"kind\":\"exited\",\"code\":0,\"oomKills\":-1,\"logCut\":0,\"startedMs\":0,\"endedMs\":"
        "0,\"memoryLimit\":0}\n",
        "{\"kind\":\"exited\",\"code\":99999999999999999999,\"oomKills\":0,\"logCut\":0,"
        "\"startedMs\":0,\"endedMs\":0,\"memoryLimit\":0}\n",
        "{\"kind\":\"exited\",\"code\":0,\"oomKills\":0,\"logCut\":0,\"startedMs\":0,\"endedMs\":0,"
        "\"memoryLimit\":9223372036854775808}\n",
        "{}",
    };
    for (size_t i = 0; i < ARRAY_LEN(texts); i++) {
        struct task_end end;
        assert(task_end_read(texts[i], strlen(texts[i]), &end, NULL) == -EINVAL);
    }
}

/* ------------------------------------------------------------------------------ settings */

/* Texts with a "|" behind each, as a list. */
static struct buf list_of(const char *texts)
{
    struct buf list = BUF_INIT(LIMIT_ENV_BYTES);
    assert(buf_append_string(&list, texts) == 0);
    for (size_t i = 0; i < list.len; i++)
        if (list.data[i] == '|')
            list.data[i] = '\0';
    return list;
}

static void test_the_own_environment_counts_above_the_images(void)
{
    static const struct {
        const char *image, *own, *merged;
    } cases[] = {
        {"", "", ""},
        {"A=1|B=2|", "", "A=1|B=2|"},
        {"", "A=1|", "A=1|"},
        {"A=1|B=2|", "B=3|C=|", "A=1|B=3|C=|"},
        {"PATH=/opt/bin|", "", "PATH=/opt/bin|"},
        {"AB=1|", "A=2|", "AB=1|A=2|"},               /* a name is no beginning of another */
        {"A=1|A=2|", "", "A=1|"},                     /* the first of an image counts */
        {"HOME=/|PADDOCK_X=1|1A=x|A=1|", "", "A=1|"}, /* what may not be set is left out */
        {"SSL_CERT_FILE=/evil|", "B=1|", "B=1|"},
        {"no-equals|A=1|", "", "A=1|"},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        cleanup_buf struct buf image = list_of(cases[i].image), own = list_of(cases[i].own);
        cleanup_buf struct buf wanted = list_of(cases[i].merged);
        cleanup_buf struct buf merged = BUF_INIT(LIMIT_ENV_BYTES);
        assert(settings_merge(&image, &own, &merged) == 0);
        assert(merged.len == wanted.len);
        assert(!merged.len || memcmp(merged.data, wanted.data, merged.len) == 0);
        /* and is one of what programs get */
        const char *environment[SETTINGS_ENVIRONMENT];
        settings_environment(&merged, environment);
        size_t count = 0;
        while (environment[count])
            count++;
        for (const char *text = NULL; (text = settings_next(&merged, text));) {
            size_t found = 0;
            for (size_t j = 0; j < count; j++)
                found += strcmp(environment[j], text) == 0;
            assert(found == 1);
        }
    }
}

static void test_a_merge_over_its_limit_is_told(void)
{
    cleanup_buf struct buf image = list_of("A=123|"), own = list_of("B=456|");
    cleanup_buf struct buf merged = BUF_INIT(11);
    assert(settings_merge(&image, &own, &merged) == -EMSGSIZE);
}

int main(void)
{
    test_a_spec_survives_the_journey();
    test_every_cut_spec_is_refused();
    test_a_spec_against_the_rules_is_not_encoded();
    test_a_spec_over_its_limits_is_too_big();
    test_an_end_survives_the_journey();
    test_another_record_is_refused();
    test_the_own_environment_counts_above_the_images();
    test_a_merge_over_its_limit_is_told();
    return 0;
}
