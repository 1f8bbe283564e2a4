/* talk.c — conversations as tokens, with the chat template: a list of messages, a prompt and its
 * completion, a prompt and two responses. Messages are those of transformers ("role", "content") or
 * of ShareGPT ("from", "value"). */
#include "records.h"

bool talk_find(Records *records, MxError *err) {
    const MxDataConfig *config = &records->dataset->config;
    MxChatFrom from = config->chat;
    MxChat *chat;
    from.dir = config->tokenizer_dir;
    if (records->chat) return true;
    if (!mx_chat_open(records->arena, from, &chat, err)) return false;
    records->chat = chat;
    return true;
}

bool talk_open(Records *records, MxError *err) {
    MxDataset *dataset = records->dataset;
    if (!talk_find(records, err)) return mx_context(err, "the data holds conversations");
    MxDataFile file = {.path = "chat template", .hash = mx_chat_hash(records->chat)};
    data_add_file(records->arena, dataset, file);
    return true;
}

int64_t talk_prefix(MxTokens a, MxTokens b) {
    int64_t n = 0;
    while (n < a.n && n < b.n && a.ids[n] == b.ids[n]) n++;
    return n;
}

/* ---- messages */

/* Who speaks, in ShareGPT's words and in transformers'. */
static const char *role_of(const char *from) {
    static const char *const roles[][2] = {
        {"human", "user"},        {"user", "user"},       {"gpt", "assistant"},
        {"chatgpt", "assistant"}, {"model", "assistant"}, {"assistant", "assistant"},
        {"system", "system"},     {"tool", "tool"},       {"observation", "tool"}};
    for (int i = 0; i < MX_COUNT(roles); i++)
        if (!strcmp(roles[i][0], from)) return roles[i][1];
    return NULL;
}

static bool add_message(MxJson *list, const MxJson *message, MxWhere where, MxError *err) {
    const char *from = mx_json_string(mx_json_get(message, "from"));
    const MxJson *value = mx_json_get(message, "value");
    if (!from || !value) {
        mx_json_push(list, message);
        return true;
    }
    if (!role_of(from))
        return mx_fail(err, MX_EXIT_BAD_INPUT, where,
                       "unrecognized speaker \"%s\", wanted \"system\", \"human\", \"gpt\" or "
                       "\"tool\"",
                       from);
    MxJson *made = mx_json_push_object(list);
    mx_json_set_string(made, "role", role_of(from));
    mx_json_set(made, "content", value);
    return true;
}

bool talk_plain(MxArena *arena, Field *column, int n, MxWhere where, MxError *err) {
    for (int c = 0; c < n; c++) {
        MxJson *list = mx_json_put_array(mx_json_object(arena), "messages");
        for (size_t i = 0; i < mx_json_length(column[c].json); i++)
            if (!add_message(list, mx_json_at(column[c].json, i), where, err)) return false;
        column[c].json = list;
    }
    return true;
}

static void add_messages(MxJson *list, const MxJson *messages) {
    for (size_t i = 0; i < mx_json_length(messages); i++)
        mx_json_push(list, mx_json_at(messages, i));
}

/* ---- requests */

/* A column that the template gets, of a kind; *out stays NULL if it is missing or null. */
static bool read_extra(MxArena *arena, const Fields *record, const char *column, const char *kind,
                       MxWhere where, const MxJson **out, MxError *err) {
    Field field = {0};
    *out = NULL;
    if (!record->get(record->record, column, &field) || !strcmp(field.kind, "null")) return true;
    const MxJson *value = field.json;
    MxError ignored = {0};
    if (field.text) /* tables hold values of many shapes so */
        value = mx_json_parse_value(arena, field.text, field.bytes, where, &ignored);
    mx_error_release(&ignored);
    const char *found = value        ? mx_json_kind(value)
                        : field.text ? "a text that is not JSON"
                                     : field.kind;
    if (!strcmp(found, "null")) return true;
    if (strcmp(found, kind))
        return mx_fail(err, MX_EXIT_BAD_INPUT, where, "column \"%s\" holds %s, wanted %s", column,
                       found, kind);
    *out = value;
    return true;
}

/* What is asked of the template, but for messages: the record's tools, and variables of its own,
 * which come first. NULL after an error. */
static MxJson *request_of(MxArena *arena, const Fields *record, MxWhere where, MxError *err) {
    const MxJson *tools, *extra;
    const char *key;
    MxJson *value, *out = mx_json_object(arena);
    if (!read_extra(arena, record, "tools", "a list", where, &tools, err) ||
        !read_extra(arena, record, "chat_template_kwargs", "an object", where, &extra, err))
        return NULL;
    if (tools) mx_json_set(out, "tools", tools);
    for (void *at = NULL; extra && mx_json_next(extra, &at, &key, &value);)
        mx_json_set(out, key, value);
    return out;
}

/* A record that is being told. */
typedef struct Talk {
    MxArena *arena;
    const Records *records;
    const Fields *record;
    MxWhere where;
    Draft *draft;
} Talk;

static void tell_pictures(const Talk *talk, MxRendered *text) {
    const Seer *seer = talk->records->seer;
    if (seer) pictures_tell_whole(talk->arena, seer, &talk->draft->pictures, 0, text);
}

static bool encode(const Talk *talk, const MxJson *request, MxConversation *out, MxError *err) {
    const Records *records = talk->records;
    const MxTokenizer *tokenizer = records->dataset->config.tokenizer;
    if (!mx_chat_tell(talk->arena, records->chat, request, talk->where, &out->rendered, err))
        return false;
    tell_pictures(talk, &out->rendered);
    return mx_chat_tokens(talk->arena, tokenizer, talk->where, out, err);
}

