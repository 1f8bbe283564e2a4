/* convert.c — a checkpoint in another form. Each array of the result is made in contiguous pieces
 * of a few MiB, whatever its size: a piece is gathered from the layers' parts of the source,
 * written, and at the end read back and compared with a newly gathered one. */
#include "hf.h"
#include "conversion.h"

#include <math.h>

enum { MAX_MISMATCHES_SHOWN = 20 };

typedef struct Converter {
    MxArena arena;
    CkptConversion conversion;
    const MxConvert *how;
    MxH5 *file; /* the result */
    void *tile, *part, *again;
    CkptDelta *deltas; /* [pieces of the target at hand] what is merged into them, or NULL */
    CkptDrift drift;
    const char *base_note;
    int64_t done_bytes, all_bytes;
    double start_s;
    int n_mismatches;
    MxError *err;
} Converter;

/* ---- gathering */

/* Copies a box without its stacked dim into slice `at` of a tile that has it, or the whole. */
static void scatter(const MxBox *box, int dim, int64_t at, size_t item, const void *from,
                    void *to) {
    int64_t outer = 1, inner = 1;
    for (int i = 0; i < dim; i++) outer *= box->count[i];
    for (int i = dim + 1; i < box->rank; i++) inner *= box->count[i];
    size_t run = (size_t)inner * item, step = run * (size_t)box->count[dim];
    const char *source = from;
    char *target = (char *)to + (size_t)at * run;
    for (int64_t i = 0; i < outer; i++)
        memcpy(target + (size_t)i * step, source + (size_t)i * run, run);
}

static MxBox without_dim(MxBox box, int dim) {
    for (int i = dim; i + 1 < box.rank; i++) {
        box.start[i] = box.start[i + 1];
        box.count[i] = box.count[i + 1];
    }
    box.rank--;
    return box;
}

/* Merges adapters into a box of a weight, run by run. */
static void merge(const CkptDelta *delta, MxShape shape, const MxBox *box, float *x,
                  CkptDrift *drift) {
    CkptTiles runs; /* of the box: rows of its last dim */
    MxShape inside = {.rank = box->rank};
    for (int i = 0; i < box->rank; i++) inside.dim[i] = box->count[i];
    int64_t length = box->count[box->rank - 1];
    if (!ckpt_tiles_start(&runs, inside, length)) return;
    do {
        int64_t first = 0;
        for (int i = 0; i < box->rank; i++)
            first = first * shape.dim[i] + box->start[i] + runs.box.start[i];
        ckpt_delta_merge(delta, first, length, x, drift);
        x += length;
    } while (ckpt_tiles_next(&runs));
}

/* Part of the leaf at a place of a target. */
static bool read_part(Converter *c, const CkptTarget *t, int64_t at, const MxBox *box, void *out) {
    const CkptConversion *conversion = &c->conversion;
    int leaf = t->pieces[at];
    if (!ckpt_read_piece(&conversion->from, &conversion->pieces[leaf], *box, t->dtype, out, c->err))
        return false;
    const CkptDelta *delta = c->deltas ? &c->deltas[at] : NULL;
    if (delta && delta->a) merge(delta, conversion->leaves.leaves[leaf].shape, box, out, &c->drift);
    return !delta || !delta->whole || ckpt_delta_replace(delta, box, out, &c->drift, c->err);
}

/* Layers of a box, also those inside of blocks: a tile has them one behind the other. */
static bool gather(Converter *c, const CkptTarget *t, const MxBox *box, void *out) {
    int dim = t->scan_dim;
    if (dim < 0) return read_part(c, t, 0, box, out);
    MxBox flat = t->inner ? without_dim(*box, dim + 1) : *box, part = without_dim(flat, dim);
    int64_t n_inner = t->inner ? box->count[dim + 1] : 1, n = box->count[dim] * n_inner;
    int64_t first_inner = t->inner ? box->start[dim + 1] : 0, each = t->inner ? t->inner : 1;
    flat.count[dim] = n;
    for (int64_t i = 0; i < n; i++) {
        void *into = n == 1 ? out : c->part;
        int64_t at = (box->start[dim] + i / n_inner) * each + first_inner + i % n_inner;
        if (!read_part(c, t, at, &part, into)) return false;
        if (n > 1) scatter(&flat, dim, i, mx_dtype_bytes(t->dtype), c->part, out);
    }
    return true;
}

