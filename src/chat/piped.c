/* piped.c — filters and tests, behind what they are given. */
#include "parse.h"

/* What has no such name fails only if it is reached, where a condition may keep it from that.
 * Source: Jinja 3 compiler.py, _filter_test_common. */
static void take_row(ChatParser *parser, ChatTable table, ChatNode *node) {
    const char *name = chat_take_name(parser);
    while (chat_skip(parser, "."))
        name = mx_arena_printf(parser->arena, "%s.%s", name, chat_take_name(parser));
    node->name = name;
    node->row = chat_row(table, name);
    if (!node->row && !parser->unknown) parser->unknown = node;
}

void chat_parse_known(ChatParser *parser, bool may_be_unknown) {
    const ChatNode *node = parser->unknown;
    parser->unknown = NULL;
    if (node && !may_be_unknown)
        chat_parse_fail(parser, node->line, "No %s named '%s'.", chat_row_kind(node), node->name);
}

static ChatNode *parse_filter(ChatParser *parser, ChatNode *of) {
    ChatNode *node = chat_node(parser, CHAT_FILTER_NODE, chat_now(parser)->line);
    node->a = of;
    take_row(parser, chat_filters, node);
    if (chat_at(parser, "(")) node->first = chat_parse_arguments(parser);
    return node;
}

/* Whether a test's argument follows, without parentheses. */
static bool argument_follows(ChatParser *parser) {
    ChatTokenKind kind = chat_now(parser)->kind;
    if (chat_at(parser, "else") || chat_at(parser, "or") || chat_at(parser, "and")) return false;
    return (kind >= CHAT_NAME_TOKEN && kind <= CHAT_REAL_TOKEN) || chat_at(parser, "[") ||
           chat_at(parser, "{");
}

static ChatNode *parse_test(ChatParser *parser, ChatNode *of) {
    ChatNode *node = chat_node_of(parser, CHAT_TEST_NODE, of, NULL);
    node->line = chat_now(parser)->line;
    node->flag = chat_skip(parser, "not");
    take_row(parser, chat_tests, node);
    if (chat_at(parser, "(")) {
        node->first = chat_parse_arguments(parser);
    } else if (argument_follows(parser)) {
        if (chat_at(parser, "is"))
            return chat_parse_fail(parser, node->line, "You cannot chain multiple tests with is");
        node->first = chat_node(parser, CHAT_CONST_NODE, node->line);
        node->first->a = chat_parse_postfix(parser, chat_parse_primary(parser));
    }
    return node;
}

ChatNode *chat_parse_filters(ChatParser *parser, ChatNode *of, bool begins) {
    if (begins) {
        of = parse_filter(parser, of);
        while (chat_skip(parser, "|")) of = parse_filter(parser, of);
        return of;
    }
    while (!parser->failed) {
        if (chat_skip(parser, "|"))
            of = parse_filter(parser, of);
        else if (chat_skip(parser, "is"))
            of = parse_test(parser, of);
        else if (chat_at(parser, "("))
            of = chat_parse_call(parser, of);
        else
            break;
    }
    return of;
}
