/* read.c — reads a tree from a file whose form is detected: the file's arrays are mapped to the
 * state's names, then every leaf is looked up by its own name and by that of its stack. All
 * requested data is read together at the end. */
#include <mx/ckpt.h>

#include "hf.h"

#include <math.h>
#include <stdlib.h>

/* What a leaf wants of an array. */
typedef struct Want {
    int array;
    const MxLeaf *leaf;
    MxH5Want h5; /* out is NULL: read elsewhere first, then given to who keeps the leaf */
} Want;

typedef struct Reader {
    MxArena arena;
    const CkptFile *source;
    const char *section;
    MxTree *tree;
    CkptSurvey survey;
    int scan_axis;
    bool *is_used; /* [array] */
    Want *wants;
    int n_wants, n_passed_over;
    MxError *err;
} Reader;

static MxWhere in_file(const Reader *r) {
    return (MxWhere){.file = r->source->ref.path};
}

/* The entry of a leaf: its own, else its stack's; NULL if there is neither. */
static CkptEntry *find_entry(const Reader *r, const MxLeaf *leaf, bool *is_stack) {
    int64_t i = mx_map_get(&r->survey.by_path, leaf->path, -1);
    *is_stack = i < 0 && leaf->stack.count;
    if (i < 0 && leaf->stack.path) i = mx_map_get(&r->survey.by_path, leaf->stack.path, -1);
    return i < 0 ? NULL : &r->survey.entries[i];
}

static bool in_section(const Reader *r, const MxLeaf *leaf) {
    return mx_text_has_prefix(leaf->path, r->section);
}

/* The dim of the layers that agrees with most stacks, the config's before others. */
static int choose_axis(const Reader *r, int said) {
    const int axes[] = {said, 1, 0, 2, 3, 4, 5};
    int best = said, best_count = 0;
    for (int k = 0; k < MX_COUNT(axes); k++) {
        int count = 0;
        for (int i = 0; i < r->tree->n; i++) {
            const MxLeaf *leaf = &r->tree->leaves[i];
            bool is_stack;
            int dim;
            const CkptEntry *entry = in_section(r, leaf) ? find_entry(r, leaf, &is_stack) : NULL;
            count += entry && is_stack &&
                     mx_shape_equal(entry->array->shape,
                                    ckpt_shape_of_stack(leaf->shape, &leaf->stack, axes[k], &dim));
        }
        if (count > best_count) {
            best = axes[k];
            best_count = count;
        }
    }
    return best;
}

/* A path of the state as this file would spell it. */
static const char *as_in_file(Reader *r, const MxLeaf *leaf) {
    const CkptRow *row = ckpt_row_of(leaf->path);
    if (row && row->is_param)
        return mx_arena_printf(&r->arena, "%s%s", r->survey.model_prefix,
                               leaf->path + strlen(row->nnx));
    MxLeaf alone = {.path = leaf->path};
    return mx_ckpt_place(&r->arena, (MxForm){.is_linen = r->survey.is_linen}, &alone).path;
}

/* What a leaf wants of the array that it is, or is a layer of. */
static Want want_of(Reader *r, const CkptEntry *entry, const MxLeaf *leaf, int scan_dim) {
    MxBox box = mx_leaf_part(leaf);
    if (scan_dim >= 0) box = ckpt_box_in_stack(box, &leaf->stack, scan_dim, leaf->stack.index);
    const char *path = mx_path_join(&r->arena, r->source->ref.group, entry->array->path);
    return (Want){.array = (int)(entry - r->survey.entries),
                  .leaf = leaf,
                  .h5 = {.path = path, .dtype = leaf->dtype, .box = box, .out = mx_leaf_map(leaf)}};
}

