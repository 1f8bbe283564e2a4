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
    int32_t spaces, character, number, integer; /* rules; 0 = not needed so far */
    MxMap known;                                /* other rules, by what they are of */
};

void guide_set(MxGrammar *g, int32_t from, const char *bytes, int32_t to);
void guide_call(MxGrammar *g, int32_t from, int32_t rule, int32_t to);
/* guide_rule — the first state of a new rule; *end: where it returns. */
int32_t guide_rule(MxGrammar *g, int32_t *end);
/* guide_returns — whether a state does nothing but return. */
bool guide_returns(const MxGrammar *g, int32_t state);
void guide_textn(MxGrammar *g, int32_t from, const char *text, size_t n, int32_t to);

/* ---- values (values.c) */

/* How a text is written. */
typedef struct Writing {
    const MxGrammarValues *values;
    char quote; /* one of its quotes; 0 = as it is, and without the first character of `without` */
    int64_t min, max; /* characters */
} Writing;

/* values_within — how values are written that are parts of one. values_has_name — whether a member
 * can have a name. values_write — a value; NULL = it cannot be written so. */
const MxGrammarValues *values_within(const MxGrammarValues *values);
bool values_has_name(const MxGrammarValues *values, const char *name);
const char *values_write(MxArena *arena, const MxGrammarValues *values, const MxJson *value,
                         char quote);

/* ---- parts of JSON (json.c) */

/* guide_spaces — a space, or a line's end with others, or nothing. guide_character — a character of
 * more than one byte. guide_quoted — what stands between quotes: any text. guide_number — without
 * bounds. */
void guide_spaces(MxGrammar *g, int32_t from, int32_t to);
void guide_character(MxGrammar *g, int32_t from, int32_t to);
void guide_quoted(MxGrammar *g, int32_t from, Writing how, int32_t to);
void guide_number(MxGrammar *g, int32_t from, bool is_integer, int32_t to);
/* guide_choice — any of [n] texts of bytes, which it sorts. */
void guide_choice(MxGrammar *g, int32_t from, const char **texts, int64_t n, int32_t to);
/* guide_codes — the characters from low to high, in UTF-8. */
void guide_codes(MxGrammar *g, int32_t from, uint32_t low, uint32_t high, int32_t to);

/* ---- numbers with bounds (bounds.c) */

/* Numbers from low to high, of a unit of 10^-decimals, with as many digits behind the point at
 * most, that are multiples of `step` units. The ends are below 10^GUIDE_DIGITS. */
enum { GUIDE_DIGITS = 18, GUIDE_MOST_STEP = 4096 };
typedef struct NumberRange {
    int64_t low, high, step;
    int decimals;
} NumberRange;
void guide_range(MxGrammar *g, int32_t from, NumberRange range, int32_t to);

/* ---- schemas */

/* Types that schemas have words for. */
enum {
    TYPE_OBJECT = 1 << 0,
    TYPE_LIST = 1 << 1,
    TYPE_TEXT = 1 << 2,
    TYPE_NUMBER = 1 << 3,
    TYPE_INTEGER = 1 << 4,
    TYPE_BOOLEAN = 1 << 5,
    TYPE_NULL = 1 << 6,
};

/* A schema in the making. */
typedef struct Schemas {
    MxGrammar *g;
    const MxJson *root;
    const char *name;
    const MxGrammarValues *values; /* how those in work are written */
    MxMap rules;                   /* of what "$ref" names */
    struct Pending {
        const char *path;
        const MxJson *schema;
        const MxGrammarValues *values;
        int32_t start, end;
    } * pending; /* rules that are to be written */
    int64_t n_pending, cap_pending;
    int depth;
    int64_t n_read;   /* schemas so far, also those made of others */
    int64_t n_quick;  /* pairs of constants that were compared */
    const char *path; /* where it is, for messages */
    MxError *err;
} Schemas;

