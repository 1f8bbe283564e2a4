/* filters_order.c — filters that compare items: sorting, groups, extremes; and members by name. */
#include "internal.h"

#include <stdlib.h>

/* ---- members by name */

/* A member as filters name it: "a.b.0", or any key. */
ChatValue chat_member(ChatRun *run, ChatValue of, ChatValue name) {
    if (name.kind != CHAT_TEXT) return chat_item(run, of, name);
    ChatText rest = name.text;
    while (!run->failed) {
        size_t dot = chat_find(rest, 0, CHAT_TEXT_OF(".")), n = dot == SIZE_MAX ? rest.n : dot;
        char *end, *part = mx_arena_strndup(run->arena, rest.data, n);
        long place = strtol(part, &end, 10);
        bool is_place = n && !*end && strspn(part, "0123456789") == n;
        of = chat_item(run, of, is_place ? chat_whole(place) : chat_text(part, n));
        if (dot == SIZE_MAX) break;
        rest = (ChatText){rest.data + dot + 1, rest.n - dot - 1};
    }
    return of;
}

ChatValue chat_member_or(ChatRun *run, ChatValue of, ChatValue name, ChatValue otherwise) {
    if (name.kind == CHAT_ABSENT || name.kind == CHAT_NONE) return of;
    ChatValue found = chat_member(run, of, name);
    return found.kind == CHAT_UNDEFINED && otherwise.kind != CHAT_ABSENT ? otherwise : found;
}

/* Without case, as filters compare texts unless they are told to. */
ChatValue chat_folded(ChatRun *run, ChatValue value, bool minds_case) {
    if (value.kind != CHAT_TEXT || minds_case) return value;
    MxText out = chat_builder(run);
    for (size_t at = 0; at < value.text.n && chat_spend(run, 1);)
        mx_char_add_case(&out, mx_char_next(value.text.data, &at), MX_CASE_LOWER);
    return chat_built(&out);
}

/* ---- order */

typedef struct Sorted {
    ChatValue key, value;
} Sorted;

/* A stable merge, which fails where two keys cannot be compared. */
static void merge(ChatRun *run, Sorted *from, Sorted *to, int64_t n, bool falls) {
    if (n < 2 || run->failed || !chat_spend(run, (size_t)n)) return;
    int64_t half = n / 2;
    merge(run, from, to, half, falls);
    merge(run, from + half, to + half, n - half, falls);
    for (int64_t i = 0, a = 0, b = half; i < n; i++) {
        bool takes_b = a == half;
        if (a < half && b < n && !run->failed) {
            int order = falls ? chat_order(run, from[a].key, from[b].key, "<")
                              : chat_order(run, from[b].key, from[a].key, "<");
            takes_b = order < 0;
        }
        to[i] = from[takes_b ? b++ : a++];
    }
    memcpy(from, to, (size_t)n * sizeof *from);
}

/* What list items are compared by. */
typedef struct Order {
    ChatValue names;     /* of members; absent = the items themselves */
    ChatValue otherwise; /* where an item lacks the member; absent = undefined */
    bool minds_case, falls;
    bool has_several; /* names have commas between, and keys are lists: equal ones need no order */
} Order;

static ChatValue key_of(ChatRun *run, ChatValue item, Order by) {
    return chat_folded(run, chat_member_or(run, item, by.names, by.otherwise), by.minds_case);
}

static ChatValue keys_of(ChatRun *run, ChatValue item, Order by) {
    ChatValue out = chat_list_new(run, CHAT_IS_TUPLE, 2), all = by.names;
    if (all.kind != CHAT_TEXT) chat_list_add(run, out, key_of(run, item, by));
    for (size_t at = 0; all.kind == CHAT_TEXT && at <= all.text.n && !run->failed;) {
        size_t comma = chat_find(all.text, at, CHAT_TEXT_OF(","));
        size_t end = comma == SIZE_MAX ? all.text.n : comma;
        by.names = chat_text(all.text.data + at, end - at);
        chat_list_add(run, out, key_of(run, item, by));
        at = end + 1;
    }
    return out;
}

static void sort_list(ChatRun *run, ChatList *list, const ChatValue *keys, bool falls) {
    Sorted *from = chat_alloc(run, (size_t)list->n + 1, sizeof *from);
    Sorted *to = chat_alloc(run, (size_t)list->n + 1, sizeof *to);
    if (!from || !to) return;
    for (int64_t i = 0; i < list->n; i++) from[i] = (Sorted){keys[i], list->item[i]};
    merge(run, from, to, list->n, falls);
    for (int64_t i = 0; i < list->n; i++) list->item[i] = from[i].value;
}

ChatValue chat_list_copy(ChatRun *run, ChatValue of) {
    const ChatList *list = chat_walk(run, of);
    ChatValue out = chat_list_new(run, CHAT_IS_LIST, list->n);
    for (int64_t i = 0; i < list->n && chat_spend(run, 1); i++)
        chat_list_add(run, out, list->item[i]);
    return out;
}

