/* vocab.c — hash tables of the room: strings to ids and back, pairs of numbers to a number; and the
 * positions that no token can cross. */
#include "internal.h"

/* ---- strings and ids */

enum { LEAST_SLOTS = 64 };

static size_t slots_for(size_t count) {
    size_t n = LEAST_SLOTS;
    while (n < 2 * count) n *= 2;
    return n;
}

/* The slot of a text, or the free one where it belongs. */
static size_t slot_of(const TextVocab *vocab, TextSpan text) {
    size_t slot = mx_hash64(text.data, text.n) & (vocab->n_slots - 1);
    while (vocab->slots[slot] >= 0 && !text_same(vocab->text[vocab->slots[slot]], text))
        slot = (slot + 1) & (vocab->n_slots - 1);
    return slot;
}

static void make_slots(TextVocab *vocab, size_t n) {
    vocab->n_slots = n;
    vocab->slots = mx_new_n(vocab->arena, int32_t, n);
    memset(vocab->slots, -1, n * sizeof *vocab->slots);
    for (int32_t id = 0; id < vocab->n; id++)
        if (vocab->text[id].data) vocab->slots[slot_of(vocab, vocab->text[id])] = id;
}

void text_vocab_init(TextVocab *vocab, MxArena *arena, size_t expected) {
    *vocab = (TextVocab){.arena = arena};
    make_slots(vocab, slots_for(expected + 1));
}

static void make_room(TextVocab *vocab, int32_t id) {
    if (id >= vocab->cap_ids) {
        int32_t cap = vocab->cap_ids ? vocab->cap_ids : LEAST_SLOTS;
        while (cap <= id) cap = cap > INT32_MAX / 2 ? INT32_MAX : 2 * cap;
        vocab->text = mx_arena_grow(vocab->arena, vocab->text, (size_t)vocab->n, (size_t)cap,
                                    sizeof *vocab->text);
        vocab->cap_ids = cap;
    }
    if (id >= vocab->n) vocab->n = id + 1;
    if (2 * (vocab->count + 1) > vocab->n_slots) make_slots(vocab, 2 * vocab->n_slots);
}

bool text_vocab_add(TextVocab *vocab, TextSpan text, int32_t id) {
    if (id < vocab->n && vocab->text[id].data) return false;
    if (text_vocab_find(vocab, text) >= 0) return false;
    make_room(vocab, id);
    vocab->slots[slot_of(vocab, text)] = id;
    vocab->text[id] = text;
    vocab->count++;
    return true;
}

int32_t text_vocab_find(const TextVocab *vocab, TextSpan text) {
    return vocab->slots[slot_of(vocab, text)];
}

/* ---- pairs */

static size_t pair_slot(const TextPairs *pairs, uint32_t a, uint32_t b) {
    uint64_t hash = ((uint64_t)a << 32 | b) * 0x9e3779b97f4a7c15u; /* 2^64 / golden ratio */
    size_t slot = (size_t)(hash >> 32) & (pairs->n_slots - 1);
    while (pairs->slots[slot].is_used && (pairs->slots[slot].a != a || pairs->slots[slot].b != b))
        slot = (slot + 1) & (pairs->n_slots - 1);
    return slot;
}

void text_pairs_init(TextPairs *pairs, MxArena *arena, size_t most) {
    pairs->n_slots = slots_for(most + 1);
    pairs->slots = mx_arena_alloc(arena, pairs->n_slots * sizeof *pairs->slots);
}

void text_pairs_set(TextPairs *pairs, uint32_t a, uint32_t b, uint32_t value) {
    pairs->slots[pair_slot(pairs, a, b)] = (struct TextPairSlot){a, b, value, true};
}

uint32_t text_pairs_get(const TextPairs *pairs, uint32_t a, uint32_t b) {
    const struct TextPairSlot *slot = &pairs->slots[pair_slot(pairs, a, b)];
    return slot->is_used ? slot->value : UINT32_MAX;
}

/* ---- seams */

enum { N_ASCII = 128 };

struct TextSeams {
    const TextVocab *vocab;
    int32_t n_real;                     /* ids from here on are no tokens */
    TextPairs sides;                    /* characters that a token has side by side … */
    bool ascii_sides[N_ASCII][N_ASCII]; /* … and those of ASCII */
    bool is_ascii_token[N_ASCII];
};

/* Every pair of neighbours in a text. */
static void add_sides(TextSeams *seams, TextSpan text) {
    for (size_t at = 0, n = 0; at < text.n; n++) {
        size_t next = at;
        uint32_t a = mx_char_next(text.data, &next);
        at = next;
        if (at == text.n) return;
        uint32_t b = mx_char_next(text.data, &next);
        if (a < N_ASCII && b < N_ASCII)
            seams->ascii_sides[a][b] = true;
        else
            text_pairs_set(&seams->sides, a, b, 1);
    }
}

static bool is_token(const TextSeams *seams, TextSpan text) {
    int32_t id = text_vocab_find(seams->vocab, text);
    return id >= 0 && id < seams->n_real;
}

TextSeams *text_seams_new(MxArena *arena, const TextVocab *vocab, int32_t n_real) {
    TextSeams *seams = mx_new(arena, TextSeams);
    size_t bytes = 0;
    seams->vocab = vocab;
    seams->n_real = n_real;
    for (int32_t id = 0; id < vocab->n; id++)
        for (size_t i = 0; i < vocab->text[id].n; i++)
            bytes += (uint8_t)vocab->text[id].data[i] >= 0xc0; /* each is in two pairs at most */
    text_pairs_init(&seams->sides, arena, 2 * bytes);
    for (int32_t id = 0; id < vocab->n; id++) add_sides(seams, vocab->text[id]);
    for (int c = 0; c < N_ASCII; c++) {
        char byte = (char)c;
        seams->is_ascii_token[c] = is_token(seams, (TextSpan){&byte, 1});
    }
    return seams;
}

static bool stands_alone(const TextSeams *seams, uint32_t c, TextSpan text) {
    return c < N_ASCII ? seams->is_ascii_token[c] : is_token(seams, text);
}

static bool are_sides(const TextSeams *seams, uint32_t a, uint32_t b) {
    if (a < N_ASCII && b < N_ASCII) return seams->ascii_sides[a][b];
    return text_pairs_get(&seams->sides, a, b) != UINT32_MAX;
}

size_t text_seams_next(const TextSeams *seams, TextSpan word, size_t from) {
    size_t at = from;
    uint32_t a = mx_char_next(word.data, &at);
    TextSpan a_text = {word.data + from, at - from};
    while (at < word.n) {
        size_t end = at;
        uint32_t b = mx_char_next(word.data, &end);
        TextSpan b_text = {word.data + at, end - at};
        if (!are_sides(seams, a, b) && stands_alone(seams, a, a_text) &&
            stands_alone(seams, b, b_text))
            return at;
        a = b;
        a_text = b_text;
        at = end;
    }
    return word.n;
}
