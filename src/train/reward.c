/* reward.c — rewards of completions: those computed from a text and its record and, by the same
 * table, those of a user's program (reward_program.c). */
#include "reward.h"

#include "reward_program.h"
#include "reward_tags.h"

#include <math.h>

struct Reward {
    const MxConfig *config;
    const struct RewardRow *row;
    MxRegex *pattern;
    RewardProgram *program;
};

static bool is_space(char c) {
    return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

/* Without spaces around. */
static size_t trim(const char **text, size_t n) {
    while (n && is_space(**text)) (*text)++, n--;
    while (n && is_space((*text)[n - 1])) n--;
    return n;
}

/* In MaxText's order. Source: trainers/post_train/rl/utils_rl.py, process_data @e591f30c. */
static const char *const answers[] = {"answer", "solution", "expected_answer", NULL};

/* Behind the mark before an answer that follows its derivation, in gsm8k's records. Source: the
 * same, extract_hash_answer. */
static const char *behind_mark(const MxConfig *config, bool is_eval, const char *text, size_t *n) {
    static const char set[] = "openai/gsm8k", mark[] = "####";
    const char *name = is_eval ? config->eval_dataset_name : config->dataset_name;
    const char *at = name && !strcmp(name, set) ? strstr(text, mark) : NULL, *end;
    if (!at) return text;
    at += strlen(mark);
    end = strstr(at, mark);
    *n = end ? (size_t)(end - at) : strlen(at);
    *n = trim(&at, *n);
    return at;
}

/* What the record says; it was read before, and says it. */
static const char *answer_of(const MxConfig *config, MxArena *arena, const Completion *c,
                             size_t *n) {
    MxError none = {0};
    MxJson *record = mx_json_parse(arena, c->record, strlen(c->record), "record", &none);
    const MxJson *answer = NULL;
    for (int i = 0; !answer && answers[i]; i++) answer = mx_json_get(record, answers[i]);
    *n = mx_json_string_bytes(answer);
    return behind_mark(config, c->is_eval, mx_json_string(answer), n);
}

static float exact(const Reward *reward, MxArena *arena, const Completion *c, const char **why) {
    size_t n_wanted;
    const char *is = c->text, *wanted = answer_of(reward->config, arena, c, &n_wanted);
    size_t n = trim(&is, c->bytes);
    n_wanted = trim(&wanted, n_wanted);
    (void)why;
    return n == n_wanted && !memcmp(is, wanted, n) ? 1 : 0;
}

static float maxtext(const Reward *reward, MxArena *arena, const Completion *c, const char **why) {
    size_t n;
    const char *answer = answer_of(reward->config, arena, c, &n);
    const RewardTags tags = reward_tags_of(reward->config);
    (void)why;
    return (float)reward_tags(arena, &tags, c->text, c->bytes, answer, n);
}

static float matches(const Reward *reward, MxArena *arena, const Completion *c, const char **why) {
    (void)arena;
    switch (mx_regex_match(reward->pattern, c->text)) {
    case MX_MATCH_NONE:
        return 0;
    case MX_MATCH_GAVE_UP:
        *why = "the pattern has too many ways to be found in it";
        return NAN;
    default:
        return 1;
    }
}

static float length(const Reward *reward, MxArena *arena, const Completion *c, const char **why) {
    double wanted = (double)reward->config->rl_reward_length;
    double off = fabs((double)c->n_tokens - wanted) / wanted;
    (void)arena, (void)why;
    return (float)fmax(1 - off, 0);
}

/* A word of rl.reward. */
typedef struct RewardRow {
    const char *name;
    bool asks; /* for the record's answer */
    /* The reward of one completion; NAN: *why there is none. NULL = a program tells them. */
    float (*of)(const Reward *reward, MxArena *arena, const Completion *c, const char **why);
} RewardRow;

static const RewardRow rows[] = {{"exact", true, exact},
                                 {"maxtext", true, maxtext},
                                 {"regex", false, matches},
                                 {"length", false, length},
                                 {"command", false, NULL}};

static const RewardRow *row_of(const MxConfig *config) {
    for (int i = 0; i < MX_COUNT(rows); i++)
        if (!strcmp(rows[i].name, config->rl_reward)) return &rows[i];
    return NULL;
}

const char *const *reward_answers(const MxConfig *config) {
    const RewardRow *row = row_of(config);
    return row && row->asks ? answers : NULL;
}

Reward *reward_open(MxArena *arena, const MxConfig *config) {
    Reward *reward = mx_new(arena, Reward);
    const char *why;
    *reward = (Reward){.config = config, .row = row_of(config)};
    MX_ASSERT(reward->row);
    if (config->rl_reward_pattern)
        reward->pattern = mx_regex_new(arena, config->rl_reward_pattern, &why);
    if (!reward->row->of) reward->program = reward_program_new(arena, config);
    return reward;
}

/* What the program reads of a completion. */
static const char *line_of(MxArena *arena, const Completion *c, int64_t i) {
    MxText line;
    const size_t n_history = strlen(c->history);
    mx_text_init(&line, arena);
    mx_text_add(&line, "{\"id\":%lld,\"completion\":", (long long)i);
    mx_text_add(&line, "%s", mx_json_quote(arena, c->text, c->bytes));
    mx_text_add(&line, ",\"tokens\":%lld,\"is_cut\":%s,\"turns_left\":%lld,\"history\":[",
                (long long)c->n_tokens, c->is_cut ? "true" : "false", (long long)c->turns_left);
    mx_text_addn(&line, c->history, n_history ? n_history - 1 : 0);
    mx_text_add(&line, "],\"record\":");
    mx_text_addn(&line, c->record, strlen(c->record));
    mx_text_addn(&line, "}\n", 2);
    return line.data;
}

bool reward_give(Reward *reward, MxArena *arena, const Completion *completions, int64_t n,
                 RewardAnswer *out, MxError *err) {
    const char **lines = mx_new_n(arena, const char *, n);
    for (int64_t i = 0; i < n; i++) {
        out[i] = (RewardAnswer){0};
        if (reward->program)
            lines[i] = line_of(arena, &completions[i], i);
        else
            out[i].reward = reward->row->of(reward, arena, &completions[i], &out[i].why);
    }
    return !reward->program || reward_program_ask(reward->program, arena, lines, n, out, err) ||
           mx_context(err, "%s", mx_key_name(MX_KEY_rl_reward_command));
}

void reward_judge(const Reward *reward, MxArena *arena, const Completion *completions, int64_t n,
                  int64_t step, Answers *to) {
    const RewardTags tags = reward_tags_of(reward->config);
    AnswersText *texts = mx_new_n(arena, AnswersText, n), right;
    for (int64_t i = 0; i < n; i++)
        texts[i] = (AnswersText){completions[i * step].text, completions[i * step].bytes};
    right.text = answer_of(reward->config, arena, completions, &right.n);
    answers_judge(arena, &tags, reward->config->eval_mode, texts, n, right, to);
}
