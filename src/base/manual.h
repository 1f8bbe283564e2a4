/* manual.h — private to the room: help, manual page and completion, from the rows of a program's
 * options. */
#ifndef BASE_MANUAL_H
#define BASE_MANUAL_H

#include <mx/base.h>

/* manual_help — every option, or a screen of the main ones. manual_page — all for man(1), in the
 * macros of man(7).
 * manual_completion — a script for a shell. Errors: another shell than bash, zsh and fish.
 * manual_libraries — the libraries that the process has loaded, a line each: file, version, build.
 * manual_complete — what the last word of a command line may become; `before` stands before it. */
void manual_help(const MxOptions *options, bool has_all, MxText *out);
void manual_page(const MxOptions *options, MxText *out);
bool manual_completion(const MxOptions *options, const char *shell, MxText *out, MxError *err);
void manual_libraries(MxText *out);
void manual_complete(const MxOptions *options, const char *before, const char *word, MxText *out);

#endif
