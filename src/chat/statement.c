/* statement.c — tokens to statements, and the template as a whole. Source: jinja2 3.1, parser.py;
 * transformers 5, utils/chat_template_utils.py for {% generation %}. */
#include "parse.h"

/* ---- targets of assignments */

/* Turns an expression that was parsed into what is assigned to. */
static ChatNode *check_target(ChatParser *parser, ChatNode *node) {
    static const struct {
        ChatNodeKind kind;
        const char *name;
    } others[] = {{CHAT_CONST_NODE, "const"}, {CHAT_LIST_NODE, "list"}, {CHAT_DICT_NODE, "dict"}};
    if (node->kind == CHAT_NAME_NODE || parser->failed) return node;
    if (node->kind == CHAT_TUPLE_NODE) {
        for (ChatNode *item = node->first; item; item = item->next) check_target(parser, item);
        return node;
    }
    const char *name = "getitem";
    for (int i = 0; i < MX_COUNT(others); i++)
        if (others[i].kind == node->kind) name = others[i].name;
    return chat_parse_fail(parser, node->line, "can't assign to '%s'", name);
}

/* NAME.MEMBER of a namespace, or names. */
static ChatNode *parse_target(ChatParser *parser, const char *until, bool with_member) {
    const ChatToken *behind = chat_now(parser);
    if (behind->kind == CHAT_NAME_TOKEN) behind++;
    if (with_member && behind->kind == CHAT_OPERATOR && *behind->text.data == '.' &&
        chat_now(parser)->kind == CHAT_NAME_TOKEN)
        return chat_parse_postfix(parser, chat_parse_primary(parser));
    return check_target(parser, chat_parse_tuple(parser, true, false, until, false));
}

static ChatNode *parse_name_target(ChatParser *parser) {
    ChatNode *node = chat_node(parser, CHAT_NAME_NODE, chat_now(parser)->line);
    node->name = chat_take_name(parser);
    return node;
}

/* ---- bodies */

static bool is_one_of(ChatParser *parser, const char *const *words) {
    for (; *words; words++)
        if (chat_now(parser)->kind == CHAT_NAME_TOKEN && chat_at(parser, *words)) return true;
    return false;
}

static ChatNode *parse_statement(ChatParser *parser);

/* The tags that are waited for. */
static const char *wanted(ChatParser *parser) {
    MxText text;
    mx_text_init(&text, parser->arena);
    if (!parser->ends) return "";
    mx_text_add(&text, " Jinja was looking for the following tags: ");
    for (int i = 0; parser->ends[i]; i++)
        mx_text_add(&text, "%s'%s'", i ? " or " : "", parser->ends[i]);
    mx_text_add(&text, ". The innermost block that needs to be closed is '%s'.", parser->opened);
    return text.data;
}

/* Statements until one of these words, at which it stops. ends NULL = the end of the template. */
static ChatNode *parse_until(ChatParser *parser, const char *const *ends, const char *what) {
    ChatNode *first = NULL, **last = &first;
    const bool was_conditional = parser->is_conditional;
    const ChatNode *unknown = parser->unknown; /* before the body */
    const char *const *ends_around = parser->ends;
    const char *opened_around = parser->opened;
    if (!chat_parse_enter(parser)) return NULL;
    parser->ends = ends;
    parser->opened = what;
    parser->unknown = NULL;
    parser->is_conditional = what && !strcmp(what, "if");
    while (!parser->failed && chat_now(parser)->kind != CHAT_END_TOKEN) {
        ChatToken *token = chat_take(parser);
        ChatNode *node;
        if (token->kind == CHAT_DATA_TOKEN) {
            node = chat_node(parser, CHAT_DATA_NODE, token->line);
            node->value = chat_text(token->text.data, token->text.n);
        } else if (token->kind == CHAT_PRINT_BEGIN) {
            node = chat_node(parser, CHAT_PRINT_NODE, token->line);
            node->a = chat_parse_tuple(parser, false, true, NULL, false);
            chat_expect_kind(parser, CHAT_PRINT_END, "end of print statement");
        } else {
            if (ends && is_one_of(parser, ends)) break;
            node = parse_statement(parser);
            chat_expect_kind(parser, CHAT_BLOCK_END, "end of statement block");
        }
        chat_parse_known(parser, parser->is_conditional);
        *last = node;
        last = &node->next;
    }
    parser->is_conditional = was_conditional;
    parser->unknown = unknown;
    parser->depth--;
    if (ends && !parser->failed && chat_now(parser)->kind == CHAT_END_TOKEN)
        chat_parse_fail(parser, chat_now(parser)->line, "Unexpected end of template.%s",
                        wanted(parser));
    parser->ends = ends_around;
    parser->opened = opened_around;
    return parser->failed ? NULL : first;
}

/* The body of a tag, from the end of the tag to one of these words. */
static ChatNode *parse_inner(ChatParser *parser, const char *const *ends, const char *what) {
    chat_skip(parser, ":");
    chat_expect_kind(parser, CHAT_BLOCK_END, "end of statement block");
    return parse_until(parser, ends, what);
}

