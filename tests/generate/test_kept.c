/* test_kept.c — caches that have keys and values in few bits: against MaxText's, and models that
 * generate from them. */
#include "common/families.h"
#include "common/goldens.h"
#include "common/vars.h"
#include "generate_test.h"

#include <mx/model.h>

#include <math.h>

static MxArena arena = {.name = "kept"};

static void tear_down(void) {
    mx_arena_release(&arena);
}

/* ---- one attention */

enum { CASES = 8, ASKED = 3 /* of the last tokens */ };
static MxH5 *file;

static const float *array(const char *path, MxShape *shape) {
    MxError err = {0};
    MxH5Array found;
    ck_assert_msg(mx_h5_stat(file, path, &found, &err), "%s", err.text.data);
    float *data = mx_new_n(&arena, float, mx_shape_count(found.shape) + 1);
    ck_assert_msg(mx_h5_read(file, path, MX_F32, found.shape, data, &err), "%s", err.text.data);
    *shape = found.shape;
    return data;
}

/* Case i of what the file has of all. */
static const float *of_case(const char *name, int i) {
    MxShape shape;
    const float *all = array(mx_path_join(&arena, "cases", name), &shape);
    return all + mx_shape_count(shape) / shape.dim[0] * i;
}

static const char *text_of(int i, const char *name) {
    MxError err = {0};
    char *text = NULL;
    mx_h5_attr(&arena, file, "cases", mx_arena_printf(&arena, "%d_%s", i, name), &text, &err);
    ck_assert(text != NULL);
    return text;
}

typedef struct Attended {
    MxVars vars;
    MxRun *run;
    MxShape q, k;
    MxDtype dtype;
    MxCacheCodesAttr how;
    struct {
        int q, o, kv[2], cache[2], places[4];
    } vars_of;
} Attended;

static int add(Attended *a, const char *name, MxDtype dtype, MxShape shape) {
    return mx_vars_add(&a->vars, name, (MxType){dtype, shape});
}

static void fill(const Attended *a, int var, const float *x, int64_t n) {
    MxBf16 *narrow = mx_new_n(&arena, MxBf16, n + 1);
    for (int64_t i = 0; i < n; i++) narrow[i] = mx_f32_to_bf16(x[i]);
    var_fill(a->run, var, a->dtype == MX_F32 ? (const void *)x : narrow);
}

static float number(const void *at, MxDtype dtype) {
    float wide;
    MxBf16 narrow;
    if (dtype == MX_F32) return memcpy(&wide, at, sizeof wide), wide;
    return memcpy(&narrow, at, sizeof narrow), mx_bf16_to_f32(narrow);
}

/* A token's position in each sequence, and which these are. */
static void fill_places(const Attended *a, const int vars[4], int64_t T) {
    enum { MOST = 64 };
    int32_t all[MOST], asked[MOST], counts[MOST], sequences[MOST];
    for (int64_t b = 0; b < a->k.dim[0]; b++) {
        counts[b] = (int32_t)T, sequences[b] = (int32_t)b;
        for (int64_t t = 0; t < T; t++) all[b * T + t] = (int32_t)t;
        for (int64_t t = 0; t < ASKED; t++) asked[b * ASKED + t] = (int32_t)(T - ASKED + t);
    }
    const int32_t *values[] = {all, asked, counts, sequences};
    for (int i = 0; i < MX_COUNT(values); i++) var_fill(a->run, vars[i], values[i]);
}

static void check_codes(const Attended *a, int i, const uint8_t *rows, int64_t row_bytes) {
    const float *codes = of_case("codes", i), *scales = of_case("scales", i);
    int64_t H = a->k.dim[3], half = (H + 1) / 2, n = mx_shape_count(a->k) / H;
    bool is_int8 = a->how.type == MX_INT8;
    for (int64_t row = 0; row < n; row++) {
        const uint8_t *own = rows + row * row_bytes;
        for (int64_t h = 0; h < H; h++) {
            int nibble = h < half ? own[h] & 15 : own[h - half] >> 4;
            int code = is_int8 ? (int8_t)own[h] : nibble > 7 ? nibble - 16 : nibble;
            ck_assert_msg(code == (int)codes[row * H + h], "%d: row %d, element %d: %d, wanted %g",
                          i, (int)row, (int)h, code, (double)codes[row * H + h]);
        }
        float scale = number(own + (is_int8 ? H : half), a->dtype);
        ck_assert_msg(fabsf(scale - scales[row]) <= (a->dtype == MX_F32 ? 2e-7f * scale : 0),
                      "%d: row %d: scale %.9g, wanted %.9g", i, (int)row, (double)scale,
                      (double)scales[row]);
    }
}

