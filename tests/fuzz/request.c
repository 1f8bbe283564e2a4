/* request.c — fuzz target for bodies of requests. The first byte of the input chooses what is asked
 * for, the rest is the body. A body is a request that holds together, or one error. */
#include <mx/serve.h>

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void need(bool holds) {
    if (!holds) abort();
}

static void check_ask(MxArena *arena, const MxSpeak *defaults, const MxAsk *ask, MxError *err) {
    MxPrompt prompt;
    const MxWords words = {0};
    need(ask->max_tokens >= !ask->echoes && ask->max_tokens <= defaults->max_tokens);
    need(ask->n >= 1 && ask->n <= ask->best_of && ask->n_prompts >= 1);
    need(ask->n_prompts * ask->best_of <= MX_ASK_MOST_REPLIES);
    need(ask->sampling.temperature >= 0 && ask->sampling.top_p > 0 && ask->sampling.top_p <= 1);
    need(ask->n_stops <= 16 && ask->n_top <= 20);
    for (int i = 0; i < ask->n_stops; i++) need(ask->stops[i][0] != '\0');
    /* Without a tokenizer ids alone are prompts. */
    for (int64_t i = 0; i < ask->n_prompts && !err->count; i++)
        if (!mx_prompt_read(arena, words, ask->prompts[i], MX_NOWHERE, &prompt, err))
            need(err->count == 1 && err->exit == MX_EXIT_BAD_INPUT);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    MxArena arena = {.name = "fuzz"};
    MxError err = {0};
    MxAsk ask;
    const MxSpeak defaults = {.max_tokens = 20, .sampling = {.top_p = 1, .repetition_penalty = 1}};
    if (!size) return 0;
    if (mx_ask_read(&arena, (MxAskKind)(data[0] % MX_ASK_KINDS), (const char *)data + 1, size - 1,
                    &defaults, &ask, &err))
        check_ask(&arena, &defaults, &ask, &err);
    else
        need(err.count > 0 && err.exit == MX_EXIT_BAD_INPUT);
    mx_error_release(&err);
    mx_arena_release(&arena);
    return 0;
}
