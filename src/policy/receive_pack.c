/*
 * The refs of a push (gitprotocol-pack(5), "Reference Update Request and Packfile Transfer"): what
 * stands in front of the pack, and whether a rule lets it change. Pure; in egress on bytes of a
 * sandbox.
 *
 * Everything that some server might read otherwise is unreadable here: packets that are no line, a
 * second list of capabilities, what signs or asks for more (push-cert, push-options).
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "policy/internal.h"
#include "util/hex.h"
#include "util/limits.h"

#define PKT_HEAD 4         /* hexadecimal digits of a packet's length, which counts them too */
#define PKT_MAX 65520      /* gitprotocol-common(5) */
#define PKT_BAND_MAX 65515 /* of bytes behind the number of a band */
#define REF_MAX 1024       /* longer than what a file system takes for one name of it */

struct text {
    const char *data;
    size_t len;
};

struct command {
    struct text ref;
    struct text capabilities; /* of the first alone */
    bool deletes;
};

enum packet { PACKET_MORE, PACKET_BROKEN, PACKET_FLUSH, PACKET_LINE };

/* The packet at the start of the bytes; a line comes without the newline at its end. */
static enum packet packet_read(const char *data, size_t len, struct text *ret_line,
                               size_t *ret_size)
{
    size_t size = 0;
    if (len < PKT_HEAD)
        return PACKET_MORE;
    for (size_t i = 0; i < PKT_HEAD; i++) {
        int digit = hex_digit(data[i]);
        if (digit < 0)
            return PACKET_BROKEN;
        size = size * 16 + (size_t)digit;
    }
    *ret_size = size ? size : PKT_HEAD;
    if (size == 0)
        return PACKET_FLUSH;
    if (size <= PKT_HEAD || size > PKT_MAX)
        return PACKET_BROKEN;
    if (len < size)
        return PACKET_MORE;
    *ret_line = (struct text){data + PKT_HEAD, size - PKT_HEAD};
    if (ret_line->data[ret_line->len - 1] == '\n')
        ret_line->len--;
    return PACKET_LINE;
}

static bool text_begins(struct text text, const char *prefix)
{
    return text.len >= strlen(prefix) && memcmp(text.data, prefix, strlen(prefix)) == 0;
}

static struct text text_behind(struct text text, size_t len)
{
    return (struct text){text.data + len, text.len - len};
}

/* The object's name at the start of the text: 40 letters (SHA-1) or 64 (SHA-256), else 0. */
static size_t id_length(struct text text)
{
    size_t len = 0;
    while (len < text.len && hex_digit(text.data[len]) >= 0)
        len++;
    return len == 40 || len == 64 ? len : 0;
}

static bool is_zero_id(struct text text, size_t len)
{
    for (size_t i = 0; i < len; i++)
        if (text.data[i] != '0')
            return false;
    return true;
}

/* "OLD NEW REF", in the first also NUL and the capabilities. */
static bool command_read(struct text line, size_t *id_len, bool is_first, struct command *ret)
{
    size_t len = id_length(line);
    if (is_first)
        *id_len = len;
    if (len == 0 || len != *id_len || line.len < 2 * len + 3 || line.data[len] != ' ')
        return false;
    struct text new = text_behind(line, len + 1);
    if (id_length(new) != len || new.data[len] != ' ')
        return false;
    *ret = (struct command){.ref = text_behind(new, len + 1), .deletes = is_zero_id(new, len)};
    const char *nul = memchr(ret->ref.data, '\0', ret->ref.len);
    if (!nul)
        return true;
    size_t ref_len = (size_t)(nul - ret->ref.data);
    ret->capabilities = text_behind(ret->ref, ref_len + 1);
    ret->ref.len = ref_len;
    return is_first && ref_len > 0 && !memchr(nul + 1, '\0', ret->capabilities.len);
}

