#!/usr/bin/env python3
"""`nccl-shunt doctor` on two GPUs: it finds the driver, NCCL, both GPUs and their link, prepares a communicator with the
cap measured, and what it says of the cap is what the counters say of the calls. With host memory too."""

import json
import os
import sys

import support
from support import Group, environment


def examine(report, arguments, name, placement, **settings):
    with Group() as group:
        path = group.path("doctor.json")
        env = environment(arguments.build, preload=False, SHUNT_ENABLE="on", **settings)
        process = group.start([os.path.join(arguments.build, "bin", "nccl-shunt"), "doctor", "--json", path], env)
        problems = [] if group.wait(90) else ["not finished after 90 s"]
        text = group.output()
        document = {}
        if os.path.exists(path):
            with open(path) as f:
                document = json.load(f)
    communicator = document.get("communicator") or {}
    if process.returncode != 0:
        problems.append(f"exit status {process.returncode}: {document.get('broken')}")
    if len(document.get("gpus", [])) < 2 or not document.get("versions", {}).get("driver"):
        problems.append("the GPUs or the driver were not found")
    if not communicator.get("on") or communicator.get("placement") != placement or not communicator.get("times"):
        problems.append(f"not on in {placement} with the cap measured")
    report.case(name, problems, f"{communicator.get('placement')}, cap {communicator.get('cap')} bytes, prepared in "
                f"{communicator.get('prepared_ms', 0):.0f} ms", text)
    report.figure(f"doctor_{placement}", communicator)


def main():
    arguments = support.parser(__doc__.splitlines()[0]).parse_args()
    support.require_two_gpus(False)
    support.require((not support.one_gpu(), "it takes two GPUs"))
    report = support.Report(arguments, "doctor")
    examine(report, arguments, "peer memory", "push")
    examine(report, arguments, "host memory", "host", NCCL_P2P_DISABLE="1")
    return report.finish()


if __name__ == "__main__":
    sys.exit(main())
