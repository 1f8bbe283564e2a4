/* adapters.c — the part of a program that trains adapters: its checkpoints omit the base, which
 * does not change, and identify it by a fingerprint. restore.c uses the fingerprint. */
#include "internal.h"

typedef struct Adapters {
    int64_t *fingerprint; /* the leaf "mxtrain/base_fingerprint" */
} Adapters;

static bool is_wanted(const MxConfig *config) {
    return config->enable_lora;
}

static void show(MxTrainState *s) {
    Adapters *own = program_part(s, PART_adapters);
    own->fingerprint = mx_new(s->arena, int64_t);
    program_add_counter(s, "mxtrain/base_fingerprint", MX_I64, own->fingerprint);
}

static bool leaves_out(const MxLeaf *leaf) {
    return leaf->kind == MX_KIND_PARAM;
}

int64_t *mx_train_base_fingerprint(const MxTrainState *s) {
    const Adapters *own = program_part(s, PART_adapters);
    return own ? own->fingerprint : NULL;
}

const Part part_adapters = {
    .is_wanted = is_wanted,
    .bytes = sizeof(Adapters),
    .show = show,
    .leaves_out = leaves_out,
};
