#!/usr/bin/env python3
"""The distributed tests of PyTorch's own package on NCCL with two ranks: the same outcomes with the library and without.
They need the package expecttest. What does not come to an end in time, with the library or without, is not compared.
"""

import json
import os
import sys
import tempfile

import support
from support import Group, environment

HERE = os.path.dirname(os.path.abspath(__file__))


def outcomes(arguments, preload):
    """({test: outcome} of those that came to an end, output)"""
    found = {}
    with Group() as group, tempfile.TemporaryDirectory(prefix="nccl-shunt-pytorch-") as top:
        for share in range(arguments.shares):
            folder = os.path.join(top, str(share))
            for name in ("barrier", "test_dir", "init_dir"):  # which the tests expect
                os.makedirs(os.path.join(folder, name))
            env = environment(arguments.build, preload=preload, BACKEND="nccl", WORLD_SIZE=2, TEMP_DIR=folder,
                              INIT_METHOD=f"file://{folder}/init_dir/shared")
            group.start([sys.executable, os.path.join(HERE, "pytorch_suite.py"), group.path(f"outcomes.{share}"),
                         str(share), str(arguments.shares), arguments.pattern], env)
        group.wait(arguments.seconds)
        for share in range(arguments.shares):
            if os.path.exists(group.path(f"outcomes.{share}")):
                with open(group.path(f"outcomes.{share}")) as f:
                    found.update(json.load(f))
        text = group.output()
    return {name: outcome for name, outcome in found.items() if outcome != "started"}, text


def main():
    parser = support.parser(__doc__.splitlines()[0])
    parser.add_argument("--pattern", default=".", help="of the names of the tests (default: all)")
    parser.add_argument("--shares", type=int, default=6, help="processes that each do a share")
    parser.add_argument("--seconds", type=float, default=250, help="for all tests, once with the library and once without")
    arguments = parser.parse_args()
    support.require_two_gpus(False)
    support.require((support.has_torch(), f"{sys.executable} has no PyTorch"))
    report = support.Report(arguments, "pytorch_tests")
    without, plain = outcomes(arguments, False)
    with_it, text = outcomes(arguments, True)
    both = sorted(set(without) & set(with_it))
    problems = [f"{name}: {without[name]} without the library, {with_it[name]} with it"
                for name in both if without[name] != with_it[name]]
    shunted = support.total(text, "shunted")
    if shunted == 0:
        problems.append("no call was shunted")
    if len(with_it) < 0.9 * len(without):
        problems.append(f"{len(with_it)} tests came to an end in {arguments.seconds:.0f} s, {len(without)} without the library")
    count = {outcome: sum(with_it[name] == outcome for name in both) for outcome in sorted(set(with_it.values()))}
    report.case("same outcomes", problems, ", ".join(f"{n} {outcome}" for outcome, n in count.items()) +
                f"; {shunted} calls shunted, {support.total(text, 'forwarded')} forwarded", plain + text)
    report.figure("pytorch_tests", {name: with_it[name] for name in both})
    return report.finish()


if __name__ == "__main__":
    sys.exit(main())
