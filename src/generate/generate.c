/* generate.c — replies to prompts, some at a time: all of their prompts go through the model in
 * pieces, then each gets a token after another until it ends. A row that has ended is left out. */
#include <mx/generate.h>

#include <mx/model.h>

/* A sequence in the making. */
typedef struct Row {
    MxTokens all; /* prompt and reply */
    int64_t n_prompt, most;
    float *logprobs;
    uint64_t stream;
    MxTextStream *text_stream; /* NULL = there is no text */
    MxText text;
    size_t said; /* bytes of it */
    bool is_over;
} Row;

typedef struct Batch {
    MxTrainState *state;
    const MxGenerate *how;
    MxGeneration shape;
    int64_t vocab, n;
    Row *rows; /* [n] */
    float *logits;
    /* A piece, [shape.rows]. */
    int32_t *tokens, *n_tokens;
    int64_t *before;
} Batch;

/* ---- text */

/* The end of the text that may be the beginning of a stop. */
static size_t waiting(const MxGenerate *how, const MxText *text) {
    size_t most = 0;
    for (int i = 0; i < how->n_stops; i++) {
        size_t n = strlen(how->stops[i]);
        for (size_t k = n < text->len ? n : text->len; k > most; k--)
            if (!memcmp(text->data + text->len - k, how->stops[i], k)) most = k;
    }
    return most;
}

/* Cuts the text where the first stop begins. */
static bool cut_at_stop(const MxGenerate *how, MxText *text) {
    size_t at = text->len;
    for (int i = 0; i < how->n_stops; i++) {
        const char *found = memmem(text->data, text->len, how->stops[i], strlen(how->stops[i]));
        if (found && (size_t)(found - text->data) < at) at = (size_t)(found - text->data);
    }
    if (at == text->len) return false;
    text->len = at;
    text->data[at] = '\0';
    return true;
}

static void say(const MxGenerate *how, Row *row, size_t to) {
    if (how->say && to > row->said)
        how->say(how->context, row->text.data + row->said, to - row->said);
    if (to > row->said) row->said = to;
}

/* More text, the last of it if the row is over. */
static void add_text(const MxGenerate *how, Row *row, int32_t id) {
    size_t n;
    if (!row->text_stream) return;
    const char *text = mx_text_stream_next(row->text_stream, id, &n);
    mx_text_addn(&row->text, text, n);
    if (row->is_over) {
        text = mx_text_stream_end(row->text_stream, &n);
        mx_text_addn(&row->text, text, n);
    }
    row->is_over |= cut_at_stop(how, &row->text);
    say(how, row, row->is_over ? row->text.len : row->text.len - waiting(how, &row->text));
}

/* ---- tokens */

static bool is_end(const MxGenerate *how, int32_t id) {
    for (int i = 0; i < how->n_ends; i++)
        if (how->ends[i] == id) return true;
    return false;
}

static void add_token(Batch *b, Row *row, const float *logits) {
    const MxGenerate *how = b->how;
    MxChoice next = mx_sample(&how->sampling, logits, b->vocab, &row->all, row->stream);
    row->logprobs[row->all.n - row->n_prompt] = (float)next.logprob;
    row->all.ids[row->all.n++] = next.id;
    row->is_over = is_end(how, next.id) || row->all.n == row->most;
    add_text(how, row, next.id);
}

/* The next `length` tokens of every row that has them, from position `from` on; of prompts only.
 * Rows whose prompt ends there get their first token. */
static void prefill(Batch *b, int64_t from) {
    const int64_t P = b->shape.chunk;
    memset(b->tokens, 0, (size_t)(b->shape.rows * P) * sizeof *b->tokens);
    for (int64_t i = 0; i < b->shape.rows; i++) {
        int64_t left = i < b->n ? b->rows[i].n_prompt - from : 0;
        b->n_tokens[i] = (int32_t)(left < 0 ? 0 : left < P ? left : P);
        b->before[i] = b->n_tokens[i] ? from : 0;
        if (b->n_tokens[i])
            memcpy(b->tokens + i * P, b->rows[i].all.ids + from,
                   (size_t)b->n_tokens[i] * sizeof *b->tokens);
    }
    mx_generation_run(b->state, &(MxPiece){b->tokens, b->n_tokens, b->before, P}, b->logits);
    for (int64_t i = 0; i < b->n; i++)
        if (b->n_tokens[i] && from + b->n_tokens[i] == b->rows[i].n_prompt)
            add_token(b, &b->rows[i], b->logits + i * b->vocab);
}

/* The last token of every row that is not over. False: all are. */
static bool decode(Batch *b) {
    bool goes_on = false;
    for (int64_t i = 0; i < b->shape.rows; i++) {
        const Row *row = &b->rows[i];
        bool is_in = i < b->n && !row->is_over;
        b->n_tokens[i] = is_in;
        b->before[i] = is_in ? row->all.n - 1 : 0;
        b->tokens[i] = is_in ? row->all.ids[row->all.n - 1] : 0;
        goes_on |= is_in;
    }
    if (!goes_on) return false;
    mx_generation_run(b->state, &(MxPiece){b->tokens, b->n_tokens, b->before, 1}, b->logits);
    for (int64_t i = 0; i < b->n; i++)
        if (b->n_tokens[i]) add_token(b, &b->rows[i], b->logits + i * b->vocab);
    return true;
}

