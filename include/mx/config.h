/* config.h — YAML files + overrides → MxConfig, one row a key (config_keys.def). Every value knows
 * where it came from, so any room can report a bad one with its line and a caret. Keys and their
 * meaning are MaxText's. What is known but not built, or can mean nothing here, is in
 * config_known.def. */
#ifndef MX_CONFIG_H
#define MX_CONFIG_H

#include <mx/base.h>
#include <mx/family_encoder.h>

/* ---- YAML values */

typedef enum MxYamlKind {
    MX_YAML_NULL,
    MX_YAML_BOOL,
    MX_YAML_INT,
    MX_YAML_FLOAT,
    MX_YAML_STRING,
    MX_YAML_LIST,
    MX_YAML_MAP,
} MxYamlKind;

typedef struct MxYaml MxYaml;
typedef struct MxYamlPair MxYamlPair;

/* One YAML value. Aliases share the node of their anchor, so a node may have several parents. */
struct MxYaml {
    MxYamlKind kind;
    bool is_quoted;
    MxWhere where;
    const char *text;     /* scalars: as written, without quotes; "" for a missing value */
    const char *surprise; /* why a plain scalar is not what it looks like ("octal"), or NULL */
    bool boolean;
    int64_t integer;
    double number;       /* of an int or a float */
    int n;               /* items of a list, pairs of a map */
    const MxYaml **item; /* of a list */
    MxYamlPair *pair;    /* of a map */
    int64_t expanded;    /* values in it, aliases counted at every use */
    int depth;           /* levels in it; a scalar has 1 */
};

struct MxYamlPair {
    const char *key;
    MxWhere where;
    const MxYaml *value;
};

/* mx_yaml_get — a map's value, or NULL. */
const MxYaml *mx_yaml_get(const MxYaml *map, const char *key);
/* mx_yaml_text — the value as one line of YAML (flow style) that reads back as an equal value. */
const char *mx_yaml_text(MxArena *arena, const MxYaml *node);

/* ---- the config */

typedef struct MxStrs {
    int n;
    const char **item;
} MxStrs;

/* Field types by the type word of a row. A str is NULL when it is empty or null; a choice never is.
 */
typedef bool MxField_bool;
typedef int64_t MxField_int;
typedef double MxField_float;
typedef const char *MxField_str;
typedef const char *MxField_choice;
typedef MxStrs MxField_strs;
typedef const MxYaml *MxField_node;

typedef enum MxKey {
#define MX_GROUP(name, on_resume, title)
#define MX_KEY(type, field, name, fallback, limits, unit, doc) MX_KEY_##field,
#include <mx/config_keys.def>
#undef MX_KEY
#undef MX_GROUP
    MX_KEY_COUNT
} MxKey;

/* Where every value came from; opaque. */
typedef struct MxConfigTrail MxConfigTrail;

