/* paddockd(8), paddock.json(5) and the table of keys in docs/operations.md, from the tables of
 * src/supervisor. */
#include <stdio.h>
#include <string.h>

#include "manual/manual.h"
#include "supervisor/config_keys.h"
#include "supervisor/daemon_options.h"

#define COUNT_OF(table) (sizeof(table) / sizeof((table)[0]))

static void items(const struct daemon_option *list, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        manual_item(list[i].name, NULL);
        manual_sentence(list[i].help);
    }
}

void manual_paddockd(const char *version)
{
    manual_head("paddockd", 8, version, "the daemon that holds Paddock's sandboxes");
    fputs(".SH SYNOPSIS\n.B paddockd\n[\\fB\\-\\-config\\fR \\fIFILE\\fR] "
          "[\\fB\\-\\-doctor\\fR [\\fB\\-\\-json\\fR]]\n.SH DESCRIPTION\n",
          stdout);
    manual_text(
        "Serves in the foreground, with its log on standard error, until SIGTERM. Sandboxes "
        "and their tasks outlive it: the next one takes them over, after a kill too. "
        "`paddock`(1) is its command line; `paddock doctor` tells what this machine lacks "
        "for it.\n");
    fputs(".SH OPTIONS\n", stdout);
    items(daemon_options, COUNT_OF(daemon_options));
    fputs(".SH SIGNALS\n", stdout);
    items(daemon_signals, COUNT_OF(daemon_signals));
    fputs(".SH EXIT STATUS\n.TP\n0\nEnded by SIGTERM; with --doctor: nothing is missing that a "
          "sandbox needs.\n.TP\n1\nIt could not start, or --doctor found what stops sandboxes; the "
          "reason is the last line of the log.\n.TP\n2\nThe command line is wrong.\n"
          ".SH FILES\n.TP\n.B " DAEMON_DEFAULT_CONFIG "\nThe configuration, when --config is not "
          "given.\n.SH SEE ALSO\n.BR paddock (1),\n.BR paddock.json (5)\n",
          stdout);
}

static const char *type_name(enum key_type type)
{
    switch (type) {
    case KEY_PATH:
        return "absolute path";
    case KEY_PROXY:
    case KEY_NAME:
    case KEY_FORMAT:
        return "string";
    case KEY_INTEGER:
        return "integer";
    case KEY_THOUSANDTHS:
        return "number";
    case KEY_LISTEN:
        return "list of strings";
    case KEY_VARS:
    case KEY_PREFIXES:
        return "object of strings";
    case KEY_SIZES:
        return "object of objects";
    }
    return "";
}

/* As JSON, or in words. */
static void default_text(const struct config_key *key, char *ret, size_t size)
{
    ret[0] = '\0';
    if (key->type == KEY_INTEGER)
        snprintf(ret, size, "%lld", (long long)key->number);
    else if (key->type == KEY_THOUSANDTHS)
        snprintf(ret, size, "%g", (double)key->number / 1000);
    else if (key->type == KEY_VARS || key->type == KEY_PREFIXES)
        snprintf(ret, size, "{}");
    else if (key->type == KEY_SIZES)
        snprintf(ret, size, "small, standard, large");
    else if (key->type == KEY_LISTEN)
        snprintf(ret, size, "[\"%s\"]", key->text);
    else if (key->text && strncmp(key->text, "@/", 2) == 0)
        snprintf(ret, size, "%s of Paddock", key->text + 2);
    else if (key->text)
        snprintf(ret, size, "%s", key->text);
}

void manual_config(const char *version)
{
    manual_head("paddock.json", 5, version, "the configuration of paddockd");
    fputs(".SH DESCRIPTION\n", stdout);
    manual_text(
        "JSON with comments, at `" DAEMON_DEFAULT_CONFIG "` or where --config says. Every key "
        "may be left out. An unknown key, a wrong type or a value out of range is an error "
        "with its line, and the daemon does not start. `a.b` is the key b of the object a.\n");
    fputs(".SH KEYS\n", stdout);
    for (size_t i = 0; i < config_key_count; i++) {
        const struct config_key *key = &config_keys[i];
        char value[256];
        manual_item(key->name, type_name(key->type));
        manual_sentence(key->describe);
        if (key->details)
            manual_sentence(key->details);
        default_text(key, value, sizeof(value));
        fputs("Default: ", stdout);
        manual_text(value[0] ? value : "none");
        fputs(".\n", stdout);
        if (key->type == KEY_INTEGER || key->type == KEY_THOUSANDTHS)
            printf("From %lld to %lld.\n", (long long)key->min, (long long)key->max);
    }
    fputs(".SH EXAMPLE\n.nf\n{\n  // reachable by clients on this machine, with tokens\n"
          "  \"listen\": [\"unix:/run/paddock/paddock.sock\", \"tcp:127.0.0.1:7300\"],\n"
          "  \"vars\": { \"AI_GATEWAY_ACCOUNT_ID\": \"...\" },\n"
          "  \"limits\": { \"memory_mib\": 8192, \"cpus\": 4 }\n}\n.fi\n"
          ".SH SEE ALSO\n.BR paddockd (8),\n.BR paddock (1)\n",
          stdout);
}

void manual_config_markdown(const char *version)
{
    (void)version;
    fputs("| key | default | meaning |\n|---|---|---|\n", stdout);
    for (size_t i = 0; i < config_key_count; i++) {
        const struct config_key *key = &config_keys[i];
        char value[256];
        default_text(key, value, sizeof(value));
        printf("| `%s` | %s%s%s | %s%s%s |\n", key->name, value[0] ? "`" : "",
               value[0] ? value : "none", value[0] ? "`" : "", key->describe,
               key->details ? "; " : "", key->details ? key->details : "");
    }
}
