/* base.h — what every room stands on: arenas, errors that carry a place, text, maps, logging,
 * random numbers, dtypes, shapes, files, hashes and JSON. Nothing here knows about models or
 * training. */
#ifndef MX_BASE_H
#define MX_BASE_H

#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define MX_VERSION           "0.1.0"
#define MX_VERSION_DATE      "2026-11-23"
#define MX_COUNT(array)      ((int)(sizeof(array) / sizeof((array)[0])))
#define MX_PRINTF(fmt, args) __attribute__((format(printf, fmt, args)))

/* ---- bugs */

/* MX_ASSERT — states what only a bug can break; stays on in release builds. Prints the C file and
 * line and aborts. */
#define MX_ASSERT(cond) ((cond) ? (void)0 : mx_assert_fail(#cond, __FILE__, __LINE__))
/* MX_BUG — a place that is reached through a bug only. */
#define MX_BUG(what) mx_assert_fail(what, __FILE__, __LINE__)
_Noreturn void mx_assert_fail(const char *cond, const char *file, int line);
/* mx_bug_is_told — in a handler of SIGABRT: whether one of these raised it. */
bool mx_bug_is_told(void);

/* mx_failpoint — a place where a test may kill the process: with MX_FAILPOINT=name or name:n in the
 * environment, SIGKILL when the place of that name is reached for the n-th time (n from 1).
 * Otherwise a look at the environment: for places that are passed a few times a second. */
void mx_failpoint(const char *name);

/* ---- arena */

typedef struct MxArenaChunk MxArenaChunk;
typedef struct MxArenaHook MxArenaHook;

/* Memory with one lifetime. A zeroed struct is an empty arena; `name` appears in the out-of-memory
 * message. Not safe for use by two threads at once: a thread that allocates has an arena of its
 * own. */
typedef struct MxArena {
    const char *name;
    MxArenaChunk *chunk;
    MxArenaHook *hooks;
    size_t used_bytes;
} MxArena;

/* mx_arena_alloc — zeroed memory, aligned to 16 bytes, that lives until the arena is released. Out
 * of memory is fatal (exit 71, with the size and the arena's name). */
void *mx_arena_alloc(MxArena *arena, size_t bytes);
#define mx_new(arena, type)      ((type *)mx_arena_alloc((arena), sizeof(type)))
#define mx_new_n(arena, type, n) ((type *)mx_arena_alloc((arena), sizeof(type) * (size_t)(n)))
/* mx_arena_grow — a copy of an array of n items with room for `cap` of them; the old one stays
 * where it is. */
void *mx_arena_grow(MxArena *arena, const void *items, size_t n, size_t cap, size_t item_bytes);
char *mx_arena_strdup(MxArena *arena, const char *s);
char *mx_arena_strndup(MxArena *arena, const char *s, size_t n);
char *mx_arena_printf(MxArena *arena, const char *fmt, ...) MX_PRINTF(2, 3);
/* mx_arena_on_release — calls fn(data) when the arena is released, last registered first; for
 * handles of libraries. */
void mx_arena_on_release(MxArena *arena, void (*fn)(void *), void *data);
void mx_arena_release(MxArena *arena);
/* mx_host_alloc_count — how often any arena has asked the system for memory; constant inside the
 * step loop. */
uint64_t mx_host_alloc_count(void);

/* ---- text */

/* A string under construction; `data` is always terminated (never NULL after mx_text_init). */
typedef struct MxText {
    MxArena *arena;
    char *data;
    size_t len, cap;
} MxText;

void mx_text_init(MxText *text, MxArena *arena);
void mx_text_add(MxText *text, const char *fmt, ...) MX_PRINTF(2, 3);
void mx_text_vadd(MxText *text, const char *fmt, va_list ap);
void mx_text_addn(MxText *text, const char *bytes, size_t n);
void mx_text_clear(MxText *text);

/* mx_figure — a number for people: with so many decimals, below 1 with as many more as three
 * significant digits take ("0.000115"); with an exponent below 1e-4 and from 1e15 on. Returns out.
 */
enum { MX_FIGURE = 32 };
const char *mx_figure(char out[MX_FIGURE], double value, int decimals);

/* mx_nearest — the candidate with the smallest edit distance to `word`, or NULL when none is close:
 * one slip in words of up to 6 letters, two in up to 10, else three. Ties go to the earlier
 * candidate. */
const char *mx_nearest(const char *word, const char *const *candidates, int n);
bool mx_text_has_prefix(const char *s, const char *prefix);
bool mx_text_has_suffix(const char *s, const char *suffix);
/* mx_number_text — a finite number in as few digits as read back the same, with a point or an
 * exponent: "0.1", "3.0", "1e-06". */
