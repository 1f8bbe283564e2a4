/* test_cases.c — conversations: transformers' texts, ids and masks of them; where templates are
 * found; what the assistant says where a template does not mark it. */
#include "chat_test.h"

#include "common/goldens.h"

#include <stdlib.h>
#include <unistd.h>

/* ---- golden cases */

typedef struct Opened {
    const char *template, *folder;
    MxChat *chat;
    MxTokenizer *tokenizer;
} Opened;

static Opened opened[16];

static const Opened *open_case(const char *template, const char *folder) {
    Opened *at = opened;
    for (; at->template; at++)
        if (!strcmp(at->template, template) && !strcmp(at->folder, folder)) return at;
    ck_assert(at < opened + MX_COUNT(opened) - 1);
    const char *name = mx_arena_printf(&arena, "hf/chat/templates/%s.jinja", template);
    const char *dir = mx_path_dir(
        &arena,
        goldens_need(&arena, mx_arena_printf(&arena, "hf/tokenizers/%s/tokenizer.json", folder)));
    *at = (Opened){template, folder, NULL, NULL};
    bool ok = mx_chat_open(&arena, (MxChatFrom){.named = goldens_need(&arena, name), .dir = dir},
                           &at->chat, &err) &&
              mx_tokenizer_open(&arena, "huggingface", dir, &at->tokenizer, &err);
    ck_assert_msg(ok, "%s", ok ? "" : err.text.data);
    return at;
}

/* The variables that transformers hands to the template. */
static MxJson *request_of(const MxJson *line) {
    MxJson *request = mx_json_object(&arena);
    const char *key;
    MxJson *value;
    mx_json_set(request, "messages", mx_json_get(line, "messages"));
    for (void *at = NULL; mx_json_next(mx_json_get(line, "kwargs"), &at, &key, &value);)
        mx_json_set(request, key, value);
    return request;
}

static void check_numbers(const MxJson *wanted, const int32_t *ids, const uint8_t *mask, int64_t n,
                          const char *what, const char *told) {
    ck_assert_msg(mx_json_length(wanted) == (size_t)n, "%s: %lld %s, wanted %zu", told,
                  (long long)n, what, mx_json_length(wanted));
    for (int64_t i = 0; i < n; i++) {
        int64_t value;
        ck_assert(mx_json_int(mx_json_at(wanted, (size_t)i), &value));
        ck_assert_msg(value == (ids ? ids[i] : mask[i]), "%s: %s %lld", told, what, (long long)i);
    }
}

static int n_masks;

static void check_case(const MxJson *line, int number) {
    const char *template = mx_json_string(mx_json_get(line, "template"));
    const Opened *with = open_case(template, mx_json_string(mx_json_get(line, "tokenizer")));
    const char *wanted = mx_json_string(mx_json_get(line, "text"));
    const char *message = mx_json_string(mx_json_get(line, "error_message"));
    const MxJson *mask = mx_json_get(line, "assistant_mask");
    const char *told = mx_arena_printf(&arena, "line %d: %s, %s, %s", number, template,
                                       mx_json_string(mx_json_get(line, "conversation")),
                                       mx_json_dump(&arena, mx_json_get(line, "kwargs"), false));
    MxRendered rendered;
    MxConversation made;
    const MxJson *request = request_of(line);
    if (message) {
        ck_assert_msg(!mx_chat_render(&arena, with->chat, request, MX_NOWHERE, &rendered, &err),
                      "%s: wanted an error", told);
        ck_assert_msg(mx_text_has_suffix(err.text.data, message), "%s: %s", told, err.text.data);
        mx_error_release(&err);
        err = (MxError){0};
        return;
    }
    bool ok = mx_chat_encode(&arena, with->chat, with->tokenizer, request, MX_NOWHERE, &made, &err);
    ck_assert_msg(ok, "%s: %s", told, ok ? "" : err.text.data);
    ck_assert_msg(!strcmp(made.rendered.text, wanted), "%s: \"%s\", wanted \"%s\"", told,
                  made.rendered.text, wanted);
    check_numbers(mx_json_get(line, "ids"), made.tokens.ids, NULL, made.tokens.n, "ids", told);
    if (mask) check_numbers(mask, NULL, made.mask, made.tokens.n, "mask", told);
    n_masks += mask != NULL;
}

