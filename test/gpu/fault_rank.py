"""One rank of faults.py: a client that looks NCCL up with ctypes and does what --scenario says.

What it prints is for faults.py: "right N" and "wrong N" all-reduces, "waiting", "stream finished",
"marker N", "cuda error ...", "nccl error ...", "abort took S s", "async error N".
"""

import argparse
import ctypes
import os
import sys
import threading
import time

import nccl_client


class Rank:
    def __init__(self, arguments):
        self.rank = arguments.rank
        self.ranks = arguments.ranks
        self.folder = arguments.folder
        self.cuda = nccl_client.Cuda(arguments.rank)
        self.nccl = nccl_client.Nccl(arguments.library)
        self.stream = self.cuda.stream()
        self.capacity = max(arguments.sizes)
        self.send = self.cuda.memory(self.capacity)
        self.recv = self.cuda.memory(self.capacity)
        self.sizes = arguments.sizes
        self.comm = None
        self.graph = None

    def connect(self, name="id"):
        self.comm = self.nccl.init(self.rank, self.ranks, os.path.join(self.folder, name))

    def signal(self, name):
        open(os.path.join(self.folder, f"{name}.{self.rank}"), "w").close()

    def wait_for(self, name, rank, timeout=60):
        path = os.path.join(self.folder, f"{name}.{rank}")
        deadline = time.monotonic() + timeout
        while not os.path.exists(path):
            if time.monotonic() > deadline:
                sys.exit(f"no sign {name} of rank {rank}")
            time.sleep(0.005)

    def verify(self, seed=1):
        """One fp32 all-reduce of each size in bytes, compared bit by bit with the sum in rank order."""
        right = wrong = 0
        for nbytes in self.sizes:
            count = nbytes // 4
            inputs = [nccl_client.random_floats(count, seed * 1000003 + nbytes * 17 + r)
                      for r in range(self.ranks)]
            self.cuda.upload(self.send, inputs[self.rank], self.stream)
            self.cuda.upload(self.recv, b"\x7b" * nbytes, self.stream)  # poison
            self.nccl.all_reduce(self.send, self.recv, count, "float32", self.comm, self.stream)
            result = self.cuda.download(self.recv, nbytes, self.stream)
            if result == nccl_client.sum_in_rank_order(inputs).tobytes():
                right += 1
            else:
                wrong += 1
                print(f"wrong result at {nbytes} bytes", flush=True)
        print(f"right {right} wrong {wrong}", flush=True)

    def capture(self):
        """The first size in a graph, replayed once by all ranks."""
        self.graph = self.cuda.capture(self.stream, lambda: self.nccl.all_reduce(
            self.send, self.recv, self.sizes[0] // 4, "float32", self.comm, self.stream))
        self.cuda.launch(self.graph, self.stream)
        self.cuda.synchronize(self.stream)

    def call_alone(self):
        """An all-reduce that the peer does not join, and behind it a copy that must not happen."""
        nbytes = self.sizes[0]
        marker = self.cuda.memory(4)
        host = ctypes.c_uint32.from_address(self.cuda.pinned(4))
        host.value = 0
        self.cuda.upload(marker, b"\x01\x00\x00\x00", self.stream)
        if self.graph:
            self.cuda.launch(self.graph, self.stream)
        else:
            self.nccl.all_reduce(self.send, self.recv, nbytes // 4, "float32", self.comm, self.stream)
        self.cuda.download_later(ctypes.addressof(host), marker, 4, self.stream)
        print("waiting", flush=True)
        self.signal("waiting")
        return host


def watch(rank, host, seconds):
    """Polls the stream until it ends in any way; says how."""
    deadline = time.monotonic() + seconds
    code = 0
    try:
        while time.monotonic() < deadline:
            if rank.cuda.finished(rank.stream):
                print("stream finished", flush=True)
                break
            time.sleep(0.01)
        else:
            print("still waiting", flush=True)
    except nccl_client.CudaError as error:
        print(f"cuda error seen: {error}", flush=True)
        code = 3
    print(f"marker {host.value}", flush=True)
    return code


def verify(rank):
    rank.connect()
    rank.verify()
    rank.nccl.destroy(rank.comm)
    return 0


def late(rank):
    """The last rank comes 1.5 s late: no report, right results."""
    rank.connect()
    rank.verify(1)
    if rank.rank == rank.ranks - 1:
        time.sleep(1.5)
    rank.verify(2)
    rank.nccl.destroy(rank.comm)
    return 0


def lost_peer(rank, captured=False):
    """The last rank goes to sleep after some calls and is then stopped or killed by faults.py."""
    rank.connect()
    rank.verify()
    if captured:
        rank.capture()
    if rank.rank == rank.ranks - 1:
        rank.signal("asleep")
        time.sleep(120)
        return 0
    rank.wait_for("asleep", rank.ranks - 1)
    host = rank.call_alone()
    code = watch(rank, host, 40)
    try:
        print(f"async error {rank.nccl.async_error(rank.comm)}", flush=True)
    except nccl_client.NcclError as error:
        print(f"nccl error seen: {error}", flush=True)
    sys.stdout.flush()
    os._exit(code)  # no destroy: NCCL's waits for the lost peer


def lost_peer_in_graph(rank):
    return lost_peer(rank, captured=True)


def abort(rank):
    """Rank 0 waits alone; a second thread aborts. Then a new communicator of the same GPUs."""
    rank.connect()
    rank.verify()
    if rank.rank == 0:
        host = rank.call_alone()
        time.sleep(0.5)
        done = []

        def aborter():
            rank.cuda.make_current()
            start = time.monotonic()
            rank.nccl.abort(rank.comm)
            done.append(time.monotonic() - start)

        thread = threading.Thread(target=aborter)
        thread.start()
        thread.join(30)
        print(f"abort took {done[0]:.3f} s" if done else "abort never returned", flush=True)
        try:
            rank.cuda.synchronize(rank.stream)
            print("stream finished", flush=True)
        except nccl_client.CudaError as error:
            print(f"cuda error seen: {error}", flush=True)
        print(f"marker {host.value}", flush=True)
        rank.signal("aborted")
    else:
        rank.wait_for("aborted", 0)
        rank.nccl.abort(rank.comm)
    rank.connect("id-after-abort")
    rank.verify(5)
    rank.nccl.destroy(rank.comm)
    return 0


def main():
    scenarios = {f.__name__: f for f in (verify, late, lost_peer, lost_peer_in_graph, abort)}
    p = argparse.ArgumentParser()
    p.add_argument("--rank", type=int, required=True)
    p.add_argument("--ranks", type=int, default=2)
    p.add_argument("--folder", required=True)
    p.add_argument("--library", default="libnccl.so.2")
    p.add_argument("--scenario", choices=scenarios, required=True)
    p.add_argument("--sizes", type=lambda s: [int(x) for x in s.split(",")],
                   default=[4096, 4, 12, 65536, 65540, 131072, 262144])
    arguments = p.parse_args()
    code = scenarios[arguments.scenario](Rank(arguments))
    print("end", flush=True)
    return code


if __name__ == "__main__":
    sys.exit(main())
