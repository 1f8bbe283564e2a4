/* mxdecode_options.c — the command line of mxdecode: one mode per call, and options that belong to
 * some of the modes. */
#include "mxdecode.h"

#include <math.h>

static const MxManual manual = {
    .program = "mxdecode",
    .does = "generate text with a model, and convert text to token ids and back",
    .synopsis = "[OPTION]... DIR|FILE.yml [KEY=VALUE]... [--serve HOST:PORT|--evaluate FILE|"
                "--tokenize|--detokenize|--render-chat]",
    .intro = "Generates text with the model in DIR: a Hugging Face folder, or a run or checkpoint "
             "of mxtrain. Without --prompts each line of stdin is a prompt, and its reply is "
             "printed as it is generated.\n\nIt also converts text to token ids and back, and "
             "conversations to text, with the tokenizer of DIR, which may also be one of its files "
             "(tokenizer.json, tokenizer.model, tekken.json) or a tiktoken file (FILE.tiktoken).",
    .arguments =
        (const MxManualRow[]){
            {"DIR", "the folder of a model, or a tokenizer"},
            {"FILE.yml", "instead of DIR: a config, as mxtrain and MaxText's decode read it. "
                         "load_parameters_path has the weights, tokenizer_path the tokenizer, and "
                         "unless --prompts or --chat is given, the reply is to the key prompt"},
            {"KEY=VALUE", "sets a key of the config; without FILE.yml, of configs/base.yml "
                          "(mxtrain --help-config decoding)"},
            {0}},
    .notes =
        (const MxManualRow[]){
            {"Environment", "OMP_NUM_THREADS limits the threads, OMP_WAIT_POLICY or GOMP_SPINCOUNT "
                            "set how they wait."},
            {"Exit codes", "0 done, 1 the reply does not begin with autoregressive_decode_assert, "
                           "2 command line or config, 65 bad input, 71 not "
                           "enough memory, 74 could not read or write."},
            {0}},
    .complete = mx_config_complete,
};

static const char config_doc[] = "a config, as FILE.yml alone says, too; may be repeated";

extern char **environ;

enum { MOST_SIDES = 36 };

#define REPLIES "replies"
#define ANSWERS REPLIES ",--serve"

/* Options that go with some modes only. */
typedef struct Side {
    const char *goes_with; /* modes, a comma between two; REPLIES = that without an option */
    MxOption option;
} Side;

/* Whether a mode's option was given, and its value. */
typedef struct Chosen {
    bool flag;
    const char *value;
} Chosen;

bool decode_is_said(const MxOption *option) {
    if (option->flag) return *option->flag;
    return option->count ? *option->count > 0 : *option->value != NULL;
}

static bool check_side(const Side *side, const Mode *mode, MxError *err) {
    const char *with = side->goes_with, *word = mode->option ? mode->option : REPLIES;
    const char *at = strstr(with, word), *behind = at ? at + strlen(word) : NULL;
    if (!decode_is_said(&side->option) || (behind && (!*behind || *behind == ','))) return true;
    if (!strncmp(with, REPLIES, strlen(REPLIES)))
        return mx_fail(err, MX_EXIT_CONFIG, MX_NOWHERE, "%s does not go with %s", side->option.name,
                       mode->option);
    return mx_fail(err, MX_EXIT_CONFIG, MX_NOWHERE, "%s goes with %.*s", side->option.name,
                   (int)strcspn(with, ","), with);
}

/* An empty text stands at the beginning of every reply. */
static bool check_stops(const MxSpeak *k, MxError *err) {
    for (int i = 0; i < k->n_stops; i++)
        if (!*k->stops[i])
            return mx_fail(err, MX_EXIT_CONFIG, MX_NOWHERE,
                           "--stop: found an empty text, wanted one that ends a reply");
    return true;
}

static bool choose_mode(CommandLine *line, const Mode *modes, int n, const Chosen *chosen,
                        MxError *err) {
    line->mode = &modes[n];
    for (int i = 0; i < n; i++) {
        if (!chosen[i].flag && !chosen[i].value) continue;
        if (line->mode->option)
            return mx_fail(err, MX_EXIT_CONFIG, MX_NOWHERE, "%s does not go with %s",
                           modes[i].option, line->mode->option);
        line->mode = &modes[i];
        line->mode_value = chosen[i].value;
    }
    return true;
}

