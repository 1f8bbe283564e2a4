/* tasks_read.c — records of tasks: one line of JSON each, with the columns of published datasets,
 * or with columns and templates given as in tasks of lm-evaluation-harness. */
#include "tasks.h"

#include <stdlib.h>

/* ---- forms */

/* In order of preference; NULL = a form has no such column. */
typedef struct Form {
    TaskKind kind;
    const char *context, *choices, *gold;
} Form;

static const Form forms[] = {
    {TASK_CHOICE, "query", "choices", "gold"},
    {TASK_CHOICE, "question", "choices", "answer"},    /* MMLU */
    {TASK_CHOICE, "question", "choices", "answerKey"}, /* ARC */
    {TASK_CHOICE, "question", "choices", "label"},
    {TASK_CHOICE, "ctx", "endings", "label"}, /* HellaSwag */
    {TASK_ANSWER, "question", NULL, "answer"},
    {TASK_ANSWER, "question", NULL, "target"},
    {TASK_ANSWER, "prompt", NULL, "completion"},
    {TASK_ANSWER, "input", NULL, "target"},
    {TASK_TEXT, "text", NULL, NULL},
};

static bool has(const MxJson *json, const char *column) {
    return !column || mx_json_get(json, column) != NULL;
}

static bool find_form(const MxJson *first, MxWhere where, Form *out, MxError *err) {
    for (int i = 0; i < MX_COUNT(forms); i++) {
        *out = forms[i];
        if (has(first, out->context) && has(first, out->choices) && has(first, out->gold))
            return true;
    }
    mx_fail(err, MX_EXIT_BAD_INPUT, where,
            "wanted {\"query\": …, \"choices\": […], \"gold\": 0}, {\"question\": …, \"answer\": "
            "…} or {\"text\": …}");
    mx_note(err, "hint: --doc-to-text, --doc-to-choice and --doc-to-target name other columns, or "
                 "make texts of them: '{{question}} Answer:'");
    return false;
}

/* ---- values */

/* Where texts come from: a column, or a template if it has marks of one. */
typedef struct Maker {
    const char *column;
    MxTemplate *template; /* NULL = the column */
} Maker;

static bool open_maker(MxArena *arena, const char *named, const char *usual, const char *option,
                       Maker *out, MxError *err) {
    *out = (Maker){.column = named ? named : usual};
    if (!named || (!strstr(named, "{{") && !strstr(named, "{%"))) return true;
    return mx_template_parse(arena, named, strlen(named), option, &out->template, err);
}

static bool text_of(MxArena *arena, const MxJson *value, TaskText *out) {
    int64_t n;
    if (mx_json_string(value))
        *out = (TaskText){mx_json_string(value), mx_json_string_bytes(value)};
    else if (mx_json_int(value, &n)) {
        const char *text = mx_arena_printf(arena, "%lld", (long long)n);
        *out = (TaskText){text, strlen(text)};
    } else
        return false;
    return true;
}

/* value receives what the column holds, NULL after a template. */
static bool make(MxArena *arena, const Maker *maker, const MxJson *json, MxWhere where,
                 const MxJson **value, TaskText *out, MxError *err) {
    *value = NULL;
    if (maker->template) {
        MxRendered made;
        if (!mx_template_render(arena, maker->template, json, &made, err))
            return mx_context(err, "%s:%d", where.file, where.line);
        *out = (TaskText){made.text, made.n};
        return true;
    }
    *value = mx_json_get(json, maker->column);
    if (!*value)
        return mx_fail(err, MX_EXIT_BAD_INPUT, where, "there is no column \"%s\"", maker->column);
    *out = (TaskText){0};
    text_of(arena, *value, out);
    return true;
}

static bool need_text(const Maker *maker, const MxJson *value, const TaskText *text, MxWhere where,
                      MxError *err) {
    return text->text ||
           mx_fail(err, MX_EXIT_BAD_INPUT, where, "column \"%s\" holds %s, wanted a text",
                   maker->column, mx_json_kind(value));
}

/* ---- choices */

/* A list of texts, {"text": [texts], "label": [labels]}, or the texts of an option, a JSON list. */
static bool read_choices(MxArena *arena, const MxJson *value, MxWhere where, Question *out,
                         const MxJson **labels, MxError *err) {
    const MxJson *list = mx_json_get(value, "text");
    *labels = list ? mx_json_get(value, "label") : NULL;
    if (!list) list = value;
    bool is_list = !strcmp(mx_json_kind(list), "a list");
    out->n = is_list ? (int)mx_json_length(list) : 0;
    if (out->n < 2)
        return mx_fail(err, MX_EXIT_BAD_INPUT, where,
                       "found %s of choices, wanted a list of two or "
                       "more texts",
                       is_list ? "a shorter list" : mx_json_kind(list));
    out->choice = mx_new_n(arena, TaskText, out->n);
    for (int i = 0; i < out->n; i++)
        if (!text_of(arena, mx_json_at(list, (size_t)i), &out->choice[i]))
            return mx_fail(err, MX_EXIT_BAD_INPUT, where, "choice %d is %s, wanted a text", i,
                           mx_json_kind(mx_json_at(list, (size_t)i)));
    return true;
}

