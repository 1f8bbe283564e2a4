/* held.c — replies that are held to a JSON schema: a guide for each place where a reply may begin,
 * in the reasoning, before it or behind it, as the end of its prompt tells. */
#include "held.h"

#include <stdio.h>

/* Marks of reasoning that are special tokens: grammars may ask for them, and replies show them. */
static int32_t *find_marks(const Held *h, int *n) {
    int most = 0;
    *n = 0;
    while (h->reasoning && mx_reasoning_mark(h->reasoning, most)) most++;
    int32_t *out = mx_new_n(h->arena, int32_t, most + 1);
    for (int i = 0; i < most; i++) {
        const int32_t id = mx_mark_hidden(h->tokenizer, mx_reasoning_mark(h->reasoning, i));
        bool is_there = id < 0;
        for (int k = 0; k < *n; k++) is_there |= out[k] == id;
        if (!is_there) out[(*n)++] = id;
    }
    return out;
}

static MxReasoningState state_of(const Held *h, const MxPrompt *prompt) {
    enum { LAST = 32 };
    MxArena scratch = {.name = "prompt"};
    const MxTokens *ids = &prompt->tokens;
    int64_t n = ids->n < LAST ? ids->n : LAST;
    size_t bytes;
    if (!h->reasoning || !n) return MX_REASONING_OVER;
    const char *text =
        mx_tokenizer_decode(&scratch, h->tokenizer, ids->ids + ids->n - n, n, false, &bytes);
    MxReasoningState out = mx_reasoning_state(h->reasoning, text, bytes);
    mx_arena_release(&scratch);
    return out;
}

/* The reasoning, a space or none, and the value. */
static bool write_grammar(Held *h, MxReasoningState state, MxGrammar **out, MxError *err) {
    if (state == MX_REASONING_OVER && !h->reasoning)
        return mx_grammar_of_schema(h->arena, h->schema, h->name, out, err);
    MxGrammar *g = *out = mx_grammar_new(h->arena);
    int32_t from =
        mx_reasoning_write(g, h->arena, h->vocabulary, h->reasoning, state, MX_GRAMMAR_START);
    from = mx_reasoning_lead(g, h->arena, h->vocabulary, h->reasoning, from);
    return mx_grammar_schema(g, mx_grammar_spaces(g, from, 1), h->schema, h->name, &mx_values_json,
                             MX_GRAMMAR_END, err) &&
           mx_grammar_finish(g, h->name, err);
}

static bool find_guide(Held *h, MxReasoningState state, MxError *err) {
    MxGrammar *grammar;
    if (h->guide[state]) return true;
    if (!write_grammar(h, state, &grammar, err)) return false;
    h->guide[state] = mx_guide_new(h->arena, grammar, h->vocabulary);
    return true;
}

bool held_open(MxArena *arena, const MxSpeak *what, const char *dir, MxGenerate *how, Held *out,
               MxError *err) {
    enum { LARGEST = 1 << 24 };
    MxBytes file;
    *out = (Held){.arena = arena, .tokenizer = how->tokenizer, .name = what->json_schema};
    if (!how->tokenizer)
        return mx_fail(err, MX_EXIT_CONFIG, MX_NOWHERE, "--json-schema: \"%s\" has no tokenizer",
                       dir);
    if (!mx_file_read(arena, out->name, LARGEST, &file, err)) return false;
    out->schema = mx_json_parse(arena, (const char *)file.data, file.size, out->name, err);
    if (!out->schema) return false;
    if (what->chat) out->reasoning = mx_reasoning_find(what->chat);
    how->shown = find_marks(out, &how->n_shown);
    out->vocabulary =
        mx_vocabulary_new(arena, how->tokenizer, how->ends, how->n_ends, how->shown, how->n_shown);
    return find_guide(out, MX_REASONING_OVER,
                      err); /* the schema's errors, before the model is read */
}

/* ---- replies */

static void begin(const Held *h, MxArena *arena, MxReasoningState state, HeldReply *out) {
    *out = (HeldReply){0};
    mx_reasoning_init(&out->reasoned, arena, h->reasoning, state);
    mx_text_init(&out->text, arena);
    mx_text_init(&out->answer, arena);
}

bool held_begin(Held *h, MxArena *arena, MxPrompt *prompt, HeldReply *out, MxError *err) {
    const MxReasoningState state = state_of(h, prompt);
    if (!h->schema) return true;
    begin(h, arena, state, out);
    if (!find_guide(h, state, err)) return false;
    prompt->guide = h->guide[state];
    return true;
}

/* Returns how many bytes of the answer are new. */
static size_t add(HeldReply *reply, const char *text, size_t n, bool is_over) {
    if (n) mx_text_addn(&reply->text, text, n);
    if (!reply->text.len) return 0;
    const char *start = reply->text.data + reply->done;
    MxRest rest = {start, reply->text.data + reply->text.len, is_over};
    bool answers =
        reply->reasoned.state == MX_REASONING_OVER || mx_reasoning_read(&reply->reasoned, &rest);
    const size_t more = answers ? (size_t)(rest.end - rest.at) : 0;
    if (more) mx_text_addn(&reply->answer, rest.at, more);
    reply->done += (size_t)(rest.at - start) + more;
    return more;
}

static void tell(const HeldReply *reply, size_t more) {
    if (more) fwrite(reply->answer.data + reply->answer.len - more, 1, more, stdout);
    fflush(stdout);
}

void held_say(void *reply, const char *text, size_t n) {
    tell(reply, add(reply, text, n, false));
}

void held_take(const Held *h, MxArena *arena, const MxPrompt *prompt, bool streams,
               HeldReply *reply, MxReply *out) {
    if (!h->schema) return;
    if (!streams) begin(h, arena, state_of(h, prompt), reply);
    const size_t more = add(reply, out->text, streams ? 0 : out->text_bytes, true);
    if (streams) tell(reply, more);
    out->text = reply->answer.len ? reply->answer.data : "";
    out->text_bytes = reply->answer.len;
}
