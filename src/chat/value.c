/* value.c — values of templates with Python's semantics: making, comparing, iterating. */
#include "internal.h"

#include <math.h>

/* ---- making */

ChatValue chat_none(void) {
    return (ChatValue){.kind = CHAT_NONE};
}
ChatValue chat_bool(bool truth) {
    return (ChatValue){.kind = CHAT_BOOL, .truth = truth};
}
ChatValue chat_whole(ChatWhole whole) {
    return (ChatValue){.kind = CHAT_WHOLE, .whole = whole};
}
ChatValue chat_real(double real) {
    return (ChatValue){.kind = CHAT_REAL, .real = real};
}
ChatValue chat_text(const char *data, size_t n) {
    return (ChatValue){.kind = CHAT_TEXT, .text = {data, n}};
}
ChatValue chat_built(const MxText *text) {
    return chat_text(text->data, text->len);
}

ChatValue chat_undefined(ChatRun *run, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    const char *why = mx_arena_vprintf(run->arena, fmt, ap);
    va_end(ap);
    return (ChatValue){.kind = CHAT_UNDEFINED, .why = why};
}

ChatValue chat_list_new(ChatRun *run, ChatForm form, int64_t cap) {
    ChatList *list = mx_new(run->arena, ChatList);
    list->form = form;
    list->item = cap ? chat_alloc(run, (size_t)cap, sizeof *list->item) : NULL;
    list->cap = list->item ? cap : 0;
    return (ChatValue){.kind = CHAT_LIST, .list = list};
}

void chat_list_add(ChatRun *run, ChatValue value, ChatValue item) {
    ChatList *list = value.list;
    ChatValue *items = chat_grow(run, list->item, list->n, &list->cap, sizeof *items);
    if (!items) return;
    list->item = items;
    list->item[list->n++] = item;
}

ChatValue chat_dict_new(ChatRun *run) {
    return (ChatValue){.kind = CHAT_DICT, .dict = mx_new(run->arena, ChatDict)};
}

/* Equal keys have equal hashes: numbers hash as reals. */
static uint64_t hash_of(ChatRun *run, ChatValue key) {
    double number;
    uint64_t hash = key.kind;
    if (chat_number(key, &number)) {
        if (number == 0) number = 0; /* and not -0 */
        return mx_hash64(&number, sizeof number);
    }
    if (key.kind == CHAT_TEXT) return mx_hash64(key.text.data ? key.text.data : "", key.text.n);
    if (key.kind == CHAT_LIST && key.list->form == CHAT_IS_TUPLE) {
        if (!chat_enter(run)) return 0;
        for (int64_t i = 0; i < key.list->n; i++)
            hash = hash * 31 + hash_of(run, key.list->item[i]);
        chat_leave(run);
    } else if (key.kind == CHAT_LIST || key.kind == CHAT_DICT) {
        chat_fail(run, "unhashable type: '%s'", chat_type(key));
    }
    return hash;
}

ChatEntry *chat_dict_find(ChatRun *run, const ChatDict *dict, ChatValue key) {
    uint64_t hash = hash_of(run, key);
    chat_spend(run, (size_t)dict->n / 16);
    for (int64_t i = 0; i < dict->n; i++)
        if (dict->entry[i].hash == hash && chat_equal(run, dict->entry[i].key, key))
            return &dict->entry[i];
    return NULL;
}

ChatEntry *chat_dict_named(const ChatDict *dict, const char *name) {
    for (int64_t i = 0; i < dict->n; i++)
        if (chat_is_text(dict->entry[i].key, name)) return &dict->entry[i];
    return NULL;
}

void chat_dict_set(ChatRun *run, ChatDict *dict, ChatValue key, ChatValue value) {
    ChatEntry *entry = chat_dict_find(run, dict, key);
    if (entry) {
        entry->value = value;
        return;
    }
    entry = chat_grow(run, dict->entry, dict->n, &dict->cap, sizeof *entry);
    if (!entry) return;
    dict->entry = entry;
    dict->entry[dict->n++] = (ChatEntry){key, value, hash_of(run, key)};
}

/* A number as Python reads it: whole where it has neither point nor exponent. */
static ChatValue of_json_number(const MxJson *json) {
    int64_t whole;
    double real = 0;
    if (mx_json_int(json, &whole)) return chat_whole(whole);
    mx_json_number(json, &real);
    return chat_real(real);
}

static ChatValue of_json_object(ChatRun *run, const MxJson *json) {
    ChatValue out = chat_dict_new(run);
    const char *key;
    MxJson *value;
    for (void *at = NULL; !run->failed && mx_json_next(json, &at, &key, &value);)
        chat_dict_set(run, out.dict, chat_text(key, strlen(key)), chat_of_json(run, value));
    return out;
}

static ChatValue of_json_list(ChatRun *run, const MxJson *json) {
    int64_t n = (int64_t)mx_json_length(json);
    ChatValue out = chat_list_new(run, CHAT_IS_LIST, n);
    for (int64_t i = 0; i < n && !run->failed; i++)
        chat_list_add(run, out, chat_of_json(run, mx_json_at(json, (size_t)i)));
    return out;
}

