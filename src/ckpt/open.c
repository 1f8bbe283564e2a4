/* open.c — from a user's path to an open file with known contents. A folder is verified before its
 * file is opened. For a file that is not in a manifest, sizes are checked first: a damaged header
 * may claim more memory than any machine has. */
#include <mx/ckpt.h>

#include "peft.h"

#include <sys/stat.h>

static const char manifest_file[] = "MANIFEST.json", run_subdir[] = "checkpoints",
                  note_name[] = "mxconvert_stacks";

/* ---- references */

/* Whether a file of such a folder is read here; others may lie beside them. */
static bool is_read(const char *name) {
    static const char *const names[] = {MX_HF_CONFIG, HF_INDEX, PEFT_CONFIG};
    for (int i = 0; i < MX_COUNT(names); i++)
        if (!strcmp(name, names[i])) return true;
    return mx_text_has_suffix(name, ".safetensors");
}

static bool check_listed(MxArena *arena, const char *dir, const MxJson *manifest, MxError *err) {
    char **names;
    int n;
    bool ok = mx_dir_list(arena, dir, &names, &n, err);
    for (int i = 0; ok && i < n; i++)
        ok = !is_read(names[i]) || mx_json_get(mx_json_get(manifest, "files"), names[i]) ||
             mx_fail(err, MX_EXIT_BAD_INPUT, (MxWhere){.file = mx_path_join(arena, dir, names[i])},
                     "is not in the folder's %s", manifest_file);
    return ok;
}

bool mx_ckpt_vouch(MxArena *arena, const char *dir, const MxTeam *team, const MxJson **manifest,
                   MxError *err) {
    MxJson *found = NULL;
    *manifest = NULL;
    if (!mx_file_exists(mx_path_join(arena, dir, manifest_file))) return true;
    bool ok =
        mx_store_verify(arena, dir, team, &found, err) && check_listed(arena, dir, found, err);
    if (!ok && err->count)
        mx_note(err, "hint: if \"%s\" was changed on purpose, remove its %s", dir, manifest_file);
    *manifest = found;
    return ok;
}

static bool read_manifest(MxArena *arena, const MxCkptSearch *how, const char *dir, MxJson **out,
                          MxError *err) {
    return how->peeks ? mx_store_manifest(arena, dir, out, err)
                      : mx_store_verify(arena, dir, how->team, out, err);
}

static bool find_folder(MxArena *arena, const char *dir, const MxCkptSearch *how, MxCkptRef *out,
                        MxError *err) {
    const char *parent = mx_path_join(arena, dir, run_subdir), *found = NULL;
    int64_t step;
    if (!mx_dir_exists(parent)) parent = dir;
    MxJson *manifest = NULL;
    bool is_checkpoint = mx_file_exists(mx_path_join(arena, dir, manifest_file));
    if (!is_checkpoint && !mx_ckpt_newest(arena, parent, how, &found, &step, err)) return false;
    bool is_verified = found != NULL;
    if (!found) found = dir;
    if (is_verified ? !mx_store_manifest(arena, found, &manifest, err)
                    : !read_manifest(arena, how, found, &manifest, err))
        return false;
    out->dir = found;
    out->manifest = manifest;
    out->path = mx_path_join(arena, found, CKPT_STATE_FILE);
    return mx_json_get(mx_json_get(manifest, "files"), CKPT_STATE_FILE) ||
           mx_fail(err, MX_EXIT_BAD_INPUT, (MxWhere){.file = out->path},
                   "is not in the folder's %s", manifest_file);
}

static bool find_theirs(MxArena *arena, const char *dir, const MxCkptSearch *how, MxCkptRef *out,
                        MxError *err) {
    *out = (MxCkptRef){.ref = dir, .path = dir, .group = "", .is_hf = true};
    if (!how->peeks) return mx_ckpt_vouch(arena, dir, how->team, &out->manifest, err);
    MxJson *manifest = NULL;
    bool ok = !mx_file_exists(mx_path_join(arena, dir, manifest_file)) ||
              mx_store_manifest(arena, dir, &manifest, err);
    out->manifest = manifest;
    return ok;
}

static bool find(MxArena *arena, const char *ref, const MxCkptSearch *how, MxCkptRef *out,
                 MxError *err) {
    if (mx_hf_is_dir(ref)) return find_theirs(arena, ref, how, out, err);
    *out = (MxCkptRef){.ref = ref, .path = ref, .group = ""};
    if (mx_dir_exists(ref)) return find_folder(arena, ref, how, out, err);
    MxJson *manifest = NULL;
    char *path, *group;
    mx_store_ref_parse(arena, ref, &path, &group);
    out->path = path;
    out->group = group;
    /* The file of a checkpoint folder, named by itself. */
    const char *dir = mx_path_dir(arena, path), *slash = strrchr(path, '/');
    if (strcmp(slash ? slash + 1 : path, CKPT_STATE_FILE) ||
        !mx_file_exists(mx_path_join(arena, dir, manifest_file)))
        return true;
    if (!read_manifest(arena, how, dir, &manifest, err)) return false;
    if (!*group) out->dir = dir;
    out->manifest = manifest;
    return true;
}