/* A number, one of the labels, one of the texts, or a letter: A is the first. */
static bool read_gold(TaskText gold, const MxJson *labels, MxWhere where, Question *out,
                      MxError *err) {
    char *end;
    while (gold.n && strchr(" \n", gold.text[0])) gold.text++, gold.n--;
    long number = strtol(gold.text, &end, 10);
    out->gold = -1;
    for (int i = 0; i < out->n && out->gold < 0; i++) {
        const char *label = labels ? mx_json_string(mx_json_at(labels, (size_t)i)) : NULL;
        bool is_text =
            out->choice[i].n == gold.n && !memcmp(out->choice[i].text, gold.text, gold.n);
        if ((label && !strcmp(label, gold.text)) || is_text) out->gold = i;
    }
    if (out->gold < 0 && gold.n && !*end && number >= 0 && number < out->n) out->gold = (int)number;
    if (out->gold < 0 && gold.n == 1 && gold.text[0] >= 'A' && gold.text[0] < 'A' + out->n)
        out->gold = gold.text[0] - 'A';
    return out->gold >= 0 || mx_fail(err, MX_EXIT_BAD_INPUT, where,
                                     "\"%s\" is none of its %d choices", gold.text, out->n);
}

/* ---- records */

typedef struct Reader {
    MxArena *arena;
    Form form;
    Maker context, choices, gold;
    const MxJson *fixed; /* choices of all records; NULL = each has its own */
} Reader;

static bool read_question(const Reader *r, const MxJson *json, Question *out, MxError *err) {
    const MxJson *value, *labels;
    TaskText text;
    if (!make(r->arena, &r->context, json, out->where, &value, &out->context, err) ||
        !need_text(&r->context, value, &out->context, out->where, err))
        return false;
    if (r->form.kind == TASK_TEXT) return true;
    if (!make(r->arena, &r->gold, json, out->where, &value, &out->target, err) ||
        !need_text(&r->gold, value, &out->target, out->where, err))
        return false;
    if (r->form.kind == TASK_ANSWER) return true;
    value = r->fixed;
    return (value || make(r->arena, &r->choices, json, out->where, &value, &text, err)) &&
           read_choices(r->arena, value, out->where, out, &labels, err) &&
           read_gold(out->target, labels, out->where, out, err);
}

/* What an option names makes up for columns that no form has. */
static bool choose_form(Reader *r, const MxTasks *what, const MxJson *first, MxWhere where,
                        MxError *err) {
    MxArena *arena = r->arena;
    bool is_list = what->doc_to_choice && what->doc_to_choice[0] == '[';
    if (what->doc_to_text)
        r->form.kind = what->doc_to_choice   ? TASK_CHOICE
                       : what->doc_to_target ? TASK_ANSWER
                                             : TASK_TEXT;
    else if (!find_form(first, where, &r->form, err))
        return false;
    if (is_list) {
        r->fixed = mx_json_parse_value(arena, what->doc_to_choice, strlen(what->doc_to_choice),
                                       (MxWhere){.file = "--doc-to-choice"}, err);
        if (!r->fixed) return false;
    }
    if (r->form.kind == TASK_CHOICE && !what->doc_to_target && !r->form.gold)
        return mx_fail(err, MX_EXIT_CONFIG, MX_NOWHERE, "--doc-to-choice wants --doc-to-target");
    return open_maker(arena, what->doc_to_text, r->form.context, "--doc-to-text", &r->context,
                      err) &&
           open_maker(arena, is_list ? NULL : what->doc_to_choice, r->form.choices,
                      "--doc-to-choice", &r->choices, err) &&
           open_maker(arena, what->doc_to_target, r->form.gold, "--doc-to-target", &r->gold, err);
}

static bool read_line(Reader *r, const MxTasks *what, const char *line, size_t n, MxWhere where,
                      Questions *out, MxError *err) {
    const MxJson *json = mx_json_parse_line(r->arena, line, n, where, err);
    if (!json || (!out->n && !choose_form(r, what, json, where, err))) return false;
    if ((out->n & (out->n - 1)) == 0)
        out->item = mx_arena_grow(r->arena, out->item, (size_t)out->n,
                                  out->n ? 2 * (size_t)out->n : 1, sizeof *out->item);
    out->item[out->n] = (Question){.where = where};
    return read_question(r, json, &out->item[out->n++], err);
}

bool tasks_read(MxArena *arena, const MxTasks *what, Questions *out, MxError *err) {
    enum { LARGEST = 1 << 30 };
    Reader reader = {.arena = arena};
    MxBytes bytes;
    *out = (Questions){0};
    if (!mx_file_read(arena, what->path, LARGEST, &bytes, err)) return false;
    const char *at = (const char *)bytes.data, *end = at + bytes.size;
    for (MxWhere where = {what->path, 1, 0}; at < end; where.line++) {
        const char *stop = memchr(at, '\n', (size_t)(end - at));
        size_t n = (size_t)((stop ? stop : end) - at);
        bool is_blank = strspn(at, " \t\r") >= n;
        if (!is_blank && !read_line(&reader, what, at, n, where, out, err)) return false;
        at = stop ? stop + 1 : end;
    }
    out->kind = reader.form.kind;
    return out->n ||
           mx_fail(err, MX_EXIT_BAD_INPUT, (MxWhere){.file = what->path}, "holds no records");
}
