/* call.c — calls: binding arguments to parameters, rows of tables, macros; and the functions that
 * every template has. */
#include "internal.h"

#include <stdlib.h>
#include <time.h>

const ChatRow *chat_row(ChatTable table, const char *name) {
    for (const ChatTable *part = &table; part; part = part->more)
        for (int i = 0; i < part->n; i++)
            if (!strcmp(part->rows[i].name, name)) return &part->rows[i];
    return NULL;
}

ChatValue chat_function(ChatRun *run, const ChatRow *row, ChatValue self) {
    ChatFunction *function = mx_new(run->arena, ChatFunction);
    *function = (ChatFunction){.name = row->name, .row = row, .self = self};
    return (ChatValue){.kind = CHAT_FUNCTION, .function = function};
}

/* ---- arguments */

static void pass_one(ChatRun *run, ChatValue value, ChatCall *call) {
    ChatValue *more = chat_alloc(run, (size_t)call->n + 1, sizeof *more);
    if (!more) return;
    if (call->n) memcpy(more, call->at, (size_t)call->n * sizeof *more);
    more[call->n++] = value;
    call->at = more;
}

static void pass_named(ChatRun *run, const char *name, ChatValue value, ChatCall *call) {
    ChatNamed *more = chat_alloc(run, (size_t)call->n_named + 1, sizeof *more);
    if (!more) return;
    if (call->n_named) memcpy(more, call->named, (size_t)call->n_named * sizeof *more);
    more[call->n_named++] = (ChatNamed){name, value};
    call->named = more;
}

static void pass_spread(ChatRun *run, ChatValue value, ChatPass pass, ChatCall *call) {
    if (pass == CHAT_SPREAD) {
        const ChatList *list = chat_walk(run, value);
        for (int64_t i = 0; i < list->n && chat_spend(run, (size_t)list->n); i++)
            pass_one(run, list->item[i], call);
        return;
    }
    if (value.kind != CHAT_DICT) {
        chat_fail(run, "argument after ** must be a mapping, not %s", chat_type(value));
        return;
    }
    for (int64_t i = 0; i < value.dict->n && chat_spend(run, (size_t)value.dict->n); i++) {
        const ChatEntry *entry = &value.dict->entry[i];
        if (entry->key.kind != CHAT_TEXT) {
            chat_fail(run, "keywords must be strings");
            return;
        }
        pass_named(run, mx_arena_strndup(run->arena, entry->key.text.data, entry->key.text.n),
                   entry->value, call);
    }
}

void chat_pass(ChatRun *run, const ChatNode *first, ChatCall *call) {
    for (const ChatNode *node = first; node && !run->failed; node = node->next) {
        ChatValue value = chat_eval(run, node->a);
        if (run->failed) return;
        if (node->pass == CHAT_PLAIN)
            pass_one(run, value, call);
        else if (node->pass == CHAT_NAMED)
            pass_named(run, node->name, value, call);
        else
            pass_spread(run, value, node->pass, call);
    }
}

/* Which of a row's parameters has this name, -1 = none; n receives how many it has. */
static int parameter(const ChatRow *row, const char *name, int *n) {
    int found = -1;
    *n = 0;
    for (const char *word = row->params; *word; ++*n) {
        size_t bytes = strcspn(word, " ");
        if (name && strlen(name) == bytes && !memcmp(word, name, bytes)) found = *n;
        word += bytes + strspn(word + bytes, " ");
    }
    return found;
}

