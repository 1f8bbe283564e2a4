/* adapters.c — the adapters of a checkpoint of any layout, layer by layer: each with its other
 * half, its magnitudes if it has any, and its weight, and what was trained in a weight's place,
 * whichever file that is in; and the check that this is the weight with which it was trained. */
#include "lora.h"

#include <inttypes.h>
#include <stdlib.h>

static const char a_suffix[] = "_lora_a", b_suffix[] = "_lora_b", m_suffix[] = "_lora_m",
                  w_suffix[] = "_lora_w";

bool ckpt_is_whole(const char *path) {
    return mx_text_has_suffix(path, w_suffix);
}

bool ckpt_is_head(const char *path) {
    return mx_text_has_suffix(path, "decoder/score/kernel");
}

bool ckpt_is_adapter(const char *path) {
    return mx_text_has_suffix(path, a_suffix) || mx_text_has_suffix(path, b_suffix) ||
           mx_text_has_suffix(path, m_suffix) || ckpt_is_whole(path);
}

static MxWhere in(const CkptLora *lora) {
    return (MxWhere){.file = lora->file.ref.ref};
}

/* ---- pairs */

static const CkptEntry *entry_of(const CkptLora *lora, int leaf) {
    return &lora->file.survey.entries[lora->pieces[leaf].entry];
}

static const char *shape_text(MxArena *arena, const CkptLora *lora, int leaf) {
    return mx_shape_text(arena, lora->leaves.leaves[leaf].shape);
}

/* Of how many matrices a half's shape is: those of experts have one dim more. */
static int64_t n_matrices(MxShape half) {
    return half.rank == 3 ? half.dim[0] : 1;
}

static int64_t inputs_of(MxShape a) {
    return a.dim[a.rank - 2];
}

static int64_t rank_of(MxShape a) {
    return a.dim[a.rank - 1];
}

static bool make_pair(MxShape a, MxShape b) {
    if (a.rank == 3) return b.rank == 3 && a.dim[0] == b.dim[0] && a.dim[2] == b.dim[1];
    return a.rank == 2 && (b.rank == 1 || b.rank == 2) && a.dim[1] == b.dim[0];
}

/* Of the outputs of one matrix. */
static bool check_magnitudes(MxArena *arena, const CkptLora *lora, const CkptAdapter *adapter,
                             MxError *err) {
    if (adapter->m < 0) return true;
    MxShape a = lora->leaves.leaves[adapter->a].shape, b = lora->leaves.leaves[adapter->b].shape;
    MxShape m = lora->leaves.leaves[adapter->m].shape;
    return (a.rank == 2 && b.rank == 2 && m.rank == 1 && m.dim[0] == b.dim[1]) ||
           mx_fail(err, MX_EXIT_BAD_INPUT, in(lora),
                   "\"%s\" is %s and \"%s\" %s; wanted [outputs] and [rank, outputs]",
                   lora->leaves.leaves[adapter->m].path, shape_text(arena, lora, adapter->m),
                   lora->leaves.leaves[adapter->b].path, shape_text(arena, lora, adapter->b));
}

/* A half, its other half looked up; both are told of by A if it is there, and so are magnitudes. */
static bool add_half(MxArena *arena, CkptLora *lora, int leaf, MxError *err) {
    const char *path = lora->leaves.leaves[leaf].path;
    bool is_a = mx_text_has_suffix(path, a_suffix);
    const char *weight = mx_arena_strndup(arena, path, strlen(path) - strlen(a_suffix));
    const char *peer = mx_arena_printf(arena, "%s%s", weight, is_a ? b_suffix : a_suffix);
    const char *magnitudes = mx_arena_printf(arena, "%s%s", weight, m_suffix);
    int other = mx_tree_find(&lora->leaves, peer);
    if (other < 0)
        return mx_fail(err, MX_EXIT_BAD_INPUT, in(lora), "\"%s\" is there without \"%s\"", path,
                       peer);
    if (!is_a) return true;
    MxShape a = lora->leaves.leaves[leaf].shape, b = lora->leaves.leaves[other].shape;
    if (!make_pair(a, b) || !mx_shape_count(a) || !mx_shape_count(b))
        return mx_fail(err, MX_EXIT_BAD_INPUT, in(lora),
                       "\"%s\" is %s and \"%s\" %s; wanted [inputs, rank] and [rank, outputs], of "
                       "experts both with their number before",
                       path, shape_text(arena, lora, leaf), peer, shape_text(arena, lora, other));
    CkptAdapter *adapter = &lora->adapters[lora->n++];
    *adapter = (CkptAdapter){.weight = weight,
                             .a = leaf,
                             .b = other,
                             .m = mx_tree_find(&lora->leaves, magnitudes),
                             .whole = -1};
    return check_magnitudes(arena, lora, adapter, err);
}

