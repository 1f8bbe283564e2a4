/* internal.h — shared by the files of the room: the values of templates, the syntax tree of a
 * template, and a rendering in progress. A function that fails records the failure in the run and
 * returns "undefined"; loops check `failed`. */
#ifndef CHAT_INTERNAL_H
#define CHAT_INTERNAL_H

#include <mx/chat.h>

/* ---- values */

/* Whole numbers of Python have any size; here they have up to 127 bits, beyond which is an error.
 */
typedef __int128 ChatWhole;

typedef enum ChatKind {
    CHAT_UNDEFINED, /* a name or a member that is not there; zero, so that {0} is one */
    CHAT_ABSENT,    /* an argument that was not given */
    CHAT_NONE,
    CHAT_BOOL,
    CHAT_WHOLE,
    CHAT_REAL,
    CHAT_TEXT,
    CHAT_LIST,
    CHAT_DICT,
    CHAT_FUNCTION,
    CHAT_LOOP,
} ChatKind;

/* Bytes of UTF-8. */
typedef struct ChatText {
    const char *data;
    size_t n;
} ChatText;

#define CHAT_TEXT_OF(literal) ((ChatText){literal, sizeof(literal) - 1})

typedef struct ChatList ChatList;
typedef struct ChatDict ChatDict;
typedef struct ChatFunction ChatFunction;
typedef struct ChatLoop ChatLoop;

typedef struct ChatValue {
    ChatKind kind;
    bool is_safe; /* of a text: what is put beside it with + is escaped for HTML */
    union {
        const char *why; /* CHAT_UNDEFINED: what whoever uses it is told */
        bool truth;
        ChatWhole whole;
        double real;
        ChatText text;
        ChatList *list;
        ChatDict *dict;
        const ChatFunction *function;
        ChatLoop *loop;
    };
} ChatValue;

/* What Python has instead of one kind of list. */
typedef enum ChatForm {
    CHAT_IS_LIST,
    CHAT_IS_TUPLE,
    CHAT_IS_GROUP, /* a tuple with the members grouper and list */
    CHAT_IS_RANGE,
    CHAT_IS_KEYS, /* views of a dict */
    CHAT_IS_VALUES,
    CHAT_IS_ITEMS,
    CHAT_IS_GENERATOR, /* can be walked once, and has no length */
} ChatForm;

struct ChatList {
    ChatValue *item; /* [n] */
    int64_t n, cap;
    ChatForm form;
    bool is_used;             /* a generator that was walked */
    ChatWhole from, to, step; /* of a range */
};

typedef struct ChatEntry {
    ChatValue key, value;
    uint64_t hash;
} ChatEntry;

struct ChatDict {
    ChatEntry *entry; /* [n] in the order in which keys were added */
    int64_t n, cap;
    bool is_namespace;
};

/* ---- calls */

typedef struct ChatNamed {
    const char *name;
    ChatValue value;
} ChatNamed;

enum { CHAT_MOST_PARAMS = 6 };

typedef struct ChatCall {
    ChatValue self; /* what a filter, a test or a method is applied to */
    const ChatFunction *function;
    ChatValue *at; /* [n] by position */
    int64_t n;
    ChatNamed *named; /* [n_named] */
    int64_t n_named;
    ChatValue arg[CHAT_MOST_PARAMS]; /* of rows with `params`: in their order */
} ChatCall;

typedef struct ChatRun ChatRun;
typedef ChatValue ChatBuiltin(ChatRun *run, ChatCall *call);

/* A row of a table of functions, filters, tests or methods. */
typedef struct ChatRow {
    const char *name;
    const char *params; /* names with spaces between; NULL = it takes its arguments as they are */
    int needed;         /* how many of them must be given */
    ChatBuiltin *call;
} ChatRow;

typedef struct ChatTable {
    const ChatRow *rows;
    int n;
    const struct ChatTable *more; /* rows that stand elsewhere */
} ChatTable;

typedef struct ChatNode ChatNode;
typedef struct ChatScope ChatScope;

/* What can be called: a row bound to what it belongs to, or a macro with the scope it was made in.
 */
struct ChatFunction {
    const char *name;
    const ChatRow *row; /* NULL = a macro */
    ChatValue self;
    const ChatNode *macro;
    ChatScope *scope;
};

