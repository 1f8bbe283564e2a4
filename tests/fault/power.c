/* power.c — what a disk may hold after the power was lost. `power RECORD` tells how many calls a
 * record has (record.c), `power RECORD FOLDER SEED` makes a state of the disk in a new folder: the
 * calls up to a random one have been made, and of what was not synced by then some is there and
 * some is not. It prints where it was cut and the newest step whose checkpoint must be there.
 *
 * The disk promises no more than POSIX: a sync of a file keeps its bytes and size, one of a folder
 * the names in it; a rename is there as a whole or not at all. What was not synced is kept or lost
 * name by name and write by write, writes also in parts; or, as file systems with a journal do it,
 * names are kept up to some call and lost from there on. A name may be there before what is behind
 * it: a file that was not synced may have any part of its bytes, and a folder any of its names. */
#include "record.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { SECTOR = 512, MOST_NAMES = 4096, PATH = 4096 };

typedef struct Call {
    RecordHead head;
    char *name, *to;
    const uint8_t *data;
} Call;

/* A name in a folder. */
typedef struct Entry {
    char *name; /* NULL = taken away */
    struct Node *node;
} Entry;

typedef struct Names {
    Entry item[MOST_NAMES];
    int n;
} Names;

typedef struct Bytes {
    uint8_t *data;
    size_t n;
} Bytes;

/* A file or a folder: as programs see it, and what of it is on the disk. */
typedef struct Node {
    bool is_folder;
    Names *names, *kept_names;
    Bytes bytes, kept_bytes;
    int *pending; /* numbers of calls after the last sync */
    int n_pending;
} Node;

static Call *calls;
static int n_calls;
static struct Node **made; /* by call: what it made or moved */

static void fail(const char *what, const char *name) {
    fprintf(stderr, "power: %s \"%s\"%s%s\n", what, name, errno ? ": " : "",
            errno ? strerror(errno) : "");
    exit(1);
}

static void *room(void *old, size_t bytes) {
    void *memory = realloc(old, bytes ? bytes : 1);
    if (!memory) fail("no memory for", "a record");
    return memory;
}

/* ---- the record */

static char *copy_text(const uint8_t *at, size_t n) {
    char *text = room(NULL, n + 1);
    memcpy(text, at, n);
    text[n] = '\0';
    return text;
}

static void read_record(const char *path) {
    FILE *file = fopen(path, "rb");
    if (!file) fail("could not open", path);
    fseek(file, 0, SEEK_END);
    size_t size = (size_t)ftell(file);
    uint8_t *all = room(NULL, size);
    rewind(file);
    if (fread(all, 1, size, file) != size) fail("could not read", path);
    fclose(file);
    for (size_t at = 0; at < size;) {
        Call call;
        memcpy(&call.head, all + at, sizeof call.head);
        at += sizeof call.head;
        call.name = copy_text(all + at, call.head.name);
        call.to = copy_text(all + at + call.head.name, call.head.to);
        call.data = all + at + call.head.name + call.head.to;
        at += call.head.name + call.head.to + call.head.n;
        calls = room(calls, ((size_t)n_calls + 1) * sizeof *calls);
        calls[n_calls++] = call;
    }
    made = room(NULL, (size_t)n_calls * sizeof(Node *));
    memset(made, 0, (size_t)n_calls * sizeof(Node *));
}

/* ---- names */

static Node *new_node(bool is_folder) {
    Node *node = room(NULL, sizeof *node);
    *node = (Node){.is_folder = is_folder};
    if (!is_folder) return node;
    node->names = room(NULL, sizeof(Names));
    node->kept_names = room(NULL, sizeof(Names));
    node->names->n = node->kept_names->n = 0;
    return node;
}

static Entry *find(Names *names, const char *name) {
    for (int i = 0; i < names->n; i++)
        if (names->item[i].name && !strcmp(names->item[i].name, name)) return &names->item[i];
    return NULL;
}

static void set_name(Names *names, char *name, Node *node) {
    Entry *entry = find(names, name);
    if (!entry && names->n == MOST_NAMES) fail("too many names at", name);
    if (!entry) entry = &names->item[names->n++];
    *entry = (Entry){name, node};
}

