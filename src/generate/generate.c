/* generate.c — replies to prompts, several sequences at a time: a prompt is processed in pieces,
 * then the sequence gets one token after another, together with all other sequences in that phase.
 * Sequences join and leave between two steps. */
#include "row.h"

#include <mx/model.h>

#include <math.h>

struct MxSequences {
    MxTrainState *state;
    MxGeneration shape;
    int64_t vocab;
    Row *rows; /* [shape.rows] */
    uint64_t n_joined;
    float *logits;
    /* A piece, [shape.rows]. */
    int32_t *tokens, *sequences, *shift;
    int64_t *before;
    struct Next *nexts; /* [shape.rows] */
};

/* ---- tokens */

/* The next token of a row, of those that may come; false = none may. */
static bool choose(const MxSequences *s, Row *row, const float *logits, MxChoice *out) {
    const MxGenerate *how = row->how;
    MxArena scratch = {.name = "logits"};
    const float *own = logits;
    bool ok = true;
    if (how->guide) {
        float *copy = mx_new_n(&scratch, float, s->vocab);
        memcpy(copy, logits, (size_t)s->vocab * sizeof *copy);
        ok = mx_guided_limit(&row->guided, copy, s->vocab);
        own = copy;
    }
    if (ok) *out = mx_sample(&how->sampling, own, s->vocab, &row->all, row->n_prompt, row->stream);
    if (ok && how->guide) out->logprob = (double)logits[out->id] - mx_log_sum(logits, s->vocab);
    mx_arena_release(&scratch);
    return ok;
}

/* A row's next token. */
typedef struct Next {
    Row *row;
    const float *logits;
    bool may; /* come: there is one */
    MxChoice choice;
} Next;

typedef struct Nexts {
    const MxSequences *sequences;
    Next *of; /* [n] */
    int n;
} Nexts;

static void choose_next(void *data, int i) {
    const Nexts *all = data;
    Next *next = &all->of[i];
    next->may = choose(all->sequences, next->row, next->logits, &next->choice);
}

static void add_next(const MxSequences *s, const Next *next) {
    Row *row = next->row;
    const MxGenerate *how = row->how;
    const int32_t id = next->choice.id;
    if (!next->may) {
        row->is_over = row->is_cut = true;
        return;
    }
    int64_t place = row->all.n - row->n_prompt + row->n_echoed;
    row->logprobs[place] = (float)next->choice.logprob;
    mx_likeliest(next->logits, s->vocab, row->n_top, row->top + place * row->n_top);
    row->all.ids[row->all.n++] = id;
    bool ends = row_is_among(how->ends, how->n_ends, id), is_full = row->all.n == row->most;
    bool completes = how->guide && mx_guided_accept(&row->guided, id);
    row->is_over = ends || completes || is_full;
    bool stops = row_add_text(row, id);
    row->is_cut = is_full && !ends && !completes && !stops;
}

/* Choosing takes a pass over the vocabulary or several; of several rows threads do it together. */
static void add_tokens(const MxSequences *s, Nexts *all) {
    const int64_t n_threads = mx_train_state_config(s->state)->num_threads;
    mx_parallel(n_threads, all->n, choose_next, all);
    for (int i = 0; i < all->n; i++) add_next(s, &all->of[i]);
}

/* Whether tokens i and i + 1 of a prompt must go through together: those of an image that see each
 * other. */
static bool is_joined(const MxVision *v, const MxPrompt *prompt, int64_t i) {
    const int32_t *image = prompt->image;
    if (!image || !v->encoder->sees_itself || !image[i] || !image[i + 1]) return false;
    return (image[i] - 1) / v->tokens == (image[i + 1] - 1) / v->tokens;
}

/* Of all tokens of a prompt that has seen its images, at once: those of an image depend on what
 * stands before. */
static Positions find_positions(MxArena *arena, const MxTrainState *state, const MxPrompt *prompt) {
    MxVision v = mx_model_vision(mx_train_state_config(state));
    Positions out = {0};
    if (!v.has_mrope || !prompt->image) return out;
    v.images = prompt->views.n;
    v.tiles = 1;
    for (int k = 0; k < MX_MROPE_KINDS; k++)
        out.mrope[k] = mx_new_n(arena, int32_t, prompt->tokens.n);
    out.shift = (int32_t)mx_vision_mrope(&v, prompt->views.grids, prompt->image, NULL,
                                         prompt->tokens.n, out.mrope);
    return out;
}

/* The next piece of a prompt, behind `done` tokens. With its first piece go its images and sounds.
 */
