/* test_held.c — replies of mxdecode that are held to a JSON schema: what comes before the value,
 * and what of a text is the answer. */
#include "generate_test.h"

#include "generate/held.h"

#include <stdlib.h>
#include <unistd.h>

static MxArena arena = {.name = "test"};

static void tear_down(void) {
    mx_arena_release(&arena);
}

#define TEMPLATE(open)                                                                             \
    "{% for m in messages %}{{ m.role }}:{% if m.reasoning_content %}<think>{{ "                   \
    "m.reasoning_content }}</think>{% endif %}{{ m.content }}\n{% endfor %}{% if "                 \
    "add_generation_prompt %}assistant:" open "{% endif %}"

/* A reply to a prompt that ends as the template has it; `fits`: as far as a guide allows it. */
static const struct {
    const char *template, *prompt, *reply;
    bool fits;
    const char *reasoning, *answer;
} cases[] = {
    {TEMPLATE(""), "assistant:", "{\"n\": 1}", true, "", "{\"n\": 1}"},
    {TEMPLATE(""), "assistant:", "<think>Hm {</think>\n\n{\"n\": 1}", true, "Hm {", "{\"n\": 1}"},
    {TEMPLATE(""), "assistant:", "Well {\"n\": 1}", false, "", "Well {\"n\": 1}"},
    {TEMPLATE("<think>\n"), "assistant:<think>\n", "So.\n</think>{\"n\": 25}", true, "So.",
     "{\"n\": 25}"},
    {TEMPLATE("<think>\n"), "assistant:<think>\n", "So it is, or", true, "So it is, or", ""},
    {TEMPLATE("<think>\n"), "assistant:<think>\n", "So.</think>{\"m\"", false, "So.", "{\"m\""},
    {TEMPLATE("<think></think>"), "assistant:<think></think>", "<think>", false, "", "<think>"},
    {"{% for m in messages %}{{ m.content }}{% endfor %}", "x", "{\"n\": 1}\n", true, "",
     "{\"n\": 1}\n"},
    {"{% for m in messages %}{{ m.content }}{% endfor %}", "x", "<think>", false, "", "<think>"},
    {NULL, "x", " {\"n\": 1}", true, "", " {\"n\": 1}"},
};

static MxTokens bytes_of(const char *text) {
    MxTokens out = {mx_new_n(&arena, int32_t, strlen(text) + 1), (int64_t)strlen(text)};
    for (int64_t i = 0; i < out.n; i++) out.ids[i] = (uint8_t)text[i];
    return out;
}

static const char *text_or_empty(const MxText *text) {
    return text->len ? text->data : "";
}

START_TEST(values_stand_behind_reasoning) {
    static const char schema[] = "{\"properties\": {\"n\": {\"type\": \"integer\"}}, "
                                 "\"required\": [\"n\"]}";
    static const int32_t eos = 257;
    MxError err = {0};
    MxTokenizer *tokenizer;
    MxChat *chat = NULL;
    char path[] = "/tmp/schema-XXXXXX";
    const int fd = mkstemp(path);
    ck_assert(fd >= 0 && write(fd, schema, sizeof schema - 1) == (ssize_t)(sizeof schema - 1));
    close(fd);
    ck_assert(mx_tokenizer_open(&arena, "byte", NULL, &tokenizer, &err));
    const MxChatFrom from = {.text = cases[_i].template, .where = {.file = "t", .line = 1}};
    ck_assert(!cases[_i].template || mx_chat_open(&arena, from, &chat, &err));
    const MxSpeak what = {.json_schema = path, .chat = chat};
    MxGenerate how = {.tokenizer = tokenizer, .ends = &eos, .n_ends = 1};
    Held held;
    bool ok = held_open(&arena, &what, "t", &how, &held, &err);
    unlink(path);
    ck_assert_msg(ok, "%s", err.text.data);
    MxPrompt prompt = {.tokens = bytes_of(cases[_i].prompt)};
    HeldReply reply;
    ck_assert(held_begin(&held, &arena, &prompt, &reply, &err));
    MxGuided text;
    mx_guided_init(&text, &arena, prompt.guide);
    const size_t n = strlen(cases[_i].reply);
    ck_assert(mx_guided_add(&text, cases[_i].reply, n) == cases[_i].fits);
    MxReply made = {.text = mx_arena_strdup(&arena, cases[_i].reply), .text_bytes = n};
    held_take(&held, &arena, &prompt, false, &reply, &made);
    ck_assert_str_eq(made.text_bytes ? made.text : "", cases[_i].answer);
    ck_assert_str_eq(text_or_empty(&reply.reasoned.text), cases[_i].reasoning);
}
END_TEST

Suite *held_suite(void) {
    Suite *suite = suite_create("held");
    TCase *tcase = tcase_create("held");
    tcase_add_checked_fixture(tcase, NULL, tear_down);
    tcase_add_loop_test(tcase, values_stand_behind_reasoning, 0, MX_COUNT(cases));
    suite_add_tcase(suite, tcase);
    return suite;
}
