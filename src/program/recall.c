/* recall.c — the tokens that n-gram memories of a model see: the tokenizer says which count as one,
 * and what stands before the first. */
#include <mx/text.h>

#include "internal.h"

/* Without weights there is no tokenizer beside them, so the key must name it. */
static bool open_tokenizer(MxArena *arena, const MxConfig *c, MxTokenizer **out, MxError *err) {
    const char *path = mx_tokenizer_find(arena, c->tokenizer_path);
    if (!mx_tokenizer_open(arena, c->tokenizer_type, path, out, err))
        return mx_context(err, "%s, for engram_layers", mx_key_name(MX_KEY_tokenizer_path));
    return mx_tokenizer_pad(*out) >= 0 ||
           mx_config_fail(err, c, MX_KEY_tokenizer_path,
                          "the tokenizer has no padding token (pad_token in "
                          "tokenizer_config.json), which stands before the first token of an "
                          "n-gram (engram_layers)");
}

bool mx_train_read_tokens(MxArena *arena, struct MxModel *model, const MxConfig *config,
                          MxError *err) {
    MxArena scratch = {.name = "tokenizer"};
    MxTokenizer *tokenizer;
    MxModelTokens tokens = {0};
    if (!mx_model_wants_tokens(model)) return true;
    bool ok = open_tokenizer(&scratch, config, &tokenizer, err) &&
              mx_tokenizer_canon(arena, tokenizer, &tokens.canon, err);
    if (ok) {
        tokens.n = mx_tokenizer_vocab(tokenizer);
        tokens.padding = mx_tokenizer_pad(tokenizer);
        mx_model_read_tokens(arena, model, tokens);
    }
    mx_arena_release(&scratch);
    return ok;
}
