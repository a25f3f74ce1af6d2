/* Secrets; see secret.h. */
#include "util/secret.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

int secret_set(struct secret *secret, const void *data, size_t len)
{
    char *copy = malloc(len + 1);
    if (!copy)
        return -ENOMEM;
    if (len)
        memcpy(copy, data, len);
    copy[len] = '\0';
    secret_free(secret);
    secret->data = copy;
    secret->len = len;
    return 0;
}

int secret_append(struct secret *secret, const void *data, size_t len)
{
    char *joined = malloc(secret->len + len + 1); /* realloc would leave the old bytes about */
    if (!joined)
        return -ENOMEM;
    if (secret->len)
        memcpy(joined, secret->data, secret->len);
    if (len)
        memcpy(joined + secret->len, data, len);
    size_t total = secret->len + len;
    joined[total] = '\0';
    secret_free(secret);
    secret->data = joined;
    secret->len = total;
    return 0;
}

void secret_free(struct secret *secret)
{
    if (secret->data)
        explicit_bzero(secret->data, secret->len);
    free(secret->data);
    secret->data = NULL;
    secret->len = 0;
}
