/* operate.c — arithmetic and comparisons as in Python. */
#include "internal.h"

#include <math.h>

static const char *const signs[] = {"+", "-", "*", "/", "//", "%", "** or pow()"};

static ChatValue unsupported(ChatRun *run, ChatOp op, ChatValue a, ChatValue b) {
    return chat_fail(run, "unsupported operand type(s) for %s: '%s' and '%s'", signs[op],
                     chat_type(a), chat_type(b));
}

static ChatValue too_large(ChatRun *run) {
    return chat_fail(run, "a whole number has more than 127 bits");
}

/* ---- numbers */

static ChatValue divide(ChatRun *run, ChatOp op, ChatWhole a, ChatWhole b) {
    if (!b) return chat_fail(run, "division by zero");
    if (op == CHAT_DIV) return chat_real((double)a / (double)b);
    if (b == -1) return chat_whole(op == CHAT_MOD ? 0 : -a);
    ChatWhole rest = a % b, whole = a / b;
    bool rounds_down = rest && (rest < 0) != (b < 0);
    return chat_whole(op == CHAT_MOD ? rest + (rounds_down ? b : 0) : whole - rounds_down);
}

static ChatValue power_of_reals(ChatRun *run, double base, double exponent) {
    double out = pow(base, exponent);
    if (base == 0 && exponent < 0) return chat_fail(run, "zero to a negative power");
    if (isfinite(base) && isfinite(exponent) && isnan(out))
        return chat_fail(run, "a negative number to a fractional power is a complex number");
    if (isfinite(base) && isfinite(exponent) && isinf(out))
        return chat_fail(run, "(34, 'Numerical result out of range')");
    return chat_real(out);
}

static ChatValue power(ChatRun *run, ChatWhole base, ChatWhole exponent) {
    ChatWhole out = 1;
    if (exponent < 0) return power_of_reals(run, (double)base, (double)exponent);
    if (base == 0 || base == 1) return chat_whole(exponent ? base : 1);
    if (base == -1) return chat_whole(exponent % 2 ? -1 : 1);
    for (; exponent > 0; exponent--)
        if (__builtin_mul_overflow(out, base, &out)) return too_large(run);
    return chat_whole(out);
}

static ChatValue of_wholes(ChatRun *run, ChatOp op, ChatWhole a, ChatWhole b) {
    ChatWhole out;
    bool overflows;
    switch (op) {
    case CHAT_ADD:
        overflows = __builtin_add_overflow(a, b, &out);
        break;
    case CHAT_SUB:
        overflows = __builtin_sub_overflow(a, b, &out);
        break;
    case CHAT_MUL:
        overflows = __builtin_mul_overflow(a, b, &out);
        break;
    case CHAT_POW:
        return power(run, a, b);
    default:
        return divide(run, op, a, b);
    }
    /* The lowest number has no opposite, so it is left out. */
    bool is_lowest = !overflows && out == -out && out;
    return overflows || is_lowest ? too_large(run) : chat_whole(out);
}

static ChatValue of_reals(ChatRun *run, ChatOp op, double a, double b) {
    switch (op) {
    case CHAT_ADD:
        return chat_real(a + b);
    case CHAT_SUB:
        return chat_real(a - b);
    case CHAT_MUL:
        return chat_real(a * b);
    case CHAT_POW:
        return power_of_reals(run, a, b);
    default:
        break;
    }
    if (b == 0) return chat_fail(run, "division by zero");
    if (op == CHAT_DIV) return chat_real(a / b);
    double rest = fmod(a, b);
    if (rest != 0 && (rest < 0) != (b < 0)) rest += b;
    return chat_real(op == CHAT_MOD ? rest : floor((a - rest) / b + 0.5));
}

/* ---- texts and lists */

