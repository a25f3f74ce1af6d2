/* What init is to run, encoded in bytes; see spec.h. Pure functions, libc only: init decodes what
 * the supervisor or api encoded and trusts neither, so both directions check the same rules. */
#include "task/spec.h"

#include <stdbool.h>
#include <string.h>

static const char spec_magic[4] = {'P', 'S', 'P', '1'};

static bool spec_counts_are_valid(uint32_t argc, uint32_t envc, uint32_t prompt)
{
    return argc >= 1 && argc <= LIMIT_SPEC_STRINGS && envc <= LIMIT_SPEC_STRINGS &&
           (prompt == SPEC_NO_PROMPT || (prompt >= 1 && prompt < argc));
}

static bool spec_environment_is_valid(const char *entry)
{
    const char *equals = strchr(entry, '=');
    return equals && equals != entry;
}

static int spec_check(const struct spec *spec, struct err *err)
{
    if (!spec->argv[0][0])
        return err_set(err, EINVAL, "the program's name is empty");
    if (spec->cwd[0] != '/')
        return err_set(err, EINVAL, "the working directory is not an absolute path");
    for (uint32_t i = 0; i < spec->envc; i++)
        if (!spec_environment_is_valid(spec->envp[i]))
            return err_set(err, EINVAL, "environment string %u is not NAME=VALUE", i);
    return 0;
}

static int spec_append(struct buf *out, const char *text)
{
    return buf_append(out, text, strlen(text) + 1);
}

int spec_encode(const struct spec *spec, struct buf *ret, struct err *err)
{
    if (spec->argc > LIMIT_SPEC_STRINGS || spec->envc > LIMIT_SPEC_STRINGS)
        return err_set(err, EMSGSIZE, "more than %d arguments or environment strings",
                       LIMIT_SPEC_STRINGS);
    if (!spec_counts_are_valid(spec->argc, spec->envc, spec->prompt))
        return err_set(err, EINVAL, "no program to run, or no argument for the prompt");
    int r = spec_check(spec, err);
    if (r < 0)
        return r;
    cleanup_buf struct buf out = BUF_INIT(LIMIT_SPEC_BYTES);
    struct spec_header header = {.argc = spec->argc, .envc = spec->envc, .prompt = spec->prompt};
    memcpy(header.magic, spec_magic, sizeof(spec_magic));
    r = buf_append(&out, &header, sizeof(header));
    if (r == 0)
        r = spec_append(&out, spec->cwd);
    for (uint32_t i = 0; r == 0 && i < spec->argc; i++)
        r = spec_append(&out, spec->argv[i]);
    for (uint32_t i = 0; r == 0 && i < spec->envc; i++)
        r = spec_append(&out, spec->envp[i]);
    if (r == 0)
        r = buf_append(ret, out.data, out.len);
    if (r == -EMSGSIZE)
        return err_set(err, EMSGSIZE, "arguments and environment are over %d bytes",
                       LIMIT_SPEC_BYTES);
    if (r < 0)
        return err_errno(err, -r, "cannot encode the program to run");
    return 0;
}

/* The next string of the encoded bytes, or NULL when no NUL ends it. */
static const char *spec_next(const char **position, const char *end)
{
    const char *text = *position;
    const char *nul = text < end ? memchr(text, '\0', (size_t)(end - text)) : NULL;
    if (!nul)
        return NULL;
    *position = nul + 1;
    return text;
}

static bool spec_next_list(const char **position, const char *end, uint32_t count,
                           const char **ret_list)
{
    for (uint32_t i = 0; i < count; i++)
        if (!(ret_list[i] = spec_next(position, end)))
            return false;
    ret_list[count] = NULL;
    return true;
}

int spec_decode(const char *data, size_t len, struct spec *ret, struct err *err)
{
    struct spec_header header;
    if (len < sizeof(header) || len > LIMIT_SPEC_BYTES)
        return err_set(err, EINVAL, "encoded program of %zu bytes: too short or too long", len);
    memcpy(&header, data, sizeof(header));
    if (memcmp(header.magic, spec_magic, sizeof(spec_magic)) != 0)
        return err_set(err, EINVAL, "not an encoded program");
    if (!spec_counts_are_valid(header.argc, header.envc, header.prompt))
        return err_set(err, EINVAL, "encoded program with counts out of range");
    const char *position = data + sizeof(header);
    const char *end = data + len;
    ret->argc = header.argc;
    ret->envc = header.envc;
    ret->prompt = header.prompt;
    ret->cwd = spec_next(&position, end);
    if (!ret->cwd || !spec_next_list(&position, end, header.argc, ret->argv) ||
        !spec_next_list(&position, end, header.envc, ret->envp))
        return err_set(err, EINVAL, "encoded program is cut off");
    if (position != end)
        return err_set(err, EINVAL, "bytes behind the encoded program");
    return spec_check(ret, err);
}
