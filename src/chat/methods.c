/* methods.c — Python's string methods; those of dicts and lists are in methods_list.c. */
#include "internal.h"

static ChatText self(const ChatCall *call) {
    return call->self.text;
}
static ChatValue of_text(ChatText text) {
    return chat_text(text.data, text.n);
}

/* ---- cases and classes */

static ChatValue to_upper(ChatRun *run, ChatCall *call) {
    return chat_in_case(run, self(call), CHAT_UPPER);
}
static ChatValue to_lower(ChatRun *run, ChatCall *call) {
    return chat_in_case(run, self(call), CHAT_LOWER);
}
static ChatValue to_title(ChatRun *run, ChatCall *call) {
    return chat_in_case(run, self(call), CHAT_TITLE);
}
static ChatValue to_capital(ChatRun *run, ChatCall *call) {
    return chat_in_case(run, self(call), CHAT_CAPITALIZE);
}
static ChatValue to_swapped(ChatRun *run, ChatCall *call) {
    return chat_in_case(run, self(call), CHAT_SWAP);
}

/* Whether there are characters and all are of one of these classes. */
static ChatValue all_are(ChatRun *run, ChatCall *call, unsigned classes) {
    ChatText text = self(call);
    chat_spend(run, text.n / 8);
    for (size_t at = 0; at < text.n;)
        if (!(mx_char_class(mx_char_next(text.data, &at)) & classes)) return chat_bool(false);
    return chat_bool(text.n > 0);
}
static ChatValue is_digit(ChatRun *run, ChatCall *call) {
    return all_are(run, call, MX_CHAR_DIGIT);
}
static ChatValue is_decimal(ChatRun *run, ChatCall *call) {
    return all_are(run, call, MX_CHAR_DECIMAL);
}
static ChatValue is_numeric(ChatRun *run, ChatCall *call) {
    return all_are(run, call, MX_CHAR_NUMERIC);
}
static ChatValue is_alpha(ChatRun *run, ChatCall *call) {
    return all_are(run, call, MX_CHAR_LETTER);
}
static ChatValue is_alnum(ChatRun *run, ChatCall *call) {
    return all_are(run, call, MX_CHAR_LETTER | MX_CHAR_NUMERIC);
}
static ChatValue is_space(ChatRun *run, ChatCall *call) {
    ChatText text = self(call);
    return chat_bool(chat_spend(run, text.n / 8) && text.n &&
                     !chat_strip(text, (ChatText){0}, true, false).n);
}
static ChatValue is_upper(ChatRun *run, ChatCall *call) {
    return chat_call_row(run, chat_row(chat_tests, "upper"), call);
}
static ChatValue is_lower(ChatRun *run, ChatCall *call) {
    return chat_call_row(run, chat_row(chat_tests, "lower"), call);
}
static ChatValue is_ascii(ChatRun *run, ChatCall *call) {
    (void)run;
    for (size_t i = 0; i < self(call).n; i++)
        if ((uint8_t)self(call).data[i] > 0x7f) return chat_bool(false);
    return chat_bool(true);
}

/* ---- ends */

static ChatValue strip(ChatRun *run, ChatCall *call, bool left, bool right) {
    ChatValue set = call->arg[0];
    bool is_plain = set.kind == CHAT_ABSENT || set.kind == CHAT_NONE;
    if (!is_plain && set.kind != CHAT_TEXT)
        return chat_fail(run, "strip arg must be None or str, not %s", chat_type(set));
    ChatText chars =
        is_plain ? (ChatText){0} : (ChatText){set.text.data ? set.text.data : "", set.text.n};
    chat_spend(run, self(call).n / 64);
    return of_text(chat_strip(self(call), chars, left, right));
}
static ChatValue do_strip(ChatRun *run, ChatCall *call) {
    return strip(run, call, true, true);
}
static ChatValue do_lstrip(ChatRun *run, ChatCall *call) {
    return strip(run, call, true, false);
}
static ChatValue do_rstrip(ChatRun *run, ChatCall *call) {
    return strip(run, call, false, true);
}

static bool begins(ChatText text, ChatText with, bool at_end) {
    if (with.n > text.n) return false;
    return !with.n || !memcmp(text.data + (at_end ? text.n - with.n : 0), with.data, with.n);
}

/* The part of a text that two positions name. */
static ChatText part_of(ChatRun *run, ChatText text, ChatValue from, ChatValue to) {
    ChatValue bound[3] = {from, to, {.kind = CHAT_ABSENT}};
    bool is_all = from.kind == CHAT_ABSENT && to.kind == CHAT_ABSENT;
    return is_all ? text : chat_slice(run, of_text(text), bound).text;
}

