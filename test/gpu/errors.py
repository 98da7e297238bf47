#!/usr/bin/env python3
"""Errors of sums of random data against exact sums, of both paths, for every float type: never above NCCL's for
types of 16 and 8 bits, under the textbook bound for the longer ones; bits equal on all ranks. In units of the type's
unit roundoff times the sum of the magnitudes (Higham, Accuracy and Stability of Numerical Algorithms, 4.2: a sum
in any order errs by at most n - 1 of them, and less than 1.01 for what is added in a longer type and rounded once).
"""

import json
import os
import sys

import support
from support import Group, environment

BYTES = 64 << 10  # of a call; up to every fixed cap


def measure(report, arguments, ranks):
    problems, rows = [], []
    with Group() as group:
        script = os.path.join(os.path.dirname(os.path.abspath(__file__)), "errors_rank.py")
        for rank in range(ranks):
            group.start([sys.executable, script, str(rank), str(ranks), group.folder, str(BYTES)],
                        environment(arguments.build))
        if not group.wait(60 + 10 * ranks):
            problems.append("not finished in time")
        text = group.output()
    found = [json.loads(line) for line in text.splitlines() if line.startswith('{"rank"')]
    if len(found) != ranks:
        problems.append(f"{len(found)} of {ranks} ranks have ended")
    if len({rank["digest"] for rank in found}) > 1:
        problems.append("ranks differ in their bits")
    if found and support.total(text, "shunted") != ranks * found[0]["calls"]:
        problems.append(f"{support.total(text, 'shunted')} calls shunted, {ranks * found[0]['calls']} expected")
    for name, row in (found[0]["rows"] if found else {}).items():
        shunt, nccl = row["shunt"], row["nccl"]
        if name in ("float", "double"):
            if not shunt["most"] <= ranks - 1:
                problems.append(f"{name}: an error of {shunt['most']:.2f}")
        elif not (shunt["most"] <= min(1.01, nccl["most"]) and shunt["rms"] <= nccl["rms"]):
            problems.append(f"{name}: {shunt['most']:.3f} (rms {shunt['rms']:.4f}), NCCL {nccl['most']:.3f} "
                            f"(rms {nccl['rms']:.4f})")
        rows.append({"type": name, "ranks": ranks, "shunt": shunt, "nccl": nccl})
        print(f"     {ranks} ranks {name:9} largest {shunt['most']:6.3f} rms {shunt['rms']:.4f}   "
              f"NCCL {nccl['most']:6.3f} {nccl['rms']:.4f}")
    report.case(f"errors of {ranks} ranks", problems, f"{len(rows)} types, ranks bit-equal", text)
    return rows


def main():
    arguments = support.parser(__doc__.splitlines()[0]).parse_args()
    support.require_two_gpus(False)
    support.require((support.has_torch(), f"{sys.executable} has no PyTorch"))
    report = support.Report(arguments, "errors")
    most = 8 if support.one_gpu() else support.gpu_count()
    report.figure("errors", [row for ranks in (2, 4, 8) if ranks <= most
                             for row in measure(report, arguments, ranks)])
    return report.finish()


if __name__ == "__main__":
    sys.exit(main())
