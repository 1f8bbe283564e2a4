/* schema.c — fuzz target for JSON schemas: an input is a schema, a NUL, and bytes that choose a
 * text of it. A schema becomes a grammar, or an error. What is chosen among the bytes that may come
 * is JSON when it may end, and every text can go on or end. */
#include <mx/guide.h>

#include <math.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { EOS = 257, VOCAB };

static void need(bool holds) {
    if (!holds) abort();
}

/* The first byte that may come, from the wanted one on. */
static int32_t choose(MxGuided *text, uint8_t wanted, bool *may_end) {
    float logits[VOCAB] = {0};
    if (!mx_guided_limit(text, logits, VOCAB)) return -1;
    *may_end = !isinf(logits[EOS]);
    for (int i = 0; i < 256; i++)
        if (!isinf(logits[(wanted + i) % 256])) return (wanted + i) % 256;
    return -1;
}

static void write(MxArena *arena, MxGuide *guide, const uint8_t *wanted, size_t n) {
    MxGuided text;
    MxError err = {0};
    const MxWhere where = {.file = "text"};
    mx_guided_init(&text, arena, guide);
    for (size_t i = 0; i <= n; i++) {
        bool may_end = false;
        int32_t byte = choose(&text, i < n ? wanted[i] : '"', &may_end);
        need(byte >= 0 || may_end);
        if (may_end) {
            const char *wrapped = mx_arena_printf(arena, "[%s]", text.bytes.data);
            need(mx_json_parse_line(arena, wrapped, text.bytes.len + 2, where, &err) != NULL);
        }
        if (byte < 0) return;
        mx_guided_accept(&text, byte);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    enum { LARGEST = 1 << 12, LONGEST = 256 };
    static const int32_t eos = EOS;
    MxArena arena = {.name = "fuzz"};
    MxError err = {0};
    MxTokenizer *tokenizer;
    MxGrammar *grammar;
    if (size > LARGEST) return 0;
    const uint8_t *nul = size ? memchr(data, 0, size) : NULL;
    size_t n = nul ? (size_t)(nul - data) : size, n_text = nul ? size - n - 1 : 0;
    const MxJson *schema = mx_json_parse(&arena, (const char *)data, n, "schema", &err);
    bool ok = schema && mx_grammar_of_schema(&arena, schema, "schema", &grammar, &err);
    need(ok == !err.count);
    if (ok) {
        need(mx_tokenizer_open(&arena, "byte", NULL, &tokenizer, &err));
        const MxVocabulary *v = mx_vocabulary_new(&arena, tokenizer, &eos, 1, NULL, 0);
        write(&arena, mx_guide_new(&arena, grammar, v), nul ? nul + 1 : data,
              n_text < LONGEST ? n_text : LONGEST);
    }
    mx_error_release(&err);
    mx_arena_release(&arena);
    return 0;
}
