/* tfds.c — a split of a dataset in a folder of TensorFlow Datasets:
 * FOLDER/NAME[/CONFIG]/VERSION/NAME-SPLIT.tfrecord-00000-of-00010. */
#include "parts.h"

#include <stdlib.h>

/* A set as it is named. */
typedef struct Set {
    const char *dir;     /* below the folder: "c4/en" */
    const char *name;    /* "c4" */
    const char *version; /* NULL = the highest */
} Set;

static Set parse_set(MxArena *arena, const char *text) {
    char *dir = mx_arena_strdup(arena, text ? text : ""), *colon = strchr(dir, ':');
    if (colon) *colon = '\0';
    size_t n = strcspn(dir, "/");
    return (Set){dir, mx_arena_strndup(arena, dir, n), colon ? colon + 1 : NULL};
}

/* "1.2.3"; false if it is no version. */
static bool parse_version(const char *name, long out[3]) {
    char *end = NULL;
    for (int i = 0; i < 3; i++, name = end + 1) {
        if (*name < '0' || *name > '9') return false;
        out[i] = strtol(name, &end, 10);
        if (*end != (i < 2 ? '.' : '\0')) return false;
    }
    return true;
}

static bool is_higher(const long a[3], const long b[3]) {
    for (int i = 0; i < 3; i++)
        if (a[i] != b[i]) return a[i] > b[i];
    return false;
}

/* The names in a folder, the first dozen, for messages. */
static const char *list_names(MxArena *arena, const char *dir) {
    enum { MOST = 12 };
    MxText text;
    MxError ignored = {0};
    char **names;
    int n = 0;
    mx_text_init(&text, arena);
    if (!mx_dir_list(arena, dir, &names, &n, &ignored)) n = 0;
    for (int i = 0; i < n && i < MOST; i++) mx_text_add(&text, "%s%s", i ? ", " : "", names[i]);
    if (n > MOST) mx_text_add(&text, ", …");
    mx_error_release(&ignored);
    return n ? text.data : "nothing";
}

/* The folder of a set's version. */
static const char *find_version(MxArena *arena, const MxDataConfig *config, const Set *set,
                                MxError *err) {
    const char *dir = mx_path_join(arena, config->path, set->dir), *found = NULL;
    char **names;
    long highest[3] = {-1, 0, 0}, version[3];
    int n = 0;
    if (!mx_dir_exists(config->path) || !mx_dir_exists(dir)) {
        mx_fail(err, MX_EXIT_BAD_INPUT, config->where, "no folder \"%s\"; \"%s\" has %s", dir,
                config->path, list_names(arena, config->path));
        return NULL;
    }
    if (!mx_dir_list(arena, dir, &names, &n, err)) return NULL;
    for (int i = 0; i < n; i++) {
        if (!parse_version(names[i], version)) continue;
        if (set->version ? strcmp(set->version, names[i]) : !is_higher(version, highest)) continue;
        memcpy(highest, version, sizeof highest);
        found = names[i];
    }
    if (found) return mx_path_join(arena, dir, found);
    mx_fail(err, MX_EXIT_BAD_INPUT, config->where, "\"%s\" has no version %s; it has %s", dir,
            set->version ? set->version : "(a folder as 1.0.0)", list_names(arena, dir));
    mx_note(err, "hint: dataset_name is NAME[/CONFIG][:VERSION], for example c4/en:3.0.1");
    return NULL;
}

/* A file of the set: "c4-train.tfrecord-00003-of-00010". */
typedef struct Shard {
    const char *split; /* [split_bytes] in its name */
    size_t split_bytes;
    int i, n;
} Shard;

/* Digits, then `end`; the place behind that, NULL if it is none. */
static const char *parse_count(const char *text, const char *end, int *out) {
    size_t digits = strspn(text, "0123456789"), n = strlen(end);
    if (!digits || digits > 9 || strncmp(text + digits, end, n)) return NULL;
    *out = (int)strtol(text, NULL, 10);
    return text + digits + n;
}

static bool parse_shard(const Set *set, const char *name, Shard *out) {
    static const char *const suffixes[] = {".tfrecord-", ".array_record-"};
    size_t n = strlen(set->name);
    const char *end = NULL, *count = NULL;
    if (strncmp(name, set->name, n) || name[n] != '-') return false;
    for (int i = 0; i < MX_COUNT(suffixes) && !end; i++) {
        end = strstr(name + n, suffixes[i]);
        if (end) count = end + strlen(suffixes[i]);
    }
    if (!end) return false;
    *out = (Shard){.split = name + n + 1, .split_bytes = (size_t)(end - name) - n - 1};
    count = parse_count(count, "-of-", &out->i);
    count = count ? parse_count(count, "", &out->n) : NULL;
    return count && !*count;
}

