/* exec.c — executes statements, which write to run->out. A table has a function for each kind of
 * node. */
#include "internal.h"

/* How a statement ends. After a failure all of them end as FLOW_BREAK. */
typedef enum Flow { FLOW_ON, FLOW_BREAK, FLOW_CONTINUE } Flow;

static Flow exec_all(ChatRun *run, const ChatNode *first);

/* Names inside `around`; macros that are made in a scope may keep it. */
static ChatScope *scope_in(ChatRun *run, ChatScope *around) {
    ChatScope *scope = mx_new(run->arena, ChatScope);
    scope->parent = around;
    return scope;
}

/* A body with names of its own. */
static Flow exec_scoped(ChatRun *run, ChatScope *scope, const ChatNode *body) {
    ChatScope *before = run->scope;
    run->scope = scope;
    Flow flow = exec_all(run, body);
    run->scope = before;
    return flow;
}

/* What a body writes. */
static ChatValue capture(ChatRun *run, ChatScope *scope, const ChatNode *body) {
    MxText text = chat_builder(run), *out = run->out;
    run->out = &text;
    exec_scoped(run, scope, body);
    run->out = out;
    return chat_built(&text);
}

/* ---- assignments */

static void assign(ChatRun *run, const ChatNode *target, ChatValue value);

static void unpack(ChatRun *run, const ChatNode *target, ChatValue value) {
    int64_t n_targets = 0, i = 0;
    if (value.kind != CHAT_LIST && value.kind != CHAT_TEXT && value.kind != CHAT_DICT) {
        chat_fail(run, "cannot unpack non-iterable %s object", chat_type(value));
        return;
    }
    const ChatList *list = chat_walk(run, value);
    for (const ChatNode *item = target->first; item; item = item->next) n_targets++;
    if (list->n > n_targets)
        chat_fail(run, "too many values to unpack (expected %lld)", (long long)n_targets);
    if (list->n < n_targets)
        chat_fail(run, "not enough values to unpack (expected %lld, got %lld)",
                  (long long)n_targets, (long long)list->n);
    if (run->failed) return;
    for (const ChatNode *item = target->first; item; item = item->next)
        assign(run, item, list->item[i++]);
}

static void assign(ChatRun *run, const ChatNode *target, ChatValue value) {
    if (target->kind == CHAT_NAME_NODE) {
        chat_set(run, target->name, value);
    } else if (target->kind == CHAT_TUPLE_NODE) {
        unpack(run, target, value);
    } else {
        ChatValue of = chat_eval(run, target->a);
        if (!chat_use(run, of)) return;
        if (of.kind != CHAT_DICT || !of.dict->is_namespace || target->kind != CHAT_ATTRIBUTE_NODE)
            chat_fail(run, "cannot assign attribute on non-namespace object");
        else
            chat_dict_set(run, of.dict, chat_text(target->name, strlen(target->name)), value);
    }
}

static Flow exec_set(ChatRun *run, const ChatNode *node) {
    ChatValue value = chat_eval(run, node->b);
    if (!run->failed) assign(run, node->a, value);
    return FLOW_ON;
}

/* The filter that has nothing to filter yet gets a value; others follow around it. */
static ChatValue filter(ChatRun *run, const ChatNode *node, ChatValue value) {
    ChatCall call = {0};
    if (!chat_enter(run)) return value;
    call.self = node->a ? filter(run, node->a, value) : value;
    chat_leave(run);
    chat_pass(run, node->first, &call);
    run->line = node->line;
    return chat_call_node(run, node, &call);
}

static Flow exec_set_block(ChatRun *run, const ChatNode *node) {
    ChatValue value = capture(run, scope_in(run, run->scope), node->first);
    if (node->b) value = filter(run, node->b, value);
    if (!run->failed) assign(run, node->a, value);
    return FLOW_ON;
}

/* second: assignments, all of them by what was there before. */
static Flow exec_with(ChatRun *run, const ChatNode *node) {
    ChatScope *around = run->scope, *scope = scope_in(run, around);
    for (const ChatNode *set = node->second; set && !run->failed; set = set->next) {
        ChatValue value = chat_eval(run, set->b);
        run->scope = scope;
        if (!run->failed) assign(run, set->a, value);
        run->scope = around;
    }
    return exec_scoped(run, scope, node->first);
}

/* ---- text */

static Flow exec_data(ChatRun *run, const ChatNode *node) {
    chat_add(run, run->out, node->value.text.data, node->value.text.n);
    return FLOW_ON;
}

static Flow exec_print(ChatRun *run, const ChatNode *node) {
    chat_show(run, run->out, chat_eval(run, node->a));
    return FLOW_ON;
}

static Flow exec_scope(ChatRun *run, const ChatNode *node) {
    return exec_scoped(run, scope_in(run, run->scope), node->first);
}

static Flow exec_filter_block(ChatRun *run, const ChatNode *node) {
    ChatValue text = capture(run, scope_in(run, run->scope), node->first);
    chat_show(run, run->out, filter(run, node->a, text));
    return FLOW_ON;
}