START_TEST(conversations_are_transformers) {
    const char *path = goldens_find(&arena, "hf/chat/cases.jsonl");
    if (!path) return;
    chat_lines_of(path, check_case);
    ck_assert_int_gt(n_masks, 100);
}
END_TEST

/* Names of reasoning, and contents of several blocks. */
START_TEST(messages_are_transformers) {
    chat_lines_of(goldens_need(&arena, "hf/chat/more_cases.jsonl"), check_case);
}
END_TEST

/* ---- what the assistant says, found without marks */

static const char multi[] =
    "{\"messages\": [{\"role\": \"system\", \"content\": \"Be brief.\"}, {\"role\": \"user\", "
    "\"content\": \"One?\"}, {\"role\": \"assistant\", \"content\": \"1 it is\"}, {\"role\": "
    "\"user\", "
    "\"content\": \"Two?\"}, {\"role\": \"assistant\", \"content\": \"2\"}]}";

/* A file of a template without the tags that mark. */
static const char *unmarked_file(const char *name) {
    MxBytes bytes;
    MxText out;
    const char *path = mx_arena_printf(&arena, "/tmp/mx_chat_%d.jinja", (int)getpid());
    const char *from = goldens_need(&arena, mx_arena_printf(&arena, "hf/chat/templates/%s", name));
    mx_text_init(&out, &arena);
    ck_assert(mx_file_read(&arena, from, 1 << 20, &bytes, &err));
    for (const char *at = (const char *)bytes.data; *at; at++) {
        if (mx_text_has_prefix(at, "{%- generation") || mx_text_has_prefix(at, "{%- endgeneration"))
            at = strstr(at, "%}") + 1;
        else if (mx_text_has_prefix(at, "{% generation") ||
                 mx_text_has_prefix(at, "{% endgeneration"))
            at = strstr(at, "%}") + 1;
        else
            mx_text_addn(&out, at, 1);
    }
    ck_assert(mx_file_write(path, out.data, out.len, &err));
    return path;
}

static MxConversation encoded(const char *template, const char *folder, const char *request) {
    MxChat *chat;
    MxTokenizer *tokenizer;
    MxConversation made;
    const char *dir = mx_path_dir(
        &arena,
        goldens_need(&arena, mx_arena_printf(&arena, "hf/tokenizers/%s/tokenizer.json", folder)));
    const MxJson *json = mx_json_parse_value(&arena, request, strlen(request), MX_NOWHERE, &err);
    bool ok = mx_chat_open(&arena, (MxChatFrom){.named = template, .dir = dir}, &chat, &err) &&
              mx_tokenizer_open(&arena, "huggingface", dir, &tokenizer, &err) &&
              mx_chat_encode(&arena, chat, tokenizer, json, (MxWhere){.file = "f", .line = 3},
                             &made, &err);
    ck_assert_msg(ok, "%s", ok ? "" : err.text.data);
    return made;
}

static const struct {
    const char *more, *message; /* members of the request */
} refusals[] = {
    {"\"continue_final_message\": 1",
     "f:3: continue_final_message: found a number, wanted true or false"},
    {"\"add_generation_prompt\": \"yes\"",
     "f:3: add_generation_prompt: found a text, wanted true or false"},
    {"\"continue_final_message\": \"thinking\"",
     "f:3: continue_final_message: the final message has no text \"thinking\", or the chat "
     "template does not tell it"},
    {"\"continue_final_message\": \"content\"",
     "f:3: continue_final_message: the final message has no text \"content\", or the chat template "
     "does not tell it"},
    {"\"continue_final_message\": \"name\", \"add_generation_prompt\": true",
     "f:3: add_generation_prompt and continue_final_message exclude each other"},
};

