/* train.c — trains a byte-level BPE on text. Texts are split into words as the tokenizer will split
 * them, and equal words are counted once. Then, while the vocabulary has room, the most frequent
 * pair of neighbours becomes a token; of equally frequent pairs the one with the lower ids, so the
 * same text gives the same tokenizer. train_write.c writes its files. Source: Sennrich et al. 2016;
 * the order and the ids are those of the tokenizers library 0.22, trainers.BpeTrainer. */
#include "train.h"

/* ---- words and how often they occur */

/* As a model: what is handed to it is counted. */
static void count_word(const void *settings, TextWork *work, TextSpan word) {
    TextCounts *counts = (TextCounts *)(uintptr_t)settings; /* a model that encodes is constant */
    int32_t at = text_vocab_find(&counts->words, word);
    (void)work;
    if (at < 0) {
        MxArena *arena = counts->words.arena;
        at = counts->words.n;
        if (at > TEXT_MOST_ID) {
            counts->n_lost++;
            return;
        }
        if (at == counts->cap) {
            counts->cap = counts->cap ? 2 * counts->cap : 1024;
            counts->n =
                mx_arena_grow(arena, counts->n, (size_t)at, (size_t)counts->cap, sizeof *counts->n);
        }
        word.data = mx_arena_strndup(arena, word.data, word.n);
        text_vocab_add(&counts->words, word, at);
        counts->n[at] = 0;
    }
    counts->n[at]++;
}

static const TextModel counter = {.kind = {.name = "counter"}, .encode = count_word};

MxBpe *mx_bpe_new(MxArena *arena) {
    MxBpe *trainer = mx_new(arena, MxBpe);
    MxError never = {0}; /* the layout is ours */
    trainer->counting = text_tokenizer_new(arena);
    bool ok = text_bytes_pipeline(arena, "byte-level BPE", NULL, trainer->counting, &never);
    MX_ASSERT(ok);
    text_train_specials(&trainer->counting->raw);
    text_vocab_init(&trainer->counts.words, arena, 1024);
    trainer->counting->model = (TextStep){&counter.kind, &trainer->counts};
    return trainer;
}

bool mx_bpe_add(MxBpe *trainer, MxEncoding what, MxError *err) {
    MxArena scratch = {.name = "words"};
    MxTokens specials; /* which are all that comes out */
    bool ok = mx_tokenizer_encode(&scratch, trainer->counting, what, &specials, err);
    mx_arena_release(&scratch);
    trainer->n_texts++;
    trainer->n_bytes += (int64_t)what.n;
    return ok;
}

/* ---- pairs of neighbours */

typedef struct Word {
    int32_t *ids; /* [n] */
    int32_t n;
    int64_t count;
} Word;

typedef struct Pair {
    int32_t a, b;
    int64_t count;
    int32_t *words; /* [n] in which it occurs, or did */
    int32_t n, cap;
    uint32_t touched; /* by which merge it was last made */
} Pair;

/* A pair as often as it occurred when this was noted. */
typedef struct Turn {
    int64_t count;
    uint32_t pair;
} Turn;

typedef struct Merging {
    MxArena *arena;
    TextTrained *out;
    Word *word;
    int32_t n_words;
    Pair *pair; /* [n_pairs] */
    uint32_t n_pairs, cap_pairs;
    TextPairs find;
    size_t most_found; /* before it is made anew */
    Turn *heap;
    size_t n_heap, cap_heap;
    uint32_t *touched; /* [n_touched] pairs that the merge in hand makes */
    uint32_t n_touched, cap_touched;
} Merging;

static void make_room_for_pairs(Merging *m) {
    if (m->n_pairs == m->cap_pairs) {
        m->cap_pairs *= 2;
        m->pair = mx_arena_grow(m->arena, m->pair, m->n_pairs, m->cap_pairs, sizeof *m->pair);
    }
    if (m->n_pairs < m->most_found) return;
    m->most_found *= 2;
    text_pairs_init(&m->find, m->arena, m->most_found);
    for (uint32_t i = 0; i < m->n_pairs; i++)
        text_pairs_set(&m->find, (uint32_t)m->pair[i].a, (uint32_t)m->pair[i].b, i);
}

