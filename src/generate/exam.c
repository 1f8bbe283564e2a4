/* exam.c — evaluates a model on tasks: the likeliest of several choices, replies that equal the
 * expected answer, perplexity of texts. Questions and scores are as in lm-evaluation-harness 0.4
 * (lm_eval/api/task.py, lm_eval/models/huggingface.py), so that figures can be compared. This file
 * does not depend on where the model comes from, or on who uses the figures. */
#include "tasks.h"

#include <math.h>

/* Tokens of which all but the first `n_given` are to be foretold. */
typedef struct Request {
    MxTokens tokens;
    int64_t n_given;
} Request;

/* What is added up: of questions that are right by each figure; of texts. */
enum { RIGHT, RIGHT_EACH, LOGPROB = 0, TOKENS, WORDS, BYTES, SUMS };

struct MxExam {
    const MxTasks *what;
    const MxTokenizer *tokenizer;
    Questions questions;
    Request **request;           /* [questions.n][choices], or [1]: the prompt of an answer */
    int64_t longest, longest_at; /* tokens that go through the model together; whose */
    int32_t first;               /* stands before what has no context: bos, else eos; -1 = none */
    int32_t eos;
    MxGenerate how; /* of answers */
    MxTrainState *state;
    int64_t vocab;
    double sum[SUMS];
};

/* ---- tokens */

static bool is_space(char c) {
    return c == ' ' || c == '\n' || c == '\t' || c == '\r';
}

static bool encode(MxArena *arena, const MxExam *e, const char *text, size_t n, MxWhere where,
                   MxTokens *out, MxError *err) {
    return mx_tokenizer_encode(
        arena, e->tokenizer,
        (MxEncoding){.text = text, .n = n, .special = e->what->special, .where = where}, out, err);
}

/* A choice behind its context: spaces at the context's end are the choice's, and what follows the
 * context's tokens in those of both is the choice. Source: _encode_pair. */
