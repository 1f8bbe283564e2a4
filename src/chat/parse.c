/* parse.c — tokens to expressions. Precedence of operators and messages are Jinja's (jinja2 3.1,
 * parser.py). Binary operators are in operators.c, statements in statement.c. */
#include "parse.h"

/* ---- tokens at hand */

ChatNode *chat_parse_fail(ChatParser *parser, int line, const char *fmt, ...) {
    if (parser->failed) return chat_node(parser, CHAT_CONST_NODE, line);
    va_list ap;
    va_start(ap, fmt);
    const char *message = mx_arena_vprintf(parser->arena, fmt, ap);
    va_end(ap);
    parser->failed = true;
    parser->at = parser->n_tokens - 1; /* so that whoever loops comes to an end */
    mx_fail(parser->err, MX_EXIT_BAD_INPUT, (MxWhere){.file = parser->made->name, .line = line},
            "%s", message);
    return chat_node(parser, CHAT_CONST_NODE, line);
}

const char *chat_describe(ChatParser *parser, const ChatToken *token) {
    static const char *const names[] = {
        [CHAT_END_TOKEN] = "end of template",
        [CHAT_DATA_TOKEN] = "template data / text",
        [CHAT_PRINT_BEGIN] = "begin of print statement",
        [CHAT_PRINT_END] = "end of print statement",
        [CHAT_BLOCK_BEGIN] = "begin of statement block",
        [CHAT_BLOCK_END] = "end of statement block",
        [CHAT_TEXT_TOKEN] = "string",
        [CHAT_WHOLE_TOKEN] = "integer",
        [CHAT_REAL_TOKEN] = "float",
    };
    if (token->kind != CHAT_NAME_TOKEN && token->kind != CHAT_OPERATOR) return names[token->kind];
    return mx_arena_strndup(parser->arena, token->text.data, token->text.n);
}

ChatToken *chat_now(ChatParser *parser) {
    return &parser->token[parser->at];
}

ChatToken *chat_take(ChatParser *parser) {
    ChatToken *token = chat_now(parser);
    if (token->kind != CHAT_END_TOKEN) parser->at++;
    return token;
}

bool chat_at(ChatParser *parser, const char *what) {
    const ChatToken *token = chat_now(parser);
    size_t n = strlen(what);
    return (token->kind == CHAT_OPERATOR || token->kind == CHAT_NAME_TOKEN) && token->text.n == n &&
           !memcmp(token->text.data, what, n);
}

bool chat_skip(ChatParser *parser, const char *what) {
    bool is_here = chat_at(parser, what);
    if (is_here) parser->at++;
    return is_here;
}

static void fail_expected(ChatParser *parser, const char *what) {
    const ChatToken *token = chat_now(parser);
    if (token->kind == CHAT_END_TOKEN)
        chat_parse_fail(parser, token->line, "unexpected end of template, expected '%s'.", what);
    else
        chat_parse_fail(parser, token->line, "expected token '%s', got '%s'", what,
                        chat_describe(parser, token));
}

bool chat_expect(ChatParser *parser, const char *what) {
    if (chat_skip(parser, what)) return true;
    fail_expected(parser, what);
    return false;
}

bool chat_expect_kind(ChatParser *parser, ChatTokenKind kind, const char *what) {
    if (chat_now(parser)->kind != kind) return fail_expected(parser, what), false;
    chat_take(parser);
    return true;
}

const char *chat_take_name(ChatParser *parser) {
    const ChatToken *token = chat_now(parser);
    if (!chat_expect_kind(parser, CHAT_NAME_TOKEN, "name")) return "";
    return mx_arena_strndup(parser->arena, token->text.data, token->text.n);
}

ChatNode *chat_node(ChatParser *parser, ChatNodeKind kind, int line) {
    ChatNode *node = mx_new(parser->arena, ChatNode);
    node->kind = kind;
    node->line = line;
    return node;
}

bool chat_parse_enter(ChatParser *parser) {
    enum { DEEPEST = 200 };
    if (++parser->depth <= DEEPEST) return true;
    chat_parse_fail(parser, chat_now(parser)->line, "nested deeper than %d levels", DEEPEST);
    return false;
}

ChatNode *chat_node_of(ChatParser *parser, ChatNodeKind kind, ChatNode *a, ChatNode *b) {
    ChatNode *node = chat_node(parser, kind, a->line);
    node->a = a;
    node->b = b;
    return node;
}

/* ---- primaries */

static ChatNode *parse_texts(ChatParser *parser) {
    const ChatToken *token = chat_take(parser);
    ChatNode *node = chat_node(parser, CHAT_CONST_NODE, token->line);
    MxText text;
    mx_text_init(&text, parser->arena);
    mx_text_addn(&text, token->value.text.data, token->value.text.n);
    while (chat_now(parser)->kind == CHAT_TEXT_TOKEN) {
        token = chat_take(parser);
        mx_text_addn(&text, token->value.text.data, token->value.text.n);
    }
    node->value = chat_built(&text);
    return node;
}