static bool bind(ChatRun *run, const ChatRow *row, ChatCall *call) {
    int n;
    parameter(row, NULL, &n);
    MX_ASSERT(n <= CHAT_MOST_PARAMS);
    for (int i = 0; i < CHAT_MOST_PARAMS; i++) call->arg[i] = (ChatValue){.kind = CHAT_ABSENT};
    if (call->n > n) {
        chat_fail(run, "%s takes at most %d arguments, found %lld", row->name, n,
                  (long long)call->n);
        return false;
    }
    for (int64_t i = 0; i < call->n; i++) call->arg[i] = call->at[i];
    for (int64_t i = 0; i < call->n_named; i++) {
        int at = parameter(row, call->named[i].name, &n);
        if (at < 0 || call->arg[at].kind != CHAT_ABSENT) {
            chat_fail(run, "%s got an unexpected keyword argument '%s'", row->name,
                      call->named[i].name);
            return false;
        }
        call->arg[at] = call->named[i].value;
    }
    for (int i = 0; i < row->needed; i++)
        if (call->arg[i].kind == CHAT_ABSENT) {
            chat_fail(run, "%s wants %d arguments, found %lld", row->name, row->needed,
                      (long long)(call->n + call->n_named));
            return false;
        }
    return true;
}

ChatValue chat_call_row(ChatRun *run, const ChatRow *row, ChatCall *call) {
    if (run->failed || !chat_spend(run, 1)) return (ChatValue){0};
    if (row->params && !bind(run, row, call)) return (ChatValue){0};
    return row->call(run, call);
}

const char *chat_row_kind(const ChatNode *node) {
    return node->kind == CHAT_TEST_NODE ? "test" : "filter";
}

ChatValue chat_call_node(ChatRun *run, const ChatNode *node, ChatCall *call) {
    if (node->row || run->failed) return chat_call_row(run, node->row, call);
    return chat_fail(run, "No %s named '%s' found.", chat_row_kind(node), node->name);
}

ChatValue chat_call(ChatRun *run, ChatValue callee, ChatCall *call) {
    if (!chat_use(run, callee)) return callee;
    if (callee.kind == CHAT_LOOP) return chat_call_loop(run, callee.loop, call);
    if (callee.kind != CHAT_FUNCTION)
        return chat_fail(run, "'%s' object is not callable", chat_type(callee));
    if (!callee.function->row) return chat_call_macro(run, callee.function, call);
    call->self = callee.function->self;
    call->function = callee.function;
    return chat_call_row(run, callee.function->row, call);
}

/* ---- functions of every template */

static ChatValue call_range(ChatRun *run, ChatCall *call) {
    enum { LONGEST = 100000 }; /* the sandbox's */
    int64_t bound[3] = {0, 0, 1};
    for (int i = 0; i < 3; i++) {
        if (call->arg[i].kind == CHAT_ABSENT) continue;
        if (!chat_use(run, call->arg[i])) return (ChatValue){0};
        if (!chat_index(call->arg[i], &bound[i]))
            return chat_fail(run, "'%s' object cannot be interpreted as an integer",
                             chat_type(call->arg[i]));
    }
    bool has_start = call->arg[1].kind != CHAT_ABSENT;
    int64_t start = has_start ? bound[0] : 0, stop = has_start ? bound[1] : bound[0];
    int64_t step = bound[2];
    if (!step) return chat_fail(run, "range() arg 3 must not be zero");
    int64_t span = step > 0 ? stop - start : start - stop, by = step > 0 ? step : -step;
    int64_t n = span > 0 ? (span - 1) / by + 1 : 0;
    if (n > LONGEST)
        return chat_fail(run, "Range too big. The sandbox blocks ranges larger than MAX_RANGE "
                              "(100000).");
    ChatValue out = chat_list_new(run, CHAT_IS_RANGE, n);
    out.list->from = start;
    out.list->to = stop;
    out.list->step = step;
    for (int64_t i = 0; i < n && chat_spend(run, 1); i++)
        chat_list_add(run, out, chat_whole(start + i * step));
    return out;
}

