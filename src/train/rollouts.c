/* rollouts.c — responses that the policy writes while it is trained. The generate room lets the
 * program of training, with its weights as they are and adapters on top, write the completions of
 * all prompts of a batch; they are rewarded, and stand behind their prompts in the rows that the
 * batch then has. Ranks write shares of them (MxGeneration), the first one has all of them
 * rewarded, and every rank then has the whole batch. */
#include "rollouts.h"

#include "data.h"
#include "internal.h"
#include "reward.h"

#include <mx/generate.h>

#include <math.h>

struct Rollouts {
    MxTrainState *state;
    MxComm *comm; /* NULL = one rank */
    const MxConfig *config;
    MxDataset *data[2];
    MxGenerate how;
    Reward *reward;
    int32_t eos;
    MxBatch made[2];
    float *logprobs[2]; /* [rows, length] */
};

static MxGenerate how_of(const MxConfig *c, const MxTokenizer *tokenizer, const int32_t *eos) {
    return (MxGenerate){
        .sampling = {.temperature = c->decode_sampling_temperature,
                     .top_k = c->decode_sampling_top_k,
                     .top_p = c->decode_sampling_nucleus_p < 0 ? 1 : c->decode_sampling_nucleus_p,
                     .repetition_penalty = 1,
                     .seed = (uint64_t)c->init_weights_seed,
                     .tempers = true},
        .max_tokens = c->max_target_length - c->max_prefill_predict_length,
        .tokenizer = tokenizer,
        .ends = eos,
        .n_ends = 1};
}

static void tell_shares(const MxTrainState *state) {
    int64_t n = mx_generation(state).n_shares;
    if (n > 1)
        mx_log("completions are written in %lld shares by ranks that have the same weights",
               (long long)n);
}

bool rollouts_open(MxArena *arena, MxTrainState *state, MxDataset *const data[2], Rollouts **out,
                   MxError *err) {
    const MxConfig *c = mx_train_state_config(state);
    MxTokenizer *tokenizer;
    *out = NULL;
    if (!mx_config_writes(c)) return true;
    if (!train_open_tokenizer(arena, c, &tokenizer, NULL, err)) return false;
    Rollouts *r = *out = mx_new(arena, Rollouts);
    *r = (Rollouts){.state = state,
                    .comm = mx_train_state_comm(state),
                    .config = c,
                    .eos = mx_tokenizer_eos(tokenizer)};
    tell_shares(state);
    r->how = how_of(c, tokenizer, &r->eos);
    r->reward = reward_open(arena, c);
    for (int i = 0; i < 2; i++) {
        int64_t n = i ? c->global_batch_size_to_load_eval : c->global_batch_size_to_load;
        r->data[i] = data[i];
        r->made[i] = mx_batch_new(arena, n * c->rl_num_generations, c->max_target_length);
        r->logprobs[i] = mx_new_n(arena, float, r->made[i].rows * r->made[i].length);
    }
    return true;
}

/* ---- rows */

static int64_t count_tokens(const MxBatch *batch, int64_t row) {
    const int32_t *segments = batch->field[MX_INPUTS_SEGMENTATION] + row * batch->length;
    int64_t n = 0;
    while (n < batch->length && segments[n]) n++;
    return n;
}

/* Puts a reply behind the prompt of n tokens that a row holds. */
static void add_reply(MxBatch *batch, int64_t row, int64_t n, const MxTokens *reply) {
    int32_t *field[MX_BATCH_FIELDS];
    for (int f = 0; f < MX_BATCH_FIELDS; f++) field[f] = batch->field[f] + row * batch->length;
    MX_ASSERT(n + reply->n <= batch->length);
    for (int64_t i = n; i < n + reply->n; i++) {
        field[MX_INPUTS][i] = field[MX_TARGETS][i - 1] = reply->ids[i - n];
        field[MX_INPUTS_POSITION][i] = field[MX_TARGETS_POSITION][i - 1] = (int32_t)i;
        field[MX_INPUTS_SEGMENTATION][i] = field[MX_TARGETS_SEGMENTATION][i - 1] = 1;
    }
}