static MxPiece next_piece(MxTrainState *state, const MxPrompt *prompt, const Positions *positions,
                          const int32_t *sequence, const int64_t *done) {
    const MxVision v = mx_model_vision(mx_train_state_config(state));
    int64_t left = prompt->tokens.n - *done, chunk = mx_generation(state).chunk;
    int64_t n = left < chunk ? left : chunk;
    while (n < left && n > 0 && is_joined(&v, prompt, *done + n - 1)) n--;
    MX_ASSERT(n > 0 && (!prompt->image || prompt->views.n ||
                        prompt->views.chunks)); /* a chunk has room for an image */
    const MxViews *views = &prompt->views;
    for (int64_t i = 0; !*done && i < views->n; i++)
        mx_generation_see(state, views->pixels + i * mx_vision_pixels(&v) * v.channels,
                          views->grids ? &views->grids[i] : NULL, i * v.tokens);
    if (!*done && views->chunks)
        mx_generation_hear(state, views->frames, views->left, views->chunks, views->n * v.tokens);
    MxPiece piece = {.n = 1,
                     .sequences = sequence,
                     .before = done,
                     .tokens = prompt->tokens.ids + *done,
                     .n_tokens = n,
                     .image = prompt->image ? prompt->image + *done : NULL};
    for (int k = 0; positions->mrope[0] && k < MX_MROPE_KINDS; k++)
        piece.mrope[k] = positions->mrope[k] + *done;
    return piece;
}

/* Tokens of a prompt behind the next n, as the model foretells them. */
static void add_echoes(const MxSequences *s, Row *row, int64_t n) {
    for (int64_t i = 0; i < n && row->n_done + i + 1 < row->n_prompt; i++) {
        const float *logits = s->logits + i * s->vocab;
        int64_t place = row->n_done + i + 1;
        double logit = (double)logits[row->all.ids[place]];
        row->logprobs[place] = (float)(logit - mx_log_sum(logits, s->vocab));
        mx_likeliest(logits, s->vocab, row->n_top, row->top + place * row->n_top);
    }
}

/* Whether a row waits for what another one's prompt has become. */
static bool is_twin(const Row *row, const Row *of) {
    return row != of && row->how && !row->n_done && row->prompt == of->prompt &&
           row->n_echoed == of->n_echoed && row->n_top == of->n_top;
}

static void become(MxSequences *s, Row *row, const Row *of) {
    mx_generation_copy(s->state, of - s->rows, row - s->rows, of->n_prompt);
    row->n_done = of->n_done;
    row->positions = (Positions){.shift = of->positions.shift};
    size_t n = (size_t)row->n_echoed;
    if (n) memcpy(row->logprobs, of->logprobs, n * sizeof *row->logprobs);
    if (n && row->n_top) memcpy(row->top, of->top, n * (size_t)row->n_top * sizeof *row->top);
}

/* A prompt has gone through: for all that have it. */
static void begin_replies(MxSequences *s, Row *row, const float *logits) {
    Nexts all = {s, s->nexts, 0};
    for (Row *one = s->rows; one < s->rows + s->shape.rows; one++) {
        bool waits = is_twin(one, row);
        if (waits) become(s, one, row);
        if (!waits && one != row) continue;
        if (one->how->max_tokens)
            all.of[all.n++] = (Next){.row = one, .logits = logits};
        else
            one->is_over = one->is_cut = true;
    }
    add_tokens(s, &all);
}

/* The next tokens of the sequence that waits longest for its prompt to have gone through: one
 * prompt after another, so that what one sees is there until all of it has. */
static void prefill(MxSequences *s) {
    Row *next = NULL;
    for (int64_t i = 0; i < s->shape.rows; i++) {
        Row *row = &s->rows[i];
        bool waits = row->how && row->n_done < row->n_prompt;
        if (waits && (!next || row->joined < next->joined)) next = row;
    }
    if (!next) return;
    int32_t sequence = (int32_t)(next - s->rows);
    if (!next->n_done) next->positions = find_positions(next->arena, s->state, next->prompt);
    MxPiece piece = next_piece(s->state, next->prompt, &next->positions, &sequence, &next->n_done);
    piece.all_logits = next->n_echoed > 0;
    mx_generation_run(s->state, &piece, s->logits);
    if (piece.all_logits) add_echoes(s, next, piece.n_tokens);
    next->n_done += piece.n_tokens;
    int64_t last = piece.all_logits ? piece.n_tokens - 1 : 0;
    if (next->n_done == next->n_prompt) begin_replies(s, next, s->logits + last * s->vocab);
}

