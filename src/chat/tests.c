/* tests.c — the tests that may follow "is": a table of predicates on a value. */
#include "internal.h"

#include <math.h>

static ChatValue is_kind(ChatCall *call, ChatKind kind) {
    return chat_bool(call->self.kind == kind);
}
static ChatValue is_defined(ChatRun *run, ChatCall *call) {
    (void)run;
    return chat_bool(call->self.kind != CHAT_UNDEFINED);
}
static ChatValue is_undefined(ChatRun *run, ChatCall *call) {
    (void)run;
    return is_kind(call, CHAT_UNDEFINED);
}
static ChatValue is_none(ChatRun *run, ChatCall *call) {
    (void)run;
    return is_kind(call, CHAT_NONE);
}
static ChatValue is_boolean(ChatRun *run, ChatCall *call) {
    (void)run;
    return is_kind(call, CHAT_BOOL);
}
static ChatValue is_true(ChatRun *run, ChatCall *call) {
    (void)run;
    return chat_bool(call->self.kind == CHAT_BOOL && call->self.truth);
}
static ChatValue is_false(ChatRun *run, ChatCall *call) {
    (void)run;
    return chat_bool(call->self.kind == CHAT_BOOL && !call->self.truth);
}
static ChatValue is_integer(ChatRun *run, ChatCall *call) {
    (void)run;
    return is_kind(call, CHAT_WHOLE);
}
static ChatValue is_float(ChatRun *run, ChatCall *call) {
    (void)run;
    return is_kind(call, CHAT_REAL);
}
static ChatValue is_number(ChatRun *run, ChatCall *call) {
    double number;
    (void)run;
    return chat_bool(chat_number(call->self, &number));
}
static ChatValue is_string(ChatRun *run, ChatCall *call) {
    (void)run;
    return is_kind(call, CHAT_TEXT);
}
static ChatValue is_mapping(ChatRun *run, ChatCall *call) {
    (void)run;
    return chat_bool(call->self.kind == CHAT_DICT && !call->self.dict->is_namespace);
}
static ChatValue is_sequence(ChatRun *run, ChatCall *call) {
    ChatValue self = call->self;
    bool is_list = self.kind == CHAT_LIST && self.list->form <= CHAT_IS_RANGE;
    (void)run;
    return chat_bool(is_list || self.kind == CHAT_TEXT || self.kind == CHAT_UNDEFINED ||
                     (self.kind == CHAT_DICT && !self.dict->is_namespace));
}
static ChatValue is_iterable(ChatRun *run, ChatCall *call) {
    ChatValue self = call->self;
    (void)run;
    return chat_bool(self.kind == CHAT_LIST || self.kind == CHAT_TEXT || self.kind == CHAT_LOOP ||
                     self.kind == CHAT_UNDEFINED ||
                     (self.kind == CHAT_DICT && !self.dict->is_namespace));
}
static ChatValue is_callable(ChatRun *run, ChatCall *call) {
    (void)run;
    return chat_bool(call->self.kind == CHAT_FUNCTION || call->self.kind == CHAT_LOOP ||
                     call->self.kind == CHAT_UNDEFINED);
}
static ChatValue is_escaped(ChatRun *run, ChatCall *call) {
    (void)run, (void)call;
    return chat_bool(false);
}

static ChatValue rest_is(ChatRun *run, ChatCall *call, ChatValue by, bool wants_zero) {
    ChatValue rest = chat_operate(run, CHAT_MOD, call->self, by);
    return chat_bool(chat_equal(run, rest, chat_whole(wants_zero ? 0 : 1)));
}
static ChatValue is_odd(ChatRun *run, ChatCall *call) {
    return rest_is(run, call, chat_whole(2), false);
}
static ChatValue is_even(ChatRun *run, ChatCall *call) {
    return rest_is(run, call, chat_whole(2), true);
}
static ChatValue is_divisible(ChatRun *run, ChatCall *call) {
    return rest_is(run, call, call->arg[0], true);
}

