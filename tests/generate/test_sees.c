/* test_sees.c — replies to prompts with images against those of transformers
 * (scripts/golden_sees.py), whatever pieces the prompts come in, and records that name images. */
#include "common/goldens.h"
#include "generate_test.h"

#include <mx/model.h>

#include <math.h>

static MxArena arena = {.name = "test"};
static MxError err;

static void tear_down(void) {
    mx_error_release(&err);
    mx_arena_release(&arena);
}

/* ---- against transformers */

static const char *const models[] = {"gemma3_sees",    "llama4_sees",       "gemma4_sees",
                                     "qwen3_vl_sees",  "qwen3_vl_moe_sees", "qwen3_5_sees",
                                     "qwen3_omni_sees"};
enum { ROWS = 2, MORE = 48 };

/* Rows of a golden of training: all of their tokens, and what they see. */
typedef struct Golden {
    const char *dir;
    MxH5 *file;
    MxPrompt row[ROWS];
} Golden;

static void *read_array(MxH5 *file, const char *path, MxDtype dtype, MxShape *shape) {
    MxH5Array array;
    ck_assert_msg(mx_h5_stat(file, path, &array, &err), "%s", err.text.data);
    *shape = array.shape;
    void *data =
        mx_arena_alloc(&arena, (size_t)mx_shape_count(array.shape) * mx_dtype_bytes(dtype));
    ck_assert_msg(mx_h5_read(file, path, dtype, array.shape, data, &err), "%s", err.text.data);
    return data;
}

static MxTrainState *open_model(const char *dir, MxGeneration what) {
    MxSource source;
    MxTrainState *state;
    ck_assert_msg(mx_source_find(&arena, dir, true, (MxWeights){0}, &source, &err) &&
                      mx_source_open(&arena, &source, what, &state, &err),
                  "%s", err.text.data);
    return state;
}

static Golden golden_of(const char *model) {
    MxShape shape, values, grid;
    MxSource source;
    const char *path =
        goldens_need(&arena, mx_arena_printf(&arena, "images/%s/expected.h5", model));
    Golden g = {.dir = mx_path_dir(&arena, path)};
    ck_assert(mx_h5_open(&arena, path, &g.file, &err));
    ck_assert(mx_source_find(&arena, g.dir, true, (MxWeights){0}, &source, &err));
    const MxVision v = mx_model_vision(source.config);
    int32_t *ids = read_array(g.file, "batch/inputs", MX_I32, &shape);
    int32_t *image = read_array(g.file, "batch/image", MX_I32, &shape);
    float *pixels = read_array(g.file, "batch/pixels", MX_F32, &values);
    const MxVisionGrid *grids = NULL;
    if (mx_vision_grids(&v)) grids = read_array(g.file, "batch/grids", MX_I32, &grid);
    for (int64_t b = 0, T = shape.dim[1]; b < ROWS; b++) {
        MxPrompt *p = &g.row[b];
        *p = (MxPrompt){.tokens = {ids + b * T, T},
                        .image = image + b * T,
                        .views = {.pixels = pixels + b * values.dim[1]}};
        if (grids) p->views.grids = grids + b * values.dim[1] / (v.patches * v.patch * v.patch * 3);
        for (int64_t i = 0; i < T; i++) p->views.n += p->image[i] > p->views.n * v.tokens;
    }
    return g;
}

static const MxJson *continuations(const char *model) {
    MxBytes bytes;
    const char *path = goldens_need(&arena, "images/continuations.json");
    ck_assert(mx_file_read(&arena, path, 1 << 20, &bytes, &err));
    const MxJson *all = mx_json_parse(&arena, (const char *)bytes.data, bytes.size, path, &err);
    ck_assert_uint_eq(mx_json_length(mx_json_get(all, model)), ROWS);
    return mx_json_get(all, model);
}

