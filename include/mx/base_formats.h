/* base_formats.h — hashes, protocol buffers, regular expressions and JSON; a part of base.h, which
 * includes it. */
#ifndef MX_BASE_FORMATS_H
#define MX_BASE_FORMATS_H

#include <mx/base.h>

/* ---- hash */

/* XXH3 (libxxhash); 64 bits. */
uint64_t mx_hash64(const void *data, size_t bytes);

/* The same of data that comes in pieces. */
typedef struct MxHash MxHash;
MxHash *mx_hash_new(MxArena *arena);
void mx_hash_add(MxHash *hash, const void *data, size_t bytes);
uint64_t mx_hash_value(const MxHash *hash); /* of all that was added so far */

/* mx_crc32c — CRC-32C (Castagnoli): what finds damage in TFRecord files. Source: RFC 3720, B.4.
 * mx_crc32c_masked — the same as those files hold it: turned and with a constant added, so that
 * sums of data that hold sums are fine too. Source: TensorFlow, tsl/lib/hash/crc32c.h. Test:
 * tests/base/test_crc32c.c. */
uint32_t mx_crc32c(const void *data, size_t bytes);
uint32_t mx_crc32c_masked(const void *data, size_t bytes);

/* mx_base64 — the bytes that n characters of base64 stand for, with or without padding; false =
 * they are none. */
bool mx_base64(MxArena *arena, const char *text, size_t n, MxBytes *out);

/* ---- messages of protocol buffers */

/* What is left of a message; `why` says what is no message in it, NULL so far. */
typedef struct MxProto {
    const uint8_t *at, *end;
    const char *why;
} MxProto;

typedef enum MxProtoWire {
    MX_PROTO_VARINT,
    MX_PROTO_64,
    MX_PROTO_BYTES,
    MX_PROTO_32 = 5
} MxProtoWire;

/* One field of a message. */
typedef struct MxProtoField {
    uint64_t number;
    MxProtoWire wire;
    uint64_t value; /* a number as it stands there; of MX_PROTO_BYTES, their count */
    MxProto bytes;  /* of MX_PROTO_BYTES: a message, a text, or numbers */
} MxProtoField;

/* mx_proto_of — the message of these bytes, which stay where they are.
 * mx_proto_varint — a number of 1 to 10 bytes; false and why when there is none.
 * mx_proto_next — the next field; false at the end, and false with why where the bytes are no
 * message. What fields mean is their readers' matter. Source: protobuf.dev, Encoding. Test:
 * tests/base/test_proto.c. */
MxProto mx_proto_of(const void *data, uint64_t bytes);
bool mx_proto_varint(MxProto *message, uint64_t *out);
bool mx_proto_next(MxProto *message, MxProtoField *out);

/* ---- regular expressions */

/* A compiled regular expression (PCRE2), in Python's syntax. */
typedef struct MxRegex MxRegex;

typedef enum MxMatch {
    MX_MATCH_NONE,
    MX_MATCH_PART,    /* it matches inside the text (Python's re.search) */
    MX_MATCH_WHOLE,   /* it can match all of the text (re.fullmatch) */
    MX_MATCH_GAVE_UP, /* too many ways to try: the pattern backtracks without end */
} MxMatch;

/* mx_regex_new — compiles a pattern; NULL if it is none, and why. */
MxRegex *mx_regex_new(MxArena *arena, const char *pattern, const char **why);
MxMatch mx_regex_match(const MxRegex *regex, const char *text);

/* mx_regex_expand — the text of a template (form) where the pattern matches all of `text`, as
 * Python's Match.expand: \1 and \g<1> are groups, \g<name> those with names, and a group without a
 * match is empty. NULL with *why NULL = the text does not match; otherwise why there is no text. */
const char *mx_regex_expand(MxArena *arena, const MxRegex *regex, const char *text,
                            const char *form, const char **why);

/* mx_regex_new_unicode — the same for finding in text of any script: classes such as \d follow
 * Unicode's properties, ^ and $ match at lines, and it becomes machine code where that works. */
