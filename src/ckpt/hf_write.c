/* hf_write.c — a checkpoint as a Hugging Face folder: the leaves, layer by layer, are found in any
 * form of checkpoint; each becomes a tensor, which is made and written in pieces, into one file or
 * shards. */
#include "hf.h"
#include "lora.h"

#include <unistd.h>

enum { TILE_BYTES = 4 << 20 };

/* A parameter, or part of one, in a tensor. */
typedef struct Part Part;
struct Part {
    const char *ours;
    HfMap map;
    CkptPiece piece;
    const CkptPiece *folds; /* of the vector that multiplies its rows; NULL = none */
    Part *next;             /* of the same tensor; NULL = there are no more */
};

/* A tensor to write. */
typedef struct Item {
    Part *parts;
    MxTensor tensor; /* under their name */
    int shard;
    uint64_t hash; /* of its bytes */
} Item;

typedef struct Writer {
    MxArena arena;
    const MxHfExport *how;
    const char *dir;
    CkptFile source;
    MxTree leaves;
    CkptPiece *pieces;
    Item *items;
    MxMap by_name, wanted;   /* items, by their names; what they are made of, by ours */
    int n, n_shards, n_left; /* left: arrays that are no parameters */
    int64_t bytes;
    void *piece; /* of a tensor: its elements from one on to before another */
    int64_t from, to;
    float *tile;
    MxError *err;
} Writer;

static MxWhere in_source(const Writer *w) {
    return (MxWhere){.file = w->source.ref.ref};
}

/* ---- what is written */

/* Of the vector that a row's matrix is multiplied by. */
static const CkptPiece *find_folded(Writer *w, const HfRow *row, int i) {
    HfRow of_vector = *row;
    of_vector.ours = row->folds;
    const char *name = hf_our_name(&w->arena, &w->how->model, &of_vector, i);
    int leaf = mx_tree_find(&w->leaves, name);
    if (leaf < 0) mx_fail(w->err, MX_EXIT_BAD_INPUT, in_source(w), "\"%s\" is missing", name);
    return leaf < 0 ? NULL : &w->pieces[leaf];
}

static void add_item(Writer *w, const HfRow *row, int i) {
    const MxHfModel *model = &w->how->model;
    const char *theirs = hf_their_name(&w->arena, model, row, i);
    if (!theirs) {
        mx_map_set(&w->wanted, hf_our_name(&w->arena, model, row, i), i);
        return;
    }
    const MxHfEncoder *outer = model->sees ? &model->encoder->hf : NULL;
    if (outer && !hf_is_eye(row) && mx_text_has_prefix(theirs, outer->text.without))
        theirs = mx_arena_printf(&w->arena, "%s%s", outer->text.with,
                                 theirs + strlen(outer->text.without));
    Part *part = mx_new(&w->arena, Part);
    *part = (Part){.ours = hf_our_name(&w->arena, model, row, i), .map = hf_map(model, row, i)};
    int leaf = mx_tree_find(&w->leaves, part->ours);
    const char *want = mx_shape_text(&w->arena, part->map.ours);
    if (leaf < 0)
        mx_fail(w->err, MX_EXIT_BAD_INPUT, in_source(w), "\"%s\" is missing; the model wants %s",
                part->ours, want);
    else if (!mx_shape_equal(w->leaves.leaves[leaf].shape, part->map.ours))
        mx_fail(w->err, MX_EXIT_BAD_INPUT, in_source(w), "\"%s\" has shape %s; the model wants %s",
                part->ours, mx_shape_text(&w->arena, w->leaves.leaves[leaf].shape), want);
    else
        part->piece = w->pieces[leaf];
    if (row->folds) part->folds = find_folded(w, row, i);
    mx_map_set(&w->wanted, part->ours, i);
    int at = (int)mx_map_get(&w->by_name, theirs, w->n);
    Item *item = &w->items[at];
    mx_map_set(&w->by_name, theirs, at);
    w->n += at == w->n;
    MxDtype dtype = row->role == HF_IDS ? MX_I64 : w->how->dtype;
    item->tensor = (MxTensor){.name = theirs, .dtype = dtype, .shape = part->map.theirs};
    part->next = item->parts;
    item->parts = part;
}

