/* filters_text.c — filters of strings. Source: jinja2 3.1, filters.py. */
#include "internal.h"

/* A text that is as safe as what it was made of. */
static ChatValue as_before(const ChatCall *call, ChatValue text) {
    text.is_safe = call->self.is_safe;
    return text;
}

static ChatValue do_upper(ChatRun *run, ChatCall *call) {
    return as_before(call, chat_in_case(run, chat_string(run, call->self), CHAT_UPPER));
}
static ChatValue do_lower(ChatRun *run, ChatCall *call) {
    return as_before(call, chat_in_case(run, chat_string(run, call->self), CHAT_LOWER));
}
static ChatValue do_capitalize(ChatRun *run, ChatCall *call) {
    return as_before(call, chat_in_case(run, chat_string(run, call->self), CHAT_CAPITALIZE));
}

static ChatValue do_string(ChatRun *run, ChatCall *call) {
    ChatText text = chat_string(run, call->self);
    return as_before(call, chat_text(text.data, text.n));
}

/* Words begin behind spaces, dashes and brackets. */
static ChatValue do_title(ChatRun *run, ChatCall *call) {
    ChatText text = chat_string(run, call->self);
    MxText out = chat_builder(run);
    bool begins = true;
    chat_spend(run, text.n / 8);
    for (size_t at = 0; at < text.n && !run->failed;) {
        uint32_t c = mx_char_next(text.data, &at);
        mx_char_add_case(&out, c, begins ? MX_CASE_UPPER : MX_CASE_LOWER);
        begins = chat_is_space(c) || (c < 0x80 && c && strchr("-({[<", (int)c));
    }
    return chat_built(&out);
}

static ChatValue do_trim(ChatRun *run, ChatCall *call) {
    ChatText set = call->arg[0].kind == CHAT_NONE
                       ? (ChatText){0}
                       : chat_argument_text(run, call->arg[0], (ChatText){0});
    ChatText text = chat_strip(chat_string(run, call->self), set, true, true);
    return as_before(call, chat_text(text.data, text.n));
}

static ChatValue do_replace(ChatRun *run, ChatCall *call) {
    int64_t n = call->arg[2].kind == CHAT_NONE ? -1 : chat_argument_index(run, call->arg[2], -1);
    return chat_replace(run, chat_string(run, call->self), chat_string(run, call->arg[0]),
                        chat_string(run, call->arg[1]), n);
}

static ChatValue do_center(ChatRun *run, ChatCall *call) {
    enum { USUAL = 80 };
    int64_t width = chat_argument_index(run, call->arg[0], USUAL);
    ChatText text = chat_string(run, call->self);
    return as_before(call, chat_centered(run, text, width, CHAT_TEXT_OF(" ")));
}

static ChatValue do_indent(ChatRun *run, ChatCall *call) {
    ChatText text = chat_string(run, call->self), by = {0};
    bool first = chat_truth(call->arg[1]), blank = chat_truth(call->arg[2]);
    MxText spaces = chat_builder(run), out = chat_builder(run);
    if (call->arg[0].kind == CHAT_TEXT) {
        by = call->arg[0].text;
    } else {
        chat_pad(run, &spaces, CHAT_TEXT_OF(" "), chat_argument_index(run, call->arg[0], 4));
        by = (ChatText){spaces.data, spaces.len};
    }
    MxText ended = chat_builder(run); /* so that what follows the last end of a line is one */
    chat_add(run, &ended, text.data, text.n);
    chat_add(run, &ended, "\n", 1);
    ChatValue lines = chat_lines(run, chat_built(&ended).text, false);
    for (int64_t i = 0; i < lines.list->n && chat_spend(run, 1); i++) {
        ChatText line = lines.list->item[i].text;
        if (i) chat_add(run, &out, "\n", 1);
        if (i ? blank || line.n : first) chat_add(run, &out, by.data, by.n);
        chat_add(run, &out, line.data, line.n);
    }
    return chat_built(&out);
}

void chat_add_escaped(ChatRun *run, MxText *out, ChatText text) {
    static const struct {
        char c;
        const char *text;
    } marks[] = {{'&', "&amp;"}, {'<', "&lt;"}, {'>', "&gt;"}, {'"', "&#34;"}, {'\'', "&#39;"}};
    for (size_t at = 0; at < text.n && !run->failed; at++) {
        const char *escape = NULL;
        for (int i = 0; i < MX_COUNT(marks); i++)
            if (marks[i].c == text.data[at]) escape = marks[i].text;
        chat_add(run, out, escape ? escape : text.data + at, escape ? strlen(escape) : 1);
    }
}

