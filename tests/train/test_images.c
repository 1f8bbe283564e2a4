/* test_images.c — models that see images: against transformers (scripts/golden_sees.py), and a run
 * on records that name files. */
#include "close.h"
#include "common/saving.h"
#include "golden.h"
#include "train_test.h"

#include <mx/ckpt_peft.h>

#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* A model, and the biases of keys of its tower where nothing turns them. */
typedef struct Eye {
    const char *folder, *golden, *tower, *keys;
} Eye;

static const Eye eyes[] = {
    {"images/gemma3_sees", "images/gemma3_sees/expected.h5", "Gemma3VisionEncoderLayer_0",
     "MultiHeadDotProductAttention_0/key/bias"},
    {"images/llama4_sees", "images/llama4_sees/expected.h5", "Llama4VisionModel_0", NULL},
    {"images/gemma4_sees", "images/gemma4_sees/expected.h5", "Gemma4VisionEncoderLayer_0", NULL},
    {"images/qwen3_vl_sees", "images/qwen3_vl_sees/expected.h5", "Qwen3VLVisionEncoder_0", NULL},
    {"images/qwen3_vl_moe_sees", "images/qwen3_vl_moe_sees/expected.h5", "Qwen3VLVisionEncoder_0",
     NULL},
    {"images/qwen3_5_sees", "images/qwen3_5_sees/expected.h5", "Qwen3_5MoeVisionEncoder_0", NULL},
    {"images/qwen3_omni_sees", "images/qwen3_omni_sees/expected.h5", "Qwen3OmniMoeVisionEncoder_0",
     NULL},
};

typedef struct Sees {
    const Eye *eye;
    MxArena arena;
    MxError err;
    MxH5 *file;
    MxConfig *config;
    MxTrainState *state;
    MxTree *tree;
    MxBatch batch;
} Sees;

/* The part of a dataset that is a parameter's. */
static const float *part_of(Sees *s, const char *dataset, const MxLeaf *leaf) {
    char *names = NULL;
    int64_t n, at = 0;
    const char *path = leaf->path + strlen("model/");
    size_t bytes = strlen(path);
    ck_assert(mx_h5_attr(&s->arena, s->file, "", "names", &names, &s->err) && names);
    const float *all = golden_read(&s->arena, s->file, dataset, &n);
    for (const char *line = names; *line; line = strchr(line, '\n') + 1) {
        int64_t count = strtoll(strchr(line, ' '), NULL, 10);
        bool is_it = !strncmp(line, path, bytes) && line[bytes] == ' ';
        ck_assert_msg(!is_it || count == mx_shape_count(leaf->shape), "%s", path);
        if (is_it) return all + at;
        at += count;
    }
    ck_assert_msg(strncmp(path, "vision_encoder/", 15), "no %s", path);
    return NULL; /* of the decoder alone, which goldens of its family have */
}

static void read_grids(Sees *s, MxBatch *batch) {
    int64_t n;
    const float *sides = golden_read(&s->arena, s->file, "batch/grids", &n);
    ck_assert_int_eq(n, 2 * batch->rows * batch->part.grids);
    for (int64_t i = 0; i < n / 2; i++)
        batch->grids[i] = (MxVisionGrid){(int32_t)sides[2 * i], (int32_t)sides[2 * i + 1]};
}

static void read_batch(Sees *s) {
    MxArena *arena = &s->arena;
    int64_t n;
    s->batch = golden_batch(arena, s->file, "batch", 0);
    MxBatchPart part = s->batch.part;
    MxVision v = mx_model_vision(s->config);
    part.pixels = mx_vision_row(&v);
    part.grids = mx_vision_grids(&v);
    part.has_mrope = v.has_mrope;
    MxBatch with = mx_batch_new_part(arena, &part);
    memcpy(with.field, s->batch.field, sizeof with.field);
    const float *image = golden_read(arena, s->file, "batch/image", &n);
    for (int64_t i = 0; i < n; i++) with.image[i] = (int32_t)image[i];
    const float *pixels = golden_read(arena, s->file, "batch/pixels", &n);
    ck_assert_int_eq(n, part.rows * part.pixels);
    memcpy(with.pixels, pixels, (size_t)n * sizeof *pixels);
    if (with.grids) read_grids(s, &with);
    for (int64_t b = 0; part.has_mrope && b < part.rows; b++) {
        int32_t *row[MX_MROPE_KINDS];
        for (int k = 0; k < MX_MROPE_KINDS; k++) row[k] = with.mrope[k] + b * with.length;
        mx_vision_mrope(&v, with.grids + b * part.grids, with.image + b * with.length,
                        with.field[MX_INPUTS_POSITION] + b * with.length, with.length, row);
    }
    s->batch = with;
}

