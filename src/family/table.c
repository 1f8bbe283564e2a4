/* table.c — the families in one table, and how their layers are stacked. Those that are built have
 * a row of their own in a file of this room. */
#include <mx/family.h>

#include "rows.h"

// clang-format off
#define MX_FAMILY(name)
#define MX_FAMILY_LATER(name, period_, place_, mark_)                                              \
    static const MxFamily family_##name = {                                                        \
        .decoder_block = #name, .period = period_, .place = place_, .mark = mark_};
#include <mx/family.def>
#undef MX_FAMILY
#undef MX_FAMILY_LATER

static const MxFamily *const families[] = {
#define MX_FAMILY(name)                             &family_##name,
#define MX_FAMILY_LATER(name, period, place, mark)  &family_##name,
#include <mx/family.def>
#undef MX_FAMILY
#undef MX_FAMILY_LATER
};

const char mx_families_built[] =
#define MX_FAMILY(name) #name " "
#define MX_FAMILY_LATER(name, period, place, mark)
#include <mx/family.def>
#undef MX_FAMILY
#undef MX_FAMILY_LATER
    ;

const char mx_families_later[] =
#define MX_FAMILY(name)
#define MX_FAMILY_LATER(name, period, place, mark) #name " "
#include <mx/family.def>
#undef MX_FAMILY
#undef MX_FAMILY_LATER
    ;
// clang-format on

const MxFamily *const *mx_families(int *n) {
    *n = MX_COUNT(families);
    return families;
}

const MxFamily *mx_family_find(const char *decoder_block) {
    for (int i = 0; i < MX_COUNT(families); i++)
        if (!strcmp(families[i]->decoder_block, decoder_block)) return families[i];
    return NULL;
}

bool mx_family_has(const MxFamily *family, MxBlockKind kind) {
    bool has = false;
    for (int s = 0; s < family->n_specs; s++)
        for (int i = 0; i < MX_LAYER_BLOCKS; i++) has |= family->specs[s].block[i].kind == kind;
    return has;
}

bool mx_family_reads(const MxFamily *family, const char *key) {
    return family->keys && mx_text_has_word(family->keys, key);
}

/* ---- stacks */

MxStacking mx_family_stacking(const MxFamily *family, int period) {
    return (MxStacking){.outer = family->layers ? family->layers : "layers",
                        .place = family->place,
                        .period = family->place ? period : 0,
                        .runs = family->runs};
}

/* Of a period's place: the run that it is in, and (first) the run's first place. */
static int run_of(const MxRuns *runs, int place, int *first) {
    int r = 0;
    *first = 0;
    while (place - *first >= runs->run[r].n) *first += runs->run[r++].n;
    return r;
}

/* Layers behind the last whole period begin a run, which is stacked there too. */
static MxStack stack_in_run(MxArena *arena, const char *prefix, const char *axis, MxStacking how,
                            int layer, int n_layers, const char *tail) {
    int n_blocks = n_layers / how.period, n_rest = n_layers % how.period, first;
    int r = run_of(how.runs, layer % how.period, &first), n = how.runs->run[r].n;
    const char *name = how.runs->run[r].name;
    bool is_rest = layer >= n_blocks * how.period;
    int block = is_rest ? 0 : layer / how.period, at = layer % how.period - first;
    MxStack stack = {.path = mx_arena_printf(arena, "%s%s/%s/%s", prefix,
                                             is_rest ? MX_STACK_REST : how.runs->outer, name, tail),
                     .axis = is_rest          ? name
                             : how.runs->axis ? how.runs->axis
                                              : axis,
                     .index = block * n + at,
                     .count = n_blocks * n};
    if (is_rest)
        stack.count = n == 1 ? 0 : n_rest - first < n ? n_rest - first : n;
    else if (n > 1)
        stack.inner = n, stack.inner_axis = name;
    return stack;
}