typedef struct MxConfig {
    /* One field a key. Values are final: -1, empty and null are already replaced by what they mean
     * where MaxText derives them (run_name, steps, learning_rate_schedule_steps, mu_dtype,
     * eval_per_device_batch_size, dpo.max_prompt_length), and so is what evaluation reads
     * (text_eval_files, hdf5_eval_files, hf_eval_files, eval_split). */
#define MX_GROUP(name, on_resume, title)
#define MX_KEY(type, field, name, fallback, limits, unit, doc) MxField_##type field;
#include <mx/config_keys.def>
#undef MX_KEY
#undef MX_GROUP

    /* Derived from the keys; sizes in elements, batches in rows of the whole run (all devices). */
    int64_t num_target_devices; /* num_devices, or the product of the sizes that are given */
    int64_t emb_dim, mlp_dim, moe_mlp_dim, num_query_heads, num_kv_heads, num_decoder_layers;
    int64_t diloco_replicas;               /* that train apart (enable_diloco); 1 = there is one */
    int64_t diloco_fragments;              /* of the parameters; 1 = all of them at once */
    int64_t diloco_fragment_steps;         /* from a fragment's outer step to the next one's */
    int64_t pipeline_stages;               /* 1 = there is no pipeline */
    int64_t pipeline_micro_batches;        /* that go through stages one behind the other */
    int64_t micro_batches;                 /* of a step: those of all accumulation steps */
    int64_t micro_batch_size_to_train_on;  /* rows of one forward and backward pass of a replica */
    int64_t micro_batch_size_to_load;      /* ≥ the former when per_device_batch_size < 1 */
    int64_t global_batch_size_to_train_on; /* rows of one optimizer step */
    int64_t global_batch_size_to_load;
    int64_t micro_batch_size_to_eval_on, global_batch_size_to_eval_on,
        global_batch_size_to_load_eval;
    int64_t tokens_per_step;    /* global_batch_size_to_train_on * max_target_length */
    double eval_share;          /* of the training rows, held out for evaluation; 0 = none: it has
                                   files of its own, or there is none */
    const char *remat;          /* what remat_policy means here: none, minimal or full */
    const char *run_dir;        /* {base_output_directory or ./maxtext_output}/{run_name} */
    const char *checkpoint_dir; /* {run_dir}/checkpoints */

    const struct MxConfig *teacher; /* of distillation; only what describes a model counts. NULL =
                                       there is none */

    MxStrs warnings; /* for the user, complete lines; the tool prints them with mx_warn */
    const MxConfigTrail *trail;
} MxConfig;

/* Settings that were found out instead of written down. */
typedef struct MxConfigFound {
    const char *name, *text; /* what they were found in, for messages; lines of YAML */
} MxConfigFound;

/* What to load. Files in order, later ones merge over earlier ones (none = base.yml); overrides
 * "key=value" in order (of a repeated key the last wins); environ as of getenv, NULL = none. */
typedef struct MxConfigRequest {
    int n_ranks; /* that were started; num_devices where nobody says, if more than one */
    const char *const *files;
    int n_files;
    const char *text;           /* instead of files: what mx_config_text wrote, NULL = none */
    const char *text_name;      /* for messages */
    const MxConfigFound *found; /* [n_found] over defaults, also as the first file repeats them, and
                                   under all else */
    int n_found;
    const char *const *overrides;
    int n_overrides;
    char *const *environ;
} MxConfigRequest;

/* mx_config_load — reads, merges, types, derives and checks a config.
 *   arena  owns the config and everything in it
 *   out    set only on success
 * Strength: parent (base_config) < file < model preset < custom mesh < command line < environment
 * M_<KEY>.
 * Errors: all of them in one pass, exit 2: unreadable or malformed files, unrecognized keys, wrong
 * types, values out of range or not available yet, keys set twice, values that do not fit together.
 * Source: MaxText src/maxtext/configs/pyconfig.py, types.py @e591f30c; scalars as OmegaConf 2.4.
 * Test: tests/config, tests/cli. */
bool mx_config_load(MxArena *arena, const MxConfigRequest *request, MxConfig **out, MxError *err);

/* mx_config_runnable — refuses what loads, so that MaxText's own base.yml does or because a plan
 * can be made of it, but cannot be trained: tfds without a folder, tokenizers that are not built,
 * paths such as gs://bucket. Call before training. */
bool mx_config_runnable(const MxConfig *config, MxError *err);
/* mx_config_names_eval — whether data for evaluation is named, so that none is held out. */
bool mx_config_names_eval(const MxConfig *config);
/* mx_config_writes — whether the policy writes the responses that it is trained on. */
bool mx_config_writes(const MxConfig *config);
/* mx_config_iterations — steps that learn from one batch (rl.num_iterations), at least 1: step k
 * learns from batch k / that. */
int64_t mx_config_iterations(const MxConfig *config);

/* mx_config_vision_grid — patches of a picture of image_size_for_vit; 0 x 0 = it is no number, and
 * no height and width in a list, or they are no multiples of patch_size_for_vit, or too large.
 * mx_config_vision_pool — patches of a side of the square that becomes a token of an image, of so
 * many patches; 0 = they do not go together. Checks of the config see to both. */
