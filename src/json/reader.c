/* JSON into a tree, with yajl's callbacks; see json.h. No recursion but json_free's, bounded by the
 * depth limit. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <yajl/yajl_parse.h>

#include "util/cleanup.h"
#include "util/limits.h"
#include "json/json.h"

struct json {
    enum json_type type;
    unsigned line;
    unsigned column;
    union {
        bool boolean;
        int64_t integer;
        double real;
        struct {
            char *data;
            size_t len;
        } string;
        struct {
            struct json **values;
            char **keys; /* objects only */
            size_t count;
            size_t capacity;
        } list;
    };
};

struct reader {
    yajl_handle handle;
    const char *data;
    size_t len;
    size_t counted; /* bytes whose lines were counted */
    unsigned line;
    size_t line_start;
    struct json *root;
    struct json *open[LIMIT_JSON_DEPTH];
    size_t depth;
    char *key; /* the key whose value comes next */
    char reason[160];
};

static void reader_position(struct reader *reader, size_t offset, unsigned *line, unsigned *column)
{
    if (offset > reader->len)
        offset = reader->len;
    for (; reader->counted < offset; reader->counted++) {
        if (reader->data[reader->counted] == '\n') {
            reader->line++;
            reader->line_start = reader->counted + 1;
        }
    }
    *line = reader->line;
    *column = offset >= reader->line_start ? (unsigned)(offset - reader->line_start) + 1 : 1;
}

static int reader_refuse(struct reader *reader, const char *reason, const char *detail)
{
    snprintf(reader->reason, sizeof(reader->reason), "%s%s", reason, detail);
    return 0;
}

static int list_add(struct json *list, char *key, struct json *value)
{
    if (list->list.count == list->list.capacity) {
        size_t capacity = list->list.capacity ? list->list.capacity * 2 : 8;
        struct json **values = reallocarray(list->list.values, capacity, sizeof(struct json *));
        if (!values)
            return -ENOMEM;
        list->list.values = values;
        if (list->type == JSON_OBJECT) {
            char **keys = reallocarray(list->list.keys, capacity, sizeof(char *));
            if (!keys)
                return -ENOMEM;
            list->list.keys = keys;
        }
        list->list.capacity = capacity;
    }
    if (list->type == JSON_OBJECT)
        list->list.keys[list->list.count] = key;
    list->list.values[list->list.count++] = value;
    return 0;
}

/* Adds a new value where the parser stands; NULL with a reason set when it cannot. `back` is how
 * many bytes before the parser's position the value begins. */
static struct json *reader_add(struct reader *reader, enum json_type type, size_t back)
{
    struct json *value = calloc(1, sizeof(*value));
    if (!value) {
        reader_refuse(reader, "out of memory", "");
        return NULL;
    }
    value->type = type;
    size_t offset = yajl_get_bytes_consumed(reader->handle);
    reader_position(reader, offset > back ? offset - back : 0, &value->line, &value->column);
    if (reader->depth == 0) {
        reader->root = value;
        return value;
    }
    if (list_add(reader->open[reader->depth - 1], reader->key, value) < 0) {
        free(value);
        reader_refuse(reader, "out of memory", "");
        return NULL;
    }
    reader->key = NULL;
    return value;
}

static int on_null(void *ctx)
{
    return reader_add(ctx, JSON_NULL, 4) != NULL;
}

static int on_boolean(void *ctx, int boolean)
{
    struct json *value = reader_add(ctx, JSON_BOOL, boolean ? 4 : 5);
    if (value)
        value->boolean = boolean;
    return value != NULL;
}

/* How long the number is that ends where the parser stands. */
static size_t number_length(const struct reader *reader)
{
    size_t end = yajl_get_bytes_consumed(reader->handle);
    size_t start = end;
    while (start > 0 && reader->data[start - 1] &&
           strchr("0123456789+-.eE", reader->data[start - 1]))
        start--;
    return end - start;
}

static int on_integer(void *ctx, long long integer)
{
    struct json *value = reader_add(ctx, JSON_INTEGER, number_length(ctx));
    if (value)
        value->integer = integer;
    return value != NULL;
}

static int on_double(void *ctx, double real)
{
    struct json *value = reader_add(ctx, JSON_REAL, number_length(ctx));
    if (value)
        value->real = real;
    return value != NULL;
}

static int on_string(void *ctx, const unsigned char *data, size_t len)
{
    struct json *value = reader_add(ctx, JSON_STRING, len + 2);
    if (!value)
        return 0;
    value->string.data = malloc(len + 1);
    if (!value->string.data)
        return reader_refuse(ctx, "out of memory", "");
    if (len)
        memcpy(value->string.data, data, len);
    value->string.data[len] = '\0';
    value->string.len = len;
    return 1;
}

static int reader_open(struct reader *reader, enum json_type type)
{
    if (reader->depth == LIMIT_JSON_DEPTH)
        return reader_refuse(reader, "nested too deeply", "");
    struct json *value = reader_add(reader, type, 1);
    if (!value)
        return 0;
    reader->open[reader->depth++] = value;
    return 1;
}

static int on_object_begin(void *ctx)
{
    return reader_open(ctx, JSON_OBJECT);
}

static int on_array_begin(void *ctx)
{
    return reader_open(ctx, JSON_ARRAY);
}

static int on_end(void *ctx)
{
    struct reader *reader = ctx;
    assert(reader->depth > 0);
    reader->depth--;
    return 1;
}