/* Weights to start from may have another head, which nobody reads, or none. */
static bool starts_anew(Reader *r, const MxLeaf *leaf) {
    bool ignored;
    if (!leaf->instead_of || !*r->section) return false;
    const MxLeaf other = {.path = mx_arena_printf(&r->arena, "%s%s", r->section, leaf->instead_of)};
    CkptEntry *entry = find_entry(r, &other, &ignored);
    if (entry) r->is_used[entry - r->survey.entries] = true;
    mx_log("\"%s\" starts anew: %s has none", leaf->path, r->source->ref.path);
    return true;
}

/* What is as well without what a file has of it. */
static bool is_passed_over(Reader *r, const MxLeaf *leaf, const CkptEntry *entry) {
    if (!leaf->may_start_anew || (entry && mx_shape_equal(entry->array->shape, leaf->shape)))
        return false;
    if (!r->n_passed_over++)
        mx_log("\"%s\" starts anew, and others like it: %s has %s", leaf->path, r->source->ref.path,
               entry ? "another shape" : "none");
    return true;
}

static void add_leaf(Reader *r, const MxLeaf *leaf) {
    bool is_stack;
    CkptEntry *entry = find_entry(r, leaf, &is_stack);
    if (mx_leaf_has_values(leaf) && is_passed_over(r, leaf, entry)) return;
    if (entry) r->is_used[entry - r->survey.entries] = true;
    /* Linen files never hold the reference model. */
    bool is_absent =
        !entry && ((r->survey.is_linen && leaf->kind == MX_KIND_REFERENCE) || starts_anew(r, leaf));
    if (!mx_leaf_has_values(leaf) || is_absent) return;
    if (!entry) {
        mx_fail(r->err, MX_EXIT_BAD_INPUT, in_file(r), "\"%s\" is missing; the model wants %s %s",
                as_in_file(r, leaf), mx_dtype_name(leaf->dtype),
                mx_shape_text(&r->arena, leaf->shape));
        return;
    }
    MxShape want = leaf->shape;
    int dim = -1;
    if (is_stack) want = ckpt_shape_of_stack(leaf->shape, &leaf->stack, r->scan_axis, &dim);
    bool is_integer = mx_dtype_is_float(leaf->dtype) && !mx_dtype_is_float(entry->array->dtype);
    bool is_first = !is_stack || !leaf->stack.index; /* once a stack is enough */
    if (is_integer && is_first) ckpt_refuse_integers(r->source->ref.path, entry->array, r->err);
    if (mx_shape_equal(entry->array->shape, want))
        r->wants[r->n_wants++] = want_of(r, entry, leaf, dim);
    else if (is_first)
        mx_fail(r->err, MX_EXIT_BAD_INPUT, in_file(r), "\"%s\" has shape %s; the model wants %s",
                entry->array->path, mx_shape_text(&r->arena, entry->array->shape),
                mx_shape_text(&r->arena, want));
}

/* Arrays of the section that no leaf wanted. Those without elements say nothing: MaxText has them
 * for no shared experts. */
static void report_extra(Reader *r) {
    for (int i = 0; i < r->survey.n; i++) {
        const CkptEntry *e = &r->survey.entries[i];
        bool is_empty = !mx_shape_count(e->array->shape);
        if (r->is_used[i] || is_empty || !e->row || e->row->is_optional ||
            !mx_text_has_prefix(e->path, r->section))
            continue;
        mx_fail(r->err, MX_EXIT_BAD_INPUT, in_file(r), "\"%s\" %s is not in the model",
                e->array->path, mx_shape_text(&r->arena, e->array->shape));
    }
}

/* Layers of one stack next to each other. */
static int by_path(const void *a, const void *b) {
    return strcmp(((const Want *)a)->h5.path, ((const Want *)b)->h5.path);
}

enum { STAGED_BYTES = 256 << 20 }; /* read at a time of what is kept elsewhere, or one leaf */

static MxQuant quant_of(const Reader *r, const Want *want) {
    return ckpt_quant(r->source, want->array);
}

/* What the library does not read together with others. */
static bool is_apart(const Reader *r, const Want *want) {
    return r->source->hf || quant_of(r, want).type;
}