static bool is_whole(const CkptLora *lora, int leaf) {
    const CkptRow *row = entry_of(lora, leaf)->row;
    const char *path = lora->leaves.leaves[leaf].path;
    return row && row->is_param && (ckpt_is_whole(path) || ckpt_is_head(path));
}

static void add_wholes(MxArena *arena, CkptLora *lora) {
    for (int i = 0; i < lora->leaves.n; i++) {
        const char *path = lora->leaves.leaves[i].path;
        if (!is_whole(lora, i)) continue;
        if (ckpt_is_whole(path))
            path = mx_arena_strndup(arena, path, strlen(path) - strlen(w_suffix));
        lora->adapters[lora->n + lora->n_whole++] =
            (CkptAdapter){.weight = path, .a = -1, .b = -1, .m = -1, .whole = i};
    }
}

/* A number in the config that the file came with; 0 = it has none. */
static int64_t number_in_config(MxArena *arena, const CkptFile *file, MxKey key) {
    return strtoll(ckpt_config_said(arena, file->ref.manifest, key), NULL, 10);
}

/* Where only some places of blocks have adapters, the names of a stacked file do not tell which
 * layers these are: there seem to be fewer to a block. Runs tell it (survey.c). */
static bool check_places(MxArena *arena, const CkptLora *lora, MxError *err) {
    const CkptSurvey *s = &lora->file.survey;
    int64_t n_layers = number_in_config(arena, &lora->file, MX_KEY_base_num_decoder_layers);
    int64_t scale = number_in_config(arena, &lora->file, MX_KEY_global_parameter_scale);
    for (int i = 0; n_layers && scale == 1 && i < s->n_groups; i++) {
        const CkptGroup *g = &s->groups[i];
        if (!g->how.period || g->how.runs) continue;
        bool fits = g->n_rest ? g->n_layers == n_layers
                              : (n_layers - g->how.first) / g->how.period == g->n_blocks;
        if (!fits)
            return mx_fail(err, MX_EXIT_BAD_INPUT, in(lora),
                           "%s: only some of the layers of each block have adapters, and a stacked "
                           "file does not tell which these are of the %lld; a run with "
                           "scan_layers=false that begins with them (lora.lora_restore_path) does",
                           g->key, (long long)n_layers);
    }
    return true;
}

bool ckpt_lora_find(MxArena *arena, const CkptFile *file, CkptLora *out, MxError *err) {
    CkptLora *lora = out;
    int n_left, n_halves = 0, failures = err->count;
    *lora = (CkptLora){.file = *file};
    if (!ckpt_check_floats(&lora->file.survey, err) ||
        !ckpt_leaves(arena, &lora->file.survey, true, &lora->leaves, &lora->pieces, &n_left, err))
        return false;
    if (!check_places(arena, lora, err)) return false;
    lora->adapters = mx_new_n(arena, CkptAdapter, lora->leaves.n + 1);
    for (int i = 0; i < lora->leaves.n; i++) {
        const CkptRow *row = entry_of(lora, i)->row;
        if (!row || !row->is_param) continue;
        bool is_adapter = ckpt_is_adapter(lora->leaves.leaves[i].path);
        if (!is_adapter && !is_whole(lora, i)) lora->has_weights = true;
        if (!is_adapter || is_whole(lora, i)) continue;
        n_halves++;
        add_half(arena, lora, i, err);
    }
    add_wholes(arena, lora);
    if (!n_halves)
        mx_fail(
            err, MX_EXIT_BAD_INPUT, in(lora),
            "no adapters in it: wanted arrays named …_lora_a and …_lora_b among the parameters");
    return err->count == failures;
}

