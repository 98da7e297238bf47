#!/usr/bin/env python3
"""Writes the README's table of figures from results/*.json.

    table.py            writes
    table.py --check    only says, by its exit status, whether the README is up to date
"""

import json
import pathlib
import sys

FOLDER = pathlib.Path(__file__).resolve().parent
README = FOLDER.parent / "README.md"
BEGIN, END = "<!-- results -->\n", "<!-- /results -->\n"


def size(number):
    for unit, name in ((1 << 20, "M"), (1 << 10, "K")):
        if number >= unit and number % unit == 0:
            return f"{number // unit}{name}"
    return str(number)


def machine_line(document):
    machine = document["machine"]
    gpus = machine["gpus"]
    parts = [f"{len(gpus)} x {gpus[0]}" if gpus else "no GPU"]
    links = [link for link in machine["links_of_gpu0"] if link != "X"]
    if links:
        parts.append(f"joined by {links[0]}" if len(set(links)) == 1 else f"joined by {', '.join(links)}")
    nccl = document["figures"].get("nccl")
    if nccl:
        parts.append(f"NCCL {nccl}")
    commit = document["tests"].get("bench", {}).get("commit", document["commit"])
    parts += [f"driver {machine['driver']}", document["date"], f"commit {commit[:10]}"]
    return ", ".join(parts)


def table(rows):
    text = "| bytes | NCCL, us | nccl-shunt, us | ratio | |\n| --- | --- | --- | --- | --- |\n"
    for row in rows:
        text += (f"| {size(row['bytes'])} | {row['nccl_us']:.2f} | {row['shunt_us']:.2f} | "
                 f"{row['shunt_us'] / row['nccl_us']:.2f} | "
                 f"{'shunted' if row['shunted'] else 'forwarded'} |\n")
    return text


def errors(rows):
    """Largest and rms error of each type, one pair of columns for each number of ranks."""
    counts = sorted({row["ranks"] for row in rows})
    text = "| type |" + "".join(f" {n} ranks, nccl-shunt | NCCL |" for n in counts) + "\n"
    text += "| --- |" + " --- |" * 2 * len(counts) + "\n"
    for kind in dict.fromkeys(row["type"] for row in rows):
        of_type = {row["ranks"]: row for row in rows if row["type"] == kind}
        cells = [f"{of_type[n][path]['most']:.2f} / {of_type[n][path]['rms']:.3f}" for n in counts
                 for path in ("shunt", "nccl")]
        text += f"| {kind} | {' | '.join(cells)} |\n"
    return text


MEASURED = {"bench_measured_peer": "The cap measured (`SHUNT_CAP=measure`), peer memory",
            "bench_measured_host": "The cap measured, host memory, `NCCL_P2P_DISABLE=1` for both"}


def tables():
    text = numbers = ""
    for path in sorted(FOLDER.glob("*.json")):
        document = json.loads(path.read_text())
        rows = document["figures"].get("bench", [])
        if document["figures"].get("errors"):
            alone = len(document["machine"]["gpus"]) == 1
            numbers += ("\nErrors of sums of random data, largest / rms, in units of the type's unit roundoff times the "
                        f"sum of magnitudes ({'ranks that share a GPU, ' if alone else ''}{machine_line(document)}), "
                        f"printed by `{'ONE_GPU=1 ' if alone else ''}test/gpu/run.sh errors`:\n\n"
                        + errors(document["figures"]["errors"]))
        if not rows:
            continue
        text += f"\n{machine_line(document)}\n\n" + table(rows)
        text += f"\nPrinted by `{document['figures']['bench_command']}`.\n"
        for figure, title in MEASURED.items():
            if document["figures"].get(figure):
                text += f"\n{title}, printed by `test/gpu/run.sh bench`:\n\n" + table(document["figures"][figure])
    return text + numbers or "\nNone yet.\n"


def main():
    readme = README.read_text()
    if readme.count(BEGIN) != 1 or readme.count(END) != 1:
        sys.exit(f"{README} needs the lines {BEGIN.strip()} and {END.strip()}, once each")
    before, rest = readme.split(BEGIN)
    after = rest.split(END)[1]
    wanted = before + BEGIN + tables() + "\n" + END + after
    if sys.argv[1:] == ["--check"]:
        if wanted != readme:
            sys.exit("README.md is not what results/table.py writes")
        return
    README.write_text(wanted)


if __name__ == "__main__":
    main()
