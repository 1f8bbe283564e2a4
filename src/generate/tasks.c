/* tasks.c — how well a model does on tasks: the likeliest of several choices, replies that are the
 * wanted answer, perplexity of texts. What is asked, and what is made of the answers, is as in
 * lm-evaluation-harness 0.4 (lm_eval/api/task.py, lm_eval/models/huggingface.py), so that figures
 * can be compared. */
#include "tasks.h"

#include <math.h>
#include <stdio.h>

/* Tokens of which all but the first `n_given` are to be foretold. */
typedef struct Request {
    MxTokens tokens;
    int64_t n_given;
} Request;

typedef struct Examiner {
    const MxTasks *what;
    const MxTokenizer *tokenizer;
    MxSource source;
    MxTrainState *state;
    Questions questions;
    int64_t vocab;
    int32_t first; /* stands before what has no context: bos, else eos; -1 = none */
} Examiner;

/* ---- tokens */

static bool is_space(char c) {
    return c == ' ' || c == '\n' || c == '\t' || c == '\r';
}

static bool encode(MxArena *arena, const Examiner *e, const char *text, size_t n, MxWhere where,
                   MxTokens *out, MxError *err) {
    return mx_tokenizer_encode(arena, e->tokenizer, (MxEncoding){text, n, e->what->special, where},
                               out, err);
}

/* A choice behind its context: spaces at the context's end are the choice's, and what follows the
 * context's tokens in those of both is the choice. Source: _encode_pair. */
static bool encode_choice(MxArena *arena, const Examiner *e, const Question *q, int choice,
                          Request *out, MxError *err) {
    size_t n = q->context.n;
    MxTokens context;
    MxText both;
    mx_text_init(&both, arena);
    while (n && is_space(q->context.text[n - 1])) n--;
    mx_text_addn(&both, q->context.text, q->context.n);
    mx_text_addn(&both, " ", 1);
    mx_text_addn(&both, q->choice[choice].text, q->choice[choice].n);
    if (!encode(arena, e, both.data, both.len, q->where, &out->tokens, err) ||
        !encode(arena, e, q->context.text, n, q->where, &context, err))
        return false;
    out->n_given = context.n;
    if (out->n_given) return true;
    if (e->first < 0)
        return mx_fail(err, MX_EXIT_BAD_INPUT, q->where,
                       "has no context, and the tokenizer has neither bos nor eos to begin with");
    MxTokens begun = {mx_new_n(arena, int32_t, out->tokens.n + 1), out->tokens.n + 1};
    begun.ids[0] = e->first;
    memcpy(begun.ids + 1, out->tokens.ids, (size_t)out->tokens.n * sizeof *begun.ids);
    *out = (Request){begun, 1};
    return true;
}

/* ---- probabilities */

/* The sum over what is to be foretold. */
static bool foretell(const Examiner *e, const Request *request, double *out, MxError *err) {
    MxArena arena = {.name = "logits"};
    float *logits;
    const MxTokens *t = &request->tokens;
    bool ok = mx_generate_logits(&arena, e->state, (MxTokens){t->ids, t->n - 1}, &logits, err);
    *out = 0;
    for (int64_t i = request->n_given; ok && i < t->n; i++) {
        const float *row = logits + (i - 1) * e->vocab;
        *out += (double)row[t->ids[i]] - mx_log_sum(row, e->vocab);
    }
    mx_arena_release(&arena);
    return ok;
}

static bool open_model(MxArena *arena, Examiner *e, int64_t longest, bool all_logits,
                       MxError *err) {
    enum { LARGEST_CHUNK = 128 };
    int64_t chunk = longest < 2 ? 2 : longest < LARGEST_CHUNK ? longest : LARGEST_CHUNK;
    MxGeneration what = {.rows = 1,
                         .capacity = longest < chunk ? chunk : longest,
                         .chunk = chunk,
                         .all_logits = all_logits};
    return mx_source_open(arena, &e->source, what, &e->state, err);
}

/* ---- figures */

/* A share, and what it may be off by: the standard error of a mean. */
static void add_share(MxJson *out, const char *name, double sum, int64_t n) {
    double mean = sum / (double)n;
    mx_json_set_number(out, name, mean);
    MxArena arena = {.name = "name"};
    mx_json_set_number(out, mx_arena_printf(&arena, "%s_stderr", name),
                       n > 1 ? sqrt(mean * (1 - mean) / (double)(n - 1)) : 0);
    mx_arena_release(&arena);
}

static void show_line(MxArena *arena, const MxJson *line) {
    printf("%s\n", mx_json_dump(arena, line, false));
    fflush(stdout);
}

/* ---- choices */

static int best_of(const double *score, int n) {
    int best = 0;
    for (int i = 1; i < n; i++)
        if (score[i] > score[best]) best = i;
    return best;
}

static double characters(TaskText text) {
    double n = 0;
    for (size_t i = 0; i < text.n; i++) n += ((uint8_t)text.text[i] & 0xc0) != 0x80;
    return n;
}