/* ---- their weights */

/* Whether rows are the product of some of the first dims of a shape that has any. */
static bool is_cut(MxShape shape, int64_t rows) {
    int64_t n = 1;
    for (int i = 0; i < shape.rank && n < rows; i++) n *= shape.dim[i];
    return shape.rank && n == rows;
}

static bool fits(const CkptLora *lora, const CkptAdapter *adapter, MxShape weight) {
    if (adapter->whole >= 0)
        return mx_shape_equal(weight, lora->leaves.leaves[adapter->whole].shape);
    MxShape a = lora->leaves.leaves[adapter->a].shape, b = lora->leaves.leaves[adapter->b].shape;
    int64_t n = n_matrices(a), columns = mx_shape_count(b) / (n * rank_of(a));
    if (a.rank == 3 && (weight.rank != 3 || weight.dim[0] != n)) return false;
    return is_cut(weight, n * inputs_of(a)) && n * inputs_of(a) * columns == mx_shape_count(weight);
}

static const char *shapes_of(MxArena *arena, const CkptLora *lora, const CkptAdapter *adapter) {
    if (adapter->whole >= 0)
        return mx_arena_printf(arena, "what was trained in its place is %s",
                               shape_text(arena, lora, adapter->whole));
    return mx_arena_printf(arena, "its adapters are %s and %s", shape_text(arena, lora, adapter->a),
                           shape_text(arena, lora, adapter->b));
}

bool ckpt_lora_match(MxArena *arena, const CkptLora *lora, const MxTree *weights, int **out,
                     MxError *err) {
    int failures = err->count;
    *out = mx_new_n(arena, int, weights->n + 1);
    for (int i = 0; i < weights->n; i++) (*out)[i] = -1;
    for (int i = 0; i < lora->n + lora->n_whole; i++) {
        const CkptAdapter *adapter = &lora->adapters[i];
        int w = mx_tree_find(weights, adapter->weight);
        if (w < 0)
            mx_fail(err, MX_EXIT_BAD_INPUT, in(lora), "\"%s\" is %s, but the base lacks it",
                    adapter->weight, adapter->whole < 0 ? "adapted" : "trained as it is");
        else if (!fits(lora, adapter, weights->leaves[w].shape))
            mx_fail(err, MX_EXIT_BAD_INPUT, in(lora), "\"%s\" is %s in the base; %s",
                    adapter->weight, mx_shape_text(arena, weights->leaves[w].shape),
                    shapes_of(arena, lora, adapter));
        else
            (*out)[w] = i;
    }
    bool has_head = false;
    for (int i = lora->n; i < lora->n + lora->n_whole; i++)
        has_head |= ckpt_is_head(lora->adapters[i].weight);
    if (err->count > failures && has_head)
        mx_note(err, "hint: --to-peft and --extract-lora keep a head beside its adapters");
    return err->count == failures;
}

static bool load_array(MxArena *arena, const CkptLora *lora, int leaf, const float **out,
                       MxError *err) {
    MxShape shape = lora->leaves.leaves[leaf].shape;
    float *data = mx_new_n(arena, float, mx_shape_count(shape));
    *out = data;
    return ckpt_read_piece(&lora->file, &lora->pieces[leaf], ckpt_box(shape, -1, 0), MX_F32, data,
                           err);
}

bool ckpt_lora_load(MxArena *arena, const CkptLora *lora, int adapter, int64_t count, double alpha,
                    CkptDelta *out, MxError *err) {
    const CkptAdapter *pair = &lora->adapters[adapter];
    *out = (CkptDelta){.file = &lora->file};
    if (pair->whole >= 0) out->whole = &lora->pieces[pair->whole];
    if (pair->whole >= 0) return true;
    MxShape a = lora->leaves.leaves[pair->a].shape;
    *out = (CkptDelta){.rows = inputs_of(a),
                       .rank = rank_of(a),
                       .columns = count / (n_matrices(a) * inputs_of(a)),
                       .scale = alpha / (double)rank_of(a)};
    return load_array(arena, lora, pair->a, &out->a, err) &&
           load_array(arena, lora, pair->b, &out->b, err) &&
           (pair->m < 0 || load_array(arena, lora, pair->m, &out->m, err));
}

