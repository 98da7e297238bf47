#!/usr/bin/env python3
"""nccl-tests' all_reduce_perf, as built by its own authors' Makefile, under the library: 0 wrong.

The folder with all_reduce_perf, and all_reduce_perf_mpi (built with MPI=1) for the steps with mpirun, comes
from the environment variable NCCL_TESTS or --nccl-tests.
"""

import os
import re
import shutil
import sys

import support
from support import Group, environment, total

EVERYTHING = ["-d", "all", "-o", "all", "-c", "1", "-w", "1", "-n", "2"]
ODD_SIZES = ["-b", "1", "-e", "300001", "-i", "42857"]  # bytes: 1, 42858, ..., 300000
EVEN_SIZES = ["-b", "8", "-e", "1M", "-f", "8"]
LAUNCHES = {
    "one thread, 2 GPUs": (None, ["-g", "2"]),
    "2 threads": (None, ["-t", "2", "-g", "1"]),
    "2 processes": (["mpirun", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "-n", "2"],
                    ["-g", "1"]),
}


def command(folder, launch, options):
    start, own = LAUNCHES[launch]
    binary = os.path.join(folder, "all_reduce_perf_mpi" if start else "all_reduce_perf")
    return start, [binary] + own + options


def run(report, arguments, launch, name, options, limit=90):
    start, program = command(arguments.nccl_tests, launch, options)
    if not os.access(program[0], os.X_OK):
        report.skip(name, f"no {os.path.basename(program[0])} in {arguments.nccl_tests}")
        return
    if start and not shutil.which(start[0]):
        report.skip(name, f"no {start[0]}")
        return
    env = environment(arguments.build, SHUNT_CAP="128K")
    if start:  # preloaded into the ranks alone, not into mpirun
        names = env.pop("LD_PRELOAD")
        program = start + ["env", f"LD_PRELOAD={names}"] + program
    problems = []
    with Group() as group:
        process = group.start(program, env)
        if not group.wait(limit):
            problems.append(f"not finished after {limit} s")
        text = group.output()
        if process.returncode != 0:
            problems.append(f"exit status {process.returncode}")
        verdict = re.search(r"Out of bounds values\s*:\s*(\d+)\s*(\w+)", text)
        rows = [row.split() for row in text.splitlines() if re.match(r"\s+\d+\s+\d+\s+\w+\s+\w+\s", row)]
        # size count type redop root, then time algbw busbw #wrong out of place and in place
        wrong = [row for row in rows if len(row) < 13 or row[8] not in ("0", "N/A")
                 or row[12] not in ("0", "N/A")]
        if not verdict:
            problems.append("no verdict printed")
        elif verdict.groups() != ("0", "OK"):
            problems.append(f"out of bounds values: {' '.join(verdict.groups())}")
        if not rows:
            problems.append("no results printed")
        if wrong:
            problems.append(f"{len(wrong)} of {len(rows)} rows wrong, first: {' '.join(wrong[0])}")
        shunted, forwarded = total(text, "shunted"), total(text, "forwarded")
        if not shunted or not forwarded:
            problems.append(f"{shunted} calls shunted and {forwarded} forwarded: both must occur")
        # Hundreds of right rows say nothing; show what is around them.
        shown = "\n".join(line for line in text.splitlines() if "nccl-shunt[" in line or "#" in line[:2]
                          or line.split() in wrong)
        report.case(name, problems, f"{len(rows)} rows, 0 wrong, {shunted} shunted, {forwarded} forwarded",
                    shown)


def main():
    p = support.parser(__doc__.splitlines()[0])
    p.add_argument("--nccl-tests", default=os.environ.get("NCCL_TESTS", ""), help="folder of the binaries")
    arguments = p.parse_args()
    support.require_two_gpus(False)
    support.require((arguments.nccl_tests, "NCCL_TESTS names no folder with all_reduce_perf"))
    report = support.Report(arguments, "nccl_tests")
    for launch in LAUNCHES:
        for mode, graph in (("eager", []), ("graph", ["-G", "10"])):
            run(report, arguments, launch, f"{launch}, {mode}, odd sizes",
                EVERYTHING + ODD_SIZES + graph)
            run(report, arguments, launch, f"{launch}, {mode}, misaligned",
                EVERYTHING + EVEN_SIZES + ["-u", "1"] + graph)
    return report.finish()


if __name__ == "__main__":
    sys.exit(main())