/* Values that are numbers. */
typedef struct Numbers {
    const char *max_tokens, *temperature, *top_k, *top_p, *min_p, *seed, *batch;
    const char *repetition, *presence, *frequency;
    const char *queue, *timeout;
} Numbers;

static bool read_numbers(const Numbers *n, CommandLine *line, MxError *err) {
    MxSpeak *out = &line->speak;
    MxSampling *s = &out->sampling;
    int64_t seed = 0;
    line->queue = 256;
    line->timeout_s = 600;
    mx_option_int("--queue", n->queue, 0, 1 << 20, &line->queue, err);
    mx_option_int("--timeout", n->timeout, 1, 1 << 20, &line->timeout_s, err);
    s->top_p = s->repetition_penalty = 1;
    out->max_tokens = line->mode->max_tokens;
    out->rows = 8;
    mx_option_int("--max-tokens", n->max_tokens, 1, INT32_MAX, &out->max_tokens, err);
    mx_option_number("--temperature", n->temperature, 0, INFINITY, &s->temperature, err);
    mx_option_int("--top-k", n->top_k, 0, INT32_MAX, &s->top_k, err);
    mx_option_number("--top-p", n->top_p, 0, INFINITY, &s->top_p, err);
    mx_option_number("--min-p", n->min_p, 0, INFINITY, &s->min_p, err);
    mx_option_number("--repetition-penalty", n->repetition, 0, INFINITY, &s->repetition_penalty,
                     err);
    mx_option_number("--presence-penalty", n->presence, -2, 2, &s->presence_penalty, err);
    mx_option_number("--frequency-penalty", n->frequency, -2, 2, &s->frequency_penalty, err);
    mx_option_int("--seed", n->seed, 0, INT64_MAX, &seed, err);
    mx_option_int("--batch", n->batch, 1, 4096, &out->rows, err);
    s->seed = (uint64_t)seed;
    return !err->count;
}

/* Of what is read. Returns how many. */
static int list_sides(CommandLine *line, Side *out) {
    MxSpeak *k = &line->speak;
    const Side rows[] = {
        {"--tokenize,--evaluate",
         {.name = "--special",
          .flag = &line->special,
          .doc =
              "include the special tokens that the tokenizer adds around a text (bos, eos ...)"}},
        {"--detokenize",
         {.name = "--skip-special",
          .flag = &line->skip_special,
          .doc = "leave special tokens out of the text"}},
        {"--render-chat," ANSWERS,
         {.name = "--chat-template",
          .value = &line->chat_template,
          .takes = "FILE",
          .doc =
              "use another template than DIR's: a file, or one of chatml, llama3, gemma, mistral"}},
        {REPLIES,
         {.name = "--chat",
          .is_main = true,
          .flag = &k->talks,
          .doc = "treat lines of stdin as a user's messages in one conversation, using the chat "
                 "template"}},
        {REPLIES,
         {.name = "--image",
          .is_main = true,
          .value = k->images,
          .count = &k->n_images,
          .takes = "FILE",
          .doc = "add a picture (PNG, JPEG) before each line of stdin, or before the first one "
                 "with --chat; may be repeated"}},
        {REPLIES,
         {.name = "--audio",
          .is_main = true,
          .value = k->sounds,
          .count = &k->n_sounds,
          .takes = "FILE",
          .doc = "add a sound (WAV, FLAC, Ogg, MP3) in the same way; may be repeated"}},
        {REPLIES,
         {.name = "--prompts",
          .is_main = true,
          .value = &k->prompts,
          .takes = "FILE",
          .doc = "prompts, one per line: a JSON text, a list of ids, {\"prompt\": ...}, or a "
                 "conversation, {\"messages\": [...]}; objects may name images"}},
    };
    memcpy(out, rows, sizeof rows);
    return MX_COUNT(rows);
}