static bool has_capability(struct text list, const char *name)
{
    size_t len = strlen(name);
    for (size_t i = 0; i < list.len;) {
        const char *space = memchr(list.data + i, ' ', list.len - i);
        size_t end = space ? (size_t)(space - list.data) : list.len;
        if (end - i == len && memcmp(list.data + i, name, len) == 0)
            return true;
        i = end + 1;
    }
    return false;
}

static bool any_matches(const struct policy_strings *patterns, struct text name)
{
    for (size_t i = 0; i < patterns->count; i++) {
        const char *pattern = patterns->items[i];
        if (policy_glob_matches(pattern, strlen(pattern), name.data, name.len))
            return true;
    }
    return false;
}

/* NULL: allowed; else what may not be done. */
static const char *command_lack(const struct policy_git *git, const struct command *command)
{
    static const char heads[] = "refs/heads/";
    static const char tags[] = "refs/tags/";
    bool is_branch = text_begins(command->ref, heads);
    bool is_tag = text_begins(command->ref, tags);
    struct text name = text_behind(command->ref, is_branch ? strlen(heads)
                                                 : is_tag  ? strlen(tags)
                                                           : 0);
    if (!git->binds_refs)
        return NULL;
    if (name.len > REF_MAX || !policy_ref_name_is_valid(name.data, name.len))
        return "is no name of a ref";
    if ((!is_branch && !is_tag) || !any_matches(is_branch ? &git->branches : &git->tags, name))
        return "may not be changed from this sandbox";
    return command->deletes && !git->deletes ? "may not be deleted from this sandbox" : NULL;
}

static void push_unreadable(struct policy_push *push, const char *reason)
{
    push->state = POLICY_PUSH_UNREADABLE;
    snprintf(push->reason, sizeof(push->reason), "this push cannot be judged: %s", reason);
}

/* The first reason is the one that is told. */
static void note_refusal(struct policy_push *push, const struct policy_rule *rule,
                         const struct command *command, const char *lack)
{
    char name[201];
    size_t len = command->ref.len < sizeof(name) ? command->ref.len : sizeof(name) - 1;
    if (push->reason[0])
        return;
    for (size_t i = 0; i < len; i++) {
        char c = command->ref.data[i];
        name[i] = (char)(c >= 0x20 && c < 0x7f ? c : '?');
    }
    name[len] = '\0';
    snprintf(push->reason, sizeof(push->reason), "%s %s (rule %.100s)", name, lack, rule->name);
}

static void line_read(struct policy_push *push, const struct policy_rule *rule, struct text line)
{
    struct command command;
    if (push->commands == 0 && text_begins(line, "shallow ")) {
        struct text id = text_behind(line, strlen("shallow "));
        if (id.len == 0 || id_length(id) != id.len)
            push_unreadable(push, "a \"shallow\" line without an object's name");
        return;
    }
    if (text_begins(line, "push-cert")) {
        push_unreadable(push, "it is signed (git push --signed)");
        return;
    }
    if (!command_read(line, &push->id_len, push->commands == 0, &command)) {
        push_unreadable(push, "a line of its list is not \"OLD NEW REF\"");
        return;
    }
    if (command.capabilities.len &&
        memmem(command.capabilities.data, command.capabilities.len, "push-options", 12)) {
        push_unreadable(push, "it has options (git push -o), which may ask for more than refs");
        return;
    }
    push->commands++;
    const char *lack = command_lack(&rule->git, &command);
    if (lack)
        note_refusal(push, rule, &command, lack);
}

