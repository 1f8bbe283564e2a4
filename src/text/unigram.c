/* unigram.c — of all ways to split a word into tokens, finds the one with the largest sum of scores
 * (Viterbi). A character without a token of its own can become unknown, with a low score. The time
 * grows with the length of the word and that of the longest token. Source: tokenizers,
 * models/unigram/model.rs (encode_optimized); sentencepiece, src/unigram_model.cc
 * (EncodeOptimized). */
#include "internal.h"

#include <math.h>

/* Tokens by their bytes: an edge a node and byte. */
struct TextTrie {
    TextPairs edges;
    int32_t *ids; /* [nodes] of the token that ends there; -1 = none */
    uint32_t n;
};

/* The best way to a place in a word. */
typedef struct Path {
    double score;
    size_t start; /* of its last token */
    int32_t id;
    bool is_set;
} Path;

typedef struct UnigramWork {
    Path *path;
    size_t cap;
} UnigramWork;

static void improve(const TextUnigram *unigram, Path *path, double score, size_t start,
                    int32_t id) {
    if (unigram->like_pieces) score = (double)(float)score;
    if (path->is_set && score <= path->score) return;
    *path = (Path){score, start, id, true};
}

/* Sums in float32 would become too coarse: those from here on begin at 0 again. */
static void restart(Path *path, size_t at, size_t furthest) {
    static const double too_large = 1e5;
    const double offset = path[at].score;
    if (fabs(offset) <= too_large) return;
    for (size_t i = at; i <= furthest; i++)
        if (path[i].is_set) path[i].score = (double)(float)(path[i].score - offset);
}

static void find_paths(const TextUnigram *unigram, Path *path, TextSpan word) {
    size_t furthest = 0; /* of the places that have a path */
    for (size_t at = 0; at < word.n;) {
        if (unigram->like_pieces) restart(path, at, furthest);
        size_t character = text_char_bytes((uint8_t)word.data[at]);
        bool has_single = false;
        uint32_t node = 0;
        for (size_t i = at; i < word.n; i++) {
            node = text_pairs_get(&unigram->trie->edges, node, (uint8_t)word.data[i]);
            if (node == UINT32_MAX) break;
            int32_t id = unigram->trie->ids[node];
            if (id < 0) continue;
            improve(unigram, &path[i + 1], path[at].score + unigram->scores[id], at, id);
            furthest = i + 1 > furthest ? i + 1 : furthest;
            has_single |= i + 1 == at + character;
        }
        at += character;
        if (has_single) continue;
        improve(unigram, &path[at], path[at - character].score + unigram->unknown_score,
                at - character, unigram->unknown);
        furthest = at > furthest ? at : furthest;
    }
}

static UnigramWork *make_room(TextWork *work, size_t bytes) {
    UnigramWork *own =
        work->model ? work->model : (work->model = mx_new(&work->arena, UnigramWork));
    if (own->cap < bytes + 1) {
        own->cap = 2 * (bytes + 1);
        own->path = mx_new_n(&work->arena, Path, own->cap);
    }
    memset(own->path, 0, (bytes + 1) * sizeof *own->path);
    return own;
}

/* Characters that are unknown side by side become one token, or their bytes; in the tokenizers
 * library, one that is not found otherwise (such as "<s>") if they are its text. */
static void add_token(const TextUnigram *unigram, TextWork *work, TextSpan text, int32_t id) {
    if (id == unigram->unknown) {
        int32_t whole = unigram->like_pieces ? -1 : text_vocab_find(&unigram->vocab, text);
        if (whole >= 0) id = whole;
        if (whole < 0 && text_add_bytes(unigram->bytes, text, work->out)) return;
    }
    text_ids_add(work->out, id);
}

void text_unigram_encode(const void *model, TextWork *work, TextSpan word) {
    const TextUnigram *unigram = model;
    UnigramWork *own = make_room(work, word.n);
    find_paths(unigram, own->path, word);
    /* Turn the chain of last tokens around: each place then knows where the next token ends. */
    size_t end = word.n, next = word.n;
    while (end) {
        size_t start = own->path[end].start;
        own->path[end].start = next;
        next = end;
        end = start;
    }
    for (size_t at = 0; at < word.n;) {
        size_t stop = at ? own->path[at].start : next;
        int32_t id = own->path[stop].id;
        while (id == unigram->unknown && stop < word.n && own->path[own->path[stop].start].id == id)
            stop = own->path[stop].start;
        add_token(unigram, work, (TextSpan){word.data + at, stop - at}, id);
        at = stop;
    }
}

