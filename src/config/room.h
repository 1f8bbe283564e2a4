/* room.h — shared by the files of the config room, and private to it: rows, slots (one per row,
 * with the value of every layer), sources for carets, and the load in progress. */
#ifndef CONFIG_ROOM_H
#define CONFIG_ROOM_H

#include <mx/config.h>

/* ---- rows (keys.c) ---- */

typedef enum ConfigType {
    CONFIG_bool,
    CONFIG_int,
    CONFIG_float,
    CONFIG_str,
    CONFIG_choice,
    CONFIG_strs,
    CONFIG_node,
} ConfigType;

typedef enum ConfigClass {
    CONFIG_BUILT,     /* has a field */
    CONFIG_QUIET,     /* any value means the same here */
    CONFIG_INERT,     /* can mean nothing here; told once */
    CONFIG_ELSEWHERE, /* another program does it; told */
    CONFIG_LATER,     /* only its default for now */
    CONFIG_COMPUTED,  /* told that it has no effect */
    CONFIG_ALIAS,     /* fallback holds the key it stands for */
    CONFIG_SECTION,   /* a map; fallback holds the keys below it, a space between them */
} ConfigClass;

/* What a value may do when a run goes on that was begun with another one. */
typedef enum ConfigOnResume {
    CONFIG_AS_GROUP, /* of a row: what its group says */
    CONFIG_FREE,     /* nothing is lost */
    CONFIG_SCHEDULE, /* the curve changes: told */
    CONFIG_FROZEN,   /* the state would not fit, or mean something else: refused */
} ConfigOnResume;

typedef struct ConfigRow {
    const char *name;
    ConfigClass class;
    ConfigType type;
    size_t offset;        /* of the field in MxConfig; built rows */
    const char *fallback; /* default as YAML text; what it is computed from or stands for */
    const char *also;     /* later rows: other accepted values, a space between them */
    const char *where;    /* what of ours does it; rows of keys that training does not read */
    const char *null_as;  /* what null means, or NULL = null is refused (never for str) */
    const char *now, *later, *loads; /* choices, a space between them */
    bool has_range, has_other, is_open_above, is_open_below;
    double lo, hi, other; /* lo ≤ value ≤ hi (open: <), or value == other */
    ConfigOnResume on_resume;
    const char *unit, *doc; /* doc of later rows: what of ours does it, or NULL */
} ConfigRow;

typedef struct ConfigGroup {
    const char *name, *title;
    MxKey first;
    ConfigOnResume on_resume;
} ConfigGroup;

extern const ConfigRow config_rows[];
extern const int config_row_count;
extern const ConfigGroup config_groups[];
extern const int config_group_count;
const ConfigGroup *config_group_of(MxKey key);
/* config_on_resume — of a key: its row's, else its group's; never CONFIG_AS_GROUP. */
ConfigOnResume config_on_resume(MxKey key);

/* config_word_in — whether a list of words with spaces between them holds one. */
bool config_word_in(const char *words, const char *word);
/* config_join — the words of a list with something else between them. config_words — the list as
 * "a, b, c". */
const char *config_join(MxArena *arena, const char *words, const char *between);
const char *config_words(MxArena *arena, const char *words);
/* config_nearest_word — the nearest of the words in up to three lists, or NULL. */
const char *config_nearest_word(MxArena *arena, const char *word, const char *const lists[3]);

/* ---- what users mean (names.c) ---- */

/* config_meant_key — a hint at the key that somebody means by a name that is none; NULL = none. */
const char *config_meant_key(MxArena *arena, const char *key);
/* config_meant_word — the same for a value out of up to three lists: one of their words. */
const char *config_meant_word(MxArena *arena, const char *word, const char *const lists[3]);

/* ---- sources and messages (source.c) ---- */

/* A text that values come from: a file, one argument, one environment variable. */
typedef struct ConfigSource {
    const char *name; /* MxWhere.file of its values is this very pointer */
    const char *text;
    size_t size;
    bool has_lines; /* false: where.line is 0 and col counts within text */
    struct ConfigSource *next;
} ConfigSource;

typedef enum ConfigLayer {
    CONFIG_FROM_DEFAULT,
    CONFIG_FROM_FILE,
    CONFIG_FROM_MODEL,
    CONFIG_FROM_CUSTOM, /* custom_mesh_and_rule */
    CONFIG_FROM_LINE,
    CONFIG_FROM_ENV,
    CONFIG_LAYERS
} ConfigLayer;

typedef struct ConfigSlot {
    const MxYaml *given[CONFIG_LAYERS]; /* what each layer says, or NULL */
    const MxYaml *value;                /* the strongest; NULL until merged */
    ConfigLayer from;
    bool is_own;     /* the file that names the model, or a later one, says it on purpose */
    bool is_bad;     /* an error about it was reported */
    bool is_derived; /* the field was computed from other keys */
} ConfigSlot;

