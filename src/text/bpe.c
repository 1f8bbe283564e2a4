/* bpe.c — byte-pair encoding: a word begins as its characters, and of all neighbours that can be
 * merged the pair with the lowest rank is merged first, of several the leftmost. A heap holds the
 * pairs, so a word of n characters takes time n log n. */
#include "internal.h"

/* ---- encoding */

/* A token of a word in the making; a merged one takes the place of its first part. */
typedef struct Symbol {
    int32_t id; /* -1 = it has become a part of one before it */
    int32_t before, behind;
} Symbol;

/* Two neighbours that can be merged, unless one of them has changed since. */
typedef struct Candidate {
    uint32_t rank;
    int32_t at; /* of the first */
    int32_t id, first, second;
} Candidate;

typedef struct BpeWork {
    Symbol *symbol;
    Candidate *heap;
    size_t cap, n_heap;
} BpeWork;

static bool is_before(const Candidate *a, const Candidate *b) {
    return a->rank != b->rank ? a->rank < b->rank : a->at < b->at;
}

static void push(BpeWork *work, Candidate candidate) {
    size_t i = work->n_heap++;
    while (i && is_before(&candidate, &work->heap[(i - 1) / 2])) {
        work->heap[i] = work->heap[(i - 1) / 2];
        i = (i - 1) / 2;
    }
    work->heap[i] = candidate;
}

static Candidate pop(BpeWork *work) {
    Candidate top = work->heap[0], last = work->heap[--work->n_heap];
    size_t i = 0;
    for (;;) {
        size_t child = 2 * i + 1;
        if (child >= work->n_heap) break;
        if (child + 1 < work->n_heap && is_before(&work->heap[child + 1], &work->heap[child]))
            child++;
        if (!is_before(&work->heap[child], &last)) break;
        work->heap[i] = work->heap[child];
        i = child;
    }
    work->heap[i] = last;
    return top;
}

static void consider(const TextBpe *bpe, BpeWork *work, int32_t at) {
    if (at < 0) return;
    const Symbol *symbol = &work->symbol[at];
    if (symbol->behind < 0) return;
    int32_t first = symbol->id, second = work->symbol[symbol->behind].id;
    uint32_t merge = text_pairs_get(&bpe->pairs, (uint32_t)first, (uint32_t)second);
    if (merge == UINT32_MAX) return;
    push(work, (Candidate){bpe->merges[merge].rank, at, bpe->merges[merge].id, first, second});
}

static void merge_all(const TextBpe *bpe, BpeWork *work, int32_t n) {
    work->n_heap = 0;
    for (int32_t i = 0; i < n; i++) consider(bpe, work, i);
    while (work->n_heap) {
        Candidate top = pop(work);
        Symbol *symbol = &work->symbol[top.at];
        if (symbol->id != top.first || symbol->behind < 0 ||
            work->symbol[symbol->behind].id != top.second)
            continue;
        Symbol *second = &work->symbol[symbol->behind];
        second->id = -1;
        symbol->id = top.id;
        symbol->behind = second->behind;
        if (symbol->behind >= 0) work->symbol[symbol->behind].before = top.at;
        consider(bpe, work, symbol->before);
        consider(bpe, work, top.at);
    }
}

/* Room for a word: a symbol a byte, those of affixes among them, and two candidates for each at
 * first and two for each merge. */
static BpeWork *make_room(TextWork *work, const TextBpe *bpe, size_t bytes) {
    if (bpe->bytes) bytes += bytes * bpe->prefix.n + bpe->suffix.n;
    BpeWork *own = work->model ? work->model : (work->model = mx_new(&work->arena, BpeWork));
    if (own->cap < bytes) {
        own->cap = 2 * bytes;
        own->symbol = mx_new_n(&work->arena, Symbol, own->cap);
        own->heap = mx_new_n(&work->arena, Candidate, 3 * own->cap);
    }
    return own;
}

enum { MOST_AFFIX = 64 }; /* bytes */

/* A character of a word with what marks words' insides and ends; text [3 MOST_AFFIX] is room. */
static TextSpan marked_char(const TextBpe *bpe, TextSpan character, bool is_first, bool is_last,
                            char *text) {
    if ((is_first || !bpe->prefix.n) && (!is_last || !bpe->suffix.n)) return character;
    size_t n = 0;
    TextSpan part[] = {is_first ? (TextSpan){0} : bpe->prefix, character,
                       is_last ? bpe->suffix : (TextSpan){0}};
    for (int i = 0; i < MX_COUNT(part); i++) {
        MX_ASSERT(part[i].n <= MOST_AFFIX);
        if (part[i].n) memcpy(text + n, part[i].data, part[i].n);
        n += part[i].n;
    }
    return (TextSpan){text, n};
}

static int32_t add_symbol(BpeWork *work, int32_t n, int32_t id) {
    work->symbol[n] = (Symbol){id, n - 1, -1};
    if (n) work->symbol[n - 1].behind = n;
    return n + 1;
}