static ChatNode *parse_name(ChatParser *parser) {
    static const struct {
        const char *name;
        ChatValue value;
    } constants[] = {
        {"true", {.kind = CHAT_BOOL, .truth = true}},
        {"True", {.kind = CHAT_BOOL, .truth = true}},
        {"false", {.kind = CHAT_BOOL, .truth = false}},
        {"False", {.kind = CHAT_BOOL, .truth = false}},
        {"none", {.kind = CHAT_NONE}},
        {"None", {.kind = CHAT_NONE}},
    };
    ChatNode *node = chat_node(parser, CHAT_NAME_NODE, chat_now(parser)->line);
    node->name = chat_take_name(parser);
    if (!strcmp(node->name, "varargs")) parser->asks |= CHAT_ASKS_VARARGS;
    if (!strcmp(node->name, "kwargs")) parser->asks |= CHAT_ASKS_KWARGS;
    mx_map_set(&parser->made->names, node->name, 1);
    for (int i = 0; i < MX_COUNT(constants); i++) {
        if (strcmp(constants[i].name, node->name)) continue;
        node->kind = CHAT_CONST_NODE;
        node->value = constants[i].value;
    }
    return node;
}

static ChatNode *parse_list(ChatParser *parser) {
    ChatNode *node = chat_node(parser, CHAT_LIST_NODE, chat_take(parser)->line);
    ChatNode **last = &node->first;
    while (!parser->failed && !chat_at(parser, "]")) {
        if (node->first) chat_expect(parser, ",");
        if (chat_at(parser, "]")) break;
        *last = chat_parse_expression(parser, true);
        last = &(*last)->next;
    }
    chat_expect(parser, "]");
    return node;
}

static ChatNode *parse_dict(ChatParser *parser) {
    ChatNode *node = chat_node(parser, CHAT_DICT_NODE, chat_take(parser)->line);
    ChatNode **last = &node->first;
    while (!parser->failed && !chat_at(parser, "}")) {
        if (node->first) chat_expect(parser, ",");
        if (chat_at(parser, "}")) break;
        ChatNode *key = chat_parse_expression(parser, true);
        chat_expect(parser, ":");
        *last = chat_node_of(parser, CHAT_CONST_NODE, key, chat_parse_expression(parser, true));
        last = &(*last)->next;
    }
    chat_expect(parser, "}");
    return node;
}

ChatNode *chat_parse_primary(ChatParser *parser) {
    const ChatToken *token = chat_now(parser);
    if (token->kind == CHAT_NAME_TOKEN) return parse_name(parser);
    if (token->kind == CHAT_TEXT_TOKEN) return parse_texts(parser);
    if (token->kind == CHAT_WHOLE_TOKEN || token->kind == CHAT_REAL_TOKEN) {
        ChatNode *node = chat_node(parser, CHAT_CONST_NODE, token->line);
        node->value = chat_take(parser)->value;
        return node;
    }
    if (chat_at(parser, "[")) return parse_list(parser);
    if (chat_at(parser, "{")) return parse_dict(parser);
    if (chat_skip(parser, "(")) {
        ChatNode *node = chat_parse_tuple(parser, false, true, NULL, true);
        chat_expect(parser, ")");
        return node;
    }
    return chat_parse_fail(parser, token->line, "unexpected '%s'", chat_describe(parser, token));
}

static bool tuple_ends(ChatParser *parser, const char *until) {
    ChatTokenKind kind = chat_now(parser)->kind;
    return kind == CHAT_PRINT_END || kind == CHAT_BLOCK_END || chat_at(parser, ")") ||
           (until && chat_at(parser, until));
}

ChatNode *chat_parse_tuple(ChatParser *parser, bool simple, bool with_choice, const char *until,
                           bool in_parentheses) {
    ChatNode *node = chat_node(parser, CHAT_TUPLE_NODE, chat_now(parser)->line);
    ChatNode **last = &node->first;
    bool is_tuple = false;
    while (!parser->failed && !tuple_ends(parser, until)) {
        *last = simple ? chat_parse_primary(parser) : chat_parse_expression(parser, with_choice);
        last = &(*last)->next;
        if (!chat_skip(parser, ",")) break;
        is_tuple = true;
    }
    if (is_tuple) return node;
    if (node->first) return node->first;
    if (in_parentheses) return node;
    return chat_parse_fail(parser, chat_now(parser)->line, "Expected an expression, got '%s'",
                           chat_describe(parser, chat_now(parser)));
}

/* ---- what follows a primary */