/* A state with initial parameters. */
static bool open_state(Sees *s, const Eye *eye, const char *more) {
    *s = (Sees){.eye = eye, .arena = {.name = "sees"}};
    s->file = golden_open(&s->arena, eye->golden);
    if (!s->file) return false;
    s->config = golden_yaml_config(
        &s->arena, s->file, "",
        mx_arena_printf(&s->arena,
                        "max_target_length=24 per_device_batch_size=2 dataset_type=synthetic "
                        "steps=10 %s",
                        more));
    ck_assert_msg(mx_train_state_open(&s->arena, s->config, &s->state, &s->err), "%s",
                  s->err.text.data);
    mx_train_state_init(s->state);
    s->tree = mx_train_state_tree(s->state);
    return true;
}

static void begin(Sees *s) {
    mx_train_state_restored(s->state);
    read_batch(s);
    ck_assert(mx_train_before_batch(s->state, false, 0, &s->batch, &s->err));
}

/* A state with the file's parameters, and its batch. */
static bool open_sees(Sees *s, const Eye *eye, const char *more) {
    if (!open_state(s, eye, more)) return false;
    MxHeadForm heads = mx_model_head_form(mx_train_state_model(s->state));
    const char *dir = goldens_need(&s->arena, eye->folder);
    ck_assert_msg(mx_hf_load_for(dir, NULL, s->config, heads, s->tree, &s->err), "%s",
                  s->err.text.data);
    close_nudge(s->tree);
    ck_assert_msg(mx_train_start_adapters(s->state, &s->err), "%s", s->err.text.data);
    begin(s);
    return true;
}

/* original  how far its own runs are from each other, if the file tells it */
static Close figure(Sees *s, CloseKind kind, const char *what) {
    const char *name = kind == CLOSE_GRADIENT ? "noise_gradient" : "noise_logits";
    char *noise = NULL;
    ck_assert(mx_h5_attr(&s->arena, s->file, "", name, &noise, &s->err));
    return (Close){.golden = s->eye->golden,
                   .kind = kind,
                   .what = what,
                   .original = noise ? strtod(noise, NULL) : 0};
}

/* A bias of keys moves all scores of a query alike, of which softmax takes no notice: its gradient
 * is rounding alone, in both. */
static void check_nothing(const MxLeaf *leaf, const float *want) {
    const float *got = leaf->data;
    for (int64_t i = 0; i < mx_shape_count(leaf->shape); i++)
        ck_assert_msg(fabsf(got[i]) < 1e-6f && fabsf(want[i]) < 1e-6f, "%s", leaf->path);
}

static void check_gradients(Sees *s, bool frozen) {
    MxTree tree = golden_gradient_tree(&s->arena, s->state);
    for (int i = 0; i < tree.n; i++) {
        const MxLeaf *leaf = &tree.leaves[i];
        bool is_tower = strstr(leaf->path, s->eye->tower) != NULL;
        ck_assert_msg((leaf->data != NULL) == !(frozen && is_tower), "%s", leaf->path);
        if (!leaf->data) continue;
        Close c = figure(s, CLOSE_GRADIENT, leaf->path);
        const float *want = part_of(s, "grads", leaf);
        if (s->eye->keys && mx_text_has_suffix(leaf->path, s->eye->keys))
            check_nothing(leaf, want);
        else if (want)
            close_array(&c, leaf->data, want, mx_shape_count(leaf->shape));
    }
}

