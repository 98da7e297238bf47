#!/usr/bin/env python3
"""Programs that end in every way that Python knows, with communicators alive: in any order of ranks, with daemon
threads in the middle of calls, after forks. Under `python -X dev`, which reports what goes wrong at the end."""

import os
import re
import sys
import threading
import time

import nccl_client
import support
from nccl_client import NcclError
from support import Group, environment, lines_of, total

RANKS = 2
SMALL, LARGE = 4096, 1 << 20  # bytes: shunted, forwarded


class Rank:
    def __init__(self, rank, folder):
        self.rank, self.folder = rank, folder
        self.cuda = nccl_client.Cuda(rank)
        self.nccl = nccl_client.Nccl()
        self.comms = 0
        self.comm = self.connect()
        self.stream = self.cuda.stream()
        self.address = self.cuda.memory(LARGE)

    def connect(self):
        self.comms += 1
        return self.nccl.init(self.rank, RANKS, os.path.join(self.folder, f"id.{self.comms}"))

    def call(self, nbytes=SMALL, stream=None):
        self.nccl.all_reduce(self.address, self.address, nbytes // 4, "float32", self.comm, stream or self.stream)

    def work(self):
        for nbytes in (SMALL, LARGE, SMALL):
            inputs = [nccl_client.random_floats(nbytes // 4, nbytes + r) for r in range(RANKS)]
            self.cuda.upload(self.address, inputs[self.rank], self.stream)
            self.call(nbytes)
            result = self.cuda.download(self.address, nbytes, self.stream)
            if result != nccl_client.sum_in_rank_order(inputs).tobytes():
                raise RuntimeError(f"wrong result at {nbytes} bytes")

    def meet(self, name):
        """Both ranks have come here."""
        open(os.path.join(self.folder, f"{name}.{self.rank}"), "w").close()
        if not support.wait_for_file(os.path.join(self.folder, f"{name}.{1 - self.rank}"), 60):
            raise RuntimeError(f"alone at {name}")

    def in_daemon(self, body):
        """Runs body(started) in a daemon thread that ends with the process; returns once it has begun."""
        started = threading.Event()

        def run():
            self.cuda.make_current()
            try:
                body(started.set)
            except (NcclError, nccl_client.CudaError) as error:
                print(f"daemon: {error}", flush=True)

        threading.Thread(target=run, daemon=True).start()
        started.wait()


# ---- ways to end; each gets a Rank whose work was right ---------------------------------------------------

def nothing_destroyed(rank):
    pass


def destroyed(rank):
    rank.nccl.destroy(rank.comm)


def destroyed_at_exit(rank):
    import atexit
    atexit.register(rank.nccl.destroy, rank.comm)


def destroyed_with_the_modules(rank):
    class Owner:
        def __del__(self, nccl=rank.nccl, comm=rank.comm):
            nccl.destroy(comm)
    sys.modules["__main__"].owner = Owner()
    os.owner = sys.modules["__main__"].owner  # and in another module, which goes later


def calls_queued(rank):
    for nbytes in (SMALL, LARGE, SMALL):
        rank.call(nbytes)


def one_rank_first(rank):
    if rank.rank == 0:
        time.sleep(1.5)


def other_rank_first(rank):
    if rank.rank == 1:
        time.sleep(1.5)


def daemon_calls(rank):
    def body(started):
        for turn in range(1 << 30):
            rank.call()
            rank.cuda.synchronize(rank.stream)
            if turn == 20:
                started()
    rank.in_daemon(body)


def daemon_asks(rank):
    def body(started):
        for turn in range(1 << 30):
            rank.nccl.async_error(rank.comm)
            if turn == 20:
                started()
    rank.in_daemon(body)


def daemon_waits(rank):
    if rank.rank == 0:
        def body(started):
            rank.call()  # which rank 1 never makes
            started()
            rank.cuda.synchronize(rank.stream)
        rank.in_daemon(body)
        time.sleep(0.3)
    rank.meet("waits")


def daemon_makes_communicators(rank):
    def body(started):
        for turn in range(1 << 30):
            rank.nccl.destroy(rank.connect())
            if turn == 3:
                started()
    rank.in_daemon(body)


def fork_and_end():
    child = os.fork()
    if child == 0:
        sys.exit(7)
    if os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) != 7:
        raise RuntimeError("the child did not end as it should")


def forked_child_ends_first(rank):
    fork_and_end()
    rank.work()
    rank.nccl.destroy(rank.comm)


def forked_child_ends_last(rank):
    read, write = os.pipe()
    if os.fork() != 0:
        rank.work()
        return  # `write` is closed by the end of the process
    os.close(write)
    os.read(read, 1)
    time.sleep(0.2)
    print("child is last", flush=True)
    open(os.path.join(rank.folder, f"child.{rank.rank}"), "w").close()


def forked_beside_a_daemon(rank):
    daemon_asks(rank)
    for _ in range(10):
        fork_and_end()
    rank.work()


# Way, and whether the library may warn: where a rank is left alone in a call.
WAYS = [(nothing_destroyed, False), (destroyed, False), (destroyed_at_exit, False),
        (destroyed_with_the_modules, False), (calls_queued, False), (one_rank_first, False),
        (other_rank_first, False), (daemon_calls, True), (daemon_asks, False), (daemon_waits, True),
        (daemon_makes_communicators, True), (forked_child_ends_first, False), (forked_child_ends_last, False),
        (forked_beside_a_daemon, False)]
TROUBLE = re.compile(r"Traceback|Fatal Python error|Exception ignored|ResourceWarning|terminate called|misuse|"
                     r"Segmentation|Abort|\bassert", re.IGNORECASE)


def client(number, rank_number, folder):
    rank = Rank(rank_number, folder)
    rank.work()
    rank.meet("work")
    WAYS[number][0](rank)
    print("body done", flush=True)


def start(group, number, env):
    for rank in range(RANKS):
        group.start([sys.executable, "-X", "dev", os.path.abspath(__file__), "--client", str(number), str(rank),
                     group.folder], {**env, "PYTHONDEVMODE": "1", "PYTHONFAULTHANDLER": "1"})


def ends_with_nccl_alone(arguments, number):
    with Group() as group:
        start(group, number, environment(arguments.build, preload=False))
        return group.wait(20)


def run(report, arguments, number):
    way, may_warn = WAYS[number]
    problems = []
    if way is daemon_waits and not arguments.emulated and not ends_with_nccl_alone(arguments, number):
        # Seen with driver 580: the end of a process waits for its kernels, and NCCL's wait for ever too.
        return report.skip(way.__name__.replace("_", " "), "a program that leaves a kernel of NCCL's waiting does not end")
    with Group() as group:
        start(group, number, environment(arguments.build, emulated=arguments.emulated, SHUNT_CAP="131072"))
        if not group.wait(60):
            problems.append("not finished after 60 s")
        if way is forked_child_ends_last:
            for rank in range(RANKS):
                if not support.wait_for_file(group.path(f"child.{rank}"), 10):
                    problems.append(f"the child of rank {rank} did not come to its end")
            time.sleep(1)  # and does what processes do at their end
        text = group.output()
        if any(process.returncode != 0 for process in group.processes):
            problems.append(f"exit status {[p.returncode for p in group.processes]}")
        if text.count("body done") < RANKS:
            problems.append("a rank did not come to its end")
        found = TROUBLE.search(text)
        if found:
            problems.append(f"says {found.group(0)!r}")
        said = lines_of(text, "error") + lines_of(text, "warning")
        if said and not may_warn:
            problems.append(f"the library says {said[0]!r}")
        if total(text, "shunted") < RANKS * 2:
            problems.append("too little was shunted")
        report.case(way.__name__.replace("_", " "), problems, f"{total(text, 'shunted')} shunted", text)


def main():
    if len(sys.argv) > 1 and sys.argv[1] == "--client":
        return client(int(sys.argv[2]), int(sys.argv[3]), sys.argv[4])
    arguments = support.parser(__doc__).parse_args()
    support.require_two_gpus(arguments.emulated)
    report = support.Report(arguments, "exits")
    for number in range(len(WAYS)):
        run(report, arguments, number)
    return report.finish()


if __name__ == "__main__":
    sys.exit(main())