static void take_name(Names *names, const char *name) {
    Entry *entry = find(names, name);
    if (entry) entry->name = NULL;
}

/* The folder that a path is in, and its last part; of "" the root itself. */
static Node *folder_of(Node *root, const char *path, char **last) {
    char part[PATH];
    while (*path == '/') path++;
    for (const char *slash; (slash = strchr(path, '/')); path = slash + 1) {
        snprintf(part, sizeof part, "%.*s", (int)(slash - path), path);
        Entry *entry = find(root->names, part);
        if (!entry || !entry->node->is_folder) fail("the record does not know folder", part);
        root = entry->node;
    }
    *last = copy_text((const uint8_t *)path, strlen(path));
    return root;
}

static Node *node_at(Node *root, const char *path) {
    char *last;
    Node *folder = folder_of(root, path, &last);
    Entry *entry = *last ? find(folder->names, last) : NULL;
    if (*last && !entry) fail("the record does not know", path);
    return *last ? entry->node : folder;
}

/* ---- calls */

static void resize(Bytes *bytes, size_t n) {
    if (n > bytes->n) {
        bytes->data = room(bytes->data, n);
        memset(bytes->data + bytes->n, 0, n - bytes->n);
    }
    bytes->n = n;
}

static void write_part(Bytes *bytes, const Call *call, size_t from, size_t to) {
    size_t at = (size_t)call->head.at;
    if (at + to > bytes->n) resize(bytes, at + to);
    memcpy(bytes->data + at + from, call->data + from, to - from);
}

static void change_bytes(Bytes *bytes, const Call *call) {
    if (call->head.kind == RECORD_SIZE)
        resize(bytes, (size_t)call->head.at);
    else
        write_part(bytes, call, 0, call->head.n);
}

static void change_names(Names *names, const Call *call, Node *node) {
    char *last = strrchr(call->name, '/') + 1, *to = strrchr(call->to, '/');
    if (call->head.kind == RECORD_REMOVE || call->head.kind == RECORD_RENAME)
        take_name(names, last);
    if (call->head.kind == RECORD_FILE || call->head.kind == RECORD_FOLDER)
        set_name(names, last, node);
    if (call->head.kind == RECORD_RENAME) set_name(names, to + 1, node);
}

static void sync_node(Node *node) {
    node->n_pending = 0;
    if (node->is_folder) {
        *node->kept_names = *node->names;
        return;
    }
    resize(&node->kept_bytes, 0);
    resize(&node->kept_bytes, node->bytes.n);
    if (node->bytes.n) memcpy(node->kept_bytes.data, node->bytes.data, node->bytes.n);
}

static void make_call(Node *root, int i) {
    const Call *call = &calls[i];
    bool makes = call->head.kind == RECORD_FILE || call->head.kind == RECORD_FOLDER;
    bool changes = call->head.kind == RECORD_WRITE || call->head.kind == RECORD_SIZE;
    char *last, *to_last;
    Node *node = makes ? new_node(call->head.kind == RECORD_FOLDER) : node_at(root, call->name);
    if (call->head.kind == RECORD_SYNC) {
        sync_node(node);
        return;
    }
    Node *changed = changes ? node : folder_of(root, call->name, &last);
    if (call->head.kind == RECORD_RENAME && folder_of(root, call->to, &to_last) != changed)
        fail("a rename from folder to folder is not understood:", call->to);
    made[i] = node;
    if (changes)
        change_bytes(&node->bytes, call);
    else
        change_names(changed->names, call, node);
    changed->pending = room(changed->pending, ((size_t)changed->n_pending + 1) * sizeof(int));
    changed->pending[changed->n_pending++] = i;
}

/* ---- what is left */

static uint64_t state; /* of splitmix64 */

static uint64_t draw(uint64_t n) {
    uint64_t z = state += 0x9e3779b97f4a7c15;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
    z = (z ^ z >> 27) * 0x94d049bb133111eb;
    return (z ^ z >> 31) % n;
}

/* How what was not synced is kept. */
typedef struct Luck {
    uint64_t names, writes; /* out of 100, by name and by write */
    int journal;            /* names are kept up to this call; -1 = each by itself */
} Luck;

