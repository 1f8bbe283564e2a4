/* mxdecode.c — text to token ids and back and conversations to text, by lines of JSON, and text out
 * of models: the command line of rooms text, chat and generate. */
#include <mx/chat.h>
#include <mx/generate.h>

#include <stdio.h>

static const MxManual manual = {
    .program = "mxdecode",
    .does = "let a model speak, and turn text into token ids and back",
    .synopsis = "[OPTION]... DIR [--tokenize|--detokenize|--render-chat]",
    .intro = "Text out of the model of DIR: a folder of Hugging Face's, or a run or checkpoint of "
             "mxtrain. Without --prompts a line of stdin is a prompt, and its reply is printed as "
             "it comes.\n\n"
             "Or text to token ids and back, and conversations to text, with the tokenizer of DIR, "
             "which may also be one of "
             "its files (tokenizer.json, tokenizer.model) or a file of tiktoken (FILE.tiktoken).",
    .notes = (const MxManualRow[]){{"Exit codes", "0 done, 2 command line, 65 bad input, 71 not "
                                                  "enough memory, 74 could not read or write."},
                                   {0}},
};

typedef struct CommandLine CommandLine;
typedef bool LineMode(MxArena *arena, const CommandLine *line, const MxTokenizer *tokenizer,
                      const MxJson *json, MxWhere where, MxError *err);

/* What the program does: one of these a call. */
typedef struct Mode {
    const char *option, *doc; /* NULL = what is done without any */
    bool (*run)(MxArena *arena, CommandLine *line, MxError *err);
    LineMode *each_line; /* what becomes of a line of stdin, a value of JSON */
    bool has_chat;       /* by a chat template */
} Mode;

struct CommandLine {
    const char *dir, *chat_template;
    const Mode *mode;
    bool special, skip_special;
    const MxChat *chat; /* of --render-chat */
    MxSpeak speak;
};

/* ---- the tokenizer */

/* *out stays NULL where there is none; *place becomes where it is. */
static bool find_tokenizer(MxArena *arena, const char **place, MxTokenizer **out, MxError *err) {
    const char *dir = *place;
    MxCkptRef ref;
    MxCkptTokenizer noted;
    const char *type = mx_tokenizer_guess(dir);
    *out = NULL;
    if (type) return mx_tokenizer_open(arena, type, dir, out, err);
    if (!mx_ckpt_peek(arena, dir, &ref, err) || !mx_ckpt_tokenizer(arena, &ref, &noted, err))
        return false;
    bool has_file = noted.type && (!ref.is_hf || mx_tokenizer_guess(noted.path));
    if (!has_file) return true;
    *place = noted.path;
    return mx_tokenizer_open(arena, noted.type, noted.path, out, err);
}

