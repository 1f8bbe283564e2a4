/* base.h — the basis of every room: arenas, errors with places, text, maps, logging, random
 * numbers, dtypes, shapes, files, hashes and JSON. Nothing here knows about models or training. */
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

/* MX_ASSERT — checks a condition that only a bug can violate; stays on in release builds. Prints
 * the C file and line and aborts. */
#define MX_ASSERT(cond) ((cond) ? (void)0 : mx_assert_fail(#cond, __FILE__, __LINE__))
/* MX_BUG — marks code that only a bug can reach. */
#define MX_BUG(what) mx_assert_fail(what, __FILE__, __LINE__)
_Noreturn void mx_assert_fail(const char *cond, const char *file, int line);
/* mx_bug_is_told — in a handler of SIGABRT: whether one of these has raised and reported it. */
bool mx_bug_is_told(void);

/* mx_failpoint — a place where a test can kill the process: with MX_FAILPOINT=name or name:n in the
 * environment, SIGKILL when the place of that name is reached for the n-th time (n from 1).
 * Otherwise it costs a lookup in the environment, so use it only in places that are reached at most
 * a few times a second. */
void mx_failpoint(const char *name);

/* ---- arena */

typedef struct MxArenaChunk MxArenaChunk;
typedef struct MxArenaHook MxArenaHook;

/* Memory with one lifetime. A zeroed struct is an empty arena; `name` appears in the out-of-memory
 * message. Two threads must not use an arena at once: a thread that allocates has its own arena. */
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
/* mx_arena_grow — a copy of an array of n items with room for `cap` items; the old array stays
 * valid. */
void *mx_arena_grow(MxArena *arena, const void *items, size_t n, size_t cap, size_t item_bytes);
char *mx_arena_strdup(MxArena *arena, const char *s);
char *mx_arena_strndup(MxArena *arena, const char *s, size_t n);
char *mx_arena_printf(MxArena *arena, const char *fmt, ...) MX_PRINTF(2, 3);
char *mx_arena_vprintf(MxArena *arena, const char *fmt, va_list ap);
/* mx_arena_on_release — calls fn(data) when the arena is released, last registered first; for
 * handles of libraries. */
void mx_arena_on_release(MxArena *arena, void (*fn)(void *), void *data);
void mx_arena_release(MxArena *arena);
/* mx_host_alloc_count — number of times that arenas have requested memory from the system; constant
 * inside the step loop. */
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
/* mx_text_stdin_line — replaces the text by the next line of stdin, without its line end; false at
 * the end of the input and after an error (ferror). */
bool mx_text_stdin_line(MxText *text);

/* mx_figure — a number for people: with `decimals` decimals, below 1 with as many as three
 * significant digits need ("0.000115"); with an exponent below 1e-4 and from 1e15 on. Returns out.
 */
enum { MX_FIGURE = 32 };
const char *mx_figure(char out[MX_FIGURE], double value, int decimals);

/* mx_nearest — the candidate with the smallest edit distance to `word`, or NULL when none is close:
 * one slip in words of up to 6 letters, two in up to 10, else three. Ties go to the earlier
 * candidate. */
const char *mx_nearest(const char *word, const char *const *candidates, int n);
bool mx_text_has_prefix(const char *s, const char *prefix);
bool mx_text_has_suffix(const char *s, const char *suffix);
/* mx_text_has_word — whether a text, as words separated by blanks, contains this word. */
bool mx_text_has_word(const char *words, const char *word);
/* mx_number_text — a finite number with the fewest digits that read back the same, with a point or
 * an exponent: "0.1", "3.0", "1e-06". */
const char *mx_number_text(MxArena *arena, double number);
/* mx_text_add_form — a form whose {name} become the values of n names; {{ and }} are braces, as in
 * Python's str.format. Returns where the form is wrong: at a brace that has no other, or a name
 * that is none of these; NULL = it is not. */
const char *mx_text_add_form(MxText *text, const char *form, const char *const *names,
                             const char *const *values, int n);