ChatValue chat_of_json(ChatRun *run, const MxJson *json) {
    bool truth;
    double number;
    const char *text = mx_json_string(json);
    if (!chat_spend(run, 1)) return (ChatValue){0};
    if (text) return chat_text(text, mx_json_string_bytes(json));
    if (mx_json_bool(json, &truth)) return chat_bool(truth);
    if (mx_json_number(json, &number)) return of_json_number(json);
    if (!strcmp(mx_json_kind(json), "null")) return chat_none();
    if (!chat_enter(run)) return (ChatValue){0};
    bool is_list = !strcmp(mx_json_kind(json), "a list");
    ChatValue out = is_list ? of_json_list(run, json) : of_json_object(run, json);
    chat_leave(run);
    return out;
}

/* ---- asking */

bool chat_is_text(ChatValue value, const char *text) {
    size_t n = strlen(text);
    return value.kind == CHAT_TEXT && value.text.n == n &&
           (!n || !memcmp(value.text.data, text, n));
}

const char *chat_type(ChatValue value) {
    static const char *const lists[] = {"list",      "tuple",       "_GroupTuple", "range",
                                        "dict_keys", "dict_values", "dict_items",  "generator"};
    static const char *const names[] = {
        [CHAT_UNDEFINED] = "Undefined",
        [CHAT_ABSENT] = "Undefined",
        [CHAT_NONE] = "NoneType",
        [CHAT_BOOL] = "bool",
        [CHAT_WHOLE] = "int",
        [CHAT_REAL] = "float",
        [CHAT_TEXT] = "str",
        [CHAT_LIST] = "list",
        [CHAT_DICT] = "dict",
        [CHAT_FUNCTION] = "function",
        [CHAT_LOOP] = "LoopContext",
    };
    if (value.kind == CHAT_LIST) return lists[value.list->form];
    if (value.kind == CHAT_DICT && value.dict->is_namespace) return "Namespace";
    return names[value.kind];
}

bool chat_truth(ChatValue value) {
    switch (value.kind) {
    case CHAT_UNDEFINED:
    case CHAT_ABSENT:
    case CHAT_NONE:
        return false;
    case CHAT_BOOL:
        return value.truth;
    case CHAT_WHOLE:
        return value.whole != 0;
    case CHAT_REAL:
        return value.real != 0;
    case CHAT_TEXT:
        return value.text.n > 0;
    case CHAT_LIST:
        return value.list->n > 0 || value.list->form == CHAT_IS_GENERATOR;
    case CHAT_DICT:
        return value.dict->n > 0 || value.dict->is_namespace;
    case CHAT_FUNCTION:
    case CHAT_LOOP:
        return true;
    }
    MX_BUG("a kind without a truth");
}

bool chat_number(ChatValue value, double *out) {
    if (value.kind == CHAT_BOOL)
        *out = value.truth;
    else if (value.kind == CHAT_WHOLE)
        *out = (double)value.whole;
    else if (value.kind == CHAT_REAL)
        *out = value.real;
    else
        return false;
    return true;
}

bool chat_index(ChatValue value, int64_t *out) {
    if (value.kind == CHAT_BOOL) return *out = value.truth, true;
    if (value.kind != CHAT_WHOLE || value.whole > INT64_MAX / 2 || value.whole < INT64_MIN / 2)
        return false;
    return *out = (int64_t)value.whole, true;
}

/* ---- comparing */

static bool same_form(const ChatList *a, const ChatList *b) {
    return a->form == b->form && a->form != CHAT_IS_GENERATOR && a->form != CHAT_IS_VALUES;
}

static bool equal_lists(ChatRun *run, const ChatList *a, const ChatList *b) {
    if (a == b) return true;
    if (!same_form(a, b) || a->n != b->n || !chat_enter(run)) return false;
    bool same = true;
    for (int64_t i = 0; same && i < a->n; i++) same = chat_equal(run, a->item[i], b->item[i]);
    chat_leave(run);
    return same;
}

static bool equal_dicts(ChatRun *run, const ChatDict *a, const ChatDict *b) {
    if (a == b) return true;
    if (a->is_namespace || b->is_namespace || a->n != b->n || !chat_enter(run)) return false;
    bool same = true;
    for (int64_t i = 0; same && i < a->n; i++) {
        const ChatEntry *entry = chat_dict_find(run, b, a->entry[i].key);
        same = entry && chat_equal(run, a->entry[i].value, entry->value);
    }
    chat_leave(run);
    return same;
}

bool chat_equal(ChatRun *run, ChatValue a, ChatValue b) {
    double x, y;
    if (!chat_spend(run, 1)) return false;
    if (a.kind == CHAT_WHOLE && b.kind == CHAT_WHOLE) return a.whole == b.whole;
    if (chat_number(a, &x) && chat_number(b, &y)) return x == y;
    if (a.kind != b.kind) return false;
    switch (a.kind) {
    case CHAT_TEXT:
        chat_spend(run, a.text.n / 64);
        return a.text.n == b.text.n && (!a.text.n || !memcmp(a.text.data, b.text.data, a.text.n));
    case CHAT_LIST:
        return equal_lists(run, a.list, b.list);
    case CHAT_DICT:
        return equal_dicts(run, a.dict, b.dict);
    case CHAT_FUNCTION:
        return a.function == b.function;
    case CHAT_LOOP:
        return a.loop == b.loop;
    default:
        return true; /* none, undefined */
    }
}

