/* eval.c — evaluates expressions. A table has a function for each kind of node. */
#include "internal.h"

bool chat_use(ChatRun *run, ChatValue value) {
    if (value.kind == CHAT_UNDEFINED) chat_fail(run, "%s", value.why ? value.why : "is undefined");
    return value.kind != CHAT_UNDEFINED && !run->failed;
}

/* ---- members */

/* What Python calls the type of an object that lacks something. */
static const char *object_type(ChatRun *run, ChatValue of) {
    if (of.kind == CHAT_NONE) return "None";
    if (of.kind == CHAT_DICT && of.dict->is_namespace) return "jinja2.utils.Namespace object";
    if (of.kind == CHAT_LOOP) return "jinja2.runtime.LoopContext object";
    return mx_arena_printf(run->arena, "%s object", chat_type(of));
}

static ChatValue lacks(ChatRun *run, ChatValue of, ChatValue key) {
    if (key.kind == CHAT_TEXT)
        return chat_undefined(run, "'%s' has no attribute %s", object_type(run, of),
                              chat_quoted(run->arena, key.text));
    MxText shown = chat_builder(run);
    chat_repr(run, &shown, key);
    return chat_undefined(run, "%s has no element %s", object_type(run, of), shown.data);
}

/* Methods that change what they belong to: the sandbox keeps them from templates. */
static bool is_unsafe(ChatValue of, const char *name) {
    static const char *const lists[] = {"append", "clear",  "extend",  "insert",
                                        "pop",    "remove", "reverse", "sort"};
    static const char *const dicts[] = {"clear", "pop", "popitem", "setdefault", "update"};
    bool is_list = of.kind == CHAT_LIST && of.list->form == CHAT_IS_LIST;
    bool is_dict = of.kind == CHAT_DICT && !of.dict->is_namespace;
    for (int i = 0; is_list && i < MX_COUNT(lists); i++)
        if (!strcmp(lists[i], name)) return true;
    for (int i = 0; is_dict && i < MX_COUNT(dicts); i++)
        if (!strcmp(dicts[i], name)) return true;
    return false;
}

static const ChatTable *methods_of(ChatValue of) {
    if (of.kind == CHAT_TEXT) return &chat_text_methods;
    if (of.kind == CHAT_DICT && !of.dict->is_namespace) return &chat_dict_methods;
    if (of.kind == CHAT_LIST && of.list->form <= CHAT_IS_RANGE) return &chat_list_methods;
    return NULL;
}

static ChatValue loop_member(ChatRun *run, ChatValue of, const char *name) {
    const ChatLoop *loop = of.loop;
    const ChatList *list = loop->list;
    const struct {
        const char *name;
        int64_t value;
    } numbers[] = {{"index", loop->i + 1},
                   {"index0", loop->i},
                   {"revindex", list->n - loop->i},
                   {"revindex0", list->n - loop->i - 1},
                   {"length", list->n},
                   {"depth", loop->depth},
                   {"depth0", loop->depth - 1}};
    for (int i = 0; i < MX_COUNT(numbers); i++)
        if (!strcmp(numbers[i].name, name)) return chat_whole(numbers[i].value);
    if (!strcmp(name, "first")) return chat_bool(loop->i == 0);
    if (!strcmp(name, "last")) return chat_bool(loop->i == list->n - 1);
    if (!strcmp(name, "previtem"))
        return loop->i ? list->item[loop->i - 1] : chat_undefined(run, "there is no previous item");
    if (!strcmp(name, "nextitem"))
        return loop->i + 1 < list->n ? list->item[loop->i + 1]
                                     : chat_undefined(run, "there is no next item");
    const ChatRow *row = chat_row(chat_loop_methods, name);
    return row ? chat_function(run, row, of) : lacks(run, of, chat_text(name, strlen(name)));
}

ChatValue chat_attribute(ChatRun *run, ChatValue of, const char *name) {
    ChatValue key = chat_text(name, strlen(name));
    if (!chat_use(run, of)) return of;
    if (of.kind == CHAT_LOOP) return loop_member(run, of, name);
    if (of.kind == CHAT_LIST && of.list->form == CHAT_IS_GROUP) {
        if (!strcmp(name, "grouper")) return of.list->item[0];
        if (!strcmp(name, "list")) return of.list->item[1];
    }
    if (is_unsafe(of, name))
        return chat_undefined(run, "access to attribute '%s' of '%s' object is unsafe.", name,
                              chat_type(of));
    const ChatTable *methods = methods_of(of);
    const ChatRow *row = methods ? chat_row(*methods, name) : NULL;
    if (row) return chat_function(run, row, of);
    const ChatEntry *entry = of.kind == CHAT_DICT ? chat_dict_find(run, of.dict, key) : NULL;
    return entry ? entry->value : lacks(run, of, key);
}