bool mx_ckpt_find(MxArena *arena, const char *ref, const MxTeam *team, MxCkptRef *out,
                  MxError *err) {
    return find(arena, ref, &(MxCkptSearch){.team = team}, out, err);
}

bool mx_ckpt_peek(MxArena *arena, const char *ref, MxCkptRef *out, MxError *err) {
    const MxCkptSearch how = {.peeks = true};
    return mx_peft_is_dir(ref) ? find_theirs(arena, ref, &how, out, err)
                               : find(arena, ref, &how, out, err);
}

/* Whether nothing says what the bytes of a reference are to be. */
static bool is_foreign(MxArena *arena, const char *ref, const char **file) {
    char *path, *group;
    if (mx_dir_exists(ref)) return false;
    mx_store_ref_parse(arena, ref, &path, &group);
    const char *slash = strrchr(path, '/');
    bool is_state = !strcmp(slash ? slash + 1 : path, CKPT_STATE_FILE);
    *file = path;
    return mx_file_exists(path) &&
           !(is_state &&
             mx_file_exists(mx_path_join(arena, mx_path_dir(arena, path), manifest_file)));
}

/* ---- files */

/* Arrays of a file that nothing vouches for hold at most so many times its bytes (compression). */
static bool check_size(const CkptFile *f, MxError *err) {
    enum { MAX_RATIO = 100, ALLOWED_MIB = 64 };
    struct stat st = {0};
    if (f->ref.manifest || stat(f->ref.path, &st)) return true;
    double bytes = 0, limit = (double)st.st_size * MAX_RATIO + ALLOWED_MIB * 0x1p20;
    for (int i = 0; i < f->n; i++)
        bytes +=
            (double)mx_shape_count(f->arrays[i].shape) * (double)mx_dtype_bytes(f->arrays[i].dtype);
    return bytes <= limit || mx_fail(err, MX_EXIT_BAD_INPUT, (MxWhere){.file = f->ref.path},
                                     "claims arrays of %.3g bytes in a file of %.3g bytes", bytes,
                                     (double)st.st_size);
}

/* What the user assumes, something is made of. */
static bool check_assumed(const CkptFile *f, MxError *err) {
    for (int i = 0; i < f->n; i++)
        if (f->arrays[i].dtype == MX_BF16) return true;
    return mx_fail(err, MX_EXIT_BAD_INPUT, (MxWhere){.file = f->ref.path},
                   "holds no uint16 that could be bfloat16");
}

static int said_axis(const MxJson *manifest) {
    int64_t axis;
    return manifest && mx_json_int(mx_json_get(manifest, "param_scan_axis"), &axis) && axis >= 0 &&
                   axis < MX_MAX_RANK
               ? (int)axis
               : -1;
}

bool ckpt_list(MxArena *arena, const MxCkptRef *ref, CkptFile *out, MxError *err) {
    *out = (CkptFile){.ref = *ref};
    mx_store_guard_rearm(ref->path);
    if (ref->is_hf) {
        if (!ckpt_hf_open(arena, ref, &out->hf, &out->arrays, &out->n, err)) return false;
    } else {
        if (!mx_h5_open(arena, ref->path, &out->file, err)) return false;
        if (ref->assumes_bf16) mx_h5_assume_bf16(out->file);
        if (!mx_h5_list(arena, out->file, ref->group, &out->arrays, &out->n, err) ||
            !ckpt_join_codes(arena, out, err))
            return false;
    }
    return !ref->assumes_bf16 || check_assumed(out, err);
}

bool ckpt_open(MxArena *arena, const MxCkptRef *ref, CkptFile *out, MxError *err) {
    char *note = NULL;
    if (!ckpt_list(arena, ref, out, err) ||
        (!out->hf && (!check_size(out, err) ||
                      !mx_h5_attr(arena, out->file, ref->group, note_name, &note, err))))
        return false;
    out->note = note;
    return ckpt_survey(arena, ref->ref, out->arrays, out->n, said_axis(ref->manifest), &out->survey,
                       err);
}

const char *ckpt_source_text(MxArena *arena, const CkptFile *file) {
    if (!file->hf) return ckpt_form_text(arena, &file->survey);
    return mx_arena_printf(arena, "Hugging Face's %s", file->hf->model.names->model_type);
}

