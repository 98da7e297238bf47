"""Callers that look NCCL up by hand, and look-ups that are none of our business."""
import unittest

from harness import *

PROBE = program("dlsym_probe")
REDUCE = ("f = library.ncclAllReduce; f.argtypes = [ctypes.c_void_p] * 7\n"
          "assert f(0x11, 0x22, 33, 8, 2, 0xc0, 0x77) == 0\n")
A_REDUCE = ["engine libnccl.so.2:ncclAllReduce", "nccl A:ncclAllReduce(0x11,0x22,33,8,2,0xc0,0x77)"]


def by_handle(path):
    return f"import ctypes; library = ctypes.CDLL({path!r})\n" + REDUCE


class Ctypes(Case):
    def test_full_path(self):
        self.check(python(by_handle(NCCL_A)), ["engine:opened"] + A_REDUCE)

    def test_bare_name(self):
        self.check(python(by_handle("libnccl.so.2"), env={"LD_LIBRARY_PATH": out("a")}),
                   ["engine:opened"] + A_REDUCE)

    def test_two_libraries(self):
        b = [line.replace("libnccl.so.2", "libnccl-second.so.2").replace("nccl A", "nccl B")
             for line in A_REDUCE]
        self.check(python(by_handle(NCCL_A) + by_handle(NCCL_B) + by_handle(NCCL_A)),
                   ["engine:opened"] + A_REDUCE + b + A_REDUCE)

    def test_handle_of_a_library_that_needs_nccl(self):
        self.check(python(by_handle(user("libuser_a.so"))), ["engine:opened"] + A_REDUCE)

    def test_names_that_are_not_hooked(self):
        self.check(python(f"import ctypes; library = ctypes.CDLL({NCCL_A!r})\n"
                          "assert library.null_nccl_version() > 20000; library.pncclGroupStart()\n"),
                   ["nccl A:ncclGroupStart"])

    def test_function_that_this_nccl_lacks(self):
        script = (f"import ctypes; library = ctypes.CDLL({NCCL_2_18!r})\n"
                  "assert not hasattr(library, 'ncclCommShrink') and hasattr(library, 'ncclAllReduce')")
        self.check(python(script), ["engine:opened"])

    def test_switched_off(self):
        for value in ("0", "off", "FALSE", "no", ""):
            self.check(python(by_handle(NCCL_A), env={"SHUNT_DLSYM": value}), A_REDUCE[1:])
        for value in ("1", "on", "yes", "nonsense"):
            self.check(python(by_handle(NCCL_A), env={"SHUNT_DLSYM": value}), ["engine:opened"] + A_REDUCE)

    def test_not_switched_off_in_set_uid_programs(self):
        self.check(python(by_handle(NCCL_A), env={"SHUNT_DLSYM": "0"},
                          preload=[BESIDE, user("libset_uid.so")]), ["engine:opened"] + A_REDUCE)

    def test_no_engine(self):
        result = python(by_handle(NCCL_A), preload=[ALONE])
        self.assertEqual(result.trace, A_REDUCE[1:])
        self.assertEqual(result.stderr.count("\n"), 1)

    def test_address_of_the_wrapper_is_stable(self):
        self.check(python(f"import ctypes; library = ctypes.CDLL({NCCL_A!r})\n"
                          "address = lambda: ctypes.cast(library['ncclAllReduce'], ctypes.c_void_p).value\n"
                          "assert address() == address()"), ["engine:opened"])


class Global(Case):
    """RTLD_DEFAULT and the program's own handle, where our exported names come first."""

    NAMES = ["default:ncclAllReduce", "self:ncclAllReduce"]

    def test_no_nccl_here_means_no_such_symbol(self):
        for preload in ([], [BESIDE]):
            result = run([PROBE] + self.NAMES, preload)
            for line in result.stdout.splitlines():
                self.assertRegex(line, r"^ncclAllReduce null: .*undefined symbol: ncclAllReduce twice; clean$")
            self.assertEqual((result.stderr, result.trace), ("", []))

    def test_ctypes_on_the_process(self):
        script = f"import ctypes; ctypes.CDLL({NCCL_A!r}, mode={{}}); library = ctypes.CDLL(None)\n" + REDUCE
        self.check(python(script.format("ctypes.RTLD_GLOBAL")), ["engine:opened"] + A_REDUCE)
        local = python(script.format("ctypes.RTLD_LOCAL"))
        self.assertEqual((local.status, local.trace), (1, []))
        self.assertIn("undefined symbol: ncclAllReduce", local.stderr)
        self.assertEqual(python(script.format("ctypes.RTLD_LOCAL"), preload=()).status, 1)

    def test_old_nccl_lacks_it_also_in_the_global_scope(self):
        script = (f"import ctypes; ctypes.CDLL({NCCL_2_18!r}, mode=ctypes.RTLD_GLOBAL)\n"
                  "library = ctypes.CDLL(None)\n"
                  "assert not hasattr(library, 'ncclCommShrink') and hasattr(library, 'ncclSend')")
        self.check(python(script), [])

    def test_replacement_without_profiling_names(self):
        script = (f"import ctypes; ctypes.CDLL({NCCL_BARE!r}, mode=ctypes.RTLD_GLOBAL)\n"
                  "library = ctypes.CDLL(None)\n" + REDUCE)
        self.check(python(script), ["nccl bare:ncclAllReduce(0x11,0x22,33,8,2,0xc0,0x77)"])

    def test_caller_that_was_linked_with_a_local_nccl(self):
        script = (f"import ctypes; library = ctypes.CDLL({user('libuser_a.so')!r})\n"
                  "library.look_up_default.restype = ctypes.c_int\nassert library.look_up_default() == 0")
        self.check(python(script), ["engine:opened"] + A_REDUCE)

    def test_caller_that_was_linked_with_none(self):
        script = (f"import ctypes; library = ctypes.CDLL({user('libuser_of_none.so')!r})\n"
                  "library.look_up_default.restype = ctypes.c_int\nassert library.look_up_default() == -1")
        self.check(python(script), [])


