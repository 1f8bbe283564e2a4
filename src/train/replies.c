/* replies.c — what the policy replies to prompts of a batch: each rank generates a share
 * (MxGeneration), then every rank has all of them. */
#include "replies.h"

#include "internal.h"

int64_t replies_prompt_tokens(const MxBatch *batch, int64_t row) {
    const int32_t *segments = batch->field[MX_INPUTS_SEGMENTATION] + row * batch->length;
    int64_t n = 0;
    while (n < batch->length && segments[n]) n++;
    return n;
}

/* Random numbers of batch i: evaluation has its own. */
static uint64_t stream_of(bool is_eval, int64_t i, int64_t rows) {
    const int eval_bit = 63;
    return (uint64_t)is_eval << eval_bit | (uint64_t)i * (uint64_t)rows;
}

/* A reply among bytes, each part of which begins where 8 divides. */
typedef struct Packed {
    int64_t n_tokens, text_bytes, is_cut;
} Packed;

static void add_bytes(MxText *to, const void *data, size_t n) {
    static const char none[sizeof(int64_t)];
    if (!n) return;
    mx_text_addn(to, data, n);
    mx_text_addn(to, none, -n % sizeof none);
}

static void pack(MxText *to, const MxReply *reply) {
    const size_t n = (size_t)reply->tokens.n;
    const Packed head = {reply->tokens.n, (int64_t)reply->text_bytes, reply->is_cut};
    add_bytes(to, &head, sizeof head);
    add_bytes(to, reply->tokens.ids, n * sizeof *reply->tokens.ids);
    add_bytes(to, reply->logprobs, n * sizeof *reply->logprobs);
    add_bytes(to, reply->text, reply->text_bytes);
}

static const void *take_bytes(const char **at, int64_t n) {
    const char *from = *at;
    *at += (n + 7) / 8 * 8;
    return from;
}

static MxReply unpack(const char **at) {
    const Packed *head = take_bytes(at, sizeof *head);
    MxReply reply = {.tokens.n = head->n_tokens,
                     .text_bytes = (size_t)head->text_bytes,
                     .is_cut = head->is_cut != 0};
    reply.tokens.ids = (int32_t *)(uintptr_t)take_bytes(at, head->n_tokens * 4);
    reply.logprobs = (float *)(uintptr_t)take_bytes(at, head->n_tokens * 4);
    reply.text = take_bytes(at, head->text_bytes);
    return reply;
}

/* What every share has written becomes what all ranks have. */
static void exchange_replies(MxTrainState *state, MxArena *arena, int64_t from, int64_t to,
                             MxReply *replies, int64_t n) {
    MxText own;
    mx_text_init(&own, arena);
    for (int64_t row = from; row < to && mx_generation(state).speaks; row++)
        pack(&own, &replies[row]);
    const char *all =
        train_share_bytes(arena, mx_train_state_comm(state), own.data, (int64_t)own.len);
    for (int64_t row = 0; row < n; row++) replies[row] = unpack(&all);
}

/* The first n_rows of a batch, `times` over. */
Asked replies_ask(MxArena *arena, bool is_eval, int64_t i, const MxBatch *batch, int64_t n_rows,
                  int64_t times) {
    const int64_t n = n_rows * times;
    Asked asked = {is_eval, i, batch, n_rows, n, n, mx_new_n(arena, int64_t, n)};
    for (int64_t k = 0; k < n; k++) asked.number[k] = k;
    return asked;
}

MxTokens replies_prompt(const Asked *asked, int64_t k) {
    const int64_t row = asked->number[k] % asked->n_rows;
    return (MxTokens){asked->batch->field[MX_INPUTS] + row * asked->batch->length,
                      replies_prompt_tokens(asked->batch, row)};
}

/* Prompt k of those asked, and what stands behind it so far. */
static MxPrompt prompt_of(MxArena *arena, const MxConfig *config, const Asked *asked, int64_t k,
                          const Response *response) {
    const MxVision vision = mx_model_vision(config);
    const MxHearing hearing = mx_model_hearing(config);
    MxPrompt prompt = {.tokens = turns_prompt(arena, replies_prompt(asked, k), response)};
    if (asked->batch->image)
        prompt.image =
            mx_batch_views(arena, &vision, &hearing, asked->batch, asked->number[k] % asked->n_rows,
                           prompt.tokens.n, &prompt.views);
    return prompt;
}

bool replies_write(MxTrainState *state, MxGenerate *how, MxArena *arena, const Asked *asked,
                   const Response *responses, MxReply *out, MxError *err) {
    const MxGeneration g = mx_generation(state);
    MxComm *comm = mx_train_state_comm(state);
    const int64_t n = asked->n, from = n * g.share / g.n_shares,
                  to = n * (g.share + 1) / g.n_shares;
    MxPrompt *prompts = mx_new_n(arena, MxPrompt, n);
    how->stream = stream_of(asked->is_eval, asked->i, asked->most);
    how->numbers = asked->number + from;
    for (int64_t k = from; k < to; k++)
        prompts[k] =
            prompt_of(arena, mx_train_state_config(state), asked, k, &responses[asked->number[k]]);
    bool ok = mx_generate(arena, state, how, prompts + from, to - from, out + from, err);
    if (!train_agree(comm, ok, err)) return false;
    if (comm) exchange_replies(state, arena, from, to, out, n);
    return true;
}

/* An answer among bytes. */
typedef struct PackedAnswer {
    double reward;
    int64_t goes_on, n_told;
} PackedAnswer;

void replies_share_answers(MxArena *arena, MxComm *comm, RewardAnswer *answers, int64_t n) {
    const bool is_first = mx_comm_rank(comm) == 0;
    MxText own;
    mx_text_init(&own, arena);
    for (int64_t k = 0; k < n && is_first; k++) {
        const MxTokens *told = &answers[k].told;
        const PackedAnswer head = {(double)answers[k].reward, answers[k].goes_on, told->n};
        add_bytes(&own, &head, sizeof head);
        add_bytes(&own, told->ids, (size_t)told->n * sizeof *told->ids);
    }
    const char *all = train_share_bytes(arena, comm, own.data, (int64_t)own.len);
    for (int64_t k = 0; k < n && !is_first; k++) {
        const PackedAnswer *head = take_bytes(&all, sizeof *head);
        answers[k] = (RewardAnswer){.reward = (float)head->reward, .goes_on = head->goes_on != 0};
        answers[k].told.n = head->n_told;
        answers[k].told.ids = (int32_t *)(uintptr_t)take_bytes(&all, head->n_told * 4);
    }
}