struct ChatLoop {
    ChatList *list;
    int64_t i; /* of the item at hand */
    int depth; /* 1, 2 … of recursive loops */
    const ChatNode *node;
    ChatScope *scope; /* around it */
    ChatValue changed;
};

/* ---- the tree */

// clang-format off

typedef enum ChatOp {
    CHAT_ADD,
    CHAT_SUB,
    CHAT_MUL,
    CHAT_DIV,
    CHAT_FLOOR_DIV,
    CHAT_MOD,
    CHAT_POW,
    CHAT_EQ,
    CHAT_NE,
    CHAT_LT,
    CHAT_LE,
    CHAT_GT,
    CHAT_GE,
    CHAT_IN,
    CHAT_NOT_IN,
} ChatOp;

/* CHAT_NODE(symbol, function): expressions, then statements. What members mean is told in eval.c
 * and exec.c. */
#define CHAT_EXPRESSIONS(X)                                                                        \
    X(CONST, constant) X(NAME, name) X(LIST, list) X(TUPLE, tuple) X(DICT, dict)                   \
    X(ATTRIBUTE, attribute) X(ITEM, item) X(SLICE, slice) X(CALL, call) X(FILTER, filter)          \
    X(TEST, test) X(NOT, not) X(NEGATIVE, negative) X(POSITIVE, positive) X(AND, and) X(OR, or)    \
    X(BINARY, binary) X(CONCAT, concat) X(COMPARE, compare) X(CHOICE, choice)
#define CHAT_STATEMENTS(X)                                                                         \
    X(DATA, data) X(PRINT, print) X(IF, if) X(FOR, for) X(SET, set) X(SET_BLOCK, set_block)        \
    X(MACRO, macro) X(CALL_BLOCK, call_block) X(FILTER_BLOCK, filter_block) X(WITH, with)          \
    X(GENERATION, generation) X(BREAK, break) X(CONTINUE, continue) X(SCOPE, scope)

// clang-format on

typedef enum ChatNodeKind {
#define CHAT_NODE(symbol, function) CHAT_##symbol##_NODE,
    CHAT_EXPRESSIONS(CHAT_NODE) CHAT_STATEMENTS(CHAT_NODE)
#undef CHAT_NODE
} ChatNodeKind;

/* What the body of a macro asks for by name. */
enum { CHAT_ASKS_VARARGS = 1, CHAT_ASKS_KWARGS = 2 };

typedef enum ChatPass { CHAT_PLAIN, CHAT_NAMED, CHAT_SPREAD, CHAT_SPREAD_NAMED } ChatPass;

struct ChatNode {
    ChatNodeKind kind;
    int line;
    ChatOp op;
    ChatPass pass; /* of an argument */
    bool flag;     /* a recursive loop; a negated test */
    unsigned asks; /* of a macro */
    const char *name;
    const ChatRow *row; /* a filter or a test; NULL = none has this name */
    ChatValue value;
    ChatNode *a, *b, *c;
    ChatNode *first, *second; /* lists of children */
    ChatNode *next;           /* the sibling behind it */
};

struct MxTemplate {
    MxArena *arena;
    const char *name; /* for messages */
    ChatNode *body;
    MxMap names; /* that it reads, also those that it sets */
    bool has_generation;
};

/* ---- a rendering */

typedef struct ChatBinding {
    const char *name;
    ChatValue value;
} ChatBinding;

/* Names and what they stand for. */
struct ChatScope {
    ChatScope *parent;
    ChatBinding *item; /* [n] */
    int64_t n, cap;
};

struct ChatRun {
    const MxTemplate *made_of;
    MxArena *arena;
    MxError *err;
    bool failed;
    int line;      /* of what is evaluated, for messages */
    int depth;     /* of calls, nested expressions and values */
    int64_t steps; /* so far */
    ChatScope *scope;
    MxText *out;  /* where statements write */
    MxText *root; /* what the template gives */
    MxSpan *spans;
    int n_spans, cap_spans;
};