/* The characters of a word as symbols; returns how many. */
static int32_t start_word(const TextBpe *bpe, BpeWork *work, TextSpan word) {
    int32_t n = 0;
    bool was_unknown = false;
    for (size_t at = 0; at < word.n;) {
        size_t start = at;
        at += text_char_bytes((uint8_t)word.data[at]);
        char room[3 * MOST_AFFIX];
        TextSpan character = marked_char(bpe, (TextSpan){word.data + start, at - start}, start == 0,
                                         at == word.n, room);
        int32_t id = text_vocab_find(&bpe->vocab, character), few[MX_COUNT(room)];
        TextIds bytes = {.ids = few, .cap = MX_COUNT(few)};
        bool is_unknown = id < 0 && !text_add_bytes(bpe->bytes, character, &bytes);
        for (int64_t i = 0; i < bytes.n; i++) n = add_symbol(work, n, few[i]);
        if (id >= 0) n = add_symbol(work, n, id);
        bool is_fused = was_unknown && bpe->fuses_unknown;
        if (is_unknown && bpe->unknown >= 0 && !is_fused) n = add_symbol(work, n, bpe->unknown);
        was_unknown = is_unknown;
    }
    return n;
}

/* first: where the ids of the word begin. */
static void add_unknown(const TextBpe *bpe, int64_t first, TextIds *out) {
    bool is_fused = bpe->fuses_unknown && out->n > first && out->ids[out->n - 1] == bpe->unknown;
    if (bpe->unknown >= 0 && !is_fused) text_ids_add(out, bpe->unknown);
}

/* What a symbol is in the end. A character that could have been a part of a token, but is none
 * itself, is unknown, and so are unknown ones beside it. */
static void add_id(const TextBpe *bpe, int32_t id, int64_t first, TextIds *out) {
    bool has_parts = bpe->n_real < bpe->vocab.n;
    if (id < bpe->n_real && (id != bpe->unknown || !has_parts))
        text_ids_add(out, id);
    else if (id < bpe->n_real || !text_add_bytes(bpe->bytes, bpe->vocab.text[id], out))
        add_unknown(bpe, first, out);
}

void text_bpe_encode(const void *model, TextWork *work, TextSpan word) {
    const TextBpe *bpe = model;
    int32_t whole = bpe->ignores_merges ? text_vocab_find(&bpe->vocab, word) : -1;
    if (whole >= 0) {
        text_ids_add(work->out, whole);
        return;
    }
    BpeWork *own = make_room(work, bpe, word.n);
    int32_t n = start_word(bpe, own, word);
    int64_t first = work->out->n;
    merge_all(bpe, own, n);
    for (int32_t i = 0; n && i >= 0; i = own->symbol[i].behind)
        add_id(bpe, own->symbol[i].id, first, work->out);
}

const TextSeams *text_bpe_seams(const void *model, size_t word_bytes) {
    (void)word_bytes;
    return ((const TextBpe *)model)->seams;
}

/* ---- reading */

static bool read_merge(TextNode node, TextSpan out[2]) {
    if (!node.json) return text_node_wants(node, "two texts");
    if (!strcmp(mx_json_kind(node.json), "a list")) {
        for (size_t i = 0; i < 2; i++) {
            const MxJson *part = mx_json_at(node.json, i);
            if (!part || !mx_json_string(part) || mx_json_length(node.json) != 2)
                return text_node_fail(node, "wanted two texts");
            out[i] = (TextSpan){mx_json_string(part), mx_json_string_bytes(part)};
        }
        return true;
    }
    TextSpan line = {mx_json_string(node.json), mx_json_string_bytes(node.json)};
    const char *space = line.data ? memchr(line.data, ' ', line.n) : NULL;
    if (!space) return text_node_fail(node, "wanted two texts with a space between");
    out[0] = (TextSpan){line.data, (size_t)(space - line.data)};
    out[1] = (TextSpan){space + 1, line.n - out[0].n - 1};
    return !memchr(out[1].data, ' ', out[1].n) ||
           text_node_fail(node, "\"%s\" has more than one space", line.data);
}

/* One row of the merges: what it joins must be tokens, and so must what comes of them. */
static bool add_merge(TextNode node, TextBpe *bpe, const TextSpan part[2], uint32_t rank,
                      MxText *joined) {
    bool has_prefix = bpe->prefix.n && part[1].n >= bpe->prefix.n &&
                      !memcmp(part[1].data, bpe->prefix.data, bpe->prefix.n);
    if (bpe->prefix.n && !has_prefix)
        return text_node_fail(node, "its second part lacks the prefix of what continues words");
    mx_text_clear(joined);
    mx_text_addn(joined, part[0].data, part[0].n);
    mx_text_addn(joined, part[1].data + bpe->prefix.n, part[1].n - bpe->prefix.n);
    TextSpan all[] = {part[0], part[1], {joined->data, joined->len}};
    int32_t id[3];
    for (int i = 0; i < 3; i++) {
        id[i] = text_vocab_find(&bpe->vocab, all[i]);
        if (id[i] < 0)
            return text_node_fail(node, "\"%.*s\" is not in the vocabulary", (int)all[i].n,
                                  all[i].data);
    }
    bpe->merges[rank] = (struct TextMerge){rank, id[2]};
    text_pairs_set(&bpe->pairs, (uint32_t)id[0], (uint32_t)id[1], rank);
    return true;
}