/* Of what is trained as it is beside adapters. */
static void check_wholes(Sees *s) {
    static const char suffix[] = "_lora_w";
    MxTree tree = golden_gradient_tree(&s->arena, s->state);
    int n_seen = 0;
    for (int i = 0; i < tree.n; i++) {
        MxLeaf leaf = tree.leaves[i];
        if (!mx_text_has_suffix(leaf.path, suffix)) continue;
        leaf.path = mx_arena_strndup(&s->arena, leaf.path, strlen(leaf.path) - strlen(suffix));
        Close c = figure(s, CLOSE_GRADIENT, leaf.path);
        const float *want = part_of(s, "grads", &leaf);
        if (s->eye->keys && mx_text_has_suffix(leaf.path, s->eye->keys))
            check_nothing(&leaf, want);
        else if (want)
            close_array(&c, leaf.data, want, mx_shape_count(leaf.shape));
        n_seen += want && strstr(leaf.path, s->eye->tower);
    }
    ck_assert_int_gt(n_seen, 0);
}

#define WHOLE                                                                                      \
    "lora.enable_lora=true lora.lora_rank=2 lora.lora_alpha=4 "                                    \
    "lora.lora_module_path=decoder/decoder_norm lora.modules_to_save=(?!decoder/decoder_norm).*"

static const char *const forms[] = {WHOLE, "freeze_vision_encoder_params=false",
                                    "freeze_vision_encoder_params=true",
                                    "freeze_vision_encoder_params=false remat_policy=full",
                                    "freeze_vision_encoder_params=false remat_policy=minimal"};

START_TEST(models_are_those_of_transformers) {
    Sees s;
    int64_t n;
    const char *form = forms[_i % MX_COUNT(forms)];
    if (!open_sees(&s, &eyes[_i / MX_COUNT(forms)], form)) return;
    MxLoss loss = mx_train_loss_and_grad(s.state, &s.batch);
    Close c = figure(&s, CLOSE_LOSS, "loss");
    const float *want = golden_read(&s.arena, s.file, "loss", &n);
    close_number(&c, loss.loss, (double)*want);
    if (!strcmp(form, WHOLE))
        check_wholes(&s);
    else
        check_gradients(&s, strstr(form, "=true") != NULL);
    want = golden_read(&s.arena, s.file, "logits", &n);
    c = figure(&s, CLOSE_LOGITS, "logits");
    const float *got = golden_logits(golden_program(&s.arena, s.config, false), s.tree, &s.batch);
    close_array(&c, got, want, n);
    mx_arena_release(&s.arena);
}
END_TEST

/* What peft holds of an encoder that is trained as it is comes back as it was. */
START_TEST(encoders_go_to_peft_and_back) {
    static const char more[] =
        "lora.enable_lora=true lora.lora_rank=2 lora.lora_alpha=4 "
        "lora.lora_module_path=decoder/.*query lora.modules_to_save=vision_encoder/.*";
    Sees s;
    MxCkptRef ref;
    MxText notes;
    if (!open_sees(&s, &eyes[_i], more)) return;
    MxHfModel model = mx_hf_of_config(s.config, mx_model_head_form(mx_train_state_model(s.state)));
    MxPeftConvert how = {.model = &model, .alpha = 4, .base = "base"};
    const char *dir = mx_arena_printf(&s.arena, "build/tests/peft_eye.%d", _i);
    const char *file = mx_arena_printf(&s.arena, "%s.h5", dir);
    void **before = mx_new_n(&s.arena, void *, s.tree->n);
    model.sees = true;
    mx_text_init(&notes, &s.arena);
    ck_assert_msg(mx_hf_see(&s.arena, goldens_need(&s.arena, eyes[_i].folder), &model, &s.err) &&
                      mx_dir_make(dir, &s.err) && save_file(&s.arena, file, s.tree, &ref, &s.err) &&
                      mx_peft_convert(&ref, &how, dir, &notes, &s.err),
                  "%s", s.err.text.data);
    for (int i = 0; i < s.tree->n; i++) {
        const MxLeaf *leaf = &s.tree->leaves[i];
        if (leaf->kind != MX_KIND_LORA_PARAM) continue;
        before[i] = golden_values(&s.arena, leaf);
        mx_leaf_write(leaf, mx_arena_alloc(&s.arena, mx_leaf_bytes(leaf)));
    }
    ck_assert_msg(mx_peft_load(dir, &model, 2, s.tree, &s.err), "%s", s.err.text.data);
    for (int i = 0; i < s.tree->n; i++) {
        const MxLeaf *leaf = &s.tree->leaves[i];
        double off = before[i] ? golden_max_abs(mx_leaf_values(&s.arena, leaf), before[i],
                                                mx_shape_count(leaf->shape))
                               : 0;
        ck_assert_msg(off <= 3e-7, "%s is off by %g", leaf->path, off); /* scales less 1 */
    }
    mx_arena_release(&s.arena);
}
END_TEST