/* What attention over the caches gives. */
static void check_attended(const Attended *a, int i) {
    const char *got = var_values(&arena, a->run, a->vars_of.o);
    const float *wanted = of_case("o", i);
    int64_t n = a->k.dim[0] * ASKED * a->q.dim[2] * a->q.dim[3];
    double error = 0, size = 0;
    for (int64_t k = 0; k < n; k++) {
        double x = (double)number(got + (size_t)k * mx_dtype_bytes(a->dtype), a->dtype);
        error += (x - (double)wanted[k]) * (x - (double)wanted[k]);
        size += (double)wanted[k] * (double)wanted[k];
    }
    ck_assert_msg(sqrt(error / size) < (a->dtype == MX_F32 ? 1e-6 : 1.5e-2), "%d: off by %g", i,
                  sqrt(error / size));
}

static void declare(Attended *a) {
    int64_t B = a->k.dim[0], T = a->k.dim[1], H = a->k.dim[3];
    MxShape rows = a->k, out = MX_SHAPE(B, ASKED, a->q.dim[2], H);
    rows.dim[3] = mx_cache_row_bytes(a->how.type, H, a->dtype);
    a->vars_of.q = add(a, "q", a->dtype, out), a->vars_of.o = add(a, "o", a->dtype, out);
    for (int i = 0; i < 2; i++) {
        a->vars_of.kv[i] = add(a, "kv", a->dtype, a->k);
        a->vars_of.cache[i] = add(a, "cache", MX_U8, rows);
    }
    const MxShape places[] = {MX_SHAPE(B, T), MX_SHAPE(B, ASKED), MX_SHAPE(B), MX_SHAPE(B)};
    for (int i = 0; i < MX_COUNT(places); i++)
        a->vars_of.places[i] = add(a, "place", MX_I32, places[i]);
}

static void trace(Attended *a, MxTrace *t) {
    const int *places = a->vars_of.places, *cache = a->vars_of.cache;
    const MxAttentionAttr attr = {.scale = 1, .kept = a->how.type, .value_width = a->k.dim[3]};
    MxCachePlace place = {.positions = mx_variable(t, places[0]),
                          .counts = mx_variable(t, places[2]),
                          .sequences = mx_variable(t, places[3])};
    MxValue in[3] = {mx_variable(t, a->vars_of.q)};
    for (int i = 0; i < 2; i++) {
        MxValue codes = mx_cache_codes(t, mx_variable(t, a->vars_of.kv[i]), a->how);
        in[1 + i] = mx_cache_write(t, mx_variable(t, cache[i]), codes, place);
        mx_trace_assign(t, in[1 + i], cache[i], false);
    }
    place.positions = mx_variable(t, places[1]);
    mx_trace_assign(t, mx_cache_attention(t, in, place, MX_NONE, attr), a->vars_of.o, false);
}

static void run(Attended *a) {
    MxError err = {0};
    MxDevice *device;
    MxTrace t;
    MxGraph *graph = mx_graph_new(&arena, "test", &a->vars);
    mx_trace_begin(&t, graph);
    trace(a, &t);
    bool ok = mx_trace_end(&t, &err) &&
              mx_device_open(&arena, &(MxDeviceConfig){0}, &device, &err) &&
              mx_run_open(&arena, device, &a->vars, &graph, 1, MX_REMAT_NONE, &a->run, &err);
    ck_assert_msg(ok, "%s", ok ? "" : err.text.data);
}

/* Codes and scales are MaxText's; what attention makes of them is as near as its products of
 * bfloat16 and int8 are rounded. */