/* Sums are rounded, so which of two equal ones is chosen depends on how large they have become:
 * only texts whose paths would take too much memory are cut. */
const TextSeams *text_unigram_seams(const void *model, size_t word_bytes) {
    static const size_t most = (size_t)1 << 20;
    const TextUnigram *unigram = model;
    return word_bytes <= most ? NULL : unigram->seams;
}

/* ---- reading */

static void add_to_trie(struct TextTrie *trie, TextSpan text, int32_t id) {
    uint32_t node = 0;
    for (size_t i = 0; i < text.n; i++) {
        uint32_t next = text_pairs_get(&trie->edges, node, (uint8_t)text.data[i]);
        if (next == UINT32_MAX) {
            next = trie->n++;
            trie->ids[next] = -1;
            text_pairs_set(&trie->edges, node, (uint8_t)text.data[i], next);
        }
        node = next;
    }
    trie->ids[node] = id;
}

void text_unigram_index(MxArena *arena, TextUnigram *unigram, const bool *is_piece) {
    struct TextTrie *trie = mx_new(arena, struct TextTrie);
    const TextVocab *vocab = &unigram->vocab;
    size_t bytes = 1;
    for (int32_t id = 0; id < vocab->n; id++) bytes += vocab->text[id].n;
    text_pairs_init(&trie->edges, arena, bytes);
    trie->ids = mx_new_n(arena, int32_t, bytes);
    trie->ids[trie->n++] = -1;
    for (int32_t id = 0; id < vocab->n; id++)
        if (vocab->text[id].n && (!is_piece || is_piece[id]))
            add_to_trie(trie, vocab->text[id], id);
    unigram->trie = trie;
    unigram->seams = text_seams_new(arena, vocab, vocab->n);
}

/* [text, score] */
static bool read_piece(TextNode node, TextUnigram *unigram, double *scores, int32_t id) {
    const MxJson *text = node.json ? mx_json_at(node.json, 0) : NULL;
    const MxJson *score = text ? mx_json_at(node.json, 1) : NULL;
    if (!score || !mx_json_string(text) || !mx_json_number(score, &scores[id]))
        return text_node_fail(node, "wanted [text, score]");
    TextSpan span = {mx_json_string(text), mx_json_string_bytes(text)};
    if (!text_vocab_add(&unigram->vocab, span, id))
        return text_node_fail(node, "\"%s\" is there already", span.data);
    unigram->unknown_score = fmin(unigram->unknown_score, scores[id]);
    return true;
}

bool text_unigram_read(TextNode object, const void **settings) {
    static const double unknown_penalty = 10;
    TextUnigram *unigram = mx_new(object.arena, TextUnigram);
    TextNode vocab;
    int64_t unknown = -1;
    bool has_bytes = false;
    *settings = unigram;
    if (!text_node_list(object, "vocab", true, &vocab) ||
        !text_node_int(object, "unk_id", true, 0, &unknown) ||
        !text_node_flag(object, "byte_fallback", &has_bytes))
        return false;
    int32_t n = (int32_t)mx_json_length(vocab.json);
    double *scores = mx_new_n(object.arena, double, n);
    unigram->unknown_score = INFINITY;
    text_vocab_init(&unigram->vocab, object.arena, (size_t)n);
    for (int32_t i = 0; i < n; i++)
        if (!read_piece(text_node_at(vocab, (size_t)i), unigram, scores, i)) return false;
    if (unknown >= n)
        return text_node_fail(text_node_get(object, "unk_id"), "%lld, but there are %d tokens",
                              (long long)unknown, n);
    unigram->scores = scores;
    unigram->unknown_score -= unknown_penalty;
    unigram->unknown = (int32_t)unknown;
    if (has_bytes) unigram->bytes = text_byte_ids(object.arena, &unigram->vocab);
    text_unigram_index(object.arena, unigram, NULL);
    return true;
}
