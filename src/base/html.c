/* html.c — escapes arbitrary texts for pages, and frames pages. */
#include <mx/base_html.h>

#include <time.h>

const char *mx_html(MxArena *arena, const char *text) {
    static const char special[] = "&<>\"'";
    MxText shown, out;
    mx_text_init(&shown, arena);
    mx_text_init(&out, arena);
    mx_text_add_shown(&shown, text, strlen(text));
    for (const char *p = shown.data; *p;) {
        size_t n = strcspn(p, special);
        mx_text_addn(&out, p, n);
        p += n;
        if (*p) mx_text_add(&out, "&#%d;", *p++);
    }
    return out.data;
}

void mx_html_begin(MxText *out, const char *title, const char *style) {
    enum { MOST_LETTERS = 32 };
    const char *shown = mx_html(out->arena, title);
    char when[MOST_LETTERS];
    time_t now = time(NULL);
    struct tm tm = {0};
    gmtime_r(&now, &tm);
    strftime(when, sizeof when, "%Y-%m-%d %H:%M:%S", &tm);
    mx_text_add(out, "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n"
                     "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; "
                     "style-src 'unsafe-inline'; script-src 'unsafe-inline'\">\n"
                     "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n");
    mx_text_add(out, "<title>%s - mxtrain</title>\n<style>%s</style></head>\n<body>\n", shown,
                style);
    mx_text_add(out, "<h1>%s</h1>\n<p class=\"note\">mxtrain " MX_VERSION ", %s UTC</p>\n", shown,
                when);
}

void mx_html_end(MxText *out) {
    mx_text_add(out, "</body></html>\n");
}

void mx_html_bar(MxText *out, double share) {
    enum { WIDTH = 80, HEIGHT = 10 };
    mx_text_add(out,
                "<svg width=\"%d\" height=\"%d\" viewBox=\"0 0 %d %d\" role=\"img\" "
                "aria-label=\"%.3g%%\"><rect class=\"bar\" x=\"0\" y=\"0\" width=\"%.2f\" "
                "height=\"%d\"/></svg>",
                WIDTH, HEIGHT, WIDTH, HEIGHT, 100 * share, WIDTH * share, HEIGHT);
}
