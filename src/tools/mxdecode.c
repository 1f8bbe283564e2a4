/* mxdecode.c — converts text to token ids and back and conversations to text, in lines of JSON, and
 * generates text on stdout or over HTTP: the rooms text, chat, generate and serve as one tool. */
#include "mxdecode.h"

#include <mx/store.h>

#include <stdio.h>

/* ---- the tokenizer */

/* In a child process that tries it, with processor time for its size. */
static bool open_of_type(MxArena *arena, const char *type, const char *path, MxTokenizer **out,
                         MxError *err) {
    mx_store_guard_rearm(mx_tokenizer_file(arena, path));
    return mx_tokenizer_open(arena, type, path, out, err);
}

/* *out stays NULL where there is none; *place becomes where it is. */
static bool find_tokenizer(MxArena *arena, const CommandLine *line, const char **place,
                           MxTokenizer **out, MxError *err) {
    if (line->config) return mx_source_tokenizer(arena, line->config, out, place, err);
    const char *dir = *place = line->dir;
    MxCkptRef ref;
    MxCkptTokenizer noted;
    const char *type = mx_tokenizer_guess(dir);
    *out = NULL;
    if (type) return open_of_type(arena, type, dir, out, err);
    if (!mx_ckpt_peek(arena, dir, &ref, err) || !mx_ckpt_tokenizer(arena, &ref, &noted, err))
        return false;
    /* A model of Hugging Face's may come without one. */
    bool has_file = noted.type && (!mx_dir_exists(noted.path) || mx_tokenizer_guess(noted.path));
    if (!has_file) return true;
    *place = noted.path;
    return open_of_type(arena, noted.type, noted.path, out, err);
}

static bool open_tokenizer(MxArena *arena, const CommandLine *line, const char **place,
                           MxTokenizer **out, MxError *err) {
    if (!find_tokenizer(arena, line, place, out, err)) return false;
    return *out || mx_fail(err, MX_EXIT_BAD_INPUT, MX_NOWHERE,
                           "\"%s\" does not tell with what tokenizer it was trained", line->dir);
}

/* The template of an option, of the config, or of the tokenizer's folder. */
static bool open_chat(MxArena *arena, const CommandLine *line, const char *place, bool is_needed,
                      MxChat **out, MxError *err) {
    MxChatFrom from = {.named = line->chat_template, .dir = place, .may_lack = !is_needed};
    if (line->config && line->config->chat_template && !line->chat_template) {
        from.text = line->config->chat_template;
        from.where = mx_config_where(line->config, MX_KEY_chat_template);
    }
    return mx_chat_open(arena, from, out, err);
}

/* ---- lines */

static bool tokenize(MxArena *arena, const CommandLine *line, const MxTokenizer *tokenizer,
                     const MxJson *json, MxWhere where, MxError *err) {
    MxTokens tokens;
    MxText out;
    const char *text = mx_json_string(json);
    if (!text)
        return mx_fail(err, MX_EXIT_BAD_INPUT, where, "found %s, wanted a text",
                       mx_json_kind(json));
    MxEncoding what = {
        .text = text, .n = mx_json_string_bytes(json), .special = line->special, .where = where};
    if (!mx_tokenizer_encode(arena, tokenizer, what, &tokens, err)) return false;
    mx_text_init(&out, arena);
    for (int64_t i = 0; i < tokens.n; i++) mx_text_add(&out, "%s%d", i ? "," : "", tokens.ids[i]);
    printf("[%s]\n", out.data);
    return true;
}

static bool detokenize(MxArena *arena, const CommandLine *line, const MxTokenizer *tokenizer,
                       const MxJson *json, MxWhere where, MxError *err) {
    MxTokens tokens = {0};
    size_t n_bytes;
    if (strcmp(mx_json_kind(json), "a list"))
        return mx_fail(err, MX_EXIT_BAD_INPUT, where, "found %s, wanted a list of ids",
                       mx_json_kind(json));
    tokens.ids = mx_new_n(arena, int32_t, mx_json_length(json) + 1);
    for (size_t i = 0; i < mx_json_length(json); i++) {
        int64_t id;
        if (!mx_json_int(mx_json_at(json, i), &id) || id < 0 || id >= mx_tokenizer_vocab(tokenizer))
            return mx_fail(err, MX_EXIT_BAD_INPUT, where, "item %zu is no id from 0 to %d", i,
                           mx_tokenizer_vocab(tokenizer) - 1);
        tokens.ids[tokens.n++] = (int32_t)id;
    }
    char *text =
        mx_tokenizer_decode(arena, tokenizer, tokens.ids, tokens.n, line->skip_special, &n_bytes);
    printf("%s\n", mx_json_quote(arena, text, n_bytes));
    return true;
}

static bool render_chat(MxArena *arena, const CommandLine *line, const MxTokenizer *tokenizer,
                        const MxJson *json, MxWhere where, MxError *err) {
    MxConversation made;
    if (!mx_chat_encode(arena, line->chat, tokenizer, json, where, &made, err)) return false;
    printf("%s\n", mx_chat_line(arena, &made));
    return true;
}

