"""With the NCCL that is installed, and with the emulated one: what works without a GPU."""
import unittest

from harness import *

SCRIPT = """
import ctypes
library = ctypes.CDLL({path!r})
version = ctypes.c_int()
assert library.ncclGetVersion(ctypes.byref(version)) == 0 and version.value > 21800
library.ncclGetErrorString.restype = ctypes.c_char_p
assert library.ncclGetErrorString(0) == b"no error"
assert library.ncclGroupStart() == 0 and library.ncclGroupEnd() == 0
all_reduce = library.ncclAllReduce
all_reduce.argtypes = [ctypes.c_void_p] * 7
assert all_reduce(0, 0, 1, 7, 0, 0, 0) == 4  # no communicator: NCCL says invalid argument
print("asserted")
"""


def installed_nccl():
    names = ("libnccl.so.2",)
    for folder in ("lib", "lib64", "targets/x86_64-linux/lib", "targets/sbsa-linux/lib"):
        path = os.path.join(paths.CUDA_HOME, folder, names[0])
        if os.path.exists(path):
            return path
    return find_library(names)


class Loaded(Case):
    def use(self, path, name):
        if path is None or not os.path.exists(path):
            self.skipTest(f"no {name} here")
        plain = python(SCRIPT.format(path=path), preload=())
        if plain.status != 0:
            self.skipTest(f"{name} does not work without us: {plain.stderr.splitlines()[-1:]}")
        loaded = python(SCRIPT.format(path=path))
        self.check(loaded, stdout=plain.stdout, stderr=plain.stderr)
        base = os.path.basename(path)
        self.assertEqual([line.replace(os.path.basename(os.path.realpath(path)), base)
                          for line in loaded.trace],
                         ["engine:opened"] + [f"engine {base}:{function}" for function in
                                              ("ncclGroupStart", "ncclGroupEnd", "ncclAllReduce")])

    def test_installed(self):
        self.use(installed_nccl(), "installed NCCL")

    def test_emulated(self):
        self.use(paths.EMULATED_NCCL, "emulated NCCL")


if __name__ == "__main__":
    unittest.main()
