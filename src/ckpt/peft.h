/* peft.h — adapters of Hugging Face's peft beside ours. Which of transformers' modules have some,
 * and how elements lie in them, is in peft_modules.c; adapter_config.json in peft_config.c; reading
 * and writing folders in peft_read.c and peft.c. */
#ifndef CKPT_PEFT_H
#define CKPT_PEFT_H

#include "hf.h"

#define PEFT_CONFIG  "adapter_config.json"
#define PEFT_TENSORS "adapter_model.safetensors"

/* What one adapted kernel of ours is in a weight of theirs: all of it or a part, of all of ours or
 * of a part. */
typedef struct PeftPart PeftPart;
struct PeftPart {
    int a, b;  /* its adapters, in the tree */
    int m;     /* their magnitudes, -1 = none */
    int block; /* which ranks of theirs are those of ours, where all of ours have the same: block *
                  rank on */
    HfMap map;
    int64_t inputs, outputs; /* of our kernel, for each expert */
    int n_in;                /* dims of ours that are the expert's and the inputs' */
    PeftPart *next;          /* in the same weight */
};

/* A weight of transformers' that can be adapted: of a module, or one parameter of all experts. A
 * is [experts rank, size_a], B [size_b, rank experts], magnitudes [size_b]. */
typedef struct PeftModule {
    const char *module; /* "model.layers.0.self_attn.q_proj" */
    const char *weight; /* with the parameter's own name */
    const char *key;    /* which of both a config calls it */
    const char *prefix; /* of the names of its tensors */
    bool is_parameter;  /* in target_parameters, not target_modules */
    bool has_experts;
    bool reads_last; /* our inputs are the last dim of theirs */
    bool is_flipped; /* our A is their B, and our B their A */
    int64_t n_experts, size_a, size_b;
    PeftPart *parts; /* NULL = it is not adapted here */
    int n_blocks;
} PeftModule;

typedef struct PeftModules {
    const MxHfModel *model;
    const MxHfSpelling *within; /* the text model's names in a model around it; NULL = its own */
    const char *hint;           /* where adapters are in no module */
    const MxHfModel *held;      /* with the names that transformers has in memory */
    PeftModule *module;
    int n;
    int64_t rank; /* of ours, where all have one */
} PeftModules;

/* peft_modules — all that transformers' model has, and which adapters of a tree each one is; the
 * first three members are given. Errors: the model is none of Hugging Face's; all adapters that
 * peft has no modules for, in one; one of another shape than its kernel's. */
bool peft_modules(MxArena *arena, const MxTree *tree, PeftModules *modules, MxError *err);
/* peft_within — how modules are named in what transformers makes of the folder that a model's
 * weights are from. */
const MxHfSpelling *peft_within(const MxHfModel *model);
/* peft_spell — a name of the text model's in the model around it. */
const char *peft_spell(MxArena *arena, const MxHfSpelling *within, const char *name);
/* peft_has_magnitudes — whether its adapters have some. */
bool peft_has_magnitudes(const PeftModule *module);
/* peft_has — whether a kernel's adapter is in a module. */
bool peft_has(const PeftModule *module, int a);
/* peft_places — where each input or output of our kernel is in its adapter of theirs; -1 = this
 * part does not have it. */
const int64_t *peft_places(MxArena *arena, const PeftModule *module, const PeftPart *part,
                           bool of_inputs);
/* peft_name — of one of its tensors: 'A', 'B' or 'M', magnitudes. */
const char *peft_name(MxArena *arena, const PeftModule *module, char which);

/* The tensors of a module. */
typedef struct PeftFactors {
    float *a, *b;
    float *m; /* NULL = there are no magnitudes */
    int64_t rank;
} PeftFactors;

/* peft_at — of an expert, the element of one rank at a place among inputs or outputs. */
static inline float *peft_at(const PeftModule *m, const PeftFactors *f, bool of_inputs,
                             int64_t expert, int64_t rank, int64_t place) {
    if (of_inputs != m->is_flipped) return &f->a[(expert * f->rank + rank) * m->size_a + place];
    return &f->b[(place * f->rank + rank) * m->n_experts + expert];
}
/* peft_shape — of one of them, with so many ranks. */
static inline MxShape peft_shape(const PeftModule *m, char which, int64_t rank) {
    if (which == 'M') return MX_SHAPE(m->size_b);
    return which == 'A' ? MX_SHAPE(m->n_experts * rank, m->size_a)
                        : MX_SHAPE(m->size_b, m->n_experts * rank);
}

/* peft_floats_of, peft_write_floats — all values of a leaf, in the arena. */
float *peft_floats_of(MxArena *arena, const MxLeaf *leaf);
void peft_write_floats(MxArena *arena, const MxLeaf *leaf, const float *values);