bool ckpt_set_note(MxH5 *file, const char *note, MxError *err) {
    return !*note || mx_h5_set_attr(file, "", note_name, note, err);
}

const char *ckpt_config_said(MxArena *arena, const MxJson *manifest, MxKey key) {
    const char *text = manifest ? mx_json_string(mx_json_get(manifest, "config")) : NULL;
    return mx_config_said(arena, text, key);
}

static bool read_values(const CkptFile *file, const CkptPiece *piece, MxBox box, MxDtype dtype,
                        void *out, MxError *err) {
    const MxH5Array *array = file->survey.entries[piece->entry].array;
    if (file->hf) return ckpt_hf_read(file->hf, piece->entry, &box, dtype, out, err);
    const MxStack stack = {.inner = piece->inner};
    if (piece->scan_dim >= 0) box = ckpt_box_in_stack(box, &stack, piece->scan_dim, piece->index);
    if (ckpt_quant(file, piece->entry).type)
        return ckpt_read_coded(file, piece->entry, box, dtype, out, err);
    MxArena scratch = {.name = "path"};
    const char *path = mx_path_join(&scratch, file->ref.group, array->path);
    mx_store_guard_rearm(file->ref.path);
    bool ok = mx_h5_read_box(file->file, path, dtype, box, out, err);
    mx_arena_release(&scratch);
    return ok;
}

/* To codes and back. */
static bool read_in_blocks(const CkptFile *file, const CkptPiece *piece, MxBox box, float *out,
                           MxError *err) {
    MxArena arena = {.name = "blocks"};
    MxQuant quant = piece->quant;
    MxBox whole = mx_quant_blocks(quant, box);
    MxShape shape = {.rank = whole.rank};
    for (int d = 0; d < shape.rank; d++) shape.dim[d] = whole.count[d];
    MxShape bytes = mx_quant_codes(quant, shape), blocks = mx_quant_scales(quant, shape);
    float *x = mx_new_n(&arena, float, mx_shape_count(shape));
    float *scales = mx_new_n(&arena, float, mx_shape_count(blocks));
    uint8_t *codes = mx_new_n(&arena, uint8_t, mx_shape_count(bytes));
    bool ok = read_values(file, piece, whole, MX_F32, x, err);
    if (ok && !mx_quantize(quant, shape, x, codes, scales))
        ok = mx_fail(err, MX_EXIT_BAD_INPUT, (MxWhere){.file = file->ref.ref},
                     "\"%s\" holds what is no number or infinite: %s has no code for it",
                     file->survey.entries[piece->entry].array->path, mx_qtype_name(quant.type));
    if (ok) mx_dequantize(quant, shape, codes, scales, x);
    if (ok) mx_box_copy(&box, &whole, x, &box, out, sizeof *out);
    mx_arena_release(&arena);
    return ok;
}

bool ckpt_read_piece(const CkptFile *file, const CkptPiece *piece, MxBox box, MxDtype dtype,
                     void *out, MxError *err) {
    if (!piece->quant.type) return read_values(file, piece, box, dtype, out, err);
    MX_ASSERT(dtype == MX_F32);
    return read_in_blocks(file, piece, box, out, err);
}

/* ---- tiles */

bool ckpt_tiles_start(CkptTiles *tiles, MxShape shape, int64_t max_elements) {
    return ckpt_tiles_start_by(tiles, shape, -1, max_elements);
}

bool ckpt_tiles_start_blocks(CkptTiles *tiles, MxShape shape, int outer, MxQuant quant,
                             int64_t max_elements) {
    *tiles = (CkptTiles){.shape = shape, .outer = outer, .box.rank = shape.rank};
    int64_t left = max_elements / quant.tile;
    for (int i = shape.rank - 1; i >= 0; i--) {
        int64_t step = i == quant.dim ? quant.tile : 1, n = shape.dim[i] / step;
        if (i == outer) n = 1;
        if (n > left) n = left > 1 && i == shape.rank - 1 ? left / 2 * 2 : left; /* a byte of two */
        left = n * step == shape.dim[i] || i == outer ? left / (n ? n : 1) : 1;
        tiles->size[i] = tiles->box.count[i] = n * step;
        if (left < 1) left = 1;
    }
    return mx_shape_count(shape) > 0;
}