/* What is continued must be in the text as it is: this template tells it in capitals. */
START_TEST(request_is_refused) {
    static const char template[] = "{% for m in messages %}{{ m.content | upper }}{% endfor %}";
    const char *path = mx_arena_printf(&arena, "/tmp/mx_chat_%d.jinja", (int)getpid());
    const char *text = mx_arena_printf(
        &arena, "{\"messages\": [{\"role\": \"assistant\", \"content\": \"Yes\"}], %s}",
        refusals[_i].more);
    const MxJson *json = mx_json_parse_value(&arena, text, strlen(text), MX_NOWHERE, &err);
    MxChat *chat;
    MxRendered out;
    ck_assert(mx_file_write(path, template, sizeof template - 1, &err));
    ck_assert(mx_chat_open(&arena, (MxChatFrom){.named = path}, &chat, &err));
    unlink(path);
    ck_assert(!mx_chat_render(&arena, chat, json, (MxWhere){.file = "f", .line = 3}, &out, &err));
    ck_assert_str_eq(err.text.data, refusals[_i].message);
    mx_error_release(&err);
    err = (MxError){0};
}
END_TEST

/* A template that tells the assistant's last words otherwise: blocks of text are found by marks in
 * them. */
START_TEST(blocks_are_found) {
    static const char template[] =
        "{% for m in messages %}{% if loop.last and m.role == 'assistant' %}({% endif %}"
        "{% for b in m.content %}{{ b.text }}{% endfor %};{% endfor %}";
    const char *path = mx_arena_printf(&arena, "/tmp/mx_chat_%d.jinja", (int)getpid());
    ck_assert(mx_file_write(path, template, sizeof template - 1, &err));
    MxConversation made = encoded(
        path, "qwen",
        "{\"messages\": [{\"role\": \"user\", \"content\": [{\"text\": \"Hi\"}]}, {\"role\": "
        "\"assistant\", \"content\": [{\"text\": \"Two, \"}, {\"text\": \"three\"}]}, "
        "{\"role\": \"user\", \"content\": [{\"text\": \"!\"}]}]}");
    unlink(path);
    ck_assert_str_eq(made.rendered.text, "Hi;Two, three;!;");
    ck_assert_int_eq(made.rendered.n_spans, 1);
    ck_assert_uint_eq(made.rendered.spans[0].start, strlen("Hi;"));
    ck_assert_uint_eq(made.rendered.spans[0].end, strlen("Hi;Two, three;"));
}
END_TEST

#define HI     "{\"role\": \"user\", \"content\": \"Hi\"}"
#define MORE   "{\"role\": \"user\", \"content\": \"More\"}"
#define YES    "{\"role\": \"assistant\", \"content\": \"Yes\"}"
#define CALL   "{\"role\": \"assistant\", \"tool_calls\": [1]}"
#define BOTH   "{\"role\": \"assistant\", \"content\": \"So\", \"tool_calls\": [1]}"
#define RESULT "{\"role\": \"tool\", \"content\": \"warm\"}"
#define LAST                                                                                       \
    "{% set ns = namespace(last=0) %}{% for m in messages %}{% if m.role == 'user' %}"             \
    "{% set ns.last = loop.index0 %}{% endif %}{% endfor %}"
#define TURN   "{% for m in messages %}<{{ m.role }}>"
#define PROMPT "{% if add_generation_prompt %}<assistant>{% endif %}"

/* Templates that tell what stands before a message otherwise when others follow, or the end of it.
 */
