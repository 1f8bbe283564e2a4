/* compare.c — compares two checkpoints of any layouts. Both become trees under the state's names,
 * with separate layers unless both are stacked in the same way; leaves are paired by path and their
 * values read in pieces. Floats are compared in the wider of the two types, integers directly. */
#include "compare.h"

#include "hf.h"

#include <math.h>

typedef struct Side {
    CkptFile file;
    MxTree tree;
    CkptPiece *pieces;
    bool holds_state; /* and not parameters alone, as folders of Hugging Face's */
} Side;

typedef struct Comparer {
    MxArena *arena;
    const MxCompare *how;
    Side a, b;
    CkptForms forms; /* b's to a's … */
    bool has_forms;  /* … or values are compared as they are */
    void *tile[2];
    CkptReport *report;
    MxError *err;
} Comparer;

static const CkptEntry *entry_of(const Side *side, int leaf) {
    return &side->file.survey.entries[side->pieces[leaf].entry];
}

/* ---- values */

/* A number as the k-th of all floats, so that neighbours differ by 1. */
static int64_t rank_of(double value, bool is_bf16, bool is_f64) {
    if (is_f64) {
        int64_t bits;
        memcpy(&bits, &value, sizeof bits);
        return bits < 0 ? INT64_MIN - bits : bits;
    }
    float narrow = (float)value;
    int32_t bits;
    memcpy(&bits, &narrow, sizeof bits);
    int64_t rank = bits < 0 ? (int64_t)INT32_MIN - bits : bits;
    return is_bf16 ? rank / (1 << 16) : rank;
}

static int64_t ulps_between(double a, double b, const CkptPair *pair) {
    bool is_f64 = pair->type == MX_F64;
    int64_t x = rank_of(a, pair->is_bf16, is_f64), y = rank_of(b, pair->is_bf16, is_f64);
    uint64_t distance = x > y ? (uint64_t)x - (uint64_t)y : (uint64_t)y - (uint64_t)x;
    return distance > INT64_MAX ? INT64_MAX : (int64_t)distance;
}

/* Keeps the largest of each measure and where it was. */
static void take_difference(CkptPair *pair, double a, double b, int64_t at) {
    double abs = fabs(a - b), rel = b != 0 ? abs / fabs(b) : INFINITY;
    int64_t ulp = ulps_between(a, b, pair);
    bool is_first = !pair->n_different++;
    if (isnan(abs)) { /* NaN beside a number, infinities of both signs */
        abs = rel = INFINITY;
        ulp = INT64_MAX;
    }
    if (is_first || abs > pair->max_abs) {
        pair->max_abs = abs;
        pair->at = at;
        pair->value_a = a;
        pair->value_b = b;
    }
    if (is_first || rel > pair->max_rel) pair->max_rel = rel;
    if (is_first || ulp > pair->max_ulp) pair->max_ulp = ulp;
}

static bool is_close(const MxCompare *how, const CkptPair *pair, double a, double b) {
    if (how->atol == 0 && how->rtol == 0 && how->ulp == 0) return false; /* the bits differ */
    if (isnan(a) || isnan(b)) return isnan(a) && isnan(b);
    if (isinf(a) || isinf(b)) return a == b;
    return fabs(a - b) <= how->atol + how->rtol * fabs(b) ||
           (how->ulp && ulps_between(a, b, pair) <= how->ulp);
}

static double value_at(const void *data, MxDtype type, int64_t i) {
    if (type == MX_F32) return (double)((const float *)data)[i];
    if (type == MX_F64) return ((const double *)data)[i];
    return (double)((const int64_t *)data)[i];
}

/* Place in the whole array of the i-th element of a tile. */
static int64_t place_of(const CkptTiles *tiles, int64_t i) {
    int64_t place = 0, step = 1;
    for (int d = tiles->box.rank - 1; d >= 0; d--) {
        place += (tiles->box.start[d] + i % tiles->box.count[d]) * step;
        i /= tiles->box.count[d];
        step *= tiles->shape.dim[d];
    }
    return place;
}

static void compare_tile(Comparer *c, CkptPair *pair, const CkptTiles *tiles) {
    int64_t n = mx_box_count(&tiles->box);
    size_t item = mx_dtype_bytes(pair->type);
    if (!memcmp(c->tile[0], c->tile[1], (size_t)n * item)) return;
    for (int64_t i = 0; i < n; i++) {
        const char *x = (const char *)c->tile[0] + (size_t)i * item;
        if (!memcmp(x, (const char *)c->tile[1] + (size_t)i * item, item)) continue;
        double a = value_at(c->tile[0], pair->type, i), b = value_at(c->tile[1], pair->type, i);
        if (!is_close(c->how, pair, a, b)) take_difference(pair, a, b, place_of(tiles, i));
    }
}

