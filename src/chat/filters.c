/* filters.c — filters of lists and of any value; those that compare items are in filters_order.c,
 * of strings in filters_text.c, of numbers in filters_number.c. */
#include "internal.h"

#include <stdlib.h>

static bool was_given(ChatValue value) {
    return value.kind != CHAT_ABSENT;
}

static ChatValue generator(ChatRun *run) {
    return chat_list_new(run, CHAT_IS_GENERATOR, 0);
}

/* ---- choosing and changing items */

/* The rest of a call's arguments, for the filter or test that it names first. */
static ChatValue apply(ChatRun *run, const ChatRow *row, ChatValue self, const ChatCall *call,
                       int64_t from) {
    ChatCall inner = {.self = self, .named = call->named, .n_named = call->n_named};
    inner.at = call->at + from;
    inner.n = call->n - from;
    return chat_call_row(run, row, &inner);
}

static const ChatRow *named_row(ChatRun *run, ChatTable table, ChatValue name, const char *kind) {
    ChatText text = chat_string(run, name);
    const char *word = mx_arena_strndup(run->arena, text.data, text.n);
    const ChatRow *row = chat_row(table, word);
    if (!row) chat_fail(run, "No %s named '%s'.", kind, word);
    return row;
}

static ChatValue do_map(ChatRun *run, ChatCall *call) {
    const ChatRow *row = NULL;
    ChatValue attribute = {.kind = CHAT_ABSENT}, otherwise = attribute, out = generator(run);
    for (int64_t i = 0; i < call->n_named && !call->n; i++) {
        if (!strcmp(call->named[i].name, "attribute")) attribute = call->named[i].value;
        if (!strcmp(call->named[i].name, "default")) otherwise = call->named[i].value;
    }
    if (!chat_truth(call->self)) return out;
    if (!call->n && !was_given(attribute)) return chat_fail(run, "map requires a filter argument");
    if (call->n) row = named_row(run, chat_filters, call->at[0], "filter");
    const ChatList *list = chat_walk(run, call->self);
    for (int64_t i = 0; i < list->n && !run->failed; i++)
        chat_list_add(run, out,
                      row ? apply(run, row, list->item[i], call, 1)
                          : chat_member_or(run, list->item[i], attribute, otherwise));
    return out;
}

/* Items of which a test holds, or does not; with an attribute: of that member of theirs. */
static ChatValue choose(ChatRun *run, ChatCall *call, bool by_attribute, bool wanted) {
    int64_t at = by_attribute;
    ChatValue out = generator(run);
    if (!chat_truth(call->self)) return out;
    if (call->n < at) return chat_fail(run, "Missing parameter for attribute name");
    const ChatRow *row = call->n > at ? named_row(run, chat_tests, call->at[at], "test") : NULL;
    const ChatList *list = chat_walk(run, call->self);
    for (int64_t i = 0; i < list->n && !run->failed; i++) {
        ChatValue value =
            by_attribute ? chat_member(run, list->item[i], call->at[0]) : list->item[i];
        bool holds = chat_truth(row ? apply(run, row, value, call, at + 1) : value);
        if (holds == wanted) chat_list_add(run, out, list->item[i]);
    }
    return out;
}
static ChatValue do_select(ChatRun *run, ChatCall *call) {
    return choose(run, call, false, true);
}
static ChatValue do_reject(ChatRun *run, ChatCall *call) {
    return choose(run, call, false, false);
}
static ChatValue do_selectattr(ChatRun *run, ChatCall *call) {
    return choose(run, call, true, true);
}
static ChatValue do_rejectattr(ChatRun *run, ChatCall *call) {
    return choose(run, call, true, false);
}

static ChatValue do_batch(ChatRun *run, ChatCall *call) {
    const ChatList *list = chat_walk(run, call->self);
    int64_t size = chat_argument_index(run, call->arg[0], 1);
    ChatValue out = generator(run), part = {0};
    if (size < 1) return chat_fail(run, "batch wants a number above 0");
    for (int64_t i = 0; i < list->n && !run->failed; i++) {
        if (i % size == 0) {
            part = chat_list_new(run, CHAT_IS_LIST, 0);
            chat_list_add(run, out, part);
        }
        chat_list_add(run, part, list->item[i]);
    }
    if (was_given(call->arg[1]) && call->arg[1].kind != CHAT_NONE && list->n)
        while (part.list->n < size && chat_spend(run, 1)) chat_list_add(run, part, call->arg[1]);
    return out;
}

static ChatValue do_slice(ChatRun *run, ChatCall *call) {
    const ChatList *list = chat_walk(run, call->self);
    int64_t n = chat_argument_index(run, call->arg[0], 1), at = 0;
    ChatValue out = generator(run);
    if (n < 1) return chat_fail(run, "slice wants a number above 0");
    bool fills = was_given(call->arg[1]) && call->arg[1].kind != CHAT_NONE;
    for (int64_t i = 0; i < n && chat_spend(run, 1); i++) {
        ChatValue part = chat_list_new(run, CHAT_IS_LIST, 0);
        int64_t size = list->n / n + (i < list->n % n);
        for (int64_t k = 0; k < size; k++) chat_list_add(run, part, list->item[at++]);
        if (fills && i >= list->n % n && list->n % n) chat_list_add(run, part, call->arg[1]);
        chat_list_add(run, out, part);
    }
    return out;
}

