/* turns.c — what stands around a prompt and its completion, by the rows of encoders. */
#include "turns.h"

static Field field_of(const MxText *text) {
    return (Field){.kind = "a text", .text = text->data, .bytes = text->len};
}

Field turns_mark(MxArena *arena, const Seer *seer, const Field *text) {
    MxText out;
    const char *name = seer->form->placeholder, *at = text->text, *end = at + text->bytes, *next;
    size_t bytes = name ? strlen(name) : 0;
    mx_text_init(&out, arena);
    for (; bytes && (next = memmem(at, (size_t)(end - at), name, bytes)); at = next + bytes) {
        mx_text_addn(&out, at, (size_t)(next - at));
        mx_text_add(&out, "%s", seer->encoder->mark);
    }
    mx_text_addn(&out, at, (size_t)(end - at));
    return field_of(&out);
}

void turns_make(MxArena *arena, const Seer *seer, int n_images, const Field text[TURNS],
                Field out[TURNS]) {
    const MxTurns *turns = &seer->encoder->turns;
    Field prompt = turns_mark(arena, seer, &text[0]);
    MxText user, model;
    MX_ASSERT(turns->before && turns->behind && turns->end);
    mx_text_init(&user, arena);
    mx_text_init(&model, arena);
    int n = pictures_marked(seer, prompt.text, prompt.bytes) +
            pictures_marked(seer, text[1].text, text[1].bytes);
    mx_text_add(&user, "%s", turns->before);
    for (; n < n_images; n++) mx_text_add(&user, "%s", seer->encoder->mark);
    mx_text_addn(&user, prompt.text, prompt.bytes);
    mx_text_add(&user, "%s", turns->behind);
    mx_text_addn(&model, text[1].text, text[1].bytes);
    mx_text_add(&model, "%s", turns->end);
    out[0] = field_of(&user);
    out[1] = field_of(&model);
}