static ChatValue begins_with(ChatRun *run, ChatCall *call, bool at_end) {
    ChatText text = part_of(run, self(call), call->arg[1], call->arg[2]);
    ChatValue with = call->arg[0];
    bool is_tuple = with.kind == CHAT_LIST && with.list->form == CHAT_IS_TUPLE;
    for (int64_t i = 0; is_tuple && i < with.list->n; i++)
        if (with.list->item[i].kind == CHAT_TEXT && begins(text, with.list->item[i].text, at_end))
            return chat_bool(true);
    if (is_tuple) return chat_bool(false);
    if (with.kind != CHAT_TEXT && chat_use(run, with))
        return chat_fail(run, "%s first arg must be str or a tuple of str, not %s",
                         call->function->name, chat_type(with));
    return chat_bool(!run->failed && begins(text, with.text, at_end));
}
static ChatValue do_startswith(ChatRun *run, ChatCall *call) {
    return begins_with(run, call, false);
}
static ChatValue do_endswith(ChatRun *run, ChatCall *call) {
    return begins_with(run, call, true);
}

/* Fails unless an argument is a text. */
static bool wants_text(ChatRun *run, const ChatCall *call, int i) {
    if (call->arg[i].kind == CHAT_TEXT) return true;
    if (chat_use(run, call->arg[i]))
        chat_fail(run, "%s: must be str, not %s", call->function->name, chat_type(call->arg[i]));
    return false;
}

static ChatValue do_removeprefix(ChatRun *run, ChatCall *call) {
    ChatText text = self(call);
    if (!wants_text(run, call, 0) || !begins(text, call->arg[0].text, false)) return of_text(text);
    return chat_text(text.data + call->arg[0].text.n, text.n - call->arg[0].text.n);
}
static ChatValue do_removesuffix(ChatRun *run, ChatCall *call) {
    ChatText text = self(call);
    if (!wants_text(run, call, 0) || !begins(text, call->arg[0].text, true)) return of_text(text);
    return chat_text(text.data, text.n - call->arg[0].text.n);
}

/* ---- searching */

static ChatValue find(ChatRun *run, ChatCall *call, bool from_end, bool needed) {
    if (!wants_text(run, call, 0)) return (ChatValue){0};
    ChatText text = part_of(run, self(call), call->arg[1], call->arg[2]);
    chat_spend(run, text.n / 64);
    size_t at = from_end ? chat_find_last(text, text.n, call->arg[0].text)
                         : chat_find(text, 0, call->arg[0].text);
    if (at == SIZE_MAX && needed) return chat_fail(run, "substring not found");
    if (at == SIZE_MAX || run->failed) return chat_whole(-1);
    size_t start = (size_t)(text.data - self(call).data);
    return chat_whole(chat_chars((ChatText){self(call).data, start + at}));
}
static ChatValue do_find(ChatRun *run, ChatCall *call) {
    return find(run, call, false, false);
}
static ChatValue do_rfind(ChatRun *run, ChatCall *call) {
    return find(run, call, true, false);
}
static ChatValue do_index(ChatRun *run, ChatCall *call) {
    return find(run, call, false, true);
}
static ChatValue do_rindex(ChatRun *run, ChatCall *call) {
    return find(run, call, true, true);
}

static ChatValue do_count(ChatRun *run, ChatCall *call) {
    int64_t n = 0;
    if (!wants_text(run, call, 0)) return (ChatValue){0};
    ChatText text = part_of(run, self(call), call->arg[1], call->arg[2]), what = call->arg[0].text;
    if (!what.n) return chat_whole(chat_chars(text) + 1);
    chat_spend(run, text.n / 64);
    for (size_t at = 0; (at = chat_find(text, at, what)) != SIZE_MAX; at += what.n) n++;
    return chat_whole(n);
}

static ChatValue do_replace(ChatRun *run, ChatCall *call) {
    if (!wants_text(run, call, 0) || !wants_text(run, call, 1)) return (ChatValue){0};
    return chat_replace(run, self(call), call->arg[0].text, call->arg[1].text,
                        chat_argument_index(run, call->arg[2], -1));
}

/* ---- cutting and joining */

static void reverse(ChatList *list) {
    for (int64_t i = 0, k = list->n - 1; i < k; i++, k--) {
        ChatValue item = list->item[i];
        list->item[i] = list->item[k];
        list->item[k] = item;
    }
}