/* Fills the batch that was made of one of prompts; a response without a reward is left out. */
static void fill_rows(Rollouts *r, bool is_eval, const MxBatch *prompts, const MxReply *replies,
                      const float *rewards) {
    MxBatch *made = &r->made[is_eval];
    float *logprobs = r->logprobs[is_eval];
    const size_t row_bytes = (size_t)made->length * sizeof(int32_t);
    MX_ASSERT(made->rows == prompts->rows && made->length == prompts->length);
    memset(logprobs, 0, (size_t)made->rows * row_bytes);
    for (int64_t row = 0; row < made->rows; row++) {
        const int64_t at = row * made->length, n = count_tokens(prompts, row);
        const MxReply *reply = &replies[row];
        for (int f = 0; f < MX_BATCH_FIELDS; f++)
            if (isnan(rewards[row]))
                memset(made->field[f] + at, 0, row_bytes);
            else
                memcpy(made->field[f] + at, prompts->field[f] + at, row_bytes);
        if (isnan(rewards[row])) continue;
        add_reply(made, row, n, &reply->tokens);
        memcpy(logprobs + at + n - 1, reply->logprobs, (size_t)reply->tokens.n * sizeof *logprobs);
    }
}

/* ---- what several steps learn from */

/* A batch's completions and rewards for the steps that follow. */
static void keep(const Rollouts *r, MxResponses *kept, const MxReply *replies,
                 const float *rewards) {
    const MxBatch *made = &r->made[false];
    const int64_t rows = made->rows, length = made->length;
    for (int64_t i = 0; i < rows * length; i++) kept->tokens[i] = -1;
    for (int64_t row = 0; row < rows; row++)
        memcpy(kept->tokens + row * length, replies[row].tokens.ids,
               (size_t)replies[row].tokens.n * sizeof *kept->tokens);
    memcpy(kept->rewards, rewards, (size_t)rows * sizeof *rewards);
    if (r->config->rl_recorded_logprobs)
        memcpy(kept->logprobs, r->logprobs[false], (size_t)(rows * length) * sizeof(float));
}

/* What an earlier step has kept of them. */
static void recall(const MxResponses *kept, const MxBatch *prompts, MxReply *replies,
                   float *rewards) {
    memcpy(rewards, kept->rewards, (size_t)prompts->rows * sizeof *rewards);
    for (int64_t row = 0; row < prompts->rows; row++) {
        const int64_t at = row * prompts->length;
        MxTokens tokens = {kept->tokens + at, 0};
        while (tokens.n < prompts->length && tokens.ids[tokens.n] >= 0) tokens.n++;
        replies[row] = (MxReply){.tokens = tokens,
                                 .logprobs = kept->logprobs + at + count_tokens(prompts, row) - 1};
    }
}

/* ---- a batch */

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
static void exchange_replies(const Rollouts *r, MxArena *arena, int64_t from, int64_t to,
                             MxReply *replies, int64_t n) {
    MxText own;
    mx_text_init(&own, arena);
    for (int64_t row = from; row < to && mx_generation(r->state).speaks; row++)
        pack(&own, &replies[row]);
    const char *all = train_share_bytes(arena, r->comm, own.data, (int64_t)own.len);
    for (int64_t row = 0; row < n; row++) replies[row] = unpack(&all);
}

static bool write_replies(Rollouts *r, MxArena *arena, uint64_t stream, const MxBatch *batch,
                          MxReply *out, MxError *err) {
    const MxGeneration g = mx_generation(r->state);
    const int64_t n = batch->rows, from = n * g.share / g.n_shares,
                  to = n * (g.share + 1) / g.n_shares;
    MxPrompt *prompts = mx_new_n(arena, MxPrompt, n);
    r->how.stream = stream + (uint64_t)from;
    for (int64_t row = 0; row < n; row++)
        prompts[row].tokens =
            (MxTokens){batch->field[MX_INPUTS] + row * batch->length, count_tokens(batch, row)};
    bool ok = mx_generate(arena, r->state, &r->how, prompts + from, to - from, out + from, err);
    if (!train_agree(r->comm, ok, err)) return false;
    if (r->comm) exchange_replies(r, arena, from, to, out, n);
    return true;
}

