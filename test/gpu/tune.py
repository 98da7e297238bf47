#!/usr/bin/env python3
"""The tuner plugin and `nccl-shunt tune` on two GPUs, with the real NCCL.

Parts (--parts, all by default):
  load   each interface version that this NCCL knows is loaded and followed; so is the plugin from the
         preloaded library and from `nccl-shunt run`; with NCCL_P2P_DISABLE=1 too; a profile that asks for the
         worst choice is slower
  p2p    `nccl-shunt tune`, then NCCL's own choice against the profile, 8 B to 256 MiB
  host   the same with NCCL_P2P_DISABLE=1
"""

import copy
import json
import os
import re
import shutil
import sys
import tempfile

import support
from support import Group, environment

SIZE = 1 << 20            # of the calls whose choice is looked at
NOISE = 1.03              # a profile may cost so much more at any size
SMALL = "8,64,512,4K,16K,64K,128K,256K,512K,1M,2M,4M"
LARGE = "16M,64M,256M"
CHOICE = re.compile(r"AllReduce: (\d+) Bytes -> Algo (\S+) proto (\S+) channel\{Lo\.\.Hi\}=\{(\d+)\.\.(\d+)\}")
TRANSPORTS = {"p2p": {}, "host": {"NCCL_P2P_DISABLE": "1"}}


class Test:
    def __init__(self, arguments, report, folder):
        self.arguments, self.report, self.folder = arguments, report, folder
        self.command = os.path.join(arguments.build, "bin", "nccl-shunt")
        self.plugin = os.path.join(arguments.build, "lib", "libnccl-tuner-shunt.so")
        self.base = {}

    def path(self, name):
        return os.path.join(self.folder, name)

    def run(self, command, limit, **settings):
        """(ended in time with 0, output)"""
        settings.setdefault("SHUNT_PROFILE", "off")
        env = environment(self.arguments.build, preload=False, **settings)
        if "NCCL_TUNER_PLUGIN" not in settings:
            env.pop("NCCL_TUNER_PLUGIN", None)
        with Group() as group:
            process = group.start(command, env)
            in_time = group.wait(limit)
            return in_time and process.returncode == 0, group.output()

    def tune(self, name, transport, options, limit):
        """(profile or None, output)"""
        path = self.path(name)
        good, text = self.run([self.command, "tune", "--output", path] + options, limit,
                              **TRANSPORTS[transport])
        if not good or not os.path.exists(path):
            return None, text
        with open(path) as f:
            return json.load(f), text

    def write(self, profile, name):
        path = self.path(name)
        with open(path, "w") as f:
            json.dump(profile, f)
        return path

    def choices(self, text):
        """What NCCL ran for calls of SIZE bytes: {(algorithm, protocol, number of channels)}"""
        return {(algorithm, protocol, int(high) - int(low) + 1)
                for size, algorithm, protocol, low, high in CHOICE.findall(text) if int(size) == SIZE}

    def look(self, preload=False, before=(), **settings):
        """One checked call of SIZE bytes; (good, output with NCCL's tuning log)"""
        command = list(before) + [self.command, "bench", "--preload" if preload else "--no-preload",
                                  "--modes", "eager", "--sizes", str(SIZE), "--places", "out", "--no-time",
                                  "--iters", "1", "--timeout", "40"]
        return self.run(command, 50, NCCL_DEBUG="INFO", NCCL_DEBUG_SUBSYS="INIT,TUNING,ENV", **settings)

    def times(self, options, limit, **settings):
        """{bytes: device us in a graph}, or None; and the output"""
        path = self.path("bench.json")
        if os.path.exists(path):
            os.unlink(path)
        good, text = self.run([self.command, "bench", "--no-preload", "--modes", "graph", "--places", "out",
                               "--json", path, "--timeout", str(limit)] + options, limit + 10, **settings)
        if not good or not os.path.exists(path):
            return None, text
        with open(path) as f:
            cases = json.load(f)["cases"]
        return {row["bytes"]: row["nccl"]["device_us"]["median"] for row in cases}, text