static ChatValue as_safe(ChatValue text) {
    text.is_safe = true;
    return text;
}

static ChatValue do_safe(ChatRun *run, ChatCall *call) {
    return as_safe(do_string(run, call));
}

static ChatValue do_force_escape(ChatRun *run, ChatCall *call) {
    MxText out = chat_builder(run);
    chat_add_escaped(run, &out, chat_string(run, call->self));
    return as_safe(chat_built(&out));
}

static ChatValue do_escape(ChatRun *run, ChatCall *call) {
    bool is_safe = call->self.kind == CHAT_TEXT && call->self.is_safe;
    return is_safe ? call->self : do_force_escape(run, call);
}

static ChatValue do_striptags(ChatRun *run, ChatCall *call) {
    ChatText text = chat_string(run, call->self);
    MxText plain = chat_builder(run), out = chat_builder(run);
    for (size_t at = 0; at < text.n && chat_spend(run, 1);) {
        bool is_comment = chat_find(text, at, CHAT_TEXT_OF("<!--")) == at;
        ChatText close = is_comment ? CHAT_TEXT_OF("-->") : CHAT_TEXT_OF(">");
        size_t end = text.data[at] == '<' ? chat_find(text, at, close) : SIZE_MAX;
        if (end == SIZE_MAX) {
            chat_add(run, &plain, text.data + at++, 1);
            continue;
        }
        at = end + close.n;
    }
    ChatText rest = chat_strip((ChatText){plain.data, plain.len}, (ChatText){0}, true, true);
    bool was_space = false;
    for (size_t at = 0, from = 0; at < rest.n && !run->failed; from = at) {
        bool is_space = chat_is_space(mx_char_next(rest.data, &at));
        if (is_space && !was_space) chat_add(run, &out, " ", 1);
        if (!is_space) chat_add(run, &out, rest.data + from, at - from);
        was_space = is_space;
    }
    return chat_built(&out);
}

static ChatValue do_wordcount(ChatRun *run, ChatCall *call) {
    ChatText text = chat_string(run, call->self);
    int64_t n = 0;
    bool in_word = false;
    chat_spend(run, text.n / 8);
    for (size_t at = 0; at < text.n;) {
        uint32_t c = mx_char_next(text.data, &at);
        bool is_word = mx_char_class(c) & MX_CHAR_WORD;
        n += is_word && !in_word;
        in_word = is_word;
    }
    return chat_whole(n);
}

static ChatValue do_truncate(ChatRun *run, ChatCall *call) {
    ChatText text = chat_string(run, call->self);
    int64_t length = chat_argument_index(run, call->arg[0], 255);
    int64_t leeway = call->arg[3].kind == CHAT_NONE ? 5 : chat_argument_index(run, call->arg[3], 5);
    ChatText end = chat_argument_text(run, call->arg[2], CHAT_TEXT_OF("..."));
    MxText out = chat_builder(run);
    int64_t keeps = length - chat_chars(end);
    if (keeps < 0)
        return chat_fail(run, "expected length >= %lld, got %lld", (long long)chat_chars(end),
                         (long long)length);
    if (leeway < 0) return chat_fail(run, "expected leeway >= 0, got %lld", (long long)leeway);
    if (chat_chars(text) <= length + leeway) return chat_text(text.data, text.n);
    size_t n = chat_char_at(text, keeps);
    if (!chat_truth(call->arg[1])) {
        size_t space = chat_find_last(text, n, CHAT_TEXT_OF(" "));
        if (space != SIZE_MAX) n = space;
    }
    chat_add(run, &out, text.data, n);
    chat_add(run, &out, end.data, end.n);
    return chat_built(&out);
}

static bool is_ascii_letter(uint32_t c) {
    return ((c | 0x20) >= 'a' && (c | 0x20) <= 'z') || (c >= '0' && c <= '9') || c == '_';
}

/* A path, or a part of a query. */
static void add_url(ChatRun *run, MxText *out, ChatText text, bool is_path) {
    for (size_t i = 0; i < text.n && chat_spend(run, 1); i++) {
        uint8_t c = (uint8_t)text.data[i];
        bool stays =
            is_ascii_letter(c) || c == '.' || c == '-' || c == '~' || (c == '/' && is_path);
        if (stays)
            chat_add(run, out, text.data + i, 1);
        else if (c == ' ' && !is_path)
            chat_add(run, out, "+", 1);
        else
            mx_text_add(out, "%%%02X", c);
    }
}

