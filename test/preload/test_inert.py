"""Preloaded into programs that never use NCCL, the file changes nothing."""
import re
import shutil
import subprocess
import unittest

from harness import *

COMMANDS = [["/bin/true"], ["bash", "-c", "true"], ["bash", "-c", "exit 3"], ["sh", "-c", "echo $((6 * 7))"],
            ["env", "echo", "x"], [PYTHON, "-c", "1"], ["gcc", "--version"], ["ninja", "--version"],
            ["cmake", "--version"], ["ls", "/"], ["sh", "-c", "cat /dev/null | sort | wc -l"],
            ["nvidia-smi", "--version"], ["perl", "-e", "print 1"], ["no-such-program-here"]]

# What a process looks like from inside, after everything that could have started has started.
SELF = """
import os, threading, time
time.sleep(0.05)
print(len(os.listdir('/proc/self/task')))
names = sorted({line.split()[-1].rsplit('/', 1)[-1] for line in open('/proc/self/maps') if '/' in line})
print([name for name in names if 'shunt' in name or 'cuda' in name or 'stdc++' in name])
print(sorted(os.listdir('/proc/self/fd')))
"""


class Inert(Case):
    def test_same_output_and_status(self):
        for command in COMMANDS:
            with self.subTest(command=command):
                if shutil.which(command[0]) is None:
                    continue
                plain = run(command)
                loaded = run(command, [paths.SHUNT])
                self.assertEqual((loaded.status, loaded.stdout, loaded.stderr, loaded.trace),
                                 (plain.status, plain.stdout, plain.stderr, plain.trace))

    def test_no_thread_no_library_no_file(self):
        plain = python(SELF, preload=())
        loaded = python(SELF, preload=[BESIDE])
        self.assertEqual(loaded.stdout, plain.stdout.replace("[]", "['libnccl-shunt.so']"))
        self.assertEqual(loaded.trace, [])

    def test_links_libc_only(self):
        dynamic = subprocess.run(["readelf", "-dW", paths.SHUNT], capture_output=True, text=True,
                                 check=True).stdout
        self.assertEqual(re.findall(r"\(NEEDED\).*\[(.*)\]", dynamic), ["libc.so.6"])
        self.assertEqual(re.findall(r"\((?:SONAME|RUNPATH|RPATH|TEXTREL)\)", dynamic), [])

    def test_exports_the_hooked_names_and_dlsym(self):
        symbols = subprocess.run(["nm", "-D", "--defined-only", paths.SHUNT], capture_output=True, text=True,
                                 check=True).stdout
        functions = {line.split()[2].split("@")[0] for line in symbols.splitlines()
                     if not line.split()[2].startswith("GLIBC_")}  # the version nodes of dlsym
        self.assertEqual(functions, set(hooked_names()) | {"dlsym"})

    def test_nothing_runs_at_load(self):
        sections = subprocess.run(["readelf", "-SW", paths.SHUNT], capture_output=True, text=True,
                                  check=True).stdout
        size = int(re.search(r"\.init_array\s+INIT_ARRAY\s+\w+ \w+ (\w+)", sections).group(1), 16)
        self.assertEqual(size, 8, "more than the compiler's own frame_dummy runs before main")


if __name__ == "__main__":
    unittest.main()
