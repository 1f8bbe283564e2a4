/* test_questions.c — messages made of questions, as MaxText makes them. */
#include "data/question.h"
#include "data_test.h"

static const char *const mark_keys[] = {"reasoning_start_token", "reasoning_end_token",
                                        "solution_start_token", "solution_end_token"};

/* The file's form, with marks where they are given. */
static MxDataForm form_of(const char *file, const MxJson *marks) {
    MxDataForm form = {.path = put("form.json", file)};
    for (int i = 0; i < MX_COUNT(mark_keys); i++) {
        const MxJson *mark = mx_json_get(marks, mark_keys[i]);
        form.names[i] = mark_keys[i];
        form.values[i] = mark ? mx_json_string(mark) : "<mark>";
    }
    return form;
}

START_TEST(messages_are_maxtexts) {
    MxBytes bytes;
    int n_asked = 0;
    const char *path = goldens_need(&arena, "train/answers.jsonl");
    ck_assert(mx_file_read(&arena, path, 1 << 20, &bytes, &err));
    for (const char *at = (const char *)bytes.data; *at;) {
        size_t n = strcspn(at, "\n");
        const MxJson *line = mx_json_parse(&arena, at, n, "line", &err);
        const MxJson *form = mx_json_get(line, "template"), *asked = mx_json_get(line, "question");
        at += n + (at[n] == '\n');
        if (!form) continue;
        Question *question;
        const MxDataForm how =
            form_of(mx_json_dump(&arena, form, false), mx_json_get(line, "marks"));
        ck_assert_msg(question_open(&arena, &how, &question, &err), "%s", err.text.data);
        const Field text = {.text = mx_json_string(asked), .bytes = mx_json_string_bytes(asked)};
        const Field got = question_ask(&arena, question, &text);
        const MxJson *message = mx_json_at(got.json, 0);
        ck_assert_uint_eq(mx_json_length(got.json), 1);
        ck_assert_str_eq(mx_json_string(mx_json_get(message, "role")), "user");
        ck_assert_str_eq(mx_json_string(mx_json_get(message, "content")),
                         mx_json_string(mx_json_get(line, "content")));
        n_asked++;
    }
    ck_assert_int_ge(n_asked, 20);
}
END_TEST

/* Prompts that ask, with the byte tokenizer and a template of one line. */
static MxDataConfig asking(const char *lines, const char *form) {
    MxDataConfig config = text_config(put("a.jsonl", lines));
    config.kind = "hf";
    config.rows = 1;
    config.length = 32;
    config.packing = false;
    config.is_sft = config.completion_only = config.asks = true;
    config.max_prompt_length = 24;
    config.group = 1;
    config.chat.text = "{% for m in messages %}{{ m.role }}:{{ m.content }}{% endfor %}";
    config.form = form_of(form, NULL);
    return config;
}

START_TEST(rows_hold_them) {
    MxDataConfig config = asking("{\"problem\": \"2?\"}\n", "{\"TEMPLATE\": \"Q {question}{{}}\"}");
    MxBatch batch = mx_batch_new(&arena, 1, config.length);
    ck_assert_int_eq(mx_data_batch(open_data(config), 0, &batch, &err), MX_DATA_OK);
    static const char want[] = "user:Q 2?{}";
    for (int i = 0; want[i]; i++)
        ck_assert_int_eq(batch.field[MX_INPUTS][i], (unsigned char)want[i]);
    ck_assert_int_eq(batch.field[MX_INPUTS_SEGMENTATION][sizeof want - 1], 0);
}
END_TEST

START_TEST(forms_that_are_none) {
    static const char prompt[] = "{\"prompt\": \"2?\"}\n";
    static const struct {
        const char *form, *words;
    } wrong[] = {
        {"{\"SYSTEM_PROMPT\": \"a\"}", "no text \"TEMPLATE\""},
        {"{\"TEMPLATE\": \"{answer}\"}",
         "TEMPLATE: found \"{answer}\", wanted {system_prompt}, {question}"},
        {"{\"TEMPLATE\": \"{question\"}", "TEMPLATE: found \"{question\""},
        {"{\"TEMPLATE\": \"a } b\"}", "TEMPLATE: found \"} b\""},
        {"{\"TEMPLATE\": \"{question}\", \"SYSTEM_PROMPT\": \"{question}\"}",
         "SYSTEM_PROMPT: found \"{question}\", wanted {reasoning_start_token}"},
        {"[]", "form.json"},
    };
    for (int i = 0; i < MX_COUNT(wrong); i++)
        ck_refused(asking(prompt, wrong[i].form), wrong[i].words);
    MxDataConfig config = asking(prompt, "{}");
    config.form.path = "nowhere.json";
    ck_refused(config, "no file \"nowhere.json\"");
    ck_refused(asking("{\"prompt\": [{\"role\": \"user\", \"content\": \"2?\"}]}\n",
                      "{\"TEMPLATE\": \"{question}\"}"),
               "wanted a text, which data_template_path makes a message of");
}
END_TEST

Suite *questions_suite(void) {
    Suite *suite = suite_create("questions");
    TCase *tcase = tcase_create("questions");
    tcase_add_checked_fixture(tcase, set_up, tear_down);
    tcase_add_test(tcase, messages_are_maxtexts);
    tcase_add_test(tcase, rows_hold_them);
    tcase_add_test(tcase, forms_that_are_none);
    suite_add_tcase(suite, tcase);
    return suite;
}
