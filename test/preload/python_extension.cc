// A Python extension that was linked with NCCL.
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "test/preload/user_calls.h"

static PyObject* use(PyObject*, PyObject*) { return PyLong_FromLong(user_calls()); }

static PyMethodDef methods[] = {{"use_nccl", use, METH_NOARGS, nullptr},
                                {nullptr, nullptr, 0, nullptr}};
static PyModuleDef definition = {PyModuleDef_HEAD_INIT,
                                 "shunt_extension",
                                 nullptr,
                                 -1,
                                 methods,
                                 nullptr,
                                 nullptr,
                                 nullptr,
                                 nullptr};

PyMODINIT_FUNC PyInit_shunt_extension() { return PyModule_Create(&definition); }
