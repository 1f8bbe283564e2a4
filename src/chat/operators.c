/* operators.c — binary operators, by decreasing precedence (jinja2 3.1, parser.py). */
#include "parse.h"

typedef struct Operator {
    const char *text;
    ChatOp op;
} Operator;

/* The operator of these that is at hand, taken; NULL = none. */
static const Operator *take_operator(ChatParser *parser, const Operator *operators, int n) {
    for (int i = 0; i < n; i++)
        if (chat_skip(parser, operators[i].text)) return &operators[i];
    return NULL;
}

/* Rows of operators that bind alike, from those that bind most; concatenation lies between. */
static const Operator powers[] = {{"**", CHAT_POW}};
static const Operator products[] = {
    {"*", CHAT_MUL}, {"/", CHAT_DIV}, {"//", CHAT_FLOOR_DIV}, {"%", CHAT_MOD}};
static const Operator sums[] = {{"+", CHAT_ADD}, {"-", CHAT_SUB}};
static const Operator comparisons[] = {{"==", CHAT_EQ}, {"!=", CHAT_NE}, {"<", CHAT_LT},
                                       {"<=", CHAT_LE}, {">", CHAT_GT},  {">=", CHAT_GE},
                                       {"in", CHAT_IN}};

static ChatNode *parse_binary(ChatParser *parser, const Operator *operators, int n,
                              ChatNode *(*side)(ChatParser *)) {
    ChatNode *node = side(parser);
    int line = chat_now(parser)->line;
    for (const Operator *op; (op = take_operator(parser, operators, n)) != NULL;
         line = chat_now(parser)->line) {
        node = chat_node_of(parser, CHAT_BINARY_NODE, node, side(parser));
        node->op = op->op;
        node->line = line;
    }
    return node;
}

static ChatNode *parse_power(ChatParser *parser) {
    return parse_binary(parser, powers, MX_COUNT(powers), chat_parse_side);
}
static ChatNode *parse_product(ChatParser *parser) {
    return parse_binary(parser, products, MX_COUNT(products), parse_power);
}

static ChatNode *parse_concat(ChatParser *parser) {
    ChatNode *first = parse_product(parser);
    if (!chat_at(parser, "~")) return first;
    ChatNode *node = chat_node(parser, CHAT_CONCAT_NODE, first->line);
    node->first = first;
    for (ChatNode *last = first; chat_skip(parser, "~"); last = last->next)
        last->next = parse_product(parser);
    return node;
}

static ChatNode *parse_sum(ChatParser *parser) {
    return parse_binary(parser, sums, MX_COUNT(sums), parse_concat);
}

static ChatNode *parse_compare(ChatParser *parser) {
    ChatNode *node = chat_node(parser, CHAT_COMPARE_NODE, chat_now(parser)->line);
    node->a = parse_sum(parser);
    for (ChatNode **last = &node->first; !parser->failed; last = &(*last)->next) {
        const Operator *op = take_operator(parser, comparisons, MX_COUNT(comparisons));
        const ChatToken *behind = chat_now(parser) + 1;
        bool is_not_in = !op && chat_at(parser, "not") && behind->text.n == 2 &&
                         !memcmp(behind->text.data, "in", 2);
        if (!op && !is_not_in) break;
        if (is_not_in) parser->at += 2;
        *last = chat_node(parser, CHAT_CONST_NODE, chat_now(parser)->line);
        (*last)->a = parse_sum(parser);
        (*last)->op = op ? op->op : CHAT_NOT_IN;
    }
    return node->first ? node : node->a;
}

static ChatNode *parse_not(ChatParser *parser) {
    if (!chat_at(parser, "not")) return parse_compare(parser);
    ChatNode *node = chat_node(parser, CHAT_NOT_NODE, chat_take(parser)->line);
    if (!chat_parse_enter(parser)) return node;
    node->a = parse_not(parser);
    parser->depth--;
    return node;
}

static ChatNode *parse_and(ChatParser *parser) {
    ChatNode *node = parse_not(parser);
    while (chat_skip(parser, "and"))
        node = chat_node_of(parser, CHAT_AND_NODE, node, parse_not(parser));
    return node;
}

static ChatNode *parse_or(ChatParser *parser) {
    ChatNode *node = parse_and(parser);
    while (chat_skip(parser, "or"))
        node = chat_node_of(parser, CHAT_OR_NODE, node, parse_and(parser));
    return node;
}

ChatNode *chat_parse_expression(ChatParser *parser, bool with_choice) {
    if (!chat_parse_enter(parser)) return chat_parse_primary(parser);
    const ChatNode *unknown = parser->unknown; /* what a choice leaves aside may be unknown */
    ChatNode *node = parse_or(parser);
    while (with_choice && chat_skip(parser, "if")) {
        ChatNode *choice = chat_node(parser, CHAT_CHOICE_NODE, node->line);
        choice->a = node;
        choice->b = parse_or(parser);
        if (chat_skip(parser, "else")) choice->c = chat_parse_expression(parser, true);
        node = choice;
        parser->unknown = unknown;
    }
    parser->depth--;
    return node;
}