/* MaxText's weight decay shrinks what it has frozen. With adapters the whole base is frozen. */
static const struct {
    const char *more, *moved; /* a part of the paths that change */
} steps[] = {
    {"freeze_vision_encoder_params=true adam_weight_decay=0.5", "VisionEmbedder_0/"},
    {"freeze_vision_encoder_params=false adam_weight_decay=0.5", "vision_encoder/"},
    {"lora.enable_lora=true lora.lora_rank=2 lora.lora_alpha=4", "_lora_"},
};

START_TEST(what_is_frozen_stays) {
    Sees s;
    int n_moved = 0;
    char more[256];
    snprintf(more, sizeof more, "%s learning_rate=0.1 warmup_steps_fraction=0", steps[_i].more);
    if (!open_sees(&s, &eyes[0], more)) return;
    float **before = mx_new_n(&s.arena, float *, s.tree->n);
    for (int i = 0; i < s.tree->n; i++)
        if (mx_text_has_prefix(s.tree->leaves[i].path, "model/"))
            before[i] = golden_values(&s.arena, &s.tree->leaves[i]);
    mx_train_loss_and_grad(s.state, &s.batch);
    mx_train_update(s.state);
    for (int i = 0; i < s.tree->n; i++) {
        const MxLeaf *leaf = &s.tree->leaves[i];
        bool is_lora = strstr(steps[_i].moved, "_lora_") != NULL;
        bool counts = mx_text_has_prefix(leaf->path, "model/") &&
                      (is_lora || strstr(leaf->path, "vision_encoder/"));
        if (!counts || mx_text_has_suffix(leaf->path, "key/bias")) continue;
        bool moves = memcmp(before[i], golden_values(&s.arena, leaf), mx_leaf_bytes(leaf)) != 0;
        bool may = strstr(leaf->path, steps[_i].moved) != NULL;
        ck_assert_msg(!moves || may, "%s", leaf->path);
        n_moved += moves;
    }
    ck_assert_int_gt(n_moved, 0);
    mx_arena_release(&s.arena);
}
END_TEST

/* Llama 4's layers that turn patches into tokens, of which training leaves values out; with all of
 * them left out tokens of images are zeros, and nothing of the encoder has a gradient. */
START_TEST(values_of_images_are_dropped) {
    static const char *const rates[] = {"0.0", "0.5", "0.5 gradient_accumulation_steps=2", "1.0"};
    double loss[MX_COUNT(rates)], eval[MX_COUNT(rates)];
    for (int r = 0; r < MX_COUNT(rates); r++) {
        Sees s;
        char more[128];
        bool is_split = strchr(rates[r], ' ') != NULL;
        snprintf(more, sizeof more,
                 "projector_dropout_for_vit=%s freeze_vision_encoder_params=false%s", rates[r],
                 is_split ? " per_device_batch_size=1" : "");
        if (!open_sees(&s, &eyes[1], more)) return;
        loss[r] = mx_train_loss_and_grad(s.state, &s.batch).loss;
        eval[r] = mx_train_eval(s.state, &s.batch).loss;
        MxTree tree = golden_gradient_tree(&s.arena, s.state);
        for (int i = 0; i < tree.n; i++) {
            const MxLeaf *leaf = &tree.leaves[i];
            if (!leaf->data || !strstr(leaf->path, "vision_encoder/")) continue;
            double most = 0;
            for (int64_t k = 0; k < mx_shape_count(leaf->shape); k++)
                most = fmax(most, fabs((double)((const float *)leaf->data)[k]));
            ck_assert_msg((most > 0) == (r < 3), "%s", leaf->path);
        }
        mx_arena_release(&s.arena);
    }
    ck_assert(isfinite(loss[1]) && isfinite(loss[3]));
    ck_assert_double_gt(fabs(loss[1] - loss[0]), 1e-4);
    ck_assert_double_gt(fabs(loss[3] - loss[0]), 1e-4);
    ck_assert_double_gt(fabs(loss[3] - loss[1]), 1e-4);
    ck_assert_double_le(fabs(loss[2] - loss[1]), 1e-6);
    ck_assert_double_le(fabs(eval[0] - loss[0]), 1e-5);
    ck_assert(eval[1] == eval[0] && eval[3] == eval[0]);
}
END_TEST

