"""One rank of killed.py: all-reduces in one of several ways for ever, every one checked; the last rank kills
itself at --die.

What it prints is for killed.py: "ended: HOW" (all that it waited for has ended) and "wrong ...".
"""

import argparse
import array
import ctypes
import os
import random
import signal
import sys
import threading
import time

import nccl_client

SMALL, LARGE = 6000, 1 << 20  # bytes; the cap lies between
CALLS = 100000  # without end, unless the point lies behind the calls
POISON = 0x7b


def die():
    os.kill(os.getpid(), signal.SIGKILL)


class Ended(Exception):
    pass


class Rank:
    def __init__(self, arguments):
        self.arguments = arguments
        self.rank, self.ranks = arguments.rank, arguments.ranks
        self.victim = self.rank == self.ranks - 1
        self.cuda = nccl_client.Cuda(self.rank)
        self.nccl = nccl_client.Nccl()
        self.stream = self.cuda.stream()
        self.send, self.recv = self.cuda.memory(LARGE), self.cuda.memory(LARGE)
        self.image = self.cuda.pinned(LARGE)
        self.comm = self.graph = None

    def at(self, point):
        if self.victim and self.arguments.die == point:
            die()

    def die_by_the_clock(self, point, most=0.3):
        if self.victim and self.arguments.die == point:
            threading.Timer(random.random() * most, die).start()

    # ---- calls ----

    def one(self, nbytes, offset=0):
        self.nccl.all_reduce(self.send + offset, self.recv + offset, nbytes // 4, "float32", self.comm, self.stream)

    def enqueue(self, nbytes):
        way = self.arguments.way
        if way == "graph":
            self.cuda.launch(self.graph, self.stream)
        elif way == "group":
            third = nbytes // 3
            self.nccl.call("ncclGroupStart")
            self.one(third)
            self.at("in a group")
            self.one(third, third)
            self.one(third, 2 * third)
            self.nccl.call("ncclGroupEnd")
        else:
            self.one(nbytes)

    def capture(self):
        def record():
            self.one(SMALL)
            self.at("in the capture")
        self.graph = self.cuda.capture(self.stream, record)

    def call(self, number):
        """One call, checked; what follows it on the stream must not see an unfinished sum."""
        large = self.arguments.way == "forwarded" or (self.arguments.way == "mixed" and number % 2)
        nbytes = LARGE if large else SMALL
        value = float(1 + number % 1000)
        self.cuda.upload(self.send, array.array("f", [value * (self.rank + 1)]) * (nbytes // 4), self.stream)
        self.cuda.upload(self.recv, bytes([POISON]) * nbytes, self.stream)
        ctypes.memset(self.image, 0, nbytes)
        self.enqueue(nbytes)
        self.cuda.download_later(self.image, self.recv, nbytes, self.stream)
        self.at("in a later call" if number > 20 else "")
        self.wait()
        got = ctypes.string_at(self.image, nbytes)
        total = value * self.ranks * (self.ranks + 1) / 2
        if got != array.array("f", [total]).tobytes() * (nbytes // 4):
            print(f"wrong sum in call {number}", flush=True)

    def wait(self):
        while not self.cuda.finished(self.stream):
            error = self.nccl.async_error(self.comm)
            if error and not self.arguments.trap:
                self.leave(f"async error {error}")
            time.sleep(0.0002)

    def leave(self, how):
        self.nccl.abort(self.comm)
        # An abort ends the kernels: what is behind them on the stream runs, and nobody may use it.
        self.cuda.synchronize(self.stream)
        raise Ended(how)

    # ---- the life ----

    def live(self):
        self.die_by_the_clock("while NCCL connects", 0.5)
        self.at("before preparing")
        try:
            self.comm = self.nccl.init(self.rank, self.ranks, self.arguments.id_file)
        except nccl_client.NcclError as error:
            raise Ended(f"making the communicator gave {error}") from error
        print("made", flush=True)
        self.at("after preparing")
        if self.arguments.way == "graph":
            self.capture()
        self.die_by_the_clock("among calls")
        behind = self.arguments.die.endswith("destroy")
        for number in range(20 if behind else CALLS):
            self.call(number)
        self.meet()
        self.at("before the destroy")
        self.die_by_the_clock("in the destroy", 0.002)
        self.nccl.destroy(self.comm)
        if self.victim:
            die()  # the clock was slower
        raise Ended("all calls done")

    def meet(self):
        """All ranks are through with their calls."""
        own = f"{self.arguments.id_file}.done.{self.rank}"
        open(own, "w").close()
        for rank in range(self.ranks):
            while not os.path.exists(f"{self.arguments.id_file}.done.{rank}"):
                time.sleep(0.001)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--rank", type=int, required=True)
    p.add_argument("--ranks", type=int, default=2)
    p.add_argument("--id-file", required=True)
    p.add_argument("--way", choices=("eager", "graph", "group", "forwarded", "mixed"), required=True)
    p.add_argument("--die", required=True)
    p.add_argument("--trap", action="store_true", help="do not look at errors: until the kernel traps")
    rank = Rank(p.parse_args())
    try:
        rank.live()
    except Ended as end:
        print(f"ended: {end}", flush=True)
    except nccl_client.NcclError as error:
        print(f"ended: {error}", flush=True)
        rank.nccl.abort(rank.comm)
    except nccl_client.CudaError as error:
        print(f"ended: {error}", flush=True)
    sys.stdout.flush()
    os._exit(0)  # no destroy: NCCL's waits for the lost peer


if __name__ == "__main__":
    main()
