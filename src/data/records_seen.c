/* records_seen.c — the images and sounds of a record while it is read: which it has, and that each
 * has its tokens. */
#include "records.h"

static bool fail_own(MxWhere where, MxError *err) {
    return mx_fail(err, MX_EXIT_BAD_INPUT, where,
                   "its responses have images or sounds of their own; those of pairs belong to the "
                   "prompt, which both have");
}

/* Both lists of a pair without a prompt begin with it; else the first list does. Images of the
 * column get their places in it. */
bool records_find_seen(MxArena *arena, const Records *records, const Fields *fields, Field *column,
                       MxWhere where, Draft *draft, MxError *err) {
    const MxDataConfig *config = &records->dataset->config;
    const MxJson *messages[COLUMNS_MOST] = {0};
    Seer *seer = records->seer;
    if (!seer) return true;
    int n = records->columns.talks ? records->columns.n_texts : 0;
    int n_begin = n == records_answers(config) ? n : n > 0;
    for (int i = 0; i < n; i++) messages[i] = column[i].json;
    for (int i = n_begin; config->pairs && i < n; i++)
        if (message_list_shows(messages[i])) return fail_own(where, err);
    if (config->pairs) n = n > 0; /* a prompt, or what begins with it */
    if (!pictures_of(arena, seer, fields, messages, n, n_begin, where, &draft->pictures, err))
        return false;
    for (int i = 0; i < n_begin; i++) column[i].json = messages[i];
    return pictures_look(arena, seer, &draft->pictures, where, err);
}

/* Of pieces from one to before another. */
static int64_t count_seen(const Records *records, const MxTokens *piece, int from, int end) {
    int64_t n = 0;
    for (int i = from; i < end; i++)
        for (int64_t k = 0; k < piece[i].n; k++) n += seer_reads(records->seer, piece[i].ids[k]);
    return n;
}

bool records_check_seen(const Records *records, const Draft *draft, bool is_cut, MxWhere where,
                        MxError *err) {
    const MxDataConfig *config = &records->dataset->config;
    if (!records->seer) return true;
    const Pictures *pictures = &draft->pictures;
    int64_t wanted = pictures_tokens(records->seer, pictures);
    int64_t found = count_seen(records, draft->piece, PROMPT, PIECES);
    if (!is_cut && config->pairs && count_seen(records, draft->piece, ANSWER, PIECES))
        return fail_own(where, err);
    if (!is_cut || found == wanted)
        return pictures_check(records->seer, pictures, found, where, err);
    bool is_prompt = config->pairs || config->asks;
    return mx_fail(err, MX_EXIT_BAD_INPUT, where,
                   "its images and sounds do not fit into %s (%lld), with %lld tokens",
                   config->asks    ? "max_prefill_predict_length"
                   : config->pairs ? "dpo.max_prompt_length"
                                   : "max_target_length",
                   (long long)(is_prompt ? config->max_prompt_length : config->length),
                   (long long)wanted);
}

void records_keep_seen(Records *records, const Draft *draft, MxWhere where, Record *record) {
    if (!draft->pictures.n && !draft->pictures.sounds.n) return;
    record->pictures = pictures_keep(records->arena, &draft->pictures);
    record->where = where;
    record->where.file = mx_arena_strdup(records->arena, where.file);
}
