/* The manual's pages, and what they have in common; see manual.c. Everything prints to stdout. */
#pragma once

void manual_paddock(const char *version);         /* manual_cli.c */
void manual_cli_markdown(const char *version);    /* manual_cli.c */
void manual_paddockd(const char *version);        /* manual_daemon.c */
void manual_config(const char *version);          /* manual_daemon.c */
void manual_config_markdown(const char *version); /* manual_daemon.c */

/* Text of the tables as roff: `bold`, links as their text, what roff would take as its own. */
void manual_text(const char *text);
/* The same, with a capital first and a full stop last, and the end of the line. */
void manual_sentence(const char *text);
/* The head of an item of a list; its text comes next. */
void manual_item(const char *name, const char *value);
/* Title and NAME. */
void manual_head(const char *page, int section, const char *version, const char *summary);
