#!/usr/bin/env python3
"""PyTorch, two processes: eager, coalesced and captured all-reduces with and without the library."""

import json
import os
import sys

import support
from support import Group, environment

HERE = os.path.dirname(os.path.abspath(__file__))
RANKS = 2
CAP = 128 * 1024


def ranks_of(group):
    found = []
    for rank in range(RANKS):
        if os.path.exists(group.path(f"rank.{rank}")):
            with open(group.path(f"rank.{rank}")) as f:
                found.append(json.load(f))
    return found


def run(report, arguments, preload):
    problems = []
    with Group() as group:
        settings = {"SHUNT_CAP": str(CAP)} if preload else {}
        process = group.start([sys.executable, os.path.join(HERE, "torch_job.py"), "--folder",
                               group.folder, "--ranks", str(RANKS), "--cap", str(CAP)],
                              environment(arguments.build, preload=preload, **settings))
        if not group.wait(200):
            problems.append("not finished after 200 s")
        elif process.returncode != 0:
            problems.append(f"exit status {process.returncode}")
        text = group.output()
        ranks = ranks_of(group)
        if len(ranks) != RANKS:
            problems.append("a rank left no result")
        for number, rank in enumerate(ranks):
            problems += [f"rank {number}: {problem}" for problem in rank["problems"][:5]]
        if len({rank["digest"] for rank in ranks}) > 1:
            problems.append("ranks differ in their bits")
        detail = f"{sum(rank['cases'] for rank in ranks)} results right, ranks bit-equal"
        if preload:
            detail += check_counters(text, ranks, problems)
        elif support.stats_of(text):
            problems.append("the library was there without being preloaded")
        report.case("preloaded" if preload else "without the library", problems, detail, text)
        if ranks:
            report.figure("torch", ranks[0]["torch"])
            report.figure("nccl", ".".join(map(str, ranks[0]["nccl"])))


def check_counters(text, ranks, problems):
    cap = support.cap_of(text)
    if cap != CAP:
        problems.append(f"the cap in the log is {cap}, {CAP} was set")
    stats = support.stats_of(text)
    for number, rank in enumerate(ranks):
        own = stats.get(rank["pid"])
        if own is None:
            problems.append(f"rank {number} printed no counters")
            continue
        wanted = {"shunted": rank["up_to_cap"], "forwarded": rank["above_cap"]}
        for key, value in wanted.items():
            if own.get(key) != value:
                problems.append(f"rank {number}: {own.get(key)} {key}, {value} expected")
    return f", {sum(r['up_to_cap'] for r in ranks)} shunted, {sum(r['above_cap'] for r in ranks)} forwarded"


def main():
    arguments = support.parser(__doc__).parse_args()
    support.require_two_gpus(False)
    support.require((support.has_torch(), f"{sys.executable} has no PyTorch"))
    report = support.Report(arguments, "torch_allreduce")
    for preload in (False, True):
        run(report, arguments, preload)
    return report.finish()


if __name__ == "__main__":
    sys.exit(main())
