#!/usr/bin/env python3
"""Real processes on real GPUs with something broken: every case ends, says why, and never with a wrong sum.

    faults.py [CASE...]     default: all of them
"""

import os
import signal
import sys
import time

import support
from support import Group, environment, lines_of, total

HERE = os.path.dirname(os.path.abspath(__file__))
RANKS = 2
SIZES = [4096, 4, 12, 65536, 65540, 131072, 262144]
TIMEOUT = 3  # SHUNT_TIMEOUT of the cases in which a peer is lost
GRACE = 10  # seconds that a rank whose peer is dead waits for an abort if there is no SHUNT_TIMEOUT


def start(group, arguments, scenario, settings_of_rank):
    for rank in range(RANKS):
        env = environment(arguments.build, emulated=arguments.emulated, **settings_of_rank(rank))
        group.start([sys.executable, os.path.join(HERE, "fault_rank.py"), "--rank", str(rank),
                     "--ranks", str(RANKS), "--folder", group.folder, "--scenario", scenario,
                     "--sizes", ",".join(map(str, SIZES))], env)


def expect_results(group, problems):
    for rank in range(RANKS):
        text = group.output(rank)
        if "wrong 0" not in text or "wrong result" in text:
            problems.append(f"rank {rank} has no or wrong results")
        if group.processes[rank].returncode != 0:
            problems.append(f"rank {rank} ended with {group.processes[rank].returncode}")


def expect_one_line(text, pattern_words, problems):
    """Exactly one info, warning or error line, over all ranks, that contains all the words."""
    found = [line for line in lines_of(text, "info", "warning", "error")
             if all(word in line.lower() for word in pattern_words)]
    if len(found) != 1:
        problems.append(f"{len(found)} lines with {pattern_words}, one is wanted")
    return found[0] if found else ""


def run_verify(report, arguments, name, settings_of_rank, words, shunted_of_rank):
    """All results right; one line with `words`; `shunted_of_rank` calls shunted by each rank."""
    problems = []
    with Group() as group:
        start(group, arguments, "verify", settings_of_rank)
        if not group.wait(60):
            problems.append("not finished after 60 s")
        expect_results(group, problems)
        text = group.output()
        line = expect_one_line(text, words, problems)
        shunted, forwarded = total(text, "shunted"), total(text, "forwarded")
        if shunted != RANKS * shunted_of_rank:
            problems.append(f"{shunted} calls shunted, {RANKS * shunted_of_rank} expected")
        if shunted + forwarded != RANKS * len(SIZES):
            problems.append(f"{shunted} shunted and {forwarded} forwarded of {RANKS * len(SIZES)} calls")
        report.case(name, problems, line, text)


def refusing(arguments, **more):
    """CUDA IPC is refused on rank 1."""
    faulty = support.faulty_driver(arguments.build)
    calls = "cuIpcOpenMemHandle,cuIpcOpenMemHandle_v2,cuMemImportFromShareableHandle"
    return lambda rank: {**more, **({} if rank == 0 else {"also_preload": [faulty], "FAULTY_CALLS": calls})}


def ipc_refused(report, arguments):
    """Host memory takes over."""
    run_verify(report, arguments, "ipc_refused", refusing(arguments),
               ["push does not work", "rank 1", "trying host"], sum(size <= 131072 for size in SIZES))


def ipc_refused_and_insisted_on(report, arguments):
    run_verify(report, arguments, "ipc_refused_and_insisted_on", refusing(arguments, SHUNT_PLACEMENT="push"),
               ["off:", "rank 1"], 0)


def one_rank_off(report, arguments):
    run_verify(report, arguments, "one_rank_off",
               lambda rank: {"SHUNT_ENABLE": "off" if rank == 1 else "on"}, ["switched off", "rank 1"], 0)


def caps_differ(report, arguments):
    run_verify(report, arguments, "caps_differ",
               lambda rank: {"SHUNT_CAP": "64K" if rank == 1 else "128K"}, ["cap 65536", "differ"],
               sum(size <= 65536 for size in SIZES))


def p2p_disabled(report, arguments):
    """NCCL_P2P_DISABLE=1: host memory is used, results are right."""
    run_verify(report, arguments, "p2p_disabled", lambda rank: {"NCCL_P2P_DISABLE": "1"}, ["on, host"],
               sum(size <= 131072 for size in SIZES))