/* At runs of spaces, at most n times, from the left or the right. */
static ChatValue split_words(ChatRun *run, ChatText text, int64_t n, bool from_end) {
    ChatValue out = chat_list_new(run, CHAT_IS_LIST, 0);
    text = chat_strip(text, (ChatText){0}, !from_end, from_end);
    while (text.n && chat_spend(run, 1)) {
        size_t end = 0, next = 0;
        if (n >= 0 && out.list->n == n) break;
        if (!from_end) {
            while (end < text.n && !chat_is_space(mx_char_next(text.data, &next))) end = next;
            chat_list_add(run, out, chat_text(text.data, end));
            text = (ChatText){text.data + end, text.n - end};
        } else {
            for (end = text.n; end; end = next) {
                size_t at = next = mx_char_start(text.data, end - 1);
                if (chat_is_space(mx_char_next(text.data, &at))) break;
            }
            chat_list_add(run, out, chat_text(text.data + end, text.n - end));
            text.n = end;
        }
        text = chat_strip(text, (ChatText){0}, !from_end, from_end);
    }
    if (text.n) chat_list_add(run, out, of_text(text));
    if (from_end) reverse(out.list);
    return out;
}

static ChatValue split(ChatRun *run, ChatCall *call, bool from_end) {
    ChatText text = self(call), by = call->arg[0].text;
    int64_t n = chat_argument_index(run, call->arg[1], -1);
    ChatValue out = chat_list_new(run, CHAT_IS_LIST, 0);
    chat_spend(run, text.n / 16);
    if (call->arg[0].kind == CHAT_ABSENT || call->arg[0].kind == CHAT_NONE)
        return split_words(run, text, n, from_end);
    if (!wants_text(run, call, 0)) return out;
    if (!by.n) return chat_fail(run, "empty separator");
    for (; (n < 0 || out.list->n < n) && chat_spend(run, 1);) {
        size_t at = from_end ? chat_find_last(text, text.n, by) : chat_find(text, 0, by);
        if (at == SIZE_MAX) break;
        size_t behind = at + by.n;
        ChatText rest = {text.data + behind, text.n - behind}, front = {text.data, at};
        chat_list_add(run, out, of_text(from_end ? rest : front));
        text = from_end ? front : rest;
    }
    chat_list_add(run, out, of_text(text));
    if (from_end) reverse(out.list);
    return out;
}
static ChatValue do_split(ChatRun *run, ChatCall *call) {
    return split(run, call, false);
}
static ChatValue do_rsplit(ChatRun *run, ChatCall *call) {
    return split(run, call, true);
}
static ChatValue do_splitlines(ChatRun *run, ChatCall *call) {
    return chat_lines(run, self(call), chat_truth(call->arg[0]));
}

static ChatValue partition(ChatRun *run, ChatCall *call, bool from_end) {
    ChatText text = self(call), by = call->arg[0].text;
    if (!wants_text(run, call, 0)) return (ChatValue){0};
    if (!by.n) return chat_fail(run, "empty separator");
    size_t at = from_end ? chat_find_last(text, text.n, by) : chat_find(text, 0, by);
    bool found = at != SIZE_MAX;
    ChatText front = {text.data, found ? at : from_end ? 0 : text.n};
    size_t behind = found ? at + by.n : front.n;
    ChatValue out = chat_list_new(run, CHAT_IS_TUPLE, 3);
    chat_list_add(run, out, of_text(front));
    chat_list_add(run, out, found ? of_text(by) : chat_text("", 0));
    chat_list_add(run, out, chat_text(text.data + behind, text.n - behind));
    return out;
}
static ChatValue do_partition(ChatRun *run, ChatCall *call) {
    return partition(run, call, false);
}
static ChatValue do_rpartition(ChatRun *run, ChatCall *call) {
    return partition(run, call, true);
}

static ChatValue do_join(ChatRun *run, ChatCall *call) {
    const ChatList *list = chat_walk(run, call->arg[0]);
    MxText out = chat_builder(run);
    for (int64_t i = 0; i < list->n && chat_spend(run, 1); i++) {
        if (list->item[i].kind != CHAT_TEXT)
            return chat_fail(run, "sequence item %lld: expected str instance, %s found",
                             (long long)i, chat_type(list->item[i]));
        if (i) chat_add(run, &out, self(call).data, self(call).n);
        chat_add(run, &out, list->item[i].text.data, list->item[i].text.n);
    }
    return chat_built(&out);
}

/* ---- padding */

static ChatText fill_of(ChatRun *run, ChatCall *call) {
    ChatText fill = chat_argument_text(run, call->arg[1], CHAT_TEXT_OF(" "));
    if (chat_chars(fill) != 1)
        chat_fail(run, "The fill character must be exactly one character long");
    return fill;
}