static ChatValue item_at(ChatRun *run, ChatValue of, int64_t i) {
    int64_t n = chat_length(run, of);
    if (i < 0) i += n;
    if (i < 0 || i >= n || run->failed) return (ChatValue){.kind = CHAT_ABSENT};
    if (of.kind == CHAT_LIST) return of.list->item[i];
    size_t at = chat_char_at(of.text, i), end = at;
    chat_spend(run, of.text.n / 64);
    mx_char_next(of.text.data, &end);
    return chat_text(of.text.data + at, end - at);
}

ChatValue chat_item(ChatRun *run, ChatValue of, ChatValue key) {
    int64_t i;
    ChatValue found = {.kind = CHAT_ABSENT};
    if (!chat_use(run, of)) return of;
    bool has_places =
        of.kind == CHAT_TEXT || (of.kind == CHAT_LIST && of.list->form <= CHAT_IS_RANGE);
    if (of.kind == CHAT_DICT && !of.dict->is_namespace) {
        const ChatEntry *entry = chat_dict_find(run, of.dict, key);
        if (entry) return entry->value;
    } else if (has_places && chat_index(key, &i)) {
        found = item_at(run, of, i);
    }
    if (found.kind != CHAT_ABSENT) return found;
    if (key.kind != CHAT_TEXT) return lacks(run, of, key);
    return chat_attribute(run, of, mx_arena_strndup(run->arena, key.text.data, key.text.n));
}

/* ---- slices */

/* A bound as Python takes it: left out, or brought into the range; false after a failure. */
static bool read_bound(ChatRun *run, ChatValue bound, int64_t n, int64_t out[2]) {
    int64_t i;
    if (bound.kind == CHAT_ABSENT || bound.kind == CHAT_NONE) return true;
    if (!chat_use(run, bound)) return false;
    if (!chat_index(bound, &i)) {
        chat_fail(run, "slice indices must be integers or None or have an __index__ method");
        return false;
    }
    if (i < 0) i += n;
    out[0] = i < out[1] ? out[1] : i > n + out[1] ? n + out[1] : i;
    return true;
}

static void add_part(ChatRun *run, ChatValue of, size_t at, ChatValue list, MxText *text) {
    if (of.kind == CHAT_LIST) {
        chat_list_add(run, list, of.list->item[at]);
        return;
    }
    size_t end = at;
    mx_char_next(of.text.data, &end);
    chat_add(run, text, of.text.data + at, end - at);
}

/* Where each character begins. */
static size_t *places(ChatRun *run, ChatText text, int64_t n) {
    size_t *place = chat_alloc(run, (size_t)n + 1, sizeof *place), at = 0;
    for (int64_t i = 0; place && i < n; i++) {
        place[i] = at;
        mx_char_next(text.data, &at);
    }
    return place;
}

static bool has_slices(ChatValue of) {
    return of.kind == CHAT_TEXT || (of.kind == CHAT_LIST && of.list->form <= CHAT_IS_RANGE);
}

