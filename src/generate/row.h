/* row.h — a sequence in the making: generate.c, which has the model make its tokens, and text.c. */
#ifndef GENERATE_ROW_H
#define GENERATE_ROW_H

#include <mx/generate.h>

/* Where the tokens of a prompt stand. */
typedef struct Positions {
    int32_t *mrope[MX_MROPE_KINDS]; /* time, row and column of each; NULL = images have none */
    int32_t shift; /* by how much what follows the prompt stands later than its tokens' number */
} Positions;

/* A sequence in the making. */
typedef struct Row {
    MxArena *arena;
    const MxGenerate *how; /* NULL = the row is free */
    const MxPrompt *prompt;
    MxTokens all;             /* prompt and reply */
    int64_t n_prompt, n_done; /* n_done: tokens that have gone through the model */
    int64_t most;
    int64_t n_echoed; /* of the prompt, that the reply begins with */
    float *logprobs;  /* [n_echoed + how->max_tokens + 1] */
    MxChoice *top;    /* [the same, n_top] */
    int64_t n_top;
    Positions positions;
    uint64_t stream, joined;   /* joined: when, among all that did */
    MxGuided guided;           /* with how->guide */
    MxTextStream *text_stream; /* NULL = there is no text */
    MxText text;
    size_t said;          /* bytes of it */
    bool is_over, is_cut; /* cut: by max_tokens */
} Row;

/* row_add_text — the text of a token that came, the last of it if the row is over. Returns whether
 * a stop ends the reply; then the row is over. row_is_among — whether a token is one of [n]. */
bool row_add_text(Row *row, int32_t id);
bool row_is_among(const int32_t *ids, int n, int32_t id);

/* prompts_are_same — the same tokens, which show the same. */
bool prompts_are_same(const MxTrainState *state, const MxPrompt *a, const MxPrompt *b);

#endif
