/* See usage.h. */
#include "agent/usage.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "util/cleanup.h"

static const struct {
    const char *key;
    size_t offset;
} numbers[] = {
    {"requests", offsetof(struct model_usage, requests)},
    {"errors", offsetof(struct model_usage, errors)},
    {"unread", offsetof(struct model_usage, unread)},
    {"input_tokens", offsetof(struct model_usage, input_tokens)},
    {"output_tokens", offsetof(struct model_usage, output_tokens)},
    {"cache_read_tokens", offsetof(struct model_usage, cache_read_tokens)},
    {"cache_creation_tokens", offsetof(struct model_usage, cache_creation_tokens)},
};

void model_usage_write(struct json_writer *writer, const char *key, const struct model_usage *usage)
{
    if (!usage->requests)
        return;
    json_write_key(writer, key);
    json_write_object_begin(writer);
    for (size_t i = 0; i < ARRAY_LEN(numbers); i++) {
        int64_t number;
        memcpy(&number, (const char *)usage + numbers[i].offset, sizeof(number));
        json_write_pair_integer(writer, numbers[i].key, number);
    }
    if (usage->model[0])
        json_write_pair_string(writer, "model", usage->model);
    json_write_object_end(writer);
}

void model_usage_read(const struct json *json, struct model_usage *ret)
{
    struct model_usage usage = {0};
    const char *model = json_text(json_get(json, "model"));
    for (size_t i = 0; i < ARRAY_LEN(numbers); i++) {
        int64_t number = json_integer(json_get(json, numbers[i].key));
        number = number > 0 ? number : 0;
        memcpy((char *)&usage + numbers[i].offset, &number, sizeof(number));
    }
    if (model)
        snprintf(usage.model, sizeof(usage.model), "%s", model);
    *ret = usage;
}