static ChatValue do_reverse(ChatRun *run, ChatCall *call) {
    ChatValue step[3] = {{.kind = CHAT_ABSENT}, {.kind = CHAT_ABSENT}, chat_whole(-1)};
    if (call->self.kind == CHAT_TEXT) return chat_slice(run, call->self, step);
    const ChatList *list = chat_walk(run, call->self);
    ChatValue out = generator(run);
    for (int64_t i = list->n; i-- > 0 && chat_spend(run, 1);)
        chat_list_add(run, out, list->item[i]);
    return out;
}

/* ---- one value of many */

static ChatValue end_of(ChatRun *run, ChatCall *call, bool is_last) {
    const ChatList *list = chat_walk(run, call->self);
    if (list->n) return list->item[is_last ? list->n - 1 : 0];
    return chat_undefined(run, "No %s item, sequence was empty.", is_last ? "last" : "first");
}
static ChatValue do_first(ChatRun *run, ChatCall *call) {
    return end_of(run, call, false);
}
static ChatValue do_last(ChatRun *run, ChatCall *call) {
    return end_of(run, call, true);
}

static ChatValue do_join(ChatRun *run, ChatCall *call) {
    ChatText between = chat_argument_text(run, call->arg[0], CHAT_TEXT_OF(""));
    const ChatList *list = chat_walk(run, call->self);
    MxText out = chat_builder(run);
    for (int64_t i = 0; i < list->n && chat_spend(run, 1); i++) {
        if (i) chat_add(run, &out, between.data, between.n);
        chat_show(
            run, &out,
            chat_member_or(run, list->item[i], call->arg[1], (ChatValue){.kind = CHAT_ABSENT}));
    }
    return chat_built(&out);
}

static ChatValue do_sum(ChatRun *run, ChatCall *call) {
    ChatValue sum = was_given(call->arg[1]) ? call->arg[1] : chat_whole(0);
    const ChatList *list = chat_walk(run, call->self);
    for (int64_t i = 0; i < list->n && !run->failed; i++)
        sum = chat_operate(
            run, CHAT_ADD, sum,
            chat_member_or(run, list->item[i], call->arg[0], (ChatValue){.kind = CHAT_ABSENT}));
    return sum;
}

static ChatValue do_length(ChatRun *run, ChatCall *call) {
    return chat_whole(chat_length(run, call->self));
}
static ChatValue do_list(ChatRun *run, ChatCall *call) {
    return chat_list_copy(run, call->self);
}

static ChatValue do_items(ChatRun *run, ChatCall *call) {
    ChatValue out = generator(run);
    if (call->self.kind == CHAT_UNDEFINED) return out;
    if (call->self.kind != CHAT_DICT)
        return chat_fail(run, "Can only get item pairs from a mapping.");
    for (int64_t i = 0; i < call->self.dict->n && chat_spend(run, 1); i++) {
        ChatValue pair = chat_list_new(run, CHAT_IS_TUPLE, 2);
        chat_list_add(run, pair, call->self.dict->entry[i].key);
        chat_list_add(run, pair, call->self.dict->entry[i].value);
        chat_list_add(run, out, pair);
    }
    return out;
}

static ChatValue do_attr(ChatRun *run, ChatCall *call) {
    ChatText name = chat_string(run, call->arg[0]);
    const char *word = mx_arena_strndup(run->arena, name.data, name.n);
    bool is_dict = call->self.kind == CHAT_DICT && !call->self.dict->is_namespace;
    if (!is_dict || chat_row(chat_dict_methods, word)) return chat_attribute(run, call->self, word);
    return chat_undefined(run, "'dict object' has no attribute '%s'", word); /* keys are none */
}

static ChatValue do_default(ChatRun *run, ChatCall *call) {
    bool is_missing =
        call->self.kind == CHAT_UNDEFINED || (chat_truth(call->arg[1]) && !chat_truth(call->self));
    (void)run;
    if (!is_missing) return call->self;
    return was_given(call->arg[0]) ? call->arg[0] : chat_text("", 0);
}

static const ChatRow filters[] = {
    {"attr", "name", 1, do_attr},
    {"batch", "linecount fill_with", 1, do_batch},
    {"count", "", 0, do_length},
    {"d", "default_value boolean", 0, do_default},
    {"default", "default_value boolean", 0, do_default},
    {"first", "", 0, do_first},
    {"items", "", 0, do_items},
    {"join", "d attribute", 0, do_join},
    {"last", "", 0, do_last},
    {"length", "", 0, do_length},
    {"list", "", 0, do_list},
    {"map", NULL, 0, do_map},
    {"reject", NULL, 0, do_reject},
    {"rejectattr", NULL, 0, do_rejectattr},
    {"reverse", "", 0, do_reverse},
    {"select", NULL, 0, do_select},
    {"selectattr", NULL, 0, do_selectattr},
    {"slice", "slices fill_with", 1, do_slice},
    {"sum", "attribute start", 0, do_sum},
};
const ChatTable chat_filters = {filters, MX_COUNT(filters), &chat_filters_of_order};
