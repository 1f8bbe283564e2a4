/* hf_config.c — config.json and our keys: reads one, makes one, compares two; each is a walk over
 * the rows of hf_members.c and the files beside it. */
#include "hf.h"

#include <math.h>

bool hf_says_something(const MxJson *value) {
    bool flag;
    double number;
    if (!value) return false;
    if (mx_json_bool(value, &flag)) return flag;
    if (mx_json_number(value, &number)) return number != 0;
    return mx_json_length(value) || mx_json_string(value);
}

static bool is_end(const HfMember *m) {
    return !m->theirs && !m->kind && !m->read && !m->yaml && !m->fits;
}

/* The next one of all tables in turn. */
static const HfMember *next_of_all(const HfMember *m) {
    static const HfMember *const tables[] = {
        hf_members,        hf_cap_members,    hf_own_members,
        hf_layer_members,  hf_window_members, hf_rope_members,
        hf_expert_members, hf_block_members,  hf_compressed_members};
    if (!m) return tables[0];
    if (!is_end(++m)) return m;
    for (int i = 0; i + 1 < MX_COUNT(tables); i++) {
        const HfMember *end = tables[i];
        while (!is_end(end)) end++;
        if (m == end) return tables[i + 1];
    }
    return NULL;
}

static bool is_had(const HfMember *m, const MxHfNames *names) {
    const char *facts = (const char *)names;
    return (!m->block || hf_has_block(names, m->block)) &&
           (!m->flag || *(const bool *)(facts + m->flag)) &&
           (!m->unless || !*(const bool *)(facts + m->unless));
}

const HfMember *hf_next_member(const HfMember *m, const MxHfNames *names) {
    do m = next_of_all(m);
    while (m && !is_had(m, names));
    return m;
}

static double value_of(const MxHfModel *model, const HfMember *m) {
    const void *at = (const char *)model + m->at;
    switch (m->kind) {
    case HF_SIZE:
        return (double)*(const int64_t *)at;
    case HF_NUMBER:
        return *(const double *)at;
    case HF_FLAG:
        return *(const bool *)at;
    case HF_NONE:
        break;
    }
    return 0;
}

/* ---- in */

static bool is_bf16(const MxJson *json) {
    const MxJson *dtype = mx_json_get(json, "dtype");
    if (!mx_json_string(dtype)) dtype = mx_json_get(json, "torch_dtype");
    const char *name = mx_json_string(dtype);
    return name && !strcmp(name, mx_dtype_name(MX_BF16));
}

/* A model within another: what config.json of that alone would say. */
static bool take_inner(HfReader *r, const char *name, const char *architecture) {
    MxJson *inner = mx_json_get(r->json, name);
    if (!inner || strcmp(mx_json_kind(inner), "an object"))
        return mx_fail(r->err, MX_EXIT_BAD_INPUT, (MxWhere){.file = r->path},
                       "%s: found %s, wanted an object", name,
                       inner ? mx_json_kind(inner) : "nothing");
    static const char *const shared[] = {"dtype", "torch_dtype", HF_FEW_BITS};
    for (int i = 0; i < MX_COUNT(shared); i++)
        if (mx_json_get(r->json, shared[i]) && !mx_json_get(inner, shared[i]))
            mx_json_set(inner, shared[i], mx_json_get(r->json, shared[i]));
    mx_json_push_string(mx_json_put_array(inner, "architectures"), architecture);
    r->json = inner;
    return true;
}

/* The text model of one that also sees images; whether embeddings are tied the outer one says. */
static bool take_text_config(HfReader *r) {
    static const char tied[] = "tie_word_embeddings";
    const MxJson *said = r->names->ties_within ? NULL : hf_get(r->json, tied);
    if (!take_inner(r, "text_config", r->names->architecture)) return false;
    if (said) mx_json_set(r->json, tied, said);
    mx_json_set_string(r->json, "model_type", r->names->model_type);
    r->model->is_within = true;
    return true;
}

/* The part of Qwen 3-Omni that reads and sees: the others hear and speak. */
static bool take_thinker(HfReader *r) {
    const char *type = mx_json_string(mx_json_get(r->json, "model_type"));
    return !type || strcmp(type, "qwen3_omni_moe") != 0 ||
           take_inner(r, "thinker_config", "Qwen3OmniMoeThinkerForConditionalGeneration");
}

