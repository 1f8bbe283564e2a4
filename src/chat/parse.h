/* parse.h — shared by the files of the parser: tokens, and a parser that walks over them. */
#ifndef CHAT_PARSE_H
#define CHAT_PARSE_H

#include "internal.h"

typedef enum ChatTokenKind {
    CHAT_END_TOKEN,
    CHAT_DATA_TOKEN,
    CHAT_PRINT_BEGIN,
    CHAT_PRINT_END,
    CHAT_BLOCK_BEGIN,
    CHAT_BLOCK_END,
    CHAT_NAME_TOKEN,
    CHAT_TEXT_TOKEN,
    CHAT_WHOLE_TOKEN,
    CHAT_REAL_TOKEN,
    CHAT_OPERATOR, /* text: which one */
} ChatTokenKind;

typedef struct ChatToken {
    ChatTokenKind kind;
    int line;
    ChatText text;   /* as it stands there; of data, what is left of it */
    ChatValue value; /* of constants */
} ChatToken;

typedef struct ChatParser {
    MxTemplate *made;
    MxArena *arena;
    MxError *err;
    ChatToken *token; /* [n_tokens], the last is CHAT_END_TOKEN */
    int64_t at, n_tokens;
    int depth, loops;
    bool failed;
    unsigned asks;           /* of the macro that is parsed */
    const char *const *ends; /* of what must be closed next: words, and by what it was opened */
    const char *opened;
    bool is_conditional; /* it is in an {% if %} itself, not in a body within */
    const ChatNode
        *unknown; /* the first filter or test of the statement that has no row, or NULL */
} ChatParser;

/* chat_lex — the tokens of a template. */
bool chat_lex(MxArena *arena, ChatText source, const char *name, ChatToken **out, int64_t *n,
              MxError *err);
/* chat_parse_fail — the first failure counts; returns an empty node. */
ChatNode *chat_parse_fail(ChatParser *parser, int line, const char *fmt, ...) MX_PRINTF(3, 4);
const char *chat_describe(ChatParser *parser, const ChatToken *token);
ChatToken *chat_now(ChatParser *parser);
ChatToken *chat_take(ChatParser *parser);
/* chat_at — whether the token at hand is this operator or, if it is a word, this name. */
bool chat_at(ChatParser *parser, const char *what);
bool chat_skip(ChatParser *parser, const char *what);
bool chat_expect(ChatParser *parser, const char *what);
bool chat_expect_kind(ChatParser *parser, ChatTokenKind kind, const char *what);
const char *chat_take_name(ChatParser *parser);
ChatNode *chat_node(ChatParser *parser, ChatNodeKind kind, int line);
/* chat_node_of — of two parts, on the first one's line. */
ChatNode *chat_node_of(ChatParser *parser, ChatNodeKind kind, ChatNode *a, ChatNode *b);
bool chat_parse_enter(ChatParser *parser);
/* chat_parse_side — what stands beside an operator: signs, a primary, what follows it, filters. */
ChatNode *chat_parse_side(ChatParser *parser);

ChatNode *chat_parse_expression(ChatParser *parser, bool with_choice);
/* chat_parse_tuple — an expression, or several with commas between. simple: primaries only; until:
 * a name that ends it too, NULL = none; in_parentheses: it may be empty. */
ChatNode *chat_parse_tuple(ChatParser *parser, bool simple, bool with_choice, const char *until,
                           bool in_parentheses);
ChatNode *chat_parse_primary(ChatParser *parser);
/* chat_parse_filters — what follows behind "|"; without `of` at least one, of what comes later. */
ChatNode *chat_parse_filters(ChatParser *parser, ChatNode *of, bool begins);
/* chat_parse_known — behind what may hold filters and tests: fails if one of them is unknown,
 * unless it may be. */
void chat_parse_known(ChatParser *parser, bool may_be_unknown);
ChatNode *chat_parse_call(ChatParser *parser, ChatNode *of);
ChatNode *chat_parse_postfix(ChatParser *parser, ChatNode *of);
ChatNode *chat_parse_arguments(ChatParser *parser);

#endif