/* The last token of every sequence that goes on. */
static void decode(MxSequences *s) {
    int64_t n = 0;
    for (int64_t i = 0; i < s->shape.rows; i++) {
        const Row *row = &s->rows[i];
        if (!row->how || row->is_over || row->n_done < row->n_prompt) continue;
        s->sequences[n] = (int32_t)i;
        s->before[n] = row->n_done;
        s->shift[n] = row->positions.shift;
        s->tokens[n++] = row->all.ids[row->n_done];
    }
    if (!n) return;
    mx_generation_run(s->state,
                      &(MxPiece){.n = n,
                                 .sequences = s->sequences,
                                 .before = s->before,
                                 .shift = s->shift,
                                 .tokens = s->tokens,
                                 .n_tokens = 1},
                      s->logits);
    Nexts all = {s, s->nexts, (int)n};
    for (int64_t i = 0; i < n; i++) {
        all.of[i] = (Next){.row = &s->rows[s->sequences[i]], .logits = s->logits + i * s->vocab};
        all.of[i].row->n_done++;
    }
    add_tokens(s, &all);
}

bool mx_sequences_step(MxSequences *s) {
    prefill(s);
    decode(s);
    for (int64_t i = 0; i < s->shape.rows; i++)
        if (s->rows[i].how && !s->rows[i].is_over) return true;
    return false;
}

/* ---- */

MxSequences *mx_sequences_new(MxArena *arena, MxTrainState *state) {
    MxSequences *s = mx_new(arena, MxSequences);
    s->state = state;
    s->shape = mx_generation(state);
    s->vocab = mx_train_state_config(state)->vocab_size;
    const int64_t n = s->shape.rows;
    s->rows = mx_new_n(arena, Row, n);
    int64_t n_logits = s->shape.all_logits && s->shape.chunk > n ? s->shape.chunk : n;
    s->logits = mx_new_n(arena, float, n_logits * s->vocab);
    s->tokens = mx_new_n(arena, int32_t, n);
    s->sequences = mx_new_n(arena, int32_t, n);
    s->before = mx_new_n(arena, int64_t, n);
    s->shift = mx_new_n(arena, int32_t, n);
    s->nexts = mx_new_n(arena, Next, n);
    return s;
}

bool mx_prompt_check(const MxTrainState *state, const char *name, const MxPrompt *asked,
                     int64_t more, MxError *err) {
    const MxTokens *prompt = &asked->tokens;
    const int64_t vocab = mx_train_state_config(state)->vocab_size;
    const int64_t capacity = mx_generation(state).capacity, seen = mx_generation(state).seen;
    if (!prompt->n) return mx_fail(err, MX_EXIT_BAD_INPUT, MX_NOWHERE, "%s has no tokens", name);
    for (int64_t k = 0; k < prompt->n; k++)
        if (prompt->ids[k] < 0 || prompt->ids[k] >= vocab)
            return mx_fail(err, MX_EXIT_BAD_INPUT, MX_NOWHERE,
                           "%s: token %lld is %d, and the model has ids from 0 to %lld", name,
                           (long long)k, prompt->ids[k], (long long)vocab - 1);
    for (int64_t k = 0; asked->image && k < prompt->n; k++)
        if (asked->image[k] > seen)
            return mx_fail(err, MX_EXIT_BAD_INPUT, MX_NOWHERE,
                           "%s has more images and sounds than %lld rows have room for", name,
                           (long long)seen);
    return prompt->n + more <= capacity ||
           mx_fail(err, MX_EXIT_BAD_INPUT, MX_NOWHERE,
                   "%s has %lld tokens; with %lld more that is above %lld", name,
                   (long long)prompt->n, (long long)more, (long long)capacity);
}

int mx_sequences_join(MxSequences *s, MxArena *arena, const MxGenerate *how, const MxPrompt *asked,
                      uint64_t stream) {
    const MxTokens *prompt = &asked->tokens;
    int i = 0;
    while (i < s->shape.rows && s->rows[i].how) i++;
    if (i == s->shape.rows) return -1;
    Row *row = &s->rows[i];
    int64_t most = prompt->n + how->max_tokens;
    MX_ASSERT(most <= s->shape.capacity && (!how->echoes || s->shape.all_logits));
    *row =
        (Row){.how = how, .prompt = asked, .n_prompt = prompt->n, .most = most, .stream = stream};
    row->arena = arena;
    row->joined = s->n_joined++;
    row->all = (MxTokens){mx_new_n(arena, int32_t, most + 1), prompt->n};
    memcpy(row->all.ids, prompt->ids, (size_t)prompt->n * sizeof *prompt->ids);
    row->n_echoed = how->echoes ? prompt->n : 0;
    int64_t n_told = row->n_echoed + how->max_tokens + 1;
    row->logprobs = mx_new_n(arena, float, n_told);
    row->logprobs[0] = NAN;
    row->n_top = how->n_top < s->vocab ? how->n_top : s->vocab;
    row->top = mx_new_n(arena, MxChoice, n_told * row->n_top);
    mx_text_init(&row->text, arena);
    if (how->guide) mx_guided_init(&row->guided, arena, how->guide);
    if (how->tokenizer) row->text_stream = mx_text_stream_new(arena, how->tokenizer, true);
    return i;
}