static const struct {
    const char *template, *messages, *said; /* said: of each message; NULL = it cannot be found */
    const char *more;                       /* members of the request */
} unmarked[] = {
    /* tools stand before the last question */
    {LAST "^{% for m in messages %}{% if loop.index0 == ns.last %}[tools]{% endif %}{{ '[' ~ "
          "m.content ~ "
          "']' if m.role == 'user' else m.content ~ '$' }}{% endfor %}",
     HI "," YES "," MORE "," YES "," HI, "Yes$|Yes$|", ""},
    /* only behind the last question, the assistant reasons */
    {LAST TURN
     "{% if m.role == 'assistant' and "
     "loop.index0 > ns.last %}(hm){% endif %}{{ m.content if m.content else 'call' }}$\n{% endfor "
     "%}" PROMPT,
     HI "," CALL "," RESULT "," YES "," MORE "," YES, "call$\n|Yes$\n|(hm)Yes$\n|", ""},
    /* there is a system's message before the first */
    {"<system>S$" TURN "{{ m.content }}${% endfor %}" PROMPT, YES "," MORE "," YES, "Yes$|Yes$|",
     ""},
    /* the last message is followed by what ends texts */
    {TURN
     "{{ m.content }}$\n{% endfor %}{{ '<assistant>' if add_generation_prompt else eos_token }}",
     HI "," YES "," MORE "," YES, "Yes$\n|Yes$\n</e>|", ""},
    /* what is said beside a call is left out when an answer follows */
    {TURN
     "{% if m.tool_calls %}{{ m.content if loop.last }}call{% else %}{{ m.content }}{% endif %}$"
     "{% endfor %}" PROMPT,
     HI "," BOTH "," RESULT "," YES, "call$|Yes$|", ""},
    /* or stands behind the result */
    {"{% for m in messages %}{% if m.role == 'tool' %}{% elif m.tool_calls %}<assistant>call"
     "{% for r in messages if r.role == 'tool' %}[{{ r.content }}]{% endfor %}{{ m.content }}$"
     "{% else %}<{{ m.role }}>{{ m.content }}${% endif %}{% endfor %}" PROMPT,
     HI "," BOTH "," RESULT "," YES, NULL, ""},
    {TURN "{{ m.content }}${% endfor %}" PROMPT, HI "," YES "," MORE "," YES, "Yes$|Yes|",
     ", \"continue_final_message\": true"},
    /* a generation prompt stands at the end also where it is not wanted, and of two alike heads
       only one says where the ending ends */
    {TURN "{{ m.content if m.content else 'call' }}${% endfor %}<assistant>",
     HI "," CALL "," RESULT "," YES, "call$|Yes$|", ""},
    {"<system>S$" TURN "{{ m.content if m.content else 'call' }}${% endfor %}<assistant>",
     HI "," CALL "," RESULT "," YES "," MORE, "call$|Yes$|", ", \"add_generation_prompt\": true"},
    {TURN "{{ m.content }}\n{% endfor %}", HI "," YES "," MORE "," YES,
     "<assistant>Yes\n|<assistant>Yes\n|", ""},
};

START_TEST(unmarked_is_found) {
    const char *path = mx_arena_printf(&arena, "/tmp/mx_chat_%d.jinja", (int)getpid());
    const char *text = mx_arena_printf(&arena, "{\"messages\": [%s], \"eos_token\": \"</e>\"%s}",
                                       unmarked[_i].messages, unmarked[_i].more);
    const MxJson *json = mx_json_parse_value(&arena, text, strlen(text), MX_NOWHERE, &err);
    MxChat *chat;
    MxRendered out;
    MxText told;
    ck_assert(mx_file_write(path, unmarked[_i].template, strlen(unmarked[_i].template), &err) &&
              mx_chat_open(&arena, (MxChatFrom){.named = path}, &chat, &err));
    unlink(path);
    bool ok = mx_chat_tell(&arena, chat, json, (MxWhere){.file = "f", .line = 3}, &out, &err);
    mx_text_init(&told, &arena);
    for (int i = 0; ok && i < out.n_spans; i++) {
        mx_text_addn(&told, out.text + out.spans[i].start, out.spans[i].end - out.spans[i].start);
        mx_text_addn(&told, "|", 1);
    }
    if (unmarked[_i].said)
        ck_assert_str_eq(ok ? told.data : err.text.data, unmarked[_i].said);
    else
        ck_assert_str_eq(ok ? told.data : err.text.data,
                         "f:3: what the assistant says in message 2 cannot be found in the text; a "
                         "chat template can mark it: {% generation %} … {% endgeneration %}");
    mx_error_release(&err);
    err = (MxError){0};
}
END_TEST