/* dict(MAPPING or PAIRS, NAME=VALUE …), namespace(…): the same. */
static ChatValue make_dict(ChatRun *run, ChatCall *call) {
    ChatValue out = chat_dict_new(run);
    if (call->n > 1)
        return chat_fail(run, "dict expected at most 1 argument, got %d", (int)call->n);
    if (call->n && call->at[0].kind == CHAT_DICT) {
        const ChatDict *from = call->at[0].dict;
        for (int64_t i = 0; i < from->n && chat_spend(run, 1); i++)
            chat_dict_set(run, out.dict, from->entry[i].key, from->entry[i].value);
    } else if (call->n) {
        const ChatList *pairs = chat_walk(run, call->at[0]);
        for (int64_t i = 0; i < pairs->n && !run->failed; i++) {
            const ChatList *pair = chat_walk(run, pairs->item[i]);
            if (!run->failed && pair->n != 2)
                chat_fail(run,
                          "dictionary update sequence element #%lld has length %lld; 2 is "
                          "required",
                          (long long)i, (long long)pair->n);
            if (!run->failed) chat_dict_set(run, out.dict, pair->item[0], pair->item[1]);
        }
    }
    for (int64_t i = 0; i < call->n_named && !run->failed; i++) {
        const ChatNamed *named = &call->named[i];
        chat_dict_set(run, out.dict, chat_text(named->name, strlen(named->name)), named->value);
    }
    return out;
}

static ChatValue call_namespace(ChatRun *run, ChatCall *call) {
    ChatValue out = make_dict(run, call);
    if (!run->failed) out.dict->is_namespace = true;
    return out;
}

static ChatValue call_raise(ChatRun *run, ChatCall *call) {
    ChatText text = chat_string(run, call->arg[0]);
    return chat_fail(run, "%.*s", (int)text.n, text.data);
}

static ChatValue call_lipsum(ChatRun *run, ChatCall *call) {
    (void)call;
    return chat_fail(run, "lipsum() makes random text, which no chat wants");
}

/* The time that SOURCE_DATE_EPOCH tells, else the clock's. */
static bool now(ChatRun *run, struct tm *out) {
    const char *fixed = getenv("SOURCE_DATE_EPOCH");
    char *end = NULL;
    time_t seconds = fixed ? (time_t)strtoll(fixed, &end, 10) : time(NULL);
    if (fixed && (*end || end == fixed)) {
        chat_fail(run, "SOURCE_DATE_EPOCH=\"%s\" is no number of seconds", fixed);
        return false;
    }
    return fixed ? gmtime_r(&seconds, out) != NULL : localtime_r(&seconds, out) != NULL;
}

/* A time without a zone, as Python's datetime.now(): %z and %Z are empty. */
static ChatValue call_now(ChatRun *run, ChatCall *call) {
    enum { LONGEST = 1024 };
    struct tm time_of_day = {0};
    char out[LONGEST];
    MxText format = chat_builder(run);
    if (call->arg[0].kind != CHAT_TEXT)
        return chat_fail(run, "strftime_now wants a text, found %s", chat_type(call->arg[0]));
    ChatText text = call->arg[0].text;
    if (!now(run, &time_of_day)) return (ChatValue){0};
    for (size_t i = 0; i < text.n; i++) {
        bool is_mark = text.data[i] == '%' && i + 1 < text.n;
        char letter = is_mark ? text.data[++i] : '\0';
        if (letter == 'f')
            chat_add(run, &format, "000000", 6);
        else if (letter != 'z' && letter != 'Z')
            chat_add(run, &format, text.data + i - is_mark, 1 + is_mark);
    }
    chat_add(run, &format, ".", 1); /* so that an empty result is told from one that is too long */
    size_t n = strftime(out, sizeof out, format.data, &time_of_day);
    if (!n) return chat_fail(run, "strftime_now makes more than %d bytes", LONGEST);
    return chat_text(mx_arena_strndup(run->arena, out, n - 1), n - 1);
}

/* ---- objects that move on */

static ChatValue cycle(ChatRun *run, ChatCall *call, int64_t i) {
    if (!call->n) return chat_fail(run, "no items for cycling given");
    return call->at[i % call->n];
}

