"""What the GPU tests share: environments, groups of processes, the library's lines, the report."""

import argparse
import atexit
import functools
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
SKIPPED = 77  # ctest's SKIP_RETURN_CODE


def parser(description):
    p = argparse.ArgumentParser(description=description)
    p.add_argument("--build", default=os.path.join(TOP, "build"), help="build folder")
    p.add_argument("--emulated", action="store_true", help="on the emulated driver and NCCL")
    p.add_argument("--json", help="write the outcome to this file")
    p.add_argument("--verbose", action="store_true", help="show the output of passing processes too")
    return p


# ---- the machine ----------------------------------------------------------------------------------

def gpu_count():
    try:
        lines = subprocess.run(["nvidia-smi", "--list-gpus"], capture_output=True, text=True,
                               timeout=60).stdout.splitlines()
    except (OSError, subprocess.TimeoutExpired):
        return 0
    return sum(line.startswith("GPU ") for line in lines)


def one_gpu():
    """With ONE_GPU=1 two ranks share the first GPU, which then runs their kernels in turn. NCCL takes them for ranks of
    two hosts (NCCL_HOSTID), the library for ranks on two GPUs (FAULTY_GPU)."""
    return bool(os.environ.get("ONE_GPU"))


def on_one_gpu(env, rank):
    """The environment of a rank there, from that of a rank on a GPU of its own."""
    return {**env, "FAULTY_GPU": str(rank), "NCCL_HOSTID": str(rank), "NCCL_SOCKET_IFNAME": "lo"}


def has_torch():
    found = subprocess.run([sys.executable, "-c", "import torch"], capture_output=True, timeout=120)
    return found.returncode == 0


def nccl_library():
    """Full path of the real libnccl.so.2: NCCL_HOME, the wheel of PyTorch, the linker's cache."""
    folders = [os.path.join(os.environ.get("NCCL_HOME", "/nonexistent"), "lib")]
    try:
        import nvidia.nccl
        folders += [os.path.join(path, "lib") for path in nvidia.nccl.__path__]
    except ImportError:
        pass
    for folder in folders:
        if os.path.exists(os.path.join(folder, "libnccl.so.2")):
            return os.path.join(folder, "libnccl.so.2")
    try:
        cache = subprocess.run(["ldconfig", "-p"], capture_output=True, text=True).stdout
    except OSError:
        return None
    match = re.search(r"libnccl\.so\.2 .*=> (\S+)", cache)
    return match.group(1) if match else None


def require(*conditions):
    """conditions: (holds, what is missing). Ends the test as skipped at the first that does not hold."""
    for holds, missing in conditions:
        if not holds:
            print(f"skip: {missing}")
            sys.exit(SKIPPED)


def require_two_gpus(emulated):
    if not emulated:
        count, needed = gpu_count(), 1 if one_gpu() else 2
        require((count >= needed, f"{needed} GPUs are needed, {count} found"),
                (nccl_library(), "no libnccl.so.2 found (NCCL_HOME, NCCL wheel, ldconfig)"))


# ---- environments ---------------------------------------------------------------------------------

def library(build):
    return os.path.join(build, "lib", "libnccl-shunt.so")


def faulty_driver(build):
    return os.path.join(build, "lib", "libfaulty-driver.so")