/* The adapters of a target, read once for all of its pieces. */
static bool load_deltas(Converter *c, const CkptTarget *t, MxArena *arena) {
    const CkptConversion *conversion = &c->conversion;
    c->deltas = conversion->merges ? mx_new_n(arena, CkptDelta, t->n) : NULL;
    for (int i = 0; c->deltas && i < t->n; i++) {
        int leaf = t->pieces[i], adapter = conversion->merges[leaf];
        const MxLeaf *weight = &conversion->leaves.leaves[leaf];
        int64_t count = mx_shape_count(weight->shape);
        if (adapter < 0) continue;
        if (!ckpt_lora_load(arena, &conversion->lora, adapter, count, c->how->facts.alpha,
                            &c->deltas[i], c->err) ||
            !ckpt_lora_measure(arena, &conversion->from, &conversion->pieces[leaf], weight,
                               &c->deltas[i], c->err))
            return false;
    }
    return true;
}

/* ---- writing and reading back */

/* One target, written or verified. */
typedef bool Carry(Converter *c, const CkptTarget *t);

static bool carry_all(Converter *c, Carry *carry) {
    bool ok = true;
    c->drift = (CkptDrift){0};
    for (int i = 0; ok && i < c->conversion.n; i++) {
        MxArena arena = {.name = "adapters"};
        const CkptTarget *t = &c->conversion.targets[i];
        ok = load_deltas(c, t, &arena) && carry(c, t);
        for (int k = 0; ok && c->deltas && k < t->n; k++)
            c->drift.n_merged += c->deltas[k].a || c->deltas[k].whole;
        mx_arena_release(&arena);
        c->deltas = NULL;
    }
    return ok;
}

static void show_progress(Converter *c, const CkptTarget *t, const MxBox *box, const char *what) {
    c->done_bytes += mx_box_count(box) * (int64_t)mx_dtype_bytes(t->dtype);
    double fraction = c->all_bytes ? (double)c->done_bytes / (double)c->all_bytes : 1;
    double spent_s = mx_clock_s() - c->start_s;
    mx_progress(fraction, fraction > 0 ? spent_s / fraction - spent_s : -1, "%s %.90s", what,
                t->path);
}

static bool copy_text(Converter *c, const CkptTarget *t) {
    const CkptConversion *conversion = &c->conversion;
    const MxH5Array *array =
        conversion->from.survey.entries[conversion->pieces[t->pieces[0]].entry].array;
    const char *path = mx_path_join(&c->arena, conversion->from.ref.group, array->path);
    char *text;
    return mx_h5_read_text(&c->arena, conversion->from.file, path, &text, c->err) &&
           mx_h5_write_text(c->file, t->path, text, c->err);
}

/* Tensors are read whole, so that all of one layer's is written before the next is read. */
static bool start_tiles(const Converter *c, const CkptTarget *t, CkptTiles *tiles) {
    if (t->quant.type)
        return ckpt_tiles_start_blocks(tiles, t->shape, t->scan_dim, t->quant, CKPT_TILE_ELEMENTS);
    int outer = c->conversion.from.hf ? t->scan_dim : -1;
    return ckpt_tiles_start_by(tiles, t->shape, outer, CKPT_TILE_ELEMENTS);
}

/* ---- in few bits: codes and scales of a tile lie side by side */

typedef struct Coded {
    uint8_t *codes;
    float *scales;
    size_t bytes; /* of both, with what is between them */
} Coded;

