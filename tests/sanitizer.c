/* Linked into the programs of a build with sanitizers, and only there (src/util/meson.build): what
 * they cannot be told through the environment, which our programs start without. Reports go to
 * standard error: that of a daemon is the log, where the tests look for them (tests/harness.py). */
#include <stddef.h>
#include <sys/prctl.h>

#define VISIBLE __attribute__((visibility("default"), used))

extern const char sanitizer_options[]; /* the linker is made to look for it, and so takes us in */
VISIBLE const char *__asan_default_options(void);
VISIBLE const char *__ubsan_default_options(void);
VISIBLE int __lsan_is_turned_off(void);
void __sanitizer_symbolize_pc(void *pc, const char *format, char *ret, size_t size);

/* An exit status that no program of ours has. A small quarantine: jails are short of memory. */
const char sanitizer_options[] = "exitcode=99:quarantine_size_mb=32:print_stacktrace=1";

const char *__asan_default_options(void)
{
    return sanitizer_options;
}

const char *__ubsan_default_options(void)
{
    return sanitizer_options;
}

/* Leaks are looked for by tracing oneself, from another process: what has confined itself cannot.
 * Those are undumpable (util/confine.c, main/jail.c). */
int __lsan_is_turned_off(void)
{
    return prctl(PR_GET_DUMPABLE) != 1;
}

/* Reads the names of functions and lines while the files can still be opened. */
__attribute__((constructor)) static void read_symbols(void)
{
    char name[256];
    __sanitizer_symbolize_pc(__builtin_return_address(0), "%f", name, sizeof(name));
}
