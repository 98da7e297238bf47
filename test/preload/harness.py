"""Starts programs with the preloaded file in front and reads back what was traced (trace.h)."""
import os
import re
import subprocess
import sys
import tempfile
import unittest
from dataclasses import dataclass

import paths

PYTHON = sys.executable
JEMALLOC_NAMES = ("libjemalloc.so.2", "libjemalloc.so.1")


def out(*parts):
    return os.path.join(paths.OUT, *parts)


BESIDE = out("beside", "libnccl-shunt.so")  # with the fake engine
ALONE = out("alone", "libnccl-shunt.so")  # no engine
OTHER = out("other", "libnccl-shunt.so")  # an engine of another build
NCCL_A = out("a", "libnccl.so.2")
NCCL_B = out("b", "libnccl-second.so.2")
NCCL_2_18 = out("old", "libnccl.so.2")
NCCL_BARE = out("bare", "libnccl.so.2")


def user(name):
    return out("users", name)


def program(name):
    return out("bin", name)


@dataclass
class Result:
    status: int
    stdout: str
    stderr: str
    trace: list


def run(command, preload=(), env=None, cwd=None, timeout=120):
    """Runs `command` with LD_PRELOAD set to `preload` and nothing of ours in the environment."""
    with tempfile.NamedTemporaryFile(prefix="shunt-trace-") as trace:
        environment = {k: v for k, v in os.environ.items()
                       if not k.startswith(("SHUNT_", "NCCL_", "LD_", "PYTHONPATH"))}
        environment["SHUNT_TRACE"] = trace.name
        if preload:
            environment["LD_PRELOAD"] = ":".join(preload)
        environment.update(env or {})
        done = subprocess.run(command, env=environment, cwd=cwd, timeout=timeout,
                              capture_output=True, text=True, stdin=subprocess.DEVNULL)
        with open(trace.name) as lines:
            return Result(done.returncode, done.stdout, done.stderr, lines.read().splitlines())


def python(script, preload=(BESIDE,), **options):
    return run([PYTHON, "-c", script], preload, **options)


def find_library(names, folders=("/usr/lib", "/usr/lib64", "/usr/local/lib", "/lib")):
    """The path of an installed library, as the dynamic linker's cache or these folders have it."""
    listing = ""
    for tool in ("ldconfig", "/sbin/ldconfig"):
        try:
            listing = subprocess.run([tool, "-p"], capture_output=True, text=True).stdout
            break
        except FileNotFoundError:
            continue
    for name in names:
        for line in listing.splitlines():
            if line.strip().startswith(name + " "):
                return line.split("=>")[1].strip()
        for folder in folders:
            if os.path.exists(os.path.join(folder, name)):
                return os.path.join(folder, name)
    return None


def compiler(include, *arguments, **options):
    """The compiler of this build, with the nccl.h of the folder `include`."""
    command = [paths.CXX, "-std=c++20", "-I", paths.SOURCE, "-I", include, "-isystem", paths.CUDA_INCLUDE]
    return subprocess.run(command + list(arguments), capture_output=True, text=True, **options)


def names_in_hooks(header, include):
    source = f'#include "{header}"\n#define NAME(name) <name>\nSHUNT_HOOKS(NAME)\n'
    text = compiler(include, "-E", "-P", "-x", "c++", "-", input=source, check=True).stdout
    return re.findall(r"<(nccl\w+)>", text)


def hooked_names():
    """SHUNT_HOOKS, as the compiler of this build expands it."""
    return names_in_hooks("shim/hooks.h", paths.NCCL_INCLUDE)


def hooked_names_of(include):
    """Those that the nccl.h of the folder `include` has, according to the versions in shim/hooks.h."""
    return names_in_hooks("test/preload/hooks_of_version.h", include)


def operations(include):
    """The functions of nccl.h that put work of a communicator on a stream."""
    text = compiler(include, "-E", "-P", "-x", "c++", "-", input="#include <nccl.h>\n", check=True).stdout
    found = []
    for name, arguments in re.findall(r"\bncclResult_t\s+(nccl\w+)\s*\(([^)]*)\)", text):
        if "ncclComm_t" in arguments and "cudaStream_t" in arguments:
            found.append(name)
    return found


def exported_names(path):
    listing = subprocess.run(["nm", "-D", "--defined-only", path], capture_output=True, text=True, check=True)
    return {line.split()[-1].split("@")[0] for line in listing.stdout.splitlines()}


def unique_id_sum():
    return sum((i + 1) * ((i * 7 + 3) & 0xFF) for i in range(128))


def user_calls(library, name, engine=True):
    """The trace of user_calls.h: NCCL's own calls of its public names do not pass through the engine."""
    def call(function, detail=""):
        lines = [f"engine {library}:{function}"] if engine else []
        return lines + [f"nccl {name}:{function}{detail}"]

    def own(function):
        return [f"nccl {name}:{function}"]

    return (call("ncclCommInitRank", f"(4,{unique_id_sum()},3)") + call("ncclGroupStart")
            + call("ncclAllReduce", "(0x11,0x22,33,8,2,0xc0,0x77)") + call("ncclGroupEnd")
            + call("ncclBcast") + own("ncclBroadcast") + call("ncclRecv") + own("ncclGroupStart")
            + call("ncclCommFinalize") + own("ncclCommGetAsyncError"))


A_CALLS = ["engine:opened"] + user_calls("libnccl.so.2", "A")


class Case(unittest.TestCase):
    maxDiff = None

    def check(self, result, trace=None, stdout=None, stderr="", status=0):
        self.assertEqual(result.stderr, stderr)
        self.assertEqual(result.status, status, result.stdout)
        if stdout is not None:
            self.assertEqual(result.stdout, stdout)
        if trace is not None:
            self.assertEqual(result.trace, trace)
