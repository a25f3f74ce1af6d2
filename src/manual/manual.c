/*
 * Writes the manual from the tables of the program: `manual PAGE VERSION` prints paddock.1,
 * paddockd.8, paddock.json.5 (as roff, man(7)), cli.md or the table of keys for operations.md (as
 * Markdown). It runs while Paddock is built, on the machine that builds, and is not installed.
 */
#include <ctype.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "cli/verbs.h"
#include "manual/manual.h"

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*print)(const char *version);
    } pages[] = {
        {"paddock.1", manual_paddock},       {"paddockd.8", manual_paddockd},
        {"paddock.json.5", manual_config},   {"cli.md", manual_cli_markdown},
        {"keys.md", manual_config_markdown},
    };
    for (size_t i = 0; argc == 3 && i < sizeof(pages) / sizeof(pages[0]); i++) {
        if (strcmp(pages[i].name, argv[1]) == 0) {
            pages[i].print(argv[2]);
            return fflush(stdout) == 0 && !ferror(stdout) ? 0 : 1;
        }
    }
    fputs("usage: manual PAGE VERSION\n", stderr);
    return 2;
}

void manual_text(const char *text)
{
    bool is_bold = false, is_first = true;
    for (; *text; text++) {
        if (*text == '`') {
            fputs(is_bold ? "\\fR" : "\\fB", stdout);
            is_bold = !is_bold;
        } else if (*text == '[' && strncmp(text + strcspn(text, "]"), "](", 2) == 0) {
            continue; /* of a link its text remains */
        } else if (*text == ']' && text[1] == '(') {
            text += strcspn(text, ")");
        } else if (*text == '\\') {
            fputs("\\e", stdout);
        } else if (*text == '-') {
            fputs("\\-", stdout);
        } else {
            if (is_first && (*text == '.' || *text == '\''))
                fputs("\\&", stdout);
            putchar(*text);
        }
        is_first = *text == '\n';
    }
}

void manual_sentence(const char *text)
{
    char first = (char)toupper((unsigned char)text[0]);
    size_t len = strlen(text);
    char begin[2] = {first, '\0'};
    manual_text(begin);
    manual_text(text + 1);
    if (len && text[len - 1] != '.')
        putchar('.');
    putchar('\n');
}

void manual_item(const char *name, const char *value)
{
    fputs(".TP\n\\fB", stdout);
    manual_text(name);
    fputs("\\fR", stdout);
    if (value && value[0]) {
        fputs(" \\fI", stdout);
        manual_text(value);
        fputs("\\fR", stdout);
    }
    putchar('\n');
}

void manual_head(const char *page, int section, const char *version, const char *summary)
{
    char upper[64] = "";
    for (size_t i = 0; page[i] && i + 1 < sizeof(upper); i++)
        upper[i] = (char)toupper((unsigned char)page[i]);
    /* no date: the same sources give the same page */
    printf(".TH %s %d \"\" \"Paddock %s\" \"Paddock\"\n.SH NAME\n%s \\- %s\n", upper, section,
           version, page, summary);
}
