/* mask.c — lists of regular expressions over the paths of parameters. */
#include <mx/config.h>

const char *mx_config_path(const MxConfig *config, const MxLeaf *leaf) {
    return config->scan_layers && leaf->stack.path ? leaf->stack.path : leaf->path;
}

const MxLeaf *mx_config_find(const MxConfig *config, const MxTree *tree, const char *path,
                             const MxLeaf *like) {
    for (int i = 0; i < tree->n; i++) {
        const MxLeaf *leaf = &tree->leaves[i];
        bool is_stacked = config->scan_layers && leaf->stack.path;
        if (!strcmp(mx_config_path(config, leaf), path) &&
            (!is_stacked || leaf->stack.index == like->stack.index))
            return leaf;
    }
    return NULL;
}

bool mx_config_match(const MxConfig *config, MxKey key, const MxStrs *patterns, const MxLeaf *leaf,
                     bool *matches, MxError *err) {
    MxArena arena = {.name = "mask"};
    bool ok = true;
    *matches = false;
    for (int i = 0; i < patterns->n && ok && !*matches; i++) {
        const char *why;
        MxRegex *regex = mx_regex_new(&arena, patterns->item[i], &why);
        MX_ASSERT(regex); /* the config was checked when it was loaded */
        MxMatch match = mx_regex_match(regex, mx_config_path(config, leaf));
        if (match == MX_MATCH_GAVE_UP)
            ok = mx_config_fail(err, config, key, "\"%s\" takes too long to match \"%s\"",
                                patterns->item[i], mx_config_path(config, leaf));
        *matches = match != MX_MATCH_NONE;
    }
    mx_arena_release(&arena);
    return ok;
}