/* Of what lies at a path. */
static bool read_model(MxArena *arena, const char *path, MxJson *json, MxHfModel *out,
                       MxError *err) {
    HfReader r = {.arena = arena, .path = path, .model = out, .json = json, .err = err};
    int failures = err->count;
    *out = (MxHfModel){0};
    if (!r.json || (mx_text_has_suffix(path, "/" META_CONFIG) && !hf_meta_config(&r))) return false;
    if (!take_thinker(&r)) return false;
    const char *type = mx_json_string(mx_json_get(r.json, "model_type"));
    r.family = type ? hf_family(r.json, &r.names) : NULL;
    if (!r.family)
        return mx_fail(err, MX_EXIT_BAD_INPUT, (MxWhere){.file = path},
                       "model_type: found \"%s\", not available yet: %s work now", type ? type : "",
                       hf_families(arena));
    MxJson *outer = r.json;
    if (hf_is_outer(r.names, type) && !take_text_config(&r)) return false;
    if (out->is_within) out->outer = outer;
    mx_text_init(&r.lacks, arena);
    out->decoder_block = r.family->decoder_block;
    out->names = r.names;
    out->experts = (int)r.names->experts;
    out->config = r.json;
    for (const HfMember *m = NULL; (m = hf_next_member(m, r.names));) hf_read_member(&r, m);
    if (out->is_within) hf_read_encoder(&r, outer);
    mx_json_remove(outer, HF_FEW_BITS); /* what is made of it has none */
    mx_json_remove(r.json, HF_FEW_BITS);
    const MxLayerSpec *first = &r.family->specs[0];
    bool scales = first->scales_query || first->norms_heads || out->query_scalar > 0 ||
                  out->kv_rank || out->o_groups ||
                  out->delta_keys; /* kernels of these are as theirs */
    out->heads = (MxHeadForm){.width = out->head_dim,
                              .query_scale = scales ? 1 : 1 / sqrt((double)out->head_dim),
                              .interleaves = r.names->interleaves};
    out->dtype = is_bf16(r.json) ? MX_BF16 : MX_F32;
    out->lacks = r.lacks.data;
    return err->count == failures;
}

bool mx_hf_read_config(MxArena *arena, const char *path, MxHfModel *out, MxError *err) {
    enum { LARGEST = 16 << 20 };
    MxBytes bytes;
    *out = (MxHfModel){0};
    return mx_file_read(arena, path, LARGEST, &bytes, err) &&
           read_model(arena, path,
                      mx_json_parse(arena, (const char *)bytes.data, bytes.size, path, err), out,
                      err);
}

MxHfModel mx_hf_of_config(const MxConfig *c, MxHeadForm heads) {
    MxHfModel model = {.decoder_block = c->decoder_block, .names = hf_names_of(c), .heads = heads};
    if (model.names) model.experts = (int)model.names->experts;
    for (const HfMember *m = NULL; model.names && (m = hf_next_member(m, model.names));) {
        void *at = (char *)&model + m->at;
        const void *from = (const char *)c + m->from;
        if (m->take)
            m->take(c, &model);
        else if (m->kind == HF_SIZE)
            *(int64_t *)at = *(const int64_t *)from;
        else if (m->kind == HF_NUMBER)
            *(double *)at = *(const double *)from;
        else if (m->kind == HF_FLAG)
            *(bool *)at = *(const bool *)from;
    }
    return model;
}

/* ---- beside each other */

bool mx_hf_fits(const MxConfig *c, MxError *err) {
    const MxHfNames *names = hf_names_of(c);
    bool ok = true;
    for (const HfMember *m = NULL; names && (m = hf_next_member(m, names));)
        if (m->fits) ok = m->fits(c, names, err) && ok;
    return ok;
}

bool hf_check(const MxHfModel *model, MxWhere where, MxError *err) {
    const MxHfNames *names = model->names;
    MxArena arena = {.name = "hf"};
    bool ok = names || mx_fail(err, MX_EXIT_BAD_INPUT, where,
                               "decoder_block: \"%s\" is not available for Hugging Face yet: %s "
                               "work now",
                               model->decoder_block, hf_families(&arena));
    for (const HfMember *m = NULL; names && (m = hf_next_member(m, names));)
        if (m->check) ok = m->check(model, names, where, err) && ok;
    mx_arena_release(&arena);
    return ok;
}

bool mx_hf_agree(const MxHfModel *theirs, const MxHfModel *ours, MxWhere where, MxError *err) {
    bool ok = !strcmp(theirs->decoder_block, ours->decoder_block) ||
              mx_fail(err, MX_EXIT_BAD_INPUT, where, "model_type: found that of %s, the run has %s",
                      theirs->decoder_block, ours->decoder_block);
    for (const HfMember *m = NULL; (m = hf_next_member(m, theirs->names));) {
        double found = value_of(theirs, m), wanted = value_of(ours, m);
        if (m->agrees && found != wanted)
            ok = mx_fail(err, MX_EXIT_BAD_INPUT, where, "%s: found %.15g, the run has %.15g",
                         m->what ? m->what : m->theirs, found, wanted);
    }
    return ok;
}

const char *mx_hf_other_shapes(MxArena *arena, const MxHfModel *theirs, const MxHfModel *ours) {
    MxText text;
    mx_text_init(&text, arena);
    for (const HfMember *m = NULL; (m = hf_next_member(m, theirs->names));) {
        double found = value_of(theirs, m), here = value_of(ours, m);
        if (m->shapes && found != here)
            mx_text_add(&text, "%s%s=%.15g (here %.15g)", text.len ? ", " : "", m->ours, found,
                        here);
    }
    return text.data;
}

