/* The image's own configuration; see config.h. Supervisor and jail; pure functions. */
#include "image/config.h"

#include <string.h>

#include "util/utf8.h"

/* Ends within the array, is UTF-8, and has no control character. */
static bool is_clean(const char *text, size_t size)
{
    size_t len = strnlen(text, size);
    if (len == size || !utf8_is_valid(text, len))
        return false;
    for (size_t i = 0; i < len; i++)
        if ((unsigned char)text[i] < 0x20 || text[i] == 0x7f)
            return false;
    return true;
}

static bool is_path(const char *text, size_t size)
{
    return is_clean(text, size) && (text[0] == '\0' || text[0] == '/');
}

static bool is_variable(const char *entry)
{
    const char *equals = strchr(entry, '=');
    return equals && equals != entry && utf8_is_valid(entry, strlen(entry));
}

const char *image_config_env_next(const struct image_config *config, const char *at)
{
    const char *next = at ? at + strlen(at) + 1 : config->env;
    return next < config->env + config->env_bytes ? next : NULL;
}

static size_t env_count(const struct image_config *config)
{
    size_t count = 0;
    for (const char *at = NULL; (at = image_config_env_next(config, at));)
        count++;
    return count;
}

int image_config_env_add(struct image_config *config, const char *entry, struct err *err)
{
    size_t size = strlen(entry) + 1;
    if (!is_variable(entry))
        return err_set(err, EINVAL, "the image's environment has \"%.80s\", not NAME=VALUE", entry);
    if (size > sizeof(config->env) - config->env_bytes ||
        env_count(config) == LIMIT_IMAGE_ENV_COUNT)
        return err_set(err, EMSGSIZE,
                       "the image's environment has more than %d variables or %d bytes",
                       LIMIT_IMAGE_ENV_COUNT, LIMIT_IMAGE_ENV_BYTES);
    memcpy(config->env + config->env_bytes, entry, size);
    config->env_bytes += (uint32_t)size;
    return 0;
}

bool image_config_is_valid(const struct image_config *config)
{
    if (!is_clean(config->user, sizeof(config->user)) ||
        !is_path(config->home, sizeof(config->home)) ||
        !is_path(config->workdir, sizeof(config->workdir)) || config->uid > 65535 ||
        config->gid > 65535 || config->env_bytes > sizeof(config->env))
        return false;
    if (config->env_bytes && config->env[config->env_bytes - 1] != '\0')
        return false;
    for (const char *at = NULL; (at = image_config_env_next(config, at));)
        if (!is_variable(at))
            return false;
    return env_count(config) <= LIMIT_IMAGE_ENV_COUNT;
}