MxVisionGrid mx_config_vision_grid(const MxConfig *config);
int64_t mx_config_vision_pool(const MxConfig *config, const MxEncoder *encoder, MxVisionGrid grid);

/* mx_config_is_hf_format — whether hf_path names a format of files, as "parquet"; else it is a
 * folder. */
bool mx_config_is_hf_format(const char *hf_path);

/* mx_config_where — the place of a key's value: a file's line, "<command line>", "environment
 * M_KEY" or "<default>" (the last three without a line). */
MxWhere mx_config_where(const MxConfig *config, MxKey key);
/* mx_config_found — the keys that have another value than their default because it was found,
 * "key=value key=value"; "" = there are none. */
const char *mx_config_found(MxArena *arena, const MxConfig *config, const MxConfigFound *found);

/* mx_config_fail — one failure about a key's value, with its place, source line and caret; returns
 * false. The key's name and ": " come before the message. Add hints with mx_note("hint: …"). */
bool mx_config_fail(MxError *err, const MxConfig *config, MxKey key, const char *fmt, ...)
    MX_PRINTF(4, 5);

/* mx_config_resume — whether a run may go on from a state that was made with another config.
 *   old   that config, as mx_config_text wrote it; keys that one of the two lacks are passed over
 *   name  of the state, for messages
 *   out   a line for every key that changes the curve ("learning_rate: 0.001 -> 0.0005")
 * Errors (exit 2): every key that may not change, with its place, the old and the new value; (65)
 * the old text is no config. Test: tests/config/resume.c. */
bool mx_config_resume(MxArena *arena, const MxConfig *config, const char *old, const char *name,
                      MxStrs *out, MxError *err);

/* mx_config_same — that another config has the same values, wherever those came from.
 *   other, name  its text, as mx_config_text wrote it, and whose it is ("rank 0")
 * Errors (exit 2): every key with another value, with its place here and both values. */
bool mx_config_same(MxArena *arena, const MxConfig *config, const char *other, const char *name,
                    MxError *err);

/* ---- telling */

/* mx_config_text — every built key with its value as YAML that loads back to the same config; a
 * comment says where it came from. mx_config_write puts it into a file ("-" = stdout). */
const char *mx_config_text(MxArena *arena, const MxConfig *config);
bool mx_config_write(const MxConfig *config, const char *path, MxError *err);
/* mx_config_value — one of them, as one line of YAML. */
const char *mx_config_value(MxArena *arena, const MxConfig *config, MxKey key);
/* mx_config_said — the value of a key in such a text: a scalar as it was before it was quoted, all
 * else on one line; "" where the text (NULL = none) does not have it, or is no config. Test:
 * tests/config/resume.c. */
const char *mx_config_said(MxArena *arena, const char *text, MxKey key);
/* mx_config_print — "Config param <key>: <value>" lines on stdout for the keys that were given
 * another value than their default, sorted, sharding rules cut; and that `path` has all. */
void mx_config_print(const MxConfig *config, const char *path);

/* mx_config_start — a config to start from, as YAML with what each key does: the keys that differ
 * from their defaults, and those of a list, names with spaces between them. What a preset says
 * comes with its name and is not written: another value there would not count. It loads back to
 * the same config. Test: tests/cli/finetune.sh. */
void mx_config_start(MxText *out, const MxConfig *config, const char *keys);

/* mx_config_help — what a key or a group of keys means, from the rows. topic NULL = the groups,
 * "markdown" = the tables of docs/CONFIG.md, "maxtext" = those of docs/MAXTEXT.md, "man" = the
 * manual page base.yml(5). Errors: neither a key nor a group.
 * mx_config_complete — what an argument KEY=VALUE that begins so may be, a line each; keys without
 * a value end in "=", and ":files" stands where names of files may. See MxManual. Test:
 * tests/cli/manual.sh. */
bool mx_config_help(MxText *out, const char *topic, MxError *err);
void mx_config_complete(const char *begin, MxText *out);

const char *mx_key_name(MxKey key);

#endif
