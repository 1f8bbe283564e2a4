/* columns.c — the supported forms of records: text; conversations; prompt and completion; pairs
 * with a prompt or with a common prefix of both responses. Names of columns are those of TRL,
 * MaxText and Alpaca; others can be given in train_data_columns. */
#include "columns.h"

#include "ids.h"

/* In order of preference. */
static const struct Form {
    bool is_pair, is_sft, asks; /* where it may be found; text everywhere but in pairs and prompts
                                   that ask for responses */
    Columns columns;
} forms[] = {
    {.is_pair = true, .columns = {.n = 3, .name = {"prompt", "chosen", "rejected"}}},
    {.is_pair = true, .columns = {.n = 2, .name = {"chosen", "rejected"}}},
    {.is_sft = true, .columns = {.n = 2, .name = {"prompt", "completion"}}},
    {.is_sft = true, .columns = {.n = 2, .name = {"question", "answer"}}},
    {.is_sft = true,
     .columns = {.n = 3, .name = {"instruction", "input", "output"}, .joins = true}},
    {.is_sft = true, .columns = {.n = 1, .name = {"messages"}}},
    {.is_sft = true, .columns = {.n = 1, .name = {"conversations"}}},
    {.columns = {.n = 1, .name = {"text"}}},
    {.asks = true, .columns = {.n = 1, .name = {"problem"}}},
    {.asks = true, .columns = {.n = 1, .name = {"prompt"}}},
    {.asks = true, .columns = {.n = 1, .name = {"question"}}},
    {.asks = true, .columns = {.n = 1, .name = {"messages"}}},
};

/* What a record of each purpose may look like, for messages. */
static const char sample_text[] = "{\"text\": \"The moon has no air.\"}";
static const char sample_sft[] =
    "{\"messages\": [{\"role\": \"user\", \"content\": \"What is 2 + 2?\"}, "
    "{\"role\": \"assistant\", \"content\": \"4\"}]}";
static const char sample_pair[] =
    "{\"prompt\": \"What is 2 + 2?\\n\", \"chosen\": \"4\", \"rejected\": \"5\"}";
static const char sample_ids[] = "{\"text\": [15496, 995]}";
static const char sample_prompt[] = "{\"prompt\": \"What is 2 + 2?\\n\", \"answer\": \"4\"}";

static const char *sample(const MxDataConfig *config) {
    if (config->has_ids) return sample_ids;
    if (config->asks) return sample_prompt;
    return config->pairs ? sample_pair : config->is_sft ? sample_sft : sample_text;
}

static bool has_column(const Fields *record, const char *name) {
    Field ignored;
    return record->get(record->record, name, &ignored);
}

static bool has_label(const Fields *record) {
    Field field;
    bool is_desirable;
    return record->get(record->record, "label", &field) && field.json &&
           mx_json_bool(field.json, &is_desirable);
}

static bool has_all(const Fields *record, const Columns *columns) {
    for (int i = 0; i < columns->n; i++)
        if (!(columns->joins && i == 1) && !has_column(record, columns->name[i])) return false;
    return true;
}

/* Ids are not joined: what stands between two prompts is text. */
static bool may_be(const MxDataConfig *config, const struct Form *form) {
    if (config->has_ids && form->columns.joins) return false;
    if (config->asks || form->asks) return config->asks && form->asks;
    if (config->pairs || form->is_pair) return config->pairs && form->is_pair;
    return config->is_sft || !form->is_sft;
}

const char *columns_found(MxArena *arena, const Fields *record) {
    enum { MOST = 12 };
    MxText text;
    const char *name;
    mx_text_init(&text, arena);
    for (size_t i = 0; i < MOST && (name = record->name(record->record, i)); i++)
        mx_text_add(&text, "%s\"%s\"", i ? ", " : "", name);
    if (record->name(record->record, MOST)) mx_text_add(&text, ", …");
    return text.len ? text.data : "no columns";
}

/* What to try instead: a form that needs a switch, or columns of other names. */
static void hint(const MxDataConfig *config, const Fields *record, MxError *err) {
    for (int i = 0; i < MX_COUNT(forms); i++) {
        if (may_be(config, &forms[i]) || !has_all(record, &forms[i].columns)) continue;
        mx_note(err, "hint: %s",
                forms[i].asks      ? "use_grpo=true with rl.reward lets the policy answer prompts"
                : forms[i].is_pair ? "use_dpo=true trains on pairs of chosen and rejected"
                : forms[i].is_sft  ? "use_sft=true trains on conversations, prompts and completions"
                                   : "use_dpo=false trains on plain text");
        return;
    }
    mx_note(err,
            "hint: train_data_columns and eval_data_columns name other columns; a record that "
            "fits: %s",
            sample(config));
}

static bool no_form(const MxDataConfig *config, const Fields *record, MxWhere where, MxError *err) {
    MxArena scratch = {.name = "message"};
    mx_fail(err, MX_EXIT_BAD_INPUT, where, "found %s; wanted %s", columns_found(&scratch, record),
            config->asks     ? "\"problem\", \"prompt\", \"question\" or \"messages\""
            : config->pairs  ? "\"chosen\" and \"rejected\", with \"prompt\" or without"
            : config->is_sft ? "\"messages\", \"prompt\" and \"completion\", or \"text\""
                             : "\"text\"");
    hint(config, record, err);
    mx_arena_release(&scratch);
    return false;
}

