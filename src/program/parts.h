/* parts.h — private to the room: the components of a program. An entry is a row; the order of
 * entries does not matter. A part is a row with everything that a feature adds to a program and to
 * its steps: its file and a line in parts.def. docs/adding/part.md. */
#ifndef PROGRAM_PARTS_H
#define PROGRAM_PARTS_H

#include <mx/data.h>
#include <mx/model.h>
#include <mx/program.h>

/* A graph over the program's variables, traced and run as a whole; or as many of a kind as `count`
 * says, each with a number. */
typedef struct Entry {
    const char *name; /* of several "name_number" */
    void (*trace)(MxTrainState *s, MxTrace *t);
    bool (*is_wanted)(const MxTrainState *s);                   /* NULL = in every program */
    int (*count)(const MxTrainState *s);                        /* NULL = one, without a number */
    void (*trace_one)(MxTrainState *s, MxTrace *t, int number); /* in place of trace */
} Entry;

extern const Entry entry_init, entry_weigh, entry_grad, entry_grad_add, entry_eval, entry_update;

/* Entries of pieces of sequences (generation.c): name; tokens of a row, 0 = a chunk; whether all
 * sequences have a row; whether every token has logits. */
// clang-format off
#define PIECES(ROW)                     \
    ROW(decode, 1, false, false)        \
    ROW(decode_all, 1, true, false)     \
    ROW(prefill, 0, false, false)       \
    ROW(prefill_8, 8, false, false)     \
    ROW(prefill_16, 16, false, false)   \
    ROW(prefill_32, 32, false, false)   \
    ROW(prefill_64, 64, false, false)   \
    ROW(foretell, 0, false, true)
// clang-format on
#define ROW(name, width, all_rows, all_logits) extern const Entry entry_##name;
PIECES(ROW)
#undef ROW
/* A view of an image, or some chunks of a sound, become rows, which pieces read. */
extern const Entry entry_see, entry_hear;
/* What pieces read in place of magnitudes of adapters. */
extern const Entry entry_factors;

/* Micro-batch i of n, of `examples` examples each, out of a batch that has of_examples, of which
 * this rank's replica has those from `first` on. Of those that go through a pipeline together, each
 * has variables of its own (program_own): lane says whose. */
typedef struct MicroBatch {
    int64_t i, n, examples, of_examples, first;
    int lane;
} MicroBatch;

/* Every member but the first two may be missing. */
typedef struct Part {
    bool (*is_wanted)(const MxConfig *config);
    size_t bytes; /* of what it keeps in a state (program_part), zeros at first */

    /* While a program is described: its variables and inputs, its entries (NULL at the end), its
     * leaves of the state's tree, which checkpoints hold, and whether they leave another one out.
     */
    bool (*declare)(MxTrainState *s, MxError *err);
    const Entry *const *entries;
    void (*show)(MxTrainState *s);
    bool (*leaves_out)(const MxLeaf *leaf);
    /* A leaf as checkpoints that n replicas wrote hold it. */
    void (*save)(MxTrainState *s, MxArena *arena, int64_t n, MxLeaf *leaf);

    /* In the graphs of training and evaluation: what the model is to read of a batch besides its
     * tokens. */
    void (*read)(MxTrainState *s, MxTrace *t, bool is_eval, MxModelInputs *in);

    /* In the graph of first values: that of a parameter. */
    void (*first)(MxTrainState *s, MxTrace *t, int param, MxValue value);

    /* In the graph of an update: the gradient of a trained parameter, f32, before it is clipped. */
    void (*gradient)(MxTrainState *s, MxTrace *t, int param, MxValue gradient);

    /* In the graphs of training. ask: what the trained model is to read, and to leave behind, in a
     * pass over a micro-batch. observe: what the pass over a micro-batch has made besides its
     * loss goes to variables, or is added to what they hold. adjust: a parameter's new value, f32,
     * behind the optimizer's step. */
    void (*ask)(MxTrainState *s, MxTrace *t, MxModelInputs *in);
    void (*observe)(MxTrainState *s, MxTrace *t, bool add);
    MxValue (*adjust)(MxTrainState *s, MxTrace *t, int param, MxValue value);

    /* The values of its metrics (program_add_metric) in the step that was just made. */
    void (*tell)(MxTrainState *s);

    /* While it is run. begin: the weights are those that a run starts with. open: before the first
     * batch; the data of training and evaluation, NULL = none. before_batch: batch i, or the rows
     * of it that `batch` has. before_pass: a pass of
     * training over a micro-batch. changed: parameters were changed, by a step or from outside.
     * stepped: the state's step is the number of updates that were made. */
    void (*begin)(MxTrainState *s);
    bool (*open)(MxTrainState *s, MxDataset *const data[2], MxError *err);
    bool (*before_batch)(MxTrainState *s, bool is_eval, int64_t i, const MxBatch *batch,
                         MxError *err);
    void (*before_pass)(MxTrainState *s, MicroBatch micro);
    void (*changed)(MxTrainState *s);
    void (*stepped)(MxTrainState *s);

    /* Of a config. evaluates: whether weights that no run has trained can be evaluated. takes_rows:
     * whether ranks need whole rows of a batch. */
    bool (*evaluates)(const MxConfig *config, MxError *err);
    bool (*takes_rows)(const MxConfig *config);
} Part;

