"""What torch_allreduce.py runs: every rank's calls, each compared with an fp64 sum of the rounded inputs.
Writes {"cases", "problems", "up_to_cap", "above_cap", "digest"} of rank r to FOLDER/rank.r."""

import argparse
import hashlib
import json
import os

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

import support

TYPES = {torch.bfloat16: 2.0**-8, torch.float16: 2.0**-11, torch.float32: 2.0**-24}  # half an ulp of 1
GUARD = 3.0
GUARDS = 8  # elements before and after each buffer


def sizes(dtype, cap):
    """Elements: from one to 4 MiB, odd ones, and the edges of the cap."""
    width = dtype.itemsize
    edge = cap // width
    most = 4 * 1024 * 1024 // width
    return [1, 2, 3, 7, 8, 9, 63, 257, 1000, 1023, 2048, 4097, 16384, 21504, edge // 2 + 1, edge - 1,
            edge, edge + 1, 100003, most // 4 + 5, most - 1, most]


class Job:
    def __init__(self, rank, ranks, cap):
        self.rank = rank
        self.ranks = ranks
        self.cap = cap
        self.cases = 0
        self.up_to_cap = 0
        self.above_cap = 0
        self.problems = []
        self.digest = hashlib.sha256()
        self.seed = 0

    # ---- calls are counted where they are made; a replay makes none ----
    def count(self, *tensors):
        """A call, or the calls of one group, which are shunted where their sum is up to the cap."""
        if sum(tensor.numel() * tensor.element_size() for tensor in tensors) <= self.cap:
            self.up_to_cap += len(tensors)
        else:
            self.above_cap += len(tensors)

    def buffer(self, n, dtype, shift=0):
        """n elements that start `shift` elements past an aligned address, guards around them."""
        whole = torch.full((n + 2 * GUARDS + shift,), GUARD, dtype=dtype, device="cuda")
        return whole, whole[GUARDS + shift:GUARDS + shift + n]

    def inputs(self, n, dtype):
        """The same random inputs of all ranks on every rank."""
        self.seed += 1
        generator = torch.Generator().manual_seed(self.seed)
        return [torch.randn(n, generator=generator).to(dtype).cuda() for _ in range(self.ranks)]

    def check(self, name, whole, view, inputs):
        self.cases += 1
        exact = sum(x.double() for x in inputs)
        magnitude = sum(x.double().abs() for x in inputs)
        half_ulp = TYPES[view.dtype]
        bytes_ = view.numel() * view.element_size()
        # Rounded once; what more than two ranks add is rounded to fp32 in between, by NCCL to the type.
        inner = 2.0**-24 if bytes_ <= self.cap else half_ulp
        bound = 1.001 * half_ulp * exact.abs() + (self.ranks - 2) * inner * magnitude
        bound += 2.0**-24 * magnitude + torch.finfo(view.dtype).smallest_normal * half_ulp
        off = (view.double() - exact).abs() > bound
        if not torch.isfinite(view).all() or off.any():
            where = off.nonzero()[:1].flatten().tolist()
            self.problems.append(f"{name}: {int(off.sum())} of {off.numel()} wrong, first at {where}")
        edge = view.storage_offset()
        if not ((whole[:edge] == GUARD).all() and (whole[edge + view.numel():] == GUARD).all()):
            self.problems.append(f"{name}: wrote outside its buffer")
        self.digest.update(view.contiguous().view(torch.uint8).cpu().numpy().tobytes())

    # ---- the kinds of call ----
    def eager(self, dtype):
        for n in sizes(dtype, self.cap):
            for shift in (0, 1, 3):
                whole, view = self.buffer(n, dtype, shift)
                inputs = self.inputs(n, dtype)
                view.copy_(inputs[self.rank])
                dist.all_reduce(view)
                self.count(view)
                self.check(f"eager {dtype} {n} elements shift {shift}", whole, view, inputs)

    def coalesced(self, dtype):
        edge = self.cap // dtype.itemsize
        for manager in (True, False) if hasattr(dist, "all_reduce_coalesced") else (True,):
            for counts in ([1, 7, 4096], [edge + 1, 3, edge], [5] * 20):
                buffers = [self.buffer(n, dtype, i % 2) for i, n in enumerate(counts)]
                inputs = [self.inputs(n, dtype) for n in counts]
                for (_, view), values in zip(buffers, inputs):
                    view.copy_(values[self.rank])
                views = [view for _, view in buffers]
                if manager:
                    with dist._coalescing_manager(device=torch.device("cuda", torch.cuda.current_device())):
                        for view in views:
                            dist.all_reduce(view)
                else:
                    dist.all_reduce_coalesced(views)
                self.count(*views)
                for (whole, view), values in zip(buffers, inputs):
                    how = "manager" if manager else "function"
                    self.check(f"coalesced by {how} {dtype} {view.numel()}", whole, view, values)

    def graph(self, dtype, group=None, replays=6):
        """One graph of several calls, replayed with new inputs, eager calls in between."""
        edge = self.cap // dtype.itemsize
        counts = [1, 2048, 21504, edge, edge + 1, 257]
        buffers = [self.buffer(n, dtype, i % 2) for i, n in enumerate(counts)]
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, capture_error_mode="thread_local"):
            for _, view in buffers:
                dist.all_reduce(view, group=group)
                self.count(view)
        for replay in range(replays):
            inputs = [self.inputs(n, dtype) for n in counts]
            for (_, view), values in zip(buffers, inputs):
                view.copy_(values[self.rank])
            graph.replay()
            for (whole, view), values in zip(buffers, inputs):
                self.check(f"graph {dtype} {view.numel()} replay {replay}", whole, view, values)
            if replay % 2:
                whole, view = self.buffer(4097, dtype)
                values = self.inputs(4097, dtype)
                view.copy_(values[self.rank])
                dist.all_reduce(view, group=group)
                self.count(view)
                self.check(f"between replays {dtype} replay {replay}", whole, view, values)
        torch.cuda.synchronize()
        del graph


def run(rank, arguments):
    device = 0 if support.one_gpu() else rank
    if support.one_gpu():
        os.environ.update(support.on_one_gpu(os.environ, rank))
    torch.cuda.set_device(device)
    dist.init_process_group("nccl", init_method=f"file://{arguments.folder}/rendezvous", rank=rank,
                            world_size=arguments.ranks, device_id=torch.device("cuda", device))
    job = Job(rank, arguments.ranks, arguments.cap)
    # The very first call on a communicator, captured.
    fresh = dist.new_group(list(range(arguments.ranks)))
    job.graph(torch.bfloat16, fresh)
    for dtype in TYPES:
        job.eager(dtype)
        job.coalesced(dtype)
        job.graph(dtype)
    torch.cuda.synchronize()
    with open(os.path.join(arguments.folder, f"rank.{rank}"), "w") as f:
        json.dump({"cases": job.cases, "problems": job.problems, "up_to_cap": job.up_to_cap,
                   "above_cap": job.above_cap, "digest": job.digest.hexdigest(), "pid": os.getpid(),
                   "torch": torch.__version__, "nccl": list(torch.cuda.nccl.version())}, f)
    dist.destroy_process_group()


if __name__ == "__main__":
    p = argparse.ArgumentParser()
    p.add_argument("--folder", required=True)
    p.add_argument("--ranks", type=int, default=2)
    p.add_argument("--cap", type=int, required=True)
    args = p.parse_args()
    mp.spawn(run, args=(args,), nprocs=args.ranks)