static bool encode_choice(MxArena *arena, const MxExam *e, const Question *q, int choice,
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
static bool foretell(const MxExam *e, const Request *request, double *out, MxError *err) {
    MxArena arena = {.name = "logits"};
    float *logits;
    const MxTokens *t = &request->tokens;
    bool ok = mx_generate_logits(&arena, e->state, &(MxPrompt){.tokens = {t->ids, t->n - 1}},
                                 &logits, err);
    *out = 0;
    for (int64_t i = request->n_given; ok && i < t->n; i++) {
        const float *row = logits + (i - 1) * e->vocab;
        *out += (double)row[t->ids[i]] - mx_log_sum(row, e->vocab);
    }
    mx_arena_release(&arena);
    return ok;
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

static bool prepare_choices(MxArena *arena, MxExam *e, const Question *q, Request **out,
                            int64_t *longest, MxError *err) {
    *out = mx_new_n(arena, Request, q->n);
    for (int k = 0; k < q->n; k++) {
        if (!encode_choice(arena, e, q, k, &(*out)[k], err)) return false;
        int64_t n = (*out)[k].tokens.n - 1;
        *longest = n > *longest ? n : *longest;
    }
    return true;
}

static bool choose(MxArena *arena, MxExam *e, const Question *q, const Request *requests,
                   MxJson *line, MxError *err) {
    double *sum = mx_new_n(arena, double, q->n), *each = mx_new_n(arena, double, q->n);
    MxJson *list = mx_json_put_array(line, "logprobs");
    for (int i = 0; i < q->n; i++) {
        if (!foretell(e, &requests[i], &sum[i], err)) return false;
        each[i] = sum[i] / characters(q->choice[i]);
        MxJson *value = mx_json_object(arena);
        mx_json_set_number(value, "n", sum[i]);
        mx_json_push(list, mx_json_get(value, "n"));
    }
    bool is_right = best_of(sum, q->n) == q->gold, is_right_each = best_of(each, q->n) == q->gold;
    mx_json_set_int(line, "gold", q->gold);
    mx_json_set_int(line, "acc", is_right);
    mx_json_set_int(line, "acc_norm", is_right_each);
    e->sum[RIGHT] += is_right;
    e->sum[RIGHT_EACH] += is_right_each;
    return true;
}

/* ---- answers */

static TaskText trimmed(const char *text, size_t n) {
    while (n && is_space(text[0])) text++, n--;
    while (n && is_space(text[n - 1])) n--;
    return (TaskText){text, n};
}

static bool prepare_answer(MxArena *arena, MxExam *e, const Question *q, Request **out,
                           int64_t *longest, MxError *err) {
    *out = mx_new(arena, Request);
    if (!encode(arena, e, q->context.text, q->context.n, q->where, &(*out)->tokens, err))
        return false;
    *longest = (*out)->tokens.n + e->what->max_tokens;
    return true;
}

static bool answer(MxArena *arena, MxExam *e, const Question *q, const Request *request,
                   MxJson *line, MxError *err) {
    MxReply reply;
    const MxPrompt prompt = {.tokens = request->tokens};
    if (!mx_generate(arena, e->state, &e->how, &prompt, 1, &reply, err)) return false;
    TaskText said = trimmed(reply.text, reply.text_bytes);
    TaskText wanted = trimmed(q->target.text, q->target.n);
    bool is_right = said.n == wanted.n && !memcmp(said.text, wanted.text, said.n);
    mx_json_set_string(line, "reply", mx_arena_strndup(arena, said.text, said.n));
    mx_json_set_string(line, "wanted", mx_arena_strndup(arena, wanted.text, wanted.n));
    mx_json_set_int(line, "exact_match", is_right);
    e->sum[RIGHT] += is_right;
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

/* All tokens of a text, a row after the other, each behind the token before it. Source:
 * utils.get_rolling_token_windows with a context of one. */
static bool roll(MxExam *e, const int32_t *ids, int64_t n, MxError *err) {
    const int64_t said = e->what->length;
    const int64_t length = said ? said : mx_generation(e->state).capacity;
    for (int64_t at = 1; at < n; at += length) {
        int64_t some = n - at < length ? n - at : length;
        Request request = {{(int32_t *)(uintptr_t)ids + at - 1, some + 1}, 1};
        double part;
        if (!foretell(e, &request, &part, err)) return false;
        e->sum[LOGPROB] += part;
    }
    return true;
}

/* Tokens of long texts are made when they are wanted. */
static bool prepare_text(MxArena *arena, MxExam *e, const Question *q, Request **out,
                         int64_t *longest, MxError *err) {
    (void)arena, (void)q, (void)out, (void)longest;
    return e->first >= 0 || mx_fail(err, MX_EXIT_BAD_INPUT, MX_NOWHERE,
                                    "the tokenizer has neither bos nor eos for texts to begin "
                                    "with");
}

static bool follow_text(MxArena *arena, MxExam *e, const Question *q, const Request *request,
                        MxJson *line, MxError *err) {
    MxTokens t;
    (void)request, (void)line;
    if (!encode(arena, e, q->context.text, q->context.n, q->where, &t, err)) return false;
    int32_t *ids = mx_new_n(arena, int32_t, t.n + 1);
    ids[0] = e->first;
    if (t.n) memcpy(ids + 1, t.ids, (size_t)t.n * sizeof *ids);
    e->sum[TOKENS] += (double)t.n;
    e->sum[WORDS] += words_of(q->context);
    e->sum[BYTES] += (double)q->context.n;
    return roll(e, ids, t.n + 1, err);
}

/* ---- figures */

static double share(const MxExam *e, int sum) {
    return e->questions.n ? e->sum[sum] / (double)e->questions.n : 0;
}

/* What a share may be off by: the standard error of a mean. */
static double share_error(const MxExam *e, int sum) {
    double mean = share(e, sum), n = (double)e->questions.n;
    return n > 1 ? sqrt(mean * (1 - mean) / (n - 1)) : 0;
}

static double perplexity(const MxExam *e, int sum) {
    return exp(-e->sum[LOGPROB] / e->sum[sum]);
}

static double bits(const MxExam *e, int sum) {
    return -e->sum[LOGPROB] / e->sum[sum] / log(2);
}

static const struct {
    const char *unit;
    bool wants_logits;
    bool has_lines; /* a question's own figures can be told */
    /* longest  receives tokens that go through the model together, 0 = as many as it takes */
    bool (*prepare)(MxArena *arena, MxExam *e, const Question *q, Request **out, int64_t *longest,
                    MxError *err);
    bool (*ask)(MxArena *arena, MxExam *e, const Question *q, const Request *request, MxJson *line,
                MxError *err);
    struct {
        const char *name;
        double (*value)(const MxExam *e, int sum);
        int sum;
    } figure[MX_EXAM_FIGURES];
} kinds[] = {
    [TASK_CHOICE] = {"questions",
                     true,
                     true,
                     prepare_choices,
                     choose,
                     {{"acc", share, RIGHT},
                      {"acc_stderr", share_error, RIGHT},
                      {"acc_norm", share, RIGHT_EACH},
                      {"acc_norm_stderr", share_error, RIGHT_EACH}}},
    [TASK_ANSWER] = {"questions",
                     false,
                     true,
                     prepare_answer,
                     answer,
                     {{"exact_match", share, RIGHT}, {"exact_match_stderr", share_error, RIGHT}}},
    [TASK_TEXT] = {"texts",
                   true,
                   false,
                   prepare_text,
                   follow_text,
                   {{"perplexity", perplexity, TOKENS},
                    {"word_perplexity", perplexity, WORDS},
                    {"byte_perplexity", perplexity, BYTES},
                    {"bits_per_byte", bits, BYTES}}},
};

/* ---- */

bool mx_exam_read(MxArena *arena, const MxTokenizer *tokenizer, const MxTasks *what, MxExam **out,
                  MxError *err) {
    MxExam *e = *out = mx_new(arena, MxExam);
    *e = (MxExam){.what = what, .tokenizer = tokenizer};
    if (!tasks_read(arena, what, &e->questions, err)) return false;
    e->eos = mx_tokenizer_eos(tokenizer);
    e->first = mx_tokenizer_bos(tokenizer);
    if (e->first < 0) e->first = e->eos;
    e->request = mx_new_n(arena, Request *, e->questions.n);
    for (int64_t i = 0; i < e->questions.n; i++) {
        int64_t longest = 0;
        if (!kinds[e->questions.kind].prepare(arena, e, &e->questions.item[i], &e->request[i],
                                              &longest, err))
            return false;
        if (longest > e->longest) e->longest = longest, e->longest_at = i;
    }
    return true;
}

int64_t mx_exam_count(const MxExam *e) {
    return e->questions.n;
}
const char *mx_exam_unit(const MxExam *e) {
    return kinds[e->questions.kind].unit;
}
bool mx_exam_wants_logits(const MxExam *e) {
    return kinds[e->questions.kind].wants_logits;
}
int64_t mx_exam_longest(const MxExam *e, MxWhere *where) {
    if (where) *where = e->questions.item[e->longest_at].where;
    return e->longest;
}

void mx_exam_begin(MxExam *e, MxTrainState *state, const int32_t *ends, int n_ends) {
    static const char *const blank_line[] = {"\n\n"};
    const MxTasks *what = e->what;
    MX_ASSERT(e->longest <= mx_generation(state).capacity);
    e->state = state;
    e->vocab = mx_train_state_config(state)->vocab_size;
    e->how = (MxGenerate){.sampling = {.top_p = 1, .repetition_penalty = 1},
                          .max_tokens = what->max_tokens,
                          .tokenizer = e->tokenizer,
                          .ends = n_ends ? ends : &e->eos,
                          .n_ends = n_ends ? n_ends : 1,
                          .stops = what->n_stops ? what->stops : blank_line,
                          .n_stops = what->n_stops ? what->n_stops : 1};
    memset(e->sum, 0, sizeof e->sum);
}

bool mx_exam_ask(MxArena *arena, MxExam *e, int64_t i, MxJson **line, MxError *err) {
    MxJson *told = mx_json_object(arena);
    *line = kinds[e->questions.kind].has_lines ? told : NULL;
    return kinds[e->questions.kind].ask(arena, e, &e->questions.item[i], e->request[i], told, err);
}

int mx_exam_figures(const MxExam *e, const char *name[MX_EXAM_FIGURES],
                    double value[MX_EXAM_FIGURES]) {
    int n = 0;
    for (; n < MX_EXAM_FIGURES && kinds[e->questions.kind].figure[n].name; n++) {
        name[n] = kinds[e->questions.kind].figure[n].name;
        value[n] =
            kinds[e->questions.kind].figure[n].value(e, kinds[e->questions.kind].figure[n].sum);
    }
    return n;
}
