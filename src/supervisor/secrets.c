/*
 * Secrets; see secrets.h. The only bytes of a secret in this process are those that came in its
 * environment. They are wiped at their old place, kept in memory of their own, and leave as a
 * sealed memfd.
 */
#include "supervisor/secrets.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "util/cleanup.h"
#include "util/fd.h"
#include "util/secret.h"

struct secrets_item {
    char *name;
    struct secret value;
};

struct secrets {
    struct secrets_item *items;
    size_t count;
};

static struct secrets *secrets_taken; /* of this process; for secrets_variable */

bool secret_name_is_valid(const char *name)
{
    static const char allowed[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-.";
    size_t len = strlen(name);
    return len > 0 && len < 128 && name[0] != '.' && name[0] != '-' && strspn(name, allowed) == len;
}

struct secrets *secrets_take(char **environment)
{
    size_t count = 0;
    while (environment[count])
        count++;
    struct secrets *secrets = calloc(1, sizeof(*secrets));
    struct secrets_item *items = calloc(count + 1, sizeof(*items));
    if (!secrets || !items) {
        free(secrets);
        free(items);
        return NULL;
    }
    secrets->items = items;
    for (size_t i = 0; i < count; i++) {
        char *equals = strchr(environment[i], '=');
        size_t len = strlen(environment[i]);
        if (equals) {
            struct secrets_item *item = &items[secrets->count];
            item->name = strndup(environment[i], (size_t)(equals - environment[i]));
            if (item->name && secret_set(&item->value, equals + 1, strlen(equals + 1)) == 0)
                secrets->count++;
        }
        explicit_bzero(environment[i], len);
    }
    environment[0] = NULL;
    secrets_taken = secrets;
    return secrets;
}

void secrets_free(struct secrets *secrets)
{
    if (!secrets)
        return;
    for (size_t i = 0; i < secrets->count; i++) {
        free(secrets->items[i].name);
        secret_free(&secrets->items[i].value);
    }
    free(secrets->items);
    free(secrets);
    secrets_taken = NULL;
}

static const struct secret *secrets_find(const struct secrets *secrets, const char *name)
{
    for (size_t i = 0; secrets && i < secrets->count; i++)
        if (strcmp(secrets->items[i].name, name) == 0)
            return &secrets->items[i].value;
    return NULL;
}

const char *secrets_variable(const char *name)
{
    const struct secret *value = secrets_find(secrets_taken, name);
    return value ? value->data : NULL;
}

/* dir/name when it is a regular file of this user that nobody else can read. -ENOENT: not there.
 * The reason goes as far as into a sandbox: it names no folder of the host. */
static int secrets_open_file(const char *dir, const char *name, bool is_strict, struct err *err)
{
    cleanup_fd int dir_fd = open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (dir_fd < 0)
        return err_errno(err, errno, "cannot open the folder of secrets");
    cleanup_fd int fd = fd_open_beneath(dir_fd, name, O_RDONLY, 0, true, err);
    if (fd < 0)
        return fd;
    struct stat st;
    if (fstat(fd, &st) < 0)
        return err_errno(err, errno, "cannot examine %s", name);
    if (is_strict && (st.st_uid != geteuid() || (st.st_mode & 0077)))
        return err_set(err, EPERM,
                       "its file in secrets_dir must belong to uid %u and have mode 0600 or "
                       "stricter (chmod 600 it)",
                       geteuid());
    return TAKE_FD(fd);
}

int secrets_open(const struct secrets *secrets, const char *secrets_dir, const char *name,
                 struct err *err)
{
    if (!secret_name_is_valid(name))
        return err_set(err, EINVAL, "not a name of a secret");
    int fd = secrets_open_file(secrets_dir, name, true, err);
    if (fd >= 0 || (fd != -ENOENT && fd != -ENOTDIR))
        return fd;
    const struct secret *folder = secrets_find(secrets, "CREDENTIALS_DIRECTORY");
    if (folder && folder->data[0] == '/') {
        /* systemd itself made it for this service alone */
        fd = secrets_open_file(folder->data, name, false, err);
        if (fd >= 0 || (fd != -ENOENT && fd != -ENOTDIR))
            return fd;
    }
    const struct secret *value = secrets_find(secrets, name);
    if (value && value->len)
        return fd_sealed("secret", value->data, value->len, err);
    return err_set(err, ENOENT,
                   "secret %s is not set: put it in the file %s/%s (mode 0600), or in paddockd's "
                   "environment",
                   name, secrets_dir, name);
}
