/* text.c — shared by filters and methods of strings: case, padding, lines, replacing. */
#include "internal.h"

ChatText chat_argument_text(ChatRun *run, ChatValue value, ChatText otherwise) {
    if (value.kind == CHAT_ABSENT) return otherwise;
    if (value.kind == CHAT_TEXT || !chat_use(run, value)) return value.text;
    return chat_string(run, value);
}

int64_t chat_argument_index(ChatRun *run, ChatValue value, int64_t otherwise) {
    int64_t out = otherwise;
    if (value.kind != CHAT_ABSENT && chat_use(run, value) && !chat_index(value, &out))
        chat_fail(run, "'%s' object cannot be interpreted as an integer", chat_type(value));
    return out;
}

/* ---- cases */

static bool is_cased(uint32_t c) {
    return mx_char_class(c) & (MX_CHAR_UPPER | MX_CHAR_LOWER | MX_CHAR_TITLE);
}

/* A sigma at the end of a word has a form of its own. */
static bool is_last_sigma(ChatText text, size_t from, size_t behind) {
    size_t before = from, next = behind;
    if (!before) return false;
    before = mx_char_start(text.data, before - 1);
    return is_cased(mx_char_next(text.data, &before)) &&
           (behind == text.n || !is_cased(mx_char_next(text.data, &next)));
}

ChatValue chat_in_case(ChatRun *run, ChatText text, ChatCase to) {
    enum { SIGMA = 0x3a3, LAST_SIGMA = 0x3c2 };
    MxText out = chat_builder(run);
    bool in_word = false;
    chat_spend(run, text.n / 8);
    for (size_t at = 0, from = 0; at < text.n && !run->failed; from = at) {
        uint32_t c = mx_char_next(text.data, &at);
        MxCharCase is = to == CHAT_UPPER ? MX_CASE_UPPER : MX_CASE_LOWER;
        if (to == CHAT_TITLE && !in_word) is = MX_CASE_TITLE;
        if (to == CHAT_CAPITALIZE && !from) is = MX_CASE_TITLE;
        if (to == CHAT_SWAP && mx_char_class(c) & MX_CHAR_LOWER) is = MX_CASE_UPPER;
        in_word = is_cased(c);
        if (c == SIGMA && is == MX_CASE_LOWER && is_last_sigma(text, from, at))
            mx_char_add(&out, LAST_SIGMA);
        else
            mx_char_add_case(&out, c, is);
    }
    return chat_built(&out);
}

/* ---- padding */

void chat_pad(ChatRun *run, MxText *out, ChatText fill, int64_t n) {
    for (int64_t i = 0; i < n && chat_spend(run, 1); i++) chat_add(run, out, fill.data, fill.n);
}

ChatValue chat_centered(ChatRun *run, ChatText text, int64_t width, ChatText fill) {
    MxText out = chat_builder(run);
    int64_t room = width - chat_chars(text);
    int64_t left = room > 0 ? room / 2 + (room & width & 1) : 0; /* as CPython */
    chat_pad(run, &out, fill, left);
    chat_add(run, &out, text.data, text.n);
    chat_pad(run, &out, fill, room - left);
    return chat_built(&out);
}

/* ---- lines */

static bool ends_line(uint32_t c) {
    return (c >= '\n' && c <= '\r') || (c >= 0x1c && c <= 0x1e) || c == 0x85 || c == 0x2028 ||
           c == 0x2029;
}

ChatValue chat_lines(ChatRun *run, ChatText text, bool keeps_ends) {
    ChatValue out = chat_list_new(run, CHAT_IS_LIST, 0);
    size_t start = 0;
    for (size_t at = 0, from = 0; at < text.n && chat_spend(run, 1); from = at) {
        if (!ends_line(mx_char_next(text.data, &at))) continue;
        if (text.data[from] == '\r' && at < text.n && text.data[at] == '\n') at++;
        chat_list_add(run, out, chat_text(text.data + start, (keeps_ends ? at : from) - start));
        start = at;
    }
    if (start < text.n) chat_list_add(run, out, chat_text(text.data + start, text.n - start));
    return out;
}

/* ---- replacing */

ChatValue chat_replace(ChatRun *run, ChatText text, ChatText from, ChatText to, int64_t n) {
    MxText out = chat_builder(run);
    size_t at = 0;
    chat_spend(run, text.n / 64);
    for (; n && chat_spend(run, 1); n--) {
        size_t found = chat_find(text, at, from), end;
        if (found == SIZE_MAX) break;
        chat_add(run, &out, text.data + at, found - at);
        chat_add(run, &out, to.data, to.n);
        end = found + from.n;
        if (!from.n) { /* between all characters */
            if (end == text.n) return chat_built(&out);
            mx_char_next(text.data, &end);
            chat_add(run, &out, text.data + found, end - found);
        }
        at = end;
    }
    chat_add(run, &out, text.data + at, text.n - at);
    return chat_built(&out);
}

/* ---- characters */

int64_t chat_chars(ChatText text) {
    int64_t n = 0;
    for (size_t i = 0; i < text.n; i++) n += ((uint8_t)text.data[i] & 0xc0) != 0x80;
    return n;
}

size_t chat_char_at(ChatText text, int64_t i) {
    size_t at = 0;
    while (i-- > 0 && at < text.n) mx_char_next(text.data, &at);
    return at;
}

bool chat_is_space(uint32_t c) {
    return c == ' ' || (c < 0x80 ? (c >= 9 && c <= 13) || (c >= 0x1c && c <= 0x1f)
                                 : (mx_char_class(c) & MX_CHAR_SPACE) != 0);
}

size_t chat_find(ChatText in, size_t from, ChatText what) {
    if (from > in.n || what.n > in.n - from) return SIZE_MAX;
    if (!what.n) return from;
    const char *found = memmem(in.data + from, in.n - from, what.data, what.n);
    return found ? (size_t)(found - in.data) : SIZE_MAX;
}

size_t chat_find_last(ChatText in, size_t end, ChatText what) {
    if (what.n > end || end > in.n) return SIZE_MAX;
    for (size_t at = end - what.n + 1; at-- > 0;)
        if (!what.n || !memcmp(in.data + at, what.data, what.n)) return at;
    return SIZE_MAX;
}

static bool is_stripped(ChatText set, uint32_t c) {
    if (!set.data) return chat_is_space(c);
    for (size_t at = 0; at < set.n;)
        if (mx_char_next(set.data, &at) == c) return true;
    return false;
}

ChatText chat_strip(ChatText text, ChatText set, bool left, bool right) {
    for (size_t at = 0; left && text.n; at = 0) {
        if (!is_stripped(set, mx_char_next(text.data, &at))) break;
        text = (ChatText){text.data + at, text.n - at};
    }
    while (right && text.n) {
        size_t last = mx_char_start(text.data, text.n - 1), at = last;
        if (!is_stripped(set, mx_char_next(text.data, &at))) break;
        text.n = last;
    }
    return text;
}
