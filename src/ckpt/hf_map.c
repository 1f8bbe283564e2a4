/* hf_map.c — the layout of a parameter's elements in a tensor of the other side. Transposed
 * matrices, joined or split dims, several parameters in one tensor and rotated heads are all
 * expressed by strides, so one walk over them serves both directions. Source: MaxText
 * checkpoint_conversion/utils/param_mapping.py @e591f30c (transforms, HOOK_FNS). */
#include "hf.h"

#include <math.h>

typedef struct Size {
    char letter;
    int64_t size;
} Size;

static int64_t find_size(const Size *sizes, int n, char letter) {
    for (int i = 0; i < n; i++)
        if (sizes[i].letter == letter) return sizes[i].size;
    return -1;
}

static int64_t size_in_eye(const MxHfModel *m, char letter) {
    int64_t across = m->see_patch ? m->see_size / m->see_patch : 0; /* patches */
    int64_t square = m->see_pool * m->see_pool * m->see_dim; /* patches of a token together */
    const Size sizes[] = {{'d', m->see_dim},
                          {'w', m->see_mlp},
                          {'n', m->see_heads},
                          {'o', m->see_heads ? m->see_dim / m->see_heads : 0},
                          {'p', m->see_patch},
                          {'r', m->see_patch},
                          {'P', m->see_patch ? across * across : 0},
                          {'T', m->see_patch ? across * across + 1 : 0},
                          {'i', m->see_wide},
                          {'j', m->see_made},
                          {'k', m->see_out},
                          {'t', m->see_positions},
                          {'f', m->see_frames},
                          {'m', square},
                          {'x', square},
                          {'2', 2},
                          {'3', 3}};
    return find_size(sizes, MX_COUNT(sizes), letter);
}

/* Letters of rows of the encoder of sounds, which has its own. */
static int64_t size_in_ear(const MxHfModel *m, char letter) {
    const Size sizes[] = {{'D', m->hear_out},
                          {'d', m->hear_dim},
                          {'x', m->hear_dim},
                          {'w', m->hear_mlp},
                          {'n', m->hear_heads},
                          {'o', m->hear_heads ? m->hear_dim / m->hear_heads : 0},
                          {'c', m->hear_channels},
                          {'e', m->hear_channels},
                          {'f', mx_audio_side(m->hear_bins, MX_AUDIO_CONVS)},
                          {'1', 1},
                          {'3', 3}, /* bins and frames of a convolution */
                          {'4', 3}};
    return find_size(sizes, MX_COUNT(sizes), letter);
}

static int64_t size_in_delta(const MxHfModel *m, char letter) {
    int64_t keys = m->delta_keys * m->delta_key_dim, values = m->delta_values * m->delta_value_dim;
    int64_t n = m->delta_keys ? m->delta_keys : 1, of_key = values / n;
    const Size sizes[] = {{'J', m->delta_keys},
                          {'I', m->delta_key_dim},
                          {'A', m->delta_values},
                          {'B', 2 * m->delta_values},
                          {'C', m->delta_taps},
                          {'W', m->delta_value_dim},
                          {'F', values},
                          {'G', 2 * keys + values},
                          {'Z', 2 * (keys + values)},
                          {'U', m->delta_values / n},
                          {'R', of_key},
                          {'Y', 2 * (m->delta_key_dim + of_key)}};
    return find_size(sizes, MX_COUNT(sizes), letter);
}

static int64_t size_in_latent(const MxHfModel *m, char letter) {
    const Size sizes[] = {{'q', m->q_rank},
                          {'c', m->kv_rank},
                          {'a', m->kv_rank + m->rope_dim},
                          {'h', m->nope_dim + m->rope_dim},
                          {'u', m->nope_dim + m->value_dim},
                          {'v', m->value_dim},
                          {'g', m->index_heads},
                          {'e', m->index_dim}};
    return find_size(sizes, MX_COUNT(sizes), letter);
}

