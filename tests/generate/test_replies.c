/* test_replies.c — what replies may have besides: special tokens as text, the prompt's own tokens.
 */
#include "common/goldens.h"
#include "generate_test.h"

static MxArena arena = {.name = "replies"};

static void tear_down(void) {
    mx_arena_release(&arena);
}

/* A special token has no text, unless it is among those that are shown: here one that a bias makes
 * the likeliest everywhere. */
START_TEST(special_tokens_that_are_shown) {
    enum { MORE = 3 };
    const char *dir = mx_path_dir(&arena, goldens_need(&arena, "hf/models/mistral/config.json"));
    const char *tokens = goldens_need(&arena, "hf/tokenizers/gemma/tokenizer.json");
    MxError err = {0};
    MxTokenizer *tokenizer;
    MxReply reply;
    int32_t ids[] = {3, 20, 37};
    const MxPrompt prompt = {.tokens = {ids, MX_COUNT(ids)}};
    ck_assert(mx_tokenizer_open(&arena, "huggingface", tokens, &tokenizer, &err));
    const int32_t bos = mx_tokenizer_bos(tokenizer);
    const MxBias bias = {bos, 100};
    const MxGeneration what = {.rows = 1, .capacity = MORE + MX_COUNT(ids), .chunk = 4};
    for (int n_shown = 0; n_shown < 2; n_shown++) {
        MxGenerate how = {.sampling = greedy,
                          .max_tokens = MORE,
                          .tokenizer = tokenizer,
                          .shown = &bos,
                          .n_shown = n_shown};
        how.sampling.biases = &bias;
        how.sampling.n_biases = 1;
        ck_assert(
            mx_generate(&arena, open_source(&arena, dir, what), &how, &prompt, 1, &reply, &err));
        ck_assert_int_eq(reply.tokens.ids[MORE - 1], bos);
        ck_assert_str_eq(reply.text_bytes ? reply.text : "", n_shown ? "<bos><bos><bos>" : "");
    }
}
END_TEST

/* Of the tokens of a prompt, by logits of all of them; without a reply. */
START_TEST(echoes_of_a_prompt) {
    enum { LENGTH = 13, TOP = 3 };
    const char *dir = mx_path_dir(&arena, goldens_need(&arena, "hf/models/mistral/config.json"));
    MxError err = {0};
    int32_t ids[LENGTH];
    float *logits;
    MxReply reply;
    const MxPrompt prompt = {.tokens = {ids, LENGTH}};
    const MxGeneration what = {.rows = 1, .capacity = LENGTH, .chunk = 5, .all_logits = true};
    const MxGenerate how = {.sampling = greedy, .echoes = true, .n_top = TOP};
    for (int k = 0; k < LENGTH; k++) ids[k] = 3 + k * 17 % 150;
    MxTrainState *state = open_source(&arena, dir, what);
    const int64_t vocab = mx_train_state_config(state)->vocab_size;
    ck_assert(mx_generate(&arena, state, &how, &prompt, 1, &reply, &err));
    ck_assert(mx_generate_logits(&arena, state, &prompt, &logits, &err));
    ck_assert(reply.tokens.n == LENGTH && reply.n_echoed == LENGTH && reply.is_cut);
    for (int i = 1; i < LENGTH; i++) {
        const float *own = logits + (i - 1) * vocab;
        MxChoice top[TOP];
        mx_likeliest(own, vocab, TOP, top);
        ck_assert_int_eq(reply.tokens.ids[i], ids[i]);
        ck_assert_double_eq_tol((double)reply.logprobs[i],
                                (double)own[ids[i]] - mx_log_sum(own, vocab), 1e-6);
        ck_assert_int_eq(reply.top[i * TOP + 1].id, top[1].id);
    }
}
END_TEST

Suite *replies_suite(void) {
    Suite *suite = suite_create("replies");
    TCase *tcase = tcase_create("replies");
    tcase_set_timeout(tcase, 120);
    tcase_add_checked_fixture(tcase, NULL, tear_down);
    tcase_add_test(tcase, special_tokens_that_are_shown);
    tcase_add_test(tcase, echoes_of_a_prompt);
    suite_add_tcase(suite, tcase);
    return suite;
}