const char *mx_number_text(MxArena *arena, double number);
/* mx_text_add_shown — n bytes of any kind as a terminal may get them: what it would take for a
 * command (control characters but tab and line feed) and what is not UTF-8 in C's spelling.
 * mx_text_add_quoted — the same in double quotes, on one line. */
void mx_text_add_shown(MxText *text, const char *bytes, size_t n);
void mx_text_add_quoted(MxText *text, const char *bytes, size_t n);
/* mx_text_shown_bytes — how many leading bytes are shown as they are. */
size_t mx_text_shown_bytes(const char *bytes, size_t n);
/* mx_utf8_valid_bytes — how many leading bytes are well-formed UTF-8: n if all are, else the offset
 * of the first sequence that is not (overlong, surrogate, above U+10FFFF, cut short). */
size_t mx_utf8_valid_bytes(const char *text, size_t n);

/* ---- errors */

/* Exit codes of every tool. */
typedef enum MxExit {
    MX_EXIT_OK = 0,
    MX_EXIT_DIFFERENT = 1, /* a comparison found a difference, or training was aborted on NaN/Inf */
    MX_EXIT_CONFIG = 2,    /* command line or config */
    MX_EXIT_BAD_INPUT = 65,
    MX_EXIT_NO_MEMORY = 71,
    MX_EXIT_CANNOT_CREATE = 73,
    MX_EXIT_IO = 74,
    MX_EXIT_LOCKED = 75,
    MX_EXIT_PERMISSION = 77,
    MX_EXIT_SIGINT = 130,
    MX_EXIT_SIGTERM = 143,
} MxExit;

/* Where a value came from. file NULL = nowhere in particular; line and col are 1-based, 0 =
 * unknown. */
typedef struct MxWhere {
    const char *file;
    int line, col;
} MxWhere;

#define MX_NOWHERE ((MxWhere){0})

/* What went wrong, complete and ready to print. Start from {0}. Several failures may be collected:
 * each adds a line. */
typedef struct MxError {
    MxExit exit; /* of the first failure */
    int count;
    MxArena arena;
    MxText text;
    size_t *starts; /* [count] where each failure begins in the text */
} MxError;

/* mx_fail — adds one failure "file:line:col: message" and returns false. Messages: lower case, no
 * period, quotes around user's words, what was found and what was wanted. */
bool mx_fail(MxError *err, MxExit exit, MxWhere where, const char *fmt, ...) MX_PRINTF(4, 5);
/* mx_fail_errno — the same, with the system's reason appended and the exit code chosen from errno
 * (73, 74, 77). */
bool mx_fail_errno(MxError *err, const char *fmt, ...) MX_PRINTF(2, 3);
/* mx_note — adds an indented line (source line with caret, hint) to the last failure. */
void mx_note(MxError *err, const char *fmt, ...) MX_PRINTF(2, 3);
/* mx_context — puts "message: " before the text; returns false. */
bool mx_context(MxError *err, const char *fmt, ...) MX_PRINTF(2, 3);
/* mx_error_tell — prints all failures with mx_complain; nothing if there are none. */
void mx_error_tell(const MxError *err);
void mx_error_release(MxError *err);

/* ---- command lines */

/* An option: a flag, or a name with a value ("--name VALUE", "--name=VALUE"), or both: a flag that
 * may be followed by a value. */
typedef struct MxOption {
    const char *name;   /* "--name" */
    bool *flag;         /* set by it … */
    bool clears;        /* … or cleared */
    const char **value; /* receives the value: of a repeated option the last one, or … */
    int *count;         /* … all in order, as many as this then says */
    const char *takes;  /* the value, as manuals show it: "N", "FILE" and the other names of files
                           (MX_MANUAL_FILES), or its choices, "linen|nnx" */
    const char *doc;    /* what it does; keeps out of help and manual if NULL */
} MxOption;

/* A title, or what is typed, and what it means. */
typedef struct MxManualRow {
    const char *name, *text;
} MxManualRow;

/* What a program tells of itself; help, manual page and completion are made of it and the options.
 */
typedef struct MxManual {
    const char *program, *does;   /* "mxtrain", "trains language models" */
    const char *synopsis, *intro; /* "[OPTION]... SRC DST"; paragraphs, a blank line between two */
    const MxManualRow *arguments; /* what is no option; these end with a row without a name … */
    const MxManualRow *notes;     /* … as do those behind the options, "Exit codes" … */
    const MxManualRow *examples;  /* … and command lines; NULL = none */
    /* What arguments may begin so, a line each; NULL = names of files. */
    void (*complete)(const char *begin, MxText *out);
} MxManual;

