/* pooled.c — parameters whose gradient in one layer may be nothing but rounding. */
#include "common/pooled.h"

#include <mx/base.h>

/* A number that a norm follows, a sum over all that a block gives, and how a first block reads rows
 * that are all the same, or a last one mixes rows that are then added. */
const char *const pooled_tails[] = {"/layer_scalar",    "/pre_alpha",        "/pre_beta",
                                    "/pre_alpha_scale", "/res_alpha",        "/res_beta",
                                    "/res_alpha_scale", "/post_alpha_scale", NULL};

const char *pooled_tail(const char *path) {
    for (int i = 0; pooled_tails[i]; i++)
        if (mx_text_has_suffix(path, pooled_tails[i])) return pooled_tails[i];
    return NULL;
}