static int on_key(void *ctx, const unsigned char *data, size_t len)
{
    struct reader *reader = ctx;
    if (json_count(reader->open[reader->depth - 1]) == LIMIT_JSON_MEMBERS)
        return reader_refuse(reader, "an object has too many members", "");
    if (len && memchr(data, '\0', len))
        return reader_refuse(reader, "a key holds a NUL byte", "");
    char *key = strndup(len ? (const char *)data : "", len);
    if (!key)
        return reader_refuse(reader, "out of memory", "");
    if (json_get(reader->open[reader->depth - 1], key)) {
        reader_refuse(reader, "duplicate key ", key);
        free(key);
        return 0;
    }
    free(reader->key);
    reader->key = key;
    return 1;
}

static const yajl_callbacks reader_callbacks = {
    .yajl_null = on_null,
    .yajl_boolean = on_boolean,
    .yajl_integer = on_integer,
    .yajl_double = on_double,
    .yajl_string = on_string,
    .yajl_start_map = on_object_begin,
    .yajl_map_key = on_key,
    .yajl_end_map = on_end,
    .yajl_start_array = on_array_begin,
    .yajl_end_array = on_end,
};

/* yajl's message is "kind error: reason\n" and more lines; the reason alone is wanted. */
static void reader_explain(struct reader *reader, char *ret, size_t size)
{
    unsigned char *text = yajl_get_error(reader->handle, 0, NULL, 0);
    const char *reason = text ? (const char *)text : "invalid JSON";
    const char *colon = strstr(reason, "error: ");
    if (colon)
        reason = colon + strlen("error: ");
    snprintf(ret, size, "%.*s", (int)strcspn(reason, "\n"), reason);
    if (text)
        yajl_free_error(reader->handle, text);
}

int json_parse(const char *data, size_t len, enum json_flags flags, struct json **ret,
               struct err *err)
{
    struct reader reader = {.data = data, .len = len, .line = 1};
    reader.handle = yajl_alloc(&reader_callbacks, NULL, &reader);
    if (!reader.handle)
        return err_set(err, ENOMEM, "out of memory");
    yajl_config(reader.handle, yajl_allow_comments, flags & JSON_COMMENTS ? 1 : 0);
    yajl_status status = yajl_parse(reader.handle, (const unsigned char *)data, len);
    if (status == yajl_status_ok)
        status = yajl_complete_parse(reader.handle);
    int result = 0;
    if (status != yajl_status_ok || !reader.root) {
        char reason[200];
        if (reader.reason[0])
            snprintf(reason, sizeof(reason), "%s", reader.reason);
        else if (status == yajl_status_ok)
            snprintf(reason, sizeof(reason), "the document is empty");
        else
            reader_explain(&reader, reason, sizeof(reason));
        unsigned line;
        unsigned column;
        reader_position(&reader, yajl_get_bytes_consumed(reader.handle), &line, &column);
        result = err_set(err, EINVAL, "%u:%u: %s", line, column, reason);
    }
    yajl_free(reader.handle);
    free(reader.key);
    if (result < 0)
        json_free(reader.root);
    else
        *ret = reader.root;
    return result;
}

/* Recursion is bounded by LIMIT_JSON_DEPTH. NOLINTNEXTLINE(misc-no-recursion) */
void json_free(struct json *json)
{
    if (!json)
        return;
    if (json->type == JSON_STRING)
        free(json->string.data);
    if (json->type == JSON_ARRAY || json->type == JSON_OBJECT) {
        for (size_t i = 0; i < json->list.count; i++) {
            if (json->type == JSON_OBJECT)
                free(json->list.keys[i]);
            json_free(json->list.values[i]);
        }
        free(json->list.keys);
        free(json->list.values);
    }
    free(json);
}

enum json_type json_type(const struct json *json)
{
    return json ? json->type : JSON_NULL;
}

const char *json_type_name(enum json_type type)
{
    static const char *const names[] = {"null",     "a boolean", "an integer", "a number",
                                        "a string", "an array",  "an object"};
    return names[type];
}

unsigned json_line(const struct json *json)
{
    return json ? json->line : 0;
}

unsigned json_column(const struct json *json)
{
    return json ? json->column : 0;
}

bool json_bool(const struct json *json)
{
    return json_type(json) == JSON_BOOL && json->boolean;
}

int64_t json_integer(const struct json *json)
{
    return json_type(json) == JSON_INTEGER ? json->integer : 0;
}

double json_real(const struct json *json)
{
    if (json_type(json) == JSON_REAL)
        return json->real;
    return (double)json_integer(json);
}

const char *json_string(const struct json *json, size_t *ret_len)
{
    if (json_type(json) != JSON_STRING)
        return NULL;
    if (ret_len)
        *ret_len = json->string.len;
    return json->string.data;
}

const char *json_text(const struct json *json)
{
    size_t len;
    const char *text = json_string(json, &len);
    return text && strlen(text) == len ? text : NULL;
}

static bool json_is_list(const struct json *json)
{
    return json_type(json) == JSON_ARRAY || json_type(json) == JSON_OBJECT;
}

size_t json_count(const struct json *json)
{
    return json_is_list(json) ? json->list.count : 0;
}

const struct json *json_at(const struct json *json, size_t index)
{
    return index < json_count(json) ? json->list.values[index] : NULL;
}

const char *json_key_at(const struct json *json, size_t index)
{
    return json_type(json) == JSON_OBJECT && index < json->list.count ? json->list.keys[index]
                                                                      : NULL;
}

const struct json *json_get(const struct json *json, const char *key)
{
    if (json_type(json) != JSON_OBJECT)
        return NULL;
    for (size_t i = 0; i < json->list.count; i++)
        if (strcmp(json->list.keys[i], key) == 0)
            return json->list.values[i];
    return NULL;
}