/* The same with the word that ends it. */
static ChatNode *parse_whole(ChatParser *parser, const char *end, const char *what) {
    ChatNode *body = parse_inner(parser, (const char *const[]){end, NULL}, what);
    chat_take(parser);
    return body;
}

/* Filters of a body, which are a part of it. */
static ChatNode *parse_block_filters(ChatParser *parser) {
    ChatNode *node = chat_parse_filters(parser, NULL, true);
    chat_parse_known(parser, false);
    return node;
}

/* ---- tags; the word itself is taken */

static void parse_if(ChatParser *parser, ChatNode *node) {
    static const char *const ends[] = {"elif", "else", "endif", NULL};
    node->a = chat_parse_tuple(parser, false, false, NULL, false);
    chat_parse_known(parser, true);
    node->first = parse_inner(parser, ends, "if");
    while (!parser->failed && chat_at(parser, "elif")) {
        ChatNode *other = chat_node(parser, CHAT_IF_NODE, chat_take(parser)->line);
        other->a = chat_parse_tuple(parser, false, false, NULL, false);
        chat_parse_known(parser, true);
        other->first = parse_inner(parser, ends, "if");
        node->second = other;
        node = other;
    }
    if (chat_skip(parser, "else"))
        node->second = parse_whole(parser, "endif", "if");
    else
        chat_take(parser);
}

static void parse_for(ChatParser *parser, ChatNode *node) {
    static const char *const ends[] = {"endfor", "else", NULL};
    node->a = parse_target(parser, "in", false);
    chat_expect(parser, "in");
    node->b = chat_parse_tuple(parser, false, false, "recursive", false);
    if (chat_skip(parser, "if")) node->c = chat_parse_expression(parser, true);
    node->flag = chat_skip(parser, "recursive");
    parser->loops++;
    node->first = parse_inner(parser, ends, "for");
    parser->loops--;
    if (chat_skip(parser, "else"))
        node->second = parse_whole(parser, "endfor", "for");
    else
        chat_take(parser);
}

static void parse_set(ChatParser *parser, ChatNode *node) {
    node->a = parse_target(parser, NULL, true);
    if (chat_skip(parser, "=")) {
        node->b = chat_parse_tuple(parser, false, true, NULL, false);
        return;
    }
    node->kind = CHAT_SET_BLOCK_NODE;
    if (chat_skip(parser, "|")) node->b = parse_block_filters(parser);
    node->first = parse_whole(parser, "endset", "set");
}

/* (a, b=2): names with their defaults, `a`. */
static ChatNode *parse_signature(ChatParser *parser) {
    ChatNode *first = NULL, **last = &first;
    bool has_default = false;
    chat_expect(parser, "(");
    while (!parser->failed && !chat_at(parser, ")")) {
        if (first) chat_expect(parser, ",");
        *last = parse_name_target(parser);
        if (chat_skip(parser, "=")) {
            (*last)->a = chat_parse_expression(parser, true);
            has_default = true;
        } else if (has_default) {
            chat_parse_fail(parser, (*last)->line, "non-default argument follows default argument");
        }
        last = &(*last)->next;
    }
    chat_expect(parser, ")");
    return first;
}

/* A body that runs by itself: {% break %} does not leave it. */
static ChatNode *parse_own_body(ChatParser *parser, const char *end, const char *what) {
    int loops = parser->loops;
    parser->loops = 0;
    ChatNode *body = parse_whole(parser, end, what);
    parser->loops = loops;
    return body;
}

static void parse_macro(ChatParser *parser, ChatNode *node) {
    node->name = chat_take_name(parser);
    unsigned asks_around = parser->asks;
    parser->asks = 0;
    node->second = parse_signature(parser);
    node->first = parse_own_body(parser, "endmacro", "macro");
    node->asks = parser->asks;
    parser->asks = asks_around;
}

static void parse_call(ChatParser *parser, ChatNode *node) {
    node->name = "caller";
    if (chat_at(parser, "(")) node->second = parse_signature(parser);
    node->a = chat_parse_expression(parser, true);
    if (node->a->kind != CHAT_CALL_NODE) chat_parse_fail(parser, node->line, "expected call");
    node->first = parse_own_body(parser, "endcall", "call");
}

static void parse_filter(ChatParser *parser, ChatNode *node) {
    node->a = parse_block_filters(parser);
    node->first = parse_own_body(parser, "endfilter", "filter");
}

static void parse_with(ChatParser *parser, ChatNode *node) {
    ChatNode **last = &node->second;
    while (!parser->failed && chat_now(parser)->kind != CHAT_BLOCK_END) {
        if (node->second) chat_expect(parser, ",");
        *last = chat_node(parser, CHAT_SET_NODE, chat_now(parser)->line);
        (*last)->a = check_target(parser, chat_parse_primary(parser));
        chat_expect(parser, "=");
        (*last)->b = chat_parse_expression(parser, true);
        last = &(*last)->next;
    }
    node->first = parse_whole(parser, "endwith", "with");
}

