/* hf_kinds.c — kinds of Hugging Face models: the family and names that belong to a model_type of
 * config.json. */
#include "hf.h"

bool hf_is_outer(const MxHfNames *names, const char *model_type) {
    return names->outer_type && mx_text_has_word(names->outer_type, model_type);
}

/* The i-th kind of all families, in order; NULL = there are no more. */
static const MxHfNames *kind_at(int i, const MxFamily **family) {
    int n;
    const MxFamily *const *families = mx_families(&n);
    for (int f = 0; f < n; f++)
        for (int k = 0; k < MX_MOST_HF; k++)
            if (families[f]->hf[k].model_type && i-- == 0) {
                *family = families[f];
                return &families[f]->hf[k];
            }
    return NULL;
}

/* Whether the models of a kind, and not those of the next one of its name, say so. */
static bool is_kind(const MxHfNames *names, const MxJson *config) {
    const MxJson *text = mx_json_get(config, "text_config");
    const MxJson *member =
        names->nothing_in ? hf_get(text ? text : config, names->nothing_in) : NULL;
    return !names->nothing_in || (member && !hf_says_something(member));
}

const MxFamily *hf_family(const MxJson *config, const MxHfNames **names) {
    const char *type = mx_json_string(mx_json_get(config, "model_type"));
    const MxFamily *family;
    for (int i = 0; (*names = kind_at(i, &family)); i++)
        if ((!strcmp((*names)->model_type, type) || hf_is_outer(*names, type)) &&
            is_kind(*names, config))
            return family;
    return NULL;
}

bool hf_has_block(const MxHfNames *names, MxBlockKind kind) {
    const MxFamily *family = NULL;
    for (int i = 0; kind_at(i, &family) != names;) i++;
    return mx_family_has(family, kind);
}

const MxFamily *hf_family_of(const MxHfModel *model) {
    return mx_family_find(model->decoder_block);
}

const MxHfNames *hf_names_of(const MxConfig *c) {
    const MxFamily *family = mx_family_find(c->decoder_block);
    for (int k = MX_MOST_HF - 1; k > 0; k--)
        if (family->hf[k].model_type && !strcmp(family->hf[k].score, c->routed_score_func) &&
            family->hf[k].has_indexer == c->use_indexer)
            return &family->hf[k];
    return family->hf[0].model_type ? &family->hf[0] : NULL;
}

const char *hf_architecture(MxArena *arena, const MxHfModel *model) {
    const char *name = model->names->architecture;
    if (!model->has_score || !mx_text_has_suffix(name, HF_SPEAKS)) return name;
    return mx_arena_printf(arena, "%.*s" HF_CLASSIFIES, (int)(strlen(name) - strlen(HF_SPEAKS)),
                           name);
}

const char *hf_families(MxArena *arena) {
    MxText text;
    const MxFamily *family;
    const MxHfNames *names;
    mx_text_init(&text, arena);
    for (int i = 0; (names = kind_at(i, &family)); i++)
        if (!names->nothing_in) mx_text_add(&text, "%s%s", text.len ? ", " : "", names->model_type);
    return text.data;
}