/* Whether who keeps the leaf takes the codes that the file has. */
static bool takes_codes(const Reader *r, const Want *want) {
    const MxLeaf *leaf = want->leaf;
    if (!leaf->keeper || !leaf->keeper->write_codes) return false;
    MxQuant own = leaf->quant, theirs = quant_of(r, want);
    bool is_stacked = want->h5.box.rank > leaf->shape.rank;
    int dim = -1;
    if (is_stacked) ckpt_shape_of_stack(leaf->shape, &leaf->stack, r->scan_axis, &dim);
    if (theirs.type) theirs = ckpt_quant_of_layer(theirs, dim);
    return own.type && own.type == theirs.type && own.dim == theirs.dim && own.tile == theirs.tile;
}

static bool pass_codes(Reader *r, const Want *want) {
    MxArena arena = {.name = "codes"};
    MxQuant quant = quant_of(r, want);
    MxShape shape = ckpt_box_shape(&want->h5.box);
    uint8_t *codes = mx_new_n(&arena, uint8_t, mx_shape_count(mx_quant_codes(quant, shape)) + 1);
    float *scales = mx_new_n(&arena, float, mx_shape_count(mx_quant_scales(quant, shape)) + 1);
    bool ok = ckpt_read_codes(r->source, want->array, want->h5.box, codes, scales, r->err);
    if (ok)
        want->leaf->keeper->write_codes(want->leaf->keeper->data, want->leaf->array, codes, scales);
    mx_arena_release(&arena);
    return ok;
}

static bool read_apart(Reader *r, const Want *want, const MxH5Want *to) {
    if (r->source->hf)
        return ckpt_hf_read(r->source->hf, want->array, &to->box, to->dtype, to->out, r->err);
    return ckpt_read_coded(r->source, want->array, to->box, to->dtype, to->out, r->err);
}

/* A table of whole numbers below a limit (mx/tree.h, MX_INIT_CYCLE) holds nothing else. */
static bool are_numbers(Reader *r, const Want *want, const float *x) {
    double limit = want->leaf->init.std;
    int64_t n = mx_box_count(&want->h5.box);
    if (want->leaf->init.kind != MX_INIT_CYCLE || want->leaf->dtype != MX_F32) return true;
    for (int64_t i = 0; i < n; i++)
        if (!(x[i] >= 0 && (double)x[i] < limit && x[i] == floorf(x[i])))
            return mx_fail(r->err, MX_EXIT_BAD_INPUT, in_file(r),
                           "\"%s\" has %g at %lld; wants whole numbers below %g",
                           as_in_file(r, want->leaf), (double)x[i], (long long)i, limit);
    return true;
}

/* Reads the wants from `first` on that can be read together, as values; how many. */
static int read_values(Reader *r, int first, bool *ok) {
    MxArena arena = {.name = "staging"};
    MxH5Want *boxes = mx_new_n(&arena, MxH5Want, r->n_wants);
    MxH5Want *together = mx_new_n(&arena, MxH5Want, r->n_wants);
    const Want *wants = r->wants + first;
    int n = 0, n_together = 0;
    for (size_t staged = 0, bytes; first + n < r->n_wants; n++, staged += bytes) {
        bytes = wants[n].h5.out ? 0 : mx_leaf_bytes(wants[n].leaf);
        if (n && ((bytes && staged + bytes > STAGED_BYTES) || takes_codes(r, &wants[n]))) break;
        boxes[n] = wants[n].h5;
        if (!boxes[n].out) boxes[n].out = mx_arena_alloc(&arena, bytes + 1);
    }
    for (int i = 0; i < n; i++)
        if (!is_apart(r, &wants[i])) together[n_together++] = boxes[i];
    bool is_read = !n_together || mx_h5_read_boxes(r->source->file, together, n_together, r->err);
    for (int i = 0; is_read && i < n; i++)
        is_read = !is_apart(r, &wants[i]) || read_apart(r, &wants[i], &boxes[i]);
    for (int i = 0; is_read && i < n; i++) is_read = are_numbers(r, &wants[i], boxes[i].out);
    for (int i = 0; is_read && i < n; i++)
        if (!wants[i].h5.out) mx_leaf_write(wants[i].leaf, boxes[i].out);
    *ok = *ok && is_read;
    mx_arena_release(&arena);
    return n;
}