static ChatValue do_urlencode(ChatRun *run, ChatCall *call) {
    MxText out = chat_builder(run);
    if (call->self.kind != CHAT_DICT) {
        add_url(run, &out, chat_string(run, call->self), true);
        return chat_built(&out);
    }
    const ChatDict *dict = call->self.dict;
    for (int64_t i = 0; i < dict->n && chat_spend(run, 1); i++) {
        if (i) chat_add(run, &out, "&", 1);
        add_url(run, &out, chat_string(run, dict->entry[i].key), false);
        chat_add(run, &out, "=", 1);
        add_url(run, &out, chat_string(run, dict->entry[i].value), false);
    }
    return chat_built(&out);
}

static ChatValue do_format(ChatRun *run, ChatCall *call) {
    ChatText text = chat_string(run, call->self);
    ChatValue values = chat_list_new(run, CHAT_IS_TUPLE, call->n);
    if (call->n && call->n_named)
        return chat_fail(run, "can't handle positional and keyword arguments at the same time");
    if (call->n_named) {
        values = chat_dict_new(run);
        for (int64_t i = 0; i < call->n_named; i++)
            chat_dict_set(run, values.dict,
                          chat_text(call->named[i].name, strlen(call->named[i].name)),
                          call->named[i].value);
        return chat_format_percent(run, text, values);
    }
    for (int64_t i = 0; i < call->n; i++) chat_list_add(run, values, call->at[i]);
    return chat_format_percent(run, text, values);
}

/* transformers' own: json.dumps without escapes for HTML. */
static ChatValue do_tojson(ChatRun *run, ChatCall *call) {
    ChatDump how = {.is_ascii = chat_truth(call->arg[0]), .sorts = chat_truth(call->arg[3])};
    MxText out = chat_builder(run), indent = chat_builder(run);
    ChatValue by = call->arg[1];
    if (by.kind == CHAT_TEXT) {
        how.indent = (ChatText){by.text.data ? by.text.data : "", by.text.n};
    } else if (by.kind != CHAT_ABSENT && by.kind != CHAT_NONE) {
        chat_pad(run, &indent, CHAT_TEXT_OF(" "), chat_argument_index(run, by, 0));
        how.indent = (ChatText){indent.data, indent.len};
    }
    how.between = how.indent.data ? CHAT_TEXT_OF(",") : CHAT_TEXT_OF(", ");
    how.behind_key = CHAT_TEXT_OF(": ");
    if (call->arg[2].kind != CHAT_ABSENT && call->arg[2].kind != CHAT_NONE) {
        const ChatList *pair = chat_walk(run, call->arg[2]);
        bool fits =
            pair->n == 2 && pair->item[0].kind == CHAT_TEXT && pair->item[1].kind == CHAT_TEXT;
        if (!fits) return chat_fail(run, "separators wants two texts");
        how.between = pair->item[0].text;
        how.behind_key = pair->item[1].text;
    }
    chat_dump(run, &out, call->self, &how);
    return chat_built(&out);
}

static const ChatRow filters[] = {
    {"capitalize", "", 0, do_capitalize},
    {"center", "width", 0, do_center},
    {"e", "", 0, do_escape},
    {"escape", "", 0, do_escape},
    {"forceescape", "", 0, do_force_escape},
    {"format", NULL, 0, do_format},
    {"indent", "width first blank", 0, do_indent},
    {"lower", "", 0, do_lower},
    {"replace", "old new count", 2, do_replace},
    {"safe", "", 0, do_safe},
    {"string", "", 0, do_string},
    {"striptags", "", 0, do_striptags},
    {"title", "", 0, do_title},
    {"tojson", "ensure_ascii indent separators sort_keys", 0, do_tojson},
    {"trim", "chars", 0, do_trim},
    {"truncate", "length killwords end leeway", 0, do_truncate},
    {"upper", "", 0, do_upper},
    {"urlencode", "", 0, do_urlencode},
    {"wordcount", "", 0, do_wordcount},
};
const ChatTable chat_filters_of_text = {filters, MX_COUNT(filters), &chat_filters_of_numbers};
