/* reasoning.c — reasoning before answers: the marks of models, one row each, and how a text is read
 * with them. Sources: chat templates of the models; vLLM 0.11, reasoning/ *_parser.py. */
#include <mx/generate_reasoning.h>

/* What stands around it, and, in answers that are held to a grammar, between its end and the
 * answer, and before an answer that is no call. */
struct MxReasoning {
    const char *name, *sign; /* sign: what tells that a template has it; NULL = either mark */
    const char *begin, *end;
    const char *next, *lead;
    const char *marks[6];
};

/* ---- text in pieces */

bool mx_is_space(char c) {
    return c == ' ' || c == '\n' || c == '\t' || c == '\r';
}

void mx_rest_skip_spaces(MxRest *rest) {
    while (rest->at < rest->end && mx_is_space(*rest->at)) rest->at++;
}

MxFound mx_rest_skip(MxRest *rest, const char *text) {
    size_t n = strlen(text), left = (size_t)(rest->end - rest->at);
    if (left < n)
        return memcmp(rest->at, text, left) || rest->is_over ? MX_FOUND_NONE : MX_FOUND_PART;
    if (memcmp(rest->at, text, n)) return MX_FOUND_NONE;
    rest->at += n;
    return MX_FOUND_CALL;
}

int32_t mx_mark_token(const MxTokenizer *tokenizer, const char *mark) {
    MxArena arena = {.name = "mark"};
    MxError ignored = {0};
    MxTokens ids;
    const MxEncoding text = {.text = mark, .n = strlen(mark), .is_rendered = true};
    bool is_one = mx_tokenizer_encode(&arena, tokenizer, text, &ids, &ignored) && ids.n == 1;
    const int32_t out = is_one ? ids.ids[0] : -1;
    mx_error_release(&ignored);
    mx_arena_release(&arena);
    return out;
}

int32_t mx_mark_hidden(const MxTokenizer *tokenizer, const char *mark) {
    MxArena arena = {.name = "mark"};
    size_t n_bytes = 1;
    const int32_t id = mx_mark_token(tokenizer, mark);
    if (id >= 0) mx_tokenizer_decode(&arena, tokenizer, &id, 1, true, &n_bytes);
    mx_arena_release(&arena);
    return n_bytes ? -1 : id;
}

/* ---- marks */

static const MxReasoning rows[] = {
    {
        .name = "harmony",
        .sign = "<|channel|>analysis",
        .begin = "<|channel|>analysis<|message|>",
        .end = "<|end|>",
        .next = "<|start|>assistant",
        .lead = "<|channel|>final<|message|>",
        .marks = {"<|channel|>", "<|message|>", "<|end|>", "<|start|>"},
    },
    {.name = "think", .begin = "<think>", .end = "</think>"},
    {.name = "mistral", .begin = "[THINK]", .end = "[/THINK]"},
    {.name = "gemma4",
     .begin = "<|channel>thought\n",
     .end = "<channel|>",
     .marks = {"<|channel>", "<channel|>"}},
    {.name = "command", .begin = "<|START_THINKING|>", .end = "<|END_THINKING|>"},
    {.name = "seed", .begin = "<seed:think>", .end = "</seed:think>"},
    {.name = "minimax_m3", .begin = "<mm:think>", .end = "</mm:think>"},
};

static bool has(const char *text, const MxReasoning *row) {
    return row->sign ? strstr(text, row->sign) != NULL
                     : strstr(text, row->begin) || strstr(text, row->end);
}

const MxReasoning *mx_reasoning_of(const char *text) {
    int i = 0;
    while (text && i < MX_COUNT(rows) && !has(text, &rows[i])) i++;
    return text && i < MX_COUNT(rows) ? &rows[i] : NULL;
}

const MxReasoning *mx_reasoning_find(const MxChat *chat) {
#define ASKS          "{\"messages\":[{\"role\":\"user\",\"content\":\"Hi\"}"
#define PROMPTS       "\"add_generation_prompt\":true}"
#define THINKS(truth) "],\"enable_thinking\":" truth ",\"thinking\":" truth "," PROMPTS
#define ANSWERS(content)                                                                           \
    ",{\"role\":\"assistant\",\"content\":\"" content "\",\"reasoning_content\":\"probe\""
    static const char *const requests[] = {
        ASKS "]," PROMPTS,
        ASKS THINKS("true"),
        ASKS THINKS("false"),
        ASKS ANSWERS("Ho") "}],\"tools\":null}",
        ASKS ANSWERS(
            "") ",\"tool_calls\":[{\"id\":\"abcdefghi\",\"type\":\"function\",\"function\":"
                "{\"name\":\"probe\",\"arguments\":{}}}]}],\"tools\":[{\"type\":"
                "\"function\",\"function\":{\"name\":\"probe\",\"description\":\"d\","
                "\"parameters\":{\"type\":\"object\",\"properties\":{}}}}]}",
    };
    MxArena arena = {.name = "probe"};
    const MxReasoning *out = NULL;
    for (int i = 0; !out && i < MX_COUNT(requests); i++)
        out = mx_reasoning_of(mx_chat_try(&arena, chat, requests[i]));
    mx_arena_release(&arena);
    return out;
}

