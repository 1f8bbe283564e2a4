/* stack.c — the positions of paths in stacks of layers, and how to stack layers that are separate.
 * A layer's own name is "layers_7". Stacked it is one slice of "layers/…" (flat) or, if layers
 * follow a pattern (local and global attention, dense and sparse), slice 7 / cycle of
 * "layers/layers_<7 % cycle>/…" (block); layers after the last whole cycle stay separate in
 * "layers_remainder". The room family knows which families have such patterns. */
#include <mx/ckpt.h>
#include <mx/family.h>

#include "internal.h"

#include <stdlib.h>

/* Names of stacks, and of one layer of theirs. */
static const struct {
    const char *outer, *layer;
} stacks[] = {
    {"layers", "layers"},
    {"dense_layers", "dense_layers"},
    {"moe_layers", "moe_layers"},
    {MX_STACK_BLOCKS, "layers"},
};

/* ---- names */

/* The number that a segment is after a prefix, or -1; *rest is what follows the segment. */
static int number_after(const char *segment, const char *prefix, const char **rest) {
    enum { MAX_DIGITS = 6 };
    size_t n = strlen(prefix);
    if (strncmp(segment, prefix, n)) return -1;
    size_t digits = strspn(segment + n, "0123456789");
    if (!digits || digits > MAX_DIGITS || segment[n + digits] != '/') return -1;
    *rest = segment + n + digits + 1;
    return (int)strtol(segment + n, NULL, 10);
}

/* The same after what a family calls the places of a block. */
static int number_of_place(const char *segment, const char **place, const char **rest) {
    int n;
    const MxFamily *const *families = mx_families(&n);
    for (int i = 0; i < n; i++) {
        *place = families[i]->place;
        int number = *place ? number_after(segment, *place, rest) : -1;
        if (number >= 0) return number;
    }
    *place = NULL;
    return -1;
}

static bool is_segment(const char *segment, const char *name, const char **rest) {
    size_t n = strlen(name);
    if (strncmp(segment, name, n) || segment[n] != '/') return false;
    *rest = segment + n + 1;
    return true;
}

/* A place of a block, or a run of them, is what the tail begins with. */
static bool take_place(CkptSpot *spot) {
    int n;
    const MxFamily *const *families = mx_families(&n);
    spot->number = number_of_place(spot->tail, &spot->place, &spot->tail);
    spot->inner = 1;
    if (spot->number >= 0) return true;
    for (int i = 0; i < n; i++) {
        const MxRuns *runs = families[i]->runs;
        for (int r = 0, first = 0; runs && r < MX_MOST_RUNS && runs->run[r].name; r++) {
            if (is_segment(spot->tail, runs->run[r].name, &spot->tail)) {
                spot->runs = runs;
                spot->number = first;
                spot->inner = runs->run[r].n;
                return true;
            }
            first += runs->run[r].n;
        }
    }
    return false;
}

/* Looks at the path from a segment on. */
static bool spot_at(const char *segment, CkptSpot *out) {
    if (is_segment(segment, MX_STACK_REST, &out->tail)) {
        if (!take_place(out)) return false;
        out->where = CKPT_REST;
        out->name = "layers";
        return true;
    }
    for (int i = 0; i < MX_COUNT(stacks); i++) {
        out->outer = stacks[i].outer;
        out->name = stacks[i].layer;
        char one[32];
        size_t n = strlen(stacks[i].layer);
        MX_ASSERT(n + 2 <= sizeof one);
        memcpy(one, stacks[i].layer, n);
        memcpy(one + n, "_", 2);
        if ((out->number = number_after(segment, one, &out->tail)) >= 0) {
            out->where = CKPT_LAYER;
            return true;
        }
        if (!is_segment(segment, stacks[i].outer, &out->tail)) continue;
        if ((out->number = number_after(out->tail, "", &out->tail)) >= 0)
            out->where = CKPT_LAYER;
        else
            out->where = take_place(out) ? CKPT_BLOCK : CKPT_FLAT;
        return true;
    }
    return false;
}

CkptSpot ckpt_spot(const char *param_path) {
    static const char *const components[] = {"", "decoder/", "encoder/"};
    for (int i = 0; i < MX_COUNT(components); i++) {
        int head = (int)strlen(components[i]);
        CkptSpot spot = {.head = head};
        if (mx_text_has_prefix(param_path, components[i]) && spot_at(param_path + head, &spot))
            return spot;
    }
    return (CkptSpot){.where = CKPT_ALONE, .tail = param_path};
}

/* ---- how to stack */

/* The family one of whose own names occurs, or NULL. */
static const MxFamily *marked_family(const MxH5Array *arrays, int n) {
    int n_families;
    const MxFamily *const *families = mx_families(&n_families);
    for (int f = 0; f < n_families; f++)
        for (int i = 0; families[f]->mark && i < n; i++)
            if (strstr(arrays[i].path, families[f]->mark)) return families[f];
    return NULL;
}

/* What a note calls the places of a block: as the family does, or by its first run. */
static const char *noted_place(const char *place, const MxRuns *runs) {
    return runs ? runs->run[0].name : place ? place : "";
}

/* One word of a note behind its "=": "layers/", "scanned_blocks/layers_*2+3" or
 * "scanned_blocks/local_layers*6". */