/* chat_fail — the first failure counts, with the line that is evaluated. Returns "undefined". */
ChatValue chat_fail(ChatRun *run, const char *fmt, ...) MX_PRINTF(2, 3);
/* chat_spend — so much work is done; false = too much. */
bool chat_spend(ChatRun *run, size_t steps);
/* chat_enter, chat_leave — around what nests. */
bool chat_enter(ChatRun *run);
void chat_leave(ChatRun *run);
/* chat_alloc — memory of the run; NULL, as a failure, where it has had too much. */
void *chat_alloc(ChatRun *run, size_t n, size_t bytes);
/* chat_grow — n items with room for one more, where they are or in a larger copy; NULL as above. */
void *chat_grow(ChatRun *run, void *items, int64_t n, int64_t *cap, size_t item_bytes);
/* chat_add — n bytes more, unless there are too many. */
void chat_add(ChatRun *run, MxText *out, const char *bytes, size_t n);
MxText chat_builder(ChatRun *run);
/* chat_add_escaped — adds a text with what HTML writes otherwise. */
void chat_add_escaped(ChatRun *run, MxText *out, ChatText text);

/* ---- values (value.c) */

ChatValue chat_none(void);
ChatValue chat_bool(bool truth);
ChatValue chat_whole(ChatWhole whole);
ChatValue chat_real(double real);
ChatValue chat_text(const char *data, size_t n);
ChatValue chat_built(const MxText *text);
ChatValue chat_undefined(ChatRun *run, const char *fmt, ...) MX_PRINTF(2, 3);
ChatValue chat_list_new(ChatRun *run, ChatForm form, int64_t cap);
void chat_list_add(ChatRun *run, ChatValue list, ChatValue item);
ChatValue chat_dict_new(ChatRun *run);
void chat_dict_set(ChatRun *run, ChatDict *dict, ChatValue key, ChatValue value);
/* chat_dict_find — the entry; NULL = there is none. */
ChatEntry *chat_dict_find(ChatRun *run, const ChatDict *dict, ChatValue key);
ChatEntry *chat_dict_named(const ChatDict *dict, const char *name);
/* chat_of_json — a value of JSON, as Python reads it. */
ChatValue chat_of_json(ChatRun *run, const MxJson *json);

bool chat_is_text(ChatValue value, const char *text);
bool chat_truth(ChatValue value);
/* chat_type — the name that Python has for its type. */
const char *chat_type(ChatValue value);
/* chat_number — a number or true or false as a real. */
bool chat_number(ChatValue value, double *out);
bool chat_index(ChatValue value, int64_t *out); /* whole, true or false; not too large */
bool chat_equal(ChatRun *run, ChatValue a, ChatValue b);
/* chat_order — below, at or above 0; fails where Python does. */
int chat_order(ChatRun *run, ChatValue a, ChatValue b, const char *sign);
bool chat_contains(ChatRun *run, ChatValue in, ChatValue what);
/* chat_walk — the items of what can be walked; empty after a failure. */
ChatList *chat_walk(ChatRun *run, ChatValue value);
/* chat_length — characters, items; -1 after a failure. */
int64_t chat_length(ChatRun *run, ChatValue value);

/* ---- text of values (show.c) */

/* chat_show — as str() has it; chat_repr — as repr() has it. */
void chat_show(ChatRun *run, MxText *out, ChatValue value);
void chat_repr(ChatRun *run, MxText *out, ChatValue value);
/* chat_string — as str() has it. */
ChatText chat_string(ChatRun *run, ChatValue value);
void chat_add_real(ChatRun *run, MxText *out, double real);
void chat_add_whole(ChatRun *run, MxText *out, ChatWhole whole);
/* chat_quoted — repr() of bytes, for messages. */
const char *chat_quoted(MxArena *arena, ChatText text);

/* ---- characters */

int64_t chat_chars(ChatText text);
/* chat_char_at — where character i begins; n behind the last. */
size_t chat_char_at(ChatText text, int64_t i);
bool chat_is_space(uint32_t c);
/* chat_find — the first place from `from` on; SIZE_MAX = none. chat_find_last — the last place that
 * ends at `end` or before. */
size_t chat_find(ChatText in, size_t from, ChatText what);
size_t chat_find_last(ChatText in, size_t end, ChatText what);
/* chat_strip — without characters of `set` (NULL data: spaces) at its ends. */
ChatText chat_strip(ChatText text, ChatText set, bool left, bool right);

/* ---- evaluation (eval.c, exec.c, operate.c, call.c) */

