/* speak.h — private to the room: messages with the images and sounds that a command line names. */
#ifndef GENERATE_SPEAK_H
#define GENERATE_SPEAK_H

#include <mx/generate.h>

/* speak_message — adds a message to those of a request, with all files before its text or without
 * any. speak_marked — adds a user's message whose files stand where the text has marks, those
 * without one before it, as in MaxText; false = it has no mark, and nothing was added.
 * speak_name_files — the files as members of a record. */
void speak_message(const MxSpeak *what, MxJson *request, const char *role, MxEncoding text,
                   bool has_files);
bool speak_marked(MxArena *arena, const MxSpeak *what, const MxConfig *config, MxJson *request,
                  MxEncoding text);
void speak_name_files(const MxSpeak *what, MxJson *record);

#endif
