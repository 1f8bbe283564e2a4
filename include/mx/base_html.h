/* base_html.h — pages of HTML that programs write: texts of any origin in them, and the frame of a
 * page that loads nothing. */
#ifndef MX_BASE_HTML_H
#define MX_BASE_HTML_H

#include <mx/base.h>

/* mx_html — a text of any kind as HTML has it, in elements and in quoted attributes; control
 * characters and bytes that are not UTF-8 are shown in C's spelling, as in the log.
 * Test: tests/report/test_page.c. */
const char *mx_html(MxArena *arena, const char *text);

/* mx_html_begin — from the doctype to the heading: the title, the version and the time. The page
 * forbids the browser to load anything. mx_html_end — the end of it. */
void mx_html_begin(MxText *out, const char *title, const char *style);
void mx_html_end(MxText *out);

/* mx_html_bar — a bar of 80 pixels, filled from the left by a share (0 to 1), as SVG. */
void mx_html_bar(MxText *out, double share);

#endif
