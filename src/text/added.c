/* added.c — added tokens, which are searched for in text before it is split into words: the
 * leftmost match, and of several the longest. Source: tokenizers, tokenizer/added_vocabulary.rs
 * (find_matches). */
#include "internal.h"

void text_added_init(TextAddedSet *set, MxArena *arena) {
    *set = (TextAddedSet){.arena = arena};
    text_vocab_init(&set->find, arena, 0);
}

static void note_length(TextAddedSet *set, uint8_t first, size_t length) {
    const size_t *old = set->lengths[first];
    size_t n = 0, at = 0;
    while (old && old[n] && old[n] != length) n++;
    if (old && old[n]) return;
    size_t *new = mx_new_n(set->arena, size_t, n + 2);
    for (; at < n && old[at] > length; at++) new[at] = old[at];
    new[at] = length;
    if (n > at) memcpy(new + at + 1, old + at, (n - at) * sizeof *old);
    set->lengths[first] = new;
}

void text_added_put(TextAddedSet *set, TextAdded added) {
    int32_t i = text_vocab_find(&set->find, added.text);
    MX_ASSERT(added.text.n);
    if (i >= 0 && set->item[i].id == added.id) {
        set->item[i] = added;
        return;
    }
    if (i < 0) {
        text_vocab_add(&set->find, added.text, set->n);
        note_length(set, (uint8_t)added.text.data[0], added.text.n);
    }
    if (!(set->n & (set->n - 1))) /* a power of 2 is full */
        set->item = mx_arena_grow(set->arena, set->item, (size_t)set->n,
                                  set->n ? 2 * (size_t)set->n : 1, sizeof *set->item);
    set->item[set->n++] = added;
}

const TextAdded *text_added_at(const TextAddedSet *set, TextSpan text, size_t at) {
    const size_t *length = set->lengths[(uint8_t)text.data[at]];
    for (; length && *length; length++) {
        if (*length > text.n - at) continue;
        int32_t i = text_vocab_find(&set->find, (TextSpan){text.data + at, *length});
        if (i >= 0) return &set->item[i];
    }
    return NULL;
}

static bool stands_alone(TextSpan text, size_t start, size_t end) {
    size_t at;
    if (start && text_is_word(text_last_char((TextSpan){text.data, start}, &at))) return false;
    at = end;
    return end == text.n || !text_is_word(mx_char_next(text.data, &at));
}

/* The bytes of a token, with the spaces that it takes; none if one before it took all. */
static TextStretch stretch_of(TextAddedScan *scan, const TextAdded *added, size_t start) {
    TextSpan text = scan->text;
    size_t end = start + added->text.n, at;
    while (added->takes_left && start > scan->done &&
           text_is_space(text_last_char((TextSpan){text.data, start}, &at)))
        start = at;
    if (added->takes_left && start < scan->done) start = scan->done;
    while (added->takes_right && end < text.n) {
        at = end;
        if (!text_is_space(mx_char_next(text.data, &at))) break;
        end = at;
    }
    return (TextStretch){start, end, added};
}

/* The next token in the text; added NULL = there is none. */
static TextStretch find(TextAddedScan *scan) {
    while (scan->set->n && scan->at < scan->text.n) {
        size_t start = scan->at;
        const TextAdded *added = text_added_at(scan->set, scan->text, start);
        scan->at += added ? added->text.n : 1;
        if (!added || (added->is_word && !stands_alone(scan->text, start, scan->at))) continue;
        TextStretch stretch = stretch_of(scan, added, start);
        if (stretch.start < stretch.end) return stretch;
    }
    return (TextStretch){.start = scan->text.n, .end = scan->text.n};
}

bool text_added_next(TextAddedScan *scan, TextStretch *out) {
    bool waits = scan->token.added;
    *out = waits ? scan->token : find(scan);
    scan->token = (TextStretch){0};
    if (scan->done < out->start) { /* text comes first */
        scan->token = *out;
        *out = (TextStretch){.start = scan->done, .end = scan->token.start};
    } else if (!out->added) {
        return false;
    }
    scan->done = out->end;
    return true;
}