def late_peer(report, arguments):
    problems = []
    with Group() as group:
        start(group, arguments, "late", lambda rank: {"SHUNT_TIMEOUT": str(TIMEOUT)})
        if not group.wait(60):
            problems.append("not finished after 60 s")
        expect_results(group, problems)
        if support.WAIT.search(group.output()):
            problems.append("a wait under the deadline was reported")
        report.case("late_peer", problems, "1.5 s late: no report", group.output())


def lost_peer(report, arguments, name, sign, scenario="lost_peer", timeout=TIMEOUT):
    """Rank 1 gets `sign` while rank 0 waits: a line in time, a loud end, nothing behind the call ran."""
    problems = []
    detail = ""
    with Group() as group:
        start(group, arguments, scenario, lambda rank: {"SHUNT_TIMEOUT": timeout})
        survivor, victim = group.processes
        if not support.wait_for_file(group.path("waiting.0"), 60, lambda: survivor.poll() is None):
            problems.append("rank 0 never got as far as waiting")
        time.sleep(0.3)
        os.killpg(victim.pid, sign)
        begin = time.monotonic()
        if not group.wait(45, [survivor]):
            problems.append("rank 0 was still there after 45 s")
        took = time.monotonic() - begin
        text = group.output(0)
        lines = [line for line in lines_of(text, "error", "warning") if support.WAIT.search(line)]
        if not lines:
            problems.append("no line says who waits for whom")
        elif any(support.WAIT.search(line).groups() != ("0", "1") for line in lines):
            problems.append("a line blames the wrong rank")
        else:
            detail = f"after {took:.1f} s; {lines[0]}"
        if took > (timeout or GRACE) + 8:
            problems.append(f"ended only after {took:.1f} s")
        if "marker 1" in text or "stream finished" in text:
            problems.append("the stream went on with an unfinished sum")
        if survivor.returncode == 0:
            problems.append("rank 0 ended as if all were well")
        if "still waiting" in text:
            problems.append("the wait never ended")
        report.case(name, problems, detail, group.output())


def killed_peer(report, arguments):
    lost_peer(report, arguments, "killed_peer", signal.SIGKILL)


def killed_peer_in_graph(report, arguments):
    lost_peer(report, arguments, "killed_peer_in_graph", signal.SIGKILL, "lost_peer_in_graph")


def killed_peer_no_timeout(report, arguments):
    lost_peer(report, arguments, "killed_peer_no_timeout", signal.SIGKILL, timeout=None)


def stopped_peer(report, arguments):
    lost_peer(report, arguments, "stopped_peer", signal.SIGSTOP)


def stopped_peer_in_graph(report, arguments):
    lost_peer(report, arguments, "stopped_peer_in_graph", signal.SIGSTOP, "lost_peer_in_graph")


def abort(report, arguments):
    problems = []
    with Group() as group:
        start(group, arguments, "abort", lambda rank: {})
        if not group.wait(90):
            problems.append("not finished after 90 s")
        expect_results(group, problems)
        text = group.output(0)
        took = [line for line in text.splitlines() if line.startswith("abort took")]
        if not took:
            problems.append("abort never returned")
        elif float(took[0].split()[2]) > 5:
            problems.append(took[0])
        if "stream finished" not in text and "cuda error seen" not in text:
            problems.append("the wait did not end")
        if total(group.output(), "shunted") == 0:
            problems.append("nothing was shunted")
        report.case("abort", problems, took[0] if took else "", group.output())


CASES = {f.__name__: f for f in (ipc_refused, ipc_refused_and_insisted_on, one_rank_off, caps_differ, p2p_disabled, late_peer,
                                 killed_peer, killed_peer_in_graph, killed_peer_no_timeout,
                                 stopped_peer, stopped_peer_in_graph, abort)}


def main():
    p = support.parser(__doc__.splitlines()[0])
    p.add_argument("cases", nargs="*", metavar="CASE", help=", ".join(CASES))
    arguments = p.parse_args()
    unknown = set(arguments.cases) - set(CASES)
    if unknown:
        p.error(f"no such case: {', '.join(unknown)}")
    support.require_two_gpus(arguments.emulated)
    report = support.Report(arguments, "faults")
    for name in arguments.cases or CASES:
        CASES[name](report, arguments)
    return report.finish()


if __name__ == "__main__":
    sys.exit(main())
