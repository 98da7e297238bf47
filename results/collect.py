"""Puts the outcome of the GPU tests and the machine that they ran on into one JSON document.

    collect.py [--keep OLD.json] OUTCOME.json... > results/COUNTx-GPU.json

--keep: tests and figures of OLD.json that these outcomes do not have stay, with the commit they were made at.
"""

import argparse
import datetime
import json
import os
import platform
import re
import subprocess
import sys

TOP = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def output_of(*command):
    try:
        return subprocess.run(command, capture_output=True, text=True, cwd=TOP, timeout=60).stdout.strip()
    except (OSError, subprocess.TimeoutExpired):
        return ""


def distribution():
    try:
        return platform.freedesktop_os_release()["PRETTY_NAME"]
    except OSError:
        return platform.system()


def commit():
    """COMMIT names it where the tree came without its history, or with another's."""
    name = output_of("git", "rev-parse", "HEAD")
    if "COMMIT" in os.environ or not re.fullmatch("[0-9a-f]{40}", name):
        return os.environ.get("COMMIT", "unknown")
    return name + (" and uncommitted changes" if output_of("git", "status", "--porcelain") else "")


def machine():
    gpus = [line.split(", ") for line in output_of(
        "nvidia-smi", "--query-gpu=name,driver_version,pcie.link.gen.max", "--format=csv,noheader"
    ).splitlines()]
    links = output_of("nvidia-smi", "topo", "-m")
    pairs = re.findall(r"^GPU0\s+(X\s.*)$", links, re.MULTILINE)
    processor = ""
    if os.path.exists("/proc/cpuinfo"):
        with open("/proc/cpuinfo") as f:
            processor = next((line.split(":")[1].strip() for line in f if line.startswith("model name")), "")
    return {
        "gpus": [gpu[0] for gpu in gpus],
        "driver": gpus[0][1] if gpus else "",
        "links_of_gpu0": pairs[0].split()[:len(gpus)] if pairs else [],
        "processor": processor,
        "system": distribution(),
    }


def keep(old, document):
    if old["machine"] != document["machine"]:
        raise SystemExit("the results to keep are another machine's")
    for name, test in old["tests"].items():
        document["tests"].setdefault(name, {**test, "commit": test.get("commit", old["commit"])})
    for name, figure in old["figures"].items():
        document["figures"].setdefault(name, figure)


def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("outcomes", nargs="*")
    p.add_argument("--keep", metavar="OLD.json")
    arguments = p.parse_args()
    document = {
        "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d"),
        "commit": commit(),
        "machine": machine(),
        "nvcc": (re.search(r"release ([\d.]+)", output_of("nvcc", "--version")) or [None, ""])[1],
        "command": os.environ.get("COMMAND", "test/gpu/run.sh"),
        "tests": {},
        "figures": {},
    }
    for path in arguments.outcomes:
        if not os.path.exists(path):
            continue
        with open(path) as f:
            outcome = json.load(f)
        cases = outcome["cases"]
        document["tests"][outcome["test"]] = {
            "ok": sum(case["status"] == "ok" for case in cases),
            "failed": [case["name"] for case in cases if case["status"] == "FAIL"],
            "skipped": [case["name"] for case in cases if case["status"] == "skip"],
            "details": {case["name"]: case["detail"] for case in cases if case["status"] == "ok"},
        }
        document["figures"].update(outcome["figures"])
    if arguments.keep:
        with open(arguments.keep) as f:
            keep(json.load(f), document)
    json.dump(document, sys.stdout, indent=1)
    print()


if __name__ == "__main__":
    main()
