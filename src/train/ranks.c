/* ranks.c — communication between ranks outside of programs. */
#include <mx/train.h>

#include "data.h"
#include "internal.h"

const char *const *train_gather_texts(MxArena *arena, MxComm *comm, const char *text) {
    int n = mx_comm_size(comm);
    bool is_first = mx_comm_rank(comm) == 0;
    int64_t *counts = mx_new_n(arena, int64_t, n), *sizes = mx_new_n(arena, int64_t, n), total = 0;
    for (int r = 0; r < n; r++) counts[r] = sizeof *sizes;
    int64_t own = (int64_t)strlen(text) + 1;
    mx_comm_gather(comm, &own, is_first ? sizes : NULL, counts);
    if (!is_first) sizes[mx_comm_rank(comm)] = own;
    for (int r = 0; r < n; r++) total += sizes[r];
    char *all = is_first ? mx_arena_alloc(arena, (size_t)total) : NULL;
    mx_comm_gather(comm, text, all, sizes);
    if (!is_first) return NULL;
    const char **texts = mx_new_n(arena, const char *, n);
    for (int r = 0; r < n; all += sizes[r++]) texts[r] = all;
    return texts;
}

const char *train_share_bytes(MxArena *arena, MxComm *comm, const char *own, int64_t n) {
    const int n_ranks = mx_comm_size(comm);
    int64_t *counts = mx_new_n(arena, int64_t, n_ranks), *sizes = mx_new_n(arena, int64_t, n_ranks);
    int64_t total = 0;
    for (int r = 0; r < n_ranks; r++) counts[r] = sizeof *sizes;
    mx_comm_gather(comm, &n, mx_comm_rank(comm) ? NULL : sizes, counts);
    mx_comm_broadcast(comm, sizes, (size_t)n_ranks * sizeof *sizes);
    for (int r = 0; r < n_ranks; r++) total += sizes[r];
    char *all = mx_arena_alloc(arena, (size_t)total + 1);
    mx_comm_gather(comm, own, mx_comm_rank(comm) ? NULL : all, sizes);
    mx_comm_broadcast(comm, all, (size_t)total);
    return all;
}

/* What several ranks found alike is told once. */
static void merge(const char *const *texts, int n, MxExit exit, MxError *err) {
    for (int r = 1; r < n; r++)
        if (*texts[r] && !(err->count && strstr(err->text.data, texts[r])))
            mx_fail(err, exit, MX_NOWHERE, "rank %d: %s", r, texts[r]);
}

bool train_agree(MxComm *comm, bool is_fine, MxError *err) {
    if (!comm || mx_comm_size(comm) == 1) return is_fine;
    if (!mx_comm_max(comm, !is_fine)) return true;
    MxArena arena = {.name = "agreement"};
    MxExit exit = (MxExit)mx_comm_max(comm, is_fine ? MX_EXIT_OK : err->exit);
    const char *const *texts = train_gather_texts(&arena, comm, is_fine ? "" : err->text.data);
    if (texts)
        merge(texts, mx_comm_size(comm), exit, err);
    else if (is_fine)
        mx_fail(err, exit, MX_NOWHERE, "another rank has failed");
    err->exit = exit; /* what follows from it is the same on all ranks */
    mx_arena_release(&arena);
    return false;
}

/* Rank 0's text, on every rank. */
static const char *text_of_first(MxArena *arena, MxComm *comm, const char *own) {
    int64_t n = (int64_t)strlen(own);
    mx_comm_broadcast(comm, &n, sizeof n);
    char *text = mx_arena_alloc(arena, (size_t)n + 1);
    if (!mx_comm_rank(comm)) memcpy(text, own, (size_t)n);
    mx_comm_broadcast(comm, text, (size_t)n);
    return text;
}

bool train_same_config(const MxConfig *config, MxComm *comm, MxError *err) {
    if (mx_comm_size(comm) == 1) return true;
    MxArena arena = {.name = "agreement"};
    const char *first = text_of_first(&arena, comm, mx_config_text(&arena, config));
    bool ok = mx_config_same(&arena, config, first, "rank 0", err);
    mx_arena_release(&arena);
    return train_agree(comm, ok, err);
}

bool train_same_files(MxComm *comm, const char *what, const char *files, MxError *err) {
    if (mx_comm_size(comm) == 1) return true;
    MxArena arena = {.name = "agreement"};
    const char *first = text_of_first(&arena, comm, files);
    bool ok = train_are_same_files(first, files) ||
              mx_fail(err, MX_EXIT_BAD_INPUT, MX_NOWHERE, "%s: %s here, rank 0 has %s", what, files,
                      first);
    mx_arena_release(&arena);
    return train_agree(comm, ok, err);
}

static bool agree(void *comm, bool is_fine, MxError *err) {
    return train_agree(comm, is_fine, err);
}

const MxTeam *train_team(MxArena *arena, MxComm *comm) {
    if (!comm || mx_comm_size(comm) == 1) return NULL;
    MxTeam *team = mx_new(arena, MxTeam);
    *team = (MxTeam){
        .rank = mx_comm_rank(comm), .size = mx_comm_size(comm), .agree = agree, .data = comm};
    return team;
}
