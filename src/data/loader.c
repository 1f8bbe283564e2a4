/* loader.c — a thread that makes batches ahead of their use, in a ring of slots allocated once. It
 * calls mx_data_batch step by step, so the result is that of direct calls. It allocates nothing and
 * runs no parallel code of its own. */
#include "source.h"

#include <pthread.h>

struct MxLoader {
    MxLoaderConfig config;
    MxBatch *slots; /* [n_slots] a ring: step s is in slot (s - first) % n_slots */
    int64_t n_slots;
    int64_t made, taken; /* batches so far */
    int64_t held;        /* of those taken: the last call's, which are still being read */
    MxDataStatus status; /* not OK: the thread has ended, nothing follows `made` */
    MxError failure;     /* with MX_DATA_ERROR */
    bool is_stopping, is_running;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
};

/* Waits until a slot is free. */
static bool wait_for_slot(MxLoader *loader) {
    pthread_mutex_lock(&loader->lock);
    while (!loader->is_stopping && loader->made - loader->taken >= loader->n_slots - loader->held)
        pthread_cond_wait(&loader->changed, &loader->lock);
    bool may_go_on = !loader->is_stopping;
    pthread_mutex_unlock(&loader->lock);
    return may_go_on;
}

static void *work(void *data) {
    MxLoader *loader = data;
    MxDataStatus status = MX_DATA_OK;
    while (status == MX_DATA_OK && wait_for_slot(loader)) {
        int64_t n = loader->made; /* only this thread changes it */
        double start_s = mx_clock_s();
        status = mx_data_batch(loader->config.dataset, loader->config.first_step + n,
                               &loader->slots[n % loader->n_slots], &loader->failure);
        mx_spans_add((MxTimeSpan){.thread = MX_SPAN_LOADER,
                                  .kind = "data",
                                  .name = "batch",
                                  .number = loader->config.first_step + n,
                                  .start_s = start_s,
                                  .end_s = mx_clock_s()});
        pthread_mutex_lock(&loader->lock);
        if (status == MX_DATA_OK) loader->made++;
        loader->status = status;
        pthread_cond_broadcast(&loader->changed);
        pthread_mutex_unlock(&loader->lock);
    }
    return NULL;
}

static void close_on_release(void *loader) {
    mx_loader_close(loader);
}

static bool start(MxLoader *loader, MxError *err) {
    int failed = mx_thread_start(&loader->thread, work, loader);
    loader->is_running = !failed;
    return !failed ||
           mx_fail(err, MX_EXIT_IO, MX_NOWHERE, "could not start a thread: %s", strerror(failed));
}

static int64_t most_of(const MxLoaderConfig *config) {
    return config->most ? config->most : 1;
}

bool mx_loader_open(MxArena *arena, const MxLoaderConfig *config, MxLoader **out, MxError *err) {
    MX_ASSERT(config->first_step >= 0 && config->depth >= 1);
    const MxDataConfig *data = &config->dataset->config;
    MxLoader *loader = mx_new(arena, MxLoader);
    *loader = (MxLoader){.config = *config, .n_slots = config->depth + 2 * most_of(config) - 1};
    loader->slots = mx_new_n(arena, MxBatch, loader->n_slots);
    for (int64_t i = 0; i < loader->n_slots; i++)
        loader->slots[i] = config->part.rows
                               ? mx_batch_new_part(arena, &config->part)
                               : mx_batch_new(arena, mx_data_batch_rows(data), data->length);
    pthread_mutex_init(&loader->lock, NULL);
    pthread_cond_init(&loader->changed, NULL);
    mx_arena_on_release(arena, close_on_release, loader);
    *out = loader;
    return start(loader, err);
}

/* The next n, each after the one before it. */
static MxBatch chain(MxLoader *loader, int64_t n) {
    MxBatch *next = NULL;
    for (int64_t i = n - 1; i >= 0; i--) {
        MxBatch *slot = &loader->slots[(loader->taken + i) % loader->n_slots];
        slot->next = next;
        next = slot;
    }
    return *next;
}

MxDataStatus mx_loader_next(MxLoader *loader, int64_t n, MxBatch *out, MxError *err) {
    MX_ASSERT(loader->is_running && n >= 1 && n <= most_of(&loader->config));
    pthread_mutex_lock(&loader->lock);
    loader->held = 0;
    pthread_cond_broadcast(&loader->changed);
    while (loader->made - loader->taken < n && loader->status == MX_DATA_OK)
        pthread_cond_wait(&loader->changed, &loader->lock);
    MxDataStatus status = loader->made - loader->taken >= n ? MX_DATA_OK : loader->status;
    if (status == MX_DATA_OK) {
        *out = chain(loader, n);
        loader->taken += n;
        loader->held = n;
    }
    pthread_mutex_unlock(&loader->lock);
    if (status == MX_DATA_ERROR)
        mx_fail(err, loader->failure.exit, MX_NOWHERE, "%s", loader->failure.text.data);
    return status;
}

void mx_loader_close(MxLoader *loader) {
    if (!loader->is_running) return;
    pthread_mutex_lock(&loader->lock);
    loader->is_stopping = true;
    pthread_cond_broadcast(&loader->changed);
    pthread_mutex_unlock(&loader->lock);
    pthread_join(loader->thread, NULL);
    pthread_cond_destroy(&loader->changed);
    pthread_mutex_destroy(&loader->lock);
    mx_error_release(&loader->failure);
    loader->is_running = false;
}
