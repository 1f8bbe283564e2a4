/* output.c — the destination of a converted checkpoint: a folder published by the room store, or a
 * file made beside its final name and renamed. What is to be replaced is kept until its successor
 * is complete. */
#include <mx/ckpt_gguf.h>

#include "internal.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

struct MxCkptOutput {
    MxArena *arena;
    const char *path, *file; /* final name; the HDF5 file to fill */
    MxPublish *publish;      /* of a folder, else NULL */
    const char *staged;      /* name under which a folder is published before it replaces another */
    bool is_done;
};

static void drop(void *data) {
    MxCkptOutput *output = data;
    if (!output->is_done && !output->publish) unlink(output->file);
}

/* Only what a conversion could have made is ever replaced, and nothing that others put there. What
 * a killed one left unfinished in its place is not there. */
static bool check_taken(MxCkptOutput *output, bool is_folder, bool replace, MxError *err) {
    struct stat st;
    bool is_unfinished = false;
    if (lstat(output->path, &st)) return true;
    if (is_folder && !mx_store_is_unfinished(output->path, &is_unfinished, err)) return false;
    if (is_unfinished) return true;
    if (!replace)
        return mx_fail(err, MX_EXIT_CANNOT_CREATE, MX_NOWHERE,
                       "\"%s\" exists already; --force replaces it", output->path);
    bool is_kind = is_folder ? S_ISDIR(st.st_mode) : S_ISREG(st.st_mode);
    if (!is_kind)
        return mx_fail(err, MX_EXIT_CANNOT_CREATE, MX_NOWHERE,
                       "\"%s\" exists already and is no %s; it is not replaced", output->path,
                       is_folder ? "folder" : "regular file");
    output->staged = mx_arena_printf(output->arena, "%s.new.%ld", output->path, (long)getpid());
    if (!is_folder || mx_store_only_listed(output->path, err)) return true;
    mx_note(err, "hint: --force removes what mxtrain wrote and nothing else; move that away, or "
                 "choose another DST");
    return false;
}

bool mx_ckpt_output_begin(MxArena *arena, const char *path, bool replace, MxCkptOutput **out,
                          MxError *err) {
    MxCkptOutput *output = mx_new(arena, MxCkptOutput);
    size_t n = strlen(path);
    while (n > 1 && path[n - 1] == '/') n--;
    *output = (MxCkptOutput){.arena = arena, .path = mx_arena_strndup(arena, path, n)};
    path = output->staged = output->path;
    bool is_folder = !mx_text_has_suffix(path, ".h5") && !mx_text_has_suffix(path, ".hdf5") &&
                     !mx_text_has_suffix(path, MX_GGUF_SUFFIX);
    if (strstr(path, ".h5:") || strstr(path, ".hdf5:"))
        return mx_fail(err, MX_EXIT_CONFIG, MX_NOWHERE,
                       "\"%s\": the result is a whole file, not a group in one", path);
    if (!check_taken(output, is_folder, replace, err)) return false;
    *out = output;
    if (!is_folder) {
        output->file = mx_arena_printf(arena, "%s.tmp.%ld", path, (long)getpid());
        mx_arena_on_release(arena, drop, output);
        return true;
    }
    if (!mx_store_publish_begin(arena, output->staged, &output->publish, err)) return false;
    output->file = mx_path_join(arena, mx_store_publish_dir(output->publish), CKPT_STATE_FILE);
    return true;
}

const char *mx_ckpt_output_file(const MxCkptOutput *output) {
    return output->file;
}

const char *mx_ckpt_output_dir(const MxCkptOutput *output) {
    return output->publish ? mx_store_publish_dir(output->publish) : NULL;
}