static bool encode_text(const Talk *talk, const MxJson *request, MxTokens *out, MxError *err) {
    const Records *records = talk->records;
    MxRendered text;
    if (!mx_chat_render(talk->arena, records->chat, request, talk->where, &text, err)) return false;
    tell_pictures(talk, &text);
    MxEncoding what = {.text = text.text, .n = text.n, .where = talk->where, .is_rendered = true};
    return mx_tokenizer_encode(talk->arena, records->dataset->config.tokenizer, what, out, err);
}

/* A prompt as it stands before an answer: ready for it, or, if the assistant spoke last, without
 * what would end that. */
static bool encode_prompt(const Talk *talk, const MxJson *prompt, MxTokens *out, MxError *err) {
    MxJson *request = request_of(talk->arena, talk->record, talk->where, err);
    if (!request) return false;
    MxJson *list = mx_json_put_array(request, "messages");
    add_messages(list, prompt);
    size_t n = mx_json_length(list);
    const char *role = n ? mx_json_string(mx_json_get(mx_json_at(list, n - 1), "role")) : NULL;
    bool goes_on = role && !strcmp(role, "assistant");
    mx_json_set_bool(request, goes_on ? "continue_final_message" : "add_generation_prompt", true);
    return encode_text(talk, request, out, err);
}

static bool encode_both(const Talk *talk, const MxJson *const part[2], MxTokens *out,
                        MxError *err) {
    MxJson *request = request_of(talk->arena, talk->record, talk->where, err);
    if (!request) return false;
    MxJson *list = mx_json_put_array(request, "messages");
    for (int i = 0; i < 2; i++)
        if (part[i]) add_messages(list, part[i]);
    return encode_text(talk, request, out, err);
}

/* ---- one list of messages */

/* What comes before the assistant's first word is the prompt; then it says and hears in turns. */
static void cut_turns(MxArena *arena, const MxConversation *made, Draft *out) {
    int64_t n = made->tokens.n, first = 0;
    while (first < n && !made->mask[first]) first++;
    out->piece[PROMPT] = (MxTokens){made->tokens.ids, first};
    out->piece[ANSWER] = (MxTokens){made->tokens.ids + first, n - first};
    out->turn = mx_new_n(arena, int32_t, n - first + 1);
    for (int64_t i = first; i < n; i++) {
        bool begins = i == first || made->mask[i] != made->mask[i - 1];
        out->n_turns += begins;
        out->turn[out->n_turns - 1]++;
    }
}

static bool draft_messages(const Talk *talk, const MxJson *messages, MxError *err) {
    MxConversation made;
    MxJson *request = request_of(talk->arena, talk->record, talk->where, err);
    if (!request) return false;
    add_messages(mx_json_put_array(request, "messages"), messages);
    if (!encode(talk, request, &made, err)) return false;
    cut_turns(talk->arena, &made, talk->draft);
    return true;
}

/* ---- a prompt and what follows it */

static bool is_same(MxArena *arena, const MxJson *a, const MxJson *b) {
    return !strcmp(mx_json_dump(arena, a, false), mx_json_dump(arena, b, false));
}

/* The messages that two responses begin with, and what each goes on with. */
static void split_prompt(MxArena *arena, const MxJson *const side[2], const MxJson *out[3]) {
    MxJson *lists = mx_json_object(arena);
    size_t n = 0, length[] = {mx_json_length(side[0]), mx_json_length(side[1])};
    MxJson *prompt = mx_json_put_array(lists, "prompt");
    while (n < length[0] && n < length[1] &&
           is_same(arena, mx_json_at(side[0], n), mx_json_at(side[1], n)))
        mx_json_push(prompt, mx_json_at(side[0], n++));
    out[0] = prompt;
    for (int i = 0; i < 2; i++) {
        MxJson *rest = mx_json_put_array(lists, i ? "rejected" : "chosen");
        for (size_t k = n; k < length[i]; k++) mx_json_push(rest, mx_json_at(side[i], k));
        out[1 + i] = rest;
    }
}

/* part: the prompt, and its answers, two at most. Tokens of the prompt are those that rendering it
 * with and without the answers begin with alike. */
static bool draft_answers(const Talk *talk, const MxJson *const *part, int n_answers,
                          MxError *err) {
    MxTokens prompt, whole[2], *piece = talk->draft->piece;
    if (!mx_json_length(part[0]))
        return mx_fail(err, MX_EXIT_BAD_INPUT, talk->where, "the conversation has no prompt");
    if (!encode_prompt(talk, part[0], &prompt, err)) return false;
    int64_t n = prompt.n;
    for (int i = 0; i < n_answers; i++) {
        const MxJson *const both[] = {part[0], part[1 + i]};
        if (!encode_both(talk, both, &whole[i], err)) return false;
        int64_t same = talk_prefix(prompt, whole[i]);
        if (same < n) n = same;
    }
    piece[PROMPT] = (MxTokens){prompt.ids, n};
    for (int i = 0; i < n_answers; i++)
        piece[ANSWER + i] = (MxTokens){whole[i].ids + n, whole[i].n - n};
    return true;
}

bool talk_draft(MxArena *arena, const Records *records, const Fields *record, const Field *column,
                MxWhere where, Draft *out, MxError *err) {
    const MxJson *part[3] = {0};
    int n = records->columns.n_texts, n_answers = records_answers(&records->dataset->config);
    const Talk talk = {arena, records, record, where, out};
    for (int i = 0; i < n; i++) part[i] = column[i].json;
    if (n == 1 && n_answers) return draft_messages(&talk, part[0], err);
    if (n == n_answers) {
        const MxJson *const side[] = {part[0], part[1]};
        split_prompt(arena, side, part);
    }
    return draft_answers(&talk, part, n_answers, err);
}
