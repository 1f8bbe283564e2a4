/* open.c — sources of chat templates: built in, files, folders of tokenizers. */
#include "conversation.h"

enum { LARGEST_BYTES = 1 << 26 };

/* ---- built in */

/* Templates in the formats that these models were published with, written for this project. */
static const struct {
    const char *name, *text;
} builtins[] = {
    {"chatml",
     "{%- for message in messages %}\n"
     "{{- '<|im_start|>' + message.role + '\\n' }}\n"
     "{%- if message.role == 'assistant' %}\n"
     "{%- generation %}{{- message.content + '<|im_end|>' }}{%- endgeneration %}{{- '\\n' }}\n"
     "{%- else %}{{- message.content + '<|im_end|>\\n' }}{%- endif %}\n"
     "{%- endfor %}\n"
     "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}"},
    {"llama3", "{{- bos_token | default('<|begin_of_text|>') }}\n"
               "{%- for message in messages %}\n"
               "{{- '<|start_header_id|>' + message.role + '<|end_header_id|>\\n\\n' }}\n"
               "{%- if message.role == 'assistant' %}\n"
               "{%- generation %}{{- message.content | trim + '<|eot_id|>' }}{%- endgeneration %}\n"
               "{%- else %}{{- message.content | trim + '<|eot_id|>' }}{%- endif %}\n"
               "{%- endfor %}\n"
               "{%- if add_generation_prompt %}\n"
               "{{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{%- endif %}"},
    {"gemma",
     "{{- bos_token | default('<bos>') }}\n"
     "{%- set ns = namespace(lead='') %}\n"
     "{%- for message in messages %}\n"
     "{%- if message.role == 'system' and loop.first %}\n"
     "{%- set ns.lead = message.content | trim + '\\n\\n' %}\n"
     "{%- elif message.role == 'assistant' %}{{- '<start_of_turn>model\\n' }}\n"
     "{%- generation %}{{- message.content | trim + '<end_of_turn>' }}{%- endgeneration %}\n"
     "{{- '\\n' }}\n"
     "{%- elif message.role == 'user' %}\n"
     "{{- '<start_of_turn>user\\n' + ns.lead }}\n"
     "{%- if message.content is string %}{{- message.content | trim }}{%- else %}\n"
     "{%- for item in message.content %}\n"
     "{{- '<start_of_image>' if item.type == 'image' else item.text | trim }}\n"
     "{%- endfor %}{%- endif %}{{- '<end_of_turn>\\n' }}\n"
     "{%- set ns.lead = '' %}\n"
     "{%- else %}{{- raise_exception('gemma has no role ' ~ message.role) }}{%- endif %}\n"
     "{%- endfor %}\n"
     "{%- if add_generation_prompt %}{{- '<start_of_turn>model\\n' }}{%- endif %}"},
    {"mistral",
     "{{- bos_token | default('<s>') }}\n"
     "{%- set ns = namespace(lead='') %}\n"
     "{%- for message in messages %}\n"
     "{%- if message.role == 'system' and loop.first %}\n"
     "{%- set ns.lead = message.content + '\\n\\n' %}\n"
     "{%- elif message.role == 'assistant' %}{{- ' ' }}\n"
     "{%- generation %}{{- message.content | trim + eos_token | default('</s>') }}\n"
     "{%- endgeneration %}\n"
     "{%- elif message.role == 'user' %}\n"
     "{{- '[INST] ' + ns.lead + message.content + ' [/INST]' }}{%- set ns.lead = '' %}\n"
     "{%- else %}{{- raise_exception('mistral has no role ' ~ message.role) }}{%- endif %}\n"
     "{%- endfor %}"},
};

const char *mx_chat_builtin(int i) {
    return i < MX_COUNT(builtins) ? builtins[i].name : NULL;
}

const char *mx_chat_builtin_text(int i) {
    return builtins[i].text;
}

/* ---- what a file of JSON says */

static bool parse(MxArena *arena, MxChat *chat, const char *text, size_t n, const char *name,
                  MxTemplate **out, MxError *err) {
    mx_hash_add(chat->hash, text, n);
    return mx_template_parse(arena, text, n, name, out, err);
}

static bool parse_json(MxArena *arena, MxChat *chat, const MxJson *json, const char *name,
                       MxTemplate **out, MxError *err) {
    return parse(arena, chat, mx_json_string(json), mx_json_string_bytes(json), name, out, err);
}