/* ---- whether the base is theirs */

static bool hash_leaf(MxArena *arena, const CkptFile *file, const CkptPiece *piece,
                      const MxLeaf *leaf, uint64_t *out, MxError *err) {
    CkptTiles tiles;
    MxHash *hash = mx_hash_new(arena);
    void *tile = mx_arena_alloc(arena, (size_t)CKPT_TILE_ELEMENTS * mx_dtype_bytes(leaf->dtype));
    bool has_more = ckpt_tiles_start(&tiles, leaf->shape, CKPT_TILE_ELEMENTS);
    for (; has_more; has_more = ckpt_tiles_next(&tiles)) {
        if (!ckpt_read_piece(file, piece, tiles.box, leaf->dtype, tile, err)) return false;
        mx_hash_add(hash, tile, (size_t)mx_box_count(&tiles.box) * mx_dtype_bytes(leaf->dtype));
    }
    *out = mx_hash_value(hash);
    return true;
}

/* The fingerprint that a trainer would take of these weights. */
static bool take_fingerprint(const CkptFile *file, const MxTree *weights, const CkptPiece *pieces,
                             const MxTree *order, uint64_t *out, MxError *err) {
    static const char dir[] = "model/";
    bool ok = true;
    *out = 0;
    for (int i = 0; ok && i < order->n; i++) {
        MxArena arena = {.name = "fingerprint"};
        const MxLeaf *leaf = &order->leaves[i];
        const char *path = mx_arena_printf(&arena, "%s%s", dir, leaf->path);
        int w = leaf->kind == MX_KIND_PARAM ? mx_tree_find(weights, path) : -1;
        uint64_t values = 0;
        if (leaf->kind == MX_KIND_PARAM && w < 0)
            ok = mx_fail(err, MX_EXIT_BAD_INPUT, (MxWhere){.file = file->ref.ref},
                         "\"%s\" is missing; the model has it", path);
        else if (w >= 0 && !mx_shape_equal(weights->leaves[w].shape, leaf->shape))
            ok = mx_fail(err, MX_EXIT_BAD_INPUT, (MxWhere){.file = file->ref.ref},
                         "\"%s\" is %s; the model wants %s", path,
                         mx_shape_text(&arena, weights->leaves[w].shape),
                         mx_shape_text(&arena, leaf->shape));
        else if (w >= 0) {
            ok = hash_leaf(&arena, file, &pieces[w], leaf, &values, err);
            *out = mx_tree_fingerprint(*out, path, values);
        }
        mx_arena_release(&arena);
    }
    return ok;
}

bool ckpt_lora_check_base(const CkptLora *lora, const CkptFile *file, const MxTree *weights,
                          const CkptPiece *pieces, const MxTree *order, const char **note,
                          MxError *err) {
    int leaf = mx_tree_find(&lora->leaves, "mxtrain/base_fingerprint");
    int64_t want[1];
    uint64_t found;
    *note = "the adapters do not say over which weights they were trained";
    if (leaf < 0) return true;
    *note =
        "whether they were trained over these weights was not checked: no config tells the model";
    if (!order) return true;
    *note = "they were trained over these weights (fingerprint)";
    if (mx_shape_count(lora->leaves.leaves[leaf].shape) != 1)
        return mx_fail(err, MX_EXIT_BAD_INPUT, in(lora), "its fingerprint is no single number");
    if (!ckpt_read_piece(&lora->file, &lora->pieces[leaf],
                         ckpt_box(lora->leaves.leaves[leaf].shape, -1, 0), MX_I64, want, err) ||
        !take_fingerprint(file, weights, pieces, order, &found, err))
        return false;
    return found == (uint64_t)want[0] ||
           mx_fail(err, MX_EXIT_BAD_INPUT, in(lora),
                   "its adapters belong to other weights: fingerprint %016" PRIx64
                   ", that of \"%s\" is %016" PRIx64,
                   (uint64_t)want[0], file->ref.ref, found);
}