/* The text of what is masked, with "|" between stretches. */
static const char *said(const MxConversation *made, const char *folder) {
    MxTokenizer *tokenizer;
    MxText out;
    const char *path =
        goldens_need(&arena, mx_arena_printf(&arena, "hf/tokenizers/%s/tokenizer.json", folder));
    ck_assert(mx_tokenizer_open(&arena, "huggingface", path, &tokenizer, &err));
    mx_text_init(&out, &arena);
    for (int64_t i = 0, end; i < made->tokens.n; i = end + 1) {
        for (end = i; end < made->tokens.n && made->mask[end];) end++;
        if (end > i)
            mx_text_add(
                &out, "%s|",
                mx_tokenizer_decode(&arena, tokenizer, made->tokens.ids + i, end - i, false, NULL));
    }
    return out.data;
}

static const struct {
    const char *template, *folder, *said;
    bool unmarks;
} finds[] = {
    {"chatml_train.jinja", "qwen", "1 it is<|im_end|>|2<|im_end|>|", false},
    {"chatml_train.jinja", "qwen", "1 it is<|im_end|>\n|2<|im_end|>\n|", true},
    {"llama3_tools.jinja", "llama3", "1 it is<|eot_id|>|2<|eot_id|>|", true},
    /* the last turn thinks, the first does not: its text is told otherwise when it was the last */
    {"qwen_tools.jinja", "qwen", "1 it is<|im_end|>\n|<think>\n\n</think>\n\n2<|im_end|>\n|", true},
    {"gemma_turns.jinja", "gemma", "1 it is<end_of_turn>\n|2<end_of_turn>\n|", true},
    {"zephyr_lines.jinja", "llama2", "1 it is</s> \n|2</s> \n|", true},
};

START_TEST(said_is_found) {
    const char *file = finds[_i].template;
    const char *path =
        finds[_i].unmarks
            ? unmarked_file(file)
            : goldens_need(&arena, mx_arena_printf(&arena, "hf/chat/templates/%s", file));
    MxConversation made = encoded(path, finds[_i].folder, multi);
    ck_assert_str_eq(said(&made, finds[_i].folder), finds[_i].said);
}
END_TEST

/* A call has no text; when it was the last message, the template also told that nothing was
 * thought. */
START_TEST(call_is_found) {
    MxConversation made = encoded(
        unmarked_file("qwen_tools.jinja"), "qwen",
        "{\"messages\": [{\"role\": \"user\", \"content\": \"Hi\"}, {\"role\": \"assistant\", "
        "\"content\": null, \"tool_calls\": [{\"type\": \"function\", \"function\": {\"name\": "
        "\"add\", \"arguments\": {\"a\": 1}}}]}, {\"role\": \"tool\", \"content\": \"2\"}, "
        "{\"role\": "
        "\"assistant\", \"content\": \"2\"}]}");
    ck_assert_str_eq(said(&made, "qwen"),
                     "<tool_call>\n{\"name\": \"add\", \"arguments\": {\"a\": 1}}\n</tool_call>"
                     "<|im_end|>\n|<think>\n\n</think>\n\n2<|im_end|>\n|");
}
END_TEST

START_TEST(builtin_is_found_by_name) {
    const char *name = mx_chat_builtin(_i);
    static const char *const folders[] = {"qwen", "llama3", "gemma", "llama2"};
    static const char *const wanted[] = {
        "1 it is<|im_end|>|2<|im_end|>|", "1 it is<|eot_id|>|2<|eot_id|>|",
        "1 it is<end_of_turn>|2<end_of_turn>|", "1 it is</s>|2</s>|"};
    ck_assert_ptr_nonnull(name);
    MxConversation made = encoded(name, folders[_i], multi);
    ck_assert_str_eq(said(&made, folders[_i]), wanted[_i]);
    ck_assert_ptr_null(mx_chat_builtin(4));
}
END_TEST

/* ---- where templates are found */

