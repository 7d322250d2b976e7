/* The frame around machine code that Numba has compiled ahead of time (problm/jit/build.py).

   Numba's code takes and returns NumPy arrays through a few functions of its run-time library, which are here, so that
   neither Numba nor LLVM is loaded. `Entry` is the function that Python calls: it finds the code for the types of the
   arguments, and hands any others to a function of Python's. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#define NPY_NO_DEPRECATED_API NPY_1_7_API_VERSION
#include <numpy/arrayobject.h>
#include <numpy/arrayscalars.h>

/* --- memory of arrays ------------------------------------------------------------------------------------- */

typedef struct {
    size_t references;
    void (*release)(void *data, size_t size, void *what);
    void *what;
    void *data;
    size_t size;
    void *allocator;
} Memory;

typedef struct {
    Memory *memory;
    PyObject *parent;
    npy_intp items, item_size;
    void *data;
    npy_intp shape_and_strides[];
} Array;

void *NRT_Allocate(size_t size) { return malloc(size); }
void NRT_Free(void *data) { free(data); }

static Memory *new_memory(size_t extra) {
    Memory *memory = malloc(sizeof(Memory) + extra);
    if (memory) memset(memory, 0, sizeof(Memory)), memory->references = 1;
    return memory;
}

void *NRT_MemInfo_alloc_aligned(size_t size, unsigned align) {
    Memory *memory = new_memory(size + align);
    if (!memory) return NULL;
    uintptr_t start = (uintptr_t)(memory + 1);
    memory->data = (void *)((start + align - 1) / align * align);
    memory->size = size;
    return memory;
}

void *NRT_MemInfo_alloc(size_t size) { return NRT_MemInfo_alloc_aligned(size, 16); }

void NRT_MemInfo_call_dtor(Memory *memory) {
    if (memory->release) memory->release(memory->data, memory->size, memory->what);
    free(memory);
}

/* A list's items, which are released by a function of their own before their memory is. */
static void release_items(void *data, size_t size, void *of_items) {
    if (of_items) ((void (*)(void *, size_t, void *))of_items)(data, size, NULL);
    free(data);
}

void *NRT_MemInfo_new_varsize_dtor(size_t size, void *of_items) {
    Memory *memory = new_memory(0);
    if (!memory) return NULL;
    memory->release = release_items;
    memory->what = of_items;
    memory->data = malloc(size);
    memory->size = size;
    if (memory->data) return memory;
    free(memory);
    return NULL;
}

void *NRT_MemInfo_new_varsize(size_t size) { return NRT_MemInfo_new_varsize_dtor(size, NULL); }

static void release_object(void *data, size_t size, void *object) {
    PyGILState_STATE state = PyGILState_Ensure();
    Py_DECREF((PyObject *)object);
    PyGILState_Release(state);
}

int NRT_adapt_ndarray_from_python(PyObject *object, Array *array) {
    if (!PyArray_Check(object)) return -1;
    PyArrayObject *from = (PyArrayObject *)object;
    int ndim = PyArray_NDIM(from);
    Memory *memory = new_memory(0);
    if (!memory) return -1;
    Py_INCREF(object);
    memory->release = release_object;
    memory->what = object;
    memory->data = array->data = PyArray_DATA(from);
    array->memory = memory;
    array->parent = object;
    array->items = PyArray_SIZE(from);
    array->item_size = PyArray_ITEMSIZE(from);
    for (int i = 0; i < ndim; i++) {
        array->shape_and_strides[i] = PyArray_DIM(from, i);
        array->shape_and_strides[ndim + i] = PyArray_STRIDE(from, i);
    }
    return 0;
}

static void release_capsule(PyObject *capsule) {
    Memory *memory = PyCapsule_GetPointer(capsule, NULL);
    if (__atomic_sub_fetch(&memory->references, 1, __ATOMIC_ACQ_REL) == 0) NRT_MemInfo_call_dtor(memory);
}

static int is_whole(PyObject *parent, const Array *array, int ndim, PyArray_Descr *descr) {
    if (!parent || !PyArray_Check(parent)) return 0;
    PyArrayObject *whole = (PyArrayObject *)parent;
    size_t bytes = ndim * sizeof(npy_intp);
    return PyArray_DATA(whole) == array->data && PyArray_NDIM(whole) == ndim &&
           PyArray_EquivTypes(PyArray_DESCR(whole), descr) &&
           !memcmp(PyArray_DIMS(whole), array->shape_and_strides, bytes) &&
           !memcmp(PyArray_STRIDES(whole), array->shape_and_strides + ndim, bytes);
}