static MxDtype common_type(MxDtype a, MxDtype b) {
    if (!mx_dtype_is_float(a) && !mx_dtype_is_float(b)) return MX_I64;
    if (a == MX_F64 || b == MX_F64 || !mx_dtype_is_float(a) || !mx_dtype_is_float(b)) return MX_F64;
    return MX_F32;
}

static bool compare_text(Comparer *c, CkptPair *pair, int i, int k) {
    char *text[2];
    const Side *sides[] = {&c->a, &c->b};
    const int leaves[] = {i, k};
    for (int s = 0; s < 2; s++) {
        const char *path = mx_path_join(c->arena, sides[s]->file.ref.group,
                                        entry_of(sides[s], leaves[s])->array->path);
        if (!mx_h5_read_text(c->arena, sides[s]->file.file, path, &text[s], c->err)) return false;
    }
    pair->n_different = strcmp(text[0], text[1]) != 0;
    return true;
}

/* A tile of both. A folder of Hugging Face's is read last, beside what a file of ours has. */
static bool read_tile(Comparer *c, const CkptPair *pair, int i, int k, MxBox box) {
    Side *sides[] = {&c->a, &c->b};
    const int leaves[] = {i, k};
    int last = c->a.file.hf && !c->b.file.hf ? 0 : 1, first = !last;
    CkptHf *hf = sides[last]->file.hf;
    bool is_beside = hf && !sides[first]->file.hf && pair->type == MX_F32;
    if (!ckpt_read_piece(&sides[first]->file, &sides[first]->pieces[leaves[first]], box, pair->type,
                         c->tile[first], c->err))
        return false;
    if (hf) hf->beside = is_beside ? c->tile[first] : NULL;
    return ckpt_read_piece(&sides[last]->file, &sides[last]->pieces[leaves[last]], box, pair->type,
                           c->tile[last], c->err);
}

static bool compare_values(Comparer *c, CkptPair *pair, int i, int k) {
    bool is_text = entry_of(&c->a, i)->array->is_text;
    if (is_text != entry_of(&c->b, k)->array->is_text) {
        pair->n_different = 1;
        return true;
    }
    if (is_text) return compare_text(c, pair, i, k);
    CkptTiles tiles;
    pair->type = common_type(pair->dtype_a, pair->dtype_b);
    bool turns = c->has_forms && pair->type == MX_F32;
    HfRole role = turns ? ckpt_role(&c->forms, pair->path, pair->shape) : HF_PLAIN;
    pair->is_bf16 = pair->dtype_a == MX_BF16 && pair->dtype_b == MX_BF16;
    if (!ckpt_tiles_start(&tiles, pair->shape, CKPT_TILE_ELEMENTS)) return true;
    do {
        if (!read_tile(c, pair, i, k, tiles.box)) return false;
        if (role != HF_PLAIN)
            ckpt_change_form(&c->forms, role, c->tile[1], c->tile[0], mx_box_count(&tiles.box));
        compare_tile(c, pair, &tiles);
    } while (ckpt_tiles_next(&tiles));
    return true;
}

/* ---- pairs */

static bool wants(const Comparer *c, const CkptEntry *e) {
    return !c->how->params_only || (e->row && e->row->is_param);
}

static void report_lone(Comparer *c, const Side *side, const Side *other, int i, CkptLone *list,
                        int *n) {
    const CkptEntry *e = entry_of(side, i);
    const MxLeaf *leaf = &side->tree.leaves[i];
    if (!wants(c, e)) return;
    if (e->row && (e->row->is_optional || (!e->row->is_param && !other->holds_state)))
        c->report->n_optional++;
    else
        list[(*n)++] = (CkptLone){.path = leaf->path, .dtype = leaf->dtype, .shape = leaf->shape};
}

static bool compare_pair(Comparer *c, int i, int k) {
    const MxLeaf *a = &c->a.tree.leaves[i], *b = &c->b.tree.leaves[k];
    CkptReport *report = c->report;
    CkptPair *pair = &report->pairs[report->n_pairs++];
    const CkptRow *row = entry_of(&c->a, i)->row;
    *pair = (CkptPair){.path = a->path,
                       .shape = a->shape,
                       .shape_b = b->shape,
                       .dtype_a = a->dtype,
                       .dtype_b = b->dtype};
    pair->is_shape_other = !mx_shape_equal(a->shape, b->shape);
    pair->is_dtype_other = a->dtype != b->dtype && !(row && row->counts_signed);
    if (pair->is_shape_other || c->how->structure_only) return true;
    int64_t n = mx_shape_count(a->shape);
    report->n_elements += n;
    mx_progress(report->n_a ? (double)report->n_pairs / report->n_a : 1, -1, "comparing %.90s",
                a->path);
    return compare_values(c, pair, i, k);
}