static ChatValue join(ChatRun *run, ChatValue a, ChatValue b) {
    if (a.kind == CHAT_TEXT) {
        if (b.kind != CHAT_TEXT)
            return chat_fail(run, "can only concatenate str (not \"%s\") to str", chat_type(b));
        MxText out = chat_builder(run);
        const ChatValue side[] = {a, b};
        const bool is_safe = a.is_safe || b.is_safe;
        for (int i = 0; i < MX_COUNT(side); i++)
            if (is_safe && !side[i].is_safe)
                chat_add_escaped(run, &out, side[i].text);
            else
                chat_add(run, &out, side[i].text.data, side[i].text.n);
        ChatValue both = chat_built(&out);
        both.is_safe = is_safe;
        return both;
    }
    if (b.kind != CHAT_LIST || b.list->form != a.list->form)
        return chat_fail(run, "can only concatenate %s (not \"%s\") to %s", chat_type(a),
                         chat_type(b), chat_type(a));
    ChatValue out = chat_list_new(run, a.list->form, a.list->n + b.list->n);
    for (int64_t i = 0; i < a.list->n; i++) chat_list_add(run, out, a.list->item[i]);
    for (int64_t i = 0; i < b.list->n; i++) chat_list_add(run, out, b.list->item[i]);
    chat_spend(run, (size_t)out.list->n);
    return out;
}

static ChatValue repeat(ChatRun *run, ChatValue of, ChatValue times) {
    int64_t n;
    if (!chat_index(times, &n)) {
        if (times.kind == CHAT_WHOLE) return too_large(run);
        return chat_fail(run, "can't multiply sequence by non-int of type '%s'", chat_type(times));
    }
    if (of.kind == CHAT_TEXT) {
        MxText out = chat_builder(run);
        for (int64_t i = 0; i < n && of.text.n && chat_spend(run, 1); i++)
            chat_add(run, &out, of.text.data, of.text.n);
        return chat_built(&out);
    }
    ChatValue out = chat_list_new(run, of.list->form, 0);
    for (int64_t i = 0; i < n && of.list->n; i++)
        for (int64_t k = 0; k < of.list->n && chat_spend(run, 1); k++)
            chat_list_add(run, out, of.list->item[k]);
    return out;
}

static bool is_sequence(ChatValue value) {
    return value.kind == CHAT_TEXT ||
           (value.kind == CHAT_LIST && value.list->form <= CHAT_IS_TUPLE);
}

static ChatWhole whole_of(ChatValue value) {
    return value.kind == CHAT_BOOL ? value.truth : value.whole;
}

ChatValue chat_operate(ChatRun *run, ChatOp op, ChatValue a, ChatValue b) {
    double x, y;
    if (!chat_use(run, a) || !chat_use(run, b)) return (ChatValue){0};
    if (op == CHAT_ADD && is_sequence(a)) return join(run, a, b);
    if (op == CHAT_MOD && a.kind == CHAT_TEXT) return chat_format_percent(run, a.text, b);
    if (op == CHAT_MUL && is_sequence(a)) return repeat(run, a, b);
    if (op == CHAT_MUL && is_sequence(b)) return repeat(run, b, a);
    if (!chat_number(a, &x) || !chat_number(b, &y)) return unsupported(run, op, a, b);
    if (a.kind == CHAT_REAL || b.kind == CHAT_REAL) return of_reals(run, op, x, y);
    return of_wholes(run, op, whole_of(a), whole_of(b));
}

bool chat_compare(ChatRun *run, ChatOp op, ChatValue a, ChatValue b) {
    switch (op) {
    case CHAT_EQ:
        return chat_equal(run, a, b);
    case CHAT_NE:
        return !chat_equal(run, a, b);
    case CHAT_LT:
        return chat_order(run, a, b, "<") < 0;
    case CHAT_LE:
        return chat_order(run, a, b, "<=") <= 0;
    case CHAT_GT:
        return chat_order(run, a, b, ">") > 0;
    case CHAT_GE:
        return chat_order(run, a, b, ">=") >= 0;
    case CHAT_IN:
        return chat_contains(run, b, a);
    case CHAT_NOT_IN:
        return !chat_contains(run, b, a);
    default:
        MX_BUG("an operator that compares nothing");
    }
}
