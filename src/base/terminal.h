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
/* terminal_put — text in a look on a stream, plain where it has no colours. */
void terminal_put(FILE *to, Look look, const char *text);

#endif