/* Parameters that the table has no row for. */
static void check_extra(Writer *w) {
    for (int i = 0; i < w->leaves.n; i++) {
        const CkptRow *row = w->source.survey.entries[w->pieces[i].entry].row;
        bool is_param = row && row->is_param;
        w->n_left += !is_param;
        if (is_param && mx_map_get(&w->wanted, w->leaves.leaves[i].path, -1) < 0)
            mx_fail(w->err, MX_EXIT_BAD_INPUT, in_source(w),
                    "\"%s\" has no name in such a model of Hugging Face's",
                    w->leaves.leaves[i].path);
    }
}

/* In order, a new file when one is full. */
static void choose_shards(Writer *w) {
    int64_t filled = 0;
    w->n_shards = 1;
    for (int i = 0; i < w->n; i++) {
        int64_t bytes = mx_tensor_bytes(&w->items[i].tensor);
        if (filled && filled + bytes > w->how->shard_bytes) {
            filled = 0;
            w->n_shards++;
        }
        filled += bytes;
        w->items[i].shard = w->n_shards - 1;
        w->bytes += bytes;
    }
}

/* A folder of Hugging Face's has weights alone. */
static bool check_adapters(const Writer *w) {
    int i = 0;
    while (i < w->leaves.n && !ckpt_is_adapter(w->leaves.leaves[i].path)) i++;
    if (i == w->leaves.n) return true;
    mx_fail(w->err, MX_EXIT_BAD_INPUT, in_source(w),
            "it has adapters (\"%s\"), which a model of Hugging Face's has no names for",
            w->leaves.leaves[i].path);
    mx_note(w->err, "hint: --merge-lora --to-hf merges them into the weights, --to-peft writes "
                    "them as a folder of peft's");
    return false;
}

static bool plan(Writer *w, const MxCkptRef *from) {
    int failures = w->err->count, n_random;
    const MxHfModel *model = &w->how->model;
    if (!hf_check(model, (MxWhere){.file = from->ref}, w->err) ||
        !ckpt_open(&w->arena, from, &w->source, w->err) ||
        !ckpt_check_floats(&w->source.survey, w->err) ||
        !ckpt_leaves(&w->arena, &w->source.survey, true, &w->leaves, &w->pieces, &n_random,
                     w->err) ||
        !check_adapters(w))
        return false;
    w->items = mx_new_n(&w->arena, Item, hf_most_names(model));
    mx_map_init(&w->by_name, &w->arena);
    mx_map_init(&w->wanted, &w->arena);
    for (int r = 0; r < hf_n_rows; r++)
        for (int64_t i = 0, n = hf_count(model, &hf_rows[r]); i < n; i++)
            if (hf_has(model, &hf_rows[r], (int)i)) add_item(w, &hf_rows[r], (int)i);
    check_extra(w);
    choose_shards(w);
    return w->err->count == failures;
}

/* ---- values */

/* Elements of a run that are in the piece. */
static void put_run(Writer *w, const HfRun *run, MxDtype dtype) {
    for (int64_t i = 0; i < run->n; i++) {
        int64_t at = run->theirs + i * run->apart;
        if (at >= w->from && at < w->to)
            hf_put(w->piece, dtype, at - w->from,
                   hf_in_theirs(run->map, w->tile[run->at + i * run->step]));
    }
}

/* Rows of a box in memory, times elements of a vector. */
static bool fold(Writer *w, const CkptPiece *vector, const MxBox *box) {
    MxArena arena = {.name = "fold"};
    int64_t rows = box->count[0], each = mx_box_count(box) / rows;
    MxBox part = {.rank = 1, .start = {box->start[0]}, .count = {rows}};
    float *times = mx_new_n(&arena, float, rows);
    bool ok = ckpt_read_piece(&w->source, vector, part, MX_F32, times, w->err);
    for (int64_t i = 0; ok && i < rows * each; i++) w->tile[i] *= times[i / each];
    mx_arena_release(&arena);
    return ok;
}