/* mx_text_add_shown — arbitrary bytes in a form that is safe for a terminal: control characters
 * except tab and line feed, and bytes that are not UTF-8, are written as C escapes.
 * mx_text_add_quoted — the same in double quotes, on one line. */
void mx_text_add_shown(MxText *text, const char *bytes, size_t n);
void mx_text_add_quoted(MxText *text, const char *bytes, size_t n);
/* mx_text_shown_bytes — number of leading bytes that need no escape. */
size_t mx_text_shown_bytes(const char *bytes, size_t n);
/* mx_utf8_valid_bytes — number of leading bytes that are well-formed UTF-8: n, or the offset of the
 * first sequence that is not (overlong, surrogate, above U+10FFFF, truncated). */
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

/* Error messages, complete and ready to print. Start from {0}. Several failures can be collected:
 * each adds a line. */
typedef struct MxError {
    MxExit exit; /* of the first failure */
    int count;
    MxArena arena;
    MxText text;
    size_t *starts; /* [count] offset of each failure in the text */
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
/* mx_error_tell — prints all failures with mx_complain, if there are any. */
void mx_error_tell(const MxError *err);
void mx_error_release(MxError *err);

/* ---- command lines */

/* An option: a flag, or a name with a value ("--name VALUE", "--name=VALUE"), or both: a flag that
 * may be followed by a value. */
typedef struct MxOption {
    const char *name;   /* "--name" */
    bool *flag;         /* set by the option … */
    bool clears;        /* … or cleared */
    const char **value; /* receives the value: the last one of a repeated option, or … */
    int *count;         /* … all values in order, with their number in *count */
    const char *takes;  /* the value, as manuals show it: "N", "FILE" and other names of files
                           (MX_MANUAL_FILES), or its choices, "linen|nnx" */
    const char *doc;    /* description; NULL = hidden from help and manual */
    bool is_main;       /* --help shows it, up to its first "; ", ". " or " ("; else --help-all */
} MxOption;

/* A title or an argument, with its text. */
typedef struct MxManualRow {
    const char *name, *text;
} MxManualRow;

/* The manual of a program. Help, manual page and completion are generated from it and the options.
 */
typedef struct MxManual {
    const char *program, *does;   /* "mxtrain", "train language models" */
    const char *synopsis, *intro; /* "[OPTION]... SRC DST"; paragraphs, a blank line between two */
    const MxManualRow *arguments; /* arguments; the list ends with a row without a name … */
    const MxManualRow *notes;     /* … as do the notes after the options, "Exit codes" … */
    const MxManualRow *examples;  /* … and examples of command lines; NULL = none */
    const char *details;          /* what --verbose also prints; NULL = nothing */
    /* Adds the arguments that begin with `begin`, one per line; NULL = names of files. */
    void (*complete)(const char *begin, MxText *out);
} MxManual;

/* mx_troff_add — text for man(7): troff's syntax is escaped, a blank line begins a paragraph.
 * mx_troff_section — the heading of a section. */
void mx_troff_add(MxText *out, const char *text);
void mx_troff_section(MxText *out, const char *title);

/* The words for files and folders in MxOption.takes and arguments. */
#define MX_MANUAL_FILES "FILE DIR RUN SRC DST REF A B"

typedef struct MxOptions {
    const MxOption *rows;
    int n;
    bool passes_pairs; /* an unrecognized "--name=value" is not an error but part of the rest */
    const MxManual *manual;
} MxOptions;

/* mx_options_read — sets the variables of the table. Returns false without an error after options
 * that every program answers, when nothing is left to do: --help (a screen), --help-all, --version
 * (with --verbose the libraries), --man (a manual page), --completion SHELL (a script for bash, zsh
 * or fish), and --complete BEFORE WORD, which such scripts call: the completions of WORD after the
 * word BEFORE, one per line, ":files" for names of files. Every program also has --quiet, --verbose
 * and --color, which configure the log. rest: [argc + 1] arguments that are not options, in order,
 * including all that follow "--"; NULL after the last. Errors: unrecognized options, a value
 * missing or in excess (exit 2). */
bool mx_options_read(MxOptions options, int argc, char **argv, const char **rest, MxError *err);
/* mx_option_int, …_number, …_bool — an option's value; with text NULL *out is not changed. Errors:
 * exit 2. */
bool mx_option_int(const char *name, const char *text, int64_t low, int64_t high, int64_t *out,
                   MxError *err);
bool mx_option_number(const char *name, const char *text, double low, double high, double *out,
                      MxError *err);
bool mx_option_bool(const char *name, const char *text, bool *out, MxError *err);

/* ---- the process */

/* The body of a program; memory allocated in `program` lives until it ends. */
typedef MxExit MxTool(int argc, char **argv, MxArena *program, MxError *err);
/* mx_tool_main — a program's main function: runs it, prints its errors to stderr, and returns the
 * exit code. If descriptors 0 to 2 are closed, they stay unusable, and no file gets their number.
 */
int mx_tool_main(MxTool *run, int argc, char **argv);

/* An environment variable that a library reads while it is loaded, before main. */
typedef struct MxEnvVar {
    const char *name, *value; /* value NULL = unchanged */
    const char *unless;       /* another variable with the same purpose; NULL = none */
} MxEnvVar;
/* mx_process_prepare — ensures that libraries were loaded with these variables: sets those that the
 * user has not set (nor the variable in `unless`) and, if there are any, restarts the program with
 * the same process id and descriptors. Must be called first in main. If that fails, the program
 * continues without them, with a warning. */
void mx_process_prepare(const MxEnvVar *variables, int n, char **argv);

/* mx_thread_start — starts a thread with all signals blocked; the main thread handles them. Returns
 * 0 or an errno. */
int mx_thread_start(pthread_t *thread, void *(*run)(void *data), void *data);
/* mx_parallel — fn(data, i) for i in [0, n), by several threads in any order; it returns when all
 * are done. n_threads: the maximum, up to 16; 0 = from OMP_NUM_THREADS or the processors of this
 * process. There are fewer if the system refuses them. */
void mx_parallel(int64_t n_threads, int n, void (*fn)(void *data, int i), void *data);

/* A limit on memory; INT64_MAX = none. */
typedef struct MxMemoryLimit {
    const char *name; /* "this machine", "the cgroup \"/a/b\"", "ulimit -v" */
    int64_t bytes;
} MxMemoryLimit;

typedef struct MxMemoryLimits {
    MxMemoryLimit memory;    /* the smallest of the machine and its control groups, which other
                                processes share */
    MxMemoryLimit addresses; /* of this process: all mapped memory, used or not (ulimit -v) */
    MxMemoryLimit data;      /* the same for writable memory, without files (ulimit -d) */
} MxMemoryLimits;

/* mx_memory_limits — the limits on the memory of this process.
 *   root  the folder with proc/self and the mounts of control groups, "/" except in tests */
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

/* mx_log — one line on stdout, flushed. mx_detail — the same with --verbose; copies (mx_log_copy)
 * always get it. mx_warn — "warning: …" on stderr. All are printed above the status line. */
void mx_log(const char *fmt, ...) MX_PRINTF(1, 2);
void mx_detail(const char *fmt, ...) MX_PRINTF(1, 2);
void mx_warn(const char *fmt, ...) MX_PRINTF(1, 2);
/* mx_print — text on stdout; errors stay in the stream. All of these escape their text as
 * mx_text_add_shown does. */
void mx_print(const char *fmt, ...) MX_PRINTF(1, 2);
/* mx_log_level — QUIET prints only warnings and errors, without a status line; copies get
 * everything. */
typedef enum MxLogLevel { MX_LOG_QUIET, MX_LOG_USUAL, MX_LOG_VERBOSE } MxLogLevel;
void mx_log_level(MxLogLevel level);
/* mx_log_is_live — whether lines and a status line share a terminal. */
bool mx_log_is_live(void);
/* mx_color_set — "auto" (the initial value), "always" or "never". Errors: another word (exit 2).
 * mx_has_color — whether text may be coloured: auto = on a terminal whose TERM is set and not
 * "dumb", unless NO_COLOR is set and not empty. */
bool mx_color_set(const char *when, MxError *err);
bool mx_has_color(int fd);
/* mx_progress — draws the status line on stderr, below all other lines. It does nothing unless
 * stderr is a terminal (TERM set and not "dumb") and stdout is not a pipe. Parts are separated by
 * tabs, the more important first: if the terminal is too narrow, the bar is dropped, then the last
 * part, and so on. The ETA is inserted after the first part. It is drawn at most 20 times a second.
 * fraction in [0, 1]; eta_s < 0 = unknown. mx_progress_end removes the line. */
void mx_progress(double fraction, double eta_s, const char *fmt, ...) MX_PRINTF(3, 4);
void mx_progress_end(void);
/* mx_progress_abandon — the same for a process that ends immediately; signal handlers may call it.
 */
void mx_progress_abandon(void);
/* mx_complain — "PROGRAM: error: …" on stderr, also from a silent process. */
void mx_complain(const char *fmt, ...) MX_PRINTF(1, 2);
/* mx_log_silence — from now on this process, a rank other than the first, prints only errors; the
 * first rank prints for all. Its lines in a copy are marked "rank N: ". */
void mx_log_silence(int rank);
/* mx_log_mute — from now on this process, an attempt at what another process then does, prints only
 * errors, and copies nothing. */
void mx_log_mute(void);
/* mx_log_copy — appends every line to a file, also from a silent process, after the time (UTC),
 * including the lines before this call. NULL = there will be no file. Lasts until the process ends;
 * may be called once per process. */
bool mx_log_copy(const char *path, MxError *err);
/* mx_clock_s — monotonic seconds. */
double mx_clock_s(void);

/* ---- random */

/* mx_philox — Philox4x32-10: four 32-bit words that depend only on (seed, stream, counter), so any
 * element of any stream can be computed on any rank or thread. Source: Salmon et al., SC 2011. */
void mx_philox(uint64_t seed, uint64_t stream, uint64_t counter, uint32_t out[4]);
/* mx_uniform — the top 23 bits of a word as a float in (0, 1); one bit more would round to 1. */
static inline float mx_uniform(uint32_t bits) {
    return ((float)(bits >> 9) + 0.5f) * (1.0f / 8388608.0f);
}

/* ---- files */

typedef struct MxBytes {
    uint8_t *data; /* one NUL follows the last byte */
    size_t size;
} MxBytes;

/* mx_file_read — a whole file. Errors: missing, unreadable, a directory, larger than max_bytes. */
bool mx_file_read(MxArena *arena, const char *path, size_t max_bytes, MxBytes *out, MxError *err);
/* mx_file_write — replaces a whole file: temporary file beside it, fsync, rename, fsync of the
 * folder. Symbolic links are followed and kept; devices, pipes and terminals are written to. */
bool mx_file_write(const char *path, const void *data, size_t size, MxError *err);
bool mx_file_exists(const char *path);
bool mx_dir_exists(const char *path);
/* mx_dir_make — makes the folder and its parents, mode 0777 & ~umask; an existing folder is not an
 * error. */
bool mx_dir_make(const char *path, MxError *err);
/* mx_dir_list — the names in a folder without . and .., sorted bytewise. */
bool mx_dir_list(MxArena *arena, const char *path, char ***names, int *n, MxError *err);
/* mx_dir_remove — removes a folder and everything below it. */
bool mx_dir_remove(const char *path, MxError *err);
/* mx_path_sync — fsync of a file or folder. */
bool mx_path_sync(const char *path, MxError *err);
char *mx_path_join(MxArena *arena, const char *dir, const char *name);
/* mx_share_dir — the folder of the program's configs and data: share/mxtrain in the nearest folder
 * above the program that has one, so that a prefix can be moved as a whole, and the sources work
 * like a prefix. It may not exist. */
char *mx_share_dir(MxArena *arena);
/* mx_path_dir — everything before the last slash, "." if there is none. */
char *mx_path_dir(MxArena *arena, const char *path);

#include <mx/base_arrays.h>
#include <mx/base_formats.h>
#include <mx/base_spans.h>

#endif
