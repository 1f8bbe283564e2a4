/* goldens.h — where golden files are, for the tests of all rooms. A test says through these
 * functions what it reads, so that a program can tell at its end how many tests ran against golden
 * values and how many could not: their file is only in a larger folder. See tests/golden/README.md.
 */
#ifndef TESTS_COMMON_GOLDENS_H
#define TESTS_COMMON_GOLDENS_H

#include <mx/base.h>

#define GOLDENS_HERE "tests/golden"

/* goldens_dir — $MX_GOLDEN, or the part that is in the repository. */
const char *goldens_dir(void);
/* goldens_is_complete — is it the larger folder? */
bool goldens_is_complete(void);
/* goldens_have — whether the folder, or the repository, has a file. Counts nothing. */
bool goldens_have(MxArena *arena, const char *name);
/* goldens_find — the path of a file, which the caller then reads; NULL if the folder, and the
 * repository, lack it. */
char *goldens_find(MxArena *arena, const char *name);
/* goldens_need — the same of a file that every such folder has: fails the test if it does not. */
char *goldens_need(MxArena *arena, const char *name);

#endif