/* Log-probabilities may be off by twice what the original's own move by, where that is more. */
static void check_reply(const char *name, const MxReply *reply, const MxJson *wanted) {
    double noise;
    const MxJson *tokens = mx_json_get(wanted, "tokens"),
                 *logprobs = mx_json_get(wanted, "logprobs");
    ck_assert_int_eq(reply->tokens.n, MORE);
    ck_assert(mx_json_number(mx_json_get(wanted, "noise"), &noise));
    for (size_t i = 0; i < MORE; i++) {
        int64_t id;
        double logprob;
        ck_assert(mx_json_int(mx_json_at(tokens, i), &id) &&
                  mx_json_number(mx_json_at(logprobs, i), &logprob));
        ck_assert_msg(reply->tokens.ids[i] == id, "%s: token %zu", name, i);
        ck_assert_msg(fabs((double)reply->logprobs[i] - logprob) <= fmax(2e-5, 2 * noise),
                      "%s: token %zu: %g, not %g", name, i, (double)reply->logprobs[i], logprob);
    }
}

/* One and two pictures, or a picture of one tile and of two; a piece of Gemma's holds an image at
 * least. */
START_TEST(continuations_are_those_of_transformers) {
    static const int64_t chunks[] = {2, 5, 9, 30};
    const char *name = models[_i / MX_COUNT(chunks)];
    Golden g = golden_of(name);
    const MxJson *wanted = continuations(name);
    MxGeneration what = {.capacity = g.row[0].tokens.n + MORE,
                         .chunk = chunks[_i % MX_COUNT(chunks)]};
    what.seen = g.row[0].tokens.n;
    const MxGenerate how = {.sampling = {.top_p = 1, .repetition_penalty = 1}, .max_tokens = MORE};
    for (int b = 0; b < ROWS; b++)
        ck_assert(
            mx_json_int(mx_json_get(mx_json_at(wanted, (size_t)b), "prompt"), &g.row[b].tokens.n));
    for (what.rows = 1; what.rows <= ROWS; what.rows++) {
        MxReply replies[ROWS];
        ck_assert_msg(
            mx_generate(&arena, open_model(g.dir, what), &how, g.row, ROWS, replies, &err), "%s",
            err.text.data);
        for (int b = 0; b < ROWS; b++)
            check_reply(name, &replies[b], mx_json_at(wanted, (size_t)b));
    }
}
END_TEST

START_TEST(logits_are_those_of_transformers) {
    MxShape shape;
    float *got;
    Golden g = golden_of(models[_i]);
    const float *wanted = read_array(g.file, "logits", MX_F32, &shape);
    const int64_t T = shape.dim[1], V = shape.dim[2];
    MxTrainState *state = open_model(
        g.dir, (MxGeneration){.rows = 1, .capacity = T, .chunk = 7, .all_logits = true, .seen = T});
    for (int b = 0; b < ROWS; b++) {
        ck_assert(mx_generate_logits(&arena, state, &g.row[b], &got, &err));
        for (int64_t i = 0; i < T * V; i++)
            ck_assert_msg(fabsf(got[i] - wanted[b * T * V + i]) < 2e-5f * 8,
                          "%s: row %d, token %d: %g, wanted %g", models[_i], b, (int)(i / V),
                          (double)got[i], (double)wanted[b * T * V + i]);
    }
}
END_TEST

/* ---- records */

#define SHARED  "share/mxtrain/images/"
#define PICTURE "train_blue_circle_0.png"
#define POINT                                                                                      \
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhg" \
    "GAWjR9awAAAABJRU5ErkJggg=="
#define USER(content) "{\"messages\":[{\"role\":\"user\",\"content\":[" content "]}]}"
#define URL(url)      "{\"type\":\"image_url\",\"image_url\":{\"url\":\"" url "\"}}"

enum { SIZE = 28, TOKENS = 4 };