static uint32_t pair_of(Merging *m, int32_t a, int32_t b) {
    uint32_t at = text_pairs_get(&m->find, (uint32_t)a, (uint32_t)b);
    if (at != UINT32_MAX) return at;
    make_room_for_pairs(m);
    m->pair[m->n_pairs] = (Pair){.a = a, .b = b};
    text_pairs_set(&m->find, (uint32_t)a, (uint32_t)b, m->n_pairs);
    return m->n_pairs++;
}

/* It occurs once more in a word. */
static void add_place(Merging *m, uint32_t at, int32_t word) {
    Pair *pair = &m->pair[at];
    pair->count += m->word[word].count;
    if (pair->n && pair->words[pair->n - 1] == word) return;
    if (pair->n == pair->cap) {
        pair->cap = pair->cap ? 2 * pair->cap : 4;
        pair->words = mx_arena_grow(m->arena, pair->words, (size_t)pair->n, (size_t)pair->cap,
                                    sizeof *pair->words);
    }
    pair->words[pair->n++] = word;
}

/* ---- whose turn it is */

static bool is_before(const Merging *m, Turn x, Turn y) {
    const Pair *p = &m->pair[x.pair], *q = &m->pair[y.pair];
    if (x.count != y.count) return x.count > y.count;
    return p->a != q->a ? p->a < q->a : p->b < q->b;
}

static void push(Merging *m, uint32_t pair) {
    Turn turn = {m->pair[pair].count, pair};
    if (turn.count <= 0) return;
    if (m->n_heap == m->cap_heap) {
        m->cap_heap *= 2;
        m->heap = mx_arena_grow(m->arena, m->heap, m->n_heap, m->cap_heap, sizeof *m->heap);
    }
    size_t i = m->n_heap++;
    for (; i && is_before(m, turn, m->heap[(i - 1) / 2]); i = (i - 1) / 2)
        m->heap[i] = m->heap[(i - 1) / 2];
    m->heap[i] = turn;
}

static Turn pop(Merging *m) {
    Turn top = m->heap[0], last = m->heap[--m->n_heap];
    size_t i = 0;
    for (size_t child; (child = 2 * i + 1) < m->n_heap; i = child) {
        if (child + 1 < m->n_heap && is_before(m, m->heap[child + 1], m->heap[child])) child++;
        if (!is_before(m, m->heap[child], last)) break;
        m->heap[i] = m->heap[child];
    }
    m->heap[i] = last;
    return top;
}

/* ---- merging */

static void note_touched(Merging *m, uint32_t at, uint32_t merge) {
    if (m->pair[at].touched == merge) return;
    m->pair[at].touched = merge;
    if (m->n_touched == m->cap_touched) {
        m->cap_touched *= 2;
        m->touched =
            mx_arena_grow(m->arena, m->touched, m->n_touched, m->cap_touched, sizeof *m->touched);
    }
    m->touched[m->n_touched++] = at;
}

/* Neighbours x, y are no more, and new ones stand there. */
static void replace(Merging *m, int32_t word, const int32_t gone[2], const int32_t made[2]) {
    m->pair[pair_of(m, gone[0], gone[1])].count -= m->word[word].count;
    uint32_t at = pair_of(m, made[0], made[1]);
    add_place(m, at, word);
    note_touched(m, at, m->out->n_merges);
}