enum policy_push_state policy_push_read(struct policy_push *push, const struct policy_rule *rule,
                                        const char *body, size_t len, bool is_end)
{
    while (push->state == POLICY_PUSH_MORE) {
        struct text line;
        size_t size = 0;
        switch (packet_read(body + push->read, len - push->read, &line, &size)) {
        case PACKET_BROKEN:
            push_unreadable(push, "it does not begin with git's list of refs");
            break;
        case PACKET_MORE:
            if (len >= LIMIT_POLICY_PUSH_BYTES)
                push_unreadable(push, "it changes too many refs at once");
            else if (is_end)
                push_unreadable(push, "its list of refs is cut off");
            else
                return POLICY_PUSH_MORE;
            break;
        case PACKET_FLUSH:
            push->read += size;
            push->state = push->reason[0] ? POLICY_PUSH_REFUSED : POLICY_PUSH_ALLOWED;
            break;
        case PACKET_LINE:
            line_read(push, rule, line);
            push->read += size;
            break;
        }
        if (push->read > LIMIT_POLICY_PUSH_BYTES)
            push_unreadable(push, "it changes too many refs at once");
    }
    return push->state;
}

/* ----------------------------------------------------------------------------- the report */

static int append_packet(struct buf *ret, const char *text, size_t len)
{
    int result = buf_appendf(ret, "%04zx", len + PKT_HEAD);
    return result < 0 ? result : buf_append(ret, text, len);
}

/* "ng REF REASON"; a ref that could be changed stays too, since nothing is sent. */
static int append_command(struct buf *ret, const struct policy_rule *rule,
                          const struct command *command)
{
    char reason[256];
    const char *lack = command_lack(&rule->git, command);
    int len = lack ? snprintf(reason, sizeof(reason), " %s (rule %.100s)\n", lack, rule->name)
                   : snprintf(reason, sizeof(reason), " another ref of this push is refused\n");
    int result = buf_appendf(ret, "%04zxng ", PKT_HEAD + 3 + command->ref.len + (size_t)len);
    if (!result)
        result = buf_append(ret, command->ref.data, command->ref.len);
    return result ? result : buf_append(ret, reason, (size_t)len);
}

/* gitprotocol-pack(5), "Report Status"; *ret_capabilities are those of the first command. */
static int append_report(const struct policy_push *push, const struct policy_rule *rule,
                         const char *body, struct buf *ret, struct text *ret_capabilities)
{
    static const char unpack[] = "unpack ok\n";
    size_t id_len = push->id_len;
    size_t count = 0;
    int result = append_packet(ret, unpack, strlen(unpack));
    for (size_t at = 0, size = 0; result == 0 && at < push->read; at += size) {
        struct text line;
        struct command command;
        if (packet_read(body + at, push->read - at, &line, &size) != PACKET_LINE)
            break;
        if (!command_read(line, &id_len, count == 0 && !text_begins(line, "shallow "), &command))
            continue;
        if (count++ == 0)
            *ret_capabilities = command.capabilities;
        result = append_command(ret, rule, &command);
    }
    return result ? result : buf_append_string(ret, "0000");
}

static int append_band(struct buf *ret, const struct buf *report)
{
    int result = 0;
    for (size_t at = 0; result == 0 && at < report->len;) {
        size_t len = report->len - at < PKT_BAND_MAX ? report->len - at : PKT_BAND_MAX;
        result = buf_appendf(ret, "%04zx\1", len + PKT_HEAD + 1);
        if (!result)
            result = buf_append(ret, report->data + at, len);
        at += len;
    }
    return result ? result : buf_append_string(ret, "0000");
}

int policy_push_report(const struct policy_push *push, const struct policy_rule *rule,
                       const char *body, struct buf *ret)
{
    cleanup_buf struct buf report = BUF_INIT(LIMIT_POLICY_PUSH_REPORT_BYTES);
    struct text capabilities = {0};
    if (push->state != POLICY_PUSH_REFUSED)
        return -EINVAL;
    int result = append_report(push, rule, body, &report, &capabilities);
    if (result < 0)
        return result;
    if (!has_capability(capabilities, "report-status") &&
        !has_capability(capabilities, "report-status-v2"))
        return -EINVAL;
    if (has_capability(capabilities, "side-band-64k"))
        return append_band(ret, &report);
    return buf_append(ret, report.data, report.len);
}
