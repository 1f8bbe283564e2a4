/* cache.c — from a word to its ids: through a table of words seen before, in which each word has
 * one place and replaces the previous one there; otherwise the word is split where no token can
 * cross, and passed to the model. Short words are stored in one cache line of the processor. */
#include "internal.h"

enum { N_SLOTS = 1 << 15, MOST_BYTES = 30, MOST_IDS = 8 };

typedef struct Slot {
    uint8_t n_bytes, n_ids; /* 0 bytes = nothing is here */
    char word[MOST_BYTES];
    int32_t ids[MOST_IDS];
} Slot;

struct TextCache {
    Slot slots[N_SLOTS];
};

struct TextCache *text_cache_new(MxArena *arena) {
    _Static_assert(sizeof(Slot) == 64, "a slot is one line of the cache");
    return mx_new(arena, struct TextCache);
}

static void encode(TextWork *work, const TextModel *model, TextSpan word) {
    const void *settings = work->tokenizer->model.settings;
    if (!model->is_cached || word.n > MOST_BYTES) {
        model->encode(settings, work, word);
        return;
    }
    Slot *slot = &work->cache->slots[mx_hash64(word.data, word.n) % N_SLOTS];
    if (slot->n_bytes == word.n && !memcmp(slot->word, word.data, word.n)) {
        for (int i = 0; i < slot->n_ids; i++) text_ids_add(work->out, slot->ids[i]);
        return;
    }
    int64_t before = work->out->n;
    model->encode(settings, work, word);
    int64_t n = work->out->n - before;
    if (n > MOST_IDS) return;
    slot->n_bytes = (uint8_t)word.n;
    slot->n_ids = (uint8_t)n;
    memcpy(slot->word, word.data, word.n);
    if (n) memcpy(slot->ids, work->out->ids + before, (size_t)n * sizeof *slot->ids);
}

void text_encode_word(TextWork *work, TextSpan word) {
    const TextStep *step = &work->tokenizer->model;
    const TextModel *model = (const TextModel *)step->kind;
    const TextSeams *seams = model->seams ? model->seams(step->settings, word.n) : NULL;
    if (!word.n) return;
    if (!seams || word.n <= MOST_BYTES) {
        encode(work, model, word);
        return;
    }
    for (size_t at = 0; at < word.n;) {
        size_t end = text_seams_next(seams, word, at);
        encode(work, model, (TextSpan){word.data + at, end - at});
        at = end;
    }
}
