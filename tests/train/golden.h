/* golden.h — values of the real systems, and comparing with them. */
#ifndef TESTS_TRAIN_GOLDEN_H
#define TESTS_TRAIN_GOLDEN_H
#include "common/goldens.h"

#include <mx/ckpt.h>
#include <mx/model.h>
#include <mx/program.h>

/* golden_error — norm of the difference over the norm of `want`; 0/0 = 0. */
double golden_error(const float *got, const float *want, int64_t n);
/* golden_max_abs — the largest difference. */
double golden_max_abs(const float *got, const float *want, int64_t n);

/* golden_values — a copy of a leaf's values, in the arena. */
float *golden_values(MxArena *arena, const MxLeaf *leaf);

/* golden_open — a file of the folder; NULL if the folder lacks it, which is counted
 * (common/goldens.h); the arena is then released, for there is nothing to do. */
MxH5 *golden_open(MxArena *arena, const char *name);
/* golden_cases — the groups below a group that have a dataset "loss", with their paths, in order.
 */
int golden_cases(MxArena *arena, MxH5 *file, const char *group, const char **names, int cap);

/* golden_read — a whole dataset as f32 in the arena; NULL if there is none. n receives the element
 * count. */
float *golden_read(MxArena *arena, MxH5 *file, const char *path, int64_t *n);

/* golden_config — loads a config from command-line words separated by blanks, plus extra words. */
bool golden_config(MxArena *arena, const char *words, const char *more, MxConfig **out,
                   MxError *err);

/* golden_text_config — from lines "key: value", with extra words. Fails the test where that is no
 * config. */
MxConfig *golden_text_config(MxArena *arena, const char *yaml, const char *more);
/* golden_yaml_config — from the `config` attribute of a group, or of the file if the group has
 * none: lines of overrides. Fails the test where that is no config. */
MxConfig *golden_yaml_config(MxArena *arena, MxH5 *file, const char *group, const char *more);

/* golden_hf_start — the state of a run that starts from a model of Hugging Face's, with extra
 * words; one bit of it moved where close_nudge says so. */
MxTrainState *golden_hf_start(MxArena *arena, const char *folder, const char *more);

/* golden_batch — step `step` of [steps, B, S] datasets of a group, or of [B, S] ones (step 0). */
MxBatch golden_batch(MxArena *arena, MxH5 *file, const char *group, int64_t step);

/* The forward pass and its gradient as a program of the test's own. The original casts the output
 * table of tied models to bfloat16 even when it computes in float32; `rounds_table` does the same
 * here, in the head alone. */
typedef struct GoldenProgram GoldenProgram;
GoldenProgram *golden_program(MxArena *arena, const MxConfig *config, bool rounds_table);
/* golden_logits — f32 [B, T, V] with the state's present parameters. */
const float *golden_logits(GoldenProgram *program, const MxTree *state, const MxBatch *batch);
/* golden_loss_and_grad — as mx_train_loss_and_grad, and leaves the gradient in `state`. */
MxLoss golden_loss_and_grad(GoldenProgram *program, MxTrainState *state, const MxBatch *batch);

/* golden_gradient_tree — the gradients of a state as a tree with the parameters' paths ("model/…").
 */
MxTree golden_gradient_tree(MxArena *arena, const MxTrainState *state);
/* golden_like — a tree of the same parameters with fresh data, read from a group; where it lacks
 * those that have no gradient, they are zeros. */
bool golden_like(MxArena *arena, const MxTrainState *state, MxH5 *file, const char *group,
                 int scan_axis, MxTree *out, MxError *err);

#endif
