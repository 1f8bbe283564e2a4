/* train_tokenizer.c — trains a tokenizer on the texts that a config would train on. */
#include "data.h"
#include "internal.h"

static bool take(void *trainer, MxEncoding text, MxError *err) {
    return mx_bpe_add(trainer, text, err);
}

/* ChatML, by the tokens that every trained tokenizer has: what is trained with it can talk. */
static bool write_template(MxArena *arena, const char *dir, MxError *err) {
    const char *text = mx_chat_builtin_text(0);
    MX_ASSERT(!strcmp(mx_chat_builtin(0), "chatml"));
    return mx_file_write(mx_path_join(arena, dir, "chat_template.jinja"), text, strlen(text), err);
}

static bool check_size(const MxConfig *c, MxError *err) {
    if (c->vocab_size >= MX_BPE_LEAST && c->vocab_size <= MX_BPE_MOST) return true;
    return mx_config_fail(err, c, MX_KEY_vocab_size,
                          "%lld tokens, wanted %d (bytes and special tokens) to %d for a new "
                          "tokenizer",
                          (long long)c->vocab_size, MX_BPE_LEAST, MX_BPE_MOST);
}

bool mx_train_tokenizer(const MxConfig *config, const char *dir, MxError *err) {
    MxArena arena = {.name = "tokenizer"};
    MxDataConfig data = train_data_config(config, NULL, false);
    MxBpeMade made;
    MxBpe *trainer = mx_bpe_new(&arena);
    bool ok = check_size(config, err) && mx_data_texts(&data, take, trainer, err) &&
              mx_bpe_write(trainer, config->vocab_size, dir, &made, err) &&
              write_template(&arena, dir, err);
    if (ok && made.n_lost)
        mx_warn("%lld occurrences of words were not counted: there are too many different ones",
                (long long)made.n_lost);
    if (ok && made.vocab < config->vocab_size)
        mx_warn("no two neighbours occur twice any more: %d tokens were made, vocab_size=%lld",
                made.vocab, (long long)config->vocab_size);
    if (ok)
        mx_log("a tokenizer of %d tokens is in %s, made of %lld texts (%lld bytes, %lld different "
               "words): tokenizer_type=huggingface tokenizer_path=%s vocab_size=%d",
               made.vocab, dir, (long long)made.n_texts, (long long)made.n_bytes,
               (long long)made.n_words, dir, made.vocab);
    mx_arena_release(&arena);
    return ok;
}
