/* serve.h — a model that answers requests over HTTP, as OpenAI's interface has them: many at a
 * time, each with the answer that it gets alone. What a request says is read here without HTTP; who
 * listens on a port is src/serve/http.c. */
#ifndef MX_SERVE_H
#define MX_SERVE_H

#include <mx/generate.h>

/* What requests are about. */
typedef enum MxAskKind { MX_ASK_COMPLETION, MX_ASK_CHAT, MX_ASK_KINDS } MxAskKind;

/* A request for text. */
typedef struct MxAsk {
    const char *model;    /* NULL = it does not say */
    const MxJson *prompt; /* as mx_prompt_read wants it */
    MxSampling sampling;
    int64_t max_tokens;
    bool has_seed;
    bool streams, tells_usage; /* tells_usage: at the end of a stream */
    bool tells_logprobs;
    const char **stops; /* [n_stops] */
    int n_stops;
} MxAsk;

/* mx_ask_read — a request from the body of POST /v1/completions or /v1/chat/completions.
 *   defaults  what it does not say; its max_tokens is also the most that it may ask for
 * Errors (exit 65): no JSON, members that are unrecognized, not available yet or out of range.
 * Every member that is found is one that acts, or says what is so anyway. */
bool mx_ask_read(MxArena *arena, MxAskKind kind, const char *body, size_t n,
                 const MxSpeak *defaults, MxAsk *out, MxError *err);

/* mx_serve_address — "HOST:PORT", "[HOST]:PORT" or "PORT", which is of this machine alone; host: as
 * numbers, or localhost. Errors (exit 2). */
bool mx_serve_address(MxArena *arena, const char *text, char **host, char **port, MxError *err);

typedef struct MxServe {
    const char *dir;              /* of the model */
    const char *address;          /* see mx_serve_address */
    const MxTokenizer *tokenizer; /* NULL = there is none: prompts are ids */
    const MxSpeak *speak;         /* its chat, dtype, max_tokens, rows and sampling */
    int64_t queue;                /* requests that may wait for a row */
    double timeout_s;             /* of a request, from when it is there until it is answered */
} MxServe;

/* mx_serve — answers until SIGTERM or SIGINT, which let requests that are being answered end; a
 * second one does not. Prints where it listens once it does. Errors: as of mx_speak; the address.
 */
bool mx_serve(MxArena *arena, const MxServe *what, MxError *err);

#endif
