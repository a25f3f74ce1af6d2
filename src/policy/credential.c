/* The value of a header that a rule sets, with its secrets put in: as they are, or as the
 * credentials of "Basic" (RFC 7617). What was copied on the way is wiped. */
#include <assert.h>
#include <string.h>

#include "policy/internal.h"

static bool is_header_text(const char *text, size_t len)
{
    for (size_t i = 0; i < len; i++)
        if (((unsigned char)text[i] < 0x20 && text[i] != '\t') || text[i] == 0x7f)
            return false;
    return true;
}

#define SECRET_INIT __attribute__((cleanup(secret_free))) = {0}

/* RFC 4648, section 4: with padding. The command line has the policy without libcrypto, and every
 * copy of a secret is to be wiped. */
static int append_base64(struct secret *value, const char *text, size_t len)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    struct secret out SECRET_INIT;
    int result = 0;
    for (size_t i = 0; i < len && result == 0; i += 3) {
        unsigned bits = 0;
        char four[4];
        for (size_t j = 0; j < 3; j++)
            bits = bits << 8 | (i + j < len ? (unsigned char)text[i + j] : 0U);
        for (size_t j = 0; j < 4; j++)
            four[j] = (char)(j > len - i ? '=' : digits[bits >> (18 - 6 * j) & 63]);
        result = secret_append(&out, four, sizeof(four));
    }
    return result ? result : secret_append(value, out.data, out.len);
}

static int append_basic(struct secret *value, const char *user, const struct secret *password)
{
    struct secret pair SECRET_INIT;
    int result = secret_append(&pair, user, strlen(user));
    if (!result)
        result = secret_append(&pair, ":", 1);
    if (!result)
        result = secret_append(&pair, password->data, password->len);
    return result ? result : append_base64(value, pair.data, pair.len);
}

/* A control character in a secret is refused for "Basic" too: RFC 7617 forbids it there. */
static int append_part(struct secret *value, const struct policy_part *part,
                       const struct secret *secret, const char *header, struct err *err)
{
    const char *text = secret ? secret->data : part->text;
    size_t len = secret ? secret->len : strlen(text);
    if (!is_header_text(text, len))
        return err_set(err, EINVAL, "the value of %s would hold a control character%s%s", header,
                       secret ? ", from secret " : "", secret ? part->text : "");
    int result = secret && part->basic_user ? append_basic(value, part->basic_user, secret)
                                            : secret_append(value, text, len);
    return result < 0 ? err_set(err, ENOMEM, "out of memory") : 0;
}

int policy_rule_set_value(const struct policy_rule *rule, size_t index,
                          const struct secret *(*secret)(void *ctx, const char *name), void *ctx,
                          struct secret *ret, struct err *err)
{
    assert(index < rule->set_count);
    const struct policy_header *header = &rule->set[index];
    struct secret value SECRET_INIT;
    for (size_t i = 0; i < header->value.count; i++) {
        const struct policy_part *part = &header->value.parts[i];
        const struct secret *bytes = part->is_secret ? secret(ctx, part->text) : NULL;
        if (part->is_secret && !bytes)
            return err_set(err, ENOENT, "secret %s is not set", part->text);
        int result = append_part(&value, part, bytes, header->name, err);
        if (result < 0)
            return result;
    }
    secret_free(ret);
    *ret = value;
    value = (struct secret){0};
    return 0;
}