struct MxConfigTrail {
    const ConfigSource *sources;
    ConfigSlot *slots; /* one a row */
    bool has_model;    /* a preset was merged */
};

/* A load in progress. */
typedef struct ConfigLoad {
    MxArena *arena;
    MxError *err;
    int n_errors;
    int n_ranks;
    int n_maps;       /* read into the file layer so far */
    bool names_model; /* one of them did */
    bool decodes;     /* for mxdecode */
    ConfigSource *sources;
    ConfigSlot *slots;
    MxMap rows;             /* key → row */
    MxMap sections;         /* "lora" of "lora.lora_rank" → a row */
    const char *model_file; /* the preset that was merged, or NULL */
    const char *main_dir;   /* folder of the last file of the request, or NULL */
    MxStrs warnings;
    int warnings_cap;
    MxConfig *config;
} ConfigLoad;

ConfigSource *config_source_add(ConfigLoad *load, const char *name, const char *text, size_t size,
                                bool has_lines);
/* config_report — one error with its place, source line and caret; returns false. Counts beyond
 * the limit of shown errors without showing. */
bool config_report(ConfigLoad *load, MxWhere where, const char *fmt, ...) MX_PRINTF(3, 4);
/* config_hint — "hint: …" below the last error. */
void config_hint(ConfigLoad *load, const char *fmt, ...) MX_PRINTF(2, 3);
void config_hint_nearest(ConfigLoad *load, const char *nearest);
/* config_hint_meant — what config_meant_key says of a key that is none. */
void config_hint_meant(ConfigLoad *load, const char *key);
void config_warn(ConfigLoad *load, MxWhere where, const char *fmt, ...) MX_PRINTF(3, 4);
/* config_errors_end — tells how many errors were not shown. */
void config_errors_end(ConfigLoad *load);
/* config_quote — a value as a message quotes it: short, in quotes unless it is a number or word of
 * YAML's own. */
const char *config_quote(MxArena *arena, const MxYaml *node);
const char *config_shorten(MxArena *arena, const char *text);

enum { CONFIG_DEEPEST = 64, CONFIG_MOST_VALUES = 20000, CONFIG_LARGEST_FILE = 1 << 20 };

/* ---- nodes (node.c, scalar.c, yaml.c) ---- */

MxYaml *config_node_new(MxArena *arena, MxYamlKind kind, MxWhere where);
/* config_node_string — a string node, quoted. */
MxYaml *config_node_string(MxArena *arena, const char *text, MxWhere where);
/* config_node_equal — same kind and value; 1 equals 1.0, and null, "" and none are equal. */
bool config_node_equal(MxArena *arena, const MxYaml *a, const MxYaml *b);
bool config_node_is_null(const MxYaml *node);
/* config_node_unquoted — a quoted scalar as a plain one: MaxText's own files quote some numbers
 * ("1e-06"). */
MxYaml config_node_unquoted(const MxYaml *node);
/* config_node_merge — the pairs of both maps; of a key that both have, strong's. Either may be
 * NULL; what is no map replaces all. */
const MxYaml *config_node_merge(MxArena *arena, const MxYaml *weak, const MxYaml *strong);
const char *config_number_text(MxArena *arena, double number);

/* config_type_scalar — gives a plain scalar its kind and value from its text, as OmegaConf does. */
void config_type_scalar(MxYaml *node);

/* config_parse — the document in a source from an offset on; NULL after an error was reported.
 * Limits: depth, number of values, expanded aliases. */
const MxYaml *config_parse(ConfigLoad *load, const ConfigSource *source, size_t offset);

/* ---- merging (files.c, merge.c, rules.c, interpolate.c) ---- */

/* config_read_files — the request's files and their base_config parents into the file layer. */
void config_read_files(ConfigLoad *load, const MxConfigRequest *request);
/* config_named — the names of files that a key takes (presets), each with a space behind; "" = the
 * key names none. */
const char *config_named(MxArena *arena, MxKey key);
/* config_read_model — the preset of the effective model_name into the model layer. */
void config_read_model(ConfigLoad *load);
/* config_read_custom_mesh — the file that custom_mesh_and_rule names into a layer of its own, over
 * the preset's. */
void config_read_custom_mesh(ConfigLoad *load);
void config_read_overrides(ConfigLoad *load, const MxConfigRequest *request);
void config_read_environment(ConfigLoad *load, char *const *environ);
/* config_apply — every pair of a map into a layer; reports unrecognized keys. */
void config_apply(ConfigLoad *load, const MxYaml *map, ConfigLayer layer);
/* config_find — the row of a key (aliases and sections followed), or -1. */
int config_find(const ConfigLoad *load, const char *key);
void config_unrecognized(ConfigLoad *load, const char *key, MxWhere where);
/* config_apply_overrides — the keys of a map over all layers, for one of two models; a key that the
 * command line has too is an error. */