/* ---- out */

const char *mx_hf_yaml(MxArena *arena, const MxHfModel *model) {
    MxText t;
    mx_text_init(&t, arena);
    mx_text_add(&t, "# The model of a config.json of Hugging Face; written by mxconvert.\n");
    mx_text_add(&t, "decoder_block: %s\n", model->decoder_block);
    for (const HfMember *m = NULL; (m = hf_next_member(m, model->names));) {
        double value = value_of(model, m);
        if (m->yaml)
            m->yaml(model, &t);
        else if (m->ours && m->kind == HF_SIZE)
            mx_text_add(&t, "%s: %lld\n", m->ours, (long long)value);
        else if (m->ours && m->kind == HF_NUMBER)
            mx_text_add(&t, "%s: %s\n", m->ours, mx_number_text(arena, value));
        else if (m->ours && m->kind == HF_FLAG)
            mx_text_add(&t, "%s: %s\n", m->ours, value != 0 ? "true" : "false");
    }
    if (model->sees) hf_yaml_encoder(model, &t);
    if (model->hears) hf_yaml_audio(model, &t);
    return t.data;
}

static MxJson *make_config(MxArena *arena, const MxHfModel *model) {
    const MxHfNames *names = model->names;
    MxJson *out = mx_json_object(arena);
    mx_json_push_string(mx_json_put_array(out, "architectures"), hf_architecture(arena, model));
    mx_json_set_string(out, "model_type", names->model_type);
    for (const HfMember *m = NULL; (m = hf_next_member(m, names));) {
        if (m->write)
            m->write(model, names, out);
        else if (m->theirs && m->kind == HF_SIZE)
            mx_json_set_int(out, m->theirs, (int64_t)value_of(model, m));
        else if (m->theirs && m->kind == HF_NUMBER)
            mx_json_set_number(out, m->theirs, value_of(model, m));
        else if (m->theirs && m->kind == HF_FLAG)
            mx_json_set_bool(out, m->theirs, value_of(model, m) != 0);
    }
    return out;
}

/* Makes members that are written for `was` and not the same for `is`, or not at all, so in
 * `config`, too; names them. */
static void change(MxArena *arena, const MxJson *was, const MxJson *is, MxJson *config,
                   MxText *changed) {
    const char *key;
    MxJson *value;
    for (size_t i = 0; mx_json_member(was, i, &key, &value); i++) {
        const MxJson *now = mx_json_get(is, key);
        if (now && !strcmp(mx_json_dump(arena, value, false), mx_json_dump(arena, now, false)))
            continue;
        mx_text_add(changed, "%s%s", changed->len ? ", " : "", key);
        if (now)
            mx_json_set(config, key, now);
        else
            mx_json_remove(config, key);
    }
    for (size_t i = 0; mx_json_member(is, i, &key, &value); i++) {
        if (mx_json_get(was, key)) continue;
        mx_text_add(changed, "%s%s", changed->len ? ", " : "", key);
        mx_json_set(config, key, value);
    }
}

bool mx_hf_adapt(MxArena *arena, const MxHfModel *theirs, const MxHfModel *ours, MxHfModel *out,
                 const char **changed) {
    MxHfModel mine = *ours;
    MxError ignored = {0};
    MxText names, left;
    mx_text_init(&names, arena);
    mx_text_init(&left, arena);
    *changed = "model_type";
    if (!ours->names || !theirs->names || strcmp(theirs->decoder_block, ours->decoder_block) != 0)
        return false;
    if (mine.length < theirs->length) mine.length = theirs->length;
    const char *text = mx_json_dump(arena, theirs->config, false);
    MxJson *config = mx_json_parse(arena, text, strlen(text), MX_HF_CONFIG, &ignored),
           *is = make_config(arena, &mine);
    change(arena, make_config(arena, theirs), is, config, &names);
    bool ok = read_model(arena, MX_HF_CONFIG, config, out, &ignored);
    if (ok) change(arena, make_config(arena, out), is, config, &left); /* spelled in another way */
    mx_error_release(&ignored);
    *changed = names.data;
    return ok && !left.len;
}

/* Made from a config of ours, which says nothing of tokens. */
static MxJson *make_all(MxArena *arena, const MxHfExport *how) {
    MxJson *config = make_config(arena, &how->model), *id;
    const char *key;
    for (size_t i = 0; mx_json_member(how->special_tokens, i, &key, &id); i++)
        mx_json_set(config, key, id);
    return config;
}

const char *hf_config_text(MxArena *arena, const MxHfExport *how) {
    MxDtype dtype = how->dtype;
    MxJson *config = how->model.sees     ? how->model.outer
                     : how->model.config ? how->model.config
                                         : make_all(arena, how);
    bool is_new = mx_json_get(config, "dtype") != NULL;
    mx_json_set_string(config, is_new ? "dtype" : "torch_dtype", mx_dtype_name(dtype));
    return mx_json_dump(arena, config, true);
}