static ChatValue sorted_by(ChatRun *run, ChatValue of, Order by) {
    ChatValue out = chat_list_copy(run, of);
    ChatValue *keys = chat_alloc(run, (size_t)out.list->n + 1, sizeof *keys);
    for (int64_t i = 0; keys && i < out.list->n && !run->failed; i++)
        keys[i] = (by.has_several ? keys_of : key_of)(run, out.list->item[i], by);
    if (keys && !run->failed) sort_list(run, out.list, keys, by.falls);
    return out;
}

static const ChatValue absent = {.kind = CHAT_ABSENT};

static ChatValue do_sort(ChatRun *run, ChatCall *call) {
    Order by = {.names = call->arg[2],
                .otherwise = absent,
                .minds_case = chat_truth(call->arg[1]),
                .falls = chat_truth(call->arg[0]),
                .has_several = true};
    return sorted_by(run, call->self, by);
}

static ChatValue do_dictsort(ChatRun *run, ChatCall *call) {
    ChatText name = chat_argument_text(run, call->arg[1], CHAT_TEXT_OF("key"));
    bool by_value = name.n == 5;
    if (call->self.kind != CHAT_DICT)
        return chat_fail(run, "'%s' object has no attribute 'items'", chat_type(call->self));
    ChatValue pairs = chat_list_new(run, CHAT_IS_LIST, call->self.dict->n);
    for (int64_t i = 0; i < call->self.dict->n; i++) {
        ChatValue pair = chat_list_new(run, CHAT_IS_TUPLE, 2);
        chat_list_add(run, pair, call->self.dict->entry[i].key);
        chat_list_add(run, pair, call->self.dict->entry[i].value);
        chat_list_add(run, pairs, pair);
    }
    Order by = {.names = chat_whole(by_value),
                .otherwise = absent,
                .minds_case = chat_truth(call->arg[0]),
                .falls = chat_truth(call->arg[2])};
    return run->failed ? pairs : sorted_by(run, pairs, by);
}

static ChatValue extreme(ChatRun *run, ChatCall *call, int wanted) {
    const ChatList *list = chat_walk(run, call->self);
    Order by = {.names = call->arg[1], .otherwise = absent, .minds_case = chat_truth(call->arg[0])};
    ChatValue best = {.why = "No aggregated item, sequence was empty."}, best_key = {0};
    for (int64_t i = 0; i < list->n && !run->failed; i++) {
        ChatValue key = key_of(run, list->item[i], by);
        if (i && chat_order(run, key, best_key, wanted < 0 ? "<" : ">") * wanted <= 0) continue;
        best = list->item[i];
        best_key = key;
    }
    return best;
}
static ChatValue do_min(ChatRun *run, ChatCall *call) {
    return extreme(run, call, -1);
}
static ChatValue do_max(ChatRun *run, ChatCall *call) {
    return extreme(run, call, 1);
}

static ChatValue do_unique(ChatRun *run, ChatCall *call) {
    const ChatList *list = chat_walk(run, call->self);
    ChatValue seen = chat_dict_new(run), out = chat_list_new(run, CHAT_IS_GENERATOR, 0);
    Order by = {.names = call->arg[1], .otherwise = absent, .minds_case = chat_truth(call->arg[0])};
    for (int64_t i = 0; i < list->n && !run->failed; i++) {
        ChatValue key = key_of(run, list->item[i], by);
        if (run->failed || chat_dict_find(run, seen.dict, key)) continue;
        chat_dict_set(run, seen.dict, key, chat_none());
        chat_list_add(run, out, list->item[i]);
    }
    return out;
}

static ChatValue do_groupby(ChatRun *run, ChatCall *call) {
    Order by = {.names = call->arg[0],
                .otherwise = call->arg[1].kind == CHAT_NONE ? absent : call->arg[1],
                .minds_case = chat_truth(call->arg[2])};
    ChatValue all = sorted_by(run, call->self, by);
    ChatValue out = chat_list_new(run, CHAT_IS_LIST, 0), last = {0}, group = {0};
    for (int64_t i = 0; i < all.list->n && !run->failed; i++) {
        ChatValue item = all.list->item[i], key = key_of(run, item, by);
        if (!i || !chat_equal(run, last, key)) {
            ChatValue pair = chat_list_new(run, CHAT_IS_GROUP, 2);
            group = chat_list_new(run, CHAT_IS_LIST, 0);
            chat_list_add(run, pair, chat_member_or(run, item, by.names, by.otherwise));
            chat_list_add(run, pair, group);
            chat_list_add(run, out, pair);
            last = key;
        }
        chat_list_add(run, group, item);
    }
    return out;
}

static const ChatRow filters[] = {
    {"dictsort", "case_sensitive by reverse", 0, do_dictsort},
    {"groupby", "attribute default case_sensitive", 1, do_groupby},
    {"max", "case_sensitive attribute", 0, do_max},
    {"min", "case_sensitive attribute", 0, do_min},
    {"sort", "reverse case_sensitive attribute", 0, do_sort},
    {"unique", "case_sensitive attribute", 0, do_unique},
};
const ChatTable chat_filters_of_order = {filters, MX_COUNT(filters), &chat_filters_of_text};
