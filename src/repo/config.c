/*
 * What is kept of an agent's configuration; see config.h. Process: paddock-jail. Invariant: no key
 * comes through but those of the table, whatever the bytes are, and each value is quoted.
 */
#include "repo/config.h"

#include <string.h>
#include <strings.h>

#include "util/cleanup.h"

static const char *const kept_core[] = {
    "repositoryformatversion", "filemode", "symlinks", "autocrlf", "eol", "ignorecase",
};

static bool is_kept_core(const char *name, size_t len)
{
    for (size_t i = 0; i < ARRAY_LEN(kept_core); i++)
        if (strlen(kept_core[i]) == len && memcmp(kept_core[i], name, len) == 0)
            return true;
    return false;
}

/* A variable's name as git allows it: letters, digits and '-', a letter first. */
static bool is_variable(const char *name, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        bool is_letter = name[i] >= 'a' && name[i] <= 'z';
        if (!is_letter && (i == 0 || !strchr("0123456789-", name[i]) || name[i] == '\0'))
            return false;
    }
    return len > 0;
}

/* `= "value"` with what means something inside quotes escaped. */
static int append_value(struct buf *ret, const char *value, size_t len)
{
    int r = buf_append_string(ret, " = \"");
    for (size_t i = 0; i < len && r == 0; i++) {
        if (value[i] == '\n')
            r = buf_append_string(ret, "\\n");
        else if (value[i] == '"' || value[i] == '\\')
            r = buf_append(ret, (char[]){'\\', value[i]}, 2);
        else
            r = buf_append(ret, &value[i], 1);
    }
    return r < 0 ? r : buf_append_string(ret, "\"\n");
}

static int append_setting(struct buf *ret, const char *section, const char *name, size_t name_len,
                          const char *value, size_t value_len)
{
    int r = buf_appendf(ret, "[%s]\n\t%.*s", section, (int)name_len, name);
    if (r < 0)
        return r;
    return value ? append_value(ret, value, value_len) : buf_append_string(ret, "\n");
}

/* One record without its NUL. Keys of neither section, or with a subsection, are left out. */
static int keep_record(const char *record, size_t len, struct buf *ret, bool *is_sha256)
{
    const char *newline = memchr(record, '\n', len);
    size_t key_len = newline ? (size_t)(newline - record) : len;
    const char *value = newline ? newline + 1 : NULL;
    size_t value_len = newline ? len - key_len - 1 : 0;
    const char *dot = memchr(record, '.', key_len);
    if (!dot)
        return 0;
    const char *name = dot + 1;
    size_t section_len = (size_t)(dot - record), name_len = key_len - section_len - 1;
    if (!is_variable(name, name_len))
        return 0;
    if (section_len == 4 && memcmp(record, "core", 4) == 0 && is_kept_core(name, name_len))
        return append_setting(ret, "core", name, name_len, value, value_len);
    if (section_len == 10 && memcmp(record, "extensions", 10) == 0) {
        if (name_len == 12 && memcmp(name, "objectformat", 12) == 0)
            *is_sha256 = value_len == 6 && strncasecmp(value, "sha256", 6) == 0;
        return append_setting(ret, "extensions", name, name_len, value, value_len);
    }
    return 0;
}

int repo_config_keep(const char *list, size_t len, struct buf *ret, bool *ret_sha256,
                     struct err *err)
{
    cleanup_buf struct buf text = BUF_INIT(ret->max);
    bool is_sha256 = false;
    while (len > 0) {
        const char *nul = memchr(list, '\0', len);
        if (!nul)
            return err_set(err, EINVAL, "the repository's configuration ends in the middle");
        size_t record_len = (size_t)(nul - list);
        int r = keep_record(list, record_len, &text, &is_sha256);
        if (r < 0)
            return err_errno(err, -r, "cannot keep the repository's configuration");
        list += record_len + 1;
        len -= record_len + 1;
    }
    int r = buf_append(ret, text.data, text.len);
    if (r < 0)
        return err_errno(err, -r, "cannot keep the repository's configuration");
    *ret_sha256 = is_sha256;
    return 0;
}