static void parse_generation(ChatParser *parser, ChatNode *node) {
    parser->made->has_generation = true;
    node->first = parse_own_body(parser, "endgeneration", "generation");
}

/* first: what is printed, one after the other. */
static void parse_print(ChatParser *parser, ChatNode *node) {
    for (ChatNode **last = &node->first; !parser->failed; last = &(*last)->next) {
        if (chat_now(parser)->kind == CHAT_BLOCK_END) break;
        if (node->first) chat_expect(parser, ",");
        *last = chat_node(parser, CHAT_PRINT_NODE, chat_now(parser)->line);
        (*last)->a = chat_parse_expression(parser, true);
    }
}

static void parse_block(ChatParser *parser, ChatNode *node) {
    chat_take_name(parser);
    node->first = parse_own_body(parser, "endblock", "block");
    if (chat_now(parser)->kind == CHAT_NAME_TOKEN) chat_take(parser);
}

static void parse_jump(ChatParser *parser, ChatNode *node) {
    const char *word = node->kind == CHAT_BREAK_NODE ? "break" : "continue";
    if (!parser->loops)
        chat_parse_fail(parser, node->line,
                        node->kind == CHAT_BREAK_NODE ? "'%s' outside loop"
                                                      : "'%s' not properly in loop",
                        word);
}

static void parse_other_template(ChatParser *parser, ChatNode *node) {
    chat_parse_fail(parser, node->line,
                    "this tag wants other templates or another setting of Jinja; a chat template "
                    "stands alone");
}

static const struct {
    const char *name;
    ChatNodeKind kind;
    void (*parse)(ChatParser *parser, ChatNode *node);
} tags[] = {
    {"if", CHAT_IF_NODE, parse_if},
    {"for", CHAT_FOR_NODE, parse_for},
    {"set", CHAT_SET_NODE, parse_set},
    {"macro", CHAT_MACRO_NODE, parse_macro},
    {"call", CHAT_CALL_BLOCK_NODE, parse_call},
    {"filter", CHAT_FILTER_BLOCK_NODE, parse_filter},
    {"with", CHAT_WITH_NODE, parse_with},
    {"generation", CHAT_GENERATION_NODE, parse_generation},
    {"break", CHAT_BREAK_NODE, parse_jump},
    {"continue", CHAT_CONTINUE_NODE, parse_jump},
    {"print", CHAT_SCOPE_NODE, parse_print},
    {"block", CHAT_SCOPE_NODE, parse_block},
    {"extends", CHAT_SCOPE_NODE, parse_other_template},
    {"include", CHAT_SCOPE_NODE, parse_other_template},
    {"import", CHAT_SCOPE_NODE, parse_other_template},
    {"from", CHAT_SCOPE_NODE, parse_other_template},
    {"autoescape", CHAT_SCOPE_NODE, parse_other_template},
};

static ChatNode *parse_statement(ChatParser *parser) {
    const ChatToken *token = chat_now(parser);
    if (token->kind != CHAT_NAME_TOKEN)
        return chat_parse_fail(parser, token->line, "tag name expected");
    const char *name = chat_take_name(parser);
    for (int i = 0; i < MX_COUNT(tags); i++) {
        if (strcmp(tags[i].name, name)) continue;
        ChatNode *node = chat_node(parser, tags[i].kind, token->line);
        tags[i].parse(parser, node);
        return node;
    }
    return chat_parse_fail(parser, token->line, "Encountered unknown tag '%s'.%s", name,
                           wanted(parser));
}

/* ---- the template */

bool mx_template_parse(MxArena *arena, const char *text, size_t n, const char *name,
                       MxTemplate **out, MxError *err) {
    size_t valid = mx_utf8_valid_bytes(text, n);
    MxTemplate *made = mx_new(arena, MxTemplate);
    ChatParser parser = {.made = made, .arena = arena, .err = err};
    if (valid < n)
        return mx_fail(err, MX_EXIT_BAD_INPUT, (MxWhere){.file = name},
                       "is not UTF-8: byte 0x%02x at offset %zu", (uint8_t)text[valid], valid);
    *made = (MxTemplate){.arena = arena, .name = mx_arena_strdup(arena, name)};
    mx_map_init(&made->names, arena);
    if (!chat_lex(arena, (ChatText){text, n}, made->name, &parser.token, &parser.n_tokens, err))
        return false;
    made->body = parse_until(&parser, NULL, NULL);
    *out = made;
    return !parser.failed;
}

bool mx_template_has_generation(const MxTemplate *template) {
    return template->has_generation;
}

bool mx_template_reads(const MxTemplate *template, const char *name) {
    return mx_map_get(&template->names, name, 0);
}

bool mx_template_has_clock(const MxTemplate *template) {
    return mx_template_reads(template, "strftime_now");
}