static bool is_split(const Shard *shard, const char *name) {
    return strlen(name) == shard->split_bytes && !strncmp(shard->split, name, shard->split_bytes);
}

/* No shard is of the split that is wanted: which ones there are. */
static bool no_split(MxArena *arena, const MxDataConfig *config, const Set *set, const char *dir,
                     char **names, int n, MxError *err) {
    MxText text;
    Shard shard;
    const char *last = "";
    mx_text_init(&text, arena);
    for (int i = 0; i < n; i++) {
        if (!parse_shard(set, names[i], &shard) || is_split(&shard, last)) continue;
        last = mx_arena_strndup(arena, shard.split, shard.split_bytes);
        mx_text_add(&text, "%s\"%s\"", text.len ? ", " : "", last);
    }
    mx_fail(err, MX_EXIT_BAD_INPUT, config->where, "\"%s\" has no split \"%s\"; it has %s", dir,
            config->split, text.len ? text.data : "no files of any");
    mx_note(err, "hint: the files of one are named %s-SPLIT.tfrecord-00000-of-00001", set->name);
    return false;
}

/* The shards of a split, which are sorted by name and so by number. */
static bool find_split(MxArena *arena, const MxDataConfig *config, const Set *set, const char *dir,
                       DataPart *out, MxError *err) {
    char **names;
    int n, n_shards = 0;
    Shard shard;
    if (!mx_dir_list(arena, dir, &names, &n, err)) return false;
    *out = (DataPart){.label = config->set, .weight = 1, .paths = mx_new_n(arena, char *, n + 1)};
    for (int i = 0; i < n; i++) {
        if (!parse_shard(set, names[i], &shard) || !is_split(&shard, config->split)) continue;
        if (out->n_paths && shard.n != n_shards)
            return mx_fail(err, MX_EXIT_BAD_INPUT, config->where,
                           "\"%s\" has shards of %d and shards of %d of split \"%s\"", dir,
                           n_shards, shard.n, config->split);
        n_shards = shard.n;
        if (shard.i != out->n_paths) break;
        out->paths[out->n_paths++] = mx_path_join(arena, dir, names[i]);
    }
    if (!n_shards) return no_split(arena, config, set, dir, names, n, err);
    return out->n_paths == n_shards ||
           mx_fail(err, MX_EXIT_BAD_INPUT, config->where,
                   "\"%s\" lacks shard %d of split \"%s\", which has %d, numbered from 0", dir,
                   out->n_paths, config->split, n_shards);
}

/* How many records a split has, of which the shards' are told one by one, as texts or numbers. */
static int64_t sum_lengths(const MxJson *lengths) {
    int64_t sum = 0, n;
    for (size_t i = 0; i < mx_json_length(lengths); i++) {
        const MxJson *length = mx_json_at(lengths, i);
        const char *text = mx_json_string(length);
        if (text ? (n = strtoll(text, NULL, 10), n < 0) : !mx_json_int(length, &n)) return -1;
        if (__builtin_add_overflow(sum, n, &sum)) return -1;
    }
    return sum;
}

/* What the set's description says of the split, if it says anything. */
static bool read_info(MxArena *arena, const MxDataConfig *config, const char *dir, DataPart *out,
                      MxError *err) {
    enum { LARGEST_BYTES = 1 << 26 };
    const char *path = mx_path_join(arena, dir, "dataset_info.json");
    MxBytes bytes;
    if (!mx_file_exists(path)) return true;
    if (!mx_file_read(arena, path, LARGEST_BYTES, &bytes, err)) return false;
    MxJson *info = mx_json_parse(arena, (const char *)bytes.data, bytes.size, path, err);
    const MxJson *splits = info ? mx_json_get(info, "splits") : NULL;
    if (info) mx_json_bool(mx_json_get(info, "disableShuffling"), &out->is_ordered);
    for (size_t i = 0; splits && i < mx_json_length(splits); i++) {
        const MxJson *split = mx_json_at(splits, i);
        const char *name = split ? mx_json_string(mx_json_get(split, "name")) : NULL;
        const MxJson *lengths = name ? mx_json_get(split, "shardLengths") : NULL;
        if (!lengths || strcmp(name, config->split)) continue;
        out->told_by = path;
        out->n_told = sum_lengths(lengths);
    }
    return info != NULL;
}

bool parts_of_set(MxArena *arena, const MxDataConfig *config, DataParts *out, MxError *err) {
    Set set = parse_set(arena, config->set);
    const char *dir = find_version(arena, config, &set, err);
    *out = (DataParts){.item = mx_new(arena, DataPart), .n = 1};
    return dir && find_split(arena, config, &set, dir, out->item, err) &&
           read_info(arena, config, dir, out->item, err);
}
