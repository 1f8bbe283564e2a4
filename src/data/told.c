/* told.c — what stands for images and sounds in the texts of records, in the places of their marks.
 */
#include "images.h"

/* Text that stands for one, of an encoder that may not be there. */
static int count_marks(const char *mark, const char *text, size_t n) {
    int count = 0;
    size_t bytes = mark ? strlen(mark) : 0;
    for (const char *at = text; bytes && (at = memmem(at, n - (size_t)(at - text), mark, bytes));
         at += bytes)
        count++;
    return count;
}

static const char *mark_of(const Seer *seer, bool is_sound) {
    const MxAudioEncoder *audio = seer->hearing.encoder;
    return is_sound ? (audio ? audio->mark : NULL) : seer->encoder->mark;
}

int pictures_marked(const Seer *seer, const char *text, size_t n) {
    return count_marks(mark_of(seer, false), text, n);
}

int sounds_marked(const Seer *seer, const char *text, size_t n) {
    return count_marks(mark_of(seer, true), text, n);
}

/* Places behind the one that grows. */
static void move_spans(MxRendered *text, size_t at, size_t more) {
    for (int i = 0; i < text->n_spans; i++) {
        if (text->spans[i].start > at) text->spans[i].start += more;
        if (text->spans[i].end > at) text->spans[i].end += more;
    }
}

/* The next image, or sound, in the place of so many bytes of the text. */
static void tell_next(const Seer *seer, Pictures *pictures, bool is_sound, size_t bytes,
                      MxRendered *text, MxText *out) {
    size_t at = out->len;
    if (is_sound)
        sounds_add_tokens(seer, pictures, pictures->sounds.n_places++, out);
    else
        pictures_add_views(seer, pictures, pictures->n_places++, out);
    move_spans(text, at, out->len - at - bytes);
}

/* The first mark of either; NULL = there is none. */
static const char *find_mark(const Seer *seer, const char *at, const char *end, bool *is_sound) {
    const char *first = NULL;
    for (int kind = 0; kind < 2; kind++) {
        const char *mark = mark_of(seer, kind);
        const char *next = mark ? memmem(at, (size_t)(end - at), mark, strlen(mark)) : NULL;
        if (!next || (first && first < next)) continue;
        first = next;
        *is_sound = kind;
    }
    return first;
}

void pictures_tell(MxArena *arena, const Seer *seer, Pictures *pictures, int n_missing, int n_quiet,
                   MxRendered *text) {
    const char *at = text->text, *end = at + text->n;
    bool is_sound = false;
    MxText out;
    mx_text_init(&out, arena);
    for (int i = 0; i < n_missing; i++) tell_next(seer, pictures, false, 0, text, &out);
    for (int i = 0; i < n_quiet; i++) tell_next(seer, pictures, true, 0, text, &out);
    for (const char *next; (next = find_mark(seer, at, end, &is_sound));) {
        size_t bytes = strlen(mark_of(seer, is_sound));
        mx_text_addn(&out, at, (size_t)(next - at));
        tell_next(seer, pictures, is_sound, bytes, text, &out);
        at = next + bytes;
    }
    mx_text_addn(&out, at, (size_t)(end - at));
    text->text = out.data;
    text->n = out.len;
}

static void raise(int *places, int other) {
    if (*places < other) *places = other;
}

void pictures_tell_whole(MxArena *arena, const Seer *seer, Pictures *pictures, int n_missing,
                         MxRendered *text) {
    int n = pictures->n_places, n_sounds = pictures->sounds.n_places;
    pictures->n_places = pictures->sounds.n_places = 0;
    pictures_tell(arena, seer, pictures, n_missing, 0, text);
    raise(&pictures->n_places, n);
    raise(&pictures->sounds.n_places, n_sounds);
}

/* ---- what is kept */

static bool are_same(const char *const *a, int n, const char *const *b, int n_b) {
    bool same = n == n_b;
    for (int i = 0; same && i < n; i++) same = !strcmp(a[i], b[i]);
    return same;
}

bool pictures_are_same(const Pictures *a, const Pictures *b) {
    if (!a || !b) return a == b;
    return are_same(a->path, a->n, b->path, b->n) &&
           are_same(a->sounds.path, a->sounds.n, b->sounds.path, b->sounds.n);
}

static const char **keep_names(MxArena *arena, const char *const *path, int n) {
    const char **kept = mx_new_n(arena, const char *, n + 1);
    for (int i = 0; i < n; i++) kept[i] = mx_arena_strdup(arena, path[i]);
    return kept;
}

static void *keep_array(MxArena *arena, const void *from, int n, size_t bytes) {
    void *kept = mx_arena_alloc(arena, (size_t)n * bytes + 1);
    if (n) memcpy(kept, from, (size_t)n * bytes);
    return kept;
}

Pictures *pictures_keep(MxArena *arena, const Pictures *pictures) {
    const SoundFiles *sounds = &pictures->sounds;
    const int n = pictures->n, n_sounds = sounds->n;
    Pictures *kept = mx_new(arena, Pictures);
    *kept = (Pictures){
        .path = keep_names(arena, pictures->path, n),
        .size = keep_array(arena, pictures->size, n, sizeof *pictures->size),
        .n = n,
        .sounds = {.path = keep_names(arena, sounds->path, n_sounds),
                   .frames = keep_array(arena, sounds->frames, n_sounds, sizeof *sounds->frames),
                   .samples = keep_array(arena, sounds->samples, n_sounds, sizeof *sounds->samples),
                   .n = n_sounds}};
    return kept;
}