/* What a parameter makes of the piece. */
static bool make_part(Writer *w, const Part *part, MxDtype dtype) {
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
        if (to <= w->from || from >= w->to) continue;
        if (!ckpt_read_piece(&w->source, &part->piece, box, MX_F32, w->tile, w->err) ||
            (part->folds && !fold(w, part->folds, &box)))
            return false;
        bool goes_on = hf_run_start(&run, &part->map, &box, &box);
        for (; goes_on; goes_on = hf_run_next(&run)) put_run(w, &run, dtype);
    } while (ckpt_tiles_next(&tiles));
    return true;
}

/* At the next piece of a tensor, of bytes; false behind the last. */
static bool next_piece(Writer *w, const MxTensor *tensor, size_t *bytes) {
    int64_t n = mx_shape_count(tensor->shape), size = (int64_t)mx_dtype_bytes(tensor->dtype);
    int64_t most = hf_written_bytes() / size;
    w->from = w->to;
    w->to = n - w->from < most ? n : w->from + most;
    *bytes = (size_t)((w->to - w->from) * size);
    return w->from < n;
}

/* The piece as it is to be, in memory. */
static bool make_piece(Writer *w, const Item *item) {
    bool ok = true;
    for (const Part *part = item->parts; ok && part; part = part->next)
        ok = make_part(w, part, item->tensor.dtype);
    return ok;
}

/* ---- files */

static const char *shard_name(Writer *w, int shard) {
    return w->n_shards == 1 ? HF_TENSORS
                            : mx_arena_printf(&w->arena, "model-%05d-of-%05d.safetensors",
                                              shard + 1, w->n_shards);
}

static uint64_t join_hash(uint64_t before, const void *piece, size_t bytes) {
    return before * 31 + mx_hash64(piece, bytes);
}

/* first  its first item; receives that of the next shard */
static bool write_shard(Writer *w, int *first) {
    int shard = w->items[*first].shard, n = 0, fd;
    MxTensor *tensors = mx_new_n(&w->arena, MxTensor, w->n);
    for (int i = *first; i < w->n && w->items[i].shard == shard; i++)
        tensors[n++] = w->items[i].tensor;
    const char *path = mx_path_join(&w->arena, w->dir, shard_name(w, shard));
    if (!mx_tensors_create(path, tensors, n, &fd, w->err)) return false;
    bool ok = true;
    for (int i = *first; ok && i < *first + n; i++) {
        Item *item = &w->items[i];
        size_t bytes;
        for (w->to = 0; ok && next_piece(w, &item->tensor, &bytes);) {
            ok = make_piece(w, item) && mx_tensors_append(path, fd, w->piece, bytes, w->err);
            if (ok) item->hash = join_hash(item->hash, w->piece, bytes);
        }
        mx_progress((double)i / w->n, -1, "writing %.90s", item->tensor.name);
    }
    *first += n;
    return (!close(fd) || mx_fail_errno(w->err, "could not write \"%s\"", path)) && ok;
}

static bool write_text(Writer *w, const char *name, const char *text) {
    return mx_file_write(mx_path_join(&w->arena, w->dir, name), text, strlen(text), w->err);
}

static bool write_index(Writer *w) {
    MxJson *index = mx_json_object(&w->arena);
    mx_json_set_int(mx_json_put_object(index, "metadata"), "total_size", w->bytes);
    MxJson *weights = mx_json_put_object(index, "weight_map");
    for (int i = 0; i < w->n; i++)
        mx_json_set_string(weights, w->items[i].tensor.name, shard_name(w, w->items[i].shard));
    return write_text(w, HF_INDEX, mx_json_dump(&w->arena, index, true));
}