/* Transformers notes places in what the template has given so far: a body in a macro or in
 * {% set %} counts from where the text stood when it ran. */
static Flow exec_generation(ChatRun *run, const ChatNode *node) {
    size_t start = run->root->len;
    ChatValue text = capture(run, scope_in(run, run->scope), node->first);
    if (run->failed) return FLOW_ON;
    if (run->n_spans == run->cap_spans) {
        int cap = 2 * run->cap_spans + 8;
        MxSpan *more = chat_alloc(run, (size_t)cap, sizeof *more);
        if (!more) return FLOW_ON;
        if (run->n_spans) memcpy(more, run->spans, (size_t)run->n_spans * sizeof *more);
        run->spans = more;
        run->cap_spans = cap;
    }
    run->spans[run->n_spans++] = (MxSpan){start, start + text.text.n};
    chat_add(run, run->out, text.text.data, text.text.n);
    return FLOW_ON;
}

/* ---- choices and loops */

/* second: what else applies; another one where the tag was elif. */
static Flow exec_if(ChatRun *run, const ChatNode *node) {
    for (;;) {
        bool holds = chat_truth(chat_eval(run, node->a));
        if (run->failed) return FLOW_BREAK;
        if (holds) return exec_all(run, node->first);
        bool is_elif = node->second && node->second->kind == CHAT_IF_NODE && !node->second->next;
        if (!is_elif) return exec_all(run, node->second);
        node = node->second;
    }
}

/* Items of which the loop's condition holds. */
static ChatList *choose(ChatRun *run, const ChatNode *node, ChatList *list) {
    ChatValue chosen = chat_list_new(run, CHAT_IS_LIST, 0);
    ChatScope *around = run->scope;
    run->scope = scope_in(run, around);
    for (int64_t i = 0; i < list->n && !run->failed; i++) {
        assign(run, node->a, list->item[i]);
        if (chat_truth(chat_eval(run, node->c))) chat_list_add(run, chosen, list->item[i]);
    }
    run->scope = around;
    return chosen.list;
}

/* a: what is assigned to; b: what is walked; c: a condition; second: what is there for none. */
static void loop_over(ChatRun *run, const ChatNode *node, ChatValue items, int depth) {
    ChatList *list = chat_walk(run, items);
    if (node->c && !run->failed) list = choose(run, node, list);
    ChatLoop *loop = mx_new(run->arena, ChatLoop);
    *loop = (ChatLoop){.list = list, .depth = depth, .node = node, .scope = run->scope};
    loop->changed.kind = CHAT_ABSENT;
    ChatScope *around = run->scope;
    Flow flow = FLOW_ON;
    bool was_whole = false; /* one time at least: what {% else %} of Jinja goes by */
    for (; loop->i < list->n && !run->failed && flow != FLOW_BREAK; loop->i++) {
        run->scope = scope_in(run, around);
        chat_set(run, "loop", (ChatValue){.kind = CHAT_LOOP, .loop = loop});
        assign(run, node->a, list->item[loop->i]);
        if (!run->failed) flow = exec_all(run, node->first);
        was_whole = was_whole || flow == FLOW_ON;
    }
    run->scope = around;
    if (!was_whole && !run->failed) exec_all(run, node->second);
}

static Flow exec_for(ChatRun *run, const ChatNode *node) {
    ChatValue items = chat_eval(run, node->b);
    if (!run->failed) loop_over(run, node, items, 1);
    return FLOW_ON;
}

ChatValue chat_call_loop(ChatRun *run, const ChatLoop *loop, const ChatCall *call) {
    if (!loop->node->flag)
        return chat_fail(run,
                         "The loop must have the 'recursive' marker to be called recursively.");
    if (call->n != 1 || call->n_named) return chat_fail(run, "loop() wants one list");
    MxText text = chat_builder(run), *out = run->out;
    ChatScope *around = run->scope;
    run->out = &text;
    run->scope = loop->scope;
    loop_over(run, loop->node, call->at[0], loop->depth + 1);
    run->scope = around;
    run->out = out;
    return chat_built(&text);
}

static Flow exec_break(ChatRun *run, const ChatNode *node) {
    (void)run, (void)node;
    return FLOW_BREAK;
}
static Flow exec_continue(ChatRun *run, const ChatNode *node) {
    (void)run, (void)node;
    return FLOW_CONTINUE;
}

/* ---- macros */

static ChatValue make_macro(ChatRun *run, const ChatNode *node) {
    ChatFunction *function = mx_new(run->arena, ChatFunction);
    *function = (ChatFunction){.name = node->name, .macro = node, .scope = run->scope};
    return (ChatValue){.kind = CHAT_FUNCTION, .function = function};
}

static Flow exec_macro(ChatRun *run, const ChatNode *node) {
    chat_set(run, node->name, make_macro(run, node));
    return FLOW_ON;
}

