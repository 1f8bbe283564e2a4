/* template.c — fuzz target for chat templates: a template, and behind a NUL the variables it is
 * rendered with. A template is text and ranges in it, or one error. */
#include <mx/chat.h>

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void need(bool holds) {
    if (!holds) abort();
}

static const char usual[] =
    "{\"messages\":[{\"role\":\"system\",\"content\":\"Be brief.\"},{\"role\":\"user\",\"content\":"
    "\"Hi \\u00e9\"},{\"role\":\"assistant\",\"content\":\"Hello\",\"tool_calls\":[{\"function\":{"
    "\"name\":\"f\",\"arguments\":{\"a\":[1,2.5,null,true]}}}]}],\"bos_token\":\"<s>\","
    "\"add_generation_prompt\":true,\"x\":{\"y\":{\"z\":\"w\"}},\"l\":[3,1,2]}";

static void check(MxArena *arena, const MxTemplate *template, const char *variables, size_t n) {
    MxError err = {0}, ignored = {0};
    MxRendered out;
    const MxJson *json = mx_json_parse_value(arena, variables, n, MX_NOWHERE, &ignored);
    mx_error_release(&ignored);
    if (!json || strcmp(mx_json_kind(json), "an object")) return;
    if (mx_template_render(arena, template, json, &out, &err)) {
        need(mx_utf8_valid_bytes(out.text, out.n) == out.n);
        for (int i = 0; i < out.n_spans; i++) need(out.spans[i].start <= out.spans[i].end);
    } else {
        need(err.count == 1 && err.exit == MX_EXIT_BAD_INPUT);
    }
    mx_error_release(&err);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    MxArena arena = {.name = "fuzz"};
    MxError err = {0};
    MxTemplate *template;
    const uint8_t *end = size ? memchr(data, '\0', size) : NULL;
    size_t n = end ? (size_t)(end - data) : size;
    char *text = mx_arena_alloc(&arena, size + 1);
    if (size) memcpy(text, data, size);
    if (!mx_template_parse(&arena, text, n, "fuzz", &template, &err))
        need(err.count == 1 && err.exit == MX_EXIT_BAD_INPUT);
    else if (end)
        check(&arena, template, text + n + 1, size - n - 1);
    else
        check(&arena, template, usual, sizeof usual - 1);
    mx_error_release(&err);
    mx_arena_release(&arena);
    return 0;
}