/* What MxOption.takes and arguments call files and folders. */
#define MX_MANUAL_FILES "FILE DIR RUN SRC DST REF A B"

typedef struct MxOptions {
    const MxOption *rows;
    int n;
    bool passes_pairs; /* "--name=value" that is no option is not an error but part of the rest */
    const MxManual *manual;
} MxOptions;

/* mx_options_read — fills what the table points to. False without an error after what every program
 * answers: nothing is left to do then. These are --help, --version, --man (a manual page),
 * --completion SHELL (a script for bash, zsh or fish), and --complete BEFORE WORD, which such
 * scripts ask: what WORD may become after the word BEFORE, a line each, ":files" for names of
 * files. rest  [argc + 1] what is no option, in order, NULL after the last; all that follows "--"
 * Errors: unrecognized options, a value missing or in excess (exit 2). */
bool mx_options_read(MxOptions options, int argc, char **argv, const char **rest, MxError *err);
/* mx_option_int, …_number, …_bool — an option's value; text NULL leaves *out alone. Errors: exit 2.
 */
bool mx_option_int(const char *name, const char *text, int64_t low, int64_t high, int64_t *out,
                   MxError *err);
bool mx_option_number(const char *name, const char *text, double *out, MxError *err);
bool mx_option_bool(const char *name, const char *text, bool *out, MxError *err);

/* ---- the process */

/* What a program does: what it allocates in `program` lives until it ends. */
typedef MxExit MxTool(int argc, char **argv, MxArena *program, MxError *err);
/* mx_tool_main — a program's main function: runs it and prints its errors to stderr. Returns the
 * exit code. Of descriptors 0 to 2, those that are closed stay unusable, but no file gets their
 * number. */
int mx_tool_main(MxTool *run, int argc, char **argv);

/* A variable of the environment that a library reads while it is loaded, so before main. */
typedef struct MxEnvVar {
    const char *name, *value; /* value NULL = as it is */
    const char *unless;       /* another one by which users say the same; NULL = none */
} MxEnvVar;
/* mx_process_prepare — sees to it that libraries were loaded with these variables: sets those that
 * the user did not (neither them nor what `unless` names) and, if there are any, starts the program
 * again, with the same process id and descriptors. To be called first in main. If that fails the
 * program goes on without, with a warning. */
void mx_process_prepare(const MxEnvVar *variables, int n, char **argv);

/* mx_thread_start — a thread with all signals blocked: they are the main thread's. Returns 0 or an
 * errno. */
int mx_thread_start(pthread_t *thread, void *(*run)(void *data), void *data);

/* A bound on memory; INT64_MAX = none. */
typedef struct MxMemoryLimit {
    const char *name; /* "this machine", "the cgroup \"/a/b\"", "ulimit -v" */
    int64_t bytes;
} MxMemoryLimit;

typedef struct MxMemoryLimits {
    MxMemoryLimit memory;    /* the smallest of the machine's and its control groups', which other
                                processes share */
    MxMemoryLimit addresses; /* of this process: all it maps, used or not (ulimit -v) */
    MxMemoryLimit data;      /* the same of what it may write, files aside (ulimit -d) */
} MxMemoryLimits;

/* mx_memory_limits — what bounds the memory of this process.
 *   root  the folder with proc/self and the mounts of control groups, "/" but in tests */
MxMemoryLimits mx_memory_limits(MxArena *arena, const char *root);

/* ---- map */

/* Strings to integers (usually indices). Keys are borrowed: they must outlive the map. */
typedef struct MxMapSlot {
    const char *key;
    int64_t value;
} MxMapSlot;
typedef struct MxMap {
    MxArena *arena;
    MxMapSlot *slots;
    size_t cap, count;
} MxMap;

void mx_map_init(MxMap *map, MxArena *arena);
void mx_map_set(MxMap *map, const char *key, int64_t value);
/* mx_map_get — the value, or `missing`. */
int64_t mx_map_get(const MxMap *map, const char *key, int64_t missing);

/* ---- log */

/* mx_log — one line on stdout, flushed. mx_warn — "warning: …" on stderr. Both first clear a
 * progress bar. */
void mx_log(const char *fmt, ...) MX_PRINTF(1, 2);
void mx_warn(const char *fmt, ...) MX_PRINTF(1, 2);
/* mx_print — text on stdout; failures stay with the stream. All of these show what files, names and
 * arguments hold as mx_text_add_shown does. */