static bool compare_trees(Comparer *c) {
    const MxTree *a = &c->a.tree, *b = &c->b.tree;
    CkptReport *r = c->report;
    r->pairs = mx_new_n(c->arena, CkptPair, a->n + 1);
    r->only_a = mx_new_n(c->arena, CkptLone, a->n + 1);
    r->only_b = mx_new_n(c->arena, CkptLone, b->n + 1);
    r->n_a = a->n;
    for (int i = 0; i < a->n; i++) {
        int k = mx_tree_find(b, a->leaves[i].path);
        if (k < 0)
            report_lone(c, &c->a, &c->b, i, r->only_a, &r->n_only_a);
        else if (wants(c, entry_of(&c->a, i)) && !compare_pair(c, i, k))
            return false;
    }
    for (int k = 0; k < b->n; k++)
        if (mx_tree_find(a, b->leaves[k].path) < 0)
            report_lone(c, &c->b, &c->a, k, r->only_b, &r->n_only_b);
    return true;
}

/* ---- forms */

static const CkptGroup *find_group(const CkptSurvey *s, const char *key) {
    for (int i = 0; i < s->n_groups; i++)
        if (!strcmp(s->groups[i].key, key)) return &s->groups[i];
    return NULL;
}

/* Whether layers can be compared as they are stacked. */
static bool are_stacked_alike(const CkptSurvey *a, const CkptSurvey *b) {
    for (int i = 0; i < a->n_groups; i++) {
        const CkptGroup *x = &a->groups[i], *y = find_group(b, x->key);
        if (!y) continue;
        bool is_same = x->is_scanned == y->is_scanned && x->how.period == y->how.period &&
                       x->how.runs == y->how.runs && x->how.first == y->how.first;
        if (!is_same || (x->is_scanned && a->scan_axis != b->scan_axis)) return false;
    }
    return true;
}

static bool make_trees(Comparer *c) {
    bool split = c->has_forms || !are_stacked_alike(&c->a.file.survey, &c->b.file.survey);
    int n_left_a, n_left_b;
    bool ok = ckpt_leaves(c->arena, &c->a.file.survey, split, &c->a.tree, &c->a.pieces, &n_left_a,
                          c->err) &&
              ckpt_leaves(c->arena, &c->b.file.survey, split, &c->b.tree, &c->b.pieces, &n_left_b,
                          c->err);
    c->report->is_split = split;
    if (ok) c->report->n_optional += n_left_a + n_left_b;
    return ok;
}

/* A folder of Hugging Face's holds heads as a file of ours does; two such folders as MaxText's
 * trees do. */
static bool open_side(Comparer *c, const MxCkptRef *ref, const MxCkptRef *other, Side *out) {
    MxCkptRef as_other = *ref;
    MxHeadForm *heads = mx_new(c->arena, MxHeadForm);
    MxHfModel model;
    out->holds_state = !ref->is_hf;
    if (!ref->is_hf || other->is_hf) return ckpt_open(c->arena, ref, &out->file, c->err);
    const char *config = mx_hf_config_path(c->arena, ref->path);
    if (!mx_hf_read_config(c->arena, config, &model, c->err)) return false;
    *heads = other->heads ? *other->heads : model.heads;
    as_other.heads = heads;
    return ckpt_open(c->arena, &as_other, &out->file, c->err);
}

/* Of two files of ours, one of which was a folder of Hugging Face's. */
static bool find_forms(const MxCkptRef *a, const MxCkptRef *b, CkptForms *out) {
    MxHfModel model;
    if (a->is_hf || b->is_hf || !a->heads || !b->heads) return false;
    if (!mx_ckpt_was_hf(a, &model) && !mx_ckpt_was_hf(b, &model)) return false;
    *out = (CkptForms){.from = model, .to = model};
    out->from.heads = *b->heads;
    out->to.heads = *a->heads;
    return true;
}

bool mx_ckpt_compare(const MxCkptRef *a, const MxCkptRef *b, const MxCompare *how, bool *is_equal,
                     MxError *err) {
    MxArena arena = {.name = "compare"};
    CkptReport report = {0};
    Comparer c = {.arena = &arena, .how = how, .report = &report, .err = err};
    c.has_forms = find_forms(a, b, &c.forms);
    for (int i = 0; i < 2; i++)
        c.tile[i] = mx_arena_alloc(&arena, (size_t)CKPT_TILE_ELEMENTS * sizeof(int64_t));
    bool ok = open_side(&c, a, b, &c.a) && open_side(&c, b, a, &c.b) && make_trees(&c) &&
              compare_trees(&c);
    mx_progress_end();
    if (ok) {
        report.name_a = a->ref;
        report.name_b = b->ref;
        report.form_a = ckpt_source_text(&arena, &c.a.file);
        report.form_b =
            mx_arena_printf(&arena, "%s%s", ckpt_source_text(&arena, &c.b.file),
                            c.has_forms ? ", heads turned to the form of the other" : "");
        *is_equal = ckpt_report_is_equal(&report);
        ok = ckpt_report_tell(&arena, &report, how, err);
    }
    mx_arena_release(&arena);
    return ok;
}
