/* internal.h — shared by the files of the room. A grammar is a network of states (grammar.c), which
 * schemas (schema.c and the files of their words) and regular expressions (pattern.c) are written
 * into. A walk (walk.c) follows a text through it. Nothing here is recursive on a text's depth. */
#ifndef GUIDE_INTERNAL_H
#define GUIDE_INTERNAL_H

#include <mx/guide.h>

/* ---- grammars (grammar.c) */

typedef enum EdgeKind { EDGE_BYTES, EDGE_NOTHING, EDGE_CALL, EDGE_RETURN } EdgeKind;

typedef struct Edge {
    uint8_t kind;      /* an EdgeKind */
    uint8_t low, high; /* bytes */
    int32_t from, to;
    int32_t rule; /* the first state of what comes between, which a return ends */
    int32_t next; /* edge from the same state; 0 = none */
} Edge;

enum {
    GUIDE_MOST_STATES = 1 << 16,
    GUIDE_DEEPEST = 128, /* rules in rules */
    GUIDE_NEVER = 1 << 20,
    GUIDE_UNBOUNDED = INT32_MAX,
    GUIDE_MOST_SPACES = 64, /* at a line's beginning */
    GUIDE_MARK = 0xff,      /* a byte that text in UTF-8 does not have: a mark's number follows */
};

struct MxGrammar {
    MxArena *arena;
    Edge *edge; /* [n_edges] number 0 is none */
    int32_t n_edges, cap_edges, n_states, cap_states;
    int32_t *first;  /* [n_states] edge of each state */
    int32_t *height; /* [n_states] rules within rules to its end; GUIDE_NEVER = it has no end */
    int32_t *plain;  /* [n_states] how many characters of plain texts may follow at least */
    bool is_full;    /* more was added than there is room for */
    int32_t spaces, character, text, number, integer, any; /* rules; 0 = not needed so far */
};

void guide_set(MxGrammar *g, int32_t from, const char *bytes, int32_t to);
void guide_call(MxGrammar *g, int32_t from, int32_t rule, int32_t to);
/* guide_rule — the first state of a new rule; *end: where it returns. */
int32_t guide_rule(MxGrammar *g, int32_t *end);
/* guide_returns — whether a state does nothing but return. */
bool guide_returns(const MxGrammar *g, int32_t state);
void guide_textn(MxGrammar *g, int32_t from, const char *text, size_t n, int32_t to);

/* ---- parts of JSON (json.c) */

/* guide_spaces — any number of spaces. guide_character — a character of more than one byte.
 * guide_json_text — a text in quotes with min to max characters. guide_json_number — without
 * bounds. guide_plain_byte — whether a byte stands for itself in a text of JSON. */
void guide_spaces(MxGrammar *g, int32_t from, int32_t to);
void guide_character(MxGrammar *g, int32_t from, int32_t to);
void guide_json_text(MxGrammar *g, int32_t from, int64_t min, int64_t max, int32_t to);
void guide_json_number(MxGrammar *g, int32_t from, bool is_integer, int32_t to);
/* guide_json_key — a text in quotes that is none of [n] texts, without escapes. */
void guide_json_key(MxGrammar *g, int32_t from, const char *const *others, int64_t n, int32_t to);
/* guide_choice — any of [n] texts of bytes, which it sorts. */
void guide_choice(MxGrammar *g, int32_t from, const char **texts, int64_t n, int32_t to);
/* guide_codes — the characters from low to high, in UTF-8. */
void guide_codes(MxGrammar *g, int32_t from, uint32_t low, uint32_t high, int32_t to);

/* ---- numbers with bounds (bounds.c) */

/* guide_range — numbers from low to high, of a unit of 10^-decimals, with as many digits behind the
 * point at most. The ends are below 10^GUIDE_DIGITS. */
enum { GUIDE_DIGITS = 18 };
void guide_range(MxGrammar *g, int32_t from, int64_t low, int64_t high, int decimals, int32_t to);

/* ---- regular expressions (pattern.c) */

/* How the characters of a text are written. */
typedef struct Writing {
    bool is_raw; /* as they are, but no '<'; else as in JSON, between quotes */
    int64_t min, max;
} Writing;

/* guide_pattern — texts in which a regular expression is found (JavaScript's, Python's), with min
 * to max characters. NULL, or what is wrong with it. */
const char *guide_pattern(MxGrammar *g, int32_t from, const char *pattern, Writing how, int32_t to);

/* ---- schemas */

/* A schema in the making. */
typedef struct Schemas {
    MxGrammar *g;
    const MxJson *root;
    const char *name;
    const MxGrammarTags *tags; /* of members of the object in work; NULL = as JSON */
    const char *end;           /* of raw texts; NULL = texts are JSON's */
    MxMap rules;               /* of what "$ref" names */
    struct Pending {
        const char *path;
        const MxJson *schema;
        const MxGrammarTags *tags;
        const char *end_of_raw;
        int32_t start, end;
    } * pending; /* rules that are to be written */
    int64_t n_pending, cap_pending;
    int depth;
    int64_t n_read;   /* schemas so far, also those made of others */
    const char *path; /* where it is, for messages */
    MxError *err;
} Schemas;

/* schema_may_read — counts what reading a schema costs; an error if all of it is too much.
 * schema_fail — at a member of the schema in work; "" = at itself. schema_want — that its value is
 * another one than it may be. schema_write — paths of its values (schema.c). schema_object,
 * …_array, …_string, …_number — those of a type. schema_any — the rule of any value. schema_merge —
 * what is of both schemas; NULL = an error (merge.c). schema_find — what a reference names. */
bool schema_may_read(Schemas *s, int64_t cost);
bool schema_fail(Schemas *s, const char *member, const char *fmt, ...) MX_PRINTF(3, 4);
bool schema_want(Schemas *s, const char *member, const MxJson *found, const char *wanted);
bool schema_write(Schemas *s, const MxJson *schema, const char *member, int32_t from, int32_t to);
bool schema_object(Schemas *s, const MxJson *schema, int32_t from, int32_t to);
bool schema_array(Schemas *s, const MxJson *schema, int32_t from, int32_t to);
bool schema_string(Schemas *s, const MxJson *schema, int32_t from, int32_t to);
bool schema_number(Schemas *s, const MxJson *schema, bool is_integer, int32_t from, int32_t to);
int32_t schema_any(Schemas *s);
MxJson *schema_merge(Schemas *s, const MxJson *a, const MxJson *b, int depth);
const MxJson *schema_find(Schemas *s, const MxJson *schema);
/* schema_count — a member that is a count, if it is there. */
bool schema_count(Schemas *s, const MxJson *schema, const char *member, int64_t *out);
bool schema_is(const MxJson *value, const char *kind);
bool schema_is_note(const char *word);

#endif
