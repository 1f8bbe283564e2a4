/* test_sounds.c — models that hear sounds: against transformers (scripts/golden_hears.py), in
 * training and in replies. */
#include "close.h"
#include "golden.h"
#include "train_test.h"

#include <mx/ckpt_hf.h>
#include <mx/generate.h>

#include <check.h>
#include <math.h>
#include <stdlib.h>

#define FOLDER "sounds/qwen3_omni_hears"
#define GOLDEN FOLDER "/expected.h5"

enum { ROWS = 2, LENGTH = 48, EVERY = 12, VOCAB = 64, CHUNKS = 3, FRAMES = 100, BINS = 9 };
enum { MOST_SOUNDS = 2 };

/* Frames of the sounds of each row; and patches of the picture of the first row. */
static const int32_t sounds[ROWS][MOST_SOUNDS] = {{230}, {70, 150}};
static const MxVisionGrid grids[ROWS] = {{2, 4}};

typedef struct Hears {
    MxArena arena;
    MxError err;
    MxH5 *file;
    MxConfig *config;
    MxTrainState *state;
    MxTree *tree;
    MxBatch batch;
} Hears;

static void read_ids(Hears *h, const char *name, int32_t *out) {
    int64_t n;
    const float *ids = golden_read(&h->arena, h->file, name, &n);
    ck_assert_int_eq(n, ROWS * LENGTH);
    for (int64_t i = 0; i < n; i++) out[i] = (int32_t)ids[i];
}

/* Element i of all sounds, as the script has it. */
static float frame_value(int64_t i) {
    return (float)((37 * i * i + 11 * i) % 101 % 33 - 16) / 16;
}

static void put_sounds(MxBatch *batch) {
    int64_t at = 0;
    for (int b = 0; b < ROWS; b++) {
        int64_t chunk = (int64_t)b * CHUNKS;
        for (int s = 0; s < MOST_SOUNDS; s++)
            for (int32_t left = sounds[b][s]; left > 0; left -= FRAMES, chunk++) {
                batch->left[chunk] = left;
                float *to = batch->frames + chunk * FRAMES * BINS;
                for (int i = 0; i < (left < FRAMES ? left : FRAMES) * BINS; i++)
                    to[i] = frame_value(at++);
            }
    }
}

/* The tokens behind each row's prompt count. */
static void read_batch(Hears *h) {
    static const int prompt[ROWS] = {41, 37};
    const MxVision v = mx_model_vision(h->config);
    const MxHearing hearing = mx_model_hearing(h->config);
    const MxBatchPart part = {.rows = ROWS,
                              .of_rows = ROWS,
                              .length = LENGTH,
                              .pixels = mx_vision_row(&v),
                              .grids = mx_vision_grids(&v),
                              .frames = mx_audio_row(&hearing),
                              .chunks = hearing.chunks,
                              .has_mrope = v.has_mrope};
    int64_t n;
    MxBatch *batch = &h->batch;
    ck_assert_int_eq(hearing.chunks, CHUNKS);
    *batch = mx_batch_new_part(&h->arena, &part);
    read_ids(h, "inputs", batch->field[MX_INPUTS]);
    read_ids(h, "image", batch->image);
    for (int i = 0; i < ROWS * LENGTH; i++) {
        int b = i / LENGTH, t = i % LENGTH;
        bool counts = t >= prompt[b] - 1 && t < LENGTH - 1;
        batch->field[MX_TARGETS][i] = counts ? batch->field[MX_INPUTS][i + 1] : 0;
        batch->field[MX_TARGETS_SEGMENTATION][i] = counts;
        batch->field[MX_INPUTS_SEGMENTATION][i] = 1;
        batch->field[MX_INPUTS_POSITION][i] = batch->field[MX_TARGETS_POSITION][i] = t;
    }
    const float *pixels = golden_read(&h->arena, h->file, "pixels", &n);
    ck_assert_int_eq(n, part.pixels);
    memcpy(batch->pixels, pixels, (size_t)n * sizeof *pixels);
    memcpy(batch->grids, grids, sizeof grids);
    put_sounds(batch);
    for (int b = 0; b < ROWS; b++) {
        int32_t *row[MX_MROPE_KINDS];
        for (int k = 0; k < MX_MROPE_KINDS; k++) row[k] = batch->mrope[k] + b * LENGTH;
        mx_vision_mrope(&v, batch->grids + b, batch->image + b * LENGTH,
                        batch->field[MX_INPUTS_POSITION] + b * LENGTH, LENGTH, row);
    }
}