static bool choose(const Examiner *e, const Question *q, const Request *requests, double right[2],
                   MxError *err) {
    MxArena arena = {.name = "question"};
    double *sum = mx_new_n(&arena, double, q->n), *each = mx_new_n(&arena, double, q->n);
    MxJson *line = mx_json_object(&arena), *list = mx_json_put_array(line, "logprobs");
    bool ok = true;
    for (int i = 0; ok && i < q->n; i++) {
        ok = foretell(e, &requests[i], &sum[i], err);
        each[i] = sum[i] / characters(q->choice[i]);
        MxJson *value = mx_json_object(&arena);
        mx_json_set_number(value, "n", sum[i]);
        mx_json_push(list, mx_json_get(value, "n"));
    }
    bool is_right = best_of(sum, q->n) == q->gold, is_right_each = best_of(each, q->n) == q->gold;
    mx_json_set_int(line, "gold", q->gold);
    mx_json_set_int(line, "acc", is_right);
    mx_json_set_int(line, "acc_norm", is_right_each);
    if (ok && e->what->json) show_line(&arena, line);
    right[0] += is_right;
    right[1] += is_right_each;
    mx_arena_release(&arena);
    return ok;
}

static bool run_choices(MxArena *arena, Examiner *e, MxJson *figures, MxError *err) {
    const Questions *all = &e->questions;
    Request **requests = mx_new_n(arena, Request *, all->n);
    int64_t longest = 0;
    double right[2] = {0};
    for (int64_t i = 0; i < all->n; i++) {
        const Question *q = &all->item[i];
        requests[i] = mx_new_n(arena, Request, q->n);
        for (int k = 0; k < q->n; k++) {
            if (!encode_choice(arena, e, q, k, &requests[i][k], err)) return false;
            int64_t n = requests[i][k].tokens.n;
            longest = n > longest ? n : longest;
        }
    }
    if (!open_model(arena, e, longest, true, err)) return false;
    for (int64_t i = 0; i < all->n; i++)
        if (!choose(e, &all->item[i], requests[i], right, err)) return false;
    add_share(figures, "acc", right[0], all->n);
    add_share(figures, "acc_norm", right[1], all->n);
    return true;
}

/* ---- answers */

static TaskText trimmed(const char *text, size_t n) {
    while (n && is_space(text[0])) text++, n--;
    while (n && is_space(text[n - 1])) n--;
    return (TaskText){text, n};
}

static bool answer(const Examiner *e, const MxGenerate *how, const Question *q,
                   const MxTokens *prompt, double *right, MxError *err) {
    MxArena arena = {.name = "question"};
    MxReply reply;
    bool ok = mx_generate(&arena, e->state, how, prompt, 1, &reply, err);
    if (ok) {
        TaskText said = trimmed(reply.text, reply.text_bytes);
        TaskText wanted = trimmed(q->target.text, q->target.n);
        bool is_right = said.n == wanted.n && !memcmp(said.text, wanted.text, said.n);
        MxJson *line = mx_json_object(&arena);
        mx_json_set_string(line, "reply", mx_arena_strndup(&arena, said.text, said.n));
        mx_json_set_string(line, "wanted", mx_arena_strndup(&arena, wanted.text, wanted.n));
        mx_json_set_int(line, "exact_match", is_right);
        if (e->what->json) show_line(&arena, line);
        *right += is_right;
    }
    mx_arena_release(&arena);
    return ok;
}

static bool run_answers(MxArena *arena, Examiner *e, MxJson *figures, MxError *err) {
    static const char *const blank_line[] = {"\n\n"};
    const Questions *all = &e->questions;
    const MxTasks *what = e->what;
    int32_t eos = mx_tokenizer_eos(e->tokenizer);
    MxGenerate how = {.sampling = {.top_p = 1, .repetition_penalty = 1},
                      .max_tokens = what->max_tokens,
                      .tokenizer = e->tokenizer,
                      .ends = e->source.n_ends ? e->source.ends : &eos,
                      .n_ends = e->source.n_ends ? e->source.n_ends : 1,
                      .stops = what->n_stops ? what->stops : blank_line,
                      .n_stops = what->n_stops ? what->n_stops : 1};
    MxTokens *prompts = mx_new_n(arena, MxTokens, all->n);
    int64_t longest = 0;
    double right = 0;
    for (int64_t i = 0; i < all->n; i++) {
        const Question *q = &all->item[i];
        if (!encode(arena, e, q->context.text, q->context.n, q->where, &prompts[i], err))
            return false;
        longest = prompts[i].n > longest ? prompts[i].n : longest;
    }
    if (!open_model(arena, e, longest + what->max_tokens, false, err)) return false;
    for (int64_t i = 0; i < all->n; i++)
        if (!answer(e, &how, &all->item[i], &prompts[i], &right, err)) return false;
    add_share(figures, "exact_match", right, all->n);
    return true;
}

