/* answers.c — how right replies to questions are, in the ways of eval_mode. */
#include "answers.h"

#include <mx/base.h>

/* Of one reply or all of a question: 1 = it is, or a share of them. */
typedef struct Judged {
    double correct, partial, form;
} Judged;

static Judged judge(MxArena *arena, const RewardReply *reply, AnswersText right) {
    bool is_near, is_right = reward_tags_is_right(arena, reply, right.text, right.n, &is_near);
    return (Judged){is_right, is_near, reply->has_form};
}

/* The first reply that has all, or else the last one. */
static Judged best(MxArena *arena, const RewardReply *replies, int64_t n, AnswersText right) {
    Judged judged = {0};
    for (int64_t i = 0; i < n; i++) {
        judged = judge(arena, &replies[i], right);
        if (judged.correct > 0 && judged.partial > 0 && judged.form > 0) break;
    }
    return judged;
}

static bool say_the_same(const RewardReply *a, const RewardReply *b) {
    return a->n == b->n && !memcmp(a->answer, b->answer, a->n);
}

/* What most replies say, of equally many the first. The form is right if it is in one of these. */
static Judged most(MxArena *arena, const RewardReply *replies, int64_t n, AnswersText right) {
    int64_t at = 0, most = 0;
    for (int64_t i = 0; i < n; i++) {
        int64_t same = 0;
        for (int64_t k = 0; k < n; k++) same += say_the_same(&replies[i], &replies[k]);
        if (same > most) at = i, most = same;
    }
    Judged judged = judge(arena, &replies[at], right);
    for (int64_t k = 0; k < n; k++)
        if (say_the_same(&replies[at], &replies[k]) && replies[k].has_form) judged.form = 1;
    return judged;
}

static Judged shares(MxArena *arena, const RewardReply *replies, int64_t n, AnswersText right) {
    Judged sum = {0};
    for (int64_t i = 0; i < n; i++) {
        Judged one = judge(arena, &replies[i], right);
        sum.correct += one.correct / (double)n;
        sum.partial += one.partial / (double)n;
        sum.form += one.form / (double)n;
    }
    return sum;
}

static const struct {
    const char *name;
    Judged (*of)(MxArena *arena, const RewardReply *replies, int64_t n, AnswersText right);
} modes[] = {{"pass", best}, {"maj", most}, {"pass_at_1", shares}};

void answers_judge(MxArena *arena, const RewardTags *tags, const char *eval_mode,
                   const AnswersText *replies, int64_t n, AnswersText right, Answers *to) {
    RewardReply *read = mx_new_n(arena, RewardReply, n);
    int mode = 0;
    while (mode < MX_COUNT(modes) && strcmp(modes[mode].name, eval_mode) != 0) mode++;
    MX_ASSERT(mode < MX_COUNT(modes) && n > 0);
    for (int64_t i = 0; i < n; i++)
        read[i] = reward_tags_read(arena, tags, replies[i].text, replies[i].n);
    Judged judged = modes[mode].of(arena, read, n, right);
    to->n++;
    to->correct += judged.correct;
    to->partial += judged.partial;
    to->form += judged.form;
}

static double share(double sum, double n) {
    return n > 0 ? sum / n : 0;
}

void answers_collect(const Answers *a, Metrics *out) {
    const double percent = 100;
    metrics_add(out, "eval/questions", a->n);
    metrics_add(out, "eval/accuracy", percent * share(a->correct, a->n));
    metrics_add(out, "eval/partial_accuracy", percent * share(a->partial, a->n));
    metrics_add(out, "eval/format_accuracy", percent * share(a->form, a->n));
    metrics_add(out, "eval/avg_reward", share(a->reward, a->n_rewards));
}

void answers_tell(const Answers *a, int64_t step, double seconds) {
    const double percent = 100;
    const char *when = step < 0 ? "before the first step" : "after train step";
    MxArena arena = {.name = "answers"};
    mx_log("Completed eval %s%s, correct=%.6g of %.6g, accuracy=%.4g %%, partial_accuracy=%.4g %%, "
           "format_accuracy=%.4g %%, reward=%.4g, seconds=%.3f",
           when, step < 0 ? "" : mx_arena_printf(&arena, " %lld", (long long)step), a->correct,
           a->n, percent * share(a->correct, a->n), percent * share(a->partial, a->n),
           percent * share(a->form, a->n), share(a->reward, a->n_rewards), seconds);
    mx_arena_release(&arena);
}