static bool open_hears(Hears *h, const char *more) {
    *h = (Hears){.arena = {.name = "hears"}};
    h->file = golden_open(&h->arena, GOLDEN);
    if (!h->file) return false;
    h->config = golden_yaml_config(&h->arena, h->file, "",
                                   mx_arena_printf(&h->arena,
                                                   "max_target_length=48 per_device_batch_size=2 "
                                                   "dataset_type=synthetic steps=10 %s",
                                                   more));
    ck_assert_msg(mx_train_state_open(&h->arena, h->config, &h->state, &h->err), "%s",
                  h->err.text.data);
    mx_train_state_init(h->state);
    h->tree = mx_train_state_tree(h->state);
    MxHeadForm heads = mx_model_head_form(mx_train_state_model(h->state));
    const char *dir = goldens_need(&h->arena, FOLDER);
    ck_assert_msg(mx_hf_load_for(dir, NULL, h->config, heads, h->tree, &h->err), "%s",
                  h->err.text.data);
    close_nudge(h->tree);
    mx_train_state_restored(h->state);
    read_batch(h);
    ck_assert(mx_train_before_batch(h->state, false, 0, &h->batch, &h->err));
    return true;
}

static Close figure(Hears *h, CloseKind kind, const char *what) {
    char *noise = NULL;
    const char *name = kind == CLOSE_GRADIENT ? "noise_gradient" : "noise_logits";
    ck_assert(mx_h5_attr(&h->arena, h->file, "", name, &noise, &h->err));
    return (Close){
        .golden = GOLDEN, .kind = kind, .what = what, .original = noise ? strtod(noise, NULL) : 0};
}

static int by_path(const void *a, const void *b) {
    return strcmp((*(const MxLeaf *const *)a)->path, (*(const MxLeaf *const *)b)->path);
}

/* Those of the encoder, in the order of their paths. What is frozen has none. */
static void check_gradients(Hears *h, bool frozen) {
    MxTree tree = golden_gradient_tree(&h->arena, h->state);
    const MxLeaf **leaf = mx_new_n(&h->arena, const MxLeaf *, tree.n);
    int n = 0;
    int64_t n_want, at = 0;
    for (int i = 0; i < tree.n; i++)
        if (strstr(tree.leaves[i].path, "audio_encoder/")) leaf[n++] = &tree.leaves[i];
    qsort(leaf, (size_t)n, sizeof *leaf, by_path);
    const float *want = golden_read(&h->arena, h->file, "grads", &n_want);
    for (int i = 0; i < n; i++) {
        int64_t count = mx_shape_count(leaf[i]->shape);
        bool is_tower = strstr(leaf[i]->path, "Qwen3OmniAudioEncoder_0") != NULL;
        ck_assert_msg((leaf[i]->data != NULL) == !(frozen && is_tower), "%s", leaf[i]->path);
        Close c = figure(h, CLOSE_GRADIENT, leaf[i]->path);
        const float *got = leaf[i]->data;
        ck_assert_int_le(at + count, n_want);
        if (got && mx_text_has_suffix(leaf[i]->path, "/key/bias")) /* rounding alone, in both */
            for (int64_t k = 0; k < count; k++)
                ck_assert_msg(fabsf(got[k]) < 1e-6f, "%s", leaf[i]->path);
        else if (got)
            close_array(&c, got, want + at, count);
        at += count;
    }
    ck_assert_int_eq(at, n_want);
}