/* Whether all letters that have two cases are of this one, and there are some. */
static ChatValue has_case(ChatRun *run, ChatCall *call, unsigned wanted) {
    ChatText text = chat_string(run, call->self);
    bool has_some = false;
    for (size_t at = 0; at < text.n;) {
        unsigned is = mx_char_class(mx_char_next(text.data, &at)) & (MX_CHAR_UPPER | MX_CHAR_LOWER);
        if (is & ~wanted) return chat_bool(false);
        has_some = has_some || is;
    }
    return chat_bool(has_some);
}
static ChatValue is_lower(ChatRun *run, ChatCall *call) {
    return has_case(run, call, MX_CHAR_LOWER);
}
static ChatValue is_upper(ChatRun *run, ChatCall *call) {
    return has_case(run, call, MX_CHAR_UPPER);
}

static ChatValue is_same(ChatRun *run, ChatCall *call) {
    ChatValue a = call->self, b = call->arg[0];
    if (a.kind != b.kind) return chat_bool(false);
    if (a.kind == CHAT_LIST) return chat_bool(a.list == b.list);
    if (a.kind == CHAT_DICT) return chat_bool(a.dict == b.dict);
    return chat_bool(chat_equal(run, a, b));
}

static ChatValue is_filter(ChatRun *run, ChatCall *call) {
    ChatText name = chat_string(run, call->self);
    return chat_bool(chat_row(chat_filters, mx_arena_strndup(run->arena, name.data, name.n)));
}
static ChatValue is_test(ChatRun *run, ChatCall *call) {
    ChatText name = chat_string(run, call->self);
    return chat_bool(chat_row(chat_tests, mx_arena_strndup(run->arena, name.data, name.n)));
}

/* Comparisons under several names: the operator is the row's. */
static ChatValue compares(ChatRun *run, ChatCall *call, ChatOp op) {
    return chat_bool(chat_compare(run, op, call->self, call->arg[0]));
}
static ChatValue is_eq(ChatRun *run, ChatCall *call) {
    return compares(run, call, CHAT_EQ);
}
static ChatValue is_ne(ChatRun *run, ChatCall *call) {
    return compares(run, call, CHAT_NE);
}
static ChatValue is_lt(ChatRun *run, ChatCall *call) {
    return compares(run, call, CHAT_LT);
}
static ChatValue is_le(ChatRun *run, ChatCall *call) {
    return compares(run, call, CHAT_LE);
}
static ChatValue is_gt(ChatRun *run, ChatCall *call) {
    return compares(run, call, CHAT_GT);
}
static ChatValue is_ge(ChatRun *run, ChatCall *call) {
    return compares(run, call, CHAT_GE);
}
static ChatValue is_in(ChatRun *run, ChatCall *call) {
    return compares(run, call, CHAT_IN);
}

static const ChatRow tests[] = {
    {"defined", "", 0, is_defined},
    {"undefined", "", 0, is_undefined},
    {"none", "", 0, is_none},
    {"boolean", "", 0, is_boolean},
    {"true", "", 0, is_true},
    {"false", "", 0, is_false},
    {"integer", "", 0, is_integer},
    {"float", "", 0, is_float},
    {"number", "", 0, is_number},
    {"string", "", 0, is_string},
    {"mapping", "", 0, is_mapping},
    {"sequence", "", 0, is_sequence},
    {"iterable", "", 0, is_iterable},
    {"callable", "", 0, is_callable},
    {"escaped", "", 0, is_escaped},
    {"odd", "", 0, is_odd},
    {"even", "", 0, is_even},
    {"divisibleby", "num", 1, is_divisible},
    {"lower", "", 0, is_lower},
    {"upper", "", 0, is_upper},
    {"sameas", "other", 1, is_same},
    {"filter", "", 0, is_filter},
    {"test", "", 0, is_test},
    {"eq", "other", 1, is_eq},
    {"equalto", "other", 1, is_eq},
    {"==", "other", 1, is_eq},
    {"ne", "other", 1, is_ne},
    {"!=", "other", 1, is_ne},
    {"lt", "other", 1, is_lt},
    {"lessthan", "other", 1, is_lt},
    {"<", "other", 1, is_lt},
    {"le", "other", 1, is_le},
    {"<=", "other", 1, is_le},
    {"gt", "other", 1, is_gt},
    {"greaterthan", "other", 1, is_gt},
    {">", "other", 1, is_gt},
    {"ge", "other", 1, is_ge},
    {">=", "other", 1, is_ge},
    {"in", "seq", 1, is_in},
};
const ChatTable chat_tests = {.rows = tests, .n = MX_COUNT(tests)};
