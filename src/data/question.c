/* question.c — messages made of questions, in the form that a file has for them. Source: MaxText
 * input_pipeline/instruction_data_processing.py, load_data_template_from_file, and
 * trainers/post_train/rl/utils_rl.py, format_maxtext_messages @e591f30c. */
#include "question.h"

struct Question {
    const char *form, *system;
};

static const char *const names[] = {"system_prompt", "question"};

static const char *ask(MxArena *arena, const Question *q, const char *question, MxText *out) {
    const char *const values[] = {q->system, question};
    mx_text_init(out, arena);
    return mx_text_add_form(out, q->form, names, values, MX_COUNT(names));
}

/* at: the brace that is wrong, or NULL. */
static bool check(const char *member, const char *at, const char *const *wanted, int n,
                  MxWhere where, MxError *err) {
    enum { SHOWN = 24 };
    MxArena scratch = {.name = "message"};
    MxText list, found;
    if (!at) return true;
    mx_text_init(&list, &scratch);
    mx_text_init(&found, &scratch);
    for (int i = 0; i < n; i++) mx_text_add(&list, "%s{%s}", i ? ", " : "", wanted[i]);
    mx_text_add_quoted(&found, at, strnlen(at, SHOWN));
    mx_fail(err, MX_EXIT_BAD_INPUT, where, "%s: found %s, wanted %s, or {{ and }} for braces",
            member, found.data, list.data);
    mx_arena_release(&scratch);
    return false;
}

static bool read(MxArena *arena, const MxJson *json, const MxDataForm *form, Question *q,
                 MxError *err) {
    static const char template[] = "TEMPLATE", system[] = "SYSTEM_PROMPT";
    const MxWhere where = {.file = form->path};
    const char *text = mx_json_string(mx_json_get(json, system));
    MxText filled, all;
    q->form = mx_json_string(mx_json_get(json, template));
    if (!q->form)
        return mx_fail(err, MX_EXIT_BAD_INPUT, where,
                       "no text \"%s\", in which {question} stands for a question", template);
    mx_text_init(&filled, arena);
    const char *at = mx_text_add_form(&filled, text ? text : "", form->names, form->values,
                                      MX_COUNT(form->names));
    if (!check(system, at, form->names, MX_COUNT(form->names), where, err)) return false;
    q->system = filled.data;
    return check(template, ask(arena, q, "", &all), names, MX_COUNT(names), where, err);
}

bool question_open(MxArena *arena, const MxDataForm *form, Question **out, MxError *err) {
    enum { LARGEST = 1 << 20 };
    MxBytes bytes;
    *out = NULL;
    if (!form->path) return true;
    if (!mx_file_exists(form->path))
        return mx_fail(err, MX_EXIT_BAD_INPUT, form->where, "no file \"%s\"", form->path);
    if (!mx_file_read(arena, form->path, LARGEST, &bytes, err)) return false;
    const MxJson *json =
        mx_json_parse(arena, (const char *)bytes.data, bytes.size, form->path, err);
    *out = mx_new(arena, Question);
    return json && read(arena, json, form, *out, err);
}

uint64_t question_hash(const Question *q) {
    return q ? mx_hash64(q->form, strlen(q->form)) ^ mx_hash64(q->system, strlen(q->system)) : 0;
}

Field question_ask(MxArena *arena, const Question *q, const Field *text) {
    MxText content;
    ask(arena, q, mx_arena_strndup(arena, text->text, text->bytes), &content);
    MxJson *list = mx_json_put_array(mx_json_object(arena), "messages");
    MxJson *message = mx_json_push_object(list);
    mx_json_set_string(message, "role", "user");
    mx_json_set_string(message, "content", content.data);
    return (Field){.kind = "a list", .json = list};
}