static const char *const forms[] = {
    "freeze_audio_encoder_params=false", "freeze_audio_encoder_params=true",
    "freeze_audio_encoder_params=false remat_policy=full",
    "freeze_audio_encoder_params=false per_device_batch_size=1 gradient_accumulation_steps=2"};

START_TEST(gradients_are_those_of_transformers) {
    Hears h;
    int64_t n;
    if (!open_hears(&h, forms[_i])) return;
    MxLoss loss = mx_train_loss_and_grad(h.state, &h.batch);
    Close c = figure(&h, CLOSE_LOSS, "loss");
    const float *want = golden_read(&h.arena, h.file, "loss", &n);
    close_number(&c, loss.loss, (double)*want);
    check_gradients(&h, strstr(forms[_i], "=true") != NULL);
    mx_arena_release(&h.arena);
}
END_TEST

static MxPrompt prompt_of(const Hears *h, int b) {
    MxPrompt p = {.tokens = {h->batch.field[MX_INPUTS] + b * LENGTH, LENGTH},
                  .image = h->batch.image + b * LENGTH,
                  .views = {.n = b == 0,
                            .pixels = h->batch.pixels + b * h->batch.part.pixels,
                            .grids = h->batch.grids + b,
                            .chunks = CHUNKS,
                            .frames = h->batch.frames + b * h->batch.part.frames,
                            .left = h->batch.left + b * CHUNKS}};
    return p;
}

/* Of a prompt the rows of sounds stand behind those of its own images. */
static void renumber(Hears *h, MxPrompt *p) {
    const MxVision v = mx_model_vision(h->config);
    int32_t *image = mx_new_n(&h->arena, int32_t, LENGTH);
    for (int i = 0; i < LENGTH; i++) {
        bool is_sound = p->image[i] > mx_vision_rows(&v);
        image[i] =
            p->image[i] - (is_sound ? (int32_t)(mx_vision_rows(&v) - p->views.n * v.tokens) : 0);
    }
    p->image = image;
}

/* In pieces of several lengths. */
START_TEST(logits_are_those_of_transformers) {
    static const int64_t chunks[] = {5, 17, 48};
    Hears h;
    MxSource source;
    MxTrainState *state;
    int64_t n;
    const char *dir = "load_parameters_path=" GOLDENS_HERE "/" FOLDER;
    if (!open_hears(&h, dir)) return;
    const MxGeneration what = {
        .rows = 1, .capacity = LENGTH, .chunk = chunks[_i], .all_logits = true, .seen = LENGTH};
    ck_assert_msg(
        mx_source_find(&h.arena, NULL, true, (MxWeights){.config = h.config}, &source, &h.err) &&
            mx_source_open(&h.arena, &source, what, &state, &h.err),
        "%s", h.err.text.data);
    const float *want = golden_read(&h.arena, h.file, "logits", &n);
    ck_assert_int_eq(n, ROWS * LENGTH / EVERY * VOCAB);
    for (int b = 0; b < ROWS; b++) {
        float *got;
        MxPrompt p = prompt_of(&h, b);
        renumber(&h, &p);
        ck_assert(mx_generate_logits(&h.arena, state, &p, &got, &h.err));
        for (int i = 0; i < LENGTH / EVERY; i++, want += VOCAB) {
            Close c = figure(&h, CLOSE_LOGITS, "logits");
            close_array(&c, got + i * EVERY * VOCAB, want, VOCAB);
        }
    }
    mx_arena_release(&h.arena);
}
END_TEST

Suite *sounds_suite(void) {
    Suite *suite = suite_create("sounds");
    TCase *tcase = tcase_create("sounds");
    tcase_set_timeout(tcase, 120);
    tcase_add_loop_test(tcase, gradients_are_those_of_transformers, 0, MX_COUNT(forms));
    tcase_add_loop_test(tcase, logits_are_those_of_transformers, 0, 3);
    suite_add_tcase(suite, tcase);
    return suite;
}
