/* The answers of DNS; see dns.h. Runs in paddock-egress. A pure function over foreign bytes (RFC
 * 1035, EDNS of RFC 6891): every read is checked against the end, and every record it walks over
 * takes at least a byte, so that it ends. */
#include "egress/dns.h"

#include <stdbool.h>
#include <string.h>

#define HEADER_BYTES 12
#define NAME_MAX_BYTES 255
#define LABEL_MAX_BYTES 63
#define OUR_UDP_BYTES 1232

#define FLAG_QR 0x8000U
#define FLAG_OPCODE 0x7800U
#define FLAG_AA 0x0400U
#define FLAG_RD 0x0100U
#define FLAG_RA 0x0080U
#define FLAG_CD 0x0010U

enum { RCODE_OK = 0, RCODE_FORMAT = 1, RCODE_NOT_IMPLEMENTED = 4, RCODE_BAD_VERSION = 16 };
enum { TYPE_A = 1, TYPE_AAAA = 28, TYPE_OPT = 41 };
enum { CLASS_IN = 1, CLASS_ANY = 255 };

struct reader {
    const uint8_t *data;
    size_t len;
    size_t at;
};

struct question {
    const uint8_t *bytes; /* name, type, class as they came */
    size_t len;
    size_t name_len;
    uint16_t type;
    uint16_t class;
};

struct edns {
    bool is_there;
    uint8_t version;
};

struct writer {
    uint8_t *data;
    size_t at;
};

static bool read_skip(struct reader *in, size_t count)
{
    if (in->len - in->at < count)
        return false;
    in->at += count;
    return true;
}

static bool read_u16(struct reader *in, uint16_t *ret)
{
    const uint8_t *bytes = in->data + in->at;
    if (!read_skip(in, 2))
        return false;
    *ret = (uint16_t)(bytes[0] << 8 | bytes[1]);
    return true;
}

static void write_u16(struct writer *out, unsigned value)
{
    out->data[out->at++] = (uint8_t)(value >> 8);
    out->data[out->at++] = (uint8_t)value;
}

static void write_bytes(struct writer *out, const void *bytes, size_t len)
{
    memcpy(out->data + out->at, bytes, len);
    out->at += len;
}

/* Passes over a name. A pointer ends it and is not followed; in a question it is refused, since
 * nothing comes before a question that it could point to. */
static bool read_name(struct reader *in, bool allow_pointer)
{
    size_t start = in->at;
    while (in->at < in->len) {
        uint8_t label = in->data[in->at];
        if ((label & 0xc0U) == 0xc0U)
            return allow_pointer && read_skip(in, 2);
        if (label > LABEL_MAX_BYTES || !read_skip(in, 1U + label) ||
            in->at - start > NAME_MAX_BYTES)
            return false;
        if (label == 0)
            return true;
    }
    return false;
}

static bool read_question(struct reader *in, struct question *ret)
{
    size_t start = in->at;
    if (!read_name(in, false))
        return false;
    ret->name_len = in->at - start;
    if (!read_u16(in, &ret->type) || !read_u16(in, &ret->class))
        return false;
    ret->bytes = in->data + start;
    ret->len = in->at - start;
    return true;
}

/* Walks over the records behind the question, to find the one OPT that may be among them. */
static bool read_records(struct reader *in, size_t count, struct edns *ret)
{
    for (size_t i = 0; i < count; i++) {
        uint16_t type, class, data_len;
        bool is_root = in->at < in->len && in->data[in->at] == 0;
        if (!read_name(in, true) || !read_u16(in, &type) || !read_u16(in, &class))
            return false;
        const uint8_t *ttl = in->data + in->at;
        if (!read_skip(in, 4) || !read_u16(in, &data_len) || !read_skip(in, data_len))
            return false;
        if (type != TYPE_OPT)
            continue;
        if (ret->is_there || !is_root)
            return false;
        ret->is_there = true;
        ret->version = ttl[1];
    }
    return true;
}

/* FNV-1a over the name in lower case, its bits mixed at the end. */
static uint64_t hash_name(const uint8_t *name, size_t len)
{
    uint64_t hash = 14695981039346656037ULL;
    for (size_t i = 0; i < len; i++) {
        uint8_t byte = name[i];
        if (byte >= 'A' && byte <= 'Z')
            byte |= 0x20U;
        hash = (hash ^ byte) * 1099511628211ULL;
    }
    hash = (hash ^ (hash >> 33)) * 0xff51afd7ed558ccdULL;
    return hash ^ (hash >> 33);
}

/* "localhost" and every name below it. The bytes in front of it must be a label's end, so the
 * labels are walked. */