void config_apply_overrides(ConfigLoad *load, MxKey key, const MxYaml *map);
/* config_map — the value of a key that is a map: what all layers say, put together. NULL = empty.
 */
const MxYaml *config_map(const ConfigLoad *load, MxKey key);
/* config_settle — chooses every slot's value after checking for keys that are set twice. */
void config_settle(ConfigLoad *load);
const MxYaml *config_merge_rules(ConfigLoad *load);
/* config_interpolate — replaces ${key} in every settled value. */
void config_interpolate(ConfigLoad *load);

/* ---- values (value.c, known.c, derive.c, check.c) ---- */

/* config_convert — a slot's value into a field of the row's type, with range and choices. */
bool config_convert(ConfigLoad *load, const ConfigRow *row, ConfigSlot *slot, void *field);
/* config_check_known — the rows that have no field. */
void config_check_known(ConfigLoad *load);

/* A kind of data that reads files, and what must be named. */
typedef struct ConfigFiles {
    const char *kind, *wants; /* wants NULL: the default will do, or no plan needs it */
    MxKey train, eval;
    const char *eval_wants;
    bool has_tokenizer, has_records;
} ConfigFiles;

enum { CONFIG_FILE_KINDS = 7 };
extern const ConfigFiles config_files[CONFIG_FILE_KINDS];
/* config_files_of — the row of dataset_type; NULL = it reads no files. */
const ConfigFiles *config_files_of(const MxConfig *config);
/* config_eval_named — what names data for evaluation; NULL = nothing does. */
const char *config_eval_named(const MxConfig *config, const ConfigFiles *files);
/* config_count_along — ranks along a mesh axis, of its two keys; -1 takes the devices of a slice,
 * or the slices, that are left. */
int64_t config_count_along(const MxConfig *config, int64_t ici, int64_t dcn);
/* config_text_field — the field of a key that is a text. */
const char **config_text_field(const MxConfig *config, MxKey key);
/* config_is_bundled — whether files are those that came with the program. */
bool config_is_bundled(const char *files);
/* config_is_byte — whether text becomes its bytes: no file says how. */
bool config_is_byte(const MxConfig *config);
/* config_share — the share that eval_split says; false if it says none. */
bool config_share(const char *text, double *out);
#define CONFIG_MOST_HELD_OUT 0.5
void config_derive(ConfigLoad *load);
/* config_derive_rewards — what keys of learning from rewards say for others (rewards.c). */
void config_derive_rewards(ConfigLoad *load);
/* config_usual_prompt — dpo.max_prompt_length where nobody says it. */
int64_t config_usual_prompt(const MxConfig *config);
void config_check(ConfigLoad *load);
/* config_has_teacher — whether teacher_overrides says anything. config_check_teacher — what student
 * and teacher must have in common, once both are loaded. config_teacher_keys — teacher_overrides as
 * it is dumped: every key of the model that the two do not share. */
bool config_has_teacher(const MxConfig *config);
/* config_is_of_model — whether a teacher may have a key for itself: what it is, and where its
 * weights are. All others are the run's. */
bool config_is_of_model(int row);
void config_check_distillation(ConfigLoad *load, const MxConfig *config);
void config_check_teacher(ConfigLoad *load, const MxConfig *teacher);
const MxYaml *config_teacher_keys(MxArena *arena, const MxConfig *student, const MxConfig *teacher);
/* config_check_acts — warns of keys that are set where they cannot act (acts.c). */
void config_check_acts(ConfigLoad *load);
/* config_that_name — the words of a choice whose rows say that a key acts under them, with commas
 * between; kind is decoder_block or opt_type. */
const char *config_that_name(MxArena *arena, MxKey kind, MxKey key);
/* config_fail — as mx_config_fail, while loading; marks the slot. */
bool config_fail(ConfigLoad *load, MxKey key, const char *fmt, ...) MX_PRINTF(3, 4);

/* config_differs — whether somebody said a key, and not what its row says.
 * config_yml — configs/base.yml. config_maxtext — the tables of docs/MAXTEXT.md. */
bool config_differs(MxArena *arena, const ConfigSlot *slot);
void config_yml(MxText *out);
void config_maxtext(MxText *out);

/* config_topology_devices — of one slice of a topology; 0 = there is no such topology.
 * config_topology_families — "v4-N, ..., a3". */
int64_t config_topology_devices(const char *name);
const char *config_topology_families(MxArena *arena);

#endif
