"""Runs the checks of test_real_nccl.py with real NCCL libraries of many versions, taken from their wheels by
pip, and prints a table. Needs neither a GPU nor a driver.

    nccl_versions.py [--folder FOLDER] [--table FILE] [WHEEL...]      e.g. nvidia-nccl-cu12==2.21.5

Wheels and what is unpacked from them stay in the folder: 200 to 400 MB a version. Without WHEEL: the oldest
version that is supported, some between, and the newest of each package.
"""
import argparse
import glob
import io
import os
import subprocess
import sys
import unittest
import zipfile

import test_real_nccl
from harness import Case, compiler, exported_names, hooked_names, operations, paths

DEFAULT = ["nvidia-nccl-cu12==" + version for version in
           ("2.18.1", "2.18.3", "2.21.5", "2.26.5", "2.28.9", "2.29.7", "2.30.7", "2.31.2")]
DEFAULT += ["nvidia-nccl-cu12", "nvidia-nccl-cu13"]  # the newest


def fetched(wheel, folder):
    """The folder of the unpacked wheel, as pip names it: package-version."""
    package, _, version = wheel.partition("==")
    known = glob.glob(os.path.join(folder, f"{package.replace('-', '_')}-{version}"))
    if version and known:
        return known[0]
    wheels = os.path.join(folder, "wheels", package + "-" + (version or "newest"))
    if not glob.glob(os.path.join(wheels, "*.whl")):
        subprocess.run([sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary",
                        ":all:", "--dest", wheels, wheel], check=True)
    [path] = glob.glob(os.path.join(wheels, "*.whl"))
    unpacked = os.path.join(folder, "-".join(os.path.basename(path).split("-")[:2]))
    if not os.path.exists(unpacked):
        with zipfile.ZipFile(path) as archive:
            for name in archive.namelist():
                if "/nccl/include/" in name or name.endswith("/libnccl.so.2"):
                    archive.extract(name, unpacked + ".part")
        os.rename(unpacked + ".part", unpacked)
    return unpacked


def suite_of(unpacked):
    root = os.path.join(unpacked, "nvidia", "nccl")
    fields = {"path": os.path.join(root, "lib", "libnccl.so.2"), "include": os.path.join(root, "include"),
              "name": os.path.basename(unpacked)}
    return unittest.defaultTestLoader.loadTestsFromTestCase(
        type(fields["name"], (test_real_nccl.RealNccl, Case), fields))


def row_of(unpacked, result):
    """One line of the table. What this build does not hook, because its nccl.h was older, is forwarded without
    keeping its order among the communicator's other operations."""
    package, version = os.path.basename(unpacked).rsplit("-", 1)
    exported = exported_names(os.path.join(unpacked, "nvidia", "nccl", "lib", "libnccl.so.2"))
    lacks = [name[4:] for name in hooked_names() if name not in exported]
    include = os.path.join(unpacked, "nvidia", "nccl", "include")
    unknown = [name[4:] for name in operations(include) if name not in hooked_names()]
    bad = {test.id().split(".")[-1] for test, _ in result.failures + result.errors}
    bad |= {f"skipped: {reason}" for _, reason in result.skipped}
    outcome = "all passed" if not bad and result.testsRun else ", ".join(sorted(bad))
    return (f"| {package.replace('_', '-')} {version} | {result.testsRun} | {', '.join(lacks) or '-'} | "
            f"{', '.join(unknown) or '-'} | {outcome} |")


def header_version():
    text = compiler(paths.NCCL_INCLUDE, "-E", "-P", "-x", "c++", "-", check=True,
                    input="#include <nccl.h>\nNCCL_MAJOR.NCCL_MINOR.NCCL_PATCH\n").stdout
    return text.splitlines()[-1].replace(" ", "")


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    arguments.add_argument("--folder", default="nccl_versions")
    arguments.add_argument("--table", help="also write the table to this file")
    arguments.add_argument("wheels", nargs="*", metavar="WHEEL")
    given = arguments.parse_args()
    rows = [f"Built with the nccl.h of {header_version()}.\n",
            "| NCCL | checks | hooked names that it lacks | operations that this build does not hook | outcome |",
            "| --- | --- | --- | --- | --- |"]
    right = True
    for wheel in given.wheels or DEFAULT:
        unpacked = fetched(wheel, os.path.abspath(given.folder))
        said = io.StringIO()
        result = unittest.TextTestRunner(stream=said).run(suite_of(unpacked))
        rows.append(row_of(unpacked, result))
        print(rows[-1], flush=True)
        passed = result.wasSuccessful() and not result.skipped and result.testsRun > 0
        right = right and passed
        if not passed:
            print(said.getvalue(), flush=True)
    print("\n" + "\n".join(rows))
    if given.table:
        with open(given.table, "w") as file:
            file.write("\n".join(rows) + "\n")
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
