/* serve.h — a model that answers requests over HTTP with OpenAI's interface: many at a time, each
 * with the same answer as alone. Requests are parsed independently of HTTP; src/serve/http.c
 * listens on a port. */
#ifndef MX_SERVE_H
#define MX_SERVE_H

#include <mx/generate.h>

/* Kinds of requests. */
typedef enum MxAskKind { MX_ASK_COMPLETION, MX_ASK_CHAT, MX_ASK_KINDS } MxAskKind;

/* A request for text. */
typedef struct MxAsk {
    const char *model; /* NULL = not given */
    const char *wrong; /* the member that an error is about, also one found later; NULL = none */
    MxJson **prompts;  /* [n_prompts] each in the form of mx_prompt_read */
    int64_t n_prompts;
    int64_t n, best_of; /* replies told, and made, of each prompt */
    bool echoes;        /* answers begin with the prompt */
    MxSampling sampling;
    int64_t max_tokens; /* 0 = only the prompt is wanted, with `echoes` */
    bool has_seed;
    const MxJson *schema;      /* that an answer's JSON is of; NULL = it is any text */
    bool has_tools;            /* which the chat template gets */
    bool needs_calls;          /* an answer is calls of them … */
    const char *called;        /* … of this one; NULL = any */
    bool calls_one;            /* at most one call is made */
    bool has_strict_tools;     /* whose calls fit their schemas, wherever they are made */
    bool streams, tells_usage; /* tells_usage: send the usage at the end of a stream */
    bool tells_logprobs;
    int64_t n_top;      /* likeliest tokens told for each one, with tells_logprobs */
    const char **stops; /* [n_stops] */
    int n_stops;
} MxAsk;

/* Replies to a request, at most. */
enum { MX_ASK_MOST_REPLIES = 1024 };

/* mx_ask_read — a request from the body of POST /v1/completions or /v1/chat/completions.
 *   defaults  values of missing members; max_tokens is also the maximum
 * Errors (exit 65): invalid JSON, members that are unrecognized, not available yet or out of range.
 * No member is silently ignored, except those that ask for the default behaviour. */
bool mx_ask_read(MxArena *arena, MxAskKind kind, const char *body, size_t n,
                 const MxSpeak *defaults, MxAsk *out, MxError *err);

/* mx_serve_address — "HOST:PORT", "[HOST]:PORT" or "PORT", which listens to this machine only;
 * host: numeric, or localhost. Errors (exit 2). */
bool mx_serve_address(MxArena *arena, const char *text, char **host, char **port, MxError *err);

typedef struct MxServe {
    const char *dir;              /* folder of the model; NULL = speak->weights has a config */
    const char *address;          /* see mx_serve_address */
    const MxTokenizer *tokenizer; /* NULL = none: prompts are ids */
    const MxSpeak *speak;         /* chat, dtype, max_tokens, rows and sampling are used */
    int64_t queue;                /* maximum number of requests that wait for a row */
    double timeout_s;             /* from the arrival of a request to its answer */
} MxServe;

/* mx_serve — answers requests until SIGTERM or SIGINT, after which the requests in progress are
 * still answered; a second signal ends it immediately. Prints the address when it is listening.
 * Errors: as mx_speak; the address. */
bool mx_serve(MxArena *arena, const MxServe *what, MxError *err);

#endif