/* Of compressed attention, streams of several rows, and what experts are chosen. */
static int64_t size_in_compressed(const MxHfModel *m, const MxLayerSpec *spec, char letter) {
    int64_t window = spec && spec->windows == MX_WINDOWS_CHOSEN ? MX_WINDOWS_CHOSEN_RATIO : 0;
    for (int64_t i = 0; spec && spec->windows == MX_WINDOWS_ALL && i < m->n_layers; i++)
        if (m->ratios[i] > MX_WINDOWS_CHOSEN_RATIO) window = m->ratios[i];
    int64_t groups = m->o_groups ? m->o_groups : 1;
    const Size sizes[] = {{'s', m->n_streams},
                          {'z', m->n_streams},
                          {'#', (2 + m->n_streams) * m->n_streams}, /* numbers of all maps */
                          {'y', window},
                          {'b', m->o_groups},
                          {'$', m->o_rank},
                          {'&', m->n_query_heads * m->head_dim / groups}, /* of a group */
                          {'@', m->n_chosen}};
    return find_size(sizes, MX_COUNT(sizes), letter);
}

/* As the model room has them: read_heads in spec.c, glu.c, moe.c. */
static int64_t size_in_layer(const MxHfModel *m, const MxLayerSpec *spec, char letter) {
    static const MxLayerSpec usual;
    const MxLayerSpec *s = spec ? spec : &usual;
    int64_t heads = s->has_own_heads && m->own_kv_heads ? m->own_kv_heads : m->n_kv_heads;
    int64_t shared = s->block[1].shared_is_mlp ? m->mlp_dim : m->moe_dim;
    const Size sizes[] = {
        {'D', m->emb_dim},
        {'V', m->vocab_size},
        {'N', m->n_query_heads},
        {'K', heads},
        {'H', s->has_own_heads && m->own_head_dim ? m->own_head_dim : m->head_dim},
        {'M', s->takes_kv && m->is_double_wide ? 2 * m->mlp_dim : m->mlp_dim},
        {'X', m->n_experts},
        {'E', m->moe_dim},
        {'S', shared * m->n_shared},
        {'Q', m->n_query_heads + 2 * heads},
        {'l', m->input_dim},
        {'L', m->input_dim * hf_layers(m)},
        {'O', m->input_vocab},
        {'1', 1},
        {'2', 2}};
    return find_size(sizes, MX_COUNT(sizes), letter);
}

int64_t hf_size(const MxHfModel *m, const MxLayerSpec *spec, char letter) {
    int64_t size = size_in_layer(m, spec, letter);
    if (size < 0) size = size_in_latent(m, letter);
    if (size < 0) size = size_in_compressed(m, spec, letter);
    if (size < 0) size = size_in_delta(m, letter);
    if (size < 0) size = size_in_eye(m, letter);
    MX_ASSERT(size >= 0);
    return size;
}

/* Letters of a row, in a layer. */
typedef struct Sizes {
    const MxHfModel *model;
    const MxLayerSpec *spec;
    bool is_ear;
} Sizes;

static int64_t size_of(const Sizes *s, char letter) {
    return s->is_ear ? size_in_ear(s->model, letter) : hf_size(s->model, s->spec, letter);
}

static MxShape shape_of(const Sizes *s, const char *words) {
    MxShape shape = {.rank = 1, .dim = {1}};
    for (; *words; words++) {
        if (*words == ' ')
            shape.dim[shape.rank++] = 1;
        else
            shape.dim[shape.rank - 1] *= size_of(s, *words);
    }
    return shape;
}

/* A sum of products; i  what % stands for. */
static int64_t sum_of(const Sizes *s, const char *terms, int64_t i) {
    int64_t sum = 0;
    while (*terms) {
        int64_t product = 1;
        for (; *terms && *terms != '+'; terms++) product *= *terms == '%' ? i : size_of(s, *terms);
        sum += product;
        terms += *terms == '+';
    }
    return sum;
}

/* Elements between neighbours along a letter: the product of what follows it; 0 = there are none.
 */
static int64_t stride_of(const Sizes *s, const char *words, char letter) {
    int64_t stride = 1;
    const char *at = strchr(words, letter);
    for (const char *after = at ? at + 1 : (stride = 0, ""); *after; after++)
        if (*after != ' ') stride *= size_of(s, *after);
    return stride;
}