static bool read_stacking(const char *word, MxStacking *out) {
    enum { MOST_FIRST = 10000 };
    const char *rest = NULL;
    int n;
    const MxFamily *const *families = mx_families(&n);
    int i = 0;
    while (i < MX_COUNT(stacks) && !is_segment(word, stacks[i].outer, &rest)) i++;
    if (i == MX_COUNT(stacks)) return false;
    *out = (MxStacking){.outer = stacks[i].outer};
    if (!*rest || *rest == ' ') return true;
    for (int k = 0; k < n; k++) {
        const MxRuns *runs = families[k]->runs;
        const char *place = noted_place(families[k]->place, runs);
        size_t len = strlen(place);
        if (!len || strncmp(rest, place, len) || rest[len] != '*') continue;
        char *behind;
        long period = strtol(rest + len + 1, &behind, 10);
        long first = *behind == '+' ? strtol(behind + 1, NULL, 10) : 0;
        if (first < 0 || first > MOST_FIRST) return false;
        out->first = (int)first;
        out->place = families[k]->place;
        out->period = (int)period;
        out->runs = runs;
        return period >= 1 && period <= CKPT_MAX_PERIOD;
    }
    return false;
}

static bool read_note(const char *note, const CkptGroup *group, MxStacking *out) {
    size_t n = strlen(group->key);
    for (const char *p = note; p && *p; p = strchr(p, ' '), p = p ? p + 1 : NULL)
        if (!strncmp(p, group->key, n) && p[n] == '=') return read_stacking(p + n + 1, out);
    return false;
}

const char *ckpt_stack_note(MxArena *arena, const CkptGroup *groups, int n) {
    MxText text;
    mx_text_init(&text, arena);
    for (int i = 0; i < n; i++) {
        const CkptGroup *g = &groups[i];
        if (!g->is_scanned || !g->n_blocks) continue;
        mx_text_add(&text, "%s%s=%s/", text.len ? " " : "", g->key, g->how.outer);
        if (g->how.period)
            mx_text_add(&text, "%s*%d", noted_place(g->how.place, g->how.runs), g->how.period);
        if (g->how.first) mx_text_add(&text, "+%d", g->how.first);
    }
    return text.data;
}

MxStacking ckpt_stacking(const CkptGroup *group, const MxRestack *options, const char *note,
                         const MxH5Array *arrays, int n, const char **evidence) {
    MxStacking flat = {.outer = group->name}, how = flat, noted;
    const MxFamily *said = options->decoder_block ? mx_family_find(options->decoder_block) : NULL;
    const MxFamily *marked;
    *evidence = "nothing says that they take turns";
    if (strcmp(group->name, "layers")) return flat; /* only these take turns */
    if (options->decoder_block) {
        if (said) how = mx_family_stacking(said, said->period);
        *evidence = "decoder block";
    } else if (read_note(note, group, &noted)) {
        how = noted;
        *evidence = "noted in the file";
    } else if ((marked = marked_family(arrays, n))) {
        how = mx_family_stacking(marked, marked->period);
        *evidence = marked->decoder_block;
    }
    if (!options->cycle) return how;
    *evidence = "layer cycle";
    if (!how.place) how = (MxStacking){.outer = "layers", .place = MX_STACK_PLACE};
    how.period = options->cycle;
    return how;
}

/* ---- shapes */

MxShape ckpt_stacked_shape(MxShape leaf, int count, int scan_axis, int *scan_dim) {
    MxShape shape = leaf;
    MX_ASSERT(leaf.rank < MX_MAX_RANK);
    *scan_dim = scan_axis < shape.rank ? scan_axis : shape.rank;
    for (int i = shape.rank; i > *scan_dim; i--) shape.dim[i] = shape.dim[i - 1];
    shape.dim[*scan_dim] = count;
    shape.rank++;
    return shape;
}

MxShape ckpt_shape_of_stack(MxShape leaf, const MxStack *stack, int scan_axis, int *scan_dim) {
    MxShape shape = ckpt_stacked_shape(leaf, stack->count, scan_axis, scan_dim);
    if (!stack->inner) return shape;
    MX_ASSERT(shape.rank < MX_MAX_RANK);
    for (int i = shape.rank++; i > *scan_dim; i--) shape.dim[i] = shape.dim[i - 1];
    shape.dim[*scan_dim] = stack->count / stack->inner;
    shape.dim[*scan_dim + 1] = stack->inner;
    return shape;
}

MxBox ckpt_box_in_stack(MxBox box, const MxStack *stack, int scan_dim, int index) {
    if (!stack->inner) return mx_box_insert(box, scan_dim, index, 1);
    box = mx_box_insert(box, scan_dim, index / stack->inner, 1);
    return mx_box_insert(box, scan_dim + 1, index % stack->inner, 1);
}

MxBox ckpt_box_of_stack(MxBox box, const MxStack *stack, int scan_dim) {
    if (!stack->inner) return mx_box_insert(box, scan_dim, 0, stack->count);
    box = mx_box_insert(box, scan_dim, 0, stack->count / stack->inner);
    return mx_box_insert(box, scan_dim + 1, 0, stack->inner);
}

int ckpt_scan_dim(const CkptRow *row, MxShape stacked, int scan_axis) {
    int axis = row && row->is_random ? 0 : scan_axis, last = stacked.rank - 1;
    return axis < last ? axis : last;
}
