/* guide.c — which tokens may come next in a text: those whose bytes a walk can take. What was found
 * at a node is kept as a bit for each token. Inside texts of JSON most tokens need no walk, because
 * all of their characters may stand there. */
#include "vocabulary.h"
#include "walk.h"

#include <math.h>
#include <pthread.h>

enum { MOST_BYTES = 32 << 20 /* that a guide may hold before it forgets */ };

struct MxGuide {
    pthread_mutex_t lock;
    const MxGrammar *grammar;
    const MxVocabulary *vocabulary;
    Walk walk;
    uint32_t epoch;
    int32_t *path; /* [longest token + 1] nodes */
};

static void release(void *data) {
    MxGuide *guide = data;
    mx_arena_release(&guide->walk.arena);
    pthread_mutex_destroy(&guide->lock);
}

MxGuide *mx_guide_new(MxArena *arena, const MxGrammar *grammar, const MxVocabulary *vocabulary) {
    MxGuide *guide = mx_new(arena, MxGuide);
    *guide = (MxGuide){.grammar = grammar, .vocabulary = vocabulary};
    guide->path = mx_new_n(arena, int32_t, vocabulary->longest + 1);
    pthread_mutex_init(&guide->lock, NULL);
    walk_begin(&guide->walk, grammar);
    mx_arena_on_release(arena, release, guide);
    return guide;
}

void mx_guided_init(MxGuided *text, MxArena *arena, MxGuide *guide) {
    *text = (MxGuided){.guide = guide, .node = WALK_START};
    mx_text_init(&text->bytes, arena);
}

/* ---- under the lock */

/* What is forgotten is found again. */
static void find_node(MxGuided *text) {
    MxGuide *guide = text->guide;
    if (text->epoch == guide->epoch) return;
    text->node = WALK_START;
    for (size_t i = 0; i < text->bytes.len; i++) {
        text->node = walk_once(&guide->walk, text->node, (uint8_t)text->bytes.data[i]);
        MX_ASSERT(text->node != WALK_REFUSED);
    }
    text->epoch = guide->epoch;
}

static bool is_too_large(const MxGuide *guide) {
    return guide->walk.arena.used_bytes > MOST_BYTES;
}

static void forget(MxGuided *text) {
    MxGuide *guide = text->guide;
    walk_begin(&guide->walk, guide->grammar);
    guide->epoch++;
    find_node(text);
}

/* Whether the bytes of a token can come, of which the first `known` lead along the path; *known
 * becomes how many do. */
static bool can_come(MxGuided *text, const char *bytes, size_t n, size_t *known) {
    MxGuide *guide = text->guide;
    if (is_too_large(guide)) {
        forget(text);
        guide->path[0] = text->node;
        for (size_t i = 0; i < *known; i++)
            guide->path[i + 1] = walk_next(&guide->walk, guide->path[i], (uint8_t)bytes[i]);
    }
    for (; *known < n; ++*known) {
        int32_t next = walk_next(&guide->walk, guide->path[*known], (uint8_t)bytes[*known]);
        if (next == WALK_REFUSED) return false;
        guide->path[*known + 1] = next;
    }
    return true;
}

/* Adds a bit for each token that can come. */
static void try_words(MxGuided *text, const Words *words, uint64_t *may) {
    const MxVocabulary *v = text->guide->vocabulary;
    size_t known = 0; /* bytes of the last token that was tried, up to the one that was refused */
    for (int32_t i = 0; i < words->n; i++) {
        const char *bytes;
        const int32_t id = words->id[i];
        size_t n = token_bytes(v, id, &bytes), shared = (size_t)words->shared[i];
        if (i && shared > known) continue; /* the byte that was refused is here, too */
        known = shared;
        if (can_come(text, bytes, n, &known)) {
            may[id / 64] |= (uint64_t)1 << (id % 64);
            known = n;
        }
    }
}

static void find_tokens(MxGuided *text, uint64_t *may) {
    const MxGuide *guide = text->guide;
    const MxVocabulary *v = guide->vocabulary;
    const Node *node = &guide->walk.node[text->node];
    int32_t plain = node->plain < WORDS_MOST_PLAIN ? node->plain : WORDS_MOST_PLAIN;
    bool may_end = node->may_end;
    memcpy(may, v->upto[plain], (size_t)v->n_bits * sizeof *may);
    guide->path[0] = text->node;
    try_words(text, &v->other, may);
    guide->path[0] = text->node;
    if (plain < WORDS_MOST_PLAIN) try_words(text, &v->plain, may);
    for (int i = 0; may_end && i < v->n_ends; i++)
        if (v->ends[i] >= 0 && v->ends[i] < v->n)
            may[v->ends[i] / 64] |= (uint64_t)1 << (v->ends[i] % 64);
}

static void read_tokens(MxGuided *text, uint64_t *may) {
    MxGuide *guide = text->guide;
    const size_t bytes = (size_t)guide->vocabulary->n_bits * sizeof *may;
    pthread_mutex_lock(&guide->lock);
    find_node(text);
    const uint64_t *known = guide->walk.node[text->node].may;
    if (known) {
        memcpy(may, known, bytes);
    } else {
        find_tokens(text, may);
        uint64_t *kept = mx_new_n(&guide->walk.arena, uint64_t, guide->vocabulary->n_bits);
        memcpy(kept, may, bytes);
        guide->walk.node[text->node].may = kept;
    }
    pthread_mutex_unlock(&guide->lock);
}

/* ---- */

bool mx_guided_limit(MxGuided *text, float *logits, int64_t vocab) {
    enum { BITS = 64 };
    const MxVocabulary *v = text->guide->vocabulary;
    MxArena scratch = {.name = "tokens"};
    uint64_t *may = mx_new_n(&scratch, uint64_t, v->n_bits), any = 0;
    read_tokens(text, may);
    for (int64_t i = 0; i < v->n_bits && i * BITS < vocab; i++) {
        int64_t n = vocab - i * BITS < BITS ? vocab - i * BITS : BITS;
        any |= n < BITS ? may[i] & (((uint64_t)1 << n) - 1) : may[i];
        for (int64_t k = 0; ~may[i] && k < n; k++)
            if (!(may[i] >> k & 1)) logits[i * BITS + k] = -INFINITY;
    }
    for (int64_t id = v->n_bits * BITS; id < vocab; id++) logits[id] = -INFINITY;
    mx_arena_release(&scratch);
    return any != 0;
}

bool mx_guided_add(MxGuided *text, const char *bytes, size_t n) {
    MxGuide *guide = text->guide;
    pthread_mutex_lock(&guide->lock);
    find_node(text);
    int32_t node = text->node;
    for (size_t i = 0; i < n && node != WALK_REFUSED; i++)
        node = walk_next(&guide->walk, node, (uint8_t)bytes[i]);
    pthread_mutex_unlock(&guide->lock);
    if (node == WALK_REFUSED) return false;
    text->node = node;
    mx_text_addn(&text->bytes, bytes, n);
    return true;
}

bool mx_guided_accept(MxGuided *text, int32_t id) {
    MxGuide *guide = text->guide;
    const char *bytes;
    size_t n = token_bytes(guide->vocabulary, id, &bytes);
    bool ok = mx_guided_add(text, bytes, n);
    MX_ASSERT(ok);
    pthread_mutex_lock(&guide->lock);
    find_node(text);
    bool must_end = guide->walk.node[text->node].must_end;
    pthread_mutex_unlock(&guide->lock);
    return must_end;
}