class Unchanged(Case):
    """What dlsym answers about everything else: the same file and offset, twice, and the same dlerror."""

    def test_same_answers(self):
        arguments = ["default:getpid", "self:strlen", "next:malloc", "next:no_such_name",
                     "default:no_such_name", "libm.so.6:cos", "libm.so.6:no_such_name",
                     f"{NCCL_A}:pncclAllReduce", f"{NCCL_A}:null_nccl_version", f"{NCCL_A}:ncclNoSuch",
                     f"{user('libnext.so')}:ncclAllReduce", f"{user('libnext.so')}:probe_marker",
                     "next:ncclNetPlugin_v8"]
        plain = run([PROBE] + arguments)
        self.assertIn("cos libm.so.6", plain.stdout)
        loaded = run([PROBE] + arguments, [BESIDE])
        self.assertEqual(loaded.stdout, plain.stdout)
        self.check(loaded, [])

    def test_no_message_is_left_by_what_we_answer(self):
        result = run([PROBE, f"{NCCL_A}:ncclAllReduce"], [BESIDE])
        self.assertRegex(result.stdout, r"^ncclAllReduce libnccl-shunt-engine\.so\+\d+ twice; clean$")
        # The first look-up makes the engine ask for functions that an old NCCL lacks.
        script = (f"import ctypes; message = ctypes.CDLL(None).dlerror; library = ctypes.CDLL({NCCL_2_18!r})\n"
                  "message.restype = ctypes.c_char_p; message()\n"
                  "assert library['ncclAllReduce'] and message() is None")
        self.check(python(script), ["engine:opened"])

    def test_next_of_a_hooked_name_is_never_answered(self):
        """RTLD_NEXT in the program leads past it, to us; in a library behind us to NCCL itself."""
        script = (f"import ctypes; ctypes.CDLL({NCCL_A!r}, mode=ctypes.RTLD_GLOBAL)\n"
                  f"library = ctypes.CDLL({user('libnext.so')!r}, mode=ctypes.RTLD_GLOBAL)\n"
                  "library.probe_next.restype = ctypes.c_char_p\n"
                  "print(library.probe_next(b'ncclAllReduce').decode())")
        plain = python(script, preload=())
        loaded = python(script)
        self.assertEqual(loaded.stdout, plain.stdout)
        self.check(loaded, [])

    def test_next_of_a_preloaded_library(self):
        for order in ([BESIDE, user("libnext.so")], [user("libnext.so"), BESIDE]):
            script = ("import ctypes; library = ctypes.CDLL(None)\n"
                      "library.probe_next.restype = ctypes.c_char_p\n"
                      "print(*[library.probe_next(n).decode() for n in (b'malloc', b'write', b'probe_marker')])")
            plain = python(script, preload=[user("libnext.so")])
            loaded = python(script, preload=order)
            self.assertIn("twice", plain.stdout)
            self.assertEqual(loaded.stdout, plain.stdout)
            self.check(loaded, [])

    def test_unwinding_through_the_trampoline(self):
        result = python(by_handle(NCCL_A), env={"SHUNT_FAKE_BACKTRACE": "1"})
        frames = [line for line in result.trace if line.startswith("frame:")]
        self.assertEqual(frames[0], "frame:libnccl-shunt-engine.so")
        self.assertIn("frame:libnccl-shunt.so", frames)
        self.assertIn("frame:libc.so.6", frames[-3:], "main's caller was not reached")
        linked = run([program("linked_program")], [BESIDE], {"SHUNT_FAKE_BACKTRACE": "1"})
        frames = [line for line in linked.trace if line.startswith("frame:")]
        self.assertIn("frame:linked_program", frames)


if __name__ == "__main__":
    unittest.main()