/* Several templates by name: "default", and "tool_use" for conversations with tools. */
static bool read_named(MxArena *arena, MxChat *chat, const MxJson *list, const char *path,
                       MxError *err) {
    for (size_t i = 0; i < mx_json_length(list); i++) {
        const MxJson *one = mx_json_at(list, i), *text = mx_json_get(one, "template");
        const char *name = mx_json_string(mx_json_get(one, "name"));
        if (!name || !mx_json_string(text)) continue;
        MxTemplate **out = !strcmp(name, "default")    ? &chat->usual
                           : !strcmp(name, "tool_use") ? &chat->with_tools
                                                       : NULL;
        const char *told = mx_arena_printf(arena, "%s: chat_template \"%s\"", path, name);
        if (out && !parse_json(arena, chat, text, told, out, err)) return false;
    }
    if (chat->usual) return true;
    return mx_fail(err, MX_EXIT_BAD_INPUT, (MxWhere){.file = path},
                   "no template in chat_template is named \"default\"");
}

/* The member chat_template, if it is there. */
static bool read_member(MxArena *arena, MxChat *chat, const MxJson *top, const char *path,
                        MxError *err) {
    const MxJson *member = mx_json_get(top, "chat_template");
    const char *told = mx_arena_printf(arena, "%s: chat_template", path);
    if (!member || !strcmp(mx_json_kind(member), "null")) return true;
    if (mx_json_string(member)) return parse_json(arena, chat, member, told, &chat->usual, err);
    if (!strcmp(mx_json_kind(member), "a list")) return read_named(arena, chat, member, path, err);
    return mx_fail(err, MX_EXIT_BAD_INPUT, (MxWhere){.file = path},
                   "chat_template is %s, wanted a text or a list of templates",
                   mx_json_kind(member));
}

/* ---- special tokens */

static void set_token(MxChat *chat, const char *key, const MxJson *value) {
    const MxJson *content = mx_json_get(value, "content");
    if (content) value = content;
    bool is_list = !strcmp(mx_json_kind(value), "a list");
    if (!mx_json_string(value) && !(is_list && mx_json_length(value))) return;
    if (!mx_json_get(chat->tokens, key)) mx_json_set(chat->tokens, key, value);
}

static void read_tokens(MxChat *chat, const MxJson *top) {
    static const char *const keys[] = {
        "bos_token", "eos_token", "unk_token",  "sep_token",
        "pad_token", "cls_token", "mask_token", "additional_special_tokens"};
    const char *key;
    MxJson *value;
    for (int i = 0; i < MX_COUNT(keys); i++)
        if (mx_json_get(top, keys[i])) set_token(chat, keys[i], mx_json_get(top, keys[i]));
    const MxJson *extra = mx_json_get(top, "extra_special_tokens");
    if (!extra || strcmp(mx_json_kind(extra), "an object")) return;
    for (void *at = NULL; mx_json_next(extra, &at, &key, &value);) set_token(chat, key, value);
}

/* ---- files */

/* A file of JSON, if it is there: *out NULL if not. */
static bool read_json(MxArena *arena, const char *path, const MxJson **out, MxError *err) {
    MxBytes bytes;
    *out = NULL;
    if (!mx_file_exists(path)) return true;
    if (!mx_file_read(arena, path, LARGEST_BYTES, &bytes, err)) return false;
    *out = mx_json_parse(arena, (const char *)bytes.data, bytes.size, path, err);
    return *out != NULL;
}

static bool read_file(MxArena *arena, MxChat *chat, const char *path, MxError *err) {
    MxBytes bytes;
    const MxJson *top;
    if (mx_text_has_suffix(path, ".json")) {
        if (!read_json(arena, path, &top, err) || !read_member(arena, chat, top, path, err))
            return false;
        return chat->usual || mx_fail(err, MX_EXIT_BAD_INPUT, (MxWhere){.file = path},
                                      "has no member \"chat_template\"");
    }
    return mx_file_read(arena, path, LARGEST_BYTES, &bytes, err) &&
           parse(arena, chat, (const char *)bytes.data, bytes.size, path, &chat->usual, err);
}