def nccl_name(part):
    return part.upper().replace("-", "_")


def asking_for(profile, wish):
    """The profile with one rule: calls around SIZE run as `wish` ("ring/LL", "ring/LL/1")."""
    result = copy.deepcopy(profile)
    parts = wish.split("/")
    rule = {"from": SIZE // 2, "to": SIZE * 2, "algorithm": parts[0], "protocol": parts[1]}
    if len(parts) == 3:
        rule["channels"] = int(parts[2])
    result["collectives"] = {"all-reduce": [rule]}
    return result


def quoted(text, *patterns):
    """The first line for each pattern, without NCCL's prefix."""
    lines = []
    for pattern in patterns:
        for line in text.splitlines():
            if re.search(pattern, line):
                lines.append(re.sub(r"^.*NCCL INFO ", "", line).strip())
                break
    return " | ".join(lines)


def point(profile):
    return next(p for p in profile["measured"]["all-reduce"] if p["bytes"] == SIZE)


def another_choice(profile):
    """One that NCCL does not choose itself: no LL128, which version 2 does not ask for."""
    own = "/".join(point(profile)["default"].split("/")[:2])
    names = {"/".join(wish.split("/")[:2]) for wish in point(profile)["tried"]} - {own}
    for wish in ("ring/LL", "ring/Simple", "tree/LL", "tree/Simple"):
        if wish in names:
            return wish
    return None


def quick_profile(test, transport):
    profile, text = test.tune(f"quick-{transport}.json", transport,
                              ["--collectives", "all-reduce", "--min", str(SIZE // 2), "--max", str(SIZE),
                               "--seconds", "10"], 90)
    problems = [] if profile else ["failed or not finished"]
    if profile and not any(p["bytes"] == SIZE and p["tried"] for p in profile["measured"]["all-reduce"]):
        problems.append("1 MiB was not measured")
    test.report.case(f"tune, 10 s, {transport}", problems,
                     "" if problems else f"NCCL's own choice {point(profile)['default']}", text)
    return None if problems else profile


def follows(test, name, profile, wish, expected_lines, transport="p2p", preload=False, before=(), **settings):
    path = test.write(asking_for(profile, wish), "asking.json")
    good, text = test.look(preload, before, SHUNT_PROFILE=path, **TRANSPORTS[transport], **settings)
    parts = wish.split("/")
    problems = [] if good else ["failed or not finished"]
    seen = test.choices(text)
    if not seen:
        problems.append("no line of NCCL's about its choice")
    for algorithm, protocol, channels in seen:
        if (algorithm, protocol) != (nccl_name(parts[0]), nccl_name(parts[1])):
            problems.append(f"asked for {wish}, NCCL ran {algorithm}/{protocol}")
        if len(parts) == 3 and channels != int(parts[2]):
            problems.append(f"asked for {parts[2]} channels, NCCL took {channels}")
    for pattern in expected_lines:
        if not re.search(pattern, text):
            problems.append(f"no line with {pattern}")
    test.report.case(name, problems, quoted(text, *expected_lines, f"AllReduce: {SIZE} Bytes"), text)


def is_left_alone(test, name, path, own, expected_line, **settings):
    good, text = test.look(SHUNT_PROFILE=path, NCCL_TUNER_PLUGIN=test.plugin, **settings)
    problems = [] if good else ["failed or not finished"]
    if {c[:2] for c in test.choices(text)} != own:
        problems.append(f"NCCL's own choice is {own}, it ran {test.choices(text)}")
    if not re.search(expected_line, text):
        problems.append(f"no line with {expected_line}")
    test.report.case(name, problems, quoted(text, expected_line, f"AllReduce: {SIZE} Bytes"), text)


def load(test):
    profiles = {transport: quick_profile(test, transport) for transport in TRANSPORTS}
    profile = profiles["p2p"]
    if not profile:
        return
    wish = another_choice(profile)
    if not wish:
        test.report.skip("load", "NCCL offers one choice only")
        return
    good, text = test.look()
    own = {c[:2] for c in test.choices(text)}
    control = (nccl_name(wish.split("/")[0]), nccl_name(wish.split("/")[1]))
    test.report.case("without a plugin NCCL chooses otherwise",
                     [] if good and own and control not in own else [f"it chose {own}"],
                     quoted(text, f"AllReduce: {SIZE} Bytes"), text)
    minor = int(profile["machine"]["nccl"].split(".")[1])
    newest = 6 if minor >= 30 else 5 if minor >= 28 else 4 if minor >= 24 else 3 if minor >= 22 else 2
    for version in range(2, newest + 1):
        file = os.path.join(test.arguments.build, "tuner-versions", f"libnccl-tuner-shunt-v{version}.so")
        # Version 2 does not name channels, because NCCL 2.21 does not limit them.
        follows(test, f"interface {version}", profile, wish + ("/1" if version > 2 else ""),
                [rf"Using nccl-shunt.*v{version}" if minor >= 26 else "nccl-shunt: profile"],
                NCCL_TUNER_PLUGIN=file)
    for version in range(newest + 1, 7):
        test.report.skip(f"interface {version}", f"NCCL {profile['machine']['nccl']} does not know it")
    follows(test, "the plugin's file", profile, wish, [rf"Using nccl-shunt.*v{newest}", "nccl-shunt: profile"],
            NCCL_TUNER_PLUGIN=test.plugin)
    follows(test, "from the preloaded library alone", profile, wish,
            ["NCCL_TUNER_PLUGIN set by environment to .*libnccl-tuner-shunt.so", "Using nccl-shunt"],
            preload=True, SHUNT_ENABLE="on", SHUNT_CAP="64K")
    follows(test, "from nccl-shunt run", profile, wish, ["Using nccl-shunt"],
            before=[test.command, "run", "--"], SHUNT_ENABLE="on", SHUNT_CAP="64K")

    path = test.write(asking_for(profile, wish), "with-p2p.json")
    test.write({**asking_for(profile, wish), "version": 2}, "newer.json")
    is_left_alone(test, "a malformed profile is ignored", test.path("newer.json"), own, "is ignored: version")
    other = asking_for(profile, wish)
    other["machine"]["driver"] = "1.2.3"
    is_left_alone(test, "another machine's profile is ignored", test.write(other, "other.json"), own,
                  "made elsewhere: driver 1.2.3")

    host = profiles["host"]
    host_wish = another_choice(host) if host else None
    if host_wish:
        follows(test, "P2P off: the choice follows the profile", host, host_wish, ["Using nccl-shunt"],
                transport="host", NCCL_TUNER_PLUGIN=test.plugin)
        good, text = test.look(**TRANSPORTS["host"])
        is_left_alone(test, "P2P off: a profile made with P2P is ignored", path,
                      {c[:2] for c in test.choices(text)}, "here NCCL_P2P_DISABLE=1", **TRANSPORTS["host"])
    for transport in TRANSPORTS:
        if profiles[transport]:
            worst(test, profiles[transport], transport)


def worst(test, profile, transport):
    tried = point(profile)["tried"]
    wish = max(tried, key=tried.get)
    path = test.write(asking_for(profile, wish), "worst.json")
    options = ["--sizes", str(SIZE), "--iters", "1"]
    own, text = test.times(options, 50, **TRANSPORTS[transport])
    slow, more = test.times(options, 50, SHUNT_PROFILE=path, NCCL_TUNER_PLUGIN=test.plugin,
                            **TRANSPORTS[transport])
    problems = [] if own and slow else ["failed or not finished"]
    detail = ""
    if not problems:
        detail = f"{wish}: {slow[SIZE]:.1f} us, NCCL's own choice {own[SIZE]:.1f} us"
        if slow[SIZE] < 1.1 * own[SIZE]:
            problems.append(f"not slower: {detail}")
    test.report.case(f"the worst choice is slower, {transport}", problems, detail, text + more)


def compare(test, path, transport, options, limit):
    """{bytes: (own us, profile us)}: each measured twice in turn, the better one counts."""
    own, tuned, texts = {}, {}, ""
    for _ in range(2):
        for target, settings in ((own, {}), (tuned, {"SHUNT_PROFILE": path, "NCCL_TUNER_PLUGIN": test.plugin})):
            times, text = test.times(options, limit, **settings, **TRANSPORTS[transport])
            texts += text
            if times is None:
                return None, texts
            for size, us in times.items():
                target[size] = min(us, target.get(size, us))
    return {size: (own[size], tuned[size]) for size in own}, texts


def whole(test, transport):
    seconds = str(test.arguments.seconds)
    profile, text = test.tune(f"{transport}.json", transport, ["--seconds", seconds],
                              test.arguments.seconds + 150)
    rules = sum(len(r) for r in profile["collectives"].values()) if profile else 0
    problems = [] if profile else ["failed or not finished"]
    caps = {cap["placement"]: cap["cap"] for cap in (profile or {}).get("shunt", {}).get("caps", [])}
    if profile and not caps.get({"p2p": "push"}.get(transport, transport)):
        problems.append(f"no cap of the library's: {caps}")
    test.report.case(f"tune, {seconds} s, {transport}", problems, f"{rules} rules, caps {caps}", text)
    if not profile:
        return
    print(text)
    path = test.path(f"{transport}.json")
    small, text = compare(test, path, transport, ["--sizes", SMALL, "--iters", "1"], 60)
    large, more = compare(test, path, transport, ["--sizes", LARGE, "--no-check", "--graph-calls", "5",
                                                  "--replays", "5"], 100)
    if small is None or large is None:
        test.report.case(f"compare, {transport}", ["failed or not finished"], "", text + more)
        return
    rows = {**small, **large}
    again = [size for size, (own, tuned) in rows.items() if tuned > NOISE * own]
    if again:  # a neighbour's noise does not come twice at the same place
        options = ["--sizes", ",".join(map(str, again)), "--no-check", "--graph-calls", "20", "--replays", "15"]
        second, _ = compare(test, path, transport, options, 100)
        rows.update(second or {})
    problems = [f"{size} bytes: {tuned:.2f} us, NCCL's own choice {own:.2f}"
                for size, (own, tuned) in rows.items() if tuned > NOISE * own]
    print(f"{transport}: all-reduce bf16 in a graph, us\n{'bytes':>10} {'default':>10} {'profile':>10} {'ratio':>6}")
    for size, (own, tuned) in sorted(rows.items()):
        print(f"{size:>10} {own:>10.2f} {tuned:>10.2f} {tuned / own:>6.2f}")
    best = min(tuned / own for own, tuned in rows.values())
    worst_ratio = max(tuned / own for own, tuned in rows.values())
    test.report.case(f"no size slower with the profile, {transport}", problems,
                     f"ratios {best:.2f} to {worst_ratio:.2f}")
    test.report.figure(f"tune_{transport}", [{"bytes": s, "default_us": o, "profile_us": t}
                                             for s, (o, t) in sorted(rows.items())])


def main():
    parser = support.parser(__doc__.splitlines()[0])
    parser.add_argument("--parts", default="load,p2p,host")
    parser.add_argument("--seconds", type=int, default=60, help="time of each whole tuning run")
    arguments = parser.parse_args()
    support.require((not arguments.emulated, "the emulated NCCL has no tuner"))
    support.require_two_gpus(False)
    report = support.Report(arguments, "tune")
    folder = tempfile.mkdtemp(prefix="nccl-shunt-tune-")
    try:
        test = Test(arguments, report, folder)
        for part in arguments.parts.split(","):
            load(test) if part == "load" else whole(test, part)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return report.finish()


if __name__ == "__main__":
    sys.exit(main())
