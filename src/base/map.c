/* map.c — strings to integers: open addressing with linear probing, at most half full. */
#include <mx/base.h>

void mx_map_init(MxMap *map, MxArena *arena) {
    *map = (MxMap){.arena = arena, .cap = 16};
    map->slots = mx_new_n(arena, MxMapSlot, map->cap);
}

static MxMapSlot *slot_of(MxMapSlot *slots, size_t cap, const char *key) {
    for (size_t i = mx_hash64(key, strlen(key));; i++) {
        MxMapSlot *slot = &slots[i & (cap - 1)];
        if (!slot->key || !strcmp(slot->key, key)) return slot;
    }
}

static void grow(MxMap *map) {
    size_t cap = map->cap * 2;
    MxMapSlot *slots = mx_new_n(map->arena, MxMapSlot, cap);
    for (size_t i = 0; i < map->cap; i++)
        if (map->slots[i].key) *slot_of(slots, cap, map->slots[i].key) = map->slots[i];
    map->slots = slots;
    map->cap = cap;
}

void mx_map_set(MxMap *map, const char *key, int64_t value) {
    if (2 * (map->count + 1) > map->cap) grow(map);
    MxMapSlot *slot = slot_of(map->slots, map->cap, key);
    map->count += !slot->key;
    *slot = (MxMapSlot){.key = key, .value = value};
}

int64_t mx_map_get(const MxMap *map, const char *key, int64_t missing) {
    if (!map->cap) return missing;
    const MxMapSlot *slot = slot_of(map->slots, map->cap, key);
    return slot->key ? slot->value : missing;
}
