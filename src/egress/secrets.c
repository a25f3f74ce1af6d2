/* Secrets; see secrets.h. Runs in paddock-egress, the only process where they are ever read. */
#include "egress/secrets.h"

#include <stdlib.h>
#include <string.h>

#include "util/buf.h"
#include "util/fd.h"
#include "util/limits.h"

int egress_secrets_add(struct egress_secrets *secrets, const char *name)
{
    if (egress_secrets_find(secrets, name))
        return 0;
    if (secrets->count >= LIMIT_POLICY_SECRETS || strlen(name) >= sizeof(secrets->items->name))
        return -EMSGSIZE;
    struct egress_secret *grown =
        reallocarray(secrets->items, secrets->count + 1, sizeof(*secrets->items));
    if (!grown)
        return -ENOMEM;
    secrets->items = grown;
    struct egress_secret *added = &grown[secrets->count++];
    memset(added, 0, sizeof(*added));
    memcpy(added->name, name, strlen(name));
    return 0;
}

struct egress_secret *egress_secrets_find(const struct egress_secrets *secrets, const char *name)
{
    for (size_t i = 0; i < secrets->count; i++)
        if (strcmp(secrets->items[i].name, name) == 0)
            return &secrets->items[i];
    return NULL;
}

static int secret_strip_and_set(struct egress_secret *secret, const struct buf *text)
{
    size_t len = text->len;
    if (len && text->data[len - 1] == '\n')
        len--;
    if (len && len < text->len && text->data[len - 1] == '\r')
        len--;
    return len ? secret_set(&secret->value, text->data, len) : -ENODATA;
}

int egress_secrets_read(struct egress_secret *secret, int fd, struct err *err)
{
    /* the whole room at once: a buffer that grows would leave copies behind */
    struct buf text = BUF_INIT(LIMIT_SECRET_BYTES);
    if (!buf_reserve(&text, LIMIT_SECRET_BYTES))
        return err_errno(err, ENOMEM, "cannot read the secret %s", secret->name);
    int result = fd_read_all(fd, &text);
    if (result == 0)
        result = secret_strip_and_set(secret, &text);
    explicit_bzero(text.data, text.capacity);
    buf_free(&text);
    if (result == -EMSGSIZE)
        return err_set(err, EMSGSIZE, "it is longer than %d bytes", LIMIT_SECRET_BYTES);
    if (result == -ENODATA)
        return err_set(err, ENODATA, "it is empty");
    return result < 0 ? err_errno(err, -result, "cannot read the secret %s", secret->name) : 0;
}

void egress_secrets_free(struct egress_secrets *secrets)
{
    for (size_t i = 0; i < secrets->count; i++)
        secret_free(&secrets->items[i].value);
    free(secrets->items);
    *secrets = (struct egress_secrets){0};
}