static MxStack stack_in_piece(MxArena *arena, const char *prefix, MxStacking how, int layer,
                              int n_layers, const char *tail) {
    if (how.divides == MX_DIVIDE_ALONE)
        return (MxStack){.path = mx_arena_printf(arena, "%s%s" MX_STACK_RECALL "%d/%s", prefix,
                                                 how.outer, how.first, tail)};
    const char *name = mx_arena_printf(arena, "%s_%d_%d", how.outer, how.first, how.last);
    return (MxStack){.path = mx_arena_printf(arena, "%s%s/%s", prefix, name, tail),
                     .axis = name,
                     .index = layer,
                     .count = n_layers};
}

MxStack mx_stack_of(MxArena *arena, const char *prefix, const char *axis, MxStacking how, int layer,
                    int n_layers, const char *tail) {
    if (how.divides) return stack_in_piece(arena, prefix, how, layer, n_layers, tail);
    if (!how.period)
        return (MxStack){.path = mx_arena_printf(arena, "%s%s/%s", prefix, how.outer, tail),
                         .axis = axis,
                         .index = layer,
                         .count = n_layers};
    if (how.runs) return stack_in_run(arena, prefix, axis, how, layer, n_layers, tail);
    int n_blocks = n_layers / how.period, rest = layer - n_blocks * how.period;
    if (rest >= 0)
        return (MxStack){.path = mx_arena_printf(arena, "%s" MX_STACK_REST "/%s%d/%s", prefix,
                                                 how.place, rest, tail)};
    return (MxStack){.path = mx_arena_printf(arena, "%s%s/%s%d/%s", prefix, how.outer, how.place,
                                             layer % how.period, tail),
                     .axis = axis,
                     .index = layer / how.period,
                     .count = n_blocks};
}

/* ---- the layers of a model */

static bool is_every(int64_t interval, int layer) {
    return interval > 0 && (layer + 1) % interval == 0;
}

/* Source: MaxText models/llama4.py determine_is_nope_layer, determine_is_moe_layer. */
static int said_kind(const MxLayers *layers, int layer) {
    const MxLayerKeys *keys = &layers->keys;
    int64_t ratio = keys->ratios ? keys->ratios[layer] : 0;
    const struct {
        int bit;
        bool is_so;
    } kinds[] = {{MX_KIND_EXPERTS, is_every(keys->moe_step, layer)},
                 {MX_KIND_UNTURNED, is_every(keys->nope_interval, layer)},
                 {MX_KIND_LAST, is_every(keys->cycle, layer) ||
                                    (keys->last_ends_cycle && layer == layers->n - 1)},
                 {MX_KIND_TAKES, keys->n_takers < layers->n && layer >= layers->n - keys->n_takers},
                 {MX_KIND_HASHES, layer < keys->n_hash},
                 {MX_KIND_POOLS_ALL, ratio > MX_WINDOWS_CHOSEN_RATIO},
                 {MX_KIND_POOLS_CHOSEN, ratio == MX_WINDOWS_CHOSEN_RATIO}};
    int index = 0, counts = 1;
    for (int i = 0; i < MX_COUNT(kinds); i++) {
        if (!(kinds[i].bit & layers->family->keys_say_turns)) continue;
        if (kinds[i].is_so) index += counts;
        counts *= 2;
    }
    return index;
}

const MxLayerSpec *mx_layer_spec(const MxLayers *layers, int layer) {
    const MxFamily *family = layers->family;
    int later = layer - layers->n_first, n = family->period * mx_family_a_name(family);
    MX_ASSERT(family->n_specs > 0);
    if (family->keys_say_turns) return &family->specs[said_kind(layers, layer)];
    int further = layers->keys.n_experts > 1 ? family->expert_specs : 0;
    return &family->specs[later < 0 ? family->first_spec : family->turns[later % n] + further];
}

const MxLayerSpec *mx_layer_ahead(MxLayers layers, int i) {
    int last = layers.n - mx_family_a_name(layers.family);
    layers.n_first = 0;
    return mx_layer_spec(&layers, layers.family->ahead_is_first ? i : last + i);
}

