/* exams.c — tasks in evaluations: files of questions, read when a run begins and asked in every
 * evaluation, with the current weights and adapters. */
#include "exams.h"

#include "data.h"
#include "internal.h"

#include <mx/generate.h>

typedef struct Task {
    const char *path, *name; /* name: of the file, without folder and suffix */
    MxExam *exam;
    const char *metric[MX_EXAM_FIGURES];
} Task;

struct Exams {
    MxTrainState *state;
    MxTasks what; /* of all, but for the path */
    Task *task;   /* [n] */
    int n, at;
    int64_t next; /* question of task `at` */
};

enum { MOST_TASKS = 8 };

static const char *name_of(MxArena *arena, const char *path) {
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    return mx_arena_strndup(arena, name, strcspn(name, "."));
}

static bool fail(const MxConfig *c, const Task *task, const char *what, MxError *err) {
    return mx_config_fail(err, c, MX_KEY_eval_tasks, "\"%s\" %s", task->path, what);
}

/* All of a question and its answer go through the model in one row. */
static bool check_length(const MxConfig *c, const Task *task, MxError *err) {
    MxWhere where;
    int64_t longest = mx_exam_longest(task->exam, &where), most = c->max_target_length;
    return longest <= most ||
           mx_fail(err, MX_EXIT_BAD_INPUT, where,
                   "the question has %lld tokens with its answer, more than max_target_length=%lld",
                   (long long)longest, (long long)most) ||
           mx_context(err, "%s", mx_key_name(MX_KEY_eval_tasks));
}

static bool open_task(MxArena *arena, Exams *e, const MxTokenizer *tokenizer, const char *path,
                      MxError *err) {
    const MxConfig *c = mx_train_state_config(e->state);
    const char *figure[MX_EXAM_FIGURES];
    double value[MX_EXAM_FIGURES];
    MxTasks *what = mx_new(arena, MxTasks);
    Task *task = &e->task[e->n];
    *task = (Task){.path = path, .name = name_of(arena, path)};
    *what = e->what;
    what->path = path;
    for (int i = 0; i < e->n; i++)
        if (!strcmp(task->name, e->task[i].name))
            return fail(c, task, "has the name of another one; metrics would be the same", err);
    if (!mx_exam_read(arena, tokenizer, what, &task->exam, err))
        return mx_context(err, "%s", mx_key_name(MX_KEY_eval_tasks));
    int n = mx_exam_figures(task->exam, figure, value);
    for (int i = 0; i < n; i++)
        task->metric[i] = mx_arena_printf(arena, "eval/%s/%s", task->name, figure[i]);
    e->n++;
    return check_length(c, task, err);
}

bool exams_open(MxArena *arena, MxTrainState *state, Exams **out, MxError *err) {
    const MxConfig *c = mx_train_state_config(state);
    const MxStrs *paths = &c->eval_tasks;
    MxTokenizer *tokenizer;
    *out = NULL;
    if (!paths->n || !mx_generation(state).all_logits) return true;
    if (paths->n > MOST_TASKS)
        return mx_config_fail(err, c, MX_KEY_eval_tasks, "found %d files, wanted at most %d",
                              paths->n, MOST_TASKS);
    if (!train_open_tokenizer(arena, c, &tokenizer, NULL, err)) return false;
    if (!tokenizer)
        return mx_config_fail(err, c, MX_KEY_eval_tasks,
                              "dataset_type=%s has no tokenizer, which questions want",
                              c->dataset_type);
    Exams *e = *out = mx_new(arena, Exams);
    *e = (Exams){.state = state,
                 .what = {.max_tokens = c->eval_tasks_max_tokens, .length = c->max_target_length}};
    e->task = mx_new_n(arena, Task, paths->n);
    for (int i = 0; i < paths->n; i++)
        if (!open_task(arena, e, tokenizer, paths->item[i], err)) return false;
    exams_begin(e);
    return true;
}

void exams_begin(Exams *e) {
    for (int i = 0; e && i < e->n; i++) mx_exam_begin(e->task[i].exam, e->state, NULL, 0);
    if (e) e->at = 0, e->next = 0;
}

bool exams_ask(Exams *e, bool *is_over, MxError *err) {
    *is_over = !e || e->at == e->n;
    if (*is_over) return true;
    MxArena arena = {.name = "question"};
    MxExam *exam = e->task[e->at].exam;
    MxJson *line;
    bool ok = mx_exam_ask(&arena, exam, e->next, &line, err);
    if (++e->next == mx_exam_count(exam)) e->at++, e->next = 0;
    mx_arena_release(&arena);
    return ok;
}

void exams_collect(const Exams *e, Metrics *out) {
    const char *figure[MX_EXAM_FIGURES];
    double value[MX_EXAM_FIGURES];
    for (int i = 0; e && i < e->n; i++) {
        int n = mx_exam_figures(e->task[i].exam, figure, value);
        for (int k = 0; k < n; k++) metrics_add(out, e->task[i].metric[k], value[k]);
    }
}

void exams_tell(const Exams *e, int64_t step) {
    const char *figure[MX_EXAM_FIGURES];
    double value[MX_EXAM_FIGURES];
    for (int i = 0; e && i < e->n; i++) {
        const MxExam *exam = e->task[i].exam;
        MxArena arena = {.name = "figures"};
        MxText line;
        mx_text_init(&line, &arena);
        int n = mx_exam_figures(exam, figure, value);
        for (int k = 0; k < n; k++) mx_text_add(&line, ", %s=%.6g", figure[k], value[k]);
        mx_log("task %s after step %lld: %s=%lld%s", e->task[i].name, (long long)step,
               mx_exam_unit(exam), (long long)mx_exam_count(exam), line.data);
        mx_arena_release(&arena);
    }
}
