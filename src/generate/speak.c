/* speak.c — replies on stdout to prompts of a file, lines of stdin or the prompt of a config; and
 * logits of prompts in a file. */
#include "held.h"

#include "speak.h"

#include <mx/model.h>

#include <stdio.h>
#include <unistd.h>

enum {
    LARGEST_CHUNK = 128,
    TALK_CAPACITY = 4096 /* of a prompt from stdin and its reply, where the config has no less */
};

typedef struct Speaker {
    const MxSpeak *what;
    const char *dir;
    const MxTokenizer *tokenizer;
    MxSource source;
    MxTrainState *state;
    MxGenerate how;
    MxWords words;
    Held held;        /* replies of what->json_schema … */
    HeldReply answer; /* … and the one in work */
} Speaker;

static void print_text(void *context, const char *text, size_t n) {
    (void)context;
    fwrite(text, 1, n, stdout);
    fflush(stdout);
}

static void print_json(MxArena *arena, const MxReply *reply, const HeldReply *held) {
    MxText out;
    mx_text_init(&out, arena);
    mx_text_add(&out, "{\"ids\":[");
    for (int64_t i = 0; i < reply->tokens.n; i++)
        mx_text_add(&out, "%s%d", i ? "," : "", reply->tokens.ids[i]);
    mx_text_add(&out, "],");
    if (held->reasoned.text.len)
        mx_text_add(&out, "\"reasoning\":%s,",
                    mx_json_quote(arena, held->reasoned.text.data, held->reasoned.text.len));
    mx_text_add(&out, "\"text\":%s,\"logprobs\":[",
                reply->text ? mx_json_quote(arena, reply->text, reply->text_bytes) : "null");
    for (int64_t i = 0; i < reply->tokens.n; i++)
        mx_text_add(&out, "%s%.9g", i ? "," : "", (double)reply->logprobs[i]);
    printf("%s]}\n", out.data);
    fflush(stdout);
}

bool mx_speak_find(MxArena *arena, const char *dir, bool sees, const MxTokenizer *tokenizer,
                   const MxSpeak *what, MxSource *source, MxGenerate *how, MxError *err) {
    if (!mx_source_find(arena, dir, sees, what->weights, source, err)) return false;
    int32_t *eos = mx_new(arena, int32_t);
    *eos = tokenizer ? mx_tokenizer_eos(tokenizer) : -1;
    bool is_said = source->n_ends > 0;
    *how = (MxGenerate){.sampling = what->sampling,
                        .max_tokens = what->max_tokens,
                        .tokenizer = tokenizer,
                        .ends = is_said ? source->ends : eos,
                        .n_ends = is_said ? source->n_ends : 1,
                        .stops = what->stops,
                        .n_stops = what->n_stops};
    return mx_sampling_check(&what->sampling, err) &&
           (tokenizer || !what->n_stops ||
            mx_fail(err, MX_EXIT_CONFIG, MX_NOWHERE, "--stop: \"%s\" has no tokenizer", dir));
}

MxWords mx_speak_words(MxArena *arena, const MxSource *source, const MxTokenizer *tokenizer,
                       const MxSpeak *what, bool only_data) {
    const MxSeerHow how = {.vision = mx_model_vision(source->config),
                           .hearing = mx_model_hearing(source->config),
                           .tokenizer = tokenizer,
                           .tokenizer_dir = what->tokenizer_dir,
                           .only_data = only_data};
    return (MxWords){tokenizer, what->chat, mx_seer_new(arena, how)};
}

/* Rows at a time of sequences of up to `capacity` tokens, prompts of up to `longest`, of which up
 * to `seen` are of images. */
static bool open_model(MxArena *arena, Speaker *s, int64_t rows, int64_t longest, int64_t capacity,
                       int64_t seen, MxError *err) {
    int64_t chunk = longest < 2 ? 2 : longest < LARGEST_CHUNK ? longest : LARGEST_CHUNK;
    MxGeneration what = {.rows = rows,
                         .capacity = capacity < chunk ? chunk : capacity,
                         .chunk = chunk,
                         .all_logits = s->what->logits != NULL,
                         .seen = seen};
    return mx_source_open(arena, &s->source, what, &s->state, err);
}