static bool is_localhost(const uint8_t *name, size_t len)
{
    static const char wanted[] = "\x09localhost";
    for (size_t at = 0; name[at]; at += 1U + name[at]) {
        if (len - at != sizeof(wanted) || name[at] != 9)
            continue;
        bool same = true;
        for (size_t i = 1; i < sizeof(wanted) - 1; i++)
            same = same && (name[at + i] | 0x20) == wanted[i];
        return same;
    }
    return false;
}

/* The bytes of the answer's address; 0: this question has none. */
static size_t make_address(const struct question *question, uint8_t ret[16])
{
    bool is_in = question->class == CLASS_IN || question->class == CLASS_ANY;
    if (!is_in || question->name_len <= 1)
        return 0;
    bool is_local = is_localhost(question->bytes, question->name_len);
    uint64_t hash = hash_name(question->bytes, question->name_len);
    uint8_t low[4] = {(uint8_t)(hash >> 24), (uint8_t)(hash >> 16), (uint8_t)(hash >> 8),
                      (uint8_t)hash};
    if (question->type == TYPE_A) {
        uint8_t synthetic[4] = {198, (uint8_t)(18 | (low[1] & 1)), low[2], low[3]};
        memcpy(ret, is_local ? (uint8_t[4]){127, 0, 0, 1} : synthetic, 4);
        return 4;
    }
    if (question->type != TYPE_AAAA)
        return 0;
    static const uint8_t prefix[12] = {0xfd, 'p', 'a', 'd', 'd', 'o', 'c', 'k'};
    memset(ret, 0, 16);
    if (is_local) {
        ret[15] = 1;
    } else {
        memcpy(ret, prefix, sizeof(prefix));
        memcpy(ret + 12, low, sizeof(low));
    }
    return 16;
}

/* The one answer, its name a pointer to the question's, which keeps the case as it was asked. */
static void write_answer(struct writer *out, const struct question *question,
                         const uint8_t *address, size_t len)
{
    write_u16(out, 0xc000U | HEADER_BYTES);
    write_u16(out, question->type);
    write_u16(out, CLASS_IN);
    write_u16(out, 0);
    write_u16(out, EGRESS_DNS_TTL_S);
    write_u16(out, (unsigned)len);
    write_bytes(out, address, len);
}

static void write_opt(struct writer *out, unsigned rcode)
{
    out->data[out->at++] = 0; /* the root */
    write_u16(out, TYPE_OPT);
    write_u16(out, OUR_UDP_BYTES);
    write_u16(out, (rcode >> 4) << 8); /* upper bits of the rcode, version 0 */
    write_u16(out, 0);
    write_u16(out, 0);
}

static void write_header(struct writer *out, const uint8_t *query, unsigned rcode)
{
    unsigned asked = (unsigned)query[2] << 8 | query[3];
    memcpy(out->data, query, 2);
    out->at = 2;
    write_u16(out, FLAG_QR | FLAG_AA | FLAG_RA | (asked & (FLAG_OPCODE | FLAG_RD | FLAG_CD)) |
                       (rcode & 15U));
    memset(out->data + out->at, 0, HEADER_BYTES - out->at);
    out->at = HEADER_BYTES;
}

static size_t write_error(const uint8_t *query, unsigned rcode, uint8_t *ret)
{
    struct writer out = {.data = ret};
    write_header(&out, query, rcode);
    return out.at;
}

static size_t write_reply(const uint8_t *query, const struct question *question,
                          const struct edns *edns, uint8_t *ret)
{
    unsigned rcode = edns->version ? RCODE_BAD_VERSION : RCODE_OK;
    struct writer out = {.data = ret};
    uint8_t address[16];
    size_t address_len = rcode == RCODE_OK ? make_address(question, address) : 0;
    write_header(&out, query, rcode);
    ret[5] = 1;
    write_bytes(&out, question->bytes, question->len);
    if (address_len) {
        ret[7] = 1;
        write_answer(&out, question, address, address_len);
    }
    if (edns->is_there) {
        ret[11] = 1;
        write_opt(&out, rcode);
    }
    return out.at;
}

size_t egress_dns_answer(const uint8_t *query, size_t len, uint8_t ret[EGRESS_DNS_ANSWER_MAX])
{
    if (len < HEADER_BYTES || query[2] & (FLAG_QR >> 8))
        return 0;
    if (query[2] & (FLAG_OPCODE >> 8))
        return write_error(query, RCODE_NOT_IMPLEMENTED, ret);
    struct reader in = {.data = query, .len = len, .at = 4};
    uint16_t questions = 0, answers = 0, authorities = 0, additional = 0;
    struct question question = {0};
    struct edns edns = {0};
    if (!read_u16(&in, &questions) || !read_u16(&in, &answers) || !read_u16(&in, &authorities) ||
        !read_u16(&in, &additional) || questions != 1 || !read_question(&in, &question) ||
        !read_records(&in, (size_t)answers + authorities + additional, &edns))
        return write_error(query, RCODE_FORMAT, ret);
    return write_reply(query, &question, &edns, ret);
}
