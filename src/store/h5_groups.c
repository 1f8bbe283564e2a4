/* h5_groups.c — what is around the datasets of HDF5 files: links, groups, attributes. */
#include <mx/store.h>

#include "library.h"

enum { MAX_ATTR_BYTES = 60000 }; /* an object header message holds 64 KiB */

/* ---- listing ---- */

typedef struct LinkVisitor {
    H5Links fn;
    void *data;
} LinkVisitor;

static herr_t on_link(hid_t group, const char *name, const H5L_info_t *info, void *data) {
    (void)group;
    LinkVisitor *visitor = data;
    return visitor->fn(name, info->type == H5L_TYPE_HARD, visitor->data) ? 0 : -1;
}

bool h5_each_link(MxH5 *file, const char *path, H5Links fn, void *data, MxError *err) {
    ENTER;
    hid_t group = H5Gopen2(file->id, ROOTED(path), H5P_DEFAULT);
    if (group < 0) return h5_fail_read(file, path, "could not be opened", err);
    LinkVisitor visitor = {.fn = fn, .data = data};
    herr_t done = H5Literate(group, H5_INDEX_NAME, H5_ITER_INC, NULL, on_link, &visitor);
    char why[H5_FAILURE_BYTES];
    h5_reason(why);
    H5Gclose(group);
    return done >= 0 || mx_fail(err, MX_EXIT_BAD_INPUT, h5_in(file),
                                "\"%s\": could not be listed (%s)", path, why);
}

/* ---- groups and attributes ---- */

hid_t h5_new_creation(hid_t class) {
    hid_t list = H5Pcreate(class);
    H5Pset_obj_track_times(list, 0);
    return list;
}

static bool make_group(MxH5 *file, const char *path) {
    if (H5Lexists(file->id, path, H5P_DEFAULT) > 0) return true;
    hid_t create = h5_new_creation(H5P_GROUP_CREATE);
    hid_t group = H5Gcreate2(file->id, path, H5P_DEFAULT, create, H5P_DEFAULT);
    bool ok = h5_check(file, group >= 0 && H5Gclose(group) >= 0);
    H5Pclose(create);
    return ok;
}

bool h5_make_groups(MxH5 *file, const char *path, bool itself) {
    MxArena scratch = {.name = "path"};
    char *part = mx_arena_strdup(&scratch, path);
    bool ok = true;
    for (char *p = part; ok && *p; p++)
        if (*p == '/' && p > part) {
            *p = '\0';
            ok = make_group(file, part);
            *p = '/';
        }
    if (ok && itself && *part) ok = make_group(file, part);
    mx_arena_release(&scratch);
    return ok;
}

hid_t h5_new_text_type(size_t bytes) {
    hid_t type = H5Tcopy(H5T_C_S1);
    H5Tset_size(type, bytes ? bytes : 1);
    H5Tset_strpad(type, H5T_STR_NULLPAD);
    H5Tset_cset(type, H5T_CSET_UTF8);
    return type;
}

bool h5_put_attr(MxH5 *file, hid_t object, const char *name, const char *value) {
    hid_t type = h5_new_text_type(strlen(value)), space = H5Screate(H5S_SCALAR), attr;
    bool ok = H5Aexists(object, name) <= 0 || H5Adelete(object, name) >= 0;
    attr = ok ? H5Acreate2(object, name, type, space, H5P_DEFAULT, H5P_DEFAULT) : H5I_INVALID_HID;
    ok = h5_check(file, attr >= 0 && H5Awrite(attr, type, value) >= 0);
    if (attr >= 0 && H5Aclose(attr) < 0 && ok) ok = h5_check(file, false);
    H5Sclose(space);
    H5Tclose(type);
    return ok;
}

/* A scalar integer, bool or float in C's spelling; false when it is something else. */
static bool read_number(MxArena *arena, hid_t attr, char **out) {
    hid_t type = H5Aget_type(attr), space = H5Aget_space(attr);
    MxH5Array array = {0};
    bool ok =
        H5Sget_simple_extent_npoints(space) == 1 && h5_dtype_of(type, &array) && !array.is_text;
    int64_t integer = 0;
    double number = 0;
    if (ok && mx_dtype_is_float(array.dtype))
        ok = H5Aread(attr, H5T_NATIVE_DOUBLE, &number) >= 0;
    else if (ok)
        ok = H5Aread(attr, H5T_NATIVE_INT64, &integer) >= 0;
    if (ok)
        *out = mx_dtype_is_float(array.dtype) ? mx_arena_printf(arena, "%.17g", number)
                                              : mx_arena_printf(arena, "%lld", (long long)integer);
    if (type >= 0) H5Tclose(type);
    if (space >= 0) H5Sclose(space);
    return ok;
}

bool mx_h5_attr(MxArena *arena, MxH5 *file, const char *path, const char *name, char **out,
                MxError *err) {
    ENTER;
    *out = NULL;
    hid_t object = H5Oopen(file->id, ROOTED(path), H5P_DEFAULT);
    if (object < 0)
        return mx_fail(err, MX_EXIT_BAD_INPUT, h5_in(file), "no group or dataset \"%s\"", path);
    bool ok = true;
    if (H5Aexists(object, name) > 0) {
        hid_t attr = H5Aopen(object, name, H5P_DEFAULT);
        ok = attr >= 0 && (h5_read_string(arena, attr, true, out) || read_number(arena, attr, out));
        if (attr >= 0) H5Aclose(attr);
        if (!ok)
            mx_fail(err, MX_EXIT_BAD_INPUT, h5_in(file),
                    "attribute \"%s\" of \"%s\" is neither one string nor one number", name,
                    ROOTED(path));
    }
    H5Oclose(object);
    return ok;
}

bool mx_h5_set_attr(MxH5 *file, const char *path, const char *name, const char *value,
                    MxError *err) {
    MX_ASSERT(file->is_new && strlen(value) <= MAX_ATTR_BYTES);
    ENTER;
    bool ok = h5_make_groups(file, path, true);
    hid_t object = ok ? H5Oopen(file->id, ROOTED(path), H5P_DEFAULT) : H5I_INVALID_HID;
    if (ok) ok = h5_check(file, object >= 0) && h5_put_attr(file, object, name, value);
    if (!ok) h5_fail_write(file, ROOTED(path), err);
    if (object >= 0) H5Oclose(object);
    return ok;
}
