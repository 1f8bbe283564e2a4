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

/* ---- stacks */

MxStacking mx_family_stacking(const MxFamily *family) {
    bool take_turns = family->period > 1;
    return (MxStacking){.outer = family->layers ? family->layers : "layers",
                        .place = take_turns ? family->place : NULL,
                        .period = take_turns ? family->period : 0};
}

MxStack mx_stack_of(MxArena *arena, const char *prefix, const char *axis, MxStacking how, int layer,
                    int n_layers, const char *tail) {
    if (!how.period)
        return (MxStack){.path = mx_arena_printf(arena, "%s%s/%s", prefix, how.outer, tail),
                         .axis = axis,
                         .index = layer,
                         .count = n_layers};
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

MxLayers mx_layers(const MxFamily *family, int64_t n_named, int64_t n_dense) {
    int n = (int)n_named * mx_family_a_name(family);
    MX_ASSERT(!family->first_layers || mx_family_a_name(family) == 1);
    return (MxLayers){.family = family,
                      .n = n,
                      .n_first = !family->first_layers ? 0
                                 : n_dense < n         ? (int)n_dense
                                                       : n};
}

const MxLayerSpec *mx_layer_spec(const MxLayers *layers, int layer) {
    const MxFamily *family = layers->family;
    int later = layer - layers->n_first, n = family->period * mx_family_a_name(family);
    MX_ASSERT(family->n_specs > 0);
    return &family->specs[later < 0 ? family->first_spec : family->turns[later % n]];
}

MxLayerPlace mx_layer_place(const MxLayers *layers, int layer) {
    int later = layer - layers->n_first, n = layers->n - layers->n_first;
    int a_name = mx_family_a_name(layers->family);
    if (later < 0)
        return (MxLayerPlace){
            .how = {.outer = layers->family->first_layers}, .layer = layer, .n = layers->n_first};
    return (MxLayerPlace){
        .how = mx_family_stacking(layers->family), .layer = later / a_name, .n = n / a_name};
}

const char *mx_layer_name(MxArena *arena, const MxLayers *layers, int layer) {
    MxLayerPlace place = mx_layer_place(layers, layer);
    return mx_arena_printf(arena, "decoder/%s_%d", place.how.outer, place.layer);
}
