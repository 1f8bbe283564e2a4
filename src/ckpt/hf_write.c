/* hf_write.c — a checkpoint as a Hugging Face folder: its tensors, in one file or shards. */
#include "hf_make.h"

#include <unistd.h>

/* Where a tensor is, and the hash of its bytes. */
typedef struct InFile {
    int shard;
    uint64_t hash;
} InFile;

typedef struct Writer {
    HfMaker made;
    const char *dir;
    InFile *file; /* [made.n] */
    int n_shards;
    int64_t bytes;
} Writer;

/* In order, a new file when one is full. */
static void choose_shards(Writer *w) {
    HfMaker *m = &w->made;
    int64_t filled = 0;
    w->file = mx_new_n(&m->arena, InFile, m->n);
    w->n_shards = 1;
    for (int i = 0; i < m->n; i++) {
        int64_t bytes = mx_tensor_bytes(&m->items[i].tensor);
        if (filled && filled + bytes > m->how->shard_bytes) {
            filled = 0;
            w->n_shards++;
        }
        filled += bytes;
        w->file[i].shard = w->n_shards - 1;
        w->bytes += bytes;
    }
}

/* ---- files */

static const char *shard_name(Writer *w, int shard) {
    HfMaker *m = &w->made;
    return w->n_shards == 1 ? HF_TENSORS
                            : mx_arena_printf(&m->arena, "model-%05d-of-%05d.safetensors",
                                              shard + 1, w->n_shards);
}

static uint64_t join_hash(uint64_t before, const void *piece, size_t bytes) {
    return before * 31 + mx_hash64(piece, bytes);
}

/* first  its first item; receives that of the next shard */
static bool write_shard(Writer *w, int *first) {
    HfMaker *m = &w->made;
    int shard = w->file[*first].shard, n = 0, fd;
    MxTensor *tensors = mx_new_n(&m->arena, MxTensor, m->n);
    for (int i = *first; i < m->n && w->file[i].shard == shard; i++)
        tensors[n++] = m->items[i].tensor;
    const char *path = mx_path_join(&m->arena, w->dir, shard_name(w, shard));
    if (!mx_tensors_create(path, tensors, n, &fd, m->err)) return false;
    bool ok = true;
    for (int i = *first; ok && i < *first + n; i++) {
        const HfItem *item = &m->items[i];
        size_t bytes;
        for (m->to = 0; ok && hf_make_next(m, &item->tensor, &bytes);) {
            ok = hf_make_piece(m, item) && mx_tensors_append(path, fd, m->piece, bytes, m->err);
            if (ok) w->file[i].hash = join_hash(w->file[i].hash, m->piece, bytes);
        }
        mx_progress((double)i / m->n, -1, "writing %.90s", item->tensor.name);
    }
    *first += n;
    return (!close(fd) || mx_fail_errno(m->err, "could not write \"%s\"", path)) && ok;
}

static bool write_text(Writer *w, const char *name, const char *text) {
    return mx_file_write(mx_path_join(&w->made.arena, w->dir, name), text, strlen(text),
                         w->made.err);
}

static bool write_index(Writer *w) {
    HfMaker *m = &w->made;
    MxJson *index = mx_json_object(&m->arena);
    mx_json_set_int(mx_json_put_object(index, "metadata"), "total_size", w->bytes);
    MxJson *weights = mx_json_put_object(index, "weight_map");
    for (int i = 0; i < m->n; i++)
        mx_json_set_string(weights, m->items[i].tensor.name, shard_name(w, w->file[i].shard));
    return write_text(w, HF_INDEX, mx_json_dump(&m->arena, index, true));
}

static bool reads_back(Writer *w, const MxTensors *file, int i) {
    HfMaker *m = &w->made;
    const HfItem *item = &m->items[i];
    const MxTensor *found = mx_tensors_find(file, item->tensor.name);
    uint64_t hash = 0;
    size_t bytes;
    if (!found || !mx_shape_equal(found->shape, item->tensor.shape) ||
        found->dtype != item->tensor.dtype)
        return false;
    for (m->to = 0; hf_make_next(m, found, &bytes);) {
        if (!mx_tensors_read_part(file, found, m->from, m->to - m->from, m->piece, m->err))
            return false;
        hash = join_hash(hash, m->piece, bytes);
    }
    return hash == w->file[i].hash;
}

/* Every tensor reads back as it was written. */
static bool verify(Writer *w) {
    HfMaker *m = &w->made;
    MxTensors *file = NULL;
    bool ok = true;
    for (int i = 0; i < m->n; i++) {
        const HfItem *item = &m->items[i];
        const char *path = mx_path_join(&m->arena, w->dir, shard_name(w, w->file[i].shard));
        if ((!i || w->file[i].shard != w->file[i - 1].shard) &&
            !mx_tensors_open(&m->arena, path, &file, m->err))
            return false;
        mx_store_guard_rearm(path);
        if (!reads_back(w, file, i))
            ok = mx_fail(m->err, MX_EXIT_IO, (MxWhere){.file = path},
                         "\"%s\" does not read back as it was written", item->tensor.name);
        mx_progress((double)i / m->n, -1, "verifying %.90s", item->tensor.name);
    }
    return ok;
}

static bool write_all(Writer *w) {
    HfMaker *m = &w->made;
    bool ok = true;
    hf_make_room(m);
    for (int i = 0; ok && i < m->n;) ok = write_shard(w, &i);
    ok = ok && write_text(w, MX_HF_CONFIG, hf_config_text(&m->arena, m->how)) &&
         (w->n_shards == 1 || write_index(w)) && (!m->how->verifies || verify(w));
    mx_progress_end();
    return ok;
}

static const char *architecture_of(MxArena *arena, const MxHfModel *model) {
    const MxJson *list = model->sees ? mx_json_get(model->outer, "architectures") : NULL;
    const char *name = mx_json_string(mx_json_at(list, 0));
    return name ? name : hf_architecture(arena, model);
}

bool mx_hf_export(const MxCkptRef *from, const MxHfExport *how, const char *dir, MxText *notes,
                  MxError *err) {
    Writer w = {.dir = dir};
    HfMaker *m = &w.made;
    bool ok = hf_make_plan(m, from, how, err);
    if (ok) choose_shards(&w);
    for (int i = 0; ok && !dir && i < m->n; i++)
        for (const HfPart *part = m->items[i].parts; part; part = part->next)
            mx_text_add(notes, "%s %s -> %s %s\n", part->ours,
                        mx_shape_text(&m->arena, part->map.ours), m->items[i].tensor.name,
                        mx_shape_text(&m->arena, m->items[i].tensor.shape));
    ok = ok && (!dir || write_all(&w));
    if (ok && m->n_left)
        mx_text_add(notes, "left out: %d arrays that are no parameters\n", m->n_left);
    if (ok)
        mx_text_add(notes, "result: %s, %d tensors of %s in %d file%s\n",
                    architecture_of(&m->arena, &how->model), m->n, mx_dtype_name(how->dtype),
                    w.n_shards, w.n_shards == 1 ? "" : "s");
    mx_arena_release(&m->arena);
    return ok;
}