/* Some prompts at a time as JSON, or one by one as text that streams. */
static bool reply(Speaker *s, MxPrompt *prompts, int64_t n, MxError *err) {
    int64_t rows = mx_generation(s->state).rows;
    bool ok = true;
    for (int64_t i = 0, some; ok && i < n; i += some) {
        MxArena scratch = {.name = "replies"};
        some = n - i < rows ? n - i : rows;
        MxReply *replies = mx_new_n(&scratch, MxReply, some);
        s->how.stream = (uint64_t)i;
        for (int64_t k = 0; ok && k < some; k++)
            ok = mx_prompt_look(&scratch, s->words, &prompts[i + k], err) &&
                 held_begin(&s->held, &scratch, &prompts[i + k], &s->answer, err);
        ok = ok && mx_generate(&scratch, s->state, &s->how, prompts + i, some, replies, err);
        for (int64_t k = 0; ok && k < some; k++) {
            held_take(&s->held, &scratch, &prompts[i + k], s->how.say != NULL, &s->answer,
                      &replies[k]);
            if (s->what->json)
                print_json(&scratch, &replies[k], &s->answer);
            else
                printf("\n");
        }
        fflush(stdout);
        mx_arena_release(&scratch);
    }
    return ok;
}

static bool write_prompt(const Speaker *s, MxH5 *file, int64_t i, MxPrompt *prompt, MxError *err) {
    const MxTokens ids = prompt->tokens;
    MxArena arena = {.name = "logits"};
    float *logits;
    MxShape all = MX_SHAPE(ids.n, s->source.config->vocab_size);
    const char *dir = mx_arena_printf(&arena, "prompts/%06lld", (long long)i);
    bool ok = mx_prompt_look(&arena, s->words, prompt, err) &&
              mx_generate_logits(&arena, s->state, prompt, &logits, err) &&
              mx_h5_write(file, mx_path_join(&arena, dir, "ids"), MX_I32, MX_SHAPE(ids.n), ids.ids,
                          err) &&
              mx_h5_write(file, mx_path_join(&arena, dir, "logits"), MX_F32, all, logits, err);
    mx_arena_release(&arena);
    return ok;
}

static bool write_logits(MxArena *arena, const Speaker *s, MxPrompt *prompts, int64_t n,
                         MxError *err) {
    MxH5 *file;
    bool ok = mx_h5_create(arena, s->what->logits, &file, err);
    for (int64_t i = 0; ok && i < n; i++) ok = write_prompt(s, file, i, &prompts[i], err);
    return ok && mx_h5_close(file, err);
}

static bool find_model(MxArena *arena, Speaker *s, bool sees, MxError *err) {
    if (!mx_speak_find(arena, s->dir, sees, s->tokenizer, s->what, &s->source, &s->how, err) ||
        (s->what->json_schema && !held_open(arena, s->what, s->dir, &s->how, &s->held, err)))
        return false;
    if (!s->what->json && !s->what->asks) s->how.say = s->what->json_schema ? held_say : print_text;
    s->how.context = &s->answer;
    return true;
}

/* Tokens of images. */
static int64_t count_seen(const MxPrompt *prompt) {
    int32_t seen = 0;
    for (int64_t k = 0; prompt->image && k < prompt->tokens.n; k++)
        seen = prompt->image[k] > seen ? prompt->image[k] : seen;
    return seen;
}

/* Prompts of a file. Only for those with images their encoder is read. */
static bool read_out(MxArena *arena, Speaker *s, MxError *err) {
    const MxSpeak *what = s->what;
    MxPrompt *prompts;
    int64_t n, longest = 0, seen = 0, rows = what->json ? what->rows : 1;
    if (!mx_prompts_read(arena, what->prompts, s->words, &prompts, &n, err)) return false;
    for (int64_t i = 0; i < n; i++) {
        int64_t rows_seen = count_seen(&prompts[i]);
        longest = prompts[i].tokens.n > longest ? prompts[i].tokens.n : longest;
        seen = rows_seen > seen ? rows_seen : seen;
    }
    bool is_blind = !seen && s->dir && s->source.ref.is_hf && s->source.config->use_multimodal;
    if (is_blind && !find_model(arena, s, false, err)) return false;
    if (what->logits)
        return open_model(arena, s, 1, longest, longest, seen, err) &&
               write_logits(arena, s, prompts, n, err);
    return open_model(arena, s, n < rows ? n : rows, longest, longest + what->max_tokens, seen,
                      err) &&
           reply(s, prompts, n, err);
}

