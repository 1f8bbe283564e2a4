/* post.c — post-processors, which add ids before and after a text if special tokens are requested:
 * one row each. Offsets and pairs of texts are not supported. */
#include "internal.h"

static MxTokens join(MxArena *arena, MxTokens a, MxTokens b) {
    MxTokens all = {mx_new_n(arena, int32_t, a.n + b.n + 1), a.n + b.n};
    if (a.n) memcpy(all.ids, a.ids, (size_t)a.n * sizeof *a.ids);
    if (b.n) memcpy(all.ids + a.n, b.ids, (size_t)b.n * sizeof *b.ids);
    return all;
}

/* ---- templates */

/* The ids of a special token of a template. */
static bool special_ids(TextNode object, TextNode item, MxTokens *out) {
    TextNode special = text_node_get(item, "SpecialToken"), ids;
    TextSpan name = {0};
    if (!special.json) return text_node_wants(item, "{\"SpecialToken\": …} or {\"Sequence\": …}");
    if (!text_node_span(special, "id", true, &name)) return false;
    TextNode all = text_node_get(object, "special_tokens"), row = text_node_get(all, name.data);
    if (!row.json) return text_node_wants(row, "the ids of that token");
    if (!text_node_list(row, "ids", true, &ids)) return false;
    MxTokens list = {mx_new_n(object.arena, int32_t, mx_json_length(ids.json) + 1), 0};
    for (size_t i = 0; i < mx_json_length(ids.json); i++) {
        int64_t id;
        TextNode node = text_node_at(ids, i);
        if (!node.json || !mx_json_int(node.json, &id)) return text_node_wants(node, "a number");
        if (id < 0 || id > INT32_MAX) return text_node_fail(node, "is out of range");
        list.ids[list.n++] = (int32_t)id;
    }
    *out = list;
    return true;
}

static bool template_read(TextNode object, const void **settings) {
    TextAround *around = mx_new(object.arena, TextAround);
    TextNode single;
    int n_texts = 0;
    *settings = around;
    if (!text_node_list(object, "single", true, &single)) return false;
    for (size_t i = 0; i < mx_json_length(single.json); i++) {
        TextNode item = text_node_at(single, i);
        MxTokens ids = {0};
        if (!item.json) return text_node_wants(item, "an object");
        if (mx_json_get(item.json, "Sequence")) {
            n_texts++;
            continue;
        }
        if (!special_ids(object, item, &ids)) return false;
        MxTokens *side = n_texts ? &around->behind : &around->before;
        *side = join(object.arena, *side, ids);
    }
    return n_texts == 1 ||
           text_node_fail(single, "the text stands in it %d times, wanted once", n_texts);
}

/* ---- ["[SEP]", 102] */

static bool read_pair(TextNode object, const char *key, MxTokens *out) {
    TextNode list;
    int64_t id = -1;
    if (!text_node_list(object, key, true, &list)) return false;
    const MxJson *number = mx_json_at(list.json, 1);
    if (!number || !mx_json_int(number, &id) || id < 0 || id > INT32_MAX)
        return text_node_fail(list, "wanted [text, id]");
    *out = (MxTokens){mx_new(object.arena, int32_t), 1};
    out->ids[0] = (int32_t)id;
    return true;
}

static bool pair_read(TextNode object, const void **settings) {
    TextAround *around = mx_new(object.arena, TextAround);
    *settings = around;
    return read_pair(object, "cls", &around->before) && read_pair(object, "sep", &around->behind);
}

/* ---- */

static const TextKind rows[] = {
    {.name = "TemplateProcessing", .members = "single pair special_tokens", .read = template_read},
    {.name = "BertProcessing", .members = "sep cls", .read = pair_read},
    {.name = "RobertaProcessing",
     .members = "sep cls trim_offsets add_prefix_space",
     .read = pair_read},
    {.name = "ByteLevel", .members = "add_prefix_space trim_offsets use_regex"}, /* offsets alone */
};

static const TextTable table = {
    .rows = rows,
    .row_bytes = sizeof *rows,
    .n = MX_COUNT(rows),
    .what = "post-processor",
    .sequence = "processors",
};

bool text_around_read(TextNode node, TextAround *out) {
    TextSteps steps;
    *out = (TextAround){0};
    if (!text_steps_read(node, &table, &steps)) return false;
    for (int i = 0; i < steps.n; i++) {
        const TextAround *step = steps.item[i].settings;
        if (!step || (!step->before.n && !step->behind.n)) continue;
        if (out->before.n || out->behind.n) /* the library adds others around each of these */
            return text_node_fail(node, "not available yet: two steps that add tokens");
        *out = *step;
    }
    return true;
}
