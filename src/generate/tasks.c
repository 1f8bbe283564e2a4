/* tasks.c — results of the model in a folder on a task, on stdout. */
#include "tasks.h"

#include <stdio.h>

/* The longest row that the model knows: what its config.json says, or it was trained on. */
static bool find_length(MxArena *arena, const MxSource *source, int64_t *out, MxError *err) {
    enum { MOST = 2048 };
    const MxCkptRef *ref = &source->ref;
    MxHfModel model = {.length = source->config->max_target_length};
    if (ref->is_hf && !mx_hf_read_config(arena, mx_hf_config_path(arena, ref->path), &model, err))
        return false;
    *out = model.length > 0 && model.length < MOST ? model.length : MOST;
    return true;
}

/* capacity  tokens of a row */
static bool open_model(MxArena *arena, const MxSource *source, const MxExam *exam,
                       MxTrainState **out, MxError *err) {
    enum { LARGEST_CHUNK = 128 };
    int64_t longest = mx_exam_longest(exam, NULL);
    if (!longest && !find_length(arena, source, &longest, err)) return false;
    int64_t chunk = longest < 2 ? 2 : longest < LARGEST_CHUNK ? longest : LARGEST_CHUNK;
    MxGeneration what = {.rows = 1,
                         .capacity = longest < chunk ? chunk : longest,
                         .chunk = chunk,
                         .all_logits = mx_exam_wants_logits(exam)};
    return mx_source_open(arena, source, what, out, err);
}

/* Learned positions end somewhere. */
static bool check_longest(const MxExam *exam, const MxTrainState *state, MxError *err) {
    MxWhere where;
    int64_t longest = mx_exam_longest(exam, &where), most = mx_generation(state).capacity;
    return longest <= most ||
           mx_fail(err, MX_EXIT_BAD_INPUT, where,
                   "the question has %lld tokens with its answer, and the model %lld positions",
                   (long long)longest, (long long)most);
}

static void show_line(MxArena *arena, const MxJson *line) {
    printf("%s\n", mx_json_dump(arena, line, false));
    fflush(stdout);
}

static bool ask_all(MxExam *exam, bool shows, MxError *err) {
    bool ok = true;
    for (int64_t i = 0; ok && i < mx_exam_count(exam); i++) {
        MxArena arena = {.name = "question"};
        MxJson *line;
        ok = mx_exam_ask(&arena, exam, i, &line, err);
        if (ok && line && shows) show_line(&arena, line);
        mx_arena_release(&arena);
    }
    return ok;
}

static void show_figures(MxArena *arena, const MxExam *exam, bool as_json) {
    const char *name[MX_EXAM_FIGURES];
    double value[MX_EXAM_FIGURES];
    MxJson *figures = mx_json_object(arena);
    int n = mx_exam_figures(exam, name, value);
    mx_json_set_int(figures, mx_exam_unit(exam), mx_exam_count(exam));
    for (int i = 0; i < n; i++) mx_json_set_number(figures, name[i], value[i]);
    if (as_json) {
        show_line(arena, figures);
        return;
    }
    printf("%-18s %lld\n", mx_exam_unit(exam), (long long)mx_exam_count(exam));
    for (int i = 0; i < n; i++) printf("%-18s %.6g\n", name[i], value[i]);
}

bool mx_evaluate_tasks(MxArena *arena, const char *dir, const MxTokenizer *tokenizer,
                       const MxTasks *what, MxError *err) {
    MxSource source;
    MxExam *exam;
    MxTrainState *state;
    if (!mx_exam_read(arena, tokenizer, what, &exam, err) ||
        !mx_source_find(arena, dir, false, what->weights, &source, err) ||
        !open_model(arena, &source, exam, &state, err) || !check_longest(exam, state, err))
        return false;
    mx_exam_begin(exam, state, source.ends, source.n_ends);
    if (!ask_all(exam, what->json, err)) return false;
    show_figures(arena, exam, what->json);
    return true;
}