/* ---- conversations */

/* With the first message of the user go the images and sounds. */
static void add_users(MxArena *arena, const Speaker *s, MxJson *request, MxEncoding text) {
    const MxSpeak *what = s->what;
    bool is_first = mx_json_length(mx_json_get(request, "messages")) == (what->system != NULL);
    if (is_first && speak_marked(arena, what, s->source.config, request, text)) return;
    speak_message(what, request, "user", text, is_first);
}

static MxJson *new_conversation(MxArena *arena, const MxSpeak *what) {
    MxJson *request = mx_json_object(arena);
    mx_json_put_array(request, "messages");
    mx_json_set_bool(request, "add_generation_prompt", true);
    if (what->system)
        speak_message(what, request, "system",
                      (MxEncoding){.text = what->system, .n = strlen(what->system)}, false);
    return request;
}

/* A line alone: its text, and the images and sounds. */
static bool encode_alone(MxArena *arena, const Speaker *s, MxEncoding line, MxPrompt *out,
                         MxError *err) {
    MxJson *record = mx_json_object(arena);
    *out = (MxPrompt){0};
    if (!(s->what->n_images + s->what->n_sounds))
        return mx_tokenizer_encode(arena, s->how.tokenizer, line, &out->tokens, err);
    mx_json_set_string(record, "prompt", mx_arena_strndup(arena, line.text, line.n));
    speak_name_files(s->what, record);
    return mx_prompt_read(arena, s->words, record, line.where, out, err);
}

/* A line as a prompt: alone as it is, or behind the conversation so far. */
static bool encode_line(MxArena *arena, const Speaker *s, MxJson *request, MxEncoding line,
                        MxPrompt *out, MxError *err) {
    if (!s->what->talks) return encode_alone(arena, s, line, out, err);
    add_users(arena, s, request, line);
    return mx_prompt_read(arena, s->words, request, line.where, out, err);
}

/* ---- lines of stdin */

/* request: the conversation so far; all else that an answer takes is gone behind it. */
static bool answer_line(Speaker *s, MxJson *request, const MxText *line, MxWhere where,
                        MxError *err) {
    MxArena scratch = {.name = "answer"};
    MxPrompt prompt;
    MxReply made;
    const MxEncoding said = {.text = line->data, .n = line->len, .special = true, .where = where};
    bool ok = encode_line(&scratch, s, request, said, &prompt, err) &&
              mx_prompt_look(&scratch, s->words, &prompt, err) &&
              held_begin(&s->held, &scratch, &prompt, &s->answer, err) &&
              mx_generate(&scratch, s->state, &s->how, &prompt, 1, &made, err);
    if (ok) held_take(&s->held, &scratch, &prompt, true, &s->answer, &made);
    if (ok && s->what->talks)
        speak_message(
            s->what, request, "assistant",
            (MxEncoding){.text = made.text, .n = made.text_bytes, .special = true, .where = where},
            0);
    if (ok) printf("\n"), fflush(stdout);
    mx_arena_release(&scratch);
    return ok;
}

/* Each line gets its reply before the next one is read. */
static bool answer_lines(Speaker *s, MxError *err) {
    MxArena arena = {.name = "conversation"};
    MxText line;
    bool asks = isatty(STDIN_FILENO) && isatty(STDOUT_FILENO), ok = true;
    MxJson *request = new_conversation(&arena, s->what);
    mx_text_init(&line, &arena);
    for (MxWhere where = {"stdin", 1, 0}; ok; where.line++) {
        if (asks) printf("> "), fflush(stdout);
        if (!mx_text_stdin_line(&line)) break;
        ok = answer_line(s, request, &line, where, err);
    }
    mx_arena_release(&arena);
    return ok && (!ferror(stdin) || mx_fail_errno(err, "could not read stdin"));
}