enum {
#define MX_PART(name) PART_##name,
#include "parts.def"
#undef MX_PART
    PART_COUNT
};

#define MX_PART(name) extern const Part part_##name;
#include "parts.def"
#undef MX_PART

/* program_parts — all of them, wanted or not [PART_COUNT]. */
extern const Part *const program_parts[PART_COUNT];
/* program_part — what part PART_* keeps in a state; NULL = it is not wanted. */
void *program_part(const MxTrainState *state, int part);

/* ---- for entries and parts */

/* program_declare_tree — a variable for each leaf of another model's tree, divided among ranks as
 * the rules say, which no update changes. program_declare_each — a variable for each parameter, or
 * only for those that are trained. program_declare_copy — one for each, divided among ranks as that
 * is, which no update changes. program_declare_beside — one for each that is trained, divided as
 * that is; MX_NONE for others. program_declare_like — one, divided as a parameter of its shape is.
 * program_declare_input — something that every batch gives, [rows,
 * length]: an index beside those of MxBatchField. program_declare_wide_input — the same, [rows,
 * row..], which ranks have whole rows of. program_give — its values for the next batch, as the
 * batch's fields are; kept. */
int *program_declare_each(MxTrainState *state, const char *prefix, MxDtype dtype,
                          bool only_trained);
int *program_declare_beside(MxTrainState *state, const char *prefix, MxDtype dtype);
int program_declare_like(MxTrainState *state, const char *prefix, int param, MxDtype dtype);
int *program_declare_tree(MxTrainState *state, const char *prefix, const MxTree *tree);
int *program_declare_copy(MxTrainState *state, const char *prefix);
int program_declare_input(MxTrainState *state, const char *name, MxDtype dtype);
int program_declare_wide_input(MxTrainState *state, const char *name, MxDtype dtype, MxShape row);
void program_give(MxTrainState *state, int input, const void *values);
/* program_wide_rows — of a batch, of training or evaluation, at most. */
int64_t program_wide_rows(const MxConfig *config);
/* program_see — gives a batch's images and sounds, if the program has such inputs. */
void program_see(MxTrainState *state, const MxBatch *batch);
/* program_make_inputs — lets an entry make n inputs of every micro-batch of a batch, as training or
 * evaluation gets it: out[k] [rows, ..] of what this rank has of the batch, 0 where
 * others have it. */
void program_make_inputs(MxTrainState *state, const Entry *entry, const int *inputs, int n,
                         bool is_eval, const MxBatch *batch, void *const *out);

/* program_show_each — leaves for such variables, as those of parameters, in their order.
 * program_show_var — lets a leaf of the state's tree show a variable. program_add_counter — a leaf
 * of the state's own that the host keeps; program_add_numbers — an array of them, which all ranks
 * have. */
MxLeaf *program_show_each(MxTrainState *state, const char *prefix, const int *vars);
void program_show_var(MxTrainState *state, MxLeaf *leaf, int var);
void program_add_counter(MxTrainState *state, const char *path, MxDtype dtype, void *data);
void program_add_numbers(MxTrainState *state, const char *path, MxType type, void *data);

/* program_add_metric — a metric that the part tells of every step, an index: of replicas that train
 * apart the mean counts, or the largest. program_tell — its value in this step; what nobody tells
 * is NAN. */
typedef enum MetricJoin { METRIC_MEAN, METRIC_LARGEST } MetricJoin;
int program_add_metric(MxTrainState *state, const char *metric, MetricJoin join);
void program_tell(MxTrainState *state, int metric, double value);

/* program_moved_routers — of a step: the sum of the biases of routers that routed_bias_update_rate
 * moves, behind it, and how many of their elements it moved; 0 where nobody asks for them
 * (log_step_diagnostics). */
typedef struct MovedRouters {
    double sum, n_moved;
} MovedRouters;
MovedRouters program_moved_routers(const MxTrainState *state);

/* program_is_training — whether the program trains; an Entry's is_wanted. program_trace_copy —
 * every value of some variables, one a parameter, goes to others. */
bool program_is_training(const MxTrainState *state);
void program_trace_copy(MxTrainState *state, MxTrace *t, const int *from, const int *to);

/* program_run_entry — runs an entry that reads parameters; program_run_one — that of several with a
 * number. program_run_alone — one that may change what is frozen, or reads none. */
void program_run_entry(MxTrainState *state, const Entry *entry);
void program_run_one(MxTrainState *state, const Entry *entry, int number);
void program_run_alone(MxTrainState *state, const Entry *entry);

#endif
