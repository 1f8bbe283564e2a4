/* internal.h — a request in progress: http.c, whose thread receives it and sends the available part
 * of its answer, and serve.c, whose thread computes the answer. */
#ifndef SERVE_INTERNAL_H
#define SERVE_INTERNAL_H

#include "calls.h"
#include "guides.h"

#include <mx/serve.h>

typedef struct Http Http;
typedef struct Job Job;

/* What has gone wrong with a request: OpenAI's type and code, and the member at fault; NULL = none.
 */
typedef struct Trouble {
    int status;
    const char *type, *code, *param, *message;
} Trouble;

/* One of a request's prompts. */
typedef struct Asked {
    MxPrompt prompt;
    bool has_looked;        /* at its images */
    MxReasoningState state; /* at its end */
    const char *echo; /* [echo_bytes] its text, which the answer begins with; NULL = it does not */
    size_t echo_bytes;
} Asked;

/* A reply to one of them. */
typedef struct Choice {
    Job *job;
    int64_t index; /* as clients know it */
    Asked *asked;
    MxGenerate how;
    const MxSequences *sequences;
    int row;        /* of the sequences; -1 = none yet, or it is over */
    MxReply reply;  /* once it is over */
    int64_t n_told; /* tokens that events have had */
    bool has_echoed;
    Calls *calls;                        /* and reasoning; NULL = the text is not read */
    size_t content_told, reasoning_told; /* bytes that events have had */
    int64_t n_calls_told;
    size_t arguments_told; /* bytes of those of the last of these */
} Choice;

/* What is asked; the worker's while it is at work, after http.c has handed it over. */
struct Job {
    Job *next; /* in a list of the worker's */
    MxArena arena;
    MxAskKind kind;
    MxText body;
    double deadline;
    MxAsk ask;
    Asked *asked;   /* [ask.n_prompts] */
    Choice *choice; /* [n_choices] ask.best_of for each of these; the first n_joined have, or had,
                       a row */
    int64_t n_choices, n_joined, n_over;
    const Trouble *refusal; /* why it cannot be answered after all; NULL = it can */
    uint64_t number;
    int64_t created; /* seconds of the epoch */
    const char *model;
    const MxTokenizer *tokenizer; /* NULL = none */
    MxGuide *guide;               /* of the replies; NULL = none */
    Guided *guided;               /* that it is of; NULL = it is the job's */
    bool has_begun;               /* its answer */
    void *connection;             /* http.c's */
};

/* ---- what http.c asks of serve.c, from its own threads */

/* serve_submit — a request that has come whole is the worker's until it calls http_end. Returns
 * false if too many wait: it still is the caller's. */
bool serve_submit(void *server, Job *job);
/* serve_models — the answer to GET /v1/models. serve_model — to GET /v1/models/ and a name; NULL =
 * another name than the model's. */
const char *serve_models(const void *server, const char *rest);
const char *serve_model(const void *server, const char *rest);

/* ---- what serve.c asks of http.c */

enum { HTTP_LARGEST_BODY = 1 << 20, HTTP_LARGEST_BODY_SEEN = 32 << 20 };

/* http_open — listens, and calls serve_submit from then on, with bodies of `largest` bytes at most.
 *   descriptor  of serve_bind; closed by http_quiesce or http_close, unless there is an error
 * Errors: another program listens at the address by now. */
bool http_open(MxArena *arena, int descriptor, size_t largest, void *server, Http **out,
               MxError *err);
/* http_begin — the answer begins: its status, and whether it comes in pieces. http_write — more of
 * it. http_end — that was all; the job is gone. http_is_gone — nobody listens any more. */
void http_begin(Job *job, int status, bool streams);
void http_write(Job *job, const char *bytes, size_t n);
void http_end(Job *job);
bool http_is_gone(const Job *job);
/* http_quiesce — hears no further requests. http_close — when all have been answered; waits a
 * little for answers that are being sent. */
void http_quiesce(Http *http);
void http_close(Http *http);

/* ---- addresses (listen.c) */

/* serve_bind — a socket at an address, which does not listen yet; url: where. Errors: the address;
 * another program listens there. */
bool serve_bind(MxArena *arena, const char *address, int *descriptor, char **url, MxError *err);

/* ---- answers as JSON (answer.c) */

/* A piece of a choice's reply: some reasoning and text, calls from `call` on, and before them what
 * the last one has behind `argument` bytes of its arguments, and tokens from `from` on. */
typedef struct Piece {
    const char *text, *reasoning; /* [n], [n_reasoning] */
    size_t n, n_reasoning;
    int64_t call;
    size_t argument;
    MxReply reply;
    int64_t from;
} Piece;

/* answer_whole — the replies: of a prompt's choices the n with the highest log-probability for each
 * token. answer_error — that there are none. */
const char *answer_whole(MxArena *arena, const Job *job);
const char *answer_error(MxArena *arena, const Trouble *trouble);
/* Events of a stream: answer_first, which a conversation's choice begins with (NULL: none), some
 * text, a choice's end, the end of all, and an error in its place. */
const char *answer_first(MxArena *arena, const Choice *choice);
const char *answer_text(MxArena *arena, const Choice *choice, const Piece *piece);
const char *answer_last(MxArena *arena, const Choice *choice, const Piece *piece);
const char *answer_end(MxArena *arena, const Job *job);
const char *answer_broken(MxArena *arena, const char *error);
/* answer_add_logprobs — a member of a choice: those of a reply's tokens from `from` on, null if
 * they are not asked for (logprobs.c). */
void answer_add_logprobs(MxText *out, const Job *job, const MxReply *reply, int64_t from);

/* ---- messages (messages.c) */

/* What a chat template takes, as it turns out when it renders. */
typedef struct Habits {
    bool takes_parts;             /* a list of texts for a text */
    bool takes_tools;             /* they change the text */
    bool wants_texts;             /* arguments of calls as texts, not as objects */
    const CallFormat *format;     /* in which it has calls; NULL = none that is known */
    const CallWriting *writes;    /* how it writes them; NULL = as the format says */
    const MxReasoning *reasoning; /* how it marks reasoning; NULL = it has none that is known */
} Habits;

/* messages_check — that they are objects with a role and a text or parts, or calls.
 * messages_check_tools — that each is a function with a name. Errors (exit 65): the message's
 * number. messages_habits — of a template. messages_as_taken — messages for it: parts of texts
 * become one text, a line for each, as in vLLM, and arguments objects or texts. Test:
 * tests/serve/test_serve.c. */
bool messages_check(const MxJson *messages, MxError *err);
bool messages_check_tools(const MxJson *tools, MxError *err);
Habits messages_habits(MxArena *arena, const MxChat *chat);
const MxJson *messages_as_taken(MxArena *arena, const Habits *habits, const MxJson *messages);

#endif
