/* heads.c — weights that came from Hugging Face: the record in manifests, and comparing them with
 * those of a run, which may have another form of attention heads. */
#include "hf.h"

#define MEMBER "hugging_face"

void ckpt_tell_model(MxArena *arena, const MxCkptOrigin *origin, MxJson *manifest) {
    MxJson *was = origin->source ? mx_json_get(origin->source, MEMBER) : NULL;
    const MxHfModel *model = origin->model;
    if (was) mx_json_set(manifest, MEMBER, was);
    if (was || !model) return;
    MxJson *json = mx_json_object(arena);
    mx_json_set_string(json, "decoder_block", model->decoder_block);
    mx_json_set_int(json, "emb_dim", model->emb_dim);
    mx_json_set_int(json, "head_dim", model->heads.width);
    mx_json_set_number(json, "query_scale", model->heads.query_scale);
    mx_json_set_bool(json, "interleaves", model->heads.interleaves);
    mx_json_set(manifest, MEMBER, json);
}

bool mx_ckpt_was_hf(const MxCkptRef *ref, MxHfModel *out) {
    const MxJson *json = ref->manifest ? mx_json_get(ref->manifest, MEMBER) : NULL;
    *out = (MxHfModel){0};
    if (!json) return false;
    const char *block = mx_json_string(mx_json_get(json, "decoder_block"));
    out->decoder_block = block ? block : "";
    const MxFamily *family = hf_family_of(out);
    out->names = family && family->hf[0].model_type ? &family->hf[0] : NULL;
    return mx_json_int(mx_json_get(json, "emb_dim"), &out->emb_dim) &&
           mx_json_int(mx_json_get(json, "head_dim"), &out->heads.width) &&
           mx_json_number(mx_json_get(json, "query_scale"), &out->heads.query_scale) &&
           mx_json_bool(mx_json_get(json, "interleaves"), &out->heads.interleaves) &&
           out->heads.query_scale > 0 && out->names;
}

static bool has_heads(HfRole role) {
    return role == HF_QUERY || role == HF_KEY;
}

HfRole ckpt_role(const CkptForms *forms, const char *path, MxShape shape) {
    int64_t width = shape.rank ? shape.dim[shape.rank - 1] : 0;
    for (int i = 0; i < hf_n_rows; i++) {
        const HfRow *row = &hf_rows[i];
        size_t n = strlen(path), n_row = strlen(row->ours);
        bool fits = !has_heads(row->role) ||
                    (width == forms->from.heads.width && width == forms->to.heads.width);
        if (!row->whole && fits && n > n_row && path[n - n_row - 1] == '/' &&
            mx_text_has_prefix(path, "model/") && !strcmp(path + n - n_row, row->ours))
            return row->role;
    }
    return HF_PLAIN;
}

void ckpt_change_form(const CkptForms *forms, HfRole role, float *values, const float *beside,
                      int64_t n) {
    const HfMap from = hf_values(&forms->from, role), to = hf_values(&forms->to, role);
    bool turns = has_heads(role), is_same = from.factor == to.factor && from.term == to.term;
    int64_t width = turns ? forms->from.heads.width : 1;
    MxArena arena = {.name = "heads"};
    float *head = mx_new_n(&arena, float, width);
    MX_ASSERT(n % width == 0);
    for (int64_t at = 0; at < n; at += width) {
        for (int64_t i = 0; i < width; i++) /* where Hugging Face has it */
            head[turns && forms->from.heads.interleaves ? hf_place_in_head(width, i) : i] =
                values[at + i];
        for (int64_t i = 0; i < width; i++) {
            float x = head[turns && forms->to.heads.interleaves ? hf_place_in_head(width, i) : i];
            float y = beside[at + i], x_there = hf_in_ours(&to, hf_in_theirs(&from, x));
            bool is_made = y == x_there || x == hf_in_ours(&from, hf_in_theirs(&to, y));
            values[at + i] = is_made ? y : is_same ? x : x_there;
        }
    }
    mx_arena_release(&arena);
}
