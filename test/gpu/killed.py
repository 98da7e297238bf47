#!/usr/bin/env python3
"""kill -9 of one of two real ranks at many places, each several times: the other one ends and says why, or waits
in NCCL's own kernel; no stream goes on with an unfinished sum; nothing stays behind; the next job is right.

    killed.py [--times N] [--at-once N] [--only TEXT]
"""

import collections
import os
import re
import sys
import time

import support
from support import Group, environment, lines_of, total

HERE = os.path.dirname(os.path.abspath(__file__))
RANKS = 2
CAP = 65536
ENDS = 20  # seconds from the victim's death, in which NCCL may need some to tear down what it has

# The survivor's end: "named" it says who is missing and its calls end; "trap" likewise, but its process is stopped by
# the kernel; "preparing" as before, or all forward, or NCCL itself gives up; "nccl" the wait is NCCL's own, or
# over; "done" it has nothing to wait for.
Point = collections.namedtuple("Point", "name way die end deadly", defaults=("",))
POINTS = [
    Point("before preparing", "eager", "before preparing", "nccl"),
    Point("while NCCL connects", "eager", "while NCCL connects", "nccl"),
    Point("loading the kernels", "eager", "", "nccl", "cuModuleLoadData"),
    Point("before the memory", "eager", "", "preparing", "cuIpcGetMemHandle"),
    Point("mapping", "eager", "", "preparing", "cuIpcOpenMemHandle_v2"),
    Point("first packet of the probe", "eager", "", "preparing", "cuLaunchKernel"),
    Point("between the probe's launches", "eager", "", "preparing", "cuGraphInstantiateWithFlags"),
    Point("replay of the probe", "eager", "", "preparing", "cuGraphLaunch"),
    Point("after preparing", "eager", "after preparing", "named"),
    Point("before the first launch", "eager", "", "named", "cuStreamGetId"),
    Point("after the first launch", "eager", "", "named", "cuEventRecord"),
    Point("in a later call", "eager", "in a later call", "named"),
    Point("among eager calls", "eager", "among calls", "named"),
    Point("among eager calls, nobody looks", "eager", "among calls", "trap"),
    Point("in the capture", "graph", "in the capture", "named"),
    Point("in a later replay", "graph", "in a later call", "named"),
    Point("among replays", "graph", "among calls", "named"),
    Point("in a group", "group", "in a group", "named"),
    Point("among groups", "group", "among calls", "named"),
    Point("among forwarded calls", "forwarded", "among calls", "nccl"),
    Point("among forwarded and shunted calls", "mixed", "among calls", "nccl"),
    Point("before the destroy", "eager", "before the destroy", "done"),
    Point("in the destroy", "eager", "in the destroy", "done"),
]


class Pair:
    """One job of two ranks, of which the second dies."""

    def __init__(self, arguments, point):
        self.point = point
        self.group = Group()
        faulty = support.faulty_driver(arguments.build)
        for rank in range(RANKS):
            more = {"also_preload": [faulty], "FAULTY_DEADLY": point.deadly} if rank == 1 and point.deadly else {}
            env = environment(arguments.build, emulated=arguments.emulated, SHUNT_CAP=CAP, **more)
            command = [sys.executable, os.path.join(HERE, "killed_rank.py"), "--rank", str(rank), "--id-file",
                       self.group.path("id"), "--way", point.way, "--die", point.die]
            self.group.start(command + (["--trap"] if point.end == "trap" else []), env)
        self.survivor, self.victim = self.group.processes

    def problems(self):
        """Waits for the end; sentences."""
        problems = []
        if not self.group.wait(60, [self.victim]):
            return ["the victim lived on"]
        if self.victim.returncode != -9:
            return [f"the victim ended with {self.victim.returncode}"]
        own = self.point.end == "nccl"
        ended = self.wait(3 if own else ENDS)
        text = self.group.output(0)
        if "wrong sum" in text:
            problems.append("the stream went on with an unfinished sum")
        if "Traceback" in text or (ended and self.survivor.returncode != 0):
            problems.append(f"the survivor ended with {self.survivor.returncode}")
        forwards = self.point.end == "preparing" and re.search(r"\boff: rank 1\b", text)
        if not ended and not own and not forwards:
            problems.append(f"still there {ENDS} s after the death of its peer")
        if own or forwards:
            return problems
        expected = {"done": "ended: all calls done", "trap": "ended: cu"}.get(self.point.end, "ended: ")
        if ended and expected not in text:
            problems.append("the survivor does not say how its calls ended")
        if self.point.end in ("named", "trap") and not self.names_the_dead(text):
            problems.append("no line names the rank that died")
        if self.point.end == "preparing" and not self.names_the_dead(text) and "ended: making" not in text:
            problems.append("neither this library nor NCCL says who is missing")
        return problems

    def wait(self, seconds):
        """Whether the survivor ended by itself; it is killed otherwise."""
        end = time.monotonic() + seconds
        while self.survivor.poll() is None and time.monotonic() < end:
            time.sleep(0.02)
            # Agreed to forward: NCCL waits for ever.
            if self.point.end == "preparing" and "off: rank 1" in self.group.output(0):
                break
        ended = self.survivor.poll() is not None
        if not ended:
            self.group.kill(self.survivor)
        return ended

    def names_the_dead(self, text):
        return any("rank 1" in line and str(self.victim.pid) in line for line in lines_of(text, "error", "warning"))

    def close(self):
        self.group.__exit__(None, None, None)


def shared_memory():
    """Files of ours. NCCL's own are named nccl-*, and stay where a process of its was killed."""
    return {name for name in os.listdir("/dev/shm") if "shunt" in name or "emulated" in name}


def run_point(report, arguments, point):
    problems, output, begin = [], "", time.monotonic()
    left = arguments.times
    while left > 0:
        pairs = [Pair(arguments, point) for _ in range(min(left, arguments.at_once))]
        left -= len(pairs)
        for pair in pairs:
            found = pair.problems()
            if found or arguments.verbose:
                output += pair.group.output()
            problems += found
            pair.close()
    report.case(f"killed {point.name}", problems, f"{arguments.times} times in {time.monotonic() - begin:.1f} s", output)


def next_job(report, arguments):
    """What the killed ones left behind, if anything, does not harm the next job."""
    problems = []
    with Group() as group:
        for rank in range(RANKS):
            env = environment(arguments.build, emulated=arguments.emulated)
            group.start([sys.executable, os.path.join(HERE, "fault_rank.py"), "--rank", str(rank), "--folder",
                         group.folder, "--scenario", "verify"], env)
        if not group.wait(60):
            problems.append("not finished after 60 s")
        text = group.output()
        if text.count("wrong 0") != RANKS or total(text, "shunted") == 0:
            problems.append("no or wrong results, or nothing was shunted")
        report.case("the next job", problems, f"{total(text, 'shunted')} calls shunted, all right", text)


def main():
    p = support.parser(__doc__.splitlines()[0])
    p.add_argument("--times", type=int, default=2, help="each point (2)")
    p.add_argument("--at-once", type=int, default=2, help="pairs on the same two GPUs (2)")
    p.add_argument("--only", default="", help="points whose name contains this")
    arguments = p.parse_args()
    support.require_two_gpus(arguments.emulated)
    report = support.Report(arguments, "killed")
    before = shared_memory()
    for point in POINTS:
        if arguments.only in point.name:
            run_point(report, arguments, point)
    next_job(report, arguments)
    left = shared_memory() - before
    report.case("/dev/shm", [f"left: {name}" for name in sorted(left)], "as before")
    return report.finish()


if __name__ == "__main__":
    sys.exit(main())
