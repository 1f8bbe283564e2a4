/* hf_map.c — how elements of a parameter lie in a tensor of the other side. A transposed matrix,
 * dims taken together or apart, several parameters in one tensor and rotated heads are all a matter
 * of strides, so one walk over them serves both directions. Source: MaxText
 * checkpoint_conversion/utils/param_mapping.py @e591f30c (transforms, HOOK_FNS). */
#include "hf.h"

#include <math.h>

static int64_t size_of(const MxHfModel *m, char letter) {
    int64_t keys = m->delta_keys * m->delta_key_dim, values = m->delta_values * m->delta_value_dim;
    int64_t across = m->see_patch ? m->see_size / m->see_patch : 0; /* patches */
    const struct {
        char letter;
        int64_t size;
    } sizes[] = {{'D', m->emb_dim},
                 {'V', m->vocab_size},
                 {'N', m->n_query_heads},
                 {'K', m->n_kv_heads},
                 {'H', m->head_dim},
                 {'M', m->mlp_dim},
                 {'X', m->n_experts},
                 {'E', m->moe_dim},
                 {'S', m->moe_dim * m->n_shared},
                 {'1', 1},
                 {'2', 2},
                 {'Q', m->n_query_heads + 2 * m->n_kv_heads},
                 {'q', m->q_rank},
                 {'c', m->kv_rank},
                 {'a', m->kv_rank + m->rope_dim},
                 {'h', m->nope_dim + m->rope_dim},
                 {'u', m->nope_dim + m->value_dim},
                 {'v', m->value_dim},
                 {'g', m->index_heads},
                 {'e', m->index_dim},
                 {'A', m->delta_values},
                 {'B', 2 * m->delta_values},
                 {'C', m->delta_taps},
                 {'W', m->delta_value_dim},
                 {'F', values},
                 {'G', 2 * keys + values},
                 {'Z', 2 * (keys + values)},
                 {'d', m->see_dim},
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
                 {'3', 3}};
    int i = 0;
    while (sizes[i].letter != letter) i++;
    return sizes[i].size;
}

static MxShape shape_of(const MxHfModel *m, const char *words) {
    MxShape shape = {.rank = 1, .dim = {1}};
    for (; *words; words++) {
        if (*words == ' ')
            shape.dim[shape.rank++] = 1;
        else
            shape.dim[shape.rank - 1] *= size_of(m, *words);
    }
    return shape;
}

/* A sum of letters. */
static int64_t sum_of(const MxHfModel *m, const char *letters) {
    int64_t sum = 0;
    for (; *letters; letters++)
        if (*letters != '+') sum += size_of(m, *letters);
    return sum;
}

/* Elements between neighbours along a letter: the product of what follows it; 0 = there are none.
 */
static int64_t stride_of(const MxHfModel *m, const char *words, char letter) {
    int64_t stride = 1;
    const char *at = strchr(words, letter);
    for (const char *after = at ? at + 1 : (stride = 0, ""); *after; after++)
        if (*after != ' ') stride *= size_of(m, *after);
    return stride;
}

static float factor_of(const MxHfModel *model, HfRole role) {
    bool is_table = role == HF_TABLE && model->names->scales_embedding;
    return is_table ? (float)sqrt((double)model->emb_dim) : hf_factor(&model->heads, role);
}

HfMap hf_values(const MxHfModel *model, HfRole role) {
    bool adds_one = role == HF_SCALE && model->names->adds_one;
    return (HfMap){.factor = factor_of(model, role), .term = adds_one ? 1 : 0};
}

HfMap hf_map(const MxHfModel *model, const HfRow *row, int i) {
    bool has_heads = row->role == HF_QUERY || row->role == HF_KEY;
    MxShape part = shape_of(model, row->our_shape);
    HfMap map = hf_values(model, row->role);
    map.ours = row->whole ? shape_of(model, row->whole) : part;
    map.part = mx_box_of(part);
    map.theirs = shape_of(model, row->their_shape);
    map.offset = row->which * stride_of(model, row->their_shape, '2');
    map.inner = map.rotated = -1;
    bool are_neighbours = model->names->are_neighbours || model->is_meta;
    bool turns = has_heads && model->heads.interleaves != are_neighbours;
    map.spreads = turns && are_neighbours;
    int dim = 0;
    for (int d = 0; d < part.rank; d++)
        if (map.ours.dim[d] != part.dim[d])
            map.part.start[d] =
                row->first[0] == '%' ? i % model->n_experts : sum_of(model, row->first);
    for (const char *word = row->our_shape; *word; dim++) {
        size_t n = strcspn(word, " ");
        char last = word[n - 1]; /* letters of one dim lie next to each other there too */
        map.stride[dim] = stride_of(model, row->their_shape, last);
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

bool hf_run_start(HfRun *run, const HfMap *map, const MxBox *box) {
    *run = (HfRun){.map = map, .dense = *box, .box = mx_box_meet(box, &map->part)};
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
