/* line.c — a conversation as tokens, as a line of JSON: for tests and for inspecting data. */
#include <mx/chat.h>

const char *mx_chat_line(MxArena *arena, const MxConversation *conversation) {
    MxTokens tokens = conversation->tokens;
    MxText out;
    mx_text_init(&out, arena);
    mx_text_add(&out, "{\"text\": %s, \"ids\": [",
                mx_json_quote(arena, conversation->rendered.text, conversation->rendered.n));
    for (int64_t i = 0; i < tokens.n; i++) mx_text_add(&out, "%s%d", i ? "," : "", tokens.ids[i]);
    mx_text_add(&out, "], \"mask\": [");
    for (int64_t i = 0; i < tokens.n; i++)
        mx_text_add(&out, "%s%d", i ? "," : "", conversation->mask[i]);
    mx_text_add(&out, "]}");
    return out.data;
}