static void merge_word(Merging *m, int32_t at, int32_t a, int32_t b, int32_t id) {
    Word *word = &m->word[at];
    int32_t n = 0;
    for (int32_t i = 0; i < word->n; i++) {
        bool is_here = word->ids[i] == a && i + 1 < word->n && word->ids[i + 1] == b;
        if (is_here && n)
            replace(m, at, (int32_t[]){word->ids[n - 1], a}, (int32_t[]){word->ids[n - 1], id});
        if (is_here && i + 2 < word->n)
            replace(m, at, (int32_t[]){b, word->ids[i + 2]}, (int32_t[]){id, word->ids[i + 2]});
        word->ids[n++] = is_here ? id : word->ids[i];
        i += is_here;
    }
    word->n = n;
}

/* The token that two make: it may be there, made of two others. */
static int32_t token_of(Merging *m, int32_t a, int32_t b) {
    TextVocab *tokens = &m->out->tokens;
    TextSpan x = tokens->text[a], y = tokens->text[b];
    char *text = mx_arena_alloc(tokens->arena, x.n + y.n + 1);
    memcpy(text, x.data, x.n);
    memcpy(text + x.n, y.data, y.n);
    TextSpan joined = {text, x.n + y.n};
    int32_t id = text_vocab_find(tokens, joined);
    if (id >= 0) return id;
    id = tokens->n;
    text_vocab_add(tokens, joined, id);
    return id;
}

static void merge_all(Merging *m, int32_t vocab) {
    enum { LEAST = 2 }; /* a pair that occurs once tells nothing of the language */
    TextTrained *out = m->out;
    while (out->tokens.n < vocab && m->n_heap) {
        Turn top = pop(m);
        Pair *pair = &m->pair[top.pair];
        if (top.count != pair->count) {
            push(m, top.pair);
            continue;
        }
        if (top.count < LEAST) break;
        int32_t a = pair->a, b = pair->b, n = pair->n, *words = pair->words;
        int32_t id = token_of(m, a, b);
        out->merge[out->n_merges++] = (TextTrainedMerge){a, b};
        pair->n = pair->cap = 0;
        m->n_touched = 0;
        for (int32_t i = 0; i < n; i++) merge_word(m, words[i], a, b, id);
        for (uint32_t i = 0; i < m->n_touched; i++) push(m, m->touched[i]);
    }
}

/* ---- the beginning: words as bytes */

static void start_words(Merging *m, const TextCounts *counts) {
    m->n_words = counts->words.n;
    m->word = mx_new_n(m->arena, Word, m->n_words);
    for (int32_t w = 0; w < m->n_words; w++) {
        TextSpan text = counts->words.text[w];
        Word *word = &m->word[w];
        *word = (Word){.ids = mx_new_n(m->arena, int32_t, text.n), .count = counts->n[w]};
        for (size_t at = 0; at < text.n;) {
            TextSpan character = {text.data + at, text_char_bytes((uint8_t)text.data[at])};
            word->ids[word->n++] = text_vocab_find(&m->out->tokens, character);
            at += character.n;
        }
        for (int32_t i = 0; i + 1 < word->n; i++)
            add_place(m, pair_of(m, word->ids[i], word->ids[i + 1]), w);
    }
    for (uint32_t i = 0; i < m->n_pairs; i++) push(m, i);
}

void text_train(MxArena *arena, const TextCounts *counts, int32_t vocab, TextTrained *out) {
    enum { FIRST = 4096 };
    MxArena scratch = {.name = "training of a tokenizer"};
    Merging m = {.arena = &scratch,
                 .out = out,
                 .cap_pairs = FIRST,
                 .most_found = FIRST,
                 .cap_heap = FIRST,
                 .cap_touched = FIRST};
    m.pair = mx_new_n(&scratch, Pair, m.cap_pairs);
    m.heap = mx_new_n(&scratch, Turn, m.cap_heap);
    m.touched = mx_new_n(&scratch, uint32_t, m.cap_touched);
    text_pairs_init(&m.find, &scratch, m.most_found);
    text_train_start(arena, out);
    out->merge = mx_new_n(arena, TextTrainedMerge, vocab);
    start_words(&m, counts);
    merge_all(&m, vocab);
    mx_arena_release(&scratch);
}