MxRegex *mx_regex_new_unicode(MxArena *arena, const char *pattern, const char **why);
/* What a search needs besides its pattern: one for each thread. */
typedef struct MxFinder MxFinder;
MxFinder *mx_finder_new(MxArena *arena, const MxRegex *regex);
/* mx_finder_next — the first match at or behind `from` in n bytes of well-formed UTF-8: its bytes
 * are span[0] … span[1] - 1. MX_MATCH_PART, MX_MATCH_NONE or MX_MATCH_GAVE_UP. */
MxMatch mx_finder_next(MxFinder *finder, const char *text, size_t n, size_t from, size_t span[2]);

/* ---- JSON */

/* A JSON value (jansson). Values made here belong to the arena; children belong to their parent. */
typedef struct MxJson MxJson;

MxJson *mx_json_object(MxArena *arena);
/* Setters add or replace a member; numbers that are not finite become null. */
void mx_json_set_number(MxJson *object, const char *key, double value);
void mx_json_set_int(MxJson *object, const char *key, int64_t value);
void mx_json_set_bool(MxJson *object, const char *key, bool value);
void mx_json_set_string(MxJson *object, const char *key, const char *value);
void mx_json_set(MxJson *object, const char *key, const MxJson *value); /* shares it */
void mx_json_remove(MxJson *object, const char *key);                   /* if it is there */
/* mx_json_put_object — adds a new empty object under `key` and returns it; mx_json_push_object — at
 * an array's end. */
MxJson *mx_json_put_object(MxJson *object, const char *key);
MxJson *mx_json_put_array(MxJson *object, const char *key);
MxJson *mx_json_push_object(MxJson *array);
void mx_json_push_string(MxJson *array, const char *value);
void mx_json_push_int(MxJson *array, int64_t value);
void mx_json_push(MxJson *array, const MxJson *value); /* shares it */
/* mx_json_dump — text; members in the order in which they were added; 17 significant digits. */
char *mx_json_dump(MxArena *arena, const MxJson *value, bool indent);

/* mx_json_quote — n bytes as a JSON string. */
char *mx_json_quote(MxArena *arena, const char *bytes, size_t n);

/* mx_json_parse — `name` and the line go into the message; duplicate keys are refused. Whole
 * numbers that do not fit 64 bits are read as reals. */
MxJson *mx_json_parse(MxArena *arena, const char *text, size_t size, const char *name,
                      MxError *err);
/* mx_json_parse_line — one line of a JSON Lines file, as its users write them: of a repeated key
 * the last counts, a string may hold NUL, whole numbers may have any size. `where` goes into the
 * message: the line where the text begins, behind column `col`. */
MxJson *mx_json_parse_line(MxArena *arena, const char *text, size_t size, MxWhere where,
                           MxError *err);
/* mx_json_parse_value — a value of any kind, which is all of the text; a string may hold NUL. */
MxJson *mx_json_parse_value(MxArena *arena, const char *text, size_t size, MxWhere where,
                            MxError *err);
MxJson *mx_json_get(const MxJson *object, const char *key); /* NULL if missing */
const char *mx_json_string(const MxJson *value);            /* NULL if not a string */
size_t mx_json_string_bytes(const MxJson *value);           /* 0 if not a string */
/* mx_json_kind — "an object", "a list", "a text", "a number", "true or false" or "null". */
const char *mx_json_kind(const MxJson *value);
bool mx_json_number(const MxJson *value, double *out);
bool mx_json_int(const MxJson *value, int64_t *out);
bool mx_json_bool(const MxJson *value, bool *out);
size_t mx_json_length(const MxJson *value); /* of an array or object; 0 otherwise */
MxJson *mx_json_at(const MxJson *array, size_t i);
bool mx_json_member(const MxJson *object, size_t i, const char **key, MxJson **value);
/* mx_json_next — members in order, in time that does not grow with their number. *at is NULL before
 * the first; false behind the last. */
bool mx_json_next(const MxJson *object, void **at, const char **key, MxJson **value);

#endif
