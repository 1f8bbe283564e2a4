/* conversation.h — private to the room: an opened chat template, and renderings of parts of
 * conversations (conversation.c). */
#ifndef CHAT_CONVERSATION_H
#define CHAT_CONVERSATION_H

#include <mx/chat.h>

struct MxChat {
    MxTemplate *usual, *with_tools; /* with_tools NULL = the usual one */
    MxJson *tokens;                 /* special tokens by name */
    MxHash *hash;
};

/* A rendering of some of a request's messages. */
typedef struct ChatPart {
    const MxJson *request;
    size_t n;          /* the first ones */
    bool prompts;      /* with a generation prompt */
    int64_t marked;    /* this message is marked; -1 = none */
    const char *field; /* the member of it that is a text, or a list of parts */
    const char *mark;
    bool marks_front;
    size_t always; /* bytes of a prompt that the template adds also where it is not wanted */
} ChatPart;

/* chat_render_part. chat_find_said — the spans of what the assistant says in a rendering of all
 * messages (said.c). Errors: those of the template; a message cannot be found.
 * chat_always_prompts — see ChatPart (always.c). */
bool chat_render_part(MxArena *arena, const MxChat *chat, const ChatPart *part, MxRendered *out,
                      MxError *err);
bool chat_find_said(MxArena *arena, const MxChat *chat, const ChatPart *all, MxRendered *full,
                    MxError *err);
size_t chat_always_prompts(const MxChat *chat, const ChatPart *all);

#endif
