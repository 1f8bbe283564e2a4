/* codes.c — arrays of a file that are stored in few bits: PATH/codes, uint8, whose attribute
 * describes them, and PATH/scales. All other code sees one array of floats, PATH. */
#include <mx/ckpt.h>

#include "internal.h"

#include <stdio.h>

static const char codes_name[] = "/codes", scales_name[] = "/scales", attribute[] = "quantized";

/* ---- as text: "nf4 blocks of 64 along dim 0" */

static const char *text_of(MxArena *arena, MxQuant quant) {
    return mx_arena_printf(arena, "%s blocks of %lld along dim %d", mx_qtype_name(quant.type),
                           (long long)quant.tile, quant.dim);
}

static bool parse(const char *text, MxQuant *out) {
    char name[16], end;
    long long tile;
    return sscanf(text, "%15s blocks of %lld along dim %d%c", name, &tile, &out->dim, &end) == 3 &&
           (out->tile = tile) > 0 && mx_qtype_parse(name, &out->type);
}

/* ---- finding them */

static const MxH5Array *find_array(const MxH5Array *arrays, int n, const char *path) {
    for (int i = 0; i < n; i++)
        if (!strcmp(arrays[i].path, path)) return &arrays[i];
    return NULL;
}

static bool refuse(const CkptFile *f, const char *path, const char *why, MxError *err) {
    return mx_fail(err, MX_EXIT_BAD_INPUT, (MxWhere){.file = f->ref.path}, "\"%s\" %s", path, why);
}

/* What codes and scales together are. */
static bool join(MxArena *arena, const CkptFile *f, const MxH5Array *codes, const char *text,
                 MxH5Array *out, MxQuant *quant, MxError *err) {
    size_t n = strlen(codes->path) - strlen(codes_name);
    const char *path = mx_arena_strndup(arena, codes->path, n);
    const char *of_scales = mx_arena_printf(arena, "%s%s", path, scales_name);
    const MxH5Array *scales = find_array(f->arrays, f->n, of_scales);
    if (!parse(text, quant) || codes->dtype != MX_U8)
        return refuse(f, codes->path,
                      mx_arena_printf(arena, "is kept in a way that is not known: %s %s",
                                      mx_dtype_name(codes->dtype), text),
                      err);
    if (!scales || scales->dtype != MX_F32) return refuse(f, codes->path, "lacks its scales", err);
    *out =
        (MxH5Array){.path = path, .dtype = MX_F32, .shape = mx_quant_shape(*quant, codes->shape)};
    const char *why = mx_quant_why_not(arena, *quant, out->shape);
    if (!why && !mx_shape_equal(scales->shape, mx_quant_scales(*quant, out->shape)))
        why = "it has not one scale for each block";
    return !why || refuse(f, codes->path, mx_arena_printf(arena, "is damaged: %s", why), err);
}

static bool is_codes(const MxH5Array *array) {
    return mx_text_has_suffix(array->path, codes_name);
}

/* Their attributes, NULL = no such array; the file has them below the group that was listed. */
static bool read_texts(MxArena *arena, const CkptFile *f, char **text, MxError *err) {
    for (int i = 0; i < f->n; i++) {
        const char *path = mx_path_join(arena, f->ref.group, f->arrays[i].path);
        if (is_codes(&f->arrays[i]) && !mx_h5_attr(arena, f->file, path, attribute, &text[i], err))
            return false;
    }
    return true;
}

/* The arrays that stand for codes and scales, in the place of codes. */
static bool join_all(MxArena *arena, const CkptFile *f, char *const *text, MxH5Array *joined,
                     MxQuant *quants, MxMap *gone, MxError *err) {
    for (int i = 0; i < f->n; i++) {
        if (!text[i]) continue;
        if (!join(arena, f, &f->arrays[i], text[i], &joined[i], &quants[i], err)) return false;
        mx_map_set(gone, mx_arena_printf(arena, "%s%s", joined[i].path, scales_name), i);
    }
    return true;
}

bool ckpt_join_codes(MxArena *arena, CkptFile *f, MxError *err) {
    char **text = mx_new_n(arena, char *, f->n + 1);
    MxH5Array *arrays = mx_new_n(arena, MxH5Array, f->n + 1);
    MxQuant *quants = mx_new_n(arena, MxQuant, f->n + 1);
    MxMap gone;
    int n = 0;
    mx_map_init(&gone, arena);
    if (!read_texts(arena, f, text, err) || !join_all(arena, f, text, arrays, quants, &gone, err))
        return false;
    for (int i = 0; i < f->n; i++) {
        if (mx_map_get(&gone, f->arrays[i].path, -1) >= 0) continue;
        arrays[n] = text[i] ? arrays[i] : f->arrays[i];
        quants[n++] = quants[i];
    }
    f->arrays = arrays;
    f->quants = quants;
    f->n = n;
    return true;
}

