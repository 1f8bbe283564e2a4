/* train.h — private to the room: counted words, and the tokens made from them. */
#ifndef TEXT_TRAIN_H
#define TEXT_TRAIN_H

#include "internal.h"

/* Different words of all texts, in the alphabet of bytes. */
typedef struct TextCounts {
    TextVocab words; /* first, as of every model */
    int64_t *n;      /* [words.n] how often each occurs */
    int32_t cap;
    int64_t n_lost; /* different ones that had no room */
} TextCounts;

struct MxBpe {
    MxTokenizer *counting; /* whose model counts words */
    TextCounts counts;
    int64_t n_texts, n_bytes;
};

/* Two tokens that become one. */
typedef struct TextTrainedMerge {
    int32_t a, b;
} TextTrainedMerge;

typedef struct TextTrained {
    TextVocab tokens;
    TextTrainedMerge *merge; /* [n_merges] in order */
    uint32_t n_merges;
} TextTrained;

/* text_train_start — special tokens and bytes, which every vocabulary begins with. */
enum { TEXT_N_SPECIAL = 3 };
void text_train_start(MxArena *arena, TextTrained *out);
/* text_train_specials — has a tokenizer look for them in texts. */
void text_train_specials(TextAddedSet *set);
/* text_train — up to `vocab` tokens. */
void text_train(MxArena *arena, const TextCounts *counts, int32_t vocab, TextTrained *out);

#endif
