/* always.c — the generation prompt of templates that write one behind any conversation, whether it
 * is wanted or not: nobody says it. */
#include "conversation.h"

static const char first[] = "\xc2\xa4"
                            "first\xc2\xa4",
                  last[] = "\xc2\xa4"
                           "last\xc2\xa4";

/* The conversation's other members with two messages of the user; NULL = the template takes none
 * such. */
static const char *render_two(MxArena *arena, const MxChat *chat, const ChatPart *all, size_t *n) {
    static const char *const texts[] = {first, last};
    MxJson *request = mx_json_object(arena), *value;
    const char *name;
    MxRendered out;
    MxError ignored = {0};
    for (void *at = NULL; mx_json_next(all->request, &at, &name, &value);)
        mx_json_set(request, name, value);
    MxJson *messages = mx_json_put_array(request, "messages");
    for (int i = 0; i < MX_COUNT(texts); i++) {
        MxJson *message = mx_json_push_object(messages);
        mx_json_set_string(message, "role", "user");
        mx_json_set_string(message, "content", texts[i]);
    }
    const ChatPart part = {.request = request, .n = MX_COUNT(texts), .marked = -1};
    bool ok = chat_render_part(arena, chat, &part, &out, &ignored);
    mx_error_release(&ignored);
    if (!ok) return NULL;
    const char *bos = mx_json_string(mx_json_get(chat->tokens, "bos_token"));
    const char *own = mx_json_string(mx_json_get(all->request, "bos_token"));
    if (own) bos = own;
    size_t skip = bos && mx_text_has_prefix(out.text, bos) ? strlen(bos) : 0;
    *n = out.n - skip;
    return out.text + skip;
}

/* Behind the last message stand its ending and the prompt; behind the first one, its ending and the
 * head of the next one. Both heads may begin alike, and then as the text itself does: that tells
 * them from the ending. */
static const char *find_prompt(const char *text, size_t n, size_t *n_prompt) {
    const char *a = memmem(text, n, first, sizeof first - 1);
    const char *b = a ? memmem(a, n - (size_t)(a - text), last, sizeof last - 1) : NULL;
    if (!b) return NULL;
    const char *head = a + sizeof first - 1, *tail = b + sizeof last - 1;
    size_t same = 0, alike;
    while (head + same < b && tail + same < text + n && head[same] == tail[same]) same++;
    for (alike = same; alike && memcmp(tail + same - alike, text, alike);) alike--;
    *n_prompt = n - (size_t)(tail - text) - same;
    if (*n_prompt) *n_prompt += alike;
    return text + n - *n_prompt;
}

size_t chat_always_prompts(const MxChat *chat, const ChatPart *all) {
    MxArena arena = {.name = "prompt"};
    MxError ignored = {0};
    MxRendered with, without;
    ChatPart part = *all;
    part.marked = -1;
    part.prompts = true;
    bool ok = chat_render_part(&arena, chat, &part, &with, &ignored);
    part.prompts = false;
    ok = ok && chat_render_part(&arena, chat, &part, &without, &ignored) && with.n == without.n &&
         !memcmp(with.text, without.text, with.n);
    size_t n, n_prompt = 0;
    const char *two = ok ? render_two(&arena, chat, all, &n) : NULL;
    const char *prompt = two ? find_prompt(two, n, &n_prompt) : NULL;
    if (!prompt || n_prompt > with.n || memcmp(with.text + with.n - n_prompt, prompt, n_prompt))
        n_prompt = 0;
    mx_error_release(&ignored);
    mx_arena_release(&arena);
    return n_prompt;
}
