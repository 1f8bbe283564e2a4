/* samples.c — periodic replies to some prompts: one line each on the console and in run.log, and
 * texts for TensorBoard. */
#include "samples.h"

#include "data.h"
#include "internal.h"

#include <mx/generate.h>

struct Samples {
    MxTrainState *state;
    MxPrompt *prompts; /* [n] */
    int64_t n;
    int32_t eos;
    MxGenerate how;
};

static bool check_lengths(const Samples *s, MxError *err) {
    const MxConfig *c = mx_train_state_config(s->state);
    const int64_t room = mx_generation(s->state).capacity - c->sample_max_tokens;
    for (int64_t i = 0; i < s->n; i++)
        if (s->prompts[i].tokens.n > room)
            return mx_config_fail(err, c, MX_KEY_sample_prompts,
                                  "prompt %lld has %lld tokens, wanted at most %lld and room for "
                                  "sample_max_tokens=%lld",
                                  (long long)i, (long long)s->prompts[i].tokens.n,
                                  (long long)(room > 0 ? room : 0),
                                  (long long)c->sample_max_tokens);
    return true;
}

bool samples_open(MxArena *arena, MxTrainState *state, Samples **out, MxError *err) {
    const MxConfig *c = mx_train_state_config(state);
    MxWords words;
    *out = NULL;
    if (!c->sample_prompts) return true;
    Samples *s = *out = mx_new(arena, Samples);
    *s = (Samples){.state = state};
    if (!train_open_words(arena, c, &words, err) ||
        !mx_prompts_read(arena, c->sample_prompts, words, &s->prompts, &s->n, err))
        return mx_context(err, "%s", mx_key_name(MX_KEY_sample_prompts));
    s->eos = words.tokenizer ? mx_tokenizer_eos(words.tokenizer) : -1;
    s->how = (MxGenerate){.sampling = {.temperature = c->sample_temperature,
                                       .top_p = 1,
                                       .repetition_penalty = 1,
                                       .seed = (uint64_t)c->init_weights_seed},
                          .max_tokens = c->sample_max_tokens,
                          .tokenizer = words.tokenizer,
                          .ends = &s->eos,
                          .n_ends = 1};
    return check_lengths(s, err);
}

static void add_ids(MxText *text, const MxTokens *tokens) {
    for (int64_t i = 0; i < tokens->n; i++)
        mx_text_add(text, "%s%d", i ? "," : "[", tokens->ids[i]);
    mx_text_add(text, "]");
}

/* "prompt" -> "reply", or ids where the data has no tokenizer. */
static const char *tell(MxArena *arena, const Samples *s, const MxTokens *prompt,
                        const MxReply *reply) {
    const MxTokenizer *tokenizer = s->how.tokenizer;
    MxText text;
    mx_text_init(&text, arena);
    if (tokenizer) {
        size_t n;
        const char *asked = mx_tokenizer_decode(arena, tokenizer, prompt->ids, prompt->n, true, &n);
        mx_text_add(&text, "%s -> ", mx_json_quote(arena, asked, n));
        mx_text_add(&text, "%s", mx_json_quote(arena, reply->text, reply->text_bytes));
    } else {
        add_ids(&text, prompt);
        mx_text_add(&text, " -> ");
        add_ids(&text, &reply->tokens);
    }
    return text.data;
}

bool samples_take(const Samples *s, int64_t step, MetricsFile *metrics, MxError *err) {
    MxArena arena = {.name = "samples"};
    MxReply *replies = mx_new_n(&arena, MxReply, s->n);
    bool ok = mx_generate(&arena, s->state, &s->how, s->prompts, s->n, replies, err);
    for (int64_t i = 0; ok && i < s->n; i++) {
        const char *text = tell(&arena, s, &s->prompts[i].tokens, &replies[i]);
        mx_log("sample %lld after step %lld: %s", (long long)i, (long long)step, text);
        metrics_file_text(metrics, step, mx_arena_printf(&arena, "sample_%lld", (long long)i),
                          text);
    }
    mx_arena_release(&arena);
    return ok;
}
