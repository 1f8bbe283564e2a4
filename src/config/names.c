/* names.c — suggests the key or value that a user means by an unrecognized word: the name in other
 * trainers (config_names.def), else a key with the same name in a section, else the nearest
 * spelling. */
#include "room.h"

#include <ctype.h>

/* Another trainer's name: of a key, or (remark NULL) of a value. */
typedef struct Name {
    const char *theirs, *ours, *remark;
} Name;

static const Name names[] = {
#define MX_NAME(theirs_, ours_, remark_) {.theirs = theirs_, .ours = ours_, .remark = remark_},
#define MX_WORD(theirs_, ours_)          {.theirs = theirs_, .ours = ours_},
#include <mx/config_names.def>
#undef MX_NAME
#undef MX_WORD
};

static const Name *find_name(const char *word, bool is_key) {
    for (int i = 0; i < MX_COUNT(names); i++)
        if (!strcmp(names[i].theirs, word) && (names[i].remark != NULL) == is_key) return &names[i];
    return NULL;
}

/* As names are written in the table. */
static const char *plain_name(MxArena *arena, const char *key) {
    char *plain = mx_arena_strdup(arena, key);
    for (char *p = plain; *p; p++) *p = (char)(*p == '-' ? '_' : tolower((unsigned char)*p));
    return plain;
}

/* "lora.lora_rank" for "lora_rank". */
static const char *key_in_section(MxArena *arena, const char *name) {
    const char *suffix = mx_arena_printf(arena, ".%s", name);
    for (int i = 0; i < config_row_count; i++)
        if (mx_text_has_suffix(config_rows[i].name, suffix)) return config_rows[i].name;
    return NULL;
}

const char *config_meant_key(MxArena *arena, const char *key) {
    const char *plain = plain_name(arena, key), *dot = strrchr(plain, '.');
    const Name *name = find_name(plain, true);
    if (!name && dot) name = find_name(dot + 1, true);
    if (name && !*name->ours) return name->remark;
    if (name)
        return mx_arena_printf(arena, "\"%s\" is %s here%s%s", config_shorten(arena, key),
                               config_words(arena, name->ours), *name->remark ? "; " : "",
                               name->remark);
    const char *near = key_in_section(arena, key);
    const char **keys = mx_new_n(arena, const char *, config_row_count);
    int n = 0;
    for (int i = 0; i < config_row_count; i++)
        if (config_rows[i].class != CONFIG_SECTION) keys[n++] = config_rows[i].name;
    if (!near) near = mx_nearest(key, keys, n);
    return near ? mx_arena_printf(arena, "did you mean \"%s\"?", near) : NULL;
}

const char *config_meant_word(MxArena *arena, const char *word, const char *const lists[3]) {
    const Name *name = find_name(plain_name(arena, word), false);
    for (int i = 0; name && i < 3; i++)
        if (config_word_in(lists[i], name->ours)) return name->ours;
    return config_nearest_word(arena, word, lists);
}
