/* turns.h — private to the room: completions of several turns, between which the policy reads what
 * a program tells it (rl.max_turns). */
#ifndef TRAIN_TURNS_H
#define TRAIN_TURNS_H

#include <mx/generate.h>

/* A completion as far as it has come. */
typedef struct Response {
    int32_t *ids;    /* [n] what the policy wrote; TURNS_TOLD(id) of what it was told */
    float *logprobs; /* [n] with which it was written; 0 of what was told */
    int64_t n;
    bool is_cut;    /* its last turn was */
    MxText history; /* its turns that were answered: objects of JSON, a comma behind each */
} Response;

/* A token that was told, among those that were written, and the other way. All are below -1, which
 * stands for none. */
#define TURNS_TOLD(id) (-2 - (id))

/* turns_new — n completions without tokens, of at most `length`. turns_prompt — a prompt with a
 * completion behind it, as the model reads them. turns_write — what the policy writes behind it.
 * turns_tell — what it is told. */
Response *turns_new(MxArena *arena, int64_t n, int64_t length);
MxTokens turns_prompt(MxArena *arena, MxTokens prompt, const Response *response);
void turns_write(Response *response, const MxReply *reply);
void turns_tell(Response *response, const MxTokens *told);
/* turns_drop — all that it has written is as if it had been told, so that none of it is learnt. */
void turns_drop(Response *response);

/* turns_encode — the tokens of what is told.
 *   told       a text, or a list of messages: what the chat template writes behind a message of the
 *              assistant's, up to where the assistant is to go on
 *   has_ended  the completion ends with eos, with which the template may end the assistant's
 * message Errors: no chat template for messages; those of mx_chat_render; no message of the
 * assistant's in its text. Source: trl 1.16 (GRPOTrainer), which also renders what tools say behind
 * a message made up for the purpose. Test: tests/train/test_turns.c. */
bool turns_encode(MxArena *arena, const MxWords *words, const MxJson *told, bool has_ended,
                  MxTokens *out, MxError *err);

#endif