static int count_first(const MxFamily *family, MxLayerKeys keys, int n) {
    int64_t said = family->first_layers ? keys.n_dense : family->first_hash ? keys.n_hash : 0;
    return said < n ? (int)said : n;
}

/* The least multiple of the family's period after which kinds come again, or all layers. */
static int period_of_ratios(const MxLayers *layers) {
    int n = layers->n - layers->n_first, period = layers->family->period;
    for (int i = 0; i + period < n;) {
        int layer = layers->n_first + i;
        bool is_same = said_kind(layers, layer) == said_kind(layers, layer + period);
        i = is_same ? i + 1 : 0;
        if (!is_same) period += layers->family->period;
    }
    return period;
}

MxLayers mx_layers(const MxFamily *family, MxLayerKeys keys) {
    int n = (int)keys.n * mx_family_a_name(family);
    MX_ASSERT(!family->first_layers || mx_family_a_name(family) == 1);
    MxLayers layers = {
        .family = family, .keys = keys, .n = n, .n_first = count_first(family, keys, n)};
    layers.period = family->ratios_say_period ? period_of_ratios(&layers)
                    : family->keys_say_turns  ? (int)keys.cycle
                                              : family->period;
    return layers;
}

/* Of one kind are layers that see the same. Source: MaxText models/gemma4_small.py
 * (kv_donor_layer_idx) @e591f30c. */
int mx_layer_giver(const MxLayers *layers, int layer) {
    const MxLayerSpec *spec = mx_layer_spec(layers, layer);
    if (!spec->takes_kv) return -1;
    for (int i = layer - 1; i >= 0; i--) {
        const MxLayerSpec *other = mx_layer_spec(layers, i);
        if (!other->takes_kv && other->sees == spec->sees) return i;
    }
    return -1;
}

int mx_layer_recall(const MxLayers *layers, int layer) {
    for (int i = 0; i < layers->keys.n_recall; i++)
        if (layers->keys.recall[i] == layer) return i;
    return -1;
}

/* A stack of layers `begin` to end - 1, as those divide it. Source: MaxText layers/nnx_decoders.py
 * (_init_scanned_deepseek_engram) @e591f30c. */
static void divide(const MxLayers *layers, int layer, int begin, int end, MxLayerPlace *place) {
    int first = layer, last = layer;
    bool is_alone = mx_layer_recall(layers, layer) >= 0;
    while (!is_alone && first > begin && mx_layer_recall(layers, first - 1) < 0) first--;
    while (!is_alone && last < end - 1 && mx_layer_recall(layers, last + 1) < 0) last++;
    place->how.divides = is_alone ? MX_DIVIDE_ALONE : MX_DIVIDE_PIECE;
    place->how.first = first;
    place->how.last = last;
    place->layer = layer - first;
    place->n = last - first + 1;
}

MxLayerPlace mx_layer_place(const MxLayers *layers, int layer) {
    int later = layer - layers->n_first, n = layers->n - layers->n_first;
    int a_name = mx_family_a_name(layers->family);
    int period = layers->family->ratios_say_period ? layers->family->period : layers->period;
    MxLayerPlace place = {.how = mx_family_stacking(layers->family, period),
                          .layer = later / a_name,
                          .n = n / a_name};
    if (later < 0 && layers->family->first_layers)
        place = (MxLayerPlace){
            .how = {.outer = layers->family->first_layers}, .layer = layer, .n = layers->n_first};
    place.number = layers->family->first_hash ? layer : place.layer;
    place.is_alone = later < 0 && layers->family->first_hash;
    if (layers->keys.n_recall)
        divide(layers, layer, later < 0 ? 0 : layers->n_first,
               later < 0 ? layers->n_first : layers->n, &place);
    return place;
}

const char *mx_layer_name(MxArena *arena, const MxLayers *layers, int layer) {
    MxLayerPlace place = mx_layer_place(layers, layer);
    return mx_arena_printf(arena, "decoder/%s_%d", place.how.outer, place.number);
}