static float factor_of(const MxHfModel *model, HfRole role) {
    bool is_table = role == HF_TABLE && model->names->scales_embedding;
    return is_table ? (float)sqrt((double)model->emb_dim) : hf_factor(&model->heads, role);
}

HfMap hf_values(const MxHfModel *model, HfRole role) {
    bool adds_one = role == HF_SCALE && model->names->adds_one && !model->makes_ones;
    return (HfMap){.factor = factor_of(model, role), .term = adds_one ? 1 : 0};
}

/* What of the two arrays a row's part is. */
static void place_part(const Sizes *s, const HfRow *row, int64_t i, HfMap *map) {
    MxShape part = shape_of(s, row->our_shape), theirs = shape_of(s, row->their_shape);
    map->ours = row->whole ? shape_of(s, row->whole) : part;
    map->theirs = row->their_whole ? shape_of(s, row->their_whole) : theirs;
    map->part = mx_box_of(part);
    for (int d = 0; d < part.rank; d++)
        if (map->ours.dim[d] != part.dim[d]) map->part.start[d] = sum_of(s, row->first, i);
    int64_t first = row->their_whole ? sum_of(s, row->their_first, i) : 0;
    map->offset = row->which * stride_of(s, row->their_shape, '2') +
                  first * (mx_shape_count(theirs) / theirs.dim[0]);
}

HfMap hf_map(const MxHfModel *model, const HfRow *row, int i) {
    const Sizes s = {model, hf_spec(model, row, i), hf_is_ear(row)};
    bool has_heads = row->role == HF_QUERY || row->role == HF_KEY;
    HfMap map = hf_values(model, row->role);
    place_part(&s, row, i % hf_each(model, row), &map);
    map.inner = map.rotated = -1;
    bool are_neighbours = model->names->are_neighbours || model->is_meta || model->makes_pairs;
    bool turns = has_heads && model->heads.interleaves != are_neighbours;
    map.spreads = turns && are_neighbours;
    int dim = 0;
    for (const char *word = row->our_shape; *word; dim++) {
        size_t n = strcspn(word, " ");
        char last = word[n - 1]; /* letters of one dim lie next to each other there too */
        map.stride[dim] = stride_of(&s, row->their_shape, last);
        bool is_rotated = last == 'H' && turns;
        int64_t closest = map.inner < 0 ? HF_APART_MOST + 1 : map.stride[map.inner];
        if (is_rotated) map.rotated = dim;
        if (map.stride[dim] > 0 && map.stride[dim] < closest && !is_rotated) map.inner = dim;
        word += n + (word[n] == ' ');
    }
    return map;
}

/* Positions of the run at `index`. */
static void settle(HfRun *run) {
    const HfMap *map = run->map;
    run->at = 0;
    run->theirs = map->offset;
    run->step = 1;
    run->apart = map->inner < 0 ? 1 : map->stride[map->inner];
    for (int d = 0; d < run->box.rank; d++) {
        int64_t i = run->box.start[d] + run->index[d] - map->part.start[d];
        int64_t in_dense = run->box.start[d] + run->index[d] - run->dense.start[d];
        run->at = run->at * run->dense.count[d] + in_dense;
        if (map->inner >= 0 && d > map->inner) run->step *= run->dense.count[d];
        int64_t width = map->ours.dim[d];
        if (d == map->rotated)
            i = map->spreads ? hf_place_spread(width, i) : hf_place_in_head(width, i);
        run->theirs += i * map->stride[d];
    }
}

bool hf_run_start(HfRun *run, const HfMap *map, const MxBox *dense, const MxBox *box) {
    *run = (HfRun){.map = map, .dense = *dense, .box = mx_box_meet(box, &map->part)};
    if (!mx_box_count(&run->box)) return false;
    run->n = map->inner < 0 ? 1 : run->box.count[map->inner];
    settle(run);
    return true;
}

bool hf_run_next(HfRun *run) {
    for (int d = run->box.rank - 1; d >= 0; d--) {
        if (d == run->map->inner) continue;
        if (++run->index[d] < run->box.count[d]) {
            settle(run);
            return true;
        }
        run->index[d] = 0;
    }
    return false;
}