ChatValue chat_slice(ChatRun *run, ChatValue of, const ChatValue bound[3]) {
    if (!chat_use(run, of)) return of;
    bool is_list = of.kind == CHAT_LIST;
    if (!has_slices(of)) return chat_undefined(run, "%s has no slices", object_type(run, of));
    int64_t n = chat_length(run, of), step[] = {1, -INT64_MAX};
    if (!read_bound(run, bound[2], 0, (int64_t[]){0, 0})) return (ChatValue){0};
    if (bound[2].kind != CHAT_ABSENT && bound[2].kind != CHAT_NONE) chat_index(bound[2], &step[0]);
    if (!step[0]) return chat_fail(run, "slice step cannot be zero");
    int64_t lowest = step[0] < 0 ? -1 : 0;
    int64_t low[] = {step[0] < 0 ? n - 1 : 0, lowest}, high[] = {step[0] < 0 ? -1 : n, lowest};
    if (!read_bound(run, bound[0], n, low) || !read_bound(run, bound[1], n, high))
        return (ChatValue){0};
    MxText text = chat_builder(run);
    ChatValue list = chat_list_new(run, is_list ? of.list->form : CHAT_IS_LIST, 0);
    const size_t *place = is_list ? NULL : places(run, of.text, n);
    if (!chat_spend(run, is_list ? 1 : of.text.n / 64)) return (ChatValue){0};
    if (step[0] == 1 && place) {
        size_t from = low[0] < n ? place[low[0]] : of.text.n;
        size_t to = high[0] < n ? place[high[0]] : of.text.n;
        return chat_text(of.text.data + from, to > from ? to - from : 0);
    }
    for (int64_t i = low[0]; step[0] < 0 ? i > high[0] : i < high[0];) {
        if (!chat_spend(run, 1)) break;
        add_part(run, of, place ? place[i] : (size_t)i, list, &text);
        if (step[0] > 0 ? i > INT64_MAX - step[0] : i < INT64_MIN - step[0]) break;
        i += step[0];
    }
    if (is_list && list.list->form == CHAT_IS_RANGE) {
        const ChatList *whole = of.list;
        bool fits = !__builtin_mul_overflow(whole->step, low[0], &list.list->from) &&
                    !__builtin_add_overflow(whole->from, list.list->from, &list.list->from) &&
                    !__builtin_mul_overflow(whole->step, high[0], &list.list->to) &&
                    !__builtin_add_overflow(whole->from, list.list->to, &list.list->to) &&
                    !__builtin_mul_overflow(whole->step, step[0], &list.list->step);
        if (!fits) return chat_fail(run, "a whole number has more than 127 bits");
    }
    return is_list ? list : chat_built(&text);
}

/* ---- nodes */

static ChatValue eval_constant(ChatRun *run, const ChatNode *node) {
    (void)run;
    return node->value;
}

static ChatValue eval_name(ChatRun *run, const ChatNode *node) {
    for (const ChatScope *scope = run->scope; scope; scope = scope->parent)
        for (int64_t i = 0; i < scope->n; i++)
            if (!strcmp(scope->item[i].name, node->name)) return scope->item[i].value;
    return chat_undefined(run, "'%s' is undefined", node->name);
}

static ChatValue eval_items(ChatRun *run, const ChatNode *node, ChatForm form) {
    ChatValue out = chat_list_new(run, form, 0);
    for (const ChatNode *item = node->first; item && !run->failed; item = item->next)
        chat_list_add(run, out, chat_eval(run, item));
    return out;
}
static ChatValue eval_list(ChatRun *run, const ChatNode *node) {
    return eval_items(run, node, CHAT_IS_LIST);
}
static ChatValue eval_tuple(ChatRun *run, const ChatNode *node) {
    return eval_items(run, node, CHAT_IS_TUPLE);
}

/* first: pairs of key `a` and value `b`. */
static ChatValue eval_dict(ChatRun *run, const ChatNode *node) {
    ChatValue out = chat_dict_new(run);
    for (const ChatNode *pair = node->first; pair && !run->failed; pair = pair->next) {
        ChatValue key = chat_eval(run, pair->a), value = chat_eval(run, pair->b);
        if (!run->failed) chat_dict_set(run, out.dict, key, value);
    }
    return out;
}

static ChatValue eval_attribute(ChatRun *run, const ChatNode *node) {
    return chat_attribute(run, chat_eval(run, node->a), node->name);
}

static ChatValue eval_item(ChatRun *run, const ChatNode *node) {
    ChatValue of = chat_eval(run, node->a), key = chat_eval(run, node->b);
    return run->failed ? of : chat_item(run, of, key);
}

/* Jinja computes these ahead, where what has no slices is undefined and no error. */
static bool is_literal(const ChatNode *node) {
    return node->kind == CHAT_CONST_NODE || node->kind == CHAT_DICT_NODE;
}

/* b: the bounds a, b and c, each NULL where it is left out. */
static ChatValue eval_slice(ChatRun *run, const ChatNode *node) {
    const ChatNode *const bounds[] = {node->b->a, node->b->b, node->b->c};
    ChatValue of = chat_eval(run, node->a), bound[3];
    for (int i = 0; i < 3; i++)
        bound[i] = bounds[i] ? chat_eval(run, bounds[i]) : (ChatValue){.kind = CHAT_ABSENT};
    if (run->failed || is_literal(node->a) || !chat_use(run, of) || has_slices(of))
        return run->failed ? of : chat_slice(run, of, bound);
    return of.kind == CHAT_DICT ? chat_fail(run, "unhashable type: 'slice'")
                                : chat_fail(run, "'%s' object is not subscriptable", chat_type(of));
}