/* Reads one want as codes, or some as values; how many. */
static int read_some(Reader *r, int first, bool *ok) {
    if (!takes_codes(r, &r->wants[first])) return read_values(r, first, ok);
    *ok = *ok && pass_codes(r, &r->wants[first]);
    return 1;
}

static bool read_wants(Reader *r) {
    bool ok = true;
    if (r->n_wants) qsort(r->wants, (size_t)r->n_wants, sizeof *r->wants, by_path);
    for (int n = 0; n < r->n_wants;) n += read_some(r, n, &ok);
    return ok;
}

bool ckpt_read_tree(const CkptFile *source, const char *section, int scan_axis, MxTree *tree,
                    MxError *err) {
    Reader r = {.arena = {.name = "ckpt read"},
                .source = source,
                .section = section,
                .tree = tree,
                .err = err};
    int failures = err->count;
    if (ckpt_survey_names(&r.arena, source->ref.path, source->arrays, source->n, &r.survey, err)) {
        r.is_used = mx_new_n(&r.arena, bool, source->n + 1);
        r.wants = mx_new_n(&r.arena, Want, tree->n + 1);
        r.scan_axis = choose_axis(&r, scan_axis);
        for (int i = 0; i < tree->n; i++)
            if (in_section(&r, &tree->leaves[i])) add_leaf(&r, &tree->leaves[i]);
        report_extra(&r);
        if (err->count == failures) read_wants(&r);
    }
    mx_arena_release(&r.arena);
    return err->count == failures;
}

bool mx_ckpt_read(MxH5 *file, const char *group, const char *section, int scan_axis, MxTree *tree,
                  MxError *err) {
    MxArena arena = {.name = "ckpt read"};
    CkptFile source = {.ref = {.path = mx_h5_path(file), .group = group}, .file = file};
    bool ok = mx_h5_list(&arena, file, group, &source.arrays, &source.n, err) &&
              ckpt_join_codes(&arena, &source, err) &&
              ckpt_read_tree(&source, section, scan_axis, tree, err);
    mx_arena_release(&arena);
    return ok;
}

bool mx_ckpt_dim(const MxCkptRef *ref, const char *path, int64_t *out, MxError *err) {
    MxArena arena = {.name = "ckpt dim"};
    MxH5 *file;
    MxH5Array *arrays;
    int n;
    *out = 0;
    bool ok = mx_h5_open(&arena, ref->path, &file, err) &&
              mx_h5_list(&arena, file, ref->group, &arrays, &n, err);
    for (int i = 0; ok && i < n; i++)
        if (!strcmp(arrays[i].path, path) && arrays[i].shape.rank) *out = arrays[i].shape.dim[0];
    mx_arena_release(&arena);
    return ok;
}

bool mx_ckpt_has_reference(const char *dir, const MxTree *state, bool *out, MxError *err) {
    MxArena arena = {.name = "ckpt load"};
    MxH5 *file;
    MxH5Array *arrays;
    CkptSurvey survey;
    int n, leaf = 0;
    while (leaf < state->n && state->leaves[leaf].kind != MX_KIND_REFERENCE) leaf++;
    *out = leaf == state->n;
    if (*out) return true;
    const char *path = mx_path_join(&arena, dir, CKPT_STATE_FILE);
    bool ok = mx_h5_open(&arena, path, &file, err) &&
              mx_h5_list(&arena, file, "", &arrays, &n, err) &&
              ckpt_survey_names(&arena, path, arrays, n, &survey, err);
    for (int i = 0; ok && i < n; i++)
        *out = *out || (survey.entries[i].row && !survey.entries[i].row->linen);
    mx_arena_release(&arena);
    return ok;
}