static int order_texts(ChatText a, ChatText b) {
    size_t n = a.n < b.n ? a.n : b.n;
    int order = n ? memcmp(a.data, b.data, n) : 0; /* bytes of UTF-8 lie as characters do */
    return order ? order : (a.n > b.n) - (a.n < b.n);
}

static int order_lists(ChatRun *run, const ChatList *a, const ChatList *b, const char *sign) {
    int order = 0;
    int64_t n = a->n < b->n ? a->n : b->n, i = 0;
    if (!chat_enter(run)) return 0;
    while (i < n && !run->failed && chat_equal(run, a->item[i], b->item[i])) i++;
    order = i < n ? chat_order(run, a->item[i], b->item[i], sign) : (a->n > b->n) - (a->n < b->n);
    chat_leave(run);
    return order;
}

int chat_order(ChatRun *run, ChatValue a, ChatValue b, const char *sign) {
    double x, y;
    if (!chat_use(run, a) || !chat_use(run, b) || !chat_spend(run, 1)) return 0;
    if (a.kind == CHAT_WHOLE && b.kind == CHAT_WHOLE)
        return (a.whole > b.whole) - (a.whole < b.whole);
    if (chat_number(a, &x) && chat_number(b, &y)) return (x > y) - (x < y);
    if (a.kind == CHAT_TEXT && b.kind == CHAT_TEXT) {
        chat_spend(run, a.text.n / 64);
        return order_texts(a.text, b.text);
    }
    bool are_lists = a.kind == CHAT_LIST && b.kind == CHAT_LIST && same_form(a.list, b.list) &&
                     a.list->form <= CHAT_IS_TUPLE;
    if (are_lists) return order_lists(run, a.list, b.list, sign);
    chat_fail(run, "'%s' not supported between instances of '%s' and '%s'", sign, chat_type(a),
              chat_type(b));
    return 0;
}

bool chat_contains(ChatRun *run, ChatValue in, ChatValue what) {
    if (in.kind == CHAT_TEXT) {
        if (what.kind != CHAT_TEXT) {
            if (chat_use(run, what))
                chat_fail(run, "'in <string>' requires string as left operand, not %s",
                          chat_type(what));
            return false;
        }
        chat_spend(run, in.text.n / 64);
        return chat_find(in.text, 0, what.text) != SIZE_MAX;
    }
    if (in.kind == CHAT_DICT && !in.dict->is_namespace) return chat_dict_find(run, in.dict, what);
    if (in.kind != CHAT_LIST && in.kind != CHAT_UNDEFINED) {
        chat_fail(run, "argument of type '%s' is not iterable", chat_type(in));
        return false;
    }
    const ChatList *list = chat_walk(run, in);
    for (int64_t i = 0; i < list->n && !run->failed; i++)
        if (chat_equal(run, list->item[i], what)) return true;
    return false;
}

/* ---- walking */

static ChatList *walk_text(ChatRun *run, ChatText text) {
    ChatValue out = chat_list_new(run, CHAT_IS_LIST, chat_chars(text));
    for (size_t at = 0, from = 0; at < text.n && chat_spend(run, 1); from = at) {
        mx_char_next(text.data, &at);
        chat_list_add(run, out, chat_text(text.data + from, at - from));
    }
    return out.list;
}

static ChatList *walk_dict(ChatRun *run, const ChatDict *dict) {
    ChatValue out = chat_list_new(run, CHAT_IS_LIST, dict->n);
    for (int64_t i = 0; i < dict->n && chat_spend(run, 1); i++)
        chat_list_add(run, out, dict->entry[i].key);
    return out.list;
}

ChatList *chat_walk(ChatRun *run, ChatValue value) {
    static ChatList none;
    if (value.kind == CHAT_TEXT) return walk_text(run, value.text);
    if (value.kind == CHAT_DICT && !value.dict->is_namespace) return walk_dict(run, value.dict);
    if (value.kind == CHAT_LIST) {
        if (value.list->form != CHAT_IS_GENERATOR) return value.list;
        if (value.list->is_used) return &none;
        value.list->is_used = true;
        return value.list;
    }
    if (value.kind != CHAT_UNDEFINED)
        chat_fail(run, "'%s' object is not iterable", chat_type(value));
    return &none;
}

int64_t chat_length(ChatRun *run, ChatValue value) {
    if (value.kind == CHAT_UNDEFINED) return 0;
    if (value.kind == CHAT_TEXT) return chat_chars(value.text);
    if (value.kind == CHAT_DICT && !value.dict->is_namespace) return value.dict->n;
    if (value.kind == CHAT_LIST && value.list->form != CHAT_IS_GENERATOR) return value.list->n;
    chat_fail(run, "object of type '%s' has no len()", chat_type(value));
    return -1;
}