static ChatValue eval_call(ChatRun *run, const ChatNode *node) {
    ChatCall call = {0};
    ChatValue callee = chat_eval(run, node->a);
    chat_pass(run, node->first, &call);
    run->line = node->line;
    return run->failed ? callee : chat_call(run, callee, &call);
}

/* a: what is filtered; it is NULL in {% filter %} alone (exec.c). */
static ChatValue eval_filter(ChatRun *run, const ChatNode *node) {
    ChatCall call = {.self = chat_eval(run, node->a)};
    chat_pass(run, node->first, &call);
    run->line = node->line;
    return chat_call_node(run, node, &call);
}

static ChatValue eval_test(ChatRun *run, const ChatNode *node) {
    ChatCall call = {.self = chat_eval(run, node->a)};
    chat_pass(run, node->first, &call);
    run->line = node->line;
    bool holds = chat_truth(chat_call_node(run, node, &call));
    return chat_bool(holds != node->flag);
}

static ChatValue eval_not(ChatRun *run, const ChatNode *node) {
    return chat_bool(!chat_truth(chat_eval(run, node->a)));
}

static ChatValue sign(ChatRun *run, const ChatNode *node, bool negates) {
    ChatValue value = chat_eval(run, node->a);
    if (!chat_use(run, value)) return value;
    if (value.kind == CHAT_BOOL) value = chat_whole(value.truth);
    if (value.kind == CHAT_WHOLE) return chat_whole(negates ? -value.whole : value.whole);
    if (value.kind == CHAT_REAL) return chat_real(negates ? -value.real : value.real);
    return chat_fail(run, "bad operand type for unary %c: '%s'", negates ? '-' : '+',
                     chat_type(value));
}
static ChatValue eval_negative(ChatRun *run, const ChatNode *node) {
    return sign(run, node, true);
}
static ChatValue eval_positive(ChatRun *run, const ChatNode *node) {
    return sign(run, node, false);
}

static ChatValue eval_and(ChatRun *run, const ChatNode *node) {
    ChatValue value = chat_eval(run, node->a);
    return chat_truth(value) ? chat_eval(run, node->b) : value;
}
static ChatValue eval_or(ChatRun *run, const ChatNode *node) {
    ChatValue value = chat_eval(run, node->a);
    return chat_truth(value) ? value : chat_eval(run, node->b);
}

static ChatValue eval_binary(ChatRun *run, const ChatNode *node) {
    ChatValue a = chat_eval(run, node->a), b = chat_eval(run, node->b);
    run->line = node->line;
    return run->failed ? a : chat_operate(run, node->op, a, b);
}

static ChatValue eval_concat(ChatRun *run, const ChatNode *node) {
    MxText out = chat_builder(run);
    for (const ChatNode *part = node->first; part && !run->failed; part = part->next)
        chat_show(run, &out, chat_eval(run, part));
    return chat_built(&out);
}

/* first: operators with what stands on their right, which each compares with the one before. */
static ChatValue eval_compare(ChatRun *run, const ChatNode *node) {
    ChatValue left = chat_eval(run, node->a);
    for (const ChatNode *side = node->first; side && !run->failed; side = side->next) {
        ChatValue right = chat_eval(run, side->a);
        run->line = node->line;
        if (run->failed || !chat_compare(run, side->op, left, right)) return chat_bool(false);
        left = right;
    }
    return chat_bool(true);
}

/* a if b else c; c NULL = nothing. */
static ChatValue eval_choice(ChatRun *run, const ChatNode *node) {
    if (chat_truth(chat_eval(run, node->b))) return chat_eval(run, node->a);
    if (node->c) return chat_eval(run, node->c);
    return chat_undefined(run,
                          "the inline if-expression on line %d evaluated to false and no else "
                          "section was defined.",
                          node->line);
}

ChatValue chat_eval(ChatRun *run, const ChatNode *node) {
    static ChatValue (*const evals[])(ChatRun * run, const ChatNode *node) = {
#define CHAT_NODE(symbol, function) [CHAT_##symbol##_NODE] = eval_##function,
        CHAT_EXPRESSIONS(CHAT_NODE)
#undef CHAT_NODE
    };
    if (!chat_spend(run, 1) || !chat_enter(run)) return (ChatValue){0};
    run->line = node->line;
    MX_ASSERT((size_t)node->kind < sizeof evals / sizeof *evals);
    ChatValue value = evals[node->kind](run, node);
    chat_leave(run);
    return value;
}