/* Where they are in memory that has room for a tile. */
static Coded coded_in(const CkptTarget *t, const MxBox *box, void *room) {
    MxShape shape = ckpt_box_shape(box);
    size_t codes = (size_t)mx_shape_count(mx_quant_codes(t->quant, shape));
    size_t scales = (size_t)mx_shape_count(mx_quant_scales(t->quant, shape)) * sizeof(float);
    codes = (codes + sizeof(float) - 1) / sizeof(float) * sizeof(float);
    return (Coded){
        .codes = room, .scales = (void *)((char *)room + codes), .bytes = codes + scales};
}

/* A box of whole blocks, one layer's, in c->part. */
static bool encode(Converter *c, const CkptTarget *t, const MxBox *box, Coded *out) {
    int64_t layer = t->scan_dim < 0 ? 0 : box->start[t->scan_dim] * (t->inner ? t->inner : 1);
    if (!gather(c, t, box, c->tile)) return false;
    *out = coded_in(t, box, c->part);
    memset(c->part, 0, out->bytes);
    return mx_quantize(t->quant, ckpt_box_shape(box), c->tile, out->codes, out->scales) ||
           mx_fail(c->err, MX_EXIT_BAD_INPUT, (MxWhere){.file = c->conversion.from.ref.ref},
                   "\"%s\" holds what is no number or infinite: %s has no code for it",
                   c->conversion.leaves.leaves[t->pieces[layer]].path,
                   mx_qtype_name(t->quant.type));
}

static bool write_coded(Converter *c, const CkptTarget *t) {
    CkptTiles tiles;
    Coded made;
    if (!ckpt_make_codes(c->file, t->path, t->quant, t->shape, c->err)) return false;
    if (!start_tiles(c, t, &tiles)) return true;
    do {
        if (!encode(c, t, &tiles.box, &made) ||
            !ckpt_write_codes(c->file, t->path, t->quant, tiles.box, made.codes, made.scales,
                              c->err))
            return false;
        show_progress(c, t, &tiles.box, "writing");
    } while (ckpt_tiles_next(&tiles));
    return true;
}

/* Whether a tile reads back as it was written. */
static bool verify_tile(Converter *c, const CkptTarget *t, const MxBox *box, bool *is_same) {
    if (!t->quant.type) {
        size_t bytes = (size_t)mx_box_count(box) * mx_dtype_bytes(t->dtype);
        if (!gather(c, t, box, c->tile) ||
            !mx_h5_read_box(c->file, t->path, t->dtype, *box, c->again, c->err))
            return false;
        *is_same = *is_same && !memcmp(c->tile, c->again, bytes);
        return true;
    }
    Coded made, found = coded_in(t, box, c->again);
    MxQuant quant = t->quant;
    CkptFile file = {.ref = {.path = mx_h5_path(c->file), .group = ""},
                     .file = c->file,
                     .arrays = &(MxH5Array){.path = t->path},
                     .quants = &quant,
                     .n = 1};
    memset(c->again, 0, found.bytes);
    if (!encode(c, t, box, &made) ||
        !ckpt_read_codes(&file, 0, *box, found.codes, found.scales, c->err))
        return false;
    *is_same = *is_same && !memcmp(made.codes, found.codes, made.bytes);
    return true;
}

static bool write_target(Converter *c, const CkptTarget *t) {
    if (t->is_text) return copy_text(c, t);
    if (t->quant.type) return write_coded(c, t);
    CkptTiles tiles;
    if (!mx_h5_make(c->file, t->path, t->dtype, t->shape, c->err)) return false;
    if (!start_tiles(c, t, &tiles)) return true;
    do {
        if (!gather(c, t, &tiles.box, c->tile) ||
            !mx_h5_write_box(c->file, t->path, tiles.box, c->tile, c->err))
            return false;
        show_progress(c, t, &tiles.box, "writing");
    } while (ckpt_tiles_next(&tiles));
    return true;
}