static bool talk(MxArena *arena, Speaker *s, MxError *err) {
    if (!s->how.tokenizer)
        return mx_fail(err, MX_EXIT_BAD_INPUT, MX_NOWHERE,
                       "\"%s\" has no tokenizer; --prompts takes ids", s->dir);
    if (s->what->n_images && !s->source.config->use_multimodal)
        return mx_fail(err, MX_EXIT_BAD_INPUT, MX_NOWHERE,
                       "--image: the model has no encoder of images that is used here");
    if (s->what->n_sounds && !mx_model_hearing(s->source.config).encoder)
        return mx_fail(err, MX_EXIT_BAD_INPUT, MX_NOWHERE,
                       "--audio: the model has no encoder of sounds that is used here");
    bool has_files = s->what->n_images + s->what->n_sounds;
    int64_t capacity = TALK_CAPACITY + s->what->max_tokens, seen = has_files ? capacity : 0;
    return open_model(arena, s, 1, LARGEST_CHUNK, capacity, seen, err) && answer_lines(s, err);
}

/* ---- the prompt of the config */

/* As in MaxText's decode. */
static bool check_asked(const MxConfig *c, const MxPrompt *prompt, MxError *err) {
    return prompt->tokens.n <= c->max_prefill_predict_length ||
           mx_config_fail(err, c, MX_KEY_max_prefill_predict_length,
                          "%lld, but the prompt has %lld tokens",
                          (long long)c->max_prefill_predict_length, (long long)prompt->tokens.n);
}

/* Spaces before the texts do not count: YAML drops those of the key, MaxText's sentencepiece those
 * of a reply. */
static bool check_reply(MxArena *arena, const MxConfig *c, const MxReply *reply, MxError *err) {
    const char *wanted = c->autoregressive_decode_assert, *text = reply->text;
    if (!wanted) return true;
    size_t n = strlen(wanted), n_text = reply->text_bytes;
    for (; n && *wanted == ' '; n--) wanted++;
    for (; n_text && *text == ' '; n_text--) text++;
    if (n <= n_text && !memcmp(wanted, text, n)) return true;
    return mx_fail(
        err, MX_EXIT_DIFFERENT, mx_config_where(c, MX_KEY_autoregressive_decode_assert),
        "%s: the reply %s does not begin with %s", mx_key_name(MX_KEY_autoregressive_decode_assert),
        mx_json_quote(arena, reply->text, reply->text_bytes), mx_json_quote(arena, wanted, n));
}

static bool ask(MxArena *arena, Speaker *s, MxError *err) {
    const MxConfig *c = s->source.config;
    const char *text = c->prompt ? c->prompt : "";
    const MxEncoding line = {.text = text,
                             .n = strlen(text),
                             .special = c->add_bos,
                             .where = {.file = mx_key_name(MX_KEY_prompt)}};
    MxPrompt prompt;
    MxReply made;
    if (!encode_line(arena, s, new_conversation(arena, s->what), line, &prompt, err) ||
        !check_asked(c, &prompt, err) ||
        !open_model(arena, s, 1, prompt.tokens.n, prompt.tokens.n + s->what->max_tokens,
                    count_seen(&prompt), err) ||
        !mx_prompt_look(arena, s->words, &prompt, err) ||
        !held_begin(&s->held, arena, &prompt, &s->answer, err) ||
        !mx_generate(arena, s->state, &s->how, &prompt, 1, &made, err))
        return false;
    held_take(&s->held, arena, &prompt, false, &s->answer, &made);
    if (s->what->json)
        print_json(arena, &made, &s->answer);
    else
        printf("%s -> %s\n", mx_json_quote(arena, text, line.n),
               mx_json_quote(arena, made.text, made.text_bytes));
    fflush(stdout);
    return check_reply(arena, c, &made, err);
}

bool mx_speak(MxArena *arena, const char *dir, const MxTokenizer *tokenizer, const MxSpeak *what,
              MxError *err) {
    Speaker s = {.what = what, .dir = dir, .tokenizer = tokenizer};
    if (what->logits && !what->prompts)
        return mx_fail(err, MX_EXIT_CONFIG, MX_NOWHERE, "--logits goes with --prompts");
    if (!find_model(arena, &s, what->prompts || what->n_images || what->n_sounds, err))
        return false;
    s.words = mx_speak_words(arena, &s.source, tokenizer, what, false);
    if (what->asks) return ask(arena, &s, err);
    return what->prompts ? read_out(arena, &s, err) : talk(arena, &s, err);
}
