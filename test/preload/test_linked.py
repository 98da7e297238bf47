"""Callers that were linked with NCCL: each reaches its own library, by way of the engine."""
import unittest

from harness import *

LOAD = "import ctypes; library = ctypes.CDLL({!r}, mode={}); assert library.use_nccl() == 0\n"


class Program(Case):
    def test_every_argument_arrives(self):
        self.check(run([program("linked_program")], [BESIDE]), A_CALLS, "result 0\n")

    def test_without_preload_nothing_changes_but_the_engine(self):
        self.check(run([program("linked_program")]),
                   user_calls("libnccl.so.2", "A", engine=False), "result 0\n")

    def test_bound_at_start(self):
        self.check(run([program("linked_now")], [BESIDE]), A_CALLS, "result 0\n")

    def test_relative_preload_and_another_folder(self):
        script = f"import os, ctypes; os.chdir('/'); ctypes.CDLL({user('libuser_a.so')!r}).use_nccl()"
        self.check(run([PYTHON, "-c", script], ["./libnccl-shunt.so"], cwd=out("beside")), A_CALLS)

    def test_child_of_a_parent_that_never_used_nccl(self):
        self.check(run([program("linked_program"), "fork"], [BESIDE]), A_CALLS)

    def test_first_calls_of_eight_threads_at_once(self):
        for _ in range(20):
            result = run([program("linked_program"), "threads"], [BESIDE])
            self.check(result)
            self.assertEqual(sorted(line for line in result.trace if line != "engine:opened"),
                             sorted(8 * A_CALLS[1:]))


class Library(Case):
    def test_local(self):
        self.check(python(LOAD.format(user("libuser_a.so"), "ctypes.RTLD_LOCAL")), A_CALLS)

    def test_global(self):
        self.check(python(LOAD.format(user("libuser_a.so"), "ctypes.RTLD_GLOBAL")), A_CALLS)

    def test_two_libraries_each_with_its_own_caller(self):
        both = LOAD.format(user("libuser_a.so"), 0) + LOAD.format(user("libuser_b.so"), 0)
        once = ["engine:opened"]
        a = user_calls("libnccl.so.2", "A")
        b = user_calls("libnccl-second.so.2", "B")
        self.check(python(both), once + a + b)
        self.check(python(both + both), once + a + b + a + b)

    def test_a_global_one_wins_as_in_the_dynamic_linker(self):
        script = (f"import ctypes; ctypes.CDLL({NCCL_A!r}, mode=ctypes.RTLD_GLOBAL)\n"
                  + LOAD.format(user("libuser_b.so"), 0))
        self.check(python(script), A_CALLS)
        self.assertEqual(python(script, preload=()).trace,
                         user_calls("", "A", engine=False))

    def test_caller_linked_with_none_gets_the_only_one(self):
        script = (f"import ctypes; ctypes.CDLL({NCCL_A!r})\n" + LOAD.format(user("libuser_of_none.so"), 0))
        self.check(python(script), A_CALLS)

    def test_caller_linked_with_none_gets_the_first_and_a_warning(self):
        script = (f"import ctypes; ctypes.CDLL({NCCL_B!r}); ctypes.CDLL({NCCL_A!r})\n"
                  + 2 * LOAD.format(user("libuser_of_none.so"), 0))
        calls = user_calls("libnccl-second.so.2", "B")
        self.check(python(script), ["engine:opened"] + 2 * calls,
                   stderr="fake engine: several NCCL libraries are loaded and a caller is linked with none "
                          f"of them; it gets the first (SHUNT_NCCL=path names another): {NCCL_B}\n")

    def test_setting_names_the_library_for_callers_linked_with_none(self):
        script = (f"import ctypes; ctypes.CDLL({NCCL_B!r})\n" + LOAD.format(user("libuser_of_none.so"), 0)
                  + LOAD.format(user("libuser_b.so"), 0))
        self.check(python(script, env={"SHUNT_NCCL": NCCL_A}),
                   A_CALLS + user_calls("libnccl-second.so.2", "B"))

    def test_setting_is_not_read_in_set_uid_programs(self):
        script = f"import ctypes; ctypes.CDLL({NCCL_B!r})\n" + LOAD.format(user("libuser_of_none.so"), 0)
        self.check(python(script, env={"SHUNT_NCCL": NCCL_A}, preload=[BESIDE, user("libset_uid.so")]),
                   ["engine:opened"] + user_calls("libnccl-second.so.2", "B"))

    def test_setting_that_names_no_nccl(self):
        script = (f"import ctypes; ctypes.CDLL({NCCL_A!r})\n" + LOAD.format(user("libuser_of_none.so"), 0))
        self.check(python(script, env={"SHUNT_NCCL": "/nowhere.so"}), A_CALLS,
                   stderr="fake engine: SHUNT_NCCL does not name an NCCL library: /nowhere.so\n")

    def test_no_nccl_at_all(self):
        script = (f"import ctypes; library = ctypes.CDLL({user('libuser_of_none.so')!r})\n"
                  "assert library.use_nccl() == 1")
        self.check(python(script), [],
                   stderr="nccl-shunt: ncclCommInitRank was called, and no NCCL library is loaded\n")

    def test_nccl_linked_into_its_caller(self):
        name = "libuser_with_nccl_inside.so"
        result = python(LOAD.format(user(name), 0))
        # From where they come, NCCL's own calls look like the user's: the engine knows that it is in one.
        nested = {line for line in result.trace if line.startswith("nested")}
        self.assertIn(f"nested {name}:ncclCommGetAsyncError", nested)
        result.trace = [line for line in result.trace if line not in nested]
        self.check(result, ["engine:opened"] + user_calls(name, "inside"))

    def test_replacement_without_profiling_names_is_left_alone(self):
        script = (f"import ctypes; ctypes.CDLL({NCCL_BARE!r}, mode=ctypes.RTLD_GLOBAL)\n"
                  + LOAD.format(user("libuser_of_none.so"), 0))
        calls = user_calls("", "bare", engine=False)
        self.check(python(script), calls)

    def test_nccl_linked_into_its_caller_and_a_global_one(self):
        """The dynamic linker binds such a caller to the global one, names that are not hooked too."""
        script = (f"import ctypes; ctypes.CDLL({NCCL_A!r}, mode=ctypes.RTLD_GLOBAL)\n"
                  + LOAD.format(user("libuser_with_nccl_inside.so"), 0))
        self.assertEqual(python(script, preload=()).trace, user_calls("", "A", engine=False))
        self.check(python(script), A_CALLS)

    def test_nccl_stays_when_its_caller_goes(self):
        script = ("import ctypes, _ctypes\n"
                  "for _ in range(3):\n"
                  f"    library = ctypes.CDLL({user('libuser_a.so')!r}); assert library.use_nccl() == 0\n"
                  "    _ctypes.dlclose(library._handle)\n"
                  "names = {line.split()[-1].rsplit('/', 1)[-1] for line in open('/proc/self/maps')}\n"
                  "print('libuser_a.so' in names, 'libnccl.so.2' in names)")
        self.check(python(script), A_CALLS[:1] + 3 * A_CALLS[1:], "False True\n")

    def test_more_call_sites_than_fit_where_they_belong(self):
        script = (f"import ctypes; library = ctypes.CDLL({user('libuser_a.so')!r})\n"
                  "for _ in range(3): assert library.use_crowded_sites() == 0")
        once = ["engine libnccl.so.2:ncclGroupEnd", "nccl A:ncclGroupEnd"]
        self.check(python(script), ["engine:opened"] + 3 * 32 * once)

    @unittest.skipUnless(paths.HAS_EXTENSION, "no Python headers")
    def test_python_extension_global_and_local(self):
        for flags in ("os.RTLD_GLOBAL | os.RTLD_NOW", "os.RTLD_LOCAL | os.RTLD_NOW"):
            self.check(python(f"import os, sys; sys.path.insert(0, {user('')!r})\n"
                              f"sys.setdlopenflags({flags}); import shunt_extension\n"
                              "assert shunt_extension.use_nccl() == 0"), A_CALLS)