void mx_print(const char *fmt, ...) MX_PRINTF(1, 2);
/* mx_progress — redraws the one progress line on stderr; does nothing unless stderr is a terminal
 * (and TERM is not "dumb"). It fits the terminal: the bar gives way first. fraction in [0, 1];
 * eta_s < 0 = unknown. mx_progress_end removes the line. */
void mx_progress(double fraction, double eta_s, const char *fmt, ...) MX_PRINTF(3, 4);
void mx_progress_end(void);
/* mx_complain — "PROGRAM: error: …" on stderr, from a silent process too. */
void mx_complain(const char *fmt, ...) MX_PRINTF(1, 2);
/* mx_log_silence — this process, a rank other than the first of several, prints nothing from here
 * on but errors: the first one speaks for all. Its lines in a copy are marked "rank N: ". */
void mx_log_silence(int rank);
/* mx_log_copy — a file gets every line too, also of a silent process: appended, behind the time
 * (UTC), with the lines that came before the call. NULL = there will be no file. Until the process
 * ends; once in a process. */
bool mx_log_copy(const char *path, MxError *err);
/* mx_clock_s — monotonic seconds. */
double mx_clock_s(void);

/* ---- random */

/* mx_philox — Philox4x32-10: four 32-bit words that depend on (seed, stream, counter) alone, so any
 * element of any stream can be made on any rank or thread. Source: Salmon et al., SC 2011. */
void mx_philox(uint64_t seed, uint64_t stream, uint64_t counter, uint32_t out[4]);
/* mx_uniform — the top 23 bits of a word as a float in (0, 1); one bit more would round to 1. */
static inline float mx_uniform(uint32_t bits) {
    return ((float)(bits >> 9) + 0.5f) * (1.0f / 8388608.0f);
}

/* ---- dtype */

/* MX_DTYPE(symbol, name, bytes) */
#define MX_DTYPES(MX_DTYPE)                                                                        \
    MX_DTYPE(F32, "float32", 4)                                                                    \
    MX_DTYPE(BF16, "bfloat16", 2)                                                                  \
    MX_DTYPE(F64, "float64", 8)                                                                    \
    MX_DTYPE(F16, "float16", 2)                                                                    \
    MX_DTYPE(I64, "int64", 8)                                                                      \
    MX_DTYPE(I32, "int32", 4)                                                                      \
    MX_DTYPE(U32, "uint32", 4)                                                                     \
    MX_DTYPE(U16, "uint16", 2)                                                                     \
    MX_DTYPE(I8, "int8", 1)                                                                        \
    MX_DTYPE(U8, "uint8", 1)

typedef enum MxDtype {
#define MX_DTYPE(symbol, name, bytes) MX_##symbol,
    MX_DTYPES(MX_DTYPE)
#undef MX_DTYPE
        MX_DTYPE_COUNT
} MxDtype;

const char *mx_dtype_name(MxDtype dtype);
size_t mx_dtype_bytes(MxDtype dtype);
bool mx_dtype_is_float(MxDtype dtype);
/* mx_dtype_parse — by name ("float32", "bfloat16", …); false if there is none such. */
bool mx_dtype_parse(const char *name, MxDtype *out);

/* bfloat16 is the upper half of a float32; rounding is to nearest even, NaN stays NaN. */
typedef uint16_t MxBf16;
static inline float mx_bf16_to_f32(MxBf16 x) {
    uint32_t u = (uint32_t)x << 16;
    float f;
    memcpy(&f, &u, sizeof f);
    return f;
}
static inline MxBf16 mx_f32_to_bf16(float f) {
    uint32_t u;
    memcpy(&u, &f, sizeof u);
    uint32_t rounded = u + 0x7fffu + (u >> 16 & 1u);
    rounded = f != f ? u | 0x00400000u : rounded;
    return (MxBf16)(rounded >> 16);
}

/* ---- shape */

enum { MX_MAX_RANK = 6 };

/* Sizes of a dense row-major array, in elements; rank 0 is a scalar. */
typedef struct MxShape {
    int rank;
    int64_t dim[MX_MAX_RANK];
} MxShape;

#define MX_SHAPE(...)                                                                              \
    ((MxShape){.rank = (int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)),                  \
               .dim = {__VA_ARGS__}})
#define MX_SCALAR ((MxShape){0})

