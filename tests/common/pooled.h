/* pooled.h — parameters whose gradient in one layer may be nothing but rounding. Those of all
 * layers are compared as one array. */
#ifndef TESTS_COMMON_POOLED_H
#define TESTS_COMMON_POOLED_H

/* pooled_tails — how their paths end; NULL after the last. */
extern const char *const pooled_tails[];
/* pooled_tail — the one that a path has; NULL of another parameter. */
const char *pooled_tail(const char *path);

#endif
