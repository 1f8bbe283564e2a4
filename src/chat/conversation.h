/* conversation.h — private to the room: an opened chat template. */
#ifndef CHAT_CONVERSATION_H
#define CHAT_CONVERSATION_H

#include <mx/chat.h>

struct MxChat {
    MxTemplate *usual, *with_tools; /* with_tools NULL = the usual one */
    MxJson *tokens;                 /* special tokens by name */
    MxHash *hash;
};

#endif
