/* parts.c — the table of parts, and functions that call all parts that a config needs. */
#include "parts.h"

#include "internal.h"

#include <math.h>

#define MX_PART(name) &part_##name,
const Part *const program_parts[PART_COUNT] = {
#include "parts.def"
};
#undef MX_PART

void *program_part(const MxTrainState *s, int part) {
    return s->part[part];
}

void mx_train_state_begin(MxTrainState *s) {
    for (int i = 0; i < PART_COUNT; i++)
        if (s->part[i] && program_parts[i]->begin) program_parts[i]->begin(s);
}

void program_changed(MxTrainState *s) {
    for (int i = 0; i < PART_COUNT; i++)
        if (s->part[i] && program_parts[i]->changed) program_parts[i]->changed(s);
}

void program_stepped(MxTrainState *s) {
    for (int i = 0; i < PART_COUNT; i++)
        if (s->part[i] && program_parts[i]->stepped) program_parts[i]->stepped(s);
}

void program_first(MxTrainState *s, MxTrace *t, int param, MxValue value) {
    for (int i = 0; i < PART_COUNT; i++)
        if (s->part[i] && program_parts[i]->first) program_parts[i]->first(s, t, param, value);
}

void program_before_pass(MxTrainState *s, MicroBatch micro) {
    for (int i = 0; i < PART_COUNT; i++)
        if (s->part[i] && program_parts[i]->before_pass) program_parts[i]->before_pass(s, micro);
}

/* ---- metrics */

int program_add_metric(MxTrainState *s, const char *metric, MetricJoin join) {
    size_t n = (size_t)s->n_told++;
    s->told = mx_arena_grow(s->arena, s->told, n, n + 1, sizeof *s->told);
    s->told_join = mx_arena_grow(s->arena, s->told_join, n, n + 1, sizeof *s->told_join);
    s->told[n] = (MxTold){.metric = metric, .value = NAN};
    s->told_join[n] = join;
    return (int)n;
}

void program_tell(MxTrainState *s, int metric, double value) {
    s->told[metric].value = value;
}

void program_forget_told(MxTrainState *s) {
    for (int i = 0; i < s->n_told; i++) s->told[i].value = NAN;
}

void program_tell_all(MxTrainState *s) {
    for (int i = 0; i < PART_COUNT; i++)
        if (s->part[i] && program_parts[i]->tell) program_parts[i]->tell(s);
}

const MxTold *mx_train_told(const MxTrainState *s, int *n) {
    *n = s->n_told;
    return s->told;
}

/* ---- data and checkpoints */

bool mx_train_open_parts(MxTrainState *s, MxDataset *const data[2], MxError *err) {
    for (int i = 0; i < PART_COUNT; i++)
        if (s->part[i] && program_parts[i]->open && !program_parts[i]->open(s, data, err))
            return false;
    return true;
}

bool mx_train_before_batch(MxTrainState *s, bool is_eval, int64_t index, const MxBatch *batch,
                           MxError *err) {
    for (int i = 0; i < PART_COUNT; i++)
        if (s->part[i] && program_parts[i]->before_batch &&
            !program_parts[i]->before_batch(s, is_eval, index, batch, err))
            return false;
    return true;
}

bool mx_train_evaluates(const MxConfig *config, MxError *err) {
    for (int i = 0; i < PART_COUNT; i++) {
        const Part *part = program_parts[i];
        if (part->evaluates && part->is_wanted(config) && !part->evaluates(config, err))
            return false;
    }
    return true;
}

bool program_takes_rows(const MxConfig *config) {
    for (int i = 0; i < PART_COUNT; i++) {
        const Part *part = program_parts[i];
        if (part->takes_rows && part->is_wanted(config) && part->takes_rows(config)) return true;
    }
    return false;
}

MxTree *mx_train_saved_tree(MxArena *arena, MxTrainState *s) {
    return mx_train_saved_tree_of(arena, s, program_replicas(s));
}

MxTree *mx_train_saved_tree_of(MxArena *arena, MxTrainState *s, int64_t n_replicas) {
    MxTree *saved = mx_new(arena, MxTree);
    mx_tree_init(saved, arena);
    for (int k = 0; k < s->tree.n; k++) {
        bool is_left_out = false;
        MxLeaf leaf = s->tree.leaves[k];
        for (int i = 0; i < PART_COUNT; i++) {
            is_left_out = is_left_out || (s->part[i] && program_parts[i]->leaves_out &&
                                          program_parts[i]->leaves_out(&leaf));
            if (s->part[i] && program_parts[i]->save)
                program_parts[i]->save(s, arena, n_replicas, &leaf);
        }
        if (!is_left_out) mx_tree_add(saved, leaf);
    }
    return saved;
}