PyObject *NRT_adapt_ndarray_to_python_acqref(Array *array, PyTypeObject *type, int ndim, int writeable,
                                             PyArray_Descr *descr) {
    if (is_whole(array->parent, array, ndim, descr)) {
        Py_INCREF(array->parent);
        return array->parent;
    }
    PyObject *owner = NULL;
    if (array->memory) {
        owner = PyCapsule_New(array->memory, NULL, release_capsule);
        if (!owner) return NULL;
        __atomic_add_fetch(&array->memory->references, 1, __ATOMIC_ACQ_REL);
    }
    Py_INCREF(descr);
    PyObject *made = PyArray_NewFromDescr(type, descr, ndim, array->shape_and_strides, array->shape_and_strides + ndim,
                                          array->data, writeable ? NPY_ARRAY_WRITEABLE : 0, NULL);
    if (!made) {
        Py_XDECREF(owner);
        return NULL;
    }
    PyArray_UpdateFlags((PyArrayObject *)made, NPY_ARRAY_C_CONTIGUOUS | NPY_ARRAY_F_CONTIGUOUS | NPY_ARRAY_ALIGNED);
    if (owner && PyArray_SetBaseObject((PyArrayObject *)made, owner) < 0) Py_CLEAR(made);
    return made;
}

/* Strides of an array in another shape if no copy is needed, which this knows of arrays contiguous by rows. */
int numba_attempt_nocopy_reshape(npy_intp ndim, const npy_intp *shape, const npy_intp *strides, npy_intp new_ndim,
                                 const npy_intp *new_shape, npy_intp *new_strides, npy_intp item_size, int by_columns) {
    npy_intp step = item_size;
    for (npy_intp i = ndim; i-- > 0; step *= shape[i])
        if (by_columns || (shape[i] != 1 && strides[i] != step)) return 0;
    step = item_size;
    for (npy_intp i = new_ndim; i-- > 0; step *= new_shape[i]) new_strides[i] = step;
    return 1;
}

/* --- exceptions ------------------------------------------------------------------------------------------- */

static PyObject *call_python(const char *module, const char *name, PyObject *first, PyObject *second) {
    PyObject *found = PyImport_ImportModule(module), *function, *result = NULL;
    if (!found) return NULL;
    function = PyObject_GetAttrString(found, name);
    Py_DECREF(found);
    if (!function) return NULL;
    result = PyObject_CallFunctionObjArgs(function, first, second, NULL);
    Py_DECREF(function);
    return result;
}

PyObject *numba_unpickle(const char *data, int size, const char *digest) {
    PyObject *bytes = PyBytes_FromStringAndSize(data, size);
    PyObject *made = bytes ? call_python("pickle", "loads", bytes, NULL) : NULL;
    Py_XDECREF(bytes);
    return made;
}

PyObject *numba_runtime_build_excinfo_struct(PyObject *fixed, PyObject *arguments) {
    return call_python("numba.core.serialize", "runtime_build_excinfo_struct", fixed, arguments);
}

/* Raises what is packed as (class, arguments or None, place). */
int numba_do_raise(PyObject *packed) {
    PyObject *kind = packed, *arguments = Py_None, *place;
    if (PyTuple_Check(packed) && !PyArg_ParseTuple(packed, "OOO", &kind, &arguments, &place)) return 0;
    PyErr_SetObject(kind, arguments == Py_None ? NULL : arguments);
    Py_DECREF(packed);
    return 0;
}

/* --- functions -------------------------------------------------------------------------------------------- */

typedef struct {
    PyObject_HEAD
    PyObject *globals, *constants;
} Environment;

typedef struct {
    const char *name, *digest, *types; /* of the result, a colon, and of the arguments, as problm/jit/types.py writes */
    PyObject *(*entry)(PyObject *, PyObject *, PyObject *);
    void *code;
    Environment **environments; /* Numba's, of the function itself and of others in it; ends with NULL */
    const char *constants;      /* pickled */
    Py_ssize_t constants_size;
} Compiled;

extern const Compiled problm_compiled[];
extern const int problm_compiled_count;

static int type_number(char code) {
    switch (code) {
        case 'd': return NPY_DOUBLE;
        case 'f': return NPY_FLOAT;
        case 'l': return NPY_INT64;
        case 'i': return NPY_INT32;
        case 'B': return NPY_UINT8;
        case 'H': return NPY_UINT16;
        case 'Q': return NPY_UINT64;
        case '?': return NPY_BOOL;
        default: return NPY_NOTYPE;
    }
}