/* Special tokens and, unless there is one already, the template. */
static bool read_folder(MxArena *arena, MxChat *chat, const char *dir, MxError *err) {
    static const char *const files[] = {"chat_template.json", "tokenizer_config.json",
                                        "special_tokens_map.json"};
    const char *jinja = mx_path_join(arena, dir, "chat_template.jinja");
    if (!chat->usual && mx_file_exists(jinja) && !read_file(arena, chat, jinja, err)) return false;
    for (int i = 0; i < MX_COUNT(files); i++) {
        const char *path = mx_path_join(arena, dir, files[i]);
        const MxJson *top;
        if (!read_json(arena, path, &top, err)) return false;
        if (!top) continue;
        read_tokens(chat, top);
        if (!chat->usual && !read_member(arena, chat, top, path, err)) return false;
    }
    return true;
}

static bool read_builtin(MxArena *arena, MxChat *chat, const char *name, bool *found,
                         MxError *err) {
    *found = false;
    for (int i = 0; i < MX_COUNT(builtins); i++) {
        if (strcmp(builtins[i].name, name)) continue;
        *found = true;
        return parse(arena, chat, builtins[i].text, strlen(builtins[i].text), name, &chat->usual,
                     err);
    }
    return true;
}

static bool fail_missing(MxArena *arena, const char *named, const char *dir, MxWhere where,
                         MxError *err) {
    const char *names[MX_COUNT(builtins)];
    MxText text;
    mx_text_init(&text, arena);
    for (int i = 0; i < MX_COUNT(builtins); i++) {
        names[i] = builtins[i].name;
        mx_text_add(&text, "%s\"%s\"", i ? ", " : "", names[i]);
    }
    if (!named) {
        mx_fail(err, MX_EXIT_CONFIG, where, "%s%s%s has no chat template", dir ? "\"" : "",
                dir ? dir : "the tokenizer", dir ? "\"" : "");
        mx_note(err,
                "hint: name one by chat_template_path (mxdecode: --chat-template): %s, or a file "
                "of Jinja",
                text.data);
        return false;
    }
    const char *nearest = mx_nearest(named, names, MX_COUNT(names));
    mx_fail(err, MX_EXIT_CONFIG, where, "no chat template \"%s\": neither a file nor one of %s",
            named, text.data);
    if (nearest) mx_note(err, "hint: did you mean \"%s\"", nearest);
    return false;
}

static MxChat *new_chat(MxArena *arena) {
    MxChat *chat = mx_new(arena, MxChat);
    chat->tokens = mx_json_object(arena);
    chat->hash = mx_hash_new(arena);
    return chat;
}

/* A template that is built in, or a file. */
static bool read_asked(MxArena *arena, MxChat *chat, const char *named, MxWhere where,
                       MxError *err) {
    bool found;
    if (!read_builtin(arena, chat, named, &found, err)) return false;
    if (!found &&
        (mx_dir_exists(named) ? !read_folder(arena, chat, named, err)
                              : mx_file_exists(named) && !read_file(arena, chat, named, err)))
        return false;
    return chat->usual || fail_missing(arena, named, NULL, where, err);
}

static bool read_text(MxArena *arena, MxChat *chat, const char *text, MxWhere where, MxError *err) {
    const char *name = where.line
                           ? mx_arena_printf(arena, "%s:%d: chat_template", where.file, where.line)
                           : mx_arena_printf(arena, "%s: chat_template", where.file);
    return parse(arena, chat, text, strlen(text), name, &chat->usual, err);
}

bool mx_chat_open(MxArena *arena, MxChatFrom from, MxChat **out, MxError *err) {
    MxChat *chat = *out = new_chat(arena);
    const char *dir = from.dir && *from.dir ? from.dir : NULL;
    if (dir && !mx_dir_exists(dir)) dir = mx_path_dir(arena, dir);
    if (from.text
            ? !read_text(arena, chat, from.text, from.where, err)
            : from.named && *from.named && !read_asked(arena, chat, from.named, from.where, err))
        return false;
    if (dir && !read_folder(arena, chat, dir, err)) return false;
    if (!chat->usual) {
        *out = NULL;
        return from.may_lack || fail_missing(arena, NULL, dir, from.where, err);
    }
    const char *tokens = mx_json_dump(arena, chat->tokens, false);
    mx_hash_add(chat->hash, tokens, strlen(tokens));
    return true;
}

bool mx_chat_has_clock(const MxChat *chat) {
    return mx_template_has_clock(chat->usual) ||
           (chat->with_tools && mx_template_has_clock(chat->with_tools));
}

bool mx_chat_reads(const MxChat *chat, const char *name) {
    return mx_template_reads(chat->usual, name) ||
           (chat->with_tools && mx_template_reads(chat->with_tools, name));
}

uint64_t mx_chat_hash(const MxChat *chat) {
    return mx_hash_value(chat->hash);
}