static bool open_tokenizer(MxArena *arena, const char **place, MxTokenizer **out, MxError *err) {
    const char *dir = *place;
    if (!find_tokenizer(arena, place, out, err)) return false;
    return *out || mx_fail(err, MX_EXIT_BAD_INPUT, MX_NOWHERE,
                           "\"%s\" does not tell with what tokenizer it was trained", dir);
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
    MxEncoding what = {text, mx_json_string_bytes(json), line->special, where};
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
    const char *place = line->dir;
    if (!open_tokenizer(arena, &place, &tokenizer, err) ||
        (line->mode->has_chat &&
         !mx_chat_open(arena, line->chat_template, place, MX_NOWHERE, &chat, err)))
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

/* Replies need a chat template where they are to conversations; what is damaged is told. */
static bool find_chat(MxArena *arena, const CommandLine *line, const char *place, MxChat **out,
                      MxError *err) {
    bool is_needed = line->chat_template || line->speak.talks;
    if (mx_chat_open(arena, line->chat_template, place, MX_NOWHERE, out, err)) return true;
    if (is_needed || err->exit != MX_EXIT_CONFIG) return false;
    mx_error_release(err);
    *out = NULL;
    return true;
}

static bool speak(MxArena *arena, CommandLine *line, MxError *err) {
    MxTokenizer *tokenizer;
    MxChat *chat = NULL;
    const char *place = line->dir;
    if (!find_tokenizer(arena, &place, &tokenizer, err) ||
        (tokenizer && !find_chat(arena, line, place, &chat, err)))
        return false;
    line->speak.chat = chat;
    return mx_speak(arena, line->dir, tokenizer, &line->speak, err);
}

/* ---- the command line */

static const Mode modes[] = {
    {.option = "--tokenize",
     .doc = "reads a JSON string a line, writes a JSON array of ids a line",
     .run = each_line,
     .each_line = tokenize},
    {.option = "--detokenize",
     .doc = "reads a JSON array of ids a line, writes a JSON string a line",
     .run = each_line,
     .each_line = detokenize},
    {.option = "--render-chat",
     .doc =
         "reads a conversation a line, {\"messages\": [...]} and perhaps \"tools\", "
         "\"add_generation_prompt\" and others, by which the chat template of DIR makes its text; "
         "writes {\"text\", \"ids\", \"mask\"} a line, mask 1 = the assistant's",
     .run = each_line,
     .each_line = render_chat,
     .has_chat = true},
    {.run = speak},
};
enum { N_MODES = MX_COUNT(modes) - 1, /* that have an option */ MOST_SIDES = 32 };

#define REPLIES "replies"

/* Options that go with some modes only. */
typedef struct Side {
    const char *goes_with; /* modes, a comma between two; REPLIES = the one without an option */
    MxOption option;
} Side;

static bool is_said(const MxOption *option) {
    if (option->flag) return *option->flag;
    return option->count ? *option->count > 0 : *option->value != NULL;
}

static bool check_side(const Side *side, const Mode *mode, MxError *err) {
    const char *with = side->goes_with, *word = mode->option ? mode->option : REPLIES;
    const char *at = strstr(with, word), *behind = at ? at + strlen(word) : NULL;
    if (!is_said(&side->option) || (behind && (!*behind || *behind == ','))) return true;
    if (!strcmp(with, REPLIES))
        return mx_fail(err, MX_EXIT_CONFIG, MX_NOWHERE, "%s does not go with %s", side->option.name,
                       mode->option);
    return mx_fail(err, MX_EXIT_CONFIG, MX_NOWHERE, "%s goes with %.*s", side->option.name,
                   (int)strcspn(with, ","), with);
}

static bool choose_mode(CommandLine *line, const bool *is_chosen, MxError *err) {
    line->mode = &modes[N_MODES];
    for (int i = 0; i < N_MODES; i++) {
        if (!is_chosen[i]) continue;
        if (line->mode->option)
            return mx_fail(err, MX_EXIT_CONFIG, MX_NOWHERE, "%s does not go with %s",
                           modes[i].option, line->mode->option);
        line->mode = &modes[i];
    }
    return true;
}

/* Values that are numbers. */
typedef struct Numbers {
    const char *max_tokens, *temperature, *top_k, *top_p, *min_p, *penalty, *seed, *batch;
} Numbers;

static bool read_numbers(const Numbers *n, MxSpeak *out, MxError *err) {
    MxSampling *s = &out->sampling;
    int64_t seed = 0;
    *s = (MxSampling){.top_p = 1, .repetition_penalty = 1};
    out->max_tokens = 128;
    out->rows = 8;
    mx_option_int("--max-tokens", n->max_tokens, 1, INT32_MAX, &out->max_tokens, err);
    mx_option_number("--temperature", n->temperature, &s->temperature, err);
    mx_option_int("--top-k", n->top_k, 0, INT32_MAX, &s->top_k, err);
    mx_option_number("--top-p", n->top_p, &s->top_p, err);
    mx_option_number("--min-p", n->min_p, &s->min_p, err);
    mx_option_number("--repetition-penalty", n->penalty, &s->repetition_penalty, err);
    mx_option_int("--seed", n->seed, 0, INT64_MAX, &seed, err);
    mx_option_int("--batch", n->batch, 1, 4096, &out->rows, err);
    s->seed = (uint64_t)seed;
    return !err->count;
}

/* Of what is read and written. Returns how many. */
static int list_sides(CommandLine *line, Side *out) {
    MxSpeak *k = &line->speak;
    const Side rows[] = {
        {"--tokenize",
         {.name = "--special",
          .flag = &line->special,
          .doc = "ids with what the tokenizer puts around a text (bos, eos ...)"}},
        {"--detokenize",
         {.name = "--skip-special",
          .flag = &line->skip_special,
          .doc = "text without special tokens"}},
        {"--render-chat," REPLIES,
         {.name = "--chat-template",
          .value = &line->chat_template,
          .takes = "FILE",
          .doc = "a template instead of DIR's: a file, or one of chatml, llama3, gemma, mistral"}},
        {REPLIES,
         {.name = "--chat",
          .flag = &k->talks,
          .doc = "lines of stdin are what a user says in one conversation, by the chat template"}},
        {REPLIES,
         {.name = "--prompts",
          .value = &k->prompts,
          .takes = "FILE",
          .doc = "prompts, a line each: a text of JSON, a list of ids, {\"prompt\": ...}, or a "
                 "conversation, {\"messages\": [...]}"}},
        {REPLIES,
         {.name = "--logits",
          .value = &k->logits,
          .takes = "FILE",
          .doc = "writes the logits after each token of the prompts (HDF5), no replies"}},
        {REPLIES,
         {.name = "--json",
          .flag = &k->json,
          .doc = "a line of JSON for each: {\"ids\": ..., \"text\": ..., \"logprobs\": ...}"}},
        {REPLIES,
         {.name = "--stop",
          .value = k->stops,
          .count = &k->n_stops,
          .takes = "TEXT",
          .doc = "ends a reply before this text; may be repeated"}},
    };
    memcpy(out, rows, sizeof rows);
    return MX_COUNT(rows);
}

/* Of replies. */
static int list_replies(MxSpeak *k, Numbers *n, Side *out) {
    const Side rows[] = {
        {REPLIES,
         {.name = "--dtype",
          .value = &k->dtype,
          .takes = "float32|bfloat16",
          .doc = "of weights and activations (default: as trained)"}},
        {REPLIES,
         {.name = "--max-tokens",
          .value = &n->max_tokens,
          .takes = "N",
          .doc = "of a reply (default 128); it ends before with a token that ends texts"}},
        {REPLIES,
         {.name = "--temperature",
          .value = &n->temperature,
          .takes = "X",
          .doc = "the likeliest tokens, if 0 (default), or drawn: what logits are divided by"}},
        {REPLIES,
         {.name = "--top-k",
          .value = &n->top_k,
          .takes = "N",
          .doc = "drawn only of the N likeliest"}},
        {REPLIES,
         {.name = "--top-p",
          .value = &n->top_p,
          .takes = "X",
          .doc = "drawn only of those likeliest that make up X"}},
        {REPLIES,
         {.name = "--min-p",
          .value = &n->min_p,
          .takes = "X",
          .doc = "drawn only of those at least X times as likely as the likeliest"}},
        {REPLIES,
         {.name = "--repetition-penalty",
          .value = &n->penalty,
          .takes = "X",
          .doc = "above 1: tokens that were there are less likely to come again"}},
        {REPLIES,
         {.name = "--seed",
          .value = &n->seed,
          .takes = "N",
          .doc = "of what is drawn (default 0)"}},
        {REPLIES,
         {.name = "--batch",
          .value = &n->batch,
          .takes = "N",
          .doc = "prompts at a time, with --json (default 8)"}},
    };
    memcpy(out, rows, sizeof rows);
    return MX_COUNT(rows);
}

static bool read_command_line(int argc, char **argv, MxArena *arena, CommandLine *line,
                              MxError *err) {
    MxSpeak *k = &line->speak;
    Numbers n = {0};
    bool is_chosen[N_MODES] = {0};
    k->stops = mx_new_n(arena, const char *, argc + 1);
    Side sides[MOST_SIDES];
    int n_sides = list_sides(line, sides);
    n_sides += list_replies(k, &n, sides + n_sides);
    MX_ASSERT(n_sides <= MOST_SIDES);
    MxOption options[N_MODES + MOST_SIDES];
    for (int i = 0; i < N_MODES; i++)
        options[i] =
            (MxOption){.name = modes[i].option, .flag = &is_chosen[i], .doc = modes[i].doc};
    for (int i = 0; i < n_sides; i++) options[N_MODES + i] = sides[i].option;
    const char **rest = mx_new_n(arena, const char *, argc + 1);
    const MxOptions table = {.rows = options, .n = N_MODES + n_sides, .manual = &manual};
    if (!mx_options_read(table, argc, argv, rest, err)) return false;
    if (!rest[0] || rest[1])
        return mx_fail(err, MX_EXIT_CONFIG, MX_NOWHERE,
                       "wanted one folder; mxdecode --help tells more");
    line->dir = rest[0];
    if (!choose_mode(line, is_chosen, err) || !read_numbers(&n, k, err)) return false;
    for (int i = 0; i < n_sides; i++)
        if (!check_side(&sides[i], line->mode, err)) return false;
    return true;
}

static MxExit run(int argc, char **argv, MxArena *arena, MxError *err) {
    CommandLine line = {0};
    if (!read_command_line(argc, argv, arena, &line, err) || !line.mode->run(arena, &line, err))
        return err->exit;
    if (ferror(stdout)) mx_fail_errno(err, "could not write to stdout");
    return err->exit;
}

int main(int argc, char **argv) {
    return mx_tool_main(run, argc, argv);
}