/* A config's text with some "key: value" lines changed. */
static const char *with_form(MxArena *arena, const char *config, const MxCkptOrigin *origin) {
    MxForm form = *origin->form;
    bool is_merged = origin->adapters == MX_ADAPTERS_MERGED;
    const struct {
        const char *key;
        const char *value;
    } keys[] = {
        {"pure_nnx: ", form.is_linen ? "false" : "true"},
        {"scan_layers: ", form.is_scanned ? "true" : "false"},
        {"param_scan_axis: ", mx_arena_printf(arena, "%d", form.scan_axis)},
        {"lora.enable_lora: ", is_merged ? "false" : NULL},
        {"lora.lora_restore_path: ", is_merged ? "\"\"" : NULL},
    };
    MxText out;
    mx_text_init(&out, arena);
    while (*config) {
        size_t n = strcspn(config, "\n");
        n += config[n] == '\n';
        int k = 0;
        while (k < MX_COUNT(keys) && (!keys[k].value || !mx_text_has_prefix(config, keys[k].key)))
            k++;
        if (k < MX_COUNT(keys))
            mx_text_add(&out, "%s%s # set by mxconvert\n", keys[k].key, keys[k].value);
        else
            mx_text_addn(&out, config, n);
        config += n;
    }
    return out.data;
}

static bool commit_file(MxCkptOutput *output, MxError *err) {
    if (!mx_path_sync(output->file, err)) return false;
    if (rename(output->file, output->path))
        return mx_fail_errno(err, "could not rename \"%s\" to \"%s\"", output->file, output->path);
    output->is_done = true;
    return mx_path_sync(mx_path_dir(output->arena, output->path), err);
}

static void tell_form(const MxCkptOutput *output, const MxCkptOrigin *origin) {
    MxJson *manifest = mx_store_publish_manifest(output->publish);
    const MxForm *form = origin->form;
    const char *config =
        origin->source ? mx_json_string(mx_json_get(origin->source, "config")) : NULL;
    mx_json_set_string(manifest, "style", form->is_linen ? "linen" : "nnx");
    mx_json_set_bool(manifest, "scan_layers", form->is_scanned);
    mx_json_set_int(manifest, "param_scan_axis", form->scan_axis);
    if (config) mx_json_set_string(manifest, "config", with_form(output->arena, config, origin));
    if (origin->kept) mx_json_set_string(manifest, MX_CKPT_KEPT, origin->kept);
    ckpt_tell_model(output->arena, origin, manifest);
}

/* The result is complete beside the folder that it replaces, into which others may have put
 * something meanwhile. Where renames of folders may be refused, a first one tells before anything
 * is removed. */
static bool replace(const MxCkptOutput *output, MxError *err) {
    MxError ignored = {0};
    bool is_free = mx_store_only_listed(output->path, err);
    if (!is_free) mx_dir_remove(output->staged, &ignored);
    mx_error_release(&ignored);
    const char *from = output->staged;
    if (is_free && mx_store_publish_is_in_place(output->publish)) {
        from = mx_arena_printf(output->arena, "%s.moved", output->staged);
        if (rename(output->staged, from))
            return mx_fail_errno(err, "\"%s\" is not replaced: could not rename the result, \"%s\"",
                                 output->path, output->staged);
    }
    if (!is_free || !mx_store_remove(output->path, err)) return false;
    if (rename(from, output->path))
        return mx_fail_errno(err, "could not rename \"%s\" to \"%s\"", from, output->path);
    return mx_path_sync(mx_path_dir(output->arena, output->path), err);
}

bool mx_ckpt_output_commit(MxCkptOutput *output, const MxCkptOrigin *origin, MxError *err) {
    if (!output->publish) return commit_file(output, err);
    if (origin->form) tell_form(output, origin);
    ckpt_tell_tokenizer(output->arena, &origin->tokenizer,
                        mx_store_publish_manifest(output->publish));
    if (!mx_store_publish_commit(output->publish, err)) return false;
    return !strcmp(output->staged, output->path) || replace(output, err);
}

bool mx_ckpt_output_remove(MxCkptOutput *output, MxError *err) {
    if (output->publish) return mx_dir_remove(output->path, err);
    return !unlink(output->path) || mx_fail_errno(err, "could not remove \"%s\"", output->path);
}

void mx_ckpt_output_forget(const MxCkptOutput *output) {
    const char *path =
        output->publish ? mx_path_join(output->arena, output->path, CKPT_STATE_FILE) : output->path;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return;
    posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    close(fd);
}