const char *mx_reasoning_name(const MxReasoning *how) {
    return how->name;
}

const char *mx_reasoning_mark(const MxReasoning *how, int i) {
    const char *own[] = {how->begin, how->end, NULL};
    return how->marks[0] ? how->marks[i] : own[i];
}

/* Whether a text ends with a mark, but for spaces behind both. */
static bool ends_with(const char *text, size_t n, const char *mark) {
    size_t n_mark = strlen(mark);
    while (n && mx_is_space(text[n - 1])) n--;
    while (mx_is_space(mark[n_mark - 1])) n_mark--;
    return n >= n_mark && !memcmp(text + n - n_mark, mark, n_mark);
}

MxReasoningState mx_reasoning_state(const MxReasoning *how, const char *prompt, size_t n) {
    return !how || ends_with(prompt, n, how->end) ? MX_REASONING_OVER
           : ends_with(prompt, n, how->begin)     ? MX_REASONING_IN
                                                  : MX_REASONING_MAY;
}

void mx_reasoning_init(MxReasoned *out, MxArena *arena, const MxReasoning *how,
                       MxReasoningState state) {
    *out = (MxReasoned){.how = how, .state = how ? state : MX_REASONING_OVER};
    mx_text_init(&out->text, arena);
}

static void add(MxReasoned *out, const char *from, const char *to) {
    while (!out->text.len && from < to && mx_is_space(*from)) from++;
    if (from < to) mx_text_addn(&out->text, from, (size_t)(to - from));
}

static const char *without_spaces(const char *from, const char *to) {
    while (to > from && mx_is_space(to[-1])) to--;
    return to;
}

/* How much of a mark's beginning a text ends with. */
static size_t begun(const MxRest *rest, const char *mark) {
    size_t n = (size_t)(rest->end - rest->at), k = strlen(mark) - 1;
    for (k = k < n ? k : n; k && memcmp(rest->end - k, mark, k);) k--;
    return k;
}

static bool read_beginning(MxReasoned *out, MxRest *rest) {
    MxRest here = *rest;
    mx_rest_skip_spaces(&here);
    if (here.at == here.end && !rest->is_over) return false;
    MxFound found = mx_rest_skip(&here, out->how->begin);
    if (found == MX_FOUND_PART) return false;
    out->state = found == MX_FOUND_CALL ? MX_REASONING_IN : MX_REASONING_OVER;
    if (found == MX_FOUND_CALL) rest->at = here.at;
    return true;
}

static bool read_inside(MxReasoned *out, MxRest *rest) {
    const char *end = out->how->end;
    const char *found = memmem(rest->at, (size_t)(rest->end - rest->at), end, strlen(end));
    const char *to = found ? found : rest->end - (rest->is_over ? 0 : begun(rest, end));
    to = without_spaces(rest->at, to);
    add(out, rest->at, to);
    rest->at = found ? found + strlen(end) : rest->is_over ? rest->end : to;
    if (!found) return false;
    mx_rest_skip_spaces(rest);
    out->state = MX_REASONING_OVER;
    return true;
}

bool mx_reasoning_read(MxReasoned *out, MxRest *rest) {
    bool goes_on = true;
    if (out->state == MX_REASONING_MAY) goes_on = read_beginning(out, rest);
    if (goes_on && out->state == MX_REASONING_IN) goes_on = read_inside(out, rest);
    return goes_on && out->state == MX_REASONING_OVER;
}

/* ---- grammars */

static int32_t write_text(MxGrammar *g, MxArena *arena, const MxVocabulary *v, int32_t from,
                          const char *text) {
    int32_t to = mx_grammar_state(g);
    mx_grammar_text(g, from, mx_vocabulary_spell(arena, v, text), to);
    return to;
}

int32_t mx_reasoning_write(MxGrammar *g, MxArena *arena, const MxVocabulary *v,
                           const MxReasoning *how, MxReasoningState state, int32_t start) {
    enum { FEW = 4 };
    int32_t from = mx_grammar_state(g), thought = mx_grammar_state(g);
    mx_grammar_nothing(g, start, from);
    if (!how || state == MX_REASONING_OVER) return from;
    const char *end = mx_vocabulary_spell(arena, v, how->end);
    int32_t begin = state == MX_REASONING_IN ? from : mx_grammar_spaces(g, from, FEW);
    int32_t inside = state == MX_REASONING_IN ? from : write_text(g, arena, v, begin, how->begin);
    mx_grammar_other(g, inside, &end, 1, thought);
    int32_t behind = mx_grammar_spaces(g, write_text(g, arena, v, thought, how->end), FEW);
    if (how->next) behind = write_text(g, arena, v, behind, how->next);
    if (state == MX_REASONING_MAY) mx_grammar_nothing(g, from, behind);
    return behind;
}

int32_t mx_reasoning_lead(MxGrammar *g, MxArena *arena, const MxVocabulary *v,
                          const MxReasoning *how, int32_t from) {
    return how && how->lead ? write_text(g, arena, v, from, how->lead) : from;
}