/* The value of a parameter; {CHAT_ABSENT} = it was not given. */
static ChatValue given(const ChatCall *call, int64_t i, const char *name) {
    if (i < call->n) return call->at[i];
    for (int64_t k = 0; k < call->n_named; k++)
        if (!strcmp(call->named[k].name, name)) return call->named[k].value;
    return (ChatValue){.kind = CHAT_ABSENT};
}

static bool has_parameter(const ChatNode *macro, const char *name) {
    for (const ChatNode *param = macro->second; param; param = param->next)
        if (!strcmp(param->name, name)) return true;
    return false;
}

/* What no parameter takes: `varargs` and `kwargs` where the macro asks for them. */
static void set_rest(ChatRun *run, const ChatFunction *macro, const ChatCall *call, int64_t n) {
    unsigned asks = macro->macro->asks;
    ChatValue rest = chat_list_new(run, CHAT_IS_TUPLE, 0), named = chat_dict_new(run);
    if (call->n > n && !(asks & CHAT_ASKS_VARARGS))
        chat_fail(run, "macro '%s' takes not more than %lld argument(s)", macro->name,
                  (long long)n);
    for (int64_t i = n; i < call->n; i++) chat_list_add(run, rest, call->at[i]);
    for (int64_t i = 0; i < call->n_named; i++) {
        const ChatNamed *one = &call->named[i];
        if (has_parameter(macro->macro, one->name)) continue;
        if (!strcmp(one->name, "caller"))
            chat_set(run, "caller", one->value);
        else if (asks & CHAT_ASKS_KWARGS)
            chat_dict_set(run, named.dict, chat_text(one->name, strlen(one->name)), one->value);
        else
            chat_fail(run, "macro '%s' takes no keyword argument '%s'", macro->name, one->name);
    }
    if (asks & CHAT_ASKS_VARARGS) chat_set(run, "varargs", rest);
    if (asks & CHAT_ASKS_KWARGS) chat_set(run, "kwargs", named);
}

static void set_parameters(ChatRun *run, const ChatFunction *macro, const ChatCall *call) {
    int64_t i = 0;
    for (const ChatNode *param = macro->macro->second; param; param = param->next, i++) {
        ChatValue value = given(call, i, param->name);
        if (value.kind == CHAT_ABSENT)
            value = param->a ? chat_eval(run, param->a)
                             : chat_undefined(run, "parameter '%s' was not provided", param->name);
        chat_set(run, param->name, value);
    }
    set_rest(run, macro, call, i);
}

ChatValue chat_call_macro(ChatRun *run, const ChatFunction *macro, const ChatCall *call) {
    ChatScope *around = run->scope, *scope = scope_in(run, macro->scope);
    ChatValue text = {0};
    int line = run->line;
    if (!chat_enter(run)) return text;
    run->scope = scope;
    set_parameters(run, macro, call);
    if (!run->failed) text = capture(run, scope, macro->macro->first);
    run->scope = around;
    chat_leave(run);
    run->line = run->failed ? run->line : line;
    return text;
}

/* a: the call, which gets the body as `caller`. */
static Flow exec_call_block(ChatRun *run, const ChatNode *node) {
    ChatCall call = {0};
    ChatValue callee = chat_eval(run, node->a->a);
    chat_pass(run, node->a->first, &call);
    ChatNamed *named = chat_alloc(run, (size_t)call.n_named + 1, sizeof *named);
    if (!named) return FLOW_BREAK;
    if (call.n_named) memcpy(named, call.named, (size_t)call.n_named * sizeof *named);
    named[call.n_named++] = (ChatNamed){"caller", make_macro(run, node)};
    call.named = named;
    if (!run->failed) chat_show(run, run->out, chat_call(run, callee, &call));
    return FLOW_ON;
}

/* ---- all of them */

static Flow exec(ChatRun *run, const ChatNode *node) {
    static const ChatNodeKind first = CHAT_DATA_NODE;
    static Flow (*const execs[])(ChatRun * run, const ChatNode *node) = {
#define CHAT_NODE(symbol, function) [CHAT_##symbol##_NODE - CHAT_DATA_NODE] = exec_##function,
        CHAT_STATEMENTS(CHAT_NODE)
#undef CHAT_NODE
    };
    if (!chat_spend(run, 1) || !chat_enter(run)) return FLOW_BREAK;
    run->line = node->line;
    MX_ASSERT(node->kind >= first && (int)(node->kind - first) < MX_COUNT(execs));
    Flow flow = execs[node->kind - first](run, node);
    chat_leave(run);
    return run->failed ? FLOW_BREAK : flow;
}

static Flow exec_all(ChatRun *run, const ChatNode *first) {
    Flow flow = FLOW_ON;
    for (const ChatNode *node = first; node && flow == FLOW_ON; node = node->next)
        flow = exec(run, node);
    return flow;
}

void chat_render(ChatRun *run) {
    if (!run->failed) exec_all(run, run->made_of->body);
}