/* The rest of the types if the first is that of the argument, else NULL. */
static const char *match(PyObject *argument, const char *types) {
    if (*types == 'A') {
        if (!PyArray_Check(argument)) return NULL;
        PyArrayObject *array = (PyArrayObject *)argument;
        int type = PyArray_TYPE(array), wanted = type_number(types[2]);
        return (type == wanted || PyArray_EquivTypenums(type, wanted)) && PyArray_NDIM(array) == types[1] - '0' &&
                       PyArray_ISBEHAVED_RO(array) && (types[3] == 'A' || PyArray_IS_C_CONTIGUOUS(array)) &&
                       (types[4] == 'r' || PyArray_ISWRITEABLE(array))
                   ? types + 5 : NULL;
    }
    if (*types == '(') {
        if (!PyTuple_Check(argument)) return NULL;
        types++;
        for (Py_ssize_t i = 0; types && *types != ')'; i++)
            types = i < PyTuple_GET_SIZE(argument) ? match(PyTuple_GET_ITEM(argument, i), types) : NULL;
        return types ? types + 1 : NULL;
    }
    int whole = PyLong_Check(argument) || PyArray_IsScalar(argument, Integer), fits = 0;
    if (*types == 'd' || *types == 'f') fits = PyFloat_Check(argument) || whole || PyArray_IsScalar(argument, Floating);
    if (*types == 'l') fits = whole;
    if (*types == '?') fits = PyBool_Check(argument) || PyArray_IsScalar(argument, Bool);
    return fits ? types + 1 : NULL;
}

typedef struct {
    PyObject_HEAD
    vectorcallfunc call;
    int first, count; /* lines of the table */
    PyObject *otherwise;
} Entry;

static PyObject *call_entry(PyObject *self, PyObject *const *args, size_t flags, PyObject *names) {
    Entry *entry = (Entry *)self;
    Py_ssize_t n = PyVectorcall_NARGS(flags);
    for (int k = entry->first; k < entry->first + entry->count && !names; k++) {
        const char *types = strchr(problm_compiled[k].types, ':') + 1;
        Py_ssize_t i = 0;
        while (i < n && *types && (types = match(args[i], types))) i++;
        if (!types || i < n || *types || !problm_compiled[k].entry) continue;
        PyObject *tuple = PyTuple_New(n);
        if (!tuple) return NULL;
        for (i = 0; i < n; i++) {
            Py_INCREF(args[i]);
            PyTuple_SET_ITEM(tuple, i, args[i]);
        }
        PyObject *result = problm_compiled[k].entry(NULL, tuple, NULL);
        Py_DECREF(tuple);
        return result;
    }
    return PyObject_Vectorcall(entry->otherwise, args, flags, names);
}

static void free_entry(PyObject *self) {
    Py_XDECREF(((Entry *)self)->otherwise);
    PyObject_Free(self);
}

static PyTypeObject EntryType = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "problm.Entry",
    .tp_basicsize = sizeof(Entry),
    .tp_dealloc = free_entry,
    .tp_vectorcall_offset = offsetof(Entry, call),
    .tp_call = PyVectorcall_Call,
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL,
};

static PyObject *make_entry(PyObject *module, PyObject *args) {
    int first, count;
    PyObject *otherwise;
    if (!PyArg_ParseTuple(args, "iiO", &first, &count, &otherwise)) return NULL;
    Entry *entry = PyObject_New(Entry, &EntryType);
    if (!entry) return NULL;
    Py_INCREF(otherwise);
    entry->call = call_entry, entry->first = first, entry->count = count, entry->otherwise = otherwise;
    return (PyObject *)entry;
}

static PyObject *table(PyObject *module, PyObject *none) {
    PyObject *lines = PyList_New(problm_compiled_count);
    for (int k = 0; lines && k < problm_compiled_count; k++) {
        const Compiled *c = problm_compiled + k;
        PyObject *line = Py_BuildValue("sssn", c->name, c->digest, c->types, (Py_ssize_t)c->code);
        if (!line) Py_CLEAR(lines);
        else PyList_SET_ITEM(lines, k, line);
    }
    return lines;
}

static PyTypeObject EnvironmentType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "problm.Environment", .tp_basicsize = sizeof(Environment),
};

static int prepare(const Compiled *c) {
    Environment *environment = PyObject_New(Environment, &EnvironmentType);
    if (!environment) return -1;
    environment->globals = PyDict_New();
    environment->constants = c->constants_size ? numba_unpickle(c->constants, (int)c->constants_size, NULL) : PyList_New(0);
    if (!environment->globals || !environment->constants) return -1;
    for (Environment **e = c->environments; *e; e++) *(Environment **)*e = environment;
    return 0;
}

static PyMethodDef methods[] = {
    {"entry", make_entry, METH_VARARGS, "entry(first, count, otherwise): what Python calls"},
    {"table", table, METH_NOARGS, "table(): name, digest, types and address of each function"},
    {NULL},
};

static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "problm_compiled", NULL, -1, methods};

PyMODINIT_FUNC PyInit_problm_compiled(void) {
    import_array();
    if (PyType_Ready(&EntryType) < 0 || PyType_Ready(&EnvironmentType) < 0) return NULL;
    for (int k = 0; k < problm_compiled_count; k++)
        if (prepare(problm_compiled + k) < 0) return NULL;
    return PyModule_Create(&definition);
}