START_TEST(caches_are_maxtexts) {
    const char *path = goldens_find(&arena, "train/kv_quant.h5");
    MxError err = {0};
    if (!path) return;
    ck_assert_msg(mx_h5_open(&arena, path, &file, &err), "%s", err.text.data);
    Attended a = {.vars.arena = &arena};
    const float *q = array("q", &a.q), *k = array("k", &a.k), *v = array("v", &a.k);
    ck_assert(mx_dtype_parse(text_of(_i, "dtype"), &a.dtype));
    ck_assert(mx_qtype_parse(text_of(_i, "bits"), &a.how.type));
    a.how.spans_heads = !strcmp(text_of(_i, "axis"), "heads_and_dkv");
    declare(&a);
    run(&a);
    int64_t B = a.k.dim[0], T = a.k.dim[1], row = a.q.dim[2] * a.q.dim[3], n = ASKED * row;
    float *last = mx_new_n(&arena, float, B *n);
    for (int64_t b = 0; b < B; b++)
        memcpy(last + b * n, q + ((b + 1) * T - ASKED) * row, (size_t)n * sizeof *last);
    fill(&a, a.vars_of.q, last, B * n);
    fill(&a, a.vars_of.kv[0], k, mx_shape_count(a.k));
    fill(&a, a.vars_of.kv[1], v, mx_shape_count(a.k));
    fill_places(&a, a.vars_of.places, T);
    mx_run_entry(a.run, 0);
    check_codes(&a, _i, var_values(&arena, a.run, a.vars_of.cache[0]),
                mx_cache_row_bytes(a.how.type, a.k.dim[3], a.dtype));
    check_attended(&a, _i);
}
END_TEST

/* ---- models */

static MxConfig *config_of(const char *model, const char *more) {
    enum { MOST = 64 };
    char *save, *words = mx_arena_printf(&arena, "%s max_target_length=40 sliding_window_size=9 %s",
                                         family_small(&arena, model), more);
    const char *files[] = {"configs/base.yml"}, *overrides[MOST];
    MxConfigRequest request = {.files = files, .n_files = 1, .overrides = overrides};
    MxError err = {0};
    MxConfig *config = NULL;
    for (char *w = strtok_r(words, " ", &save); w; w = strtok_r(NULL, " ", &save))
        overrides[request.n_overrides++] = w;
    ck_assert_msg(mx_config_load(&arena, &request, &config, &err), "%s", err.text.data);
    return config;
}

static bool open_state(MxConfig *config, MxGeneration what, MxTrainState **out, MxError *err) {
    if (!mx_train_state_open_generation(&arena, config, what, MX_NOT_QUANTIZED, out, err))
        return false;
    mx_train_state_init(*out);
    mx_train_state_restored(*out);
    return true;
}

enum { LENGTH = 31, VOCAB = 96 };

static double distance(const float *a, const float *b, int64_t n) {
    double error = 0, size = 0;
    for (int64_t i = 0; i < n; i++) {
        error += ((double)a[i] - (double)b[i]) * ((double)a[i] - (double)b[i]);
        size += (double)b[i] * (double)b[i];
    }
    return sqrt(error / size);
}

/* Logits of a text in pieces of some length. */
static const float *logits_of(MxConfig *config, int64_t chunk, size_t *buffers) {
    MxError err = {0};
    MxTrainState *s;
    int32_t ids[LENGTH];
    float *logits;
    const MxPrompt prompt = {.tokens = {ids, LENGTH}};
    for (int i = 0; i < LENGTH; i++) ids[i] = (i * 37 + 5) % VOCAB;
    MxGeneration what = {.rows = 3, .capacity = LENGTH, .chunk = chunk, .all_logits = true};
    ck_assert_msg(open_state(config, what, &s, &err), "%s", err.text.data);
    ck_assert(mx_generate_logits(&arena, s, &prompt, &logits, &err));
    *buffers = mx_train_state_bytes(s).buffers;
    return logits;
}

/* Of all families; those whose caches are of another kind say so. A last bit of an activation may
 * decide between two codes, and these between those of later layers: so what pieces of other
 * lengths make is only as near as what codes lose. */