@functools.cache
def emulated_cache():
    """A folder of this program's own: what is known of emulated GPUs is no matter for the user's cache."""
    folder = tempfile.mkdtemp(prefix="nccl-shunt-cache-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def environment(build, preload=True, emulated=False, also_preload=(), **settings):
    """The caller's environment without SHUNT_*, then `settings`; None removes a variable."""
    env = {k: v for k, v in os.environ.items() if not k.startswith("SHUNT_")}
    own = [library(build)] if preload else []
    own += also_preload
    if one_gpu() and faulty_driver(build) not in own:
        own.append(faulty_driver(build))
    names = own + env.pop("LD_PRELOAD", "").split()
    if names:
        env["LD_PRELOAD"] = ":".join(names)
    folder = os.path.join(build, "emulator") if emulated else os.path.dirname(nccl_library())
    env["LD_LIBRARY_PATH"] = ":".join(filter(None, [folder, env.get("LD_LIBRARY_PATH")]))
    env["PYTHONUNBUFFERED"] = "1"
    if emulated:
        env["XDG_CACHE_HOME"] = emulated_cache()
    if preload:
        env.update(SHUNT_ENABLE="on", SHUNT_STATS="1", SHUNT_LOG="info", SHUNT_CAP="fixed")
    for name, value in settings.items():
        if value is None:
            env.pop(name, None)
        else:
            env[name] = str(value)
    return env


# ---- groups of processes --------------------------------------------------------------------------

class Group:
    """Processes of one job: each in a session of its own, its output in a file, all killed at the end."""

    def __init__(self):
        self.folder = tempfile.mkdtemp(prefix="nccl-shunt-test-")
        self.processes = []
        self.outputs = []

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        for process in self.processes:
            self.kill(process)
        shutil.rmtree(self.folder, ignore_errors=True)

    def start(self, command, env):
        if one_gpu():  # this is the next rank
            env = on_one_gpu(env, len(self.processes))
        path = os.path.join(self.folder, f"output.{len(self.processes)}")
        with open(path, "w") as output:
            process = subprocess.Popen(command, env=env, stdin=subprocess.DEVNULL, stdout=output,
                                       stderr=subprocess.STDOUT, start_new_session=True)
        self.processes.append(process)
        self.outputs.append(path)
        return process

    @staticmethod
    def kill(process):
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        process.wait()

    def wait(self, timeout, processes=None):
        """True if all ended in time; the others are killed."""
        deadline = time.monotonic() + timeout
        in_time = True
        for process in processes or self.processes:
            try:
                process.wait(max(0.01, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                in_time = False
                self.kill(process)
        return in_time

    def output(self, index=None):
        paths = self.outputs if index is None else [self.outputs[index]]
        text = ""
        for path in paths:
            with open(path, errors="replace") as f:
                text += f.read()
        return text

    def path(self, name):
        return os.path.join(self.folder, name)


def wait_for_file(path, timeout, alive=lambda: True):
    deadline = time.monotonic() + timeout
    while not os.path.exists(path):
        if time.monotonic() > deadline or not alive():
            return False
        time.sleep(0.005)
    return True


# ---- the library's lines --------------------------------------------------------------------------

LINE = re.compile(r"nccl-shunt\[(\d+)\] (error|warning|info|stats)\b:? ?(.*)")


def lines_of(text, *kinds):
    return [m.group(3) for m in LINE.finditer(text) if m.group(2) in kinds]


def stats_of(text):
    """{pid: {"shunted": n, "forwarded": n, ...}} from the stats lines."""
    found = {}
    for m in LINE.finditer(text):
        if m.group(2) == "stats":
            found[int(m.group(1))] = {k: int(v) for k, v in re.findall(r"(\w+)=(\d+)", m.group(3))}
    return found


def total(text, key):
    return sum(stats.get(key, 0) for stats in stats_of(text).values())


def cap_of(text):
    """The cap in bytes that the library says it uses, or None if no communicator is on."""
    match = re.search(r"communicator \S+ .*\bon\b.*\bcap (\d+)", text)
    return int(match.group(1)) if match else None


WAIT = re.compile(r"rank (\d+) waits for rank (\d+)")


# ---- the report -----------------------------------------------------------------------------------

class Report:
    def __init__(self, arguments, name):
        self.arguments = arguments
        self.outcome = {"test": name, "cases": [], "figures": {}}

    def case(self, name, problems, detail="", output=""):
        """problems: list of sentences; empty is success."""
        status = "FAIL" if problems else "ok"
        print(f"{status:4} {name}: {'; '.join(problems) or detail}", flush=True)
        if output and (problems or self.arguments.verbose):
            print("\n".join("     | " + line for line in output.splitlines()[-120:]), flush=True)
        self.outcome["cases"].append({"name": name, "status": status, "problems": problems,
                                      "detail": detail})

    def skip(self, name, reason):
        print(f"skip {name}: {reason}", flush=True)
        self.outcome["cases"].append({"name": name, "status": "skip", "detail": reason})

    def figure(self, name, value):
        self.outcome["figures"][name] = value

    def finish(self):
        cases = self.outcome["cases"]
        count = {s: sum(c["status"] == s for c in cases) for s in ("ok", "FAIL", "skip")}
        print(f"{self.outcome['test']}: {count['ok']} ok, {count['FAIL']} failed, {count['skip']} skipped")
        if self.arguments.json:
            with open(self.arguments.json, "w") as f:
                json.dump(self.outcome, f, indent=1)
        if count["FAIL"]:
            return 1
        return 0 if count["ok"] else SKIPPED