/* Of what is written. Returns how many. */
static int list_written(MxSpeak *k, Side *out) {
    const Side rows[] = {
        {REPLIES,
         {.name = "--logits",
          .value = &k->logits,
          .takes = "FILE",
          .doc = "write the logits after each token of the prompts (HDF5) instead of replies"}},
        {REPLIES ",--evaluate",
         {.name = "--json",
          .is_main = true,
          .flag = &k->json,
          .doc = "write a line of JSON for each prompt: {\"ids\": ..., \"text\": ..., "
                 "\"logprobs\": ...}"}},
        {REPLIES,
         {.name = "--json-schema",
          .value = &k->json_schema,
          .takes = "FILE",
          .doc = "replies are JSON that this schema allows, behind the reasoning of models whose "
                 "chat template marks it; {\"type\": \"object\"} allows any object"}},
        {REPLIES ",--evaluate",
         {.name = "--stop",
          .value = k->stops,
          .count = &k->n_stops,
          .takes = "TEXT",
          .doc = "end a reply before this text; may be repeated"}},
    };
    memcpy(out, rows, sizeof rows);
    return MX_COUNT(rows);
}

/* Of replies. */
static int list_replies(CommandLine *line, Numbers *n, Side *out) {
    const Side rows[] = {
        {ANSWERS ",--evaluate",
         {.name = "--dtype",
          .value = &line->speak.weights.dtype,
          .takes = "float32|bfloat16",
          .doc = "dtype of weights and activations (default: as trained)"}},
        {ANSWERS ",--evaluate",
         {.name = "--weights",
          .is_main = true,
          .value = &line->speak.weights.kept,
          .takes = "TYPE|floats",
          .doc = "store kernels of layers as codes of 4 or 8 bits with scales (nf4, int8, int4, "
                 "float8_e4m3fn, float8_e5m2, mxfp8, mxfp4, nvfp4), or as floats (default: as in "
                 "DIR)"}},
        {ANSWERS ",--evaluate",
         {.name = "--max-tokens",
          .is_main = true,
          .value = &n->max_tokens,
          .takes = "N",
          .doc = "maximum length of a reply (default 128, with --serve 1024); it ends earlier at a "
                 "token that ends texts"}},
    };
    memcpy(out, rows, sizeof rows);
    return MX_COUNT(rows);
}

/* Of the choice of tokens. Returns how many. */
static int list_sampling(Numbers *n, Side *out) {
    const Side rows[] = {
        {ANSWERS,
         {.name = "--temperature",
          .is_main = true,
          .value = &n->temperature,
          .takes = "X",
          .doc =
              "0 (default): choose the likeliest tokens; otherwise sample with this temperature"}},
        {ANSWERS,
         {.name = "--top-k",
          .value = &n->top_k,
          .takes = "N",
          .doc = "sample only from the N likeliest tokens"}},
        {ANSWERS,
         {.name = "--top-p",
          .value = &n->top_p,
          .takes = "X",
          .doc = "sample only from the likeliest tokens that together have probability X"}},
        {ANSWERS,
         {.name = "--min-p",
          .value = &n->min_p,
          .takes = "X",
          .doc = "sample only from tokens at least X times as likely as the likeliest"}},
        {ANSWERS,
         {.name = "--repetition-penalty",
          .value = &n->repetition,
          .takes = "X",
          .doc = "above 1: make tokens that have already occurred less likely"}},
        {ANSWERS,
         {.name = "--presence-penalty",
          .value = &n->presence,
          .takes = "X",
          .doc = "subtract X, from -2 to 2, from the logits of tokens that the reply already "
                 "has"}},
        {ANSWERS,
         {.name = "--frequency-penalty",
          .value = &n->frequency,
          .takes = "X",
          .doc = "subtract X, from -2 to 2, for each time that the reply already has the token"}},
        {ANSWERS,
         {.name = "--seed",
          .is_main = true,
          .value = &n->seed,
          .takes = "N",
          .doc = "seed of the samples (default 0)"}},
    };
    memcpy(out, rows, sizeof rows);
    return MX_COUNT(rows);
}

