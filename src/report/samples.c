/* samples.c — what the model replied to the prompts of sample_prompts during a run, from run.log,
 * line by line: the first reply to each prompt and the last ones. */
#include "internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

enum { MOST_PROMPTS = 32, KEPT = 6, MOST_LINE = 1 << 16 };

typedef struct Reply {
    int64_t step;
    const char *text; /* "prompt" -> "reply" */
} Reply;

/* Replies to a prompt, by step: the first one, and the last ones. */
typedef struct Prompt {
    Reply reply[KEPT];
    int n;
    bool has_more; /* some between the first and the second */
} Prompt;

static void keep(Prompt *p, Reply reply) {
    while (p->n && p->reply[p->n - 1].step >= reply.step) p->n--; /* steps that are repeated */
    if (p->n == KEPT) {
        memmove(&p->reply[1], &p->reply[2], (KEPT - 2) * sizeof *p->reply);
        p->n--;
        p->has_more = true;
    }
    p->reply[p->n++] = reply;
}

/* "…Z sample 0 after step 99: "prompt" -> "reply"". */
static void take_line(MxArena *arena, Prompt *prompts, char *line) {
    static const char begin[] = "Z sample ", middle[] = " after step ", end[] = ": ";
    char *at = strstr(line, begin), *rest;
    if (!at || strchr(line, ' ') != at + 1) return; /* the time comes first */
    int64_t number = strtoll(at + strlen(begin), &rest, 10);
    if (number < 0 || number >= MOST_PROMPTS || strncmp(rest, middle, strlen(middle))) return;
    int64_t step = strtoll(rest + strlen(middle), &rest, 10);
    if (step < 0 || strncmp(rest, end, strlen(end))) return;
    rest[strcspn(rest, "\n")] = '\0';
    keep(&prompts[number], (Reply){step, mx_arena_strdup(arena, rest + strlen(end))});
}

static void read_prompts(MxArena *arena, const char *folder, Prompt *prompts) {
    const char *path = mx_path_join(arena, folder, "run.log");
    struct stat st;
    FILE *file = !stat(path, &st) && S_ISREG(st.st_mode) ? fopen(path, "re") : NULL;
    char *line = mx_arena_alloc(arena, MOST_LINE);
    while (file && fgets(line, MOST_LINE, file)) take_line(arena, prompts, line);
    if (file) fclose(file);
}

void report_put_samples(Report *report, const MxRunFacts *f) {
    MxArena scratch = {.name = "samples"};
    Prompt *prompts = mx_new_n(&scratch, Prompt, MOST_PROMPTS);
    int n = 0;
    read_prompts(&scratch, f->folder, prompts);
    for (int i = 0; i < MOST_PROMPTS; i++)
        for (int r = 0; r < prompts[i].n; r++) {
            const Prompt *p = &prompts[i];
            if (!n++)
                mx_text_add(report->out,
                            "<h3>Samples</h3>\n<table><thead><tr><th "
                            "class=\"number\">prompt</th><th class=\"number\">after "
                            "step</th><th>prompt and reply</th></tr></thead><tbody>\n");
            if (r == 1 && p->has_more)
                mx_text_add(report->out,
                            "<tr><td></td><td class=\"number\">…</td><td></td></tr>\n");
            mx_text_add(report->out,
                        "<tr><td class=\"number\">%d</td><td class=\"number\">%lld</td><td>%s"
                        "</td></tr>\n",
                        i, (long long)p->reply[r].step, mx_html(&scratch, p->reply[r].text));
        }
    if (n) mx_text_add(report->out, "</tbody></table>\n");
    mx_arena_release(&scratch);
}
