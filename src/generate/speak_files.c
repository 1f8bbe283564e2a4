/* speak_files.c — the images and sounds that a command line, or a config, adds to a user's message.
 */
#include "speak.h"

#include <mx/model.h>

static void add_items(MxJson *items, const char *type, const char *name, const char **files,
                      int n) {
    for (int i = 0; i < n; i++) {
        MxJson *item = mx_json_push_object(items);
        mx_json_set_string(item, "type", type);
        mx_json_set_string(item, name, files[i]);
    }
}

void speak_message(const MxSpeak *what, MxJson *request, const char *role, MxEncoding text,
                   bool has_files) {
    MxJson *messages = mx_json_get(request, "messages");
    MxJson *message = mx_json_push_object(messages), *items = NULL, *item;
    MxArena scratch = {.name = "message"};
    const char *said = mx_arena_strndup(&scratch, text.text, text.n);
    has_files = has_files && what->n_images + what->n_sounds;
    mx_json_set_string(message, "role", role);
    if (has_files) {
        items = mx_json_put_array(message, "content");
        add_items(items, "image", "path", what->images, what->n_images);
        add_items(items, "audio", "audio", what->sounds, what->n_sounds);
    }
    item = has_files ? mx_json_push_object(items) : message;
    if (has_files) mx_json_set_string(item, "type", "text");
    mx_json_set_string(item, has_files ? "text" : "content", said);
    mx_arena_release(&scratch);
}

/* A text with marks in the place of a placeholder; n receives how many marks it then has. */
static char *find_marks(MxArena *arena, const char *mark, const char *placeholder, const char *text,
                        int *n) {
    const char *names[] = {mark, placeholder};
    MxText out;
    mx_text_init(&out, arena);
    *n = 0;
    while (*text) {
        size_t bytes = 0;
        for (int i = 0; i < MX_COUNT(names) && !bytes; i++)
            if (names[i] && mx_text_has_prefix(text, names[i])) bytes = strlen(names[i]);
        mx_text_addn(&out, bytes ? names[0] : text, bytes ? strlen(names[0]) : 1);
        text += bytes ? bytes : 1;
        *n += bytes > 0;
    }
    return out.data;
}

static void put_names(MxJson *request, const char *member, const char **files, int n) {
    MxJson *list = mx_json_put_array(request, member);
    for (int i = 0; i < n; i++) mx_json_push_string(list, files[i]);
}

void speak_name_files(const MxSpeak *what, MxJson *record) {
    put_names(record, "images", what->images, what->n_images);
    put_names(record, "audios", what->sounds, what->n_sounds);
}

bool speak_marked(MxArena *arena, const MxSpeak *what, const MxConfig *c, MxJson *request,
                  MxEncoding text) {
    const MxAudioEncoder *audio = mx_model_hearing(c).encoder;
    int n_images, n_sounds = 0;
    MxText all;
    if (!(what->n_images + what->n_sounds) || !c->use_multimodal) return false;
    const char *mark = mx_model_vision(c).encoder->mark;
    const char *said = mx_arena_strndup(arena, text.text, text.n);
    said = find_marks(arena, mark, c->image_placeholder, said, &n_images);
    if (audio) said = find_marks(arena, audio->mark, c->audio_placeholder, said, &n_sounds);
    if (!n_images && !n_sounds) return false;
    mx_text_init(&all, arena);
    for (int i = n_images; i < what->n_images; i++) mx_text_add(&all, "%s", mark);
    for (int i = n_sounds; audio && i < what->n_sounds; i++) mx_text_add(&all, "%s", audio->mark);
    mx_text_add(&all, "%s", said);
    speak_name_files(what, request);
    speak_message(what, request, "user", (MxEncoding){.text = all.data, .n = all.len}, false);
    return true;
}