START_TEST(pieces_make_the_same) {
    static const struct {
        const char *more;
        double near; /* to what floats make, relatively */
    } kinds[] = {{"quantize_kvcache=true kv_quant_axis=dkv", 0.15},
                 {"quantize_kvcache=true", 0.15},
                 {"quantize_kvcache=true kv_quant_dtype=int4", 1}};
    static const int64_t chunks[] = {20, 5, 1}; /* many queries, which meet caches in tiles; few */
    const char *model = family_model(_i);
    MxError err = {0};
    MxTrainState *s;
    const MxGeneration little = {.rows = 1, .capacity = 8, .chunk = 4};
    if (!model || !strncmp(model, "simple", strlen("simple"))) return; /* they do not attend */
    if (!open_state(config_of(model, kinds[0].more), little, &s, &err)) {
        ck_assert_msg(strstr(err.text.data, "quantize_kvcache: true, but caches have"), "%s",
                      err.text.data);
        ck_assert_msg(!strncmp(model, "deepseek", strlen("deepseek")), "%s", model);
        mx_error_release(&err);
        return;
    }
    size_t of_floats, of_codes;
    const float *floats = logits_of(config_of(model, ""), chunks[0], &of_floats);
    for (int kind = 0; kind < MX_COUNT(kinds); kind++) {
        const char *more = kinds[kind].more;
        const float *first = logits_of(config_of(model, more), chunks[0], &of_codes);
        double lost = distance(first, floats, LENGTH * VOCAB);
        ck_assert_msg(lost > 1e-6 && lost < kinds[kind].near, "%s %s: %g from floats", model, more,
                      lost);
        ck_assert_uint_lt(of_codes, of_floats);
        for (int i = 1; i < MX_COUNT(chunks); i++) {
            double off = distance(logits_of(config_of(model, more), chunks[i], &of_codes), first,
                                  LENGTH * VOCAB);
            ck_assert_msg(off < lost, "%s %s, pieces of %d: off by %g, codes lose %g", model, more,
                          (int)chunks[i], off, lost);
        }
    }
}
END_TEST

/* Eight prompts of unequal lengths in one batch, windows that are behind them; and one by one. */
START_TEST(sequences_together_reply_as_alone) {
    enum { N = 8, MORE = 9 };
    MxError err = {0};
    MxTrainState *all, *one;
    int32_t ids[N][LENGTH];
    MxPrompt prompts[N];
    MxReply together[N], alone[N];
    MxConfig *config = config_of("gemma2", "quantize_kvcache=true kv_quant_axis=dkv");
    MxGeneration what = {.rows = N, .capacity = LENGTH + MORE, .chunk = 6};
    for (int i = 0; i < N; i++) {
        prompts[i] = (MxPrompt){.tokens = {ids[i], 1 + (i * 11) % LENGTH}};
        for (int k = 0; k < LENGTH; k++) ids[i][k] = (3 + i * 31 + k * 17) % VOCAB;
    }
    const MxGenerate how = {.sampling = {.top_p = 1, .repetition_penalty = 1}, .max_tokens = MORE};
    bool ok = open_state(config, what, &all, &err);
    what.rows = 1;
    ok = ok && open_state(config, what, &one, &err) &&
         mx_generate(&arena, all, &how, prompts, N, together, &err) &&
         mx_generate(&arena, one, &how, prompts, N, alone, &err);
    ck_assert_msg(ok, "%s", ok ? "" : err.text.data);
    for (int i = 0; i < N; i++) {
        ck_assert_int_eq(together[i].tokens.n, MORE);
        for (int k = 0; k < MORE; k++) {
            ck_assert_msg(together[i].tokens.ids[k] == alone[i].tokens.ids[k],
                          "prompt %d, token %d", i, k);
            ck_assert_float_eq_tol(together[i].logprobs[k], alone[i].logprobs[k], 2e-4f);
        }
    }
}
END_TEST

Suite *kept_suite(void) {
    Suite *suite = suite_create("kept");
    TCase *tcase = tcase_create("caches");
    tcase_set_timeout(tcase, 120);
    tcase_add_checked_fixture(tcase, NULL, tear_down);
    tcase_add_loop_test(tcase, caches_are_maxtexts, 0, CASES);
    tcase_add_loop_test(tcase, pieces_make_the_same, 0, family_models());
    tcase_add_test(tcase, sequences_together_reply_as_alone);
    suite_add_tcase(suite, tcase);
    return suite;
}
