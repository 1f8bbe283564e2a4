/* saver.c — a thread that works on a copy of the state while training continues. There is one copy,
 * so at most one piece of work is in progress. */
#include "saver.h"

#include <pthread.h>

/* Of one core: training on all cores waits for its slowest thread, so it slows by about this. */
static const double SHARE = 0.05;

struct Saver {
    const MxTree *tree;
    MxTree copy; /* its leaves' data; the tree itself without a background */
    bool in_background;
    enum { IDLE, RUNNING } progress;
    SaverWork work;
    void *data;
    pthread_t thread;
    MxPace pace;
    atomic_bool is_done;
    bool ok;
    MxError failure;
};

Saver *saver_open(MxArena *arena, const MxTree *tree, bool in_background) {
    Saver *saver = mx_new(arena, Saver);
    saver->tree = tree;
    saver->copy = *tree;
    saver->in_background = in_background;
    if (!in_background) return saver;
    mx_tree_init(&saver->copy, arena);
    for (int i = 0; i < tree->n; i++)
        mx_tree_add(&saver->copy, mx_leaf_on_host(arena, tree->leaves[i]));
    return saver;
}

static void *run(void *data) {
    Saver *saver = data;
    double start_s = mx_clock_s();
    if (saver->in_background) mx_pace_start(&saver->pace);
    saver->ok = saver->work(saver->data, &saver->copy, saver->in_background ? &saver->pace : NULL,
                            &saver->failure);
    mx_spans_add((MxTimeSpan){.thread = saver->in_background ? MX_SPAN_SAVER : MX_SPAN_TRAINER,
                              .kind = "save",
                              .name = "write checkpoint",
                              .number = -1,
                              .start_s = start_s,
                              .end_s = mx_clock_s()});
    atomic_store(&saver->is_done, true);
    return NULL;
}

static bool start_thread(Saver *saver, MxError *err) {
    int failed = mx_thread_start(&saver->thread, run, saver);
    return !failed ||
           mx_fail(err, MX_EXIT_IO, MX_NOWHERE, "could not start a thread: %s", strerror(failed));
}

bool saver_start(Saver *saver, SaverWork work, void *data, MxError *err) {
    MX_ASSERT(saver_is_idle(saver));
    for (int i = 0; saver->in_background && i < saver->tree->n; i++) {
        const MxLeaf *leaf = &saver->tree->leaves[i];
        if (mx_leaf_has_values(leaf)) mx_leaf_read(leaf, saver->copy.leaves[i].data);
    }
    return saver_go_on(saver, work, data, err);
}

bool saver_go_on(Saver *saver, SaverWork work, void *data, MxError *err) {
    MX_ASSERT(saver_is_idle(saver));
    saver->work = work;
    saver->data = data;
    saver->pace.share = SHARE;
    atomic_store(&saver->pace.is_hurried, false);
    atomic_store(&saver->is_done, false);
    if (!saver->in_background)
        run(saver);
    else if (!start_thread(saver, err))
        return false;
    saver->progress = RUNNING;
    return true;
}

bool saver_is_idle(const Saver *saver) {
    return saver->progress == IDLE;
}

bool saver_is_done(const Saver *saver) {
    return atomic_load(&saver->is_done);
}

bool saver_end(Saver *saver, MxError *err) {
    MX_ASSERT(!saver_is_idle(saver));
    atomic_store(&saver->pace.is_hurried, true);
    if (saver->in_background) pthread_join(saver->thread, NULL);
    saver->progress = IDLE;
    if (!saver->ok) mx_fail(err, saver->failure.exit, MX_NOWHERE, "%s", saver->failure.text.data);
    mx_error_release(&saver->failure);
    return saver->ok;
}