/* A cycler and a joiner are namespaces with a place; {key} → what they go through. */
static ChatValue step_cycler(ChatRun *run, ChatCall *call) {
    ChatDict *state = call->self.dict;
    ChatList *items = chat_dict_named(state, "items")->value.list;
    ChatValue *at = &chat_dict_named(state, "at")->value;
    ChatValue current = items->item[at->whole];
    if (strcmp(call->function->name, "next"))
        at->whole = 0, current = chat_none();
    else
        at->whole = (at->whole + 1) % items->n;
    chat_dict_named(state, "current")->value = items->item[at->whole];
    (void)run;
    return current;
}

static const ChatRow cycler_rows[] = {{"next", "", 0, step_cycler}, {"reset", "", 0, step_cycler}};

static ChatValue call_cycler(ChatRun *run, ChatCall *call) {
    if (!call->n) return chat_fail(run, "at least one item has to be provided");
    ChatValue out = chat_dict_new(run), items = chat_list_new(run, CHAT_IS_LIST, call->n);
    for (int64_t i = 0; i < call->n; i++) chat_list_add(run, items, call->at[i]);
    if (run->failed) return out;
    out.dict->is_namespace = true;
    for (int i = 0; i < MX_COUNT(cycler_rows); i++) {
        const char *name = cycler_rows[i].name;
        chat_dict_set(run, out.dict, chat_text(name, strlen(name)),
                      chat_function(run, &cycler_rows[i], out));
    }
    chat_dict_set(run, out.dict, chat_text("items", 5), items);
    chat_dict_set(run, out.dict, chat_text("at", 2), chat_whole(0));
    chat_dict_set(run, out.dict, chat_text("current", 7), call->at[0]);
    return out;
}

static ChatValue step_joiner(ChatRun *run, ChatCall *call) {
    ChatList *state = call->self.list;
    (void)run;
    if (state->is_used) return state->item[0];
    state->is_used = true;
    return chat_text("", 0);
}

static const ChatRow joiner_row = {"joiner", "", 0, step_joiner};

static ChatValue call_joiner(ChatRun *run, ChatCall *call) {
    ChatValue state = chat_list_new(run, CHAT_IS_LIST, 1);
    chat_list_add(run, state, call->arg[0].kind == CHAT_ABSENT ? chat_text(", ", 2) : call->arg[0]);
    return chat_function(run, &joiner_row, state);
}

static const ChatRow globals[] = {
    {"range", "start stop step", 1, call_range}, {"dict", NULL, 0, make_dict},
    {"namespace", NULL, 0, call_namespace},      {"raise_exception", "message", 1, call_raise},
    {"strftime_now", "format", 1, call_now},     {"cycler", NULL, 0, call_cycler},
    {"joiner", "sep", 0, call_joiner},           {"lipsum", NULL, 0, call_lipsum},
};
const ChatTable chat_globals = {.rows = globals, .n = MX_COUNT(globals)};

/* ---- what loops have */

static ChatValue loop_cycle(ChatRun *run, ChatCall *call) {
    return cycle(run, call, call->self.loop->i);
}

static ChatValue loop_changed(ChatRun *run, ChatCall *call) {
    ChatLoop *loop = call->self.loop;
    ChatValue values = chat_list_new(run, CHAT_IS_TUPLE, call->n);
    for (int64_t i = 0; i < call->n; i++) chat_list_add(run, values, call->at[i]);
    bool changed = loop->changed.kind == CHAT_ABSENT || !chat_equal(run, loop->changed, values);
    loop->changed = values;
    return chat_bool(changed);
}

static const ChatRow loops[] = {{"cycle", NULL, 0, loop_cycle}, {"changed", NULL, 0, loop_changed}};
const ChatTable chat_loop_methods = {.rows = loops, .n = MX_COUNT(loops)};
