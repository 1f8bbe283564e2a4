/* turns.c — what stands around a prompt and its completion, by the rows of encoders. */
#include "turns.h"

/* A text with the encoder's mark in the place of each placeholder. */
static void add_marked(const Seer *seer, const Field *text, MxText *out) {
    const char *name = seer->form->placeholder, *at = text->text, *end = at + text->bytes, *next;
    size_t bytes = name ? strlen(name) : 0;
    for (; bytes && (next = memmem(at, (size_t)(end - at), name, bytes)); at = next + bytes) {
        mx_text_addn(out, at, (size_t)(next - at));
        mx_text_add(out, "%s", seer->encoder->mark);
    }
    mx_text_addn(out, at, (size_t)(end - at));
}

static Field field_of(const MxText *text) {
    return (Field){.kind = "a text", .text = text->data, .bytes = text->len};
}

void turns_make(MxArena *arena, const Seer *seer, int n_images, const Field text[TURNS],
                Field out[TURNS]) {
    const MxTurns *turns = &seer->encoder->turns;
    MxText prompt, user, model;
    MX_ASSERT(turns->before && turns->behind && turns->end);
    mx_text_init(&prompt, arena);
    mx_text_init(&user, arena);
    mx_text_init(&model, arena);
    add_marked(seer, &text[0], &prompt);
    int n = pictures_marked(seer, prompt.data, prompt.len) +
            pictures_marked(seer, text[1].text, text[1].bytes);
    mx_text_add(&user, "%s", turns->before);
    for (; n < n_images; n++) mx_text_add(&user, "%s", seer->encoder->mark);
    mx_text_addn(&user, prompt.data, prompt.len);
    mx_text_add(&user, "%s", turns->behind);
    mx_text_addn(&model, text[1].text, text[1].bytes);
    mx_text_add(&model, "%s", turns->end);
    out[0] = field_of(&user);
    out[1] = field_of(&model);
}