/* False only on errors; arrays that differ are counted and told. */
static bool verify_target(Converter *c, const CkptTarget *t) {
    CkptTiles tiles;
    if (t->is_text || !start_tiles(c, t, &tiles)) return true;
    bool is_same = true;
    do {
        if (!verify_tile(c, t, &tiles.box, &is_same)) return false;
        show_progress(c, t, &tiles.box, "verifying");
    } while (ckpt_tiles_next(&tiles));
    if (!is_same && ++c->n_mismatches <= MAX_MISMATCHES_SHOWN)
        mx_fail(c->err, MX_EXIT_IO, (MxWhere){.file = mx_h5_path(c->file)},
                "\"%s\" does not read back as it was written", t->path);
    return true;
}

static bool verify(Converter *c, const char *path) {
    if (!mx_h5_open(&c->arena, path, &c->file, c->err)) return false;
    bool ok = carry_all(c, verify_target);
    if (c->n_mismatches > MAX_MISMATCHES_SHOWN)
        mx_note(c->err, "and %d more", c->n_mismatches - MAX_MISMATCHES_SHOWN);
    return mx_h5_close(c->file, c->err) && ok && !c->n_mismatches;
}

/* Of weights with adapters merged into them what the adapters know, which were trained last. */
static bool note_tokenizer(Converter *c) {
    const CkptFile *sources[] = {
        c->conversion.merges ? &c->conversion.lora.file : &c->conversion.from, &c->conversion.from};
    MxCkptTokenizer tokenizer = {0};
    for (int i = 0; i < MX_COUNT(sources) && !tokenizer.type; i++)
        if (!ckpt_tokenizer(&c->arena, sources[i], &tokenizer, c->err)) return false;
    return ckpt_note_tokenizer(&c->arena, c->file, &tokenizer, c->err);
}

static int64_t target_bytes(const CkptTarget *t) {
    return mx_shape_count(t->shape) * (int64_t)mx_dtype_bytes(t->dtype);
}

static bool convert(Converter *c, const char *path) {
    const size_t tile_bytes = (size_t)CKPT_TILE_ELEMENTS * sizeof(int64_t);
    int64_t bytes = 0;
    for (int i = 0; i < c->conversion.n; i++) bytes += target_bytes(&c->conversion.targets[i]);
    c->all_bytes = c->how->verifies ? 2 * bytes : bytes;
    c->tile = mx_arena_alloc(&c->arena, tile_bytes);
    c->part = mx_arena_alloc(&c->arena, tile_bytes);
    c->again = mx_arena_alloc(&c->arena, tile_bytes);
    bool ok = mx_h5_create(&c->arena, path, &c->file, c->err) &&
              ckpt_set_note(c->file, c->conversion.note, c->err) && note_tokenizer(c);
    ok = ok && carry_all(c, write_target);
    return ok && mx_h5_close(c->file, c->err) && (!c->how->verifies || verify(c, path));
}

/* ---- telling */

static void print_target(const CkptConversion *conversion, const CkptTarget *t, MxText *out) {
    const CkptPiece *piece = &conversion->pieces[t->pieces[0]];
    const MxH5Array *array = conversion->from.survey.entries[piece->entry].array;
    const MxTensor *tensor =
        conversion->from.hf ? conversion->from.hf->links[piece->entry].tensor : NULL;
    MxArena *arena = out->arena;
    mx_text_add(out, "%s %s", tensor ? tensor->name : array->path,
                mx_shape_text(arena, tensor ? tensor->shape : array->shape));
    if (t->n > 1) mx_text_add(out, " and %d more", t->n - 1);
    mx_text_add(out, " -> %s %s  ", t->path, mx_shape_text(arena, t->shape));
    if (piece->scan_dim >= 0) mx_text_add(out, "slice %d of dim %d", piece->index, piece->scan_dim);
    if (piece->scan_dim >= 0 && t->scan_dim >= 0) mx_text_add(out, " …, ");
    if (t->scan_dim >= 0) mx_text_add(out, "stack %d at dim %d", t->n, t->scan_dim);
    if (piece->scan_dim < 0 && t->scan_dim < 0) mx_text_add(out, "copy");
    MxDtype dtype = tensor ? tensor->dtype : array->dtype;
    if (t->quant.type)
        mx_text_add(out, ", %s to %s in blocks of %lld", mx_dtype_name(dtype),
                    mx_qtype_name(t->quant.type), (long long)t->quant.tile);
    else if (t->dtype != dtype && !t->is_text)
        mx_text_add(out, ", %s to %s", mx_dtype_name(dtype), mx_dtype_name(t->dtype));
    if (conversion->merges) {
        int n_merged = 0;
        for (int i = 0; i < t->n; i++) n_merged += conversion->merges[t->pieces[i]] >= 0;
        if (n_merged) mx_text_add(out, ", %d adapters merged", n_merged);
    }
    mx_text_add(out, "\n");
}