static bool is_kept(uint64_t chance) {
    return draw(100) < chance;
}

static void keep_bytes(Node *node, Luck luck) {
    for (int i = 0; i < node->n_pending; i++) {
        const Call *call = &calls[node->pending[i]];
        if (call->head.kind == RECORD_SIZE) {
            if (is_kept(luck.writes)) change_bytes(&node->kept_bytes, call);
            continue;
        }
        for (size_t at = 0; at < call->head.n;) { /* sectors of the disk */
            size_t end = ((size_t)call->head.at + at) / SECTOR * SECTOR + SECTOR;
            end -= (size_t)call->head.at;
            if (end > call->head.n) end = call->head.n;
            if (is_kept(luck.writes)) write_part(&node->kept_bytes, call, at, end);
            at = end;
        }
    }
}

static void keep_names(Node *node, Luck luck) {
    for (int i = 0; i < node->n_pending; i++) {
        int number = node->pending[i];
        if (luck.journal < 0 ? is_kept(luck.names) : number < luck.journal)
            change_names(node->kept_names, &calls[number], made[number]);
    }
}

static void write_file(const char *path, const Bytes *bytes) {
    FILE *file = fopen(path, "wbx");
    if (!file || fwrite(bytes->data, 1, bytes->n, file) != bytes->n || fclose(file))
        fail("could not write", path);
}

static void write_state(Node *node, const char *path, Luck luck) {
    char below[PATH];
    if (!node->is_folder) {
        keep_bytes(node, luck);
        write_file(path, &node->kept_bytes);
        return;
    }
    keep_names(node, luck);
    if (mkdir(path, 0777)) fail("could not make folder", path);
    for (int i = 0; i < node->kept_names->n; i++) {
        const Entry *entry = &node->kept_names->item[i];
        if (!entry->name) continue;
        snprintf(below, sizeof below, "%s/%s", path, entry->name);
        write_state(entry->node, below, luck);
    }
}

/* The newest step of which a rename told that its checkpoint is there, and a sync of the folder
 * that it will be: then the saver said so. -1 = none. */
static long promised(int cut) {
    long newest = -1, renamed = -1;
    for (int i = 0; i < cut; i++) {
        const char *to = strrchr(calls[i].to, '/'), *folder = strrchr(calls[i].name, '/');
        bool is_step = to && to[1] >= '0' && to[1] <= '9';
        if (calls[i].head.kind == RECORD_RENAME && is_step) renamed = strtol(to + 1, NULL, 10);
        if (calls[i].head.kind == RECORD_SYNC && folder && !strcmp(folder, "/checkpoints"))
            newest = renamed;
    }
    return newest;
}

/* Half of all cuts are beside a call that is no write: there a save has its turns. */
static int choose_cut(void) {
    int cut = (int)draw((uint64_t)n_calls + 1);
    if (draw(2))
        while (cut < n_calls && calls[cut].head.kind == RECORD_WRITE) cut++;
    return cut < n_calls && draw(2) ? cut + 1 : cut;
}

int main(int argc, char **argv) {
    if (argc != 2 && argc != 4) {
        fprintf(stderr, "usage: power RECORD [FOLDER SEED]\n");
        return 2;
    }
    read_record(argv[1]);
    if (argc == 2) {
        printf("%d\n", n_calls);
        return 0;
    }
    state = strtoull(argv[3], NULL, 10);
    draw(1);
    bool is_all = !strcmp(argv[3], "all"); /* as if the power had stayed: a check of the record */
    int cut = is_all ? n_calls : choose_cut();
    const uint64_t chances[] = {0, 100, 50, 90, 10};
    Luck luck = {.names = chances[draw(5)], .writes = chances[draw(5)], .journal = -1};
    if (draw(2)) luck.journal = (int)draw((uint64_t)cut + 1);
    if (is_all) luck = (Luck){.names = 100, .writes = 100, .journal = -1};
    Node *root = new_node(true);
    for (int i = 0; i < cut; i++) make_call(root, i);
    write_state(root, argv[2], luck);
    printf("%d %ld\n", cut, promised(cut));
    return 0;
}