/* Of tasks, by the names of lm-evaluation-harness. Returns how many. */
static int list_tasks(MxTasks *tasks, Side *out) {
    const Side rows[] = {
        {"--evaluate",
         {.name = "--doc-to-text",
          .value = &tasks->doc_to_text,
          .takes = "WHAT",
          .doc = "the question: a column, or Jinja ('{{question}} Answer:')"}},
        {"--evaluate",
         {.name = "--doc-to-choice",
          .value = &tasks->doc_to_choice,
          .takes = "WHAT",
          .doc = "the choices: a column, or a JSON list for all lines ('[\"no\", \"yes\"]')"}},
        {"--evaluate",
         {.name = "--doc-to-target",
          .value = &tasks->doc_to_target,
          .takes = "WHAT",
          .doc = "the right choice (number, letter or text) or the answer: a column, or Jinja"}},
    };
    memcpy(out, rows, sizeof rows);
    return MX_COUNT(rows);
}

/* Of how much at a time. Returns how many. */
static int list_limits(Numbers *n, Side *out) {
    const Side rows[] = {
        {ANSWERS,
         {.name = "--batch",
          .value = &n->batch,
          .takes = "N",
          .doc = "number of prompts processed together, with --json or --serve (default 8)"}},
        {"--serve",
         {.name = "--queue",
          .value = &n->queue,
          .takes = "N",
          .doc = "maximum number of waiting requests; more are refused (default 256)"}},
        {"--serve",
         {.name = "--timeout",
          .value = &n->timeout,
          .takes = "SECONDS",
          .doc = "maximum time until a request is answered (default 600)"}},
    };
    memcpy(out, rows, sizeof rows);
    return MX_COUNT(rows);
}

bool decode_read_command_line(int argc, char **argv, MxArena *arena, const Mode *modes, int n,
                              CommandLine *line, MxError *err) {
    MxSpeak *k = &line->speak;
    Numbers numbers = {0};
    Chosen *chosen = mx_new_n(arena, Chosen, n);
    k->stops = mx_new_n(arena, const char *, argc + 1);
    k->images = mx_new_n(arena, const char *, argc + 1);
    k->sounds = mx_new_n(arena, const char *, argc + 1);
    Side sides[MOST_SIDES];
    int n_modes = n - 1, n_sides = list_sides(line, sides);
    n_sides += list_written(&line->speak, sides + n_sides);
    n_sides += list_replies(line, &numbers, sides + n_sides);
    n_sides += list_sampling(&numbers, sides + n_sides);
    n_sides += list_tasks(&line->tasks, sides + n_sides);
    n_sides += list_limits(&numbers, sides + n_sides);
    MxOption *options = mx_new_n(arena, MxOption, 1 + n_modes + n_sides);
    MX_ASSERT(n_sides <= MOST_SIDES);
    for (int i = 0; i < n_modes; i++)
        options[i] = (MxOption){.name = modes[i].option,
                                .takes = modes[i].takes,
                                .doc = modes[i].doc,
                                .is_main = true,
                                .flag = modes[i].takes ? NULL : &chosen[i].flag,
                                .value = modes[i].takes ? &chosen[i].value : NULL};
    for (int i = 0; i < n_sides; i++) options[n_modes + i] = sides[i].option;
    const char **files = mx_new_n(arena, const char *, argc + 1);
    const char **rest = mx_new_n(arena, const char *, argc + 1);
    line->request = (MxConfigRequest){.files = files, .environ = environ};
    options[n_modes + n_sides] = (MxOption){.name = "--config",
                                            .value = files,
                                            .count = &line->request.n_files,
                                            .takes = "FILE",
                                            .doc = config_doc};
    const MxOptions table = {.rows = options, .n = 1 + n_modes + n_sides, .manual = &manual};
    if (!mx_options_read(table, argc, argv, rest, err) || !decode_find_words(rest, line, err) ||
        !choose_mode(line, modes, n_modes, chosen, err))
        return false;
    for (int i = 0; i < n_sides; i++)
        if (!check_side(&sides[i], line->mode, err)) return false;
    return check_stops(k, err) && decode_load_config(arena, line, options, table.n, err) &&
           read_numbers(&numbers, line, err);
}