static bool each_line(MxArena *arena, CommandLine *line, MxError *err) {
    MxTokenizer *tokenizer;
    MxChat *chat = NULL;
    MxText text;
    const char *place;
    if (!open_tokenizer(arena, line, &place, &tokenizer, err) ||
        (line->mode->has_chat && !open_chat(arena, line, place, true, &chat, err)))
        return false;
    line->chat = chat;
    mx_text_init(&text, arena);
    for (MxWhere where = {"stdin", 1, 0}; mx_text_stdin_line(&text); where.line++) {
        MxArena scratch = {.name = "line"};
        const MxJson *json = mx_json_parse_value(&scratch, text.data, text.len, where, err);
        bool ok = json && line->mode->each_line(&scratch, line, tokenizer, json, where, err);
        fflush(stdout);
        mx_arena_release(&scratch);
        if (!ok) return false;
    }
    return !ferror(stdin) || mx_fail_errno(err, "could not read stdin");
}

/* What replies need besides the model. */
static bool open_words(MxArena *arena, CommandLine *line, MxTokenizer **out, MxError *err) {
    MxChat *chat = NULL;
    const char *place;
    if (!find_tokenizer(arena, line, &place, out, err) ||
        (*out && !open_chat(arena, line, place, line->speak.talks, &chat, err)))
        return false;
    line->speak.chat = chat;
    line->speak.tokenizer_dir = *out ? place : NULL;
    return true;
}

static bool speak(MxArena *arena, CommandLine *line, MxError *err) {
    MxTokenizer *tokenizer;
    return open_words(arena, line, &tokenizer, err) &&
           mx_speak(arena, line->dir, tokenizer, &line->speak, err);
}

static bool serve(MxArena *arena, CommandLine *line, MxError *err) {
    MxTokenizer *tokenizer;
    if (!open_words(arena, line, &tokenizer, err)) return false;
    const MxServe what = {.dir = line->dir,
                          .address = line->mode_value,
                          .tokenizer = tokenizer,
                          .speak = &line->speak,
                          .queue = line->queue,
                          .timeout_s = (double)line->timeout_s};
    return mx_serve(arena, &what, err);
}

static bool evaluate(MxArena *arena, CommandLine *line, MxError *err) {
    const MxSpeak *k = &line->speak;
    MxTasks *tasks = &line->tasks;
    MxTokenizer *tokenizer;
    const char *place;
    tasks->path = line->mode_value;
    tasks->special = line->special;
    tasks->weights = k->weights;
    tasks->stops = k->stops;
    tasks->n_stops = k->n_stops;
    tasks->max_tokens = k->max_tokens;
    tasks->json = k->json;
    return open_tokenizer(arena, line, &place, &tokenizer, err) &&
           mx_evaluate_tasks(arena, line->dir, tokenizer, tasks, err);
}

/* ---- what there is to do */

static const Mode modes[] = {
    {.option = "--tokenize",
     .doc = "read a JSON string per line, write a JSON array of ids per line",
     .run = each_line,
     .each_line = tokenize},
    {.option = "--detokenize",
     .doc = "read a JSON array of ids per line, write a JSON string per line",
     .run = each_line,
     .each_line = detokenize},
    {.option = "--render-chat",
     .doc = "read a conversation per line, {\"messages\": [...]} and optionally \"tools\", "
            "\"add_generation_prompt\" and others, render it with the chat template of DIR, and "
            "write {\"text\", \"ids\", \"mask\"} per line, mask 1 = the assistant's tokens",
     .run = each_line,
     .each_line = render_chat,
     .has_chat = true},
    {.option = "--serve",
     .takes = "HOST:PORT",
     .doc = "answer requests over HTTP with OpenAI's interface: /v1/completions, "
            "/v1/chat/completions, /v1/models; a PORT alone listens to this machine only, 0 = a "
            "free port",
     .run = serve,
     .max_tokens = 1024}, /* as much as clients usually ask for */
    {.option = "--evaluate",
     .takes = "FILE",
     .doc = "evaluate tasks: a line of FILE is a question with choices, one with an answer, or a "
            "text, in JSON; with --json also print the figures of each line",
     .run = evaluate,
     .max_tokens = 128},
    {.run = speak, .max_tokens = 128},
};

static void try_words(MxArena *arena, const void *line, MxError *ignored) {
    const char *place = NULL;
    MxTokenizer *tokenizer;
    MxChat *chat;
    if (find_tokenizer(arena, line, &place, &tokenizer, ignored))
        open_chat(arena, line, place, false, &chat, ignored);
}

static bool try_files(const CommandLine *line, MxError *err) {
    return mx_store_try(line->dir ? line->dir : "the tokenizer", try_words, line, err) &&
           (!line->dir || mx_ckpt_try(line->dir, err));
}

static MxExit run(int argc, char **argv, MxArena *arena, MxError *err) {
    CommandLine line = {0};
    if (!decode_read_command_line(argc, argv, arena, modes, MX_COUNT(modes), &line, err) ||
        !try_files(&line, err) || !line.mode->run(arena, &line, err))
        return err->exit;
    if (ferror(stdout)) mx_fail_errno(err, "could not write to stdout");
    return err->exit;
}

int main(int argc, char **argv) {
    mx_device_prepare(argv);
    return mx_tool_main(run, argc, argv);
}