/* ---- texts */

/* Parts of a text that are separated by spaces, as Python's re.split counts them. */
static double words_of(TaskText text) {
    double n = 1;
    for (size_t i = 0; i < text.n; i++)
        n += is_space(text.text[i]) && (!i || !is_space(text.text[i - 1]));
    return n;
}

/* All tokens of a text, a row of the model's length after the other, each behind the token before
 * it. Source: utils.get_rolling_token_windows with a context of one. */
static bool roll(const Examiner *e, const int32_t *ids, int64_t n, int64_t length, double *sum,
                 MxError *err) {
    for (int64_t at = 1; at < n; at += length) {
        int64_t some = n - at < length ? n - at : length;
        Request request = {{(int32_t *)(uintptr_t)ids + at - 1, some + 1}, 1};
        double part;
        if (!foretell(e, &request, &part, err)) return false;
        *sum += part;
    }
    return true;
}

/* The longest row that the model knows: what its config.json says, or it was trained on. */
static bool find_length(MxArena *arena, const Examiner *e, int64_t *out, MxError *err) {
    enum { MOST = 2048 };
    const MxCkptRef *ref = &e->source.ref;
    MxHfModel model = {.length = e->source.config->max_target_length};
    if (ref->is_hf &&
        !mx_hf_read_config(arena, mx_path_join(arena, ref->path, MX_HF_CONFIG), &model, err))
        return false;
    *out = model.length > 0 && model.length < MOST ? model.length : MOST;
    return true;
}

static bool run_texts(MxArena *arena, Examiner *e, MxJson *figures, MxError *err) {
    const Questions *all = &e->questions;
    int64_t length;
    double sum = 0, tokens = 0, words = 0, bytes = 0;
    if (!find_length(arena, e, &length, err)) return false;
    if (e->first < 0)
        return mx_fail(err, MX_EXIT_BAD_INPUT, MX_NOWHERE,
                       "the tokenizer has neither bos nor eos for texts to begin with");
    if (!open_model(arena, e, length, true, err)) return false;
    for (int64_t i = 0; i < all->n; i++) {
        MxArena scratch = {.name = "text"};
        const Question *q = &all->item[i];
        MxTokens t;
        bool ok = encode(&scratch, e, q->context.text, q->context.n, q->where, &t, err);
        int32_t *ids = mx_new_n(&scratch, int32_t, ok ? t.n + 1 : 1);
        ids[0] = e->first;
        if (ok && t.n) memcpy(ids + 1, t.ids, (size_t)t.n * sizeof *ids);
        ok = ok && roll(e, ids, t.n + 1, length, &sum, err);
        tokens += ok ? (double)t.n : 0;
        words += words_of(q->context);
        bytes += (double)q->context.n;
        mx_arena_release(&scratch);
        if (!ok) return false;
    }
    mx_json_set_number(figures, "perplexity", exp(-sum / tokens));
    mx_json_set_number(figures, "word_perplexity", exp(-sum / words));
    mx_json_set_number(figures, "byte_perplexity", exp(-sum / bytes));
    mx_json_set_number(figures, "bits_per_byte", -sum / bytes / log(2));
    return true;
}

/* ---- */

static const struct {
    const char *unit;
    bool (*run)(MxArena *arena, Examiner *e, MxJson *figures, MxError *err);
} kinds[] = {
    [TASK_CHOICE] = {"questions", run_choices},
    [TASK_ANSWER] = {"questions", run_answers},
    [TASK_TEXT] = {"texts", run_texts},
};

bool mx_evaluate_tasks(MxArena *arena, const char *dir, const MxTokenizer *tokenizer,
                       const MxTasks *what, MxError *err) {
    Examiner e = {.what = what, .tokenizer = tokenizer};
    MxStrs overrides = {.item = mx_new_n(arena, const char *, 2)};
    MxJson *figures = mx_json_object(arena), *value;
    const char *name;
    if (what->dtype) {
        overrides.item[overrides.n++] = mx_arena_printf(arena, "dtype=%s", what->dtype);
        overrides.item[overrides.n++] = mx_arena_printf(arena, "weight_dtype=%s", what->dtype);
    }
    if (!tasks_read(arena, what, &e.questions, err) ||
        !mx_source_find(arena, dir, overrides, &e.source, err))
        return false;
    e.vocab = e.source.config->vocab_size;
    e.first = mx_tokenizer_bos(tokenizer);
    if (e.first < 0) e.first = mx_tokenizer_eos(tokenizer);
    mx_json_set_int(figures, kinds[e.questions.kind].unit, e.questions.n);
    if (!kinds[e.questions.kind].run(arena, &e, figures, err)) return false;
    if (what->json) {
        show_line(arena, figures);
        return true;
    }
    for (void *at = NULL; mx_json_next(figures, &at, &name, &value);) {
        double number;
        mx_json_number(value, &number);
        printf("%-18s %.6g\n", name, number);
    }
    return true;
}