int64_t mx_shape_count(MxShape shape);
bool mx_shape_equal(MxShape a, MxShape b);
/* mx_shape_text — "[4, 512]" in a buffer of the arena. */
const char *mx_shape_text(MxArena *arena, MxShape shape);

/* Part of an array: elements start[d] … start[d] + count[d] - 1 of each dim. */
typedef struct MxBox {
    int rank;
    int64_t start[MX_MAX_RANK], count[MX_MAX_RANK];
} MxBox;

MxBox mx_box_of(MxShape shape); /* all of it */
int64_t mx_box_count(const MxBox *box);
bool mx_box_equal(const MxBox *a, const MxBox *b);
/* mx_box_meet — what two boxes of one array share; maybe without elements. */
MxBox mx_box_meet(const MxBox *a, const MxBox *b);
/* mx_box_insert — the box in an array that has one dim more, at `dim`. */
MxBox mx_box_insert(MxBox box, int dim, int64_t start, int64_t count);

/* How the elements of a box lie in two boxes around it, each dense and row-major: `n` runs of
 * `length` elements that are contiguous in both, in order. */
typedef struct MxBoxRuns {
    MxBox box, in[2];
    int outer; /* dims that runs do not span */
    int64_t n, length;
} MxBoxRuns;

/* mx_box_runs — of a box with elements that lies inside a and b. */
MxBoxRuns mx_box_runs(const MxBox *box, const MxBox *a, const MxBox *b);
/* mx_box_run_at — where run i starts in both, in elements. */
void mx_box_run_at(const MxBoxRuns *runs, int64_t i, int64_t at[2]);
/* mx_box_copy — the elements of `box` from one box's memory to another's. */
void mx_box_copy(const MxBox *box, const MxBox *from, const void *from_data, const MxBox *to,
                 void *to_data, size_t element_bytes);

/* ---- files */

typedef struct MxBytes {
    uint8_t *data; /* one NUL follows the last byte */
    size_t size;
} MxBytes;

/* mx_file_read — a whole file. Errors: missing, unreadable, a directory, larger than max_bytes. */
bool mx_file_read(MxArena *arena, const char *path, size_t max_bytes, MxBytes *out, MxError *err);
/* mx_file_write — replaces a file as a whole: temp file beside it, fsync, rename, fsync of the
 * folder. Symbolic links are followed and stay; devices, pipes and terminals are written to. */
bool mx_file_write(const char *path, const void *data, size_t size, MxError *err);
bool mx_file_exists(const char *path);
bool mx_dir_exists(const char *path);
/* mx_dir_make — the folder and its parents, mode 0777 & ~umask; an existing folder is fine. */
bool mx_dir_make(const char *path, MxError *err);
/* mx_dir_list — names in a folder without . and .., sorted bytewise. */
bool mx_dir_list(MxArena *arena, const char *path, char ***names, int *n, MxError *err);
/* mx_dir_remove — a folder and all below it. */
bool mx_dir_remove(const char *path, MxError *err);
/* mx_path_sync — fsync of a file or folder. */
bool mx_path_sync(const char *path, MxError *err);
char *mx_path_join(MxArena *arena, const char *dir, const char *name);
/* mx_share_dir — the folder of what was installed with the program: ../share/mxtrain from the
 * program's own, so that both may be moved together. It may not be there. */
char *mx_share_dir(MxArena *arena);
/* mx_path_dir — everything before the last slash, "." if there is none. */
char *mx_path_dir(MxArena *arena, const char *path);

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
/* mx_json_put_object — adds a new empty object under `key` and returns it; mx_json_push_object — at
 * an array's end. */
MxJson *mx_json_put_object(MxJson *object, const char *key);
MxJson *mx_json_put_array(MxJson *object, const char *key);
MxJson *mx_json_push_object(MxJson *array);
void mx_json_push_string(MxJson *array, const char *value);
void mx_json_push_int(MxJson *array, int64_t value);
/* mx_json_dump — text; members in the order in which they were added; 17 significant digits. */
char *mx_json_dump(MxArena *arena, const MxJson *value, bool indent);

/* mx_json_quote — n bytes as a JSON string. */
char *mx_json_quote(MxArena *arena, const char *bytes, size_t n);

/* mx_json_parse — `name` and the line go into the message; duplicate keys are refused. */
MxJson *mx_json_parse(MxArena *arena, const char *text, size_t size, const char *name,
                      MxError *err);
/* mx_json_parse_line — one line of a JSON Lines file, as its users write them: of a repeated key
 * the last counts, a string may hold NUL, whole numbers of any size are read as reals. `where` goes
 * into the message: the line where the text begins, behind column `col`. */
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