bool ckpt_tiles_start_by(CkptTiles *tiles, MxShape shape, int outer, int64_t max_elements) {
    *tiles = (CkptTiles){.shape = shape, .outer = outer, .box.rank = shape.rank};
    int64_t left = max_elements;
    for (int i = shape.rank - 1; i >= 0; i--) {
        if (i == outer) {
            tiles->size[i] = tiles->box.count[i] = 1;
            continue;
        }
        int64_t n = shape.dim[i] < left ? shape.dim[i] : left;
        tiles->size[i] = tiles->box.count[i] = n;
        left = n && n == shape.dim[i] ? left / n : 1;
    }
    return mx_shape_count(shape) > 0;
}

/* One step along a dim; false = past its end, and back at its start. */
static bool step_dim(CkptTiles *tiles, int i) {
    MxBox *box = &tiles->box;
    box->start[i] += tiles->size[i];
    int64_t left = tiles->shape.dim[i] - box->start[i];
    bool is_past = left <= 0;
    if (is_past) box->start[i] = 0;
    box->count[i] = is_past || left > tiles->size[i] ? tiles->size[i] : left;
    return !is_past;
}

bool ckpt_tiles_next(CkptTiles *tiles) {
    for (int i = tiles->box.rank - 1; i >= 0; i--)
        if (i != tiles->outer && step_dim(tiles, i)) return true;
    return tiles->outer >= 0 && step_dim(tiles, tiles->outer);
}

/* ---- files that may be hostile */

static bool is_span(const MxH5Span *spans, int n, const char *path) {
    while (n && strcmp(spans[n - 1].path, path)) n--;
    return n > 0;
}

/* What the library itself has to read: arrays that are not in one piece, piece by piece. */
static bool read_array(MxH5 *file, const MxH5Array *array, void *tile, MxError *err) {
    CkptTiles tiles;
    bool goes_on = !array->is_text && ckpt_tiles_start(&tiles, array->shape, CKPT_TILE_ELEMENTS);
    bool ok = true;
    for (; ok && goes_on; goes_on = ckpt_tiles_next(&tiles)) {
        mx_store_guard_rearm(mx_h5_path(file));
        ok = mx_h5_read_box(file, array->path, array->dtype, tiles.box, tile, err);
    }
    return ok;
}

static void try_file(MxArena *arena, const void *data, MxError *ignored) {
    CkptFile f = {.ref = {.path = data}};
    MxH5Span *spans;
    int n_spans;
    void *tile = mx_arena_alloc(arena, (size_t)CKPT_TILE_ELEMENTS * sizeof(double));
    mx_store_guard_rearm(data);
    bool ok = mx_h5_open(arena, data, &f.file, ignored) &&
              mx_h5_list(arena, f.file, "", &f.arrays, &f.n, ignored) && check_size(&f, ignored) &&
              mx_h5_spans(arena, f.file, &spans, &n_spans, ignored);
    for (int i = 0; ok && i < f.n; i++)
        ok = is_span(spans, n_spans, f.arrays[i].path) ||
             read_array(f.file, &f.arrays[i], tile, ignored);
}

/* The same of a folder of Hugging Face's: its config and the headers of its files. */
static void try_folder(MxArena *arena, const void *data, MxError *ignored) {
    MxCkptRef ref;
    CkptFile file;
    if (mx_ckpt_find(arena, data, NULL, &ref, ignored)) ckpt_open(arena, &ref, &file, ignored);
}

bool mx_ckpt_try(const char *ref, MxError *err) {
    MxArena arena = {.name = "try"};
    const char *path;
    bool ok = mx_hf_is_dir(ref)                ? mx_store_try(ref, try_folder, ref, err)
              : is_foreign(&arena, ref, &path) ? mx_store_try(ref, try_file, path, err)
                                               : true;
    mx_arena_release(&arena);
    return ok;
}

/* ---- reading all of it */

bool mx_ckpt_read_through(const MxCkptRef *ref, int64_t *bytes, MxError *err) {
    MxArena arena = {.name = "read through"};
    CkptFile file;
    *bytes = 0;
    void *tile = mx_arena_alloc(&arena, (size_t)CKPT_TILE_ELEMENTS * sizeof(int64_t));
    bool ok = ckpt_open(&arena, ref, &file, err);
    for (int i = 0; ok && i < file.n; i++) {
        const MxH5Array *array = &file.arrays[i];
        CkptTiles tiles;
        CkptPiece piece = {.entry = i, .scan_dim = -1};
        bool has_more =
            !array->is_text && ckpt_tiles_start(&tiles, array->shape, CKPT_TILE_ELEMENTS);
        for (; ok && has_more; has_more = ckpt_tiles_next(&tiles)) {
            ok = ckpt_read_piece(&file, &piece, tiles.box, array->dtype, tile, err);
            *bytes += mx_box_count(&tiles.box) * (int64_t)mx_dtype_bytes(array->dtype);
        }
    }
    mx_arena_release(&arena);
    return ok;
}
