/* terminal.h — private to the room: the status line, which must be removed while log lines are
 * printed. */
#ifndef BASE_TERMINAL_H
#define BASE_TERMINAL_H

#include <mx/base.h>

#include <stdio.h>

/* terminal_hide — takes the status line away; terminal_show — brings it back, below what was
 * printed meanwhile. Nothing where none stands. */
void terminal_hide(void);
void terminal_show(void);
/* terminal_silence — from here on there is none. */
void terminal_silence(void);

/* Looks of text on a terminal with colours. */
typedef enum Look { LOOK_PLAIN, LOOK_WARNING, LOOK_ERROR, LOOK_BAR, LOOK_COUNT } Look;
/* terminal_dress — a mark in the look it has on a stream, plain where it has no colours. In out. */
const char *terminal_dress(char out[128], FILE *to, Look look, const char *mark);

#endif
