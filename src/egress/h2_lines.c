/* See h2_lines.h. */
#include "egress/h2_lines.h"

#include <string.h>

static nghttp2_nv line(const char *name, size_t name_len, const char *value, size_t value_len)
{
    nghttp2_nv nv = {.namelen = name_len, .valuelen = value_len, .flags = NGHTTP2_NV_FLAG_NONE};
    memcpy(&nv.name, &name, sizeof(nv.name)); /* nghttp2 only reads, though not const */
    memcpy(&nv.value, &value, sizeof(nv.value));
    return nv;
}

nghttp2_nv h2_line(const char *name, const char *value)
{
    return line(name, strlen(name), value, strlen(value));
}

nghttp2_nv h2_line_of(const struct http_field *field)
{
    nghttp2_nv nv = line(field->name, field->name_len, field->value, field->value_len);
    for (size_t i = 0; i < nv.namelen; i++)
        if (nv.name[i] >= 'A' && nv.name[i] <= 'Z')
            nv.name[i] |= 0x20;
    return nv;
}

static bool is_blank(uint8_t c)
{
    return c == ' ' || c == '\t';
}

nghttp2_vec h2_value(nghttp2_rcbuf *value)
{
    nghttp2_vec text = nghttp2_rcbuf_get_buf(value);
    for (; text.len && is_blank(text.base[0]); text.len--)
        text.base++;
    while (text.len && is_blank(text.base[text.len - 1]))
        text.len--;
    return text;
}
