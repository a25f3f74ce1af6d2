/* The promises of agent.json: a mistake is told with its place, and what runs is what is written.
 */
#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "agent/agent.h"
#include "task/spec.h"
#include "util/cleanup.h"

static const char good[] =
    "{ \"image\": \"claude\", // the image\n"
    "  \"command\": [\"claude\", \"--model\", \"${MODEL}\", \"--\", \"${PROMPT}\"],\n"
    "  \"env\": {\"URL\": \"https://g/${ACCOUNT}/${GATEWAY}/x\", \"EMPTY\": \"\"},\n"
    "  \"rules\": [\"ai-gateway\"],\n"
    "  \"outcome\": \"claude-stream-json\" }\n";

static const char *lookup(void *ctx, const char *name)
{
    if (ctx && strcmp(name, ctx) == 0)
        return NULL;
    if (strcmp(name, "MODEL") == 0)
        return "claude-${PROMPT}"; /* a value is never expanded again */
    return strcmp(name, "ACCOUNT") == 0 ? "acct" : "gw";
}

static void test_variables_are_put_in_and_the_prompt_is_left_to_init(void)
{
    struct agent *agent = NULL;
    struct err err;
    assert(agent_parse("agent.json", good, strlen(good), &agent, &err) == 0);
    assert(strcmp(agent_image(agent), "claude") == 0);
    assert(strcmp(agent_adapter(agent), "claude-stream-json") == 0);
    cleanup_buf struct buf bytes = BUF_INIT(LIMIT_SPEC_BYTES);
    assert(agent_encode_spec(agent, lookup, NULL, &bytes, &err) == 0);
    static struct spec spec;
    assert(spec_decode(bytes.data, bytes.len, &spec, &err) == 0);
    assert(strcmp(spec.cwd, "/workspace/repo") == 0);
    assert(spec.argc == 5 && spec.prompt == 4 && spec.envc == 2);
    assert(strcmp(spec.argv[2], "claude-${PROMPT}") == 0);
    assert(strcmp(spec.envp[0], "URL=https://g/acct/gw/x") == 0);
    assert(strcmp(spec.envp[1], "EMPTY=") == 0);
    agent_free(agent);
}

static void test_a_variable_that_is_not_set_is_named(void)
{
    struct agent *agent = NULL;
    struct err err;
    char unset[] = "ACCOUNT";
    assert(agent_parse("agent.json", good, strlen(good), &agent, &err) == 0);
    cleanup_buf struct buf bytes = BUF_INIT(LIMIT_SPEC_BYTES);
    assert(agent_encode_spec(agent, lookup, unset, &bytes, &err) == -ENOENT);
    assert(strstr(err.message, "ACCOUNT") && strstr(err.message, "\"vars\"") && bytes.len == 0);
    agent_free(agent);
}

static void test_a_mistake_is_told_with_its_place(void)
{
#define REST "\"outcome\":\"exit-code\"}"
    static const struct {
        const char *text;
        const char *message;
    } cases[] = {
        {"[]", "agent.json:1:1: an agent is an object"},
        {"{\"image\":\"a\",\n\"commands\":[]}", "agent.json:2:12: unknown key \"commands\""},
        {"{\"image\":\"A\",\"command\":[\"a\",\"${PROMPT}\"]," REST, "agent.json:1:10: \"image\""},
        {"{\"image\":\"a\",\"command\":[\"a\",\"b\"]," REST, "no argument"},
        {"{\"image\":\"a\",\"command\":[\"${PROMPT}\",\"b\"]," REST, "only once"},
        {"{\"image\":\"a\",\"command\":[\"a\",\"${PROMPT}\",\"${PROMPT}\"]," REST, "only once"},
        {"{\"image\":\"a\",\"command\":[\"a\",\"x${PROMPT}\"]," REST, "a whole argument"},
        {"{\"image\":\"a\",\"command\":[\"a\",\"${PROMPT}\",\"${x}\"]," REST, "capital letters"},
        {"{\"image\":\"a\",\"command\":[\"a\",\"${PROMPT}\",\"${X\"]," REST, "capital letters"},
        {"{\"image\":\"a\",\"command\":[\"a\",\"${PROMPT}\",1]," REST, "must be a string"},
        {"{\"image\":\"a\",\"command\":[\"a\",\"${PROMPT}\"],\"env\":{\"A=B\":\"\"}," REST,
         "variable's name"},
        {"{\"image\":\"a\",\"command\":[\"a\",\"${PROMPT}\"],\"env\":{\"A\":\"${PROMPT}\"}," REST,
         "a whole argument"},
        {"{\"image\":\"a\",\"command\":[\"a\",\"${PROMPT}\"],\"rules\":[1]," REST, "rule's name"},
        {"{\"image\":\"a\",\"command\":[\"a\",\"${PROMPT}\"],\"outcome\":\"odd\"}",
         "one of claude-stream-json, exit-code"},
        {"{", "agent.json:1:"},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct agent *agent = NULL;
        struct err err;
        assert(agent_parse("agent.json", cases[i].text, strlen(cases[i].text), &agent, &err) ==
               -EINVAL);
        if (!strstr(err.message, cases[i].message))
            fprintf(stderr, "case %zu: %s\n", i, err.message);
        assert(strstr(err.message, cases[i].message) && !agent);
    }
}

int main(void)
{
    test_variables_are_put_in_and_the_prompt_is_left_to_init();
    test_a_variable_that_is_not_set_is_named();
    test_a_mistake_is_told_with_its_place();
    return 0;
}
