/* Names; see name.h. */
#include "util/name.h"

#include <string.h>

#include "util/limits.h"

static bool name_is_alnum(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
}

bool name_is_valid(const char *name, size_t len)
{
    if (len == 0 || len > LIMIT_NAME_BYTES)
        return false;
    for (size_t i = 0; i < len; i++)
        if (!name_is_alnum(name[i]) && name[i] != '-')
            return false;
    return name_is_alnum(name[0]) && name_is_alnum(name[len - 1]);
}

bool name_prefix_is_valid(const char *prefix, size_t len)
{
    size_t last = len;
    while (last > 0 && prefix[last - 1] == '-')
        last--;
    return len <= LIMIT_NAME_BYTES && name_is_valid(prefix, last);
}

bool name_is_repository(const char *text)
{
    static const char letters[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.";
    size_t owner = strspn(text, letters);
    size_t repository = text[owner] == '/' ? strspn(text + owner + 1, letters) : 0;
    return owner > 0 && repository > 0 && text[0] != '.' && text[owner + 1 + repository] == '\0' &&
           owner + 1 + repository <= LIMIT_REPOSITORY_BYTES;
}
