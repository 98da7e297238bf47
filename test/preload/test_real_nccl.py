"""With the NCCL that is installed, and with the emulated one: what works without a GPU. nccl_versions.py runs
the same with every version that it is given."""
import unittest

from harness import *

NO_GPU = {"CUDA_VISIBLE_DEVICES": ""}  # an operation is refused everywhere alike

LOOKED_UP = """
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

# For each name: which library answers a look-up, if any.
ANSWERS = """
import ctypes, os
class Info(ctypes.Structure):
    _fields_ = [("file", ctypes.c_char_p), ("base", ctypes.c_void_p), ("name", ctypes.c_char_p),
                ("address", ctypes.c_void_p)]
dladdr = ctypes.CDLL(None).dladdr
dladdr.argtypes = [ctypes.c_void_p, ctypes.POINTER(Info)]
library = ctypes.CDLL({path!r})
for name in {names!r}:
    try:
        address = ctypes.cast(getattr(library, name), ctypes.c_void_p)
    except AttributeError:
        print(name, "-")
        continue
    info = Info()
    assert dladdr(address, ctypes.byref(info)) != 0
    print(name, os.path.realpath(info.file.decode()))
"""


def installed_nccl():
    names = ("libnccl.so.2",)
    for folder in ("lib", "lib64", "targets/x86_64-linux/lib", "targets/sbsa-linux/lib"):
        path = os.path.join(paths.CUDA_HOME, folder, names[0])
        if os.path.exists(path):
            return path
    return find_library(names)


class RealNccl:
    """The checks; `path` of a libnccl.so.2, `include`: the folder of its nccl.h or None, `name` for people."""
    path = include = name = None

    def setUp(self):
        if self.path is None or not os.path.exists(self.path):
            self.skipTest(f"no {self.name} here")
        plain = python(LOOKED_UP.format(path=self.path), preload=())
        if plain.status != 0:
            self.skipTest(f"{self.name} does not work without us: {plain.stderr.splitlines()[-1:]}")

    def need_header(self):
        if self.include is None:
            self.skipTest(f"no nccl.h of {self.name}")

    def test_looked_up_calls_pass_through_the_engine(self):
        plain = python(LOOKED_UP.format(path=self.path), preload=())
        loaded = python(LOOKED_UP.format(path=self.path))
        self.check(loaded, stdout=plain.stdout, stderr=plain.stderr)
        base = os.path.basename(self.path)
        self.assertEqual([line.replace(os.path.basename(os.path.realpath(self.path)), base)
                          for line in loaded.trace],
                         ["engine:opened"] + [f"engine {base}:{function}" for function in
                                              ("ncclGroupStart", "ncclGroupEnd", "ncclAllReduce")])

    def test_look_ups_answer_what_this_version_has(self):
        others = ["ncclGetVersion", "ncclGetUniqueId", "ncclCommCount", "pncclAllReduce", "ncclNoSuchName"]
        names = hooked_names() + others
        script = ANSWERS.format(path=self.path, names=names)
        plain, loaded = python(script, preload=()), python(script)
        self.check(plain)
        self.check(loaded)
        plain = dict(line.split(" ", 1) for line in plain.stdout.splitlines())
        loaded = dict(line.split(" ", 1) for line in loaded.stdout.splitlines())
        engine = os.path.realpath(out("beside", "libnccl-shunt-engine.so"))
        self.assertEqual(plain["ncclAllReduce"], os.path.realpath(self.path))
        for name in names:
            with self.subTest(name=name):
                hooked = name not in others and plain[name] != "-"
                self.assertEqual(loaded[name], engine if hooked else plain[name])

    def test_header_and_library_agree_with_the_hooks(self):
        self.need_header()
        wanted = hooked_names_of(self.include)
        exported = exported_names(self.path)
        for name in wanted:
            with self.subTest(name=name):
                self.assertIn(name, exported)
                self.assertIn("p" + name, exported)
        # Neither a version that is too new in the list nor an operation that nobody has noticed.
        self.assertEqual([name for name in hooked_names() if name in exported and name not in wanted], [])
        self.assertEqual([name for name in operations(self.include) if name not in wanted], [])

    def test_hooks_compile_with_its_header(self):
        self.need_header()
        for source in ("shim/engine/wrappers.cc", "shim/engine/nccl_library.cc", "shim/engine/gather.cc",
                       "shim/preload/hook_entries.cc"):
            with self.subTest(source=source):
                done = compiler(self.include, "-fsyntax-only", "-Wall", "-Wextra", "-Werror",
                                os.path.join(paths.SOURCE, source))
                self.assertEqual((done.returncode, done.stderr), (0, ""))

    def test_linked_calls_give_what_this_version_gives(self):
        self.need_header()
        with tempfile.TemporaryDirectory(prefix="shunt-nccl-") as folder:
            program = os.path.join(folder, "calls")
            built = compiler(self.include, os.path.join(paths.SOURCE, "test/preload/real_nccl_calls.cc"),
                             self.path, "-o", program)
            self.assertEqual((built.returncode, built.stderr), (0, ""))
            env = {"LD_LIBRARY_PATH": os.path.dirname(self.path), **NO_GPU}
            plain = run([program], env=env)
            self.check(plain)
            self.assertRegex(plain.stdout, r"\nncclAllReduce 4: ")
            self.assertRegex(plain.stdout, r"\nno GPU [1-6]: ")
            loaded = run([program], [BESIDE], env=env)
            self.check(loaded, stdout=plain.stdout)
            traced = {line.split(":")[1] for line in loaded.trace if line.startswith("engine ")}
            self.assertEqual(traced, set(hooked_names_of(self.include)))  # newer than this build's or not
            # The shipped engine: the same answers, and nothing said where nothing was made.
            untraced = ["env", "-u", "SHUNT_TRACE", program]
            self.check(run(untraced, [paths.SHUNT], env=env), stdout=plain.stdout)


class Installed(RealNccl, Case):
    path, include, name = installed_nccl(), paths.NCCL_INCLUDE, "installed NCCL"


class Emulated(RealNccl, Case):
    path, name = paths.EMULATED_NCCL, "emulated NCCL"


if __name__ == "__main__":
    unittest.main()