MxQuant ckpt_quant_in_stack(MxQuant layer, int scan_dim) {
    if (scan_dim >= 0 && scan_dim <= layer.dim) layer.dim++;
    return layer;
}

MxQuant ckpt_quant_of_layer(MxQuant stacked, int scan_dim) {
    if (scan_dim >= 0 && scan_dim < stacked.dim) stacked.dim--;
    return stacked;
}

/* ---- reading */

static MxBox box_of_codes(MxQuant quant, MxBox box) {
    int last = box.rank - 1;
    int64_t codes = mx_quant_codes(quant, ckpt_box_shape(&box)).dim[last];
    if (codes) box.start[last] /= box.count[last] / codes;
    box.count[last] = codes;
    return box;
}

static MxBox box_of_scales(MxQuant quant, MxBox box) {
    box.start[quant.dim] /= quant.tile;
    box.count[quant.dim] /= quant.tile;
    return box;
}

bool ckpt_read_codes(const CkptFile *f, int entry, MxBox box, uint8_t *codes, float *scales,
                     MxError *err) {
    MxArena arena = {.name = "path"};
    MxQuant quant = f->quants[entry];
    const char *path = mx_path_join(&arena, f->ref.group, f->arrays[entry].path);
    mx_store_guard_rearm(f->ref.path);
    bool ok = mx_h5_read_box(f->file, mx_arena_printf(&arena, "%s%s", path, codes_name), MX_U8,
                             box_of_codes(quant, box), codes, err) &&
              mx_h5_read_box(f->file, mx_arena_printf(&arena, "%s%s", path, scales_name), MX_F32,
                             box_of_scales(quant, box), scales, err);
    mx_arena_release(&arena);
    return ok;
}

static void convert(const float *from, int64_t n, MxDtype dtype, void *to) {
    MX_ASSERT(dtype == MX_F32 || dtype == MX_BF16 || dtype == MX_F64);
    for (int64_t i = 0; i < n; i++) {
        if (dtype == MX_F32) ((float *)to)[i] = from[i];
        if (dtype == MX_BF16) ((MxBf16 *)to)[i] = mx_f32_to_bf16(from[i]);
        if (dtype == MX_F64) ((double *)to)[i] = (double)from[i];
    }
}

bool ckpt_read_coded(const CkptFile *f, int entry, MxBox box, MxDtype dtype, void *out,
                     MxError *err) {
    MxArena arena = {.name = "codes"};
    MxQuant quant = f->quants[entry];
    MxBox whole = mx_quant_blocks(quant, box);
    MxShape shape = ckpt_box_shape(&whole);
    float *x = mx_new_n(&arena, float, mx_shape_count(shape) + 1);
    float *values = mx_new_n(&arena, float, mx_box_count(&box) + 1);
    float *scales = mx_new_n(&arena, float, mx_shape_count(mx_quant_scales(quant, shape)) + 1);
    uint8_t *codes = mx_new_n(&arena, uint8_t, mx_shape_count(mx_quant_codes(quant, shape)) + 1);
    bool ok = ckpt_read_codes(f, entry, whole, codes, scales, err);
    if (ok) {
        mx_dequantize(quant, shape, codes, scales, x);
        mx_box_copy(&box, &whole, x, &box, values, sizeof *values);
        convert(values, mx_box_count(&box), dtype, out);
    }
    mx_arena_release(&arena);
    return ok;
}

/* ---- writing */

bool ckpt_make_codes(MxH5 *file, const char *path, MxQuant quant, MxShape shape, MxError *err) {
    MxArena arena = {.name = "path"};
    const char *codes = mx_arena_printf(&arena, "%s%s", path, codes_name);
    const char *scales = mx_arena_printf(&arena, "%s%s", path, scales_name);
    bool ok = mx_h5_make(file, codes, MX_U8, mx_quant_codes(quant, shape), err) &&
              mx_h5_set_attr(file, codes, attribute, text_of(&arena, quant), err) &&
              mx_h5_make(file, scales, MX_F32, mx_quant_scales(quant, shape), err);
    mx_arena_release(&arena);
    return ok;
}

bool ckpt_write_codes(MxH5 *file, const char *path, MxQuant quant, MxBox box, const uint8_t *codes,
                      const float *scales, MxError *err) {
    MxArena arena = {.name = "path"};
    bool ok = mx_h5_write_box(file, mx_arena_printf(&arena, "%s%s", path, codes_name),
                              box_of_codes(quant, box), codes, err) &&
              mx_h5_write_box(file, mx_arena_printf(&arena, "%s%s", path, scales_name),
                              box_of_scales(quant, box), scales, err);
    mx_arena_release(&arena);
    return ok;
}
