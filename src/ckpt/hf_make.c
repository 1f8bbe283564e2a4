/* hf_make.c — the tensors that a checkpoint is in Hugging Face's form: the leaves, layer by layer,
 * are found in any form of checkpoint; each becomes a tensor, which is made in pieces. */
#include "hf_make.h"

#include "lora.h"

enum { TILE_BYTES = 4 << 20, WHOLE = 32 }; /* blocks of few bits are never cut */

static MxWhere in_source(const HfMaker *m) {
    return (MxWhere){.file = m->source.ref.ref};
}

/* ---- what is written */

/* Of the vector that a row's matrix is multiplied by. */
static const CkptPiece *find_folded(HfMaker *m, const HfRow *row, int i) {
    HfRow of_vector = *row;
    of_vector.ours = row->folds;
    const char *name = hf_our_name(&m->arena, &m->how->model, &of_vector, i);
    int leaf = mx_tree_find(&m->leaves, name);
    if (leaf < 0) mx_fail(m->err, MX_EXIT_BAD_INPUT, in_source(m), "\"%s\" is missing", name);
    return leaf < 0 ? NULL : &m->pieces[leaf];
}

static void add_item(HfMaker *m, const HfRow *row, int i) {
    const MxHfModel *model = &m->how->model;
    const char *theirs = hf_their_name(&m->arena, model, row, i);
    if (!theirs) {
        mx_map_set(&m->wanted, hf_our_name(&m->arena, model, row, i), i);
        return;
    }
    const MxHfEncoder *outer = model->sees ? &model->encoder->hf : NULL;
    if (outer && !hf_is_eye(row) && mx_text_has_prefix(theirs, outer->text.without))
        theirs = mx_arena_printf(&m->arena, "%s%s", outer->text.with,
                                 theirs + strlen(outer->text.without));
    HfPart *part = mx_new(&m->arena, HfPart);
    *part = (HfPart){.ours = hf_our_name(&m->arena, model, row, i), .map = hf_map(model, row, i)};
    int leaf = mx_tree_find(&m->leaves, part->ours);
    const char *want = mx_shape_text(&m->arena, part->map.ours);
    if (leaf < 0)
        mx_fail(m->err, MX_EXIT_BAD_INPUT, in_source(m), "\"%s\" is missing; the model wants %s",
                part->ours, want);
    else if (!mx_shape_equal(m->leaves.leaves[leaf].shape, part->map.ours))
        mx_fail(m->err, MX_EXIT_BAD_INPUT, in_source(m), "\"%s\" has shape %s; the model wants %s",
                part->ours, mx_shape_text(&m->arena, m->leaves.leaves[leaf].shape), want);
    else
        part->piece = m->pieces[leaf];
    if (row->folds) part->folds = find_folded(m, row, i);
    mx_map_set(&m->wanted, part->ours, i);
    int at = (int)mx_map_get(&m->by_name, theirs, m->n);
    HfItem *item = &m->items[at];
    mx_map_set(&m->by_name, theirs, at);
    m->n += at == m->n;
    MxDtype dtype = row->role == HF_IDS ? MX_I64 : m->how->dtype;
    item->tensor = (MxTensor){.name = theirs, .dtype = dtype, .shape = part->map.theirs};
    part->next = item->parts;
    item->parts = part;
}

/* Parameters that the table has no row for. */
static void check_extra(HfMaker *m) {
    for (int i = 0; i < m->leaves.n; i++) {
        const CkptRow *row = m->source.survey.entries[m->pieces[i].entry].row;
        bool is_param = row && row->is_param;
        m->n_left += !is_param;
        if (is_param && mx_map_get(&m->wanted, m->leaves.leaves[i].path, -1) < 0)
            mx_fail(m->err, MX_EXIT_BAD_INPUT, in_source(m),
                    "\"%s\" has no name in such a model of Hugging Face's",
                    m->leaves.leaves[i].path);
    }
}

/* A folder of Hugging Face's has weights alone. */
static bool check_adapters(const HfMaker *m) {
    int i = 0;
    while (i < m->leaves.n && !ckpt_is_adapter(m->leaves.leaves[i].path)) i++;
    if (i == m->leaves.n) return true;
    mx_fail(m->err, MX_EXIT_BAD_INPUT, in_source(m),
            "it has adapters (\"%s\"), which a model of Hugging Face's has no names for",
            m->leaves.leaves[i].path);
    mx_note(m->err, "hint: --merge-lora together with --to-hf or --to-gguf merges them into the "
                    "weights, --to-peft writes them as a folder of peft's");
    return false;
}

/* The form that matrices of experts have where the model was published. */
static MxHfExperts published_experts(const MxHfModel *model) {
    const MxHfNames *names = model->names;
    bool is_outer = model->sees && !model->encoder->hf.keeps_experts && names->outer_experts[0];
    return is_outer ? names->outer_experts[0] : names->experts;
}