/* schema_may_read — counts what reading a schema costs; an error if all of it is too much.
 * schema_fail — at a member of the schema in work; "" = at itself. schema_want — that its value is
 * another one than it may be. schema_write — paths of its values (schema.c). schema_object,
 * …_array, …_string, …_number — those of a type. schema_any — the rule of any value. schema_find —
 * what a reference names. schema_without — a schema without one of its words, and without notes. */
bool schema_may_read(Schemas *s, int64_t cost);
bool schema_fail(Schemas *s, const char *member, const char *fmt, ...) MX_PRINTF(3, 4);
bool schema_want(Schemas *s, const char *member, const MxJson *found, const char *wanted);
bool schema_write(Schemas *s, const MxJson *schema, const char *member, int32_t from, int32_t to);
bool schema_object(Schemas *s, const MxJson *schema, int32_t from, int32_t to);
bool schema_array(Schemas *s, const MxJson *schema, int32_t from, int32_t to);
bool schema_string(Schemas *s, const MxJson *schema, int32_t from, int32_t to);
bool schema_number(Schemas *s, const MxJson *schema, bool is_integer, int32_t from, int32_t to);
int32_t schema_any(Schemas *s);
const MxJson *schema_find(Schemas *s, const MxJson *schema);
MxJson *schema_without(Schemas *s, const MxJson *schema, const char *word);
/* schema_count — a member that is a count, if it is there. schema_values — the values of a schema
 * that names them, as a list; NULL = it does not, or an error. */
bool schema_count(Schemas *s, const MxJson *schema, const char *member, int64_t *out);
const MxJson *schema_values(Schemas *s, const MxJson *schema);

/* ---- words (words.c) */

/* schema_words — the types that all words of a schema say something of; false = an error.
 * schema_knows — whether it is a word. schema_is_note — which changes no value. schema_type_bits —
 * of a type's name; 0 = there is none. schema_type_of — of a value: an integer is also a number.
 * schema_is — whether it is of a kind (mx_json_kind). */
bool schema_words(Schemas *s, const MxJson *schema, unsigned *out);
bool schema_knows(const char *word);
bool schema_is_note(const char *word);
unsigned schema_type_bits(const char *name);
unsigned schema_type_of(const MxJson *value);
bool schema_is(const MxJson *value, const char *kind);

/* ---- schemas of others (merge.c, opposite.c) */

/* schema_merge — what is of both schemas; NULL = an error. schema_open — one whose reference, if it
 * is one, is what it names, and whose words are those that are merged. schema_opposite — what is
 * not of it; NULL = an error, or *why is a word whose opposite is not available. schema_is_atoms —
 * whether that is left as "not". schema_excludes — whether nothing that is written of one schema is
 * of another one; is_whole: nothing will be merged into it. */
MxJson *schema_merge(Schemas *s, const MxJson *a, const MxJson *b, int depth);
const MxJson *schema_open(Schemas *s, const MxJson *schema, int depth);
MxJson *schema_opposite(Schemas *s, const MxJson *schema, int depth, const char **why);
bool schema_is_atoms(const MxJson *schema);
bool schema_excludes(Schemas *s, const MxJson *written, const MxJson *other, bool is_whole,
                     int depth);

/* ---- values of schemas (check.c) */

typedef enum Fit { MISFIT, UNSURE, FIT } Fit;

/* schema_fits — whether a value is of a schema in another one. json_is_same. schema_at — a place,
 * such as "#/$defs/a"; NULL = there is none. schema_format — a format's pattern; NULL = it is not
 * known. schema_is_multiple — false = they have too many digits. */
Fit schema_fits(MxArena *arena, const MxJson *root, const MxJson *schema, const MxJson *value);
bool json_is_same(const MxJson *a, const MxJson *b);
const MxJson *schema_at(MxArena *arena, const MxJson *root, const char *path);
const char *schema_format(const MxJson *name);
bool schema_is_multiple(MxArena *arena, double value, double step, bool *out);

#endif