ChatValue chat_eval(ChatRun *run, const ChatNode *node);
ChatValue chat_operate(ChatRun *run, ChatOp op, ChatValue a, ChatValue b);
bool chat_compare(ChatRun *run, ChatOp op, ChatValue a, ChatValue b);
/* chat_use — fails if the value is undefined. */
bool chat_use(ChatRun *run, ChatValue value);
ChatValue chat_attribute(ChatRun *run, ChatValue of, const char *name);
ChatValue chat_item(ChatRun *run, ChatValue of, ChatValue key);
ChatValue chat_slice(ChatRun *run, ChatValue of, const ChatValue bound[3]);
ChatValue chat_function(ChatRun *run, const ChatRow *row, ChatValue self);
/* chat_call — calls what can be called; chat_call_row — a row, with its arguments in place;
 * chat_call_node — that of a filter or a test. chat_row_kind — which of the two it is. */
ChatValue chat_call(ChatRun *run, ChatValue callee, ChatCall *call);
ChatValue chat_call_row(ChatRun *run, const ChatRow *row, ChatCall *call);
ChatValue chat_call_node(ChatRun *run, const ChatNode *node, ChatCall *call);
const char *chat_row_kind(const ChatNode *node);
ChatValue chat_call_macro(ChatRun *run, const ChatFunction *macro, const ChatCall *call);
/* chat_call_loop — a recursive loop over other items. */
ChatValue chat_call_loop(ChatRun *run, const ChatLoop *loop, const ChatCall *call);
void chat_pass(ChatRun *run, const ChatNode *first, ChatCall *call);
void chat_set(ChatRun *run, const char *name, ChatValue value);
/* chat_render — the template's text, in run->root. */
void chat_render(ChatRun *run);

const ChatRow *chat_row(ChatTable table, const char *name);
extern const ChatTable chat_globals, chat_filters, chat_tests, chat_text_methods, chat_dict_methods,
    chat_list_methods, chat_loop_methods;
/* Parts of chat_filters. */
extern const ChatTable chat_filters_of_order, chat_filters_of_text, chat_filters_of_numbers;
/* chat_member — a member as filters name it: "a.b.0", or any key. chat_member_or — `otherwise` for
 * what is undefined; a name that is absent or none is the value itself. chat_folded — without case,
 * as filters compare texts unless they are told to. */
ChatValue chat_member(ChatRun *run, ChatValue of, ChatValue name);
ChatValue chat_member_or(ChatRun *run, ChatValue of, ChatValue name, ChatValue otherwise);
ChatValue chat_folded(ChatRun *run, ChatValue value, bool minds_case);
/* chat_list_copy — a new list of what a value gives when it is walked. */
ChatValue chat_list_copy(ChatRun *run, ChatValue of);

/* What filters and methods share (text.c): the text in a case; in the middle, at the left or right
 * of `width` characters; cut into lines; with `from` as `to`, at most n times (n < 0: everywhere).
 */
typedef enum ChatCase { CHAT_UPPER, CHAT_LOWER, CHAT_TITLE, CHAT_CAPITALIZE, CHAT_SWAP } ChatCase;
ChatValue chat_in_case(ChatRun *run, ChatText text, ChatCase to);
void chat_pad(ChatRun *run, MxText *out, ChatText fill, int64_t n);
ChatValue chat_lines(ChatRun *run, ChatText text, bool keeps_ends);
ChatValue chat_replace(ChatRun *run, ChatText text, ChatText from, ChatText to, int64_t n);
ChatValue chat_centered(ChatRun *run, ChatText text, int64_t width, ChatText fill);
/* chat_argument_text, …_index — arguments of this kind, `otherwise` where they are left out. */
ChatText chat_argument_text(ChatRun *run, ChatValue value, ChatText otherwise);
int64_t chat_argument_index(ChatRun *run, ChatValue value, int64_t otherwise);

/* chat_format_percent — Python's "…" % values; chat_format_braces — "…".format(…). */
ChatValue chat_format_percent(ChatRun *run, ChatText format, ChatValue values);
ChatValue chat_format_braces(ChatRun *run, ChatText format, const ChatCall *call);
/* How json.dumps writes. */
typedef struct ChatDump {
    bool is_ascii, sorts;
    ChatText indent; /* data NULL = on one line */
    ChatText between, behind_key;
} ChatDump;
void chat_dump(ChatRun *run, MxText *out, ChatValue value, const ChatDump *how);

#endif