bool hf_make_plan(HfMaker *m, const MxCkptRef *from, const MxHfExport *how, MxError *err) {
    *m = (HfMaker){.arena = {.name = "hf"}, .err = err};
    MxHfExport *published = mx_new(&m->arena, MxHfExport);
    *published = *how;
    if (how->model.names) published->model.experts = (int)published_experts(&how->model);
    m->how = published;
    int failures = err->count, n_random;
    const MxHfModel *model = &published->model;
    if (!hf_check(model, (MxWhere){.file = from->ref}, m->err) ||
        !ckpt_open(&m->arena, from, &m->source, m->err) ||
        !ckpt_check_floats(&m->source.survey, m->err) ||
        !ckpt_leaves(&m->arena, &m->source.survey, true, &m->leaves, &m->pieces, &n_random,
                     m->err) ||
        !check_adapters(m))
        return false;
    m->items = mx_new_n(&m->arena, HfItem, hf_most_names(model));
    mx_map_init(&m->by_name, &m->arena);
    mx_map_init(&m->wanted, &m->arena);
    for (int r = 0; r < hf_n_rows; r++)
        for (int64_t i = 0, n = hf_count(model, &hf_rows[r]); i < n; i++)
            if (hf_has(model, &hf_rows[r], (int)i)) add_item(m, &hf_rows[r], (int)i);
    check_extra(m);
    return m->err->count == failures;
}

/* ---- values */

/* Elements of a run that are in the piece. */
static void put_run(HfMaker *m, const HfRun *run, MxDtype dtype) {
    for (int64_t i = 0; i < run->n; i++) {
        int64_t at = run->theirs + i * run->apart;
        if (at >= m->from && at < m->to)
            hf_put(m->piece, dtype, at - m->from,
                   hf_in_theirs(run->map, m->tile[run->at + i * run->step]));
    }
}

/* Rows of a box in memory, times elements of a vector. */
static bool fold(HfMaker *m, const CkptPiece *vector, const MxBox *box) {
    MxArena arena = {.name = "fold"};
    int64_t rows = box->count[0], each = mx_box_count(box) / rows;
    MxBox part = {.rank = 1, .start = {box->start[0]}, .count = {rows}};
    float *times = mx_new_n(&arena, float, rows);
    bool ok = ckpt_read_piece(&m->source, vector, part, MX_F32, times, m->err);
    for (int64_t i = 0; ok && i < rows * each; i++) m->tile[i] *= times[i / each];
    mx_arena_release(&arena);
    return ok;
}

/* What a parameter makes of the piece. */
static bool make_part(HfMaker *m, const HfPart *part, MxDtype dtype) {
    CkptTiles tiles;
    HfRun run;
    int64_t from, to;
    const MxBox *whole = &part->map.part;
    if (!ckpt_tiles_start(&tiles, ckpt_box_shape(whole), TILE_BYTES / (int)sizeof(float)))
        return true;
    do {
        MxBox box = tiles.box;
        for (int d = 0; d < box.rank; d++) box.start[d] += whole->start[d];
        hf_span(&part->map, &box, &from, &to);
        if (to <= m->from || from >= m->to) continue;
        if (!ckpt_read_piece(&m->source, &part->piece, box, MX_F32, m->tile, m->err) ||
            (part->folds && !fold(m, part->folds, &box)))
            return false;
        bool goes_on = hf_run_start(&run, &part->map, &box, &box);
        for (; goes_on; goes_on = hf_run_next(&run)) put_run(m, &run, dtype);
    } while (ckpt_tiles_next(&tiles));
    return true;
}

size_t hf_make_room(HfMaker *m) {
    size_t largest = 0, most = (size_t)hf_written_bytes();
    for (int i = 0; i < m->n; i++) {
        size_t bytes = (size_t)mx_tensor_bytes(&m->items[i].tensor);
        largest = bytes > largest ? bytes : largest;
    }
    if (largest > most) largest = most;
    m->piece = mx_arena_alloc(&m->arena, largest);
    m->tile = mx_arena_alloc(&m->arena, TILE_BYTES);
    return largest;
}

bool hf_make_next(HfMaker *m, const MxTensor *tensor, size_t *bytes) {
    int64_t n = mx_shape_count(tensor->shape), size = (int64_t)mx_dtype_bytes(tensor->dtype);
    int64_t most = hf_written_bytes() / size / WHOLE * WHOLE;
    m->from = m->to;
    m->to = n - m->from < most ? n : m->from + most;
    *bytes = (size_t)((m->to - m->from) * size);
    return m->from < n;
}

bool hf_make_piece(HfMaker *m, const HfItem *item) {
    bool ok = true;
    for (const HfPart *part = item->parts; ok && part; part = part->next)
        ok = make_part(m, part, item->tensor.dtype);
    return ok;
}