static const struct {
    const char *file, *content, *text;
} folders[] = {
    {"chat_template.jinja", "A{{ messages[0].role }}{{ eos_token }}", "Auser<e>"},
    {"chat_template.json", "{\"chat_template\": \"B{{ messages|length }}\"}", "B1"},
    {"tokenizer_config.json",
     "{\"chat_template\": \"C{{ bos_token }}\", \"bos_token\": {\"content\": \"<b>\"}}", "C<b>"},
    {"tokenizer_config.json",
     "{\"chat_template\": [{\"name\": \"default\", \"template\": \"D\"}, {\"name\": \"tool_use\", "
     "\"template\": \"E\"}]}",
     "D"},
};

START_TEST(template_is_found_in_a_folder) {
    const char *dir = mx_arena_printf(&arena, "/tmp/mx_chat_dir_%d", (int)getpid());
    const char *map = "{\"eos_token\": \"<e>\"}";
    const char *request = "{\"messages\": [{\"role\": \"user\", \"content\": null}]}";
    MxChat *chat;
    MxRendered out;
    ck_assert(mx_dir_make(dir, &err));
    ck_assert(mx_file_write(mx_path_join(&arena, dir, "special_tokens_map.json"), map, strlen(map),
                            &err));
    ck_assert(mx_file_write(mx_path_join(&arena, dir, folders[_i].file), folders[_i].content,
                            strlen(folders[_i].content), &err));
    const MxJson *json = mx_json_parse_value(&arena, request, strlen(request), MX_NOWHERE, &err);
    bool ok = mx_chat_open(&arena, (MxChatFrom){.named = "", .dir = dir}, &chat, &err) &&
              mx_chat_render(&arena, chat, json, MX_NOWHERE, &out, &err);
    ck_assert_msg(ok, "%s", ok ? "" : err.text.data);
    ck_assert_str_eq(out.text, folders[_i].text);
    ck_assert(mx_dir_remove(dir, &err));
}
END_TEST

START_TEST(mistake_is_told) {
    static const char *const requests[][2] = {
        {"{}", "f:3: \"messages\" is missing; wanted a list of messages"},
        {"[]", "f:3: found a list, wanted {\"messages\": [...]}"},
        {"{\"messages\": []}", "f:3: \"messages\" is empty; wanted a list of messages"},
        {"{\"messages\": [{\"content\": \"x\"}]}",
         "f:3: message 1 has no \"role\"; a message that fits: {\"role\": \"user\", \"content\": "
         "\"Hi\"}"},
        {"{\"messages\": [{\"role\": \"user\"}]}",
         "f:3: chatml:5: 'dict object' has no attribute 'content'"},
    };
    MxChat *chat;
    MxRendered out;
    ck_assert(mx_chat_open(&arena, (MxChatFrom){.named = "chatml"}, &chat, &err));
    const MxJson *json =
        mx_json_parse_value(&arena, requests[_i][0], strlen(requests[_i][0]), MX_NOWHERE, &err);
    ck_assert(!mx_chat_render(&arena, chat, json, (MxWhere){.file = "f", .line = 3}, &out, &err));
    ck_assert_str_eq(err.text.data, requests[_i][1]);
}
END_TEST

Suite *chat_cases_suite(void) {
    Suite *suite = suite_create("cases");
    TCase *tcase = tcase_create("cases");
    tcase_set_timeout(tcase, 60);
    tcase_add_checked_fixture(tcase, NULL, chat_tear_down);
    tcase_add_test(tcase, conversations_are_transformers);
    tcase_add_test(tcase, messages_are_transformers);
    tcase_add_loop_test(tcase, request_is_refused, 0, MX_COUNT(refusals));
    tcase_add_test(tcase, blocks_are_found);
    tcase_add_loop_test(tcase, unmarked_is_found, 0, MX_COUNT(unmarked));
    tcase_add_test(tcase, call_is_found);
    tcase_add_loop_test(tcase, said_is_found, 0, MX_COUNT(finds));
    tcase_add_loop_test(tcase, builtin_is_found_by_name, 0, 4);
    tcase_add_loop_test(tcase, template_is_found_in_a_folder, 0, MX_COUNT(folders));
    tcase_add_loop_test(tcase, mistake_is_told, 0, 5);
    suite_add_tcase(suite, tcase);
    return suite;
}