static void print_notes(const CkptConversion *conversion, MxText *out) {
    MxArena *arena = out->arena;
    mx_text_add(out, "source: %s\n", ckpt_source_text(arena, &conversion->from));
    mx_text_add(out, "result: %s names, layers %s, %d arrays\n",
                conversion->form.is_linen ? "linen" : "nnx",
                conversion->form.is_scanned
                    ? mx_arena_printf(arena, "stacked at dim %d", conversion->form.scan_axis)
                    : "one by one",
                conversion->n);
    if (conversion->evidence && conversion->cycle)
        mx_text_add(out, "layers take turns, %d in a block (%s)\n", conversion->cycle,
                    conversion->evidence);
    if (conversion->n_reference_left)
        mx_text_add(out,
                    "left out: %d arrays of the reference model, which Linen checkpoints do "
                    "not hold\n",
                    conversion->n_reference_left);
    if (conversion->n_random_left)
        mx_text_add(out, "left out: %d arrays of random numbers that belong to no layer\n",
                    conversion->n_random_left);
    if (conversion->merges && conversion->lora.n_whole)
        mx_text_add(out, "replaced: %d weights by what was trained in their place\n",
                    conversion->lora.n_whole);
    if (conversion->merges)
        mx_text_add(out, "merged: %d adapters of \"%s\" into the weights of \"%s\"\n",
                    conversion->lora.n, conversion->lora.file.ref.ref, conversion->from.ref.ref);
}

/* What came of a merge. */
static void print_drift(const Converter *c, MxText *out) {
    mx_text_add(out, "%s\n", c->base_note);
    mx_text_add(out,
                "drift: %d weights changed by %.6g in all (L2 norm), of which rounding to float32 "
                "took away %.3g\n",
                c->drift.n_merged, sqrt(c->drift.delta), sqrt(c->drift.lost));
}

static bool check_base(Converter *c) {
    const CkptConversion *conversion = &c->conversion;
    return !conversion->merges ||
           ckpt_lora_check_base(&conversion->lora, &conversion->from, &conversion->leaves,
                                conversion->pieces, c->how->facts.weights, &c->base_note, c->err);
}

bool mx_ckpt_convert_show(const MxCkptRef *from, const MxConvert *how, MxText *out, MxError *err) {
    CkptFile file;
    CkptConversion conversion;
    bool ok = ckpt_open(out->arena, from, &file, err) &&
              ckpt_conversion_make(out->arena, &file, how, &conversion, err);
    for (int i = 0; ok && i < conversion.n; i++)
        print_target(&conversion, &conversion.targets[i], out);
    if (ok) print_notes(&conversion, out);
    return ok;
}

bool mx_ckpt_convert(const MxCkptRef *from, const MxConvert *how, const char *path, MxForm *form,
                     MxText *notes, MxError *err) {
    Converter c = {.arena = {.name = "convert"}, .how = how, .err = err, .start_s = mx_clock_s()};
    CkptFile file;
    bool ok = ckpt_open(&c.arena, from, &file, err) &&
              ckpt_conversion_make(&c.arena, &file, how, &c.conversion, err) && check_base(&c) &&
              convert(&c, path);
    mx_progress_end();
    if (ok) print_notes(&c.conversion, notes);
    if (ok && c.conversion.merges) print_drift(&c, notes);
    *form = c.conversion.form;
    mx_arena_release(&c.arena);
    return ok;
}