bool mx_sequences_is_over(const MxSequences *s, int i) {
    return s->rows[i].is_over;
}

MxReply mx_sequences_reply(const MxSequences *s, int i) {
    const Row *row = &s->rows[i];
    MX_ASSERT(row->how);
    int64_t from = row->n_prompt - row->n_echoed;
    return (MxReply){.tokens = {row->all.ids + from, row->all.n - from},
                     .n_echoed = row->n_echoed,
                     .logprobs = row->logprobs,
                     .top = row->top,
                     .n_top = row->n_top,
                     .text = row->text_stream ? row->text.data : NULL,
                     .text_bytes = row->text.len,
                     .is_cut = row->is_cut};
}

MxReply mx_sequences_leave(MxSequences *s, int i) {
    MxReply reply = mx_sequences_reply(s, i);
    s->rows[i].how = NULL;
    return reply;
}

/* What is asked of a prompt, whose number how.stream is. */
typedef struct Asked {
    MxGenerate how;
    const MxPrompt *prompt; /* the first of equal ones in a row, which go through the model once */
} Asked;

/* NULL: an error, as of mx_prompt_check. */
static Asked *ask_each(MxArena *arena, const MxTrainState *state, const MxGenerate *how,
                       const MxPrompt *prompts, int64_t n, MxError *err) {
    Asked *asked = mx_new_n(arena, Asked, n);
    for (int64_t i = 0; i < n; i++) {
        const int64_t room = how->longest - prompts[i].tokens.n;
        asked[i] = (Asked){*how, &prompts[i]};
        if (prompts[i].guide) asked[i].how.guide = prompts[i].guide;
        asked[i].how.stream += (uint64_t)(how->numbers ? how->numbers[i] : i);
        if (how->longest && room < how->max_tokens) asked[i].how.max_tokens = room;
        if (i && prompts_are_same(state, &prompts[i - 1], &prompts[i]))
            asked[i].prompt = asked[i - 1].prompt;
        const char *name =
            mx_arena_printf(arena, "prompt %llu", (unsigned long long)asked[i].how.stream);
        if (!mx_prompt_check(state, name, &prompts[i], asked[i].how.max_tokens, err)) return NULL;
    }
    return asked;
}

bool mx_generate(MxArena *arena, MxTrainState *state, const MxGenerate *how,
                 const MxPrompt *prompts, int64_t n, MxReply *out, MxError *err) {
    MxSequences *s = mx_sequences_new(arena, state);
    int64_t *whose = mx_new_n(arena, int64_t, s->shape.rows), next = 0, n_out = 0;
    const Asked *asked = ask_each(arena, state, how, prompts, n, err);
    while (asked && n_out < n) {
        for (int row; next < n; whose[row] = next++) {
            const Asked *one = &asked[next];
            row = mx_sequences_join(s, arena, &one->how, one->prompt, one->how.stream);
            if (row < 0) break;
        }
        mx_sequences_step(s);
        for (int i = 0; i < s->shape.rows; i++)
            if (s->rows[i].how && s->rows[i].is_over) {
                out[whose[i]] = mx_sequences_leave(s, i);
                n_out++;
            }
    }
    return asked != NULL;
}

bool mx_generate_logits(MxArena *arena, MxTrainState *state, const MxPrompt *prompt, float **out,
                        MxError *err) {
    const int64_t vocab = mx_train_state_config(state)->vocab_size;
    MX_ASSERT(mx_generation(state).all_logits);
    if (!mx_prompt_check(state, "the prompt", prompt, 0, err)) return false;
    *out = mx_new_n(arena, float, prompt->tokens.n *vocab);
    const Positions positions = find_positions(arena, state, prompt);
    for (int64_t from = 0, n; from < prompt->tokens.n; from += n) {
        MxPiece piece = next_piece(state, prompt, &positions, &(int32_t){0}, &from);
        piece.all_logits = true;
        n = piece.n_tokens;
        mx_generation_run(state, &piece, *out + from * vocab);
    }
    return true;
}
