/* methods_list.c — Python's methods of dicts and lists. */
#include "internal.h"

static ChatValue view(ChatRun *run, ChatCall *call, ChatForm form) {
    const ChatDict *dict = call->self.dict;
    ChatValue out = chat_list_new(run, form, dict->n);
    for (int64_t i = 0; i < dict->n && chat_spend(run, 1); i++) {
        const ChatEntry *entry = &dict->entry[i];
        ChatValue item = form == CHAT_IS_VALUES ? entry->value : entry->key;
        if (form == CHAT_IS_ITEMS) {
            item = chat_list_new(run, CHAT_IS_TUPLE, 2);
            chat_list_add(run, item, entry->key);
            chat_list_add(run, item, entry->value);
        }
        chat_list_add(run, out, item);
    }
    return out;
}
static ChatValue do_keys(ChatRun *run, ChatCall *call) {
    return view(run, call, CHAT_IS_KEYS);
}
static ChatValue do_values(ChatRun *run, ChatCall *call) {
    return view(run, call, CHAT_IS_VALUES);
}
static ChatValue do_items(ChatRun *run, ChatCall *call) {
    return view(run, call, CHAT_IS_ITEMS);
}

static ChatValue do_get(ChatRun *run, ChatCall *call) {
    const ChatEntry *entry = chat_dict_find(run, call->self.dict, call->arg[0]);
    if (entry) return entry->value;
    return call->arg[1].kind == CHAT_ABSENT ? chat_none() : call->arg[1];
}

static ChatValue copy_dict(ChatRun *run, ChatCall *call) {
    ChatValue out = chat_dict_new(run);
    const ChatDict *dict = call->self.dict;
    for (int64_t i = 0; i < dict->n && chat_spend(run, 1); i++)
        chat_dict_set(run, out.dict, dict->entry[i].key, dict->entry[i].value);
    return out;
}

static const ChatRow dicts[] = {
    {"copy", "", 0, copy_dict}, {"get", "key default", 1, do_get}, {"items", "", 0, do_items},
    {"keys", "", 0, do_keys},   {"values", "", 0, do_values},
};
const ChatTable chat_dict_methods = {.rows = dicts, .n = MX_COUNT(dicts)};

static ChatValue count_items(ChatRun *run, ChatCall *call) {
    const ChatList *list = call->self.list;
    int64_t n = 0;
    for (int64_t i = 0; i < list->n && !run->failed; i++)
        n += chat_equal(run, list->item[i], call->arg[0]);
    return chat_whole(n);
}

static ChatValue index_item(ChatRun *run, ChatCall *call) {
    const ChatList *list = call->self.list;
    for (int64_t i = 0; i < list->n && !run->failed; i++)
        if (chat_equal(run, list->item[i], call->arg[0])) return chat_whole(i);
    MxText shown = chat_builder(run);
    chat_repr(run, &shown, call->arg[0]);
    return chat_fail(run, "%s is not in list", shown.data);
}

static ChatValue copy_list(ChatRun *run, ChatCall *call) {
    return chat_call_row(run, chat_row(chat_filters, "list"), call);
}

static const ChatRow lists[] = {{"copy", "", 0, copy_list},
                                {"count", "value", 1, count_items},
                                {"index", "value", 1, index_item}};
const ChatTable chat_list_methods = {.rows = lists, .n = MX_COUNT(lists)};
