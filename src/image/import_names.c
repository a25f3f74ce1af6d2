/* Paths of archives and users of images; see import_parse.h. In the jail, on foreign bytes; pure.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "image/import_parse.h"

#define ID_MAX 65535

int import_clean_path(const char *path, char ret[LIMIT_IMPORT_PATH_BYTES + 1], struct err *err)
{
    size_t used = 0;
    size_t depth = 0;
    for (size_t len; *path; path += len) {
        path += strspn(path, "/");
        len = strcspn(path, "/");
        if (len == 0 || (len == 1 && path[0] == '.'))
            continue;
        if (len == 2 && memcmp(path, "..", 2) == 0)
            return err_set(err, EINVAL, "a name in the archive has \"..\" in it");
        if (used + len + 1 > LIMIT_IMPORT_PATH_BYTES || len > 255 || ++depth > LIMIT_IMPORT_DEPTH)
            return err_set(err, EINVAL, "a name in the archive is too long or too deep");
        if (used)
            ret[used++] = '/';
        memcpy(ret + used, path, len);
        used += len;
    }
    ret[used] = '\0';
    return 0;
}

/* A number that is an id; -1: it is none. */
static long parse_id(const char *text, size_t len)
{
    if (len == 0 || len > 5 || strspn(text, "0123456789") < len)
        return -1;
    long id = strtol(text, NULL, 10);
    return id > ID_MAX ? -1 : id;
}

/* Field `index` of a line of passwd or group; its length is *ret_len. */
static const char *line_field(const char *line, size_t index, size_t *ret_len)
{
    while (index > 0 && *line && *line != '\n')
        index -= *line++ == ':';
    *ret_len = index ? 0 : strcspn(line, ":\n");
    return line;
}

/* The line whose name (field 0) or, for digits, id (field 2) is this; NULL: there is none. */
static const char *find_line(const char *text, const char *who, size_t who_len)
{
    bool is_number = parse_id(who, who_len) >= 0;
    for (const char *line = text; *line; line += *line == '\n') {
        size_t len;
        const char *field = line_field(line, is_number ? 2 : 0, &len);
        if (len == who_len && memcmp(field, who, len) == 0)
            return line;
        line += strcspn(line, "\n");
    }
    return NULL;
}

static long line_id(const char *line, size_t index)
{
    size_t len = 0;
    const char *field = line ? line_field(line, index, &len) : "";
    return parse_id(field, len);
}

static void learn_home(struct image_config *config, const char *line)
{
    size_t len = 0;
    const char *home = line ? line_field(line, 5, &len) : "";
    if (len && len < sizeof(config->home) && home[0] == '/')
        snprintf(config->home, sizeof(config->home), "%.*s", (int)len, home);
    if (!image_config_is_valid(config))
        config->home[0] = '\0';
}

int import_find_user(struct image_config *config, const char *passwd, const char *group,
                     struct err *err)
{
    const char *user = config->user;
    size_t user_len = strcspn(user, ":");
    const char *line = user_len ? find_line(passwd, user, user_len) : NULL;
    long uid = user_len ? parse_id(user, user_len) : 0;
    if (uid < 0)
        uid = line_id(line, 2);
    long gid = line_id(line, 3);
    if (uid < 0 || (line && gid < 0))
        return err_set(err, ENOENT, "the image's user is %s, and its passwd has none of that name",
                       user);
    if (user[user_len] == ':') {
        const char *name = user + user_len + 1;
        gid = parse_id(name, strlen(name));
        if (gid < 0)
            gid = line_id(find_line(group, name, strlen(name)), 2);
        if (gid < 0)
            return err_set(err, ENOENT, "the image's user is %s, and it has no such group", user);
    }
    config->uid = (uint32_t)uid;
    config->gid = gid < 0 ? 0 : (uint32_t)gid;
    config->home[0] = '\0';
    learn_home(config, line);
    return 0;
}
