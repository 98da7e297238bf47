#!/usr/bin/env python3
"""The soak (test/gpu/soak): all-reduces by the million on two GPUs, every output compared, memory watched.

    soak.py                            ten million calls; about three minutes
    soak.py --emulated                 a few thousand, and that faults are found
    soak.py --hostile --seconds 3600   emulated under hostile memory, one seed after the other
"""

import json
import os
import sys
import time

import support
from support import Group, environment

FIGURES = ("calls", "replayed", "eager", "grouped", "up_to_cap", "above_cap", "graphs", "communicators", "wrong",
           "seconds")
# On the emulated machine: a call costs a hundred microseconds, and two cores serve all ranks.
SMALL = ["--cap", "8192", "--graph-calls", "40", "--eager-calls", "20"]
EMULATED = SMALL + ["--communicator-calls", "1000"]


def soak(arguments, options, limit, library=True, **settings):
    """(exit in time and 0, JSON document or None, output)"""
    with Group() as group:
        path = group.path("soak.json")
        env = environment(arguments.build, preload=False, emulated=arguments.emulated, **settings)
        command = [os.path.join(arguments.build, "bin", "soak"), "--json", path, "--timeout", str(limit)] + options
        if library:
            command += ["--preload", support.library(arguments.build)]
        process = group.start(command, env)
        shown = 0
        while process.poll() is None:
            time.sleep(0.5)
            shown = show(group.output(), shown)
        document = None
        if os.path.exists(path):
            with open(path) as f:
                document = json.load(f)
        return process.returncode == 0, document, group.output()


def show(text, shown):
    """Prints the progress from the given line on; returns where it stands now."""
    lines = text.split("\n")[:-1]
    for line in lines[shown:]:
        if not line.startswith("[rank"):
            print(line, flush=True)
    return len(lines)


def run(report, arguments, name, options, limit, at_least=0, library=True, **settings):
    good, document, text = soak(arguments, options, limit, library, **settings)
    document = document or {"failures": ["said nothing"], "ranks": [], "slow_probes": 0}
    problems = document["failures"][:5]
    ranks = document["ranks"]
    calls = min((rank["calls"] for rank in ranks), default=0)
    if not good and not problems:
        problems.append("failed or not finished")
    if calls < at_least:
        problems.append(f"{calls} calls in the time that there was, {at_least} wanted")
    if document["slow_probes"] and not arguments.emulated:
        problems.append("a probe did not end in time")
    if not ranks:
        report.case(name, problems, "", text)
        return {}
    first, last = ranks[0]["memory"][0], ranks[0]["memory"][-1]
    detail = (f"{calls} calls in {ranks[0]['seconds']:.0f} s, {ranks[0]['replayed']} in graphs, "
              f"{ranks[0]['above_cap']} not shunted, {ranks[0]['communicators']} communicators, "
              f"{sum(rank['wrong'] for rank in ranks)} wrong; device memory {first['device'] >> 20} to "
              f"{last['device'] >> 20} MiB, host {first['host'] >> 20} to {last['host'] >> 20}")
    report.case(name, problems, detail, text)
    return {**{key: ranks[0][key] for key in FIGURES}, "wrong": sum(rank["wrong"] for rank in ranks),
            "memory": [{key: [sample[key] for sample in rank["memory"]] for key in ("device", "host", "descriptors")}
                       for rank in ranks]}


def found(report, arguments, name, words, options, **settings):
    """The soak fails, and says `words`."""
    good, document, text = soak(arguments, EMULATED + options, 60, **settings)
    failures = (document or {}).get("failures", [])
    problems = []
    if good:
        problems.append("not noticed")
    if not any(words in failure for failure in failures):
        problems.append(f"nobody says '{words}'")
    report.case(name, problems, failures[0] if failures else "", text)


def faults_are_found(report, arguments):
    few = ["--calls", "5000"]
    found(report, arguments, "changed packets are found", "bytes differ", few, EMU_CORRUPT="0>1:after=2000")
    found(report, arguments, "changed packets of replays are found", ", graph", few,
          EMU_CORRUPT="0>1:after=2000:graph")
    found(report, arguments, "lost packets are found", "waits for rank", few, EMU_DROP="0>1:after=2000",
          SHUNT_TIMEOUT=2)
    found(report, arguments, "calls that do nothing are found", "bytes differ", few, EMU_NCCL_NULL=8193)
    found(report, arguments, "calls on the wrong path are found", "the library counted", few, NCCL_P2P_DISABLE=1,
          SHUNT_PLACEMENT="push")
    found(report, arguments, "memory that grows is found", "host went from", few + ["--host-mib", "0"])


def hostile(report, arguments, seconds):
    """Jobs of five minutes, each with its own number of ranks, seed and delays."""
    end = time.monotonic() + seconds
    seed = arguments.seed
    while seed == arguments.seed or end - time.monotonic() > 60:  # memory is judged over several communicators
        length = max(60, min(300, int(end - time.monotonic())))
        ranks = (2, 3, 4)[seed % 3]
        settings = {"EMU_HOSTILE": seed, "EMU_KERNEL_DELAY_US": ("*:0", "*:300", "0:2000")[seed // 3 % 3],
                    "SHUNT_PLACEMENT": ("auto", "host", "pull")[seed // 2 % 3]}
        run(report, arguments, f"hostile memory, seed {seed}, {ranks} ranks",
            SMALL + ["--communicator-calls", "250", "--ranks", str(ranks), "--seed", str(seed),
                     "--seconds", str(length)], length + 120, **settings)
        seed += 1


def main():
    p = support.parser(__doc__.splitlines()[0])
    p.add_argument("--calls", type=int, help="of each rank (10,000,000; emulated 15,000)")
    p.add_argument("--seconds", type=int, help="at most so long (200)")
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--hostile", action="store_true", help="emulated, under hostile memory, for --seconds")
    p.add_argument("--without-library", action="store_true", help="NCCL alone, to compare with")
    arguments = p.parse_args()
    arguments.emulated |= arguments.hostile
    support.require_two_gpus(arguments.emulated)
    report = support.Report(arguments, "soak")
    seconds = arguments.seconds or 200
    if arguments.hostile:
        hostile(report, arguments, seconds)
        return report.finish()
    calls = arguments.calls or (15_000 if arguments.emulated else 10_000_000)
    options = ["--calls", str(calls), "--seconds", str(seconds), "--seed", str(arguments.seed)]
    figures = run(report, arguments, "random calls", (EMULATED if arguments.emulated else []) + options, seconds + 60,
                  calls, not arguments.without_library)
    report.figure("soak", figures)
    if arguments.emulated:
        faults_are_found(report, arguments)
    return report.finish()


if __name__ == "__main__":
    sys.exit(main())
