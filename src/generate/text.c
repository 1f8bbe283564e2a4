/* text.c — the text of a reply as its tokens come: stops end it, and what may begin a stop waits.
 */
#include "row.h"

/* The end of the text that may be the beginning of a stop. */
static size_t waiting(const MxGenerate *how, const MxText *text) {
    size_t most = 0;
    for (int i = 0; i < how->n_stops; i++) {
        size_t n = strlen(how->stops[i]);
        for (size_t k = n < text->len ? n : text->len; k > most; k--)
            if (!memcmp(text->data + text->len - k, how->stops[i], k)) most = k;
    }
    return most;
}

/* Cuts the text where the first stop begins. */
static bool cut_at_stop(const MxGenerate *how, MxText *text) {
    size_t at = text->len;
    for (int i = 0; i < how->n_stops; i++) {
        const char *found = memmem(text->data, text->len, how->stops[i], strlen(how->stops[i]));
        if (found && (size_t)(found - text->data) < at) at = (size_t)(found - text->data);
    }
    if (at == text->len) return false;
    text->len = at;
    text->data[at] = '\0';
    return true;
}

static void say(const MxGenerate *how, Row *row, size_t to) {
    if (how->say && to > row->said)
        how->say(how->context, row->text.data + row->said, to - row->said);
    if (to > row->said) row->said = to;
}

bool row_is_among(const int32_t *ids, int n, int32_t id) {
    for (int i = 0; i < n; i++)
        if (ids[i] == id) return true;
    return false;
}

/* The text of a special token, behind what waits for its end. */
static void add_shown(const MxGenerate *how, Row *row, int32_t id) {
    size_t n;
    const char *text = mx_text_stream_end(row->text_stream, &n);
    mx_text_addn(&row->text, text, n);
    text = mx_tokenizer_decode(row->arena, how->tokenizer, &id, 1, false, &n);
    mx_text_addn(&row->text, text, n);
}

bool row_add_text(Row *row, int32_t id) {
    const MxGenerate *how = row->how;
    size_t n;
    if (!row->text_stream) return false;
    const char *text = "";
    if (row_is_among(how->shown, how->n_shown, id)) {
        add_shown(how, row, id);
    } else {
        text = mx_text_stream_next(row->text_stream, id, &n);
        mx_text_addn(&row->text, text, n);
    }
    if (row->is_over) {
        text = mx_text_stream_end(row->text_stream, &n);
        mx_text_addn(&row->text, text, n);
    }
    bool stops = cut_at_stop(how, &row->text);
    row->is_over |= stops;
    say(how, row, row->is_over ? row->text.len : row->text.len - waiting(how, &row->text));
    return stops;
}
