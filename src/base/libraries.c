/* libraries.c — the shared libraries of this process. The loader lists them; if the file name of a
 * library does not contain its version, the library itself is asked. */
#include "manual.h"

#include <dlfcn.h>
#include <elf.h>
#include <limits.h>
#include <link.h>
#include <stdlib.h>

/* What a function that tells a version returns or fills. */
typedef enum Form { TEXT, ASKED, TRIPLE, PACKED, STRUCT } Form;

/* A library by the beginning of its file's name. */
typedef struct Library {
    const char *name, *symbol;
    Form form;
    unsigned n; /* PACKED: a part has so many values; ASKED: the question */
} Library;

static const Library libraries[] = {
    {"libyaml-0", "yaml_get_version_string", TEXT, 0},
    {"libjansson", "jansson_version_str", TEXT, 0},
    {"libz.", "zlibVersion", TEXT, 0},
    {"libzstd", "ZSTD_versionString", TEXT, 0},
    {"liblz4", "LZ4_versionString", TEXT, 0},
    {"libutf8proc", "utf8proc_version", TEXT, 0},
    {"libmicrohttpd", "MHD_get_version", TEXT, 0},
    {"libpcre2-8", "pcre2_config_8", ASKED, 11},
    {"libc.", "gnu_get_libc_version", TEXT, 0},
    {"libhdf5_serial.", "H5get_libversion", TRIPLE, 0},
    {"libxxhash", "XXH_versionNumber", PACKED, 100},
    {"libbrotlidec", "BrotliDecoderVersion", PACKED, 4096},
    {"libdnnl", "dnnl_version", STRUCT, 0},
};

/* The head of what dnnl_version returns. */
typedef struct Release {
    int part[3];
} Release;

/* A symbol is an object pointer to dlsym and a function to us: POSIX has them alike. */
typedef union Symbol {
    void *object;
    const char *(*text)(void);
    int (*asked)(unsigned, void *);
    int (*triple)(unsigned *, unsigned *, unsigned *);
    unsigned (*packed)(void);
    const Release *(*release)(void);
} Symbol;

static bool add_release(const Library *library, void *handle, MxText *out) {
    Symbol f = {.object = dlsym(handle, library->symbol)};
    unsigned p[3] = {0}, parts = library->n;
    char answer[64] = "";
    if (!f.object) return false;
    if (library->form == ASKED) f.asked(library->n, answer);
    if (library->form <= ASKED) {
        mx_text_add(out, "%s", library->form == TEXT ? f.text() : answer);
        return true;
    }
    if (library->form == PACKED) {
        unsigned n = f.packed();
        p[0] = n / parts / parts;
        p[1] = n / parts % parts;
        p[2] = n % parts;
    }
    if (library->form == TRIPLE) f.triple(&p[0], &p[1], &p[2]);
    for (int i = 0; i < 3 && library->form == STRUCT; i++) p[i] = (unsigned)f.release()->part[i];
    mx_text_add(out, "%u.%u.%u", p[0], p[1], p[2]);
    return true;
}

/* That of the release, else the number behind ".so.", which is its interface's. */
static void add_version(const char *path, const char *name, MxText *out) {
    const char *number = strstr(name, ".so.");
    for (int i = 0; i < MX_COUNT(libraries); i++) {
        if (!mx_text_has_prefix(name, libraries[i].name)) continue;
        void *handle = dlopen(path, RTLD_LAZY | RTLD_NOLOAD);
        bool is_told = handle && add_release(&libraries[i], handle, out);
        if (handle) dlclose(handle);
        if (is_told) return;
    }
    mx_text_add(out, "%s", number ? number + strlen(".so") + 1 : "-");
}

/* Bytes of a note take a multiple of four. */
static size_t padded(size_t n) {
    return (n + 3) / 4 * 4;
}

/* The identity that the linker gave the file. */
static void add_build(const struct dl_phdr_info *object, MxText *out) {
    for (int i = 0; i < object->dlpi_phnum; i++) {
        const ElfW(Phdr) *part = &object->dlpi_phdr[i];
        const char *at = (const char *)object->dlpi_addr + part->p_vaddr, *end = at + part->p_memsz;
        while (part->p_type == PT_NOTE && (size_t)(end - at) > sizeof(ElfW(Nhdr))) {
            ElfW(Nhdr) note;
            memcpy(&note, at, sizeof note);
            const char *name = at + sizeof note, *id = name + padded(note.n_namesz);
            if (note.n_type == NT_GNU_BUILD_ID && note.n_namesz == sizeof "GNU")
                for (unsigned k = 0; k < note.n_descsz; k++)
                    mx_text_add(out, "%s%02x", k ? "" : "  build ", (unsigned char)id[k]);
            at = id + padded(note.n_descsz);
        }
    }
}

static int add_object(struct dl_phdr_info *object, size_t size, void *data) {
    char path[PATH_MAX];
    MxText *out = data;
    (void)size;
    if (!*object->dlpi_name || !realpath(object->dlpi_name, path)) return 0; /* the program */
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    mx_text_add(out, "%-32.*s ", (int)(strstr(name, ".so") ? strstr(name, ".so") - name : 32),
                name);
    size_t start = out->len;
    add_version(object->dlpi_name, name, out);
    if (out->len - start < 12) mx_text_add(out, "%*s", (int)(12 - (out->len - start)), "");
    add_build(object, out);
    mx_text_add(out, "\n");
    return 0;
}

void manual_libraries(MxText *out) {
    dl_iterate_phdr(add_object, out);
}
