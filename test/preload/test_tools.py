"""Together with other preloaded tools: other dlsym hooks, allocators, sanitizers, replaced NCCLs."""
import subprocess
import unittest

from harness import *
from test_lookups import A_REDUCE, by_handle

TOOL = user("libdlsym_tool.so")
PLAIN_TOOL = user("libdlsym_tool_plain.so")
SEEN = "tool:ncclAllReduce"


class OtherDlsym(Case):
    ORDERS = [[BESIDE, TOOL], [TOOL, BESIDE], [BESIDE, PLAIN_TOOL], [PLAIN_TOOL, BESIDE],
              [TOOL, BESIDE, PLAIN_TOOL]]

    def test_both_see_the_look_up_and_ours_answers(self):
        for order in self.ORDERS:
            with self.subTest(order=[path.rsplit("/", 1)[1] for path in order]):
                result = python(by_handle(NCCL_A), preload=order)
                self.check(result)
                self.assertIn(SEEN, result.trace)
                self.assertEqual([line for line in result.trace if not line.startswith("tool:")],
                                 ["engine:opened"] + A_REDUCE)

    def test_linked_calls(self):
        for order in self.ORDERS:
            with self.subTest(order=order):
                result = run([program("linked_program")], order)
                self.check(result, stdout="result 0\n")
                self.assertEqual([line for line in result.trace if not line.startswith("tool:")], A_CALLS)

    def test_next_look_ups_of_others(self):
        script = (f"import ctypes; library = ctypes.CDLL({user('libnext.so')!r}, mode=ctypes.RTLD_GLOBAL)\n"
                  "library.probe_next.restype = ctypes.c_char_p\n"
                  "print(*[library.probe_next(n).decode() for n in (b'malloc', b'probe_marker')])")
        plain = python(script, preload=[])
        for order in self.ORDERS:
            loaded = python(script, preload=order)
            self.check(loaded, stdout=plain.stdout)  # from anywhere else it is libnext's own
            self.assertIn("tool:probe_marker", loaded.trace)


class Allocator(Case):
    def test_jemalloc(self):
        jemalloc = find_library(JEMALLOC_NAMES)
        if jemalloc is None:
            self.skipTest("no jemalloc on this machine")
        for order in ([BESIDE, jemalloc], [jemalloc, BESIDE]):
            self.check(run(["/bin/true"], order), [])
            self.check(run([program("linked_program")], order), A_CALLS, "result 0\n")
            self.check(python(by_handle(NCCL_A), preload=order), ["engine:opened"] + A_REDUCE)
            script = "import ctypes; assert ctypes.CDLL(None).mallctl"  # jemalloc is really in use
            self.check(python(script, preload=order), [])


@unittest.skipUnless(paths.HAS_ASAN, "this compiler has no address sanitizer")
class Asan(Case):
    def test_program(self):
        needs = subprocess.run(["readelf", "-dW", program("linked_asan")], capture_output=True, text=True,
                               check=True).stdout
        preload = [BESIDE]
        if "libasan" in needs:  # a shared runtime wants to be first, whatever else is preloaded
            preload.insert(0, subprocess.run([paths.CXX, "-print-file-name=libasan.so"], text=True,
                                             capture_output=True, check=True).stdout.strip())
        for mode in ([], ["fork"], ["threads"]):
            result = run([program("linked_asan")] + mode, preload,
                         {"ASAN_OPTIONS": "detect_leaks=0"})
            self.check(result)
            self.assertEqual(sorted(set(result.trace)), sorted(set(A_CALLS)))


if __name__ == "__main__":
    unittest.main()
