/* config_tests.h — what the suites of the config room share: loading a text as a config file. */
#ifndef CONFIG_TESTS_H
#define CONFIG_TESTS_H

#include <mx/config.h>

#include <check.h>

/* One load: the config, or the error's text. */
typedef struct Loaded {
    MxArena arena;
    MxError err;
    MxConfig *config;
    bool ok;
} Loaded;

/* load_config — a file with this text (NULL = none: base.yml), overrides "a=1\nb=2" (NULL = none)
 * and environment variables, one a line (NULL = none). */
Loaded load_config(const char *yaml, const char *overrides, const char *variables);
/* load_files — the same from files that exist. */
Loaded load_files(const char *const *files, int n_files, const char *overrides);
void unload(Loaded *loaded);
/* temp_file — writes a file into the test's own folder and returns its path. */
const char *temp_file(MxArena *arena, const char *name, const char *text, size_t size);
/* count_lines — how many lines of a text begin with a prefix. */
int count_lines(const char *text, const char *prefix);

/* Slow down time limits under sanitizers. */
extern const double slowness;

TCase *typing_cases(void);
TCase *merge_cases(void);
TCase *key_cases(void);
TCase *act_cases(void);
TCase *value_cases(void);
TCase *hostile_cases(void);
TCase *resume_cases(void);

#endif
