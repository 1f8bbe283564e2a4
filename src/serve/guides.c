/* guides.c — guides of the last requests: what was found out of a grammar serves the next request
 * for the same. */
#include "guides.h"

void guides_init(Guides *guides) {
    *guides = (Guides){0};
    for (int i = 0; i < GUIDES_KEPT; i++) guides->kept[i].arena.name = "guide";
}

void guides_release(Guides *guides) {
    for (int i = 0; i < GUIDES_KEPT; i++) mx_arena_release(&guides->kept[i].arena);
}

Guided *guides_find(Guides *guides, const char *key) {
    for (int i = 0; i < GUIDES_KEPT; i++) {
        Guided *one = &guides->kept[i];
        if (!one->guide || strcmp(one->key, key)) continue;
        one->n_users++;
        one->used = ++guides->n_uses;
        return one;
    }
    return NULL;
}

/* In the place of the one that has not been asked for longest. */
Guided *guides_new(Guides *guides, const char *key) {
    Guided *oldest = NULL;
    for (int i = 0; i < GUIDES_KEPT; i++) {
        Guided *one = &guides->kept[i];
        if (!one->n_users && (!oldest || one->used < oldest->used)) oldest = one;
    }
    if (!oldest) return NULL;
    MxArena arena = {.name = "guide"};
    mx_arena_release(&oldest->arena);
    *oldest = (Guided){.n_users = 1, .used = ++guides->n_uses};
    oldest->key = mx_arena_printf(&arena, "%s", key);
    oldest->arena = arena;
    return oldest;
}

void guides_leave(Guided *guided) {
    MX_ASSERT(guided->n_users > 0);
    guided->n_users--;
}