/* ---- what is trained as it is (peft_whole.c, peft_saved.c) */

/* What a parameter of ours is in a tensor of theirs. */
typedef struct PeftWholePart PeftWholePart;
struct PeftWholePart {
    int leaf; /* of the tree: what is trained in its place */
    HfMap map;
    PeftWholePart *next;
};

/* A tensor of transformers' model. */
typedef struct PeftWhole {
    const char *weight; /* "model.norm.weight" */
    const char *name;   /* in peft's file */
    const char *kind;   /* what of ours is in it, of any layer: a pattern for the key */
    MxShape shape;
    int n_parts, n_trained; /* parameters of ours in it, 0 = it is no parameter of theirs; so many
                               are trained as they are */
    PeftWholePart *parts;   /* these */
    bool is_bias;
    bool is_of_adapted; /* module */
} PeftWhole;

typedef struct PeftWholes {
    PeftWhole *item;
    int n;
    bool is_tied; /* the model's output matrix is the embedding */
} PeftWholes;

/* peft_wholes — all tensors of the modules' model, and what of them a tree trains as it is.
 * Errors: what transformers has no tensors for, all in one; another shape. */
bool peft_wholes(MxArena *arena, const MxTree *tree, const PeftModules *modules, PeftWholes *out,
                 MxError *err);
/* peft_whole_values — of a tensor, of the tree's. peft_load_wholes — the other way, of all that are
 * trained. Errors: a tensor that is missing, or of another shape, or only a part of which is; the
 * output matrix apart from the embedding where both are one. */
float *peft_whole_values(MxArena *arena, const MxTree *tree, const PeftWhole *whole);
bool peft_load_wholes(const PeftWholes *wholes, const MxTensors *file, const MxTree *state,
                      MxWhere where, MxError *err);
/* peft_whole_of — by its name in peft's file; NULL = the model has none. peft_hint_wholes — what
 * the key would have to choose: what is trained, and some other kinds. */
const PeftWhole *peft_whole_of(const PeftWholes *wholes, const char *name);
void peft_hint_wholes(const PeftWholes *wholes, const MxMap *kinds, MxError *err);
/* peft_tied_head — the embedding, if it is trained as it is and the output matrix too; NULL. Files
 * then have both, as PEFT_HEAD. */
const PeftWhole *peft_tied_head(const PeftWholes *wholes);
#define PEFT_HEAD "base_model.model.lm_head.weight"
/* peft_put_wholes — members of a config that say what is trained: modules_to_save, bias and
 * ensure_weight_tying. Errors: it is no whole module, and not all biases or those of all adapted
 * modules. */
bool peft_put_wholes(MxArena *arena, const PeftWholes *wholes, const PeftModules *modules,
                     MxJson *config, MxError *err);

/* ---- adapter_config.json (peft_config.c) */

typedef struct PeftConfig {
    MxWhere where;
    double rank, alpha, dropout;
    bool is_rs;   /* adapters count alpha / sqrt(rank) */
    bool is_dora; /* they have magnitudes */
    const MxJson *ranks, *alphas, *parameters, *targets, *excluded, *layers;
} PeftConfig;

/* peft_read_config — of a folder. Errors: each member with which peft computes something else than
 * adapters. Source: peft 0.21, tuners/lora. Test: tests/train/test_peft_runs.c. */
bool peft_read_config(MxArena *arena, const char *dir, PeftConfig *out, MxError *err);
/* peft_adapts — whether target_modules, exclude_modules and layers_to_transform choose a module.
 * Source: peft 0.21, tuners/tuners_utils.py, check_target_module_exists. */
bool peft_adapts(const PeftConfig *config, const PeftModule *module);
/* peft_factor — what a module's B is multiplied by to count `scale`, the run's lora_alpha /
 * lora_rank: other than 1 only for modules to which rank_pattern and alpha_pattern give numbers of
 * their own. Errors: all others count something else; the rank is not what the config says. */
bool peft_factor(const PeftConfig *config, const PeftModule *module, int64_t rank, double scale,
                 double *out, MxError *err);
/* peft_config_text — the members that MaxText writes, and those that name parameters of experts and
 * what is trained as it is; peft takes its defaults for the rest. peft refuses a dropout beside
 * target_parameters, so these have none. Errors: as of peft_put_wholes. */
const char *peft_config_text(MxArena *arena, const PeftModules *modules, const PeftWholes *wholes,
                             const MxPeftConvert *how, MxError *err);
/* peft_has_parameters — whether some of the adapted modules are target_parameters. */
bool peft_has_parameters(const PeftModules *modules);

#endif
