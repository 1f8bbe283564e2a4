/* config.h — YAML files + overrides → MxConfig, one row per key (config_keys.def). The source of
 * every value is recorded, so any room can report a bad one with its line and a caret. Keys and
 * their meaning are MaxText's. Keys that are known but not built, or that have no meaning here, are
 * in config_known.def. */
#ifndef MX_CONFIG_H
#define MX_CONFIG_H

#include <mx/base.h>
#include <mx/family_encoder.h>
#include <mx/tree.h>

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
    const char *surprise; /* why a plain scalar has a surprising value ("octal"), or NULL */
    bool boolean;
    int64_t integer;
    double number;       /* of an int or a float */
    int n;               /* items of a list, pairs of a map */
    const MxYaml **item; /* of a list */
    MxYamlPair *pair;    /* of a map */
    int64_t expanded;    /* number of values in it, with aliases counted at every use */
    int depth;           /* number of levels in it; a scalar has 1 */
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

/* The source of every value; opaque. */
typedef struct MxConfigTrail MxConfigTrail;

/* A ramp of the batch size: stages of `start` batches a step, then `increment` more, and so on. All
 * batches have as many rows, so that a step of any stage runs the same program. */
typedef struct MxRamp {
    int64_t stages; /* before the full size; 0 = there is no ramp */
    int64_t start, increment;
} MxRamp;

/* Batches of data: n of them from the first one on. */
typedef struct MxTake {
    int64_t first, n;
} MxTake;

/* How replies are sampled that an evaluation judges (eval_sampling_strategy). */
typedef struct MxAnswering {
    double temperature, top_p;
    int64_t top_k; /* 0 = all tokens */
} MxAnswering;

typedef struct MxConfig {
    /* One field per key. Values are final: -1, empty and null are already replaced by their meaning
     * where MaxText derives it (run_name, steps, learning_rate_schedule_steps, mu_dtype,
     * eval_per_device_batch_size, dpo.max_prompt_length), and so are the sources of evaluation data
     * (text_eval_files, hdf5_eval_files, hf_eval_files, eval_split). */
#define MX_GROUP(name, on_resume, title)
#define MX_KEY(type, field, name, fallback, limits, unit, doc) MxField_##type field;
#include <mx/config_keys.def>
#undef MX_KEY
#undef MX_GROUP

    /* Derived from the keys; sizes in elements, batches in rows of the whole run (all devices). */
    int64_t num_target_devices; /* num_devices, or the product of the given sizes */
    int64_t emb_dim, mlp_dim, moe_mlp_dim, num_query_heads, num_kv_heads, num_decoder_layers;
    const int64_t *recall_layers; /* [n_recall] engram_layers */
    int n_recall;
    const int64_t *layer_ratios;    /* [num_decoder_layers] compress_ratios; NULL = none are read */
    int64_t diloco_replicas;        /* replicas (enable_diloco); 1 = there is one */
    int64_t diloco_fragments;       /* fragments of the parameters; 1 = all at once */
    int64_t diloco_fragment_steps;  /* steps between outer steps of fragments */
    int64_t pipeline_stages;        /* 1 = no pipeline */
    int64_t pipeline_micro_batches; /* micro-batches of a pass through the stages */
    int64_t accumulations;          /* passes whose gradients a step adds up, at most */
    int64_t micro_batches;          /* micro-batches of a step, of all accumulations */
    int64_t rows_at_once;           /* rows of a batch of data; see mx_config_take */
    int64_t micro_batches_at_once;  /* micro-batches of such a batch */
    MxRamp ramp;
    int64_t micro_batch_size_to_train_on;  /* rows of one forward and backward pass of a replica */
    int64_t micro_batch_size_to_load;      /* ≥ the former when per_device_batch_size < 1 */
    int64_t global_batch_size_to_train_on; /* rows of one optimizer step */
    int64_t global_batch_size_to_load;
    int64_t micro_batch_size_to_eval_on, global_batch_size_to_eval_on,
        global_batch_size_to_load_eval;
    int64_t tokens_per_step; /* global_batch_size_to_train_on * max_target_length */
    MxAnswering answering;   /* of mx_config_judges */
    double eval_share;   /* share of the training rows held out for evaluation; 0 = none: evaluation
                            has its own files, or is off */
    const char *remat;   /* what remat_policy means here: none, minimal or full */
    const char *run_dir; /* {base_output_directory or ./maxtext_output}/{run_name} */
    const char *checkpoint_dir; /* {run_dir}/checkpoints */

    const struct MxConfig *teacher; /* of distillation, only its model's keys; NULL = none */
    const struct MxConfig *offline_teacher; /* likewise, of a run that only its logits of before the
                                               first step teach (offline_data_dir) */
    bool is_teacher;                        /* another config's teacher */

    struct MxDataMemory *data_memory; /* what was read of the data to find settings out; NULL =
                                         nothing */
    MxStrs warnings; /* for the user, complete lines; the tool prints them with mx_warn */
    const MxConfigTrail *trail;
} MxConfig;

