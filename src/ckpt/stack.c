/* stack.c — how families of decoders name their layers, one by one and stacked. A layer's own name
 * is "layers_7". Stacked it is one slice of "layers/…" (flat), or, where layers take turns (local
 * and global attention, dense and sparse), slice 7 / cycle of "layers/layers_<7 % cycle>/…"
 * (block); layers after the last whole cycle stay alone in "layers_remainder". Source: MaxText
 * layers/nnx_decoders.py @e591f30c, read off its trees. */
#include <mx/ckpt.h>

#include "internal.h"

#include <stdlib.h>

static const char rest_name[] = "layers_remainder";

/* Names of stacks, and of one layer of theirs. */
static const struct {
    const char *outer, *layer;
} stacks[] = {
    {"layers", "layers"},
    {"dense_layers", "dense_layers"},
    {"moe_layers", "moe_layers"},
    {"scanned_blocks", "layers"},
};

/* Names of a place in a block. */
static const char *const inners[] = {"layers_", "layer_"};

/* Families whose layers take turns. `mark` is part of a path that no other family has. */
static const struct {
    const char *decoder_block, *mark;
    CkptStacking how;
} families[] = {
    {"gemma3", "/post_ffw_norm/scale", {"layers", "layers_", 6}},
    {"gpt_oss", "/GptOssAttention/", {"layers", "layers_", 2}},
    {"llama4", "/Llama4MoEBlock_0/", {"layers", "layers_", 4}},
    {"olmo3", "/post_mlp_layer_norm/", {"layers", "layers_", 4}},
    {"qwen3_next", "/in_proj_qkvz/", {"layers", "layer_", 4}},
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

/* The same after one of the names of places. */
static int number_of_place(const char *segment, const char **inner, const char **rest) {
    for (int i = 0; i < MX_COUNT(inners); i++) {
        int number = number_after(segment, *inner = inners[i], rest);
        if (number >= 0) return number;
    }
    *inner = NULL;
    return -1;
}

static bool is_segment(const char *segment, const char *name, const char **rest) {
    size_t n = strlen(name);
    if (strncmp(segment, name, n) || segment[n] != '/') return false;
    *rest = segment + n + 1;
    return true;
}

/* Looks at the path from a segment on. */
static bool spot_at(const char *segment, CkptSpot *out) {
    if (is_segment(segment, rest_name, &out->tail)) {
        out->number = number_of_place(out->tail, &out->inner, &out->tail);
        if (out->number < 0) return false;
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
        else if ((out->number = number_of_place(out->tail, &out->inner, &out->tail)) >= 0)
            out->where = CKPT_BLOCK;
        else
            out->where = CKPT_FLAT;
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

static const CkptStacking *family(const char *decoder_block) {
    for (int i = 0; i < MX_COUNT(families); i++)
        if (!strcmp(decoder_block, families[i].decoder_block)) return &families[i].how;
    return NULL;
}

/* The family one of whose own names occurs, or -1. */
static int marked_family(const MxH5Array *arrays, int n) {
    for (int f = 0; f < MX_COUNT(families); f++)
        for (int i = 0; i < n; i++)
            if (strstr(arrays[i].path, families[f].mark)) return f;
    return -1;
}

/* One word of a note behind its "=": "layers/" or "scanned_blocks/layers_*6". */
static bool read_stacking(const char *word, CkptStacking *out) {
    const char *rest = NULL;
    int i = 0;
    while (i < MX_COUNT(stacks) && !is_segment(word, stacks[i].outer, &rest)) i++;
    if (i == MX_COUNT(stacks)) return false;
    *out = (CkptStacking){.outer = stacks[i].outer};
    if (!*rest || *rest == ' ') return true;
    for (int k = 0; k < MX_COUNT(inners); k++) {
        size_t len = strlen(inners[k]);
        if (strncmp(rest, inners[k], len) || rest[len] != '*') continue;
        long cycle = strtol(rest + len + 1, NULL, 10);
        out->inner = inners[k];
        out->cycle = (int)cycle;
        return cycle >= 1 && cycle <= CKPT_MAX_CYCLE;
    }
    return false;
}

static bool read_note(const char *note, const CkptGroup *group, CkptStacking *out) {
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
        if (g->how.cycle) mx_text_add(&text, "%s*%d", g->how.inner, g->how.cycle);
    }
    return text.data;
}

CkptStacking ckpt_stacking(const CkptGroup *group, const MxRestack *options, const char *note,
                           const MxH5Array *arrays, int n, const char **evidence) {
    CkptStacking flat = {.outer = group->name}, how = flat, noted;
    const CkptStacking *row = options->decoder_block ? family(options->decoder_block) : NULL;
    int marked;
    *evidence = "nothing says that they take turns";
    if (strcmp(group->name, "layers")) return flat; /* only these take turns */
    if (options->decoder_block) {
        if (row) how = *row;
        *evidence = "decoder block";
    } else if (read_note(note, group, &noted)) {
        how = noted;
        *evidence = "noted in the file";
    } else if ((marked = marked_family(arrays, n)) >= 0) {
        how = families[marked].how;
        *evidence = families[marked].decoder_block;
    }
    if (!options->cycle) return how;
    *evidence = "layer cycle";
    if (!how.inner) how = (CkptStacking){"layers", inners[0], 0};
    how.cycle = options->cycle;
    return how;
}

MxStack ckpt_stack_of(MxArena *arena, const char *prefix, const CkptGroup *group, CkptStacking how,
                      int layer, const char *tail) {
    if (!how.cycle)
        return (MxStack){.path = mx_arena_printf(arena, "%s%s/%s", prefix, how.outer, tail),
                         .axis = group->name,
                         .index = layer,
                         .count = group->n_layers};
    int n_blocks = group->n_layers / how.cycle, rest = layer - n_blocks * how.cycle;
    if (rest >= 0)
        return (MxStack){.path = mx_arena_printf(arena, "%s%s/%s%d/%s", prefix, rest_name,
                                                 how.inner, rest, tail)};
    return (MxStack){.path = mx_arena_printf(arena, "%s%s/%s%d/%s", prefix, how.outer, how.inner,
                                             layer % how.cycle, tail),
                     .axis = group->name,
                     .index = layer / how.cycle,
                     .count = n_blocks};
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

int ckpt_scan_dim(const CkptRow *row, MxShape stacked, int scan_axis) {
    int axis = row && row->is_random ? 0 : scan_axis, last = stacked.rank - 1;
    return axis < last ? axis : last;
}
