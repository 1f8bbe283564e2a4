/* optimizer.c — the table of optimizers. Source: optax @0.2.8 as MaxText optimizers/optimizers.py
 * builds it. */
#include <mx/train.h>

#include "internal.h"

static void trace_adamw(MxTrace *t, const MxConfig *c, Moments *v, MxValue hyper, MxValue clip) {
    MxAdamwAttr attr = {.b1 = c->adam_b1,
                        .b2 = c->adam_b2,
                        .eps = c->adam_eps,
                        .eps_root = c->adam_eps_root,
                        .weight_decay = v->decays ? c->adam_weight_decay : 0};
    MxValue p = mx_adamw(t, (MxValue[4]){v->p, v->g, v->m[0], v->m[1]}, hyper, clip, attr);
    if (p < 0) return;
    v->p = p;
    v->m[0] = p + 1;
    v->m[1] = p + 2;
}

static void trace_sgd(MxTrace *t, const MxConfig *c, Moments *v, MxValue hyper, MxValue clip) {
    (void)c;
    v->p = mx_sgd(t, v->p, v->g, hyper, clip);
}

static const Optimizer optimizers[] = {
    {
        .name = "adamw",
        .n_moments = 2,
        .moments = {"mu", "nu"},
        .first_is_mu_dtype = true,
        .counts = {"optimizer/opt_state/0/count", "optimizer/opt_state/2/count"},
        .trace = trace_adamw,
    },
    {
        .name = "sgd",
        .counts = {"optimizer/opt_state/1/count"},
        .trace = trace_sgd,
    },
};

const Optimizer *train_optimizer(const MxConfig *config) {
    for (int i = 0; i < MX_COUNT(optimizers); i++)
        if (!strcmp(optimizers[i].name, config->opt_type)) return &optimizers[i];
    MX_BUG("opt_type is not in the table");
}

/* The path that MaxText's masks see: of the stacked array where layers are scanned. */
static const char *mask_path(const MxConfig *config, const MxLeaf *leaf) {
    return config->scan_layers && leaf->stack.path ? leaf->stack.path : leaf->path;
}

bool train_decays(MxTrace *t, const MxConfig *config, const MxLeaf *leaf) {
    MxArena arena = {.name = "mask"};
    bool matches = false;
    for (int i = 0; i < config->adamw_mask.n && !matches; i++) {
        const char *pattern = config->adamw_mask.item[i], *why;
        MxRegex *regex = mx_regex_new(&arena, pattern, &why);
        MX_ASSERT(regex); /* the config was checked when it was loaded */
        MxMatch match = mx_regex_match(regex, mask_path(config, leaf));
        if (match == MX_MATCH_GAVE_UP)
            mx_trace_fail(t, "adamw_mask: \"%s\" takes too long to match", pattern);
        matches = match != MX_MATCH_NONE;
    }
    mx_arena_release(&arena);
    return !matches;
}