static ChatValue justify(ChatRun *run, ChatCall *call, bool to_right) {
    ChatText fill = fill_of(run, call);
    int64_t room = chat_argument_index(run, call->arg[0], 0) - chat_chars(self(call));
    MxText out = chat_builder(run);
    if (to_right) chat_pad(run, &out, fill, room);
    chat_add(run, &out, self(call).data, self(call).n);
    if (!to_right) chat_pad(run, &out, fill, room);
    return chat_built(&out);
}
static ChatValue do_ljust(ChatRun *run, ChatCall *call) {
    return justify(run, call, false);
}
static ChatValue do_rjust(ChatRun *run, ChatCall *call) {
    return justify(run, call, true);
}
static ChatValue do_center(ChatRun *run, ChatCall *call) {
    return chat_centered(run, self(call), chat_argument_index(run, call->arg[0], 0),
                         fill_of(run, call));
}

static ChatValue do_zfill(ChatRun *run, ChatCall *call) {
    ChatText text = self(call);
    MxText out = chat_builder(run);
    int64_t room = chat_argument_index(run, call->arg[0], 0) - chat_chars(text);
    size_t sign = text.n && (*text.data == '-' || *text.data == '+');
    chat_add(run, &out, text.data, sign);
    chat_pad(run, &out, CHAT_TEXT_OF("0"), room);
    chat_add(run, &out, text.data + sign, text.n - sign);
    return chat_built(&out);
}

static ChatValue do_expandtabs(ChatRun *run, ChatCall *call) {
    int64_t size = chat_argument_index(run, call->arg[0], 8), column = 0;
    ChatText text = self(call);
    MxText out = chat_builder(run);
    for (size_t at = 0, from = 0; at < text.n && chat_spend(run, 1); from = at) {
        uint32_t c = mx_char_next(text.data, &at);
        if (c == '\t') {
            int64_t n = size > 0 ? size - column % size : 0;
            chat_pad(run, &out, CHAT_TEXT_OF(" "), n);
            column += n;
            continue;
        }
        chat_add(run, &out, text.data + from, at - from);
        column = c == '\n' || c == '\r' ? 0 : column + 1;
    }
    return chat_built(&out);
}

static ChatValue do_format(ChatRun *run, ChatCall *call) {
    return chat_format_braces(run, self(call), call);
}

static const ChatRow texts[] = {
    {"capitalize", "", 0, to_capital},
    {"casefold", "", 0, to_lower},
    {"center", "width fillchar", 1, do_center},
    {"count", "sub start end", 1, do_count},
    {"endswith", "suffix start end", 1, do_endswith},
    {"expandtabs", "tabsize", 0, do_expandtabs},
    {"find", "sub start end", 1, do_find},
    {"format", NULL, 0, do_format},
    {"index", "sub start end", 1, do_index},
    {"isalnum", "", 0, is_alnum},
    {"isalpha", "", 0, is_alpha},
    {"isascii", "", 0, is_ascii},
    {"isdecimal", "", 0, is_decimal},
    {"isdigit", "", 0, is_digit},
    {"islower", "", 0, is_lower},
    {"isnumeric", "", 0, is_numeric},
    {"isspace", "", 0, is_space},
    {"isupper", "", 0, is_upper},
    {"join", "iterable", 1, do_join},
    {"ljust", "width fillchar", 1, do_ljust},
    {"lower", "", 0, to_lower},
    {"lstrip", "chars", 0, do_lstrip},
    {"partition", "sep", 1, do_partition},
    {"removeprefix", "prefix", 1, do_removeprefix},
    {"removesuffix", "suffix", 1, do_removesuffix},
    {"replace", "old new count", 2, do_replace},
    {"rfind", "sub start end", 1, do_rfind},
    {"rindex", "sub start end", 1, do_rindex},
    {"rjust", "width fillchar", 1, do_rjust},
    {"rpartition", "sep", 1, do_rpartition},
    {"rsplit", "sep maxsplit", 0, do_rsplit},
    {"rstrip", "chars", 0, do_rstrip},
    {"split", "sep maxsplit", 0, do_split},
    {"splitlines", "keepends", 0, do_splitlines},
    {"startswith", "prefix start end", 1, do_startswith},
    {"strip", "chars", 0, do_strip},
    {"swapcase", "", 0, to_swapped},
    {"title", "", 0, to_title},
    {"upper", "", 0, to_upper},
    {"zfill", "width", 1, do_zfill},
};
const ChatTable chat_text_methods = {.rows = texts, .n = MX_COUNT(texts)};
