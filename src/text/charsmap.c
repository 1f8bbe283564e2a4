/* charsmap.c — the map from strings to strings that sentencepiece compiles into its models: the
 * number of bytes of a double array (darts-clone), the array, then the texts, each ended by NUL.
 * Reads never leave the blob, whatever it contains. Source of the layout: darts-clone, darts.h;
 * sentencepiece, src/normalizer.cc. */
#include "internal.h"

enum { UNIT_BYTES = 4 };

static uint32_t little_endian(const uint8_t *p) {
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

const char *text_charsmap_open(TextSpan blob, TextCharsmap *out) {
    const uint8_t *bytes = (const uint8_t *)blob.data;
    if (blob.n < UNIT_BYTES) return "it is shorter than its header";
    size_t trie_bytes = little_endian(bytes), rest = blob.n - UNIT_BYTES;
    if (trie_bytes > rest || trie_bytes % UNIT_BYTES || !trie_bytes)
        return "its trie does not fit into it";
    *out = (TextCharsmap){.units = bytes + UNIT_BYTES,
                          .pool = bytes + UNIT_BYTES + trie_bytes,
                          .n_units = trie_bytes / UNIT_BYTES,
                          .pool_bytes = rest - trie_bytes};
    if (out->pool_bytes && out->pool[out->pool_bytes - 1]) return "its last text does not end";
    if (mx_utf8_valid_bytes((const char *)out->pool, out->pool_bytes) < out->pool_bytes)
        return "its texts are not UTF-8";
    return NULL;
}

/* The fields of a unit. */
static uint32_t offset_of(uint32_t unit) {
    return unit >> 10 << ((unit & 1u << 9) >> 6);
}
static bool has_value(uint32_t unit) {
    return unit >> 8 & 1;
}

size_t text_charsmap_find(const TextCharsmap *map, TextSpan text, bool longest, TextSpan *out) {
    static const uint32_t label_mask = 0x800000ff, value_mask = 0x7fffffff;
    size_t found = 0, node = 0;
    node ^= offset_of(little_endian(map->units));
    for (size_t i = 0; i < text.n; i++) {
        uint8_t byte = (uint8_t)text.data[i];
        node ^= byte;
        if (!byte || node >= map->n_units) break;
        uint32_t unit = little_endian(map->units + node * UNIT_BYTES);
        if ((unit & label_mask) != byte) break;
        node ^= offset_of(unit);
        if (node >= map->n_units) break;
        if (!has_value(unit)) continue;
        size_t at = little_endian(map->units + node * UNIT_BYTES) & value_mask;
        if (at >= map->pool_bytes) break;
        found = i + 1;
        *out = (TextSpan){(const char *)map->pool + at, strlen((const char *)map->pool + at)};
        if (!longest) break;
    }
    return found;
}

/* ---- the step of tokenizer.json */

bool text_precompiled_read(TextNode object, const void **settings) {
    TextCharsmap *map = mx_new(object.arena, TextCharsmap);
    TextSpan text = {0}, blob;
    *settings = map;
    if (!text_node_span(object, "precompiled_charsmap", true, &text)) return false;
    TextNode node = text_node_get(object, "precompiled_charsmap");
    MxBytes bytes;
    if (!mx_base64(object.arena, text.data, text.n, &bytes))
        return text_node_fail(node, "is no base64");
    blob = (TextSpan){(const char *)bytes.data, bytes.size};
    const char *why = text_charsmap_open(blob, map);
    return !why || text_node_fail(node, "%s", why);
}

/* A grapheme of few bytes is looked up as a whole, where its shortest beginning that the map has
 * stands for all of it; then character by character. As the tokenizers library does it
 * (spm_precompiled), which is not what sentencepiece itself does. */
bool text_precompiled_run(TextWork *work, int step, TextSpan in, MxText *out) {
    enum { MOST_BYTES = 5 };
    const TextCharsmap *map = work->tokenizer->normalizers.item[step].settings;
    TextSpan to;
    for (size_t at = 0; at < in.n;) {
        size_t end = text_grapheme_end(in, at);
        TextSpan cluster = {in.data + at, end - at};
        if (cluster.n <= MOST_BYTES && text_charsmap_find(map, cluster, false, &to)) {
            mx_text_addn(out, to.data, to.n);
            at = end;
        }
        while (at < end) {
            TextSpan one = {in.data + at, text_char_bytes((uint8_t)in.data[at])};
            bool found = text_charsmap_find(map, one, false, &to);
            mx_text_addn(out, found ? to.data : one.data, found ? to.n : one.n);
            at += one.n;
        }
    }
    return true;
}