/* What MaxText's _posemb_sincos_2d has for patch i of a square of n by n, column d of D. */
static double wave(int64_t i, int64_t n, int64_t d, int64_t D) {
    int64_t quarter = D / 4, part = d / quarter;
    double at = (double)(part < 2 ? i % n : i / n);
    double angle = at / pow(10000, (double)(d % quarter) / (double)(quarter - 1));
    return part % 2 ? cos(angle) : sin(angle);
}

/* The learned positions; NULL = they are fixed. */
static const MxLeaf *positions_of(const Sees *s) {
    for (int i = 0; i < s->tree->n; i++) {
        const MxLeaf *leaf = &s->tree->leaves[i];
        bool is_model = mx_text_has_prefix(leaf->path, "model/");
        if (is_model && mx_text_has_suffix(leaf->path, "/pos_embedding")) return leaf;
    }
    return NULL;
}

/* Fixed positions of patches are the same model as learned ones with such values. */
START_TEST(positions_of_patches_are_waves) {
    Sees learned, fixed;
    if (!open_sees(&learned, &eyes[0], "freeze_vision_encoder_params=false")) return;
    const MxLeaf *leaf = positions_of(&learned);
    int64_t P = leaf->shape.dim[1], D = leaf->shape.dim[2];
    float *value = mx_new_n(&learned.arena, float, P *D);
    for (int64_t k = 0; k < P * D; k++)
        value[k] = (float)wave(k / D, llround(sqrt((double)P)), k % D, D);
    mx_leaf_write(leaf, value);
    ck_assert(open_state(&fixed, &eyes[0],
                         "freeze_vision_encoder_params=false posemb_type_for_vit=sincos2d"));
    ck_assert_ptr_null(positions_of(&fixed));
    for (int i = 0; i < fixed.tree->n; i++) {
        const MxLeaf *to = &fixed.tree->leaves[i];
        const MxLeaf *from = &learned.tree->leaves[mx_tree_find(learned.tree, to->path)];
        mx_leaf_write(to, mx_leaf_values(&learned.arena, from));
    }
    mx_train_state_restored(learned.state);
    begin(&fixed);
    double want = mx_train_loss_and_grad(learned.state, &learned.batch).loss;
    double got = mx_train_loss_and_grad(fixed.state, &fixed.batch).loss;
    ck_assert_double_le(fabs(got - want), 1e-6 * want);
    MxTree ours = golden_gradient_tree(&fixed.arena, fixed.state);
    MxTree theirs = golden_gradient_tree(&learned.arena, learned.state);
    for (int i = 0; i < ours.n; i++) {
        const MxLeaf *a = &ours.leaves[i], *b = &theirs.leaves[mx_tree_find(&theirs, a->path)];
        ck_assert(a->data && b->data);
        Close c = figure(&fixed, CLOSE_GRADIENT, a->path);
        if (!mx_text_has_suffix(a->path, eyes[0].keys))
            close_array(&c, a->data, b->data, mx_shape_count(a->shape));
    }
    mx_arena_release(&fixed.arena);
    mx_arena_release(&learned.arena);
}
END_TEST

Suite *images_suite(void) {
    Suite *suite = suite_create("images");
    TCase *tcase = tcase_create("images");
    tcase_set_timeout(tcase, 120);
    tcase_add_loop_test(tcase, models_are_those_of_transformers, 0,
                        MX_COUNT(eyes) * MX_COUNT(forms));
    tcase_add_loop_test(tcase, encoders_go_to_peft_and_back, 0, MX_COUNT(eyes));
    tcase_add_loop_test(tcase, what_is_frozen_stays, 0, MX_COUNT(steps));
    tcase_add_test(tcase, values_of_images_are_dropped);
    tcase_add_test(tcase, positions_of_patches_are_waves);
    suite_add_tcase(suite, tcase);
    return suite;
}