/* What a record becomes, or its error; only_data: as a server reads it. */
static const struct {
    const char *record;
    bool only_data, is_blind;
    int n; /* images */
    const char *told;
} records[] = {
    {"{\"prompt\":\"a\",\"image\":\"" PICTURE "\"}", .n = 1},
    {"{\"prompt\":\"a <start_of_image> b\",\"images\":[\"" PICTURE "\",\"" PICTURE "\"]}", .n = 2},
    {USER("{\"type\":\"image\",\"path\":\"" PICTURE "\"},{\"type\":\"text\",\"text\":\"x\"}"),
     .n = 1},
    {USER(URL(POINT)), .n = 1},
    {USER(URL(POINT) "," URL(POINT)), .only_data = true, .n = 2},
    {"{\"prompt\":\"a\"}", .n = 0},
    {USER("{\"type\":\"text\",\"text\":\"x\"}"), .is_blind = true, .n = 0},
    {USER(URL(PICTURE)), .only_data = true, .told = "wanted a data: URL; no others are read"},
    {USER(URL("http://a/b.png")), .told = "no such file"},
    {USER(URL("data:image/png;base64,QUJD")), .told = "is no picture of PNG or JPEG"},
    {USER("{\"type\":\"image\"}"), .told = "names no file"},
    {USER(URL(POINT)), .is_blind = true,
     .told = "wanted text alone: no encoder of images is at work here"},
    {"{\"prompt\":[1,2],\"image\":\"" PICTURE "\"}", .told = "which has no place in it"},
    {"{\"prompt\":\"<image_soft_token>\",\"image\":\"" PICTURE "\"}", .told = "only images become"},
};

static MxWords words_of(bool only_data, bool is_blind) {
    MxTokenizer *tokenizer;
    MxChat *chat;
    ck_assert(mx_tokenizer_open(&arena, "huggingface", SHARED "tokenizer", &tokenizer, &err) &&
              mx_chat_open(&arena, (MxChatFrom){.named = "gemma"}, &chat, &err));
    MxSeerHow how = {.tokenizer = tokenizer, .only_data = only_data};
    const MxVision sees = {.encoder = mx_encoder_find("gemma3"),
                           .images = 1,
                           .tiles = 1,
                           .size = SIZE,
                           .patch = SIZE / 4,
                           .channels = 3,
                           .patches = 4 * 4,
                           .grid = {4, 4},
                           .pool = 2,
                           .tokens = TOKENS};
    if (!is_blind) how.vision = sees;
    return (MxWords){tokenizer, chat, mx_seer_new(&arena, how)};
}

START_TEST(records_name_images) {
    MxPrompt prompt;
    const MxWhere where = {SHARED "prompts.jsonl", 3, 0};
    MxWords words = words_of(records[_i].only_data, records[_i].is_blind);
    const char *text = records[_i].record;
    const MxJson *json = mx_json_parse_value(&arena, text, strlen(text), where, &err);
    bool ok = mx_prompt_read(&arena, words, json, where, &prompt, &err) &&
              mx_prompt_look(&arena, words, &prompt, &err);
    ck_assert_msg(ok == !records[_i].told, "%s: %s", text, ok ? "read" : err.text.data);
    if (!ok) {
        ck_assert_msg(strstr(err.text.data, records[_i].told), "%s", err.text.data);
        ck_assert_int_eq(err.exit, MX_EXIT_BAD_INPUT);
        return;
    }
    int32_t n = 0;
    for (int64_t i = 0; prompt.image && i < prompt.tokens.n; i++)
        if (prompt.image[i]) ck_assert_int_eq(prompt.image[i], ++n);
    ck_assert_int_eq(n, records[_i].n * TOKENS);
    ck_assert_int_eq(prompt.views.n, records[_i].n);
    for (int64_t i = 0; i < prompt.views.n * SIZE * SIZE * 3; i++)
        ck_assert(fabsf(prompt.views.pixels[i]) <= 1 && prompt.views.pixels[i] != 0);
}
END_TEST

Suite *sees_suite(void) {
    Suite *suite = suite_create("sees");
    TCase *tcase = tcase_create("sees");
    tcase_set_timeout(tcase, 120);
    tcase_add_checked_fixture(tcase, NULL, tear_down);
    tcase_add_loop_test(tcase, continuations_are_those_of_transformers, 0, 4 * MX_COUNT(models));
    tcase_add_loop_test(tcase, logits_are_those_of_transformers, 0, MX_COUNT(models));
    tcase_add_loop_test(tcase, records_name_images, 0, MX_COUNT(records));
    suite_add_tcase(suite, tcase);
    return suite;
}