/* Settings that were derived instead of written by the user. */
typedef struct MxConfigFound {
    const char *name, *text; /* their source, for messages; lines of YAML */
} MxConfigFound;

/* What to load. Files in order, later ones merge over earlier ones (none = base.yml); overrides
 * "key=value" in order (of a repeated key the last wins); environ as of getenv, NULL = none. */
typedef struct MxConfigRequest {
    int n_ranks;  /* number of started ranks; the default of num_devices if above 1 */
    bool decodes; /* for mxdecode, which reads the keys of the group "decoding" */
    const char *const *files;
    int n_files;
    const char *text;           /* instead of files: output of mx_config_text, NULL = none */
    const char *text_name;      /* for messages */
    const MxConfigFound *found; /* [n_found] above defaults (also if the first file repeats these),
                                   and below everything else */
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

/* mx_config_request_said — what the request says, for whoever derives more from it: nothing is
 * checked or derived, and errors are left to mx_config_load. */
const MxConfig *mx_config_request_said(MxArena *arena, const MxConfigRequest *request);

/* mx_config_runnable — refuses values that load, because MaxText's own base.yml must load or
 * because they can be planned, but that cannot be trained: tfds without a folder, tokenizers that
 * are not built, paths such as gs://bucket. Call before training. */
bool mx_config_runnable(const MxConfig *config, MxError *err);
/* mx_config_is_here — whether the path of a key, if it has one, can be on a disk of this machine;
 * mx_config_runnable asks it of all keys. mx_config_is_elsewhere — whether a path has a scheme
 * ("gs://bucket/folder"). mx_config_is_file — whether a word of a command line is the name of a
 * config file. */
bool mx_config_is_here(const MxConfig *config, MxKey key, MxError *err);
bool mx_config_is_elsewhere(const char *path);
bool mx_config_is_file(const char *word);
/* mx_config_names_eval — whether the config names data for evaluation, so that none is held out. */
bool mx_config_names_eval(const MxConfig *config);
/* mx_config_has_capacity — whether experts take a share of a row's choices alone. Source: MaxText
 * layers/moe.py @e591f30c, where products of rows sorted by experts drop none. */
static inline bool mx_config_has_capacity(const MxConfig *config) {
    return !config->sparse_matmul && config->capacity_factor > 0;
}
/* mx_config_drops — whether training leaves something out by chance. */
static inline bool mx_config_drops(const MxConfig *config) {
    return config->enable_dropout && config->dropout_rate > 0;
}
/* mx_config_drops_lora — whether training drops elements of the inputs of adapters. */
static inline bool mx_config_drops_lora(const MxConfig *config) {
    return config->enable_lora && config->enable_dropout && config->lora_dropout > 0;
}
/* mx_config_path — the path that MaxText has: of the stacked array where layers are scanned. */
const char *mx_config_path(const MxConfig *config, const MxLeaf *leaf);
/* mx_config_find — the leaf that has this path; of a stack the one at the place of `like`. NULL =
 * none. */
const MxLeaf *mx_config_find(const MxConfig *config, const MxTree *tree, const char *path,
                             const MxLeaf *like);
/* mx_config_match — whether one of a key's patterns is found in the parameter's path as MaxText's
 * masks see it. Errors: a pattern takes too long. */
bool mx_config_match(const MxConfig *config, MxKey key, const MxStrs *patterns, const MxLeaf *leaf,
                     bool *matches, MxError *err);
/* mx_config_loss_weight — the weight of a loss of pairs, or of "sft" (dpo.algo, dpo.loss_weights);
 * 0 = it is no part of the loss. */
double mx_config_loss_weight(const MxConfig *config, const char *loss);
/* mx_config_distils — whether a teacher, or its logits, teach the model. */
bool mx_config_distils(const MxConfig *config);
/* mx_config_ties — whether some parameters of a student are others. mx_config_learns_init — whether
 * its attention is made of the teacher's. */
bool mx_config_ties(const MxConfig *config);
bool mx_config_learns_init(const MxConfig *config);
/* mx_config_writes — whether the policy generates the responses that it is trained on. */
bool mx_config_writes(const MxConfig *config);
/* mx_config_judges — whether evaluations judge its answers (num_test_batches), and have no loss. */
bool mx_config_judges(const MxConfig *config);
/* mx_config_iterations — steps that learn from one batch (rl.num_iterations), at least 1: step k
 * learns from batch k / that. */
int64_t mx_config_iterations(const MxConfig *config);
/* mx_config_has_ratios — whether ratios to the policy that wrote a response may differ from 1. */
bool mx_config_has_ratios(const MxConfig *config);

/* mx_config_take — the batches of data that a step learns from: with a ramp of the batch size
 * several small ones, with rl.num_iterations the same one as other steps. mx_config_steps_of — the
 * steps that this many batches are enough for; -1 = there is no end of them. */
MxTake mx_config_take(const MxConfig *config, int64_t step);
int64_t mx_config_steps_of(const MxConfig *config, int64_t batches);
/* mx_config_share — the part that a step's rows are of those of a full batch. */
double mx_config_share(const MxConfig *config, int64_t step);

/* mx_config_vision_grid — patches of a picture of image_size_for_vit; 0 x 0 = it is neither a
 * number nor a list of height and width, or not a multiple of patch_size_for_vit, or too large.
 * mx_config_vision_pool — side, in patches, of the square that becomes one token of an image with
 * this grid; 0 = the sizes do not fit. Checks of the config report both.
 * mx_config_numbers — reads a list of whole numbers from 0 on and returns how many there are; -1 =
 * not such a list, or more than `most`.  out  [most], or NULL */
MxVisionGrid mx_config_vision_grid(const MxConfig *config);
int64_t mx_config_vision_pool(const MxConfig *config, const MxEncoder *encoder, MxVisionGrid grid);
int mx_config_numbers(const MxYaml *node, int most, int64_t *out);

/* mx_config_is_hf_format — whether hf_path is a file format, such as "parquet"; otherwise it is a
 * folder. */
bool mx_config_is_hf_format(const char *hf_path);

/* mx_config_where — the source of a key's value: a file's line, "<command line>", "environment
 * M_KEY" or "<default>" (the last three without a line). */
MxWhere mx_config_where(const MxConfig *config, MxKey key);
/* mx_config_found — the keys whose derived value is not the default, "key=value key=value"; "" =
 * none. */
const char *mx_config_found(MxArena *arena, const MxConfig *config, const MxConfigFound *found);

/* mx_config_fail — one failure about a key's value, with its place, source line and caret; returns
 * false. The key's name and ": " come before the message. Add hints with mx_note("hint: …"). */
bool mx_config_fail(MxError *err, const MxConfig *config, MxKey key, const char *fmt, ...)
    MX_PRINTF(4, 5);

/* mx_config_resume — whether a run may resume from a state that was made with another config.
 *   old   that config, from mx_config_text; keys that one of the two lacks are skipped
 *   name  name of the state, for messages
 *   out   a line for every key that changes the curve ("learning_rate: 0.001 -> 0.0005")
 * Errors (exit 2): every key that may not change, with its place, the old and the new value; (65)
 * the old text is no config. Test: tests/config/resume.c. */
bool mx_config_resume(MxArena *arena, const MxConfig *config, const char *old, const char *name,
                      MxStrs *out, MxError *err);

/* mx_config_same — checks that another config has the same values, whatever their sources.
 *   other, name  its text, from mx_config_text, and its owner ("rank 0")
 * Errors (exit 2): every key with another value, with its place here and both values. */
bool mx_config_same(MxArena *arena, const MxConfig *config, const char *other, const char *name,
                    MxError *err);

/* ---- output */

/* mx_config_text — every built key with its value as YAML that loads back to the same config;
 * comments give the sources. mx_config_write writes it to a file ("-" = stdout). */
const char *mx_config_text(MxArena *arena, const MxConfig *config);
bool mx_config_write(const MxConfig *config, const char *path, MxError *err);
/* mx_config_value — one value, as one line of YAML. */
const char *mx_config_value(MxArena *arena, const MxConfig *config, MxKey key);
/* mx_config_said — the value of a key in such a text: a scalar without quotes, other values on one
 * line; "" if the text (NULL = none) does not have the key, or is not a config. Test:
 * tests/config/resume.c. */
const char *mx_config_said(MxArena *arena, const char *text, MxKey key);
/* mx_config_print — "Config param <key>: <value>" lines on stdout for the keys that were set to
 * another value than their default, sorted, with shortened sharding rules; and a line that `path`
 * has all keys. */
void mx_config_print(const MxConfig *config, const char *path);

/* mx_config_start — a config to start from, as YAML with explanations: the keys that differ from
 * their defaults, and those in `keys`, names separated by spaces. Values of a preset come with its
 * name and are not written, because another value would be overridden. It loads back to the same
 * config. Test: tests/cli/finetune.sh. */
void mx_config_start(MxText *out, const MxConfig *config, const char *keys);

/* mx_config_help — explains a key or a group of keys, from the rows. topic NULL = the groups,
 * "markdown" = the tables of docs/CONFIG.md, "maxtext" = those of docs/MAXTEXT.md, "man" = the
 * manual page base.yml(5). Errors: neither a key nor a group. mx_config_complete — completions of
 * an argument KEY=VALUE, one per line; keys without a value end in "=", and ":files" stands for
 * file names. See MxManual. Test: tests/cli/manual.sh. */
bool mx_config_help(MxText *out, const char *topic, MxError *err);
void mx_config_complete(const char *begin, MxText *out);

const char *mx_key_name(MxKey key);

#endif