/* Of a list of texts. Source: MaxText input_pipeline_utils.py, reformat_response @e591f30c. */
static bool first_of(const Columns *columns, int i, Field *field) {
    bool is_list = field->json && !strcmp(field->kind, "a list");
    if (!columns->has_choices || i != columns->n - 1 || !is_list) return false;
    const MxJson *item = mx_json_at(field->json, 0);
    if (!mx_json_string(item)) return false;
    *field = (Field){.kind = mx_json_kind(item),
                     .text = mx_json_string(item),
                     .bytes = mx_json_string_bytes(item),
                     .json = item};
    return true;
}

bool columns_choose(const MxDataConfig *config, const Fields *record, MxWhere where, Columns *out,
                    MxError *err) {
    MX_ASSERT(config->n_columns <= COLUMNS_MOST);
    *out = (Columns){.n = config->n_columns};
    for (int i = 0; i < config->n_columns; i++) out->name[i] = config->columns[i];
    for (int i = 0; i < MX_COUNT(forms) && !out->n; i++)
        if (may_be(config, &forms[i]) && has_all(record, &forms[i].columns))
            *out = forms[i].columns;
    out->n_texts = out->n - out->joins;
    if (config->default_prompt && out->n == 2 && !has_column(record, out->name[0])) {
        out->prompt = config->default_prompt;
        mx_warn("%s: no column \"%s\"; in its place default_prompt: \"%s\"", where.file,
                out->name[0], out->prompt);
    }
    out->has_ids = config->has_ids;
    out->has_choices =
        config->is_sft && config->images.vision.images && out->n_texts == 2 && !out->has_ids;
    for (int i = 0; i < out->n; i++) {
        Field field = {0};
        bool is_there = record->get(record->record, out->name[i], &field);
        bool may_talk =
            (config->pairs || config->is_sft) && !config->has_ids && strcmp(out->name[i], "text");
        if (!is_there || first_of(out, i, &field)) continue;
        out->talks = out->talks || (may_talk && !strcmp(field.kind, "a list"));
    }
    return out->n || no_form(config, record, where, err);
}

void columns_ask(Columns *columns, const Question *question) {
    columns->question = question;
    columns->talks = columns->talks || question;
}

bool columns_guess(MxArena *arena, const MxDataConfig *config, const Fields *record, MxWhere where,
                   MxDataGuess *out, MxError *err) {
    for (int i = 0; i < MX_COUNT(forms); i++) {
        const Columns *columns = &forms[i].columns;
        if (forms[i].asks != config->asks || !has_all(record, columns)) continue;
        MxText names;
        mx_text_init(&names, arena);
        for (int k = 0; k < columns->n; k++)
            if (has_column(record, columns->name[k]))
                mx_text_add(&names, "%s%s", names.len ? ", " : "", columns->name[k]);
        out->is_pair = forms[i].is_pair;
        out->is_sft = forms[i].is_sft;
        out->has_label = forms[i].is_sft && has_label(record);
        out->columns = names.data;
        return true;
    }
    MxDataConfig any = *config;
    any.is_sft = true;
    return no_form(&any, record, where, err);
}

/* A prompt of two columns, each in a line of its own. */
static Field join(MxArena *arena, const Field part[2]) {
    MxText text;
    mx_text_init(&text, arena);
    if (!part[0].text) return part[0];
    for (int i = 0; i < 2; i++) {
        if (!part[i].bytes) continue;
        mx_text_addn(&text, part[i].text, part[i].bytes);
        mx_text_addn(&text, "\n", 1);
    }
    return (Field){.kind = part[0].kind, .text = text.data, .bytes = text.len};
}

bool columns_lacks(const Columns *columns, const Field *field) {
    return columns->has_ids ? !ids_are_in(field) : columns->talks ? !field->json : !field->text;
}

static bool fits(const Columns *columns, const Field *field) {
    if (columns->has_ids) return ids_are_in(field);
    return !strcmp(field->kind, columns->talks && !columns->question ? "a list" : "a text");
}

/* Also texts where ids are wanted, and the other way. */
static bool refuse(const Columns *columns, const char *name, const Field *field, MxWhere where,
                   MxError *err) {
    const char *more = "";
    if (columns->has_ids && field->text)
        more = "; tokens are made of texts with tokenize_train_data=true or, for evaluation, "
               "tokenize_eval_data=true";
    else if (!columns->has_ids && !columns->talks && ids_are_meant(field))
        more = "; ids are read with tokenize_train_data=false or, for evaluation, "
               "tokenize_eval_data=false";
    return mx_fail(err, MX_EXIT_BAD_INPUT, where, "column \"%s\" holds %s, wanted %s%s", name,
                   field->kind,
                   columns->has_ids    ? "a list of token ids"
                   : columns->question ? "a text, which data_template_path makes a message of"
                   : columns->talks    ? "a list of messages, as in the first record"
                                       : "a text",
                   more);
}

static Field default_of(const Columns *columns) {
    return (Field){.kind = "a text", .text = columns->prompt, .bytes = strlen(columns->prompt)};
}

bool columns_read(MxArena *arena, const Columns *columns, const Fields *record, MxWhere where,
                  Field out[COLUMNS_MOST], MxError *err) {
    for (int i = 0; i < columns->n; i++) {
        Field field = {.kind = "null"};
        out[i] = (Field){.kind = "null"};
        if (!record->get(record->record, columns->name[i], &field)) {
            if (i == 0 && columns->prompt) out[i] = default_of(columns);
            continue;
        }
        if (!strcmp(field.kind, "null")) continue;
        first_of(columns, i, &field);
        if (!fits(columns, &field)) return refuse(columns, columns->name[i], &field, where, err);
        out[i] = columns->question ? question_ask(arena, columns->question, &field) : field;
    }
    if (!columns->joins) return true;
    out[0] = join(arena, out);
    out[1] = out[2];
    return true;
}