static bool check_failures(const Rollouts *r, const RewardFailures *failures, int64_t n,
                           MxError *err) {
    double share = (double)failures->n / (double)n;
    if (!failures->n) return true;
    mx_warn("%lld of %lld completions got no reward and are left out; the first: %s",
            (long long)failures->n, (long long)n, failures->first);
    if (failures->n < n && share <= r->config->rl_reward_failures) return true;
    mx_config_fail(err, r->config, MX_KEY_rl_reward_failures,
                   "%lld of %lld completions of a batch got no reward, more than a share of %g; "
                   "the first: %s",
                   (long long)failures->n, (long long)n, r->config->rl_reward_failures,
                   failures->first);
    return false;
}

/* A reply as text: what is no UTF-8, which the byte tokenizer leaves as it is, becomes U+FFFD. */
static void add_text(MxArena *arena, const MxReply *reply, Completion *to) {
    static const char unknown[] = "\xef\xbf\xbd";
    MxText text;
    mx_text_init(&text, arena);
    for (size_t at = 0; at < reply->text_bytes; at++) {
        size_t n = mx_utf8_valid_bytes(reply->text + at, reply->text_bytes - at);
        mx_text_addn(&text, reply->text + at, n);
        at += n;
        if (at < reply->text_bytes) mx_text_addn(&text, unknown, strlen(unknown));
    }
    to->text = text.data;
    to->bytes = text.len;
}

static bool reward_replies(Rollouts *r, MxArena *arena, bool is_eval, int64_t i,
                           const MxReply *replies, int64_t n, float *out, MxError *err) {
    Completion *completions = mx_new_n(arena, Completion, n);
    RewardFailures failures;
    for (int64_t row = 0; row < n; row++) {
        completions[row] = (Completion){.record = mx_data_record(r->data[is_eval], i, row),
                                        .n_tokens = replies[row].tokens.n,
                                        .is_cut = replies[row].is_cut};
        add_text(arena, &replies[row], &completions[row]);
    }
    return reward_give(r->reward, arena, completions, n, out, &failures, err) &&
           check_failures(r, &failures, n, err);
}

/* The first rank's rewards are those of all, and so is what goes wrong with them. */
static bool reward_all(Rollouts *r, MxArena *arena, bool is_eval, int64_t i, const MxReply *replies,
                       int64_t n, float *out, MxError *err) {
    bool is_first = !r->comm || mx_comm_rank(r->comm) == 0;
    bool ok = !is_first || reward_replies(r, arena, is_eval, i, replies, n, out, err);
    if (!train_agree(r->comm, ok, err)) return false;
    if (r->comm) mx_comm_broadcast(r->comm, out, (size_t)n * sizeof *out);
    return true;
}

bool rollouts_write(Rollouts *r, bool is_eval, int64_t i, MxBatch *batch, MxError *err) {
    MxArena arena = {.name = "rollouts"};
    const int64_t n = batch->rows;
    MxReply *replies = mx_new_n(&arena, MxReply, n);
    float *rewards = mx_new_n(&arena, float, n);
    bool are_here = false;
    MxResponses *kept = is_eval ? NULL : mx_train_responses(r->state, &are_here);
    if (are_here) recall(kept, batch, replies, rewards);
    bool ok =
        are_here || (write_replies(r, &arena, stream_of(is_eval, i, n), batch, replies, err) &&
                     reward_all(r, &arena, is_eval, i, replies, n, rewards, err));
    if (ok) {
        fill_rows(r, is_eval, batch, replies, rewards);
        if (kept && !are_here) keep(r, kept, replies, rewards);
        *batch = r->made[is_eval];
        mx_train_give_rewards(r->state, batch, rewards, r->logprobs[is_eval]);
    }
    mx_arena_release(&arena);
    return ok;
}