static bool read_merges(TextNode object, TextBpe *bpe) {
    MxArena scratch = {.name = "merges"};
    MxText joined;
    TextNode list, row;
    if (!text_node_list(object, "merges", true, &list)) return false;
    const TextMerges *known = object.merges;
    bpe->n_merges = (uint32_t)(known ? known->n : mx_json_length(list.json));
    bpe->merges = mx_new_n(object.arena, struct TextMerge, bpe->n_merges);
    text_pairs_init(&bpe->pairs, object.arena, bpe->n_merges);
    mx_text_init(&joined, &scratch);
    bool ok = true;
    for (uint32_t i = 0; ok && i < bpe->n_merges; i++) {
        TextSpan pair[2];
        row = list;
        row.json = known ? NULL : mx_json_at(list.json, i);
        ok = (known || read_merge(row, pair)) &&
             add_merge(row, bpe, known ? known->pair[i] : pair, i, &joined);
        if (!ok) mx_note(object.err, "in item %u of the list", i);
    }
    mx_arena_release(&scratch);
    return ok;
}

static bool read_affixes(TextNode object, TextBpe *bpe) {
    TextSpan *affix[] = {&bpe->prefix, &bpe->suffix};
    const char *key[] = {"continuing_subword_prefix", "end_of_word_suffix"};
    for (int i = 0; i < 2; i++) {
        if (!text_node_span(object, key[i], false, affix[i])) return false;
        if (affix[i]->n > MOST_AFFIX)
            return text_node_fail(text_node_get(object, key[i]), "is longer than %d bytes",
                                  MOST_AFFIX);
    }
    return true;
}

bool text_bpe_read(TextNode object, const void **settings) {
    TextBpe *bpe = mx_new(object.arena, TextBpe);
    TextNode dropout = text_node_get(object, "dropout");
    double share = 0;
    bool has_bytes = false;
    *settings = bpe;
    if (dropout.json && (!mx_json_number(dropout.json, &share) || share != 0))
        return text_node_fail(dropout, "not available yet: merges that are left out by chance");
    if (!text_read_vocab(object, &bpe->vocab) || !read_affixes(object, bpe) ||
        !read_merges(object, bpe) || !text_read_unknown(object, &bpe->vocab, &bpe->unknown) ||
        !text_node_flag(object, "byte_fallback", &has_bytes) ||
        !text_node_flag(object, "fuse_unk", &bpe->fuses_unknown) ||
        !text_node_flag(object, "ignore_merges", &bpe->ignores_merges))
        return false;
    bpe->n_real = bpe->vocab.n;
    if (has_bytes) bpe->bytes = text_byte_ids(object.arena, &bpe->vocab);
    if (!bpe->ignores_merges && !bpe->prefix.n && !bpe->suffix.n)
        bpe->seams = text_seams_new(object.arena, &bpe->vocab, bpe->n_real);
    return true;
}

/* ---- merges of vocabularies that have none */

/* Every cut of a token into two tokens; returns how many, and adds them unless only counting. */
static uint32_t derive_cuts(TextBpe *bpe, int32_t id, uint32_t rank, bool adds) {
    TextSpan text = bpe->vocab.text[id];
    uint32_t n = 0;
    for (size_t at = text_char_bytes((uint8_t)text.data[0]); at < text.n;
         at += text_char_bytes((uint8_t)text.data[at])) {
        int32_t first = text_vocab_find(&bpe->vocab, (TextSpan){text.data, at});
        if (first < 0) continue;
        int32_t second = text_vocab_find(&bpe->vocab, (TextSpan){text.data + at, text.n - at});
        if (second < 0) continue;
        n++;
        if (!adds) continue;
        bpe->merges[bpe->n_merges] = (struct TextMerge){rank, id};
        text_pairs_set(&bpe->pairs, (uint32_t)first, (uint32_t)second, bpe->n_merges++);
    }
    return n;
}

void text_bpe_derive(MxArena *arena, TextBpe *bpe, const uint32_t *ranks) {
    size_t n = 0;
    for (int adds = 0; adds < 2; adds++) {
        for (int32_t id = 0; id < bpe->vocab.n; id++)
            if (bpe->vocab.text[id].n && ranks[id] != UINT32_MAX)
                n += derive_cuts(bpe, id, ranks[id], adds);
        if (adds) break;
        bpe->merges = mx_new_n(arena, struct TextMerge, n);
        text_pairs_init(&bpe->pairs, arena, n);
    }
}