static ChatNode *parse_argument(ChatParser *parser) {
    ChatPass pass = chat_skip(parser, "**")  ? CHAT_SPREAD_NAMED
                    : chat_skip(parser, "*") ? CHAT_SPREAD
                                             : CHAT_PLAIN;
    const char *name = NULL;
    const ChatToken *behind = chat_now(parser);
    if (behind->kind == CHAT_NAME_TOKEN) behind++;
    bool is_named =
        behind->kind == CHAT_OPERATOR && behind->text.n == 1 && *behind->text.data == '=';
    if (!pass && is_named && chat_now(parser)->kind == CHAT_NAME_TOKEN) {
        name = chat_take_name(parser);
        chat_take(parser);
        pass = CHAT_NAMED;
    }
    ChatNode *wrap = chat_node(parser, CHAT_CONST_NODE, chat_now(parser)->line);
    wrap->a = chat_parse_expression(parser, true);
    wrap->pass = pass;
    wrap->name = name;
    return wrap;
}

ChatNode *chat_parse_arguments(ChatParser *parser) {
    ChatNode *first = NULL, **last = &first;
    ChatPass most = CHAT_PLAIN;
    int line = chat_now(parser)->line;
    chat_expect(parser, "(");
    while (!parser->failed && !chat_at(parser, ")")) {
        if (first) chat_expect(parser, ",");
        if (chat_at(parser, ")")) break;
        *last = parse_argument(parser);
        bool follows = most == CHAT_PLAIN || (*last)->pass >= CHAT_NAMED;
        if (!follows) chat_parse_fail(parser, line, "invalid syntax for function call expression");
        if ((*last)->pass > most) most = (*last)->pass;
        last = &(*last)->next;
    }
    chat_expect(parser, ")");
    return first;
}

static ChatNode *parse_bound(ChatParser *parser) {
    bool is_left_out = chat_at(parser, ":") || chat_at(parser, "]") || chat_at(parser, ",");
    return is_left_out ? NULL : chat_parse_expression(parser, true);
}

static ChatNode *parse_subscribed(ChatParser *parser, ChatNode *of) {
    ChatNode *low = parse_bound(parser), *node;
    if (!chat_skip(parser, ":")) {
        if (!low) return chat_parse_fail(parser, of->line, "expected subscript expression");
        return chat_node_of(parser, CHAT_ITEM_NODE, of, low);
    }
    node = chat_node_of(parser, CHAT_SLICE_NODE, of, low);
    node->b = chat_node(parser, CHAT_CONST_NODE, of->line);
    node->b->a = low;
    node->b->b = parse_bound(parser);
    if (chat_skip(parser, ":")) node->b->c = parse_bound(parser);
    return node;
}

static ChatNode *parse_attribute(ChatParser *parser, ChatNode *of) {
    const ChatToken *token = chat_now(parser);
    if (token->kind == CHAT_WHOLE_TOKEN)
        return chat_node_of(parser, CHAT_ITEM_NODE, of, chat_parse_primary(parser));
    ChatNode *node = chat_node_of(parser, CHAT_ATTRIBUTE_NODE, of, NULL);
    if (token->kind != CHAT_NAME_TOKEN)
        return chat_parse_fail(parser, token->line, "expected name or number");
    node->line = token->line;
    node->name = chat_take_name(parser);
    return node;
}

ChatNode *chat_parse_call(ChatParser *parser, ChatNode *of) {
    ChatNode *node = chat_node_of(parser, CHAT_CALL_NODE, of, NULL);
    node->line = chat_now(parser)->line;
    node->first = chat_parse_arguments(parser);
    return node;
}

ChatNode *chat_parse_postfix(ChatParser *parser, ChatNode *of) {
    while (!parser->failed) {
        if (chat_skip(parser, ".")) {
            of = parse_attribute(parser, of);
        } else if (chat_skip(parser, "[")) {
            of = parse_subscribed(parser, of);
            chat_expect(parser, "]");
        } else if (chat_at(parser, "(")) {
            of = chat_parse_call(parser, of);
        } else {
            break;
        }
    }
    return of;
}

/* ---- what stands beside operators */
static ChatNode *parse_unary(ChatParser *parser, bool with_filters) {
    ChatNode *node;
    int line = chat_now(parser)->line;
    if (!chat_parse_enter(parser)) return chat_parse_primary(parser);
    if (chat_at(parser, "-") || chat_at(parser, "+")) {
        bool negates = *chat_take(parser)->text.data == '-';
        node = chat_node(parser, negates ? CHAT_NEGATIVE_NODE : CHAT_POSITIVE_NODE, line);
        node->a = parse_unary(parser, false);
    } else {
        node = chat_parse_primary(parser);
    }
    node = chat_parse_postfix(parser, node);
    if (with_filters) node = chat_parse_filters(parser, node, false);
    parser->depth--;
    return node;
}

ChatNode *chat_parse_side(ChatParser *parser) {
    return parse_unary(parser, true);
}
