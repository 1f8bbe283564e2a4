/* scores.c — groups of responses: the reward of each, and the log-probabilities with which it was
 * generated. A group is config->group consecutive records with one prompt. */
#include "records.h"

static const char reward_column[] = "reward", label_column[] = "label",
                  logprobs_column[] = "logprobs";

static bool has_same_prompt(const Records *records, const Record *a, const Record *b) {
    size_t bytes = records->is_narrow ? sizeof(uint16_t) : sizeof(int32_t);
    return a->n[PROMPT] == b->n[PROMPT] && pictures_are_same(a->pictures, b->pictures) &&
           (!a->n[PROMPT] || !memcmp(a->ids, b->ids, (size_t)a->n[PROMPT] * bytes));
}

static bool read_reward(const Fields *fields, MxWhere where, float *out, MxError *err) {
    Field field;
    double value;
    if (!fields->get(fields->record, reward_column, &field))
        return mx_fail(err, MX_EXIT_BAD_INPUT, where,
                       "has no column \"%s\", wanted the response's reward, a number",
                       reward_column);
    if (!mx_json_number(field.json, &value))
        return mx_fail(err, MX_EXIT_BAD_INPUT, where, "column \"%s\" holds %s, wanted a number",
                       reward_column, field.kind);
    *out = (float)value;
    return true;
}

static bool read_label(const Fields *fields, MxWhere where, float *out, MxError *err) {
    Field field = {.kind = "nothing"};
    bool is_wanted = false;
    if (!fields->get(fields->record, label_column, &field) || !field.json ||
        !mx_json_bool(field.json, &is_wanted))
        return mx_fail(err, MX_EXIT_BAD_INPUT, where,
                       "column \"%s\" holds %s, wanted true where the completion is wanted, or "
                       "false",
                       label_column, field.kind);
    *out = is_wanted;
    return true;
}

static bool read_logprobs(Records *records, const Fields *fields, int64_t n, MxWhere where,
                          MxError *err) {
    Field field = {.kind = "nothing"};
    Record *record = &records->item[records->n - 1];
    bool is_list =
        fields->get(fields->record, logprobs_column, &field) && !strcmp(field.kind, "a list");
    if (!is_list)
        return mx_fail(err, MX_EXIT_BAD_INPUT, where,
                       "column \"%s\" holds %s, wanted a list of numbers, one a token "
                       "(rl.recorded_logprobs)",
                       logprobs_column, field.kind);
    int64_t found = (int64_t)mx_json_length(field.json);
    if (found != n)
        return mx_fail(err, MX_EXIT_BAD_INPUT, where,
                       "column \"%s\" holds %lld numbers, but the response has %lld tokens%s",
                       logprobs_column, (long long)found, (long long)n,
                       records->dataset->config.omits_eos ? "" : " with that of its end");
    float *logprobs = mx_new_n(records->arena, float, n + 1);
    for (int64_t i = 0; i < n; i++) {
        double value;
        if (!mx_json_number(mx_json_at(field.json, (size_t)i), &value) || value > 0)
            return mx_fail(err, MX_EXIT_BAD_INPUT, where,
                           "column \"%s\": element %lld is no number, or above 0", logprobs_column,
                           (long long)i);
        logprobs[i] = (float)value;
    }
    record->logprobs = logprobs;
    return true;
}

bool scores_read(Records *records, const Fields *fields, const Draft *draft, MxWhere where,
                 MxError *err) {
    const MxDataConfig *config = &records->dataset->config;
    int64_t at = (records->n - 1) % config->group;
    Record *record = &records->item[records->n - 1];
    if (!at) {
        records->group_begins = where;
        records->group_begins.file = mx_arena_strdup(records->arena, where.file);
    } else if (!has_same_prompt(records, record, record - at)) {
        return mx_fail(err, MX_EXIT_BAD_INPUT, where,
                       "the prompt differs from that of line %d, with which its group of "
                       "rl.num_generations=%lld begins",
                       records->group_begins.line, (long long)config->group);
    }
    if (config->has_labels) return read_label(fields, where, &record->reward, err);
    return read_reward(fields, where, &record->reward, err) &&
           (!config->reads_logprobs ||
            read_logprobs(records, fields, draft->piece[ANSWER].n, where, err));
}

/* The first of the columns that there is. */
static bool check_answer(const MxDataConfig *config, const Fields *fields, MxWhere where,
                         MxError *err) {
    const char *const *answers = config->answers;
    const char *name = answers ? *answers : NULL;
    Field field = {.kind = "nothing"};
    for (bool is_there = false; answers && *answers && !is_there; answers++)
        if ((is_there = fields->get(fields->record, *answers, &field))) name = *answers;
    return !name || field.text ||
           mx_fail(err, MX_EXIT_BAD_INPUT, where,
                   "column \"%s\" holds %s, wanted the text that rewarded completions have", name,
                   field.kind);
}

bool scores_keep(Records *records, const Fields *fields, MxWhere where, MxError *err) {
    const char *name;
    Field field;
    if (!check_answer(&records->dataset->config, fields, where, err)) return false;
    MxArena scratch = {.name = "record"};
    MxJson *all = mx_json_object(&scratch);
    for (size_t i = 0; (name = fields->name(fields->record, i)); i++)
        if (fields->get(fields->record, name, &field)) mx_json_set(all, name, field.json);
    records->item[records->n - 1].text = mx_json_dump(records->arena, all, false);
    mx_arena_release(&scratch);
    return true;
}

const char *records_text(const MxDataset *dataset, int64_t row) {
    return ((const Records *)dataset->source)->item[row].text;
}

bool scores_check(const Records *records, MxError *err) {
    int64_t group = records->dataset->config.group, rest = records->n % group;
    return !rest || mx_fail(err, MX_EXIT_BAD_INPUT, records->group_begins,
                            "the last group has %lld response%s, wanted rl.num_generations=%lld",
                            (long long)rest, rest == 1 ? "" : "s", (long long)group);
}

float records_score(const MxDataset *dataset, int64_t row, float *logprobs) {
    const Records *records = dataset->source;
    const Record *record = &records->item[row];
    int64_t length = dataset->config.length;
    if (!logprobs) return record->reward;
    for (int64_t t = 0; t < length; t++) {
        int64_t token = t + 1 - record->n[PROMPT]; /* of the response, which is target t */
        bool is_there = token >= 0 && token < record->n[ANSWER];
        logprobs[t] = is_there ? record->logprobs[token] : 0;
    }
    return record->reward;
}