/* ---- */

static void open_batch(MxArena *arena, MxTrainState *state, Batch *b) {
    b->state = state;
    b->shape = mx_generation(state);
    b->vocab = mx_train_state_config(state)->vocab_size;
    const int64_t n = b->shape.rows, P = b->shape.chunk;
    b->rows = mx_new_n(arena, Row, n);
    b->logits = mx_new_n(arena, float, n *(b->shape.all_logits ? P : 1) * b->vocab);
    b->tokens = mx_new_n(arena, int32_t, n * P);
    b->n_tokens = mx_new_n(arena, int32_t, n);
    b->before = mx_new_n(arena, int64_t, n);
}

static bool check_prompt(const Batch *b, const MxTokens *prompt, int64_t i, int64_t more,
                         MxError *err) {
    if (!prompt->n)
        return mx_fail(err, MX_EXIT_BAD_INPUT, MX_NOWHERE, "prompt %lld has no tokens",
                       (long long)i);
    for (int64_t k = 0; k < prompt->n; k++)
        if (prompt->ids[k] < 0 || prompt->ids[k] >= b->vocab)
            return mx_fail(err, MX_EXIT_BAD_INPUT, MX_NOWHERE,
                           "prompt %lld: token %lld is %d, and the model has ids from 0 to %lld",
                           (long long)i, (long long)k, prompt->ids[k], (long long)b->vocab - 1);
    return prompt->n + more <= b->shape.capacity ||
           mx_fail(err, MX_EXIT_BAD_INPUT, MX_NOWHERE,
                   "prompt %lld has %lld tokens; with %lld more that is above %lld", (long long)i,
                   (long long)prompt->n, (long long)more, (long long)b->shape.capacity);
}

static void begin_row(MxArena *arena, const MxGenerate *how, const MxTokens *prompt, Row *row) {
    int64_t most = prompt->n + how->max_tokens;
    *row = (Row){.n_prompt = prompt->n, .most = most};
    row->all = (MxTokens){mx_new_n(arena, int32_t, most + 1), prompt->n};
    memcpy(row->all.ids, prompt->ids, (size_t)prompt->n * sizeof *prompt->ids);
    row->logprobs = mx_new_n(arena, float, how->max_tokens + 1);
    mx_text_init(&row->text, arena);
    if (how->tokenizer) row->text_stream = mx_text_stream_new(arena, how->tokenizer, true);
}

static MxReply end_row(const Row *row) {
    return (MxReply){.tokens = {row->all.ids + row->n_prompt, row->all.n - row->n_prompt},
                     .logprobs = row->logprobs,
                     .text = row->text_stream ? row->text.data : NULL,
                     .text_bytes = row->text.len};
}

bool mx_generate(MxArena *arena, MxTrainState *state, const MxGenerate *how,
                 const MxTokens *prompts, int64_t n, MxReply *out, MxError *err) {
    Batch b = {.how = how};
    open_batch(arena, state, &b);
    MX_ASSERT(!b.shape.all_logits && how->max_tokens > 0);
    for (int64_t i = 0; i < n; i++)
        if (!check_prompt(&b, &prompts[i], i, how->max_tokens, err)) return false;
    for (int64_t first = 0; first < n; first += b.n) {
        int64_t longest = 0;
        b.n = n - first < b.shape.rows ? n - first : b.shape.rows;
        for (int64_t i = 0; i < b.n; i++) {
            begin_row(arena, how, &prompts[first + i], &b.rows[i]);
            b.rows[i].stream = how->stream + (uint64_t)(first + i);
            if (b.rows[i].n_prompt > longest) longest = b.rows[i].n_prompt;
        }
        for (int64_t from = 0; from < longest; from += b.shape.chunk) prefill(&b, from);
        while (decode(&b)) {
        }
        for (int64_t i = 0; i < b.n; i++) out[first + i] = end_row(&b.rows[i]);
    }
    return true;
}

bool mx_generate_logits(MxArena *arena, MxTrainState *state, MxTokens ids, float **out,
                        MxError *err) {
    Batch b = {0};
    open_batch(arena, state, &b);
    MX_ASSERT(b.shape.all_logits && b.shape.rows == 1);
    if (!check_prompt(&b, &ids, 0, 0, err)) return false;
    *out = mx_new_n(arena, float, ids.n *b.vocab);
    for (int64_t from = 0; from < ids.n; from += b.shape.chunk) {
        int32_t n = (int32_t)(ids.n - from < b.shape.chunk ? ids.n - from : b.shape.chunk);
        memcpy(b.tokens, ids.ids + from, (size_t)n * sizeof *b.tokens);
        mx_generation_run(state, &(MxPiece){b.tokens, &n, &from, b.shape.chunk}, b.logits);
        memcpy(*out + from * b.vocab, b.logits, (size_t)(n * b.vocab) * sizeof *b.logits);
    }
    return true;
}