static bool reads_back(Writer *w, const MxTensors *file, const Item *item) {
    const MxTensor *found = mx_tensors_find(file, item->tensor.name);
    uint64_t hash = 0;
    size_t bytes;
    if (!found || !mx_shape_equal(found->shape, item->tensor.shape) ||
        found->dtype != item->tensor.dtype)
        return false;
    for (w->to = 0; next_piece(w, found, &bytes);) {
        if (!mx_tensors_read_part(file, found, w->from, w->to - w->from, w->piece, w->err))
            return false;
        hash = join_hash(hash, w->piece, bytes);
    }
    return hash == item->hash;
}

/* Every tensor reads back as it was written. */
static bool verify(Writer *w) {
    MxTensors *file = NULL;
    bool ok = true;
    for (int i = 0; i < w->n; i++) {
        const Item *item = &w->items[i];
        const char *path = mx_path_join(&w->arena, w->dir, shard_name(w, item->shard));
        if ((!i || item->shard != w->items[i - 1].shard) &&
            !mx_tensors_open(&w->arena, path, &file, w->err))
            return false;
        mx_store_guard_rearm(path);
        if (!reads_back(w, file, item))
            ok = mx_fail(w->err, MX_EXIT_IO, (MxWhere){.file = path},
                         "\"%s\" does not read back as it was written", item->tensor.name);
        mx_progress((double)i / w->n, -1, "verifying %.90s", item->tensor.name);
    }
    return ok;
}

static bool write_all(Writer *w) {
    size_t largest = 0;
    for (int i = 0; i < w->n; i++) {
        size_t bytes = (size_t)mx_tensor_bytes(&w->items[i].tensor);
        largest = bytes > largest ? bytes : largest;
    }
    size_t most = (size_t)hf_written_bytes();
    w->piece = mx_arena_alloc(&w->arena, largest < most ? largest : most);
    w->tile = mx_arena_alloc(&w->arena, TILE_BYTES);
    bool ok = true;
    for (int i = 0; ok && i < w->n;) ok = write_shard(w, &i);
    ok = ok && write_text(w, MX_HF_CONFIG, hf_config_text(&w->arena, w->how)) &&
         (w->n_shards == 1 || write_index(w)) && (!w->how->verifies || verify(w));
    mx_progress_end();
    return ok;
}

static const char *architecture_of(MxArena *arena, const MxHfModel *model) {
    const MxJson *list = model->sees ? mx_json_get(model->outer, "architectures") : NULL;
    const char *name = mx_json_string(mx_json_at(list, 0));
    return name ? name : hf_architecture(arena, model);
}

/* The form that matrices of experts have where the model was published. */
static MxHfExperts published_experts(const MxHfModel *model) {
    const MxHfNames *names = model->names;
    bool is_outer = model->sees && !model->encoder->hf.keeps_experts && names->outer_experts[0];
    return is_outer ? names->outer_experts[0] : names->experts;
}

bool mx_hf_export(const MxCkptRef *from, const MxHfExport *how, const char *dir, MxText *notes,
                  MxError *err) {
    MxHfExport published = *how;
    if (how->model.names) published.model.experts = (int)published_experts(&how->model);
    Writer w = {.arena = {.name = "hf"}, .how = &published, .dir = dir, .err = err};
    bool ok = plan(&w, from);
    for (int i = 0; ok && !dir && i < w.n; i++)
        for (const Part *part = w.items[i].parts; part; part = part->next)
            mx_text_add(notes, "%s %s -> %s %s\n", part->ours,
                        mx_shape_text(&w.arena, part->map.ours), w.items[i].tensor.name,
                        mx_shape_text(&w.arena, w.items[i].tensor.shape));
    ok = ok && (!dir || write_all(&w));
    if (ok && w.n_left)
        mx_text_add(notes, "left out: %d arrays that are no parameters\n", w.n_left);
    if (ok)
        mx_text_add(notes, "result: %s, %d tensors of %s in %d file%s\n",
                    architecture_of(&w.arena, &how->model), w.n, mx_dtype_name(how->dtype),
                    w.n_shards, w.n_shards == 1 ? "" : "s");
    mx_arena_release(&w.arena);
    return ok;
}