class OldNccl(Case):
    def test_everything_that_it_has(self):
        script = LOAD.format(user("libuser_of_none.so"), 0)
        script = f"import ctypes; ctypes.CDLL({NCCL_2_18!r})\n" + script
        self.check(python(script), ["engine:opened"] + user_calls("libnccl.so.2", "2.18"))

    def test_what_it_lacks_is_refused_with_a_line(self):
        script = (f"import ctypes; ctypes.CDLL({NCCL_2_18!r})\n"
                  f"assert ctypes.CDLL({user('libuser_of_none.so')!r}).use_new_function() == 5")
        self.check(python(script), ["engine:opened"],
                   stderr="nccl-shunt: ncclCommRevoke is not in the NCCL of its caller\n")


class NoEngine(Case):
    REAL = user_calls("libnccl.so.2", "A", engine=False)

    def test_missing(self):
        result = run([program("linked_program")], [ALONE])
        self.check(result, self.REAL, "result 0\n", stderr=result.stderr)
        self.assertRegex(result.stderr, r"\Anccl-shunt: cannot load the engine: [^\n]*"
                                        r"libnccl-shunt-engine\.so[^\n]*; every call goes to NCCL\n\Z")

    def test_of_another_build(self):
        self.check(run([program("linked_program")], [OTHER]), ["engine:opened"] + self.REAL, "result 0\n",
                   stderr="nccl-shunt: of another build than libnccl-shunt.so: libnccl-shunt-engine.so; "
                          "every call goes to NCCL\n")


    def test_every_name_leads_to_its_own_function(self):
        """Without an engine, since nobody then looks at the arguments, of which there are none."""
        own = {"ncclBcast": ["ncclBroadcast"], "ncclRecv": ["ncclGroupStart"],
               "ncclCommFinalize": ["ncclCommGetAsyncError"]}
        names = [name for name in hooked_names() if name not in ("ncclAllReduce", "ncclCommInitRank")]
        self.assertGreater(len(names), 15)
        script = f"import ctypes; assert ctypes.CDLL({user('libuser_a.so')!r}).use_every_function() == 0"
        result = python(script, preload=[ALONE])
        self.assertEqual(result.trace, [f"nccl A:{called}" for name in names
                                        for called in [name] + own.get(name, [])])


class Static(Case):
    def test_program_with_nccl_inside_says_so_at_exit(self):
        line = "nccl-shunt: NCCL is linked into this program: none of its calls could be intercepted\n"
        result = run([program("static_program")], [BESIDE])
        self.check(result, stdout="result 0\n", stderr=line)
        self.assertNotIn("engine:opened", result.trace)

    def test_quiet_without_the_preload_and_for_programs_that_use_cuda_only(self):
        self.check(run([program("static_program")]), stdout="result 0\n")
        script = f"import ctypes; ctypes.CDLL({out('cuda', 'libcuda.so.1')!r})"
        self.check(python(script), [])
        self.check(python(script + f"; ctypes.CDLL({NCCL_A!r})"), [])


if __name__ == "__main__":
    unittest.main()
