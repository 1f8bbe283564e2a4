/* mxdecode.c — text to token ids and back, by lines of JSON: the command line of room text. */
#include <mx/ckpt.h>
#include <mx/text.h>

#include <stdio.h>

static const MxManual manual = {
    .program = "mxdecode",
    .does = "turn text into token ids and back",
    .synopsis = "[OPTION]... DIR --tokenize|--detokenize",
    .intro = "Text to token ids and back, with the tokenizer of DIR: a folder of Hugging Face's "
             "(tokenizer.json, else tokenizer.model), one of these files, a file of tiktoken "
             "(FILE.tiktoken), or a run or checkpoint of mxtrain, which knows what it was trained "
             "with.",
    .notes = (const MxManualRow[]){{"Exit codes", "0 done, 2 command line, 65 bad input, 74 could "
                                                  "not read or write."},
                                   {0}},
};

typedef struct CommandLine CommandLine;
typedef bool LineMode(MxArena *arena, const CommandLine *line, const MxTokenizer *tokenizer,
                      const MxJson *json, MxWhere where, MxError *err);

/* What the program does: one of these a call. */
typedef struct Mode {
    const char *option, *doc;
    LineMode *each_line; /* what becomes of a line of stdin, a value of JSON */
} Mode;

struct CommandLine {
    const char *dir;
    const Mode *mode;
    bool special, skip_special;
};

/* ---- the tokenizer */

static bool open_tokenizer(MxArena *arena, const char *dir, MxTokenizer **out, MxError *err) {
    MxCkptRef ref;
    MxCkptTokenizer noted;
    const char *type = mx_tokenizer_guess(dir);
    if (type) return mx_tokenizer_open(arena, type, dir, out, err);
    if (!mx_ckpt_peek(arena, dir, &ref, err) || !mx_ckpt_tokenizer(arena, &ref, &noted, err))
        return false;
    if (!noted.type)
        return mx_fail(err, MX_EXIT_BAD_INPUT, MX_NOWHERE,
                       "\"%s\" does not tell with what tokenizer it was trained", dir);
    return mx_tokenizer_open(arena, noted.type, noted.path, out, err);
}

/* ---- lines */

/* The next line of stdin, without its end; false at the end of the input. */
static bool next_line(MxText *line) {
    char part[4096];
    mx_text_clear(line);
    while (fgets(part, sizeof part, stdin)) {
        mx_text_addn(line, part, strlen(part));
        if (line->data[line->len - 1] != '\n') continue;
        line->data[--line->len] = '\0';
        return true;
    }
    return line->len > 0;
}

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

/* ---- the command line */

static const Mode modes[] = {
    {.option = "--tokenize",
     .doc = "reads a JSON string a line, writes a JSON array of ids a line",
     .each_line = tokenize},
    {.option = "--detokenize",
     .doc = "reads a JSON array of ids a line, writes a JSON string a line",
     .each_line = detokenize},
};
enum { N_MODES = MX_COUNT(modes) };

/* Options that go with some modes only. */
typedef struct Side {
    MxOption option;
    const char *goes_with; /* modes, a comma between two */
} Side;

static bool goes_with(const Side *side, const Mode *mode) {
    const char *at = strstr(side->goes_with, mode->option);
    size_t n = strlen(mode->option);
    return at && (!at[n] || at[n] == ',');
}

static bool choose_mode(CommandLine *line, const bool *is_chosen, MxError *err) {
    MxArena scratch = {.name = "modes"};
    MxText all;
    int n_chosen = 0;
    mx_text_init(&all, &scratch);
    for (int i = 0; i < N_MODES; i++) {
        mx_text_add(&all, "%s%s", i ? ", " : "", modes[i].option);
        if (!is_chosen[i]) continue;
        line->mode = &modes[i];
        n_chosen++;
    }
    if (n_chosen != 1) mx_fail(err, MX_EXIT_CONFIG, MX_NOWHERE, "wanted one of %s", all.data);
    mx_arena_release(&scratch);
    return n_chosen == 1;
}

static bool read_command_line(int argc, char **argv, MxArena *arena, CommandLine *line,
                              MxError *err) {
    bool is_chosen[N_MODES] = {0};
    const Side sides[] = {
        {{.name = "--special",
          .flag = &line->special,
          .doc = "ids with what the tokenizer puts around a text (bos, eos ...)"},
         "--tokenize"},
        {{.name = "--skip-special",
          .flag = &line->skip_special,
          .doc = "text without special tokens"},
         "--detokenize"},
    };
    MxOption options[N_MODES + MX_COUNT(sides)];
    for (int i = 0; i < N_MODES; i++)
        options[i] =
            (MxOption){.name = modes[i].option, .flag = &is_chosen[i], .doc = modes[i].doc};
    for (int i = 0; i < MX_COUNT(sides); i++) options[N_MODES + i] = sides[i].option;
    const char **rest = mx_new_n(arena, const char *, argc + 1);
    const MxOptions table = {.rows = options, .n = MX_COUNT(options), .manual = &manual};
    if (!mx_options_read(table, argc, argv, rest, err)) return false;
    if (!rest[0] || rest[1])
        return mx_fail(err, MX_EXIT_CONFIG, MX_NOWHERE,
                       "wanted one folder; mxdecode --help tells more");
    line->dir = rest[0];
    if (!choose_mode(line, is_chosen, err)) return false;
    for (int i = 0; i < MX_COUNT(sides); i++)
        if (*sides[i].option.flag && !goes_with(&sides[i], line->mode))
            return mx_fail(err, MX_EXIT_CONFIG, MX_NOWHERE, "%s goes with %s", sides[i].option.name,
                           sides[i].goes_with);
    return true;
}

static bool each_line(const CommandLine *line, const MxTokenizer *tokenizer, MxText *text,
                      MxError *err) {
    for (MxWhere where = {"stdin", 1, 0}; next_line(text); where.line++) {
        MxArena scratch = {.name = "line"};
        const MxJson *json = mx_json_parse_value(&scratch, text->data, text->len, where, err);
        bool ok = json && line->mode->each_line(&scratch, line, tokenizer, json, where, err);
        fflush(stdout);
        mx_arena_release(&scratch);
        if (!ok) return false;
    }
    return !ferror(stdin) || mx_fail_errno(err, "could not read stdin");
}

static MxExit run(int argc, char **argv, MxArena *arena, MxError *err) {
    CommandLine line = {0};
    MxTokenizer *tokenizer;
    MxText text;
    if (!read_command_line(argc, argv, arena, &line, err) ||
        !open_tokenizer(arena, line.dir, &tokenizer, err))
        return err->exit;
    mx_text_init(&text, arena);
    if (!each_line(&line, tokenizer, &text, err)) return err->exit;
    if (ferror(stdout)) mx_fail_errno(err, "could not write to stdout");
    return err->exit;
}

int main(int argc, char **argv) {
    return mx_tool_main(run, argc, argv);
}
