"""PyTorch: nothing changes in the program.

    LD_PRELOAD=/path/to/libnccl-shunt.so SHUNT_STATS=1 torchrun --nproc-per-node 2 pytorch.py
"""

import os

import torch
import torch.distributed as dist


def main():
    rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl", device_id=torch.device("cuda", rank))
    ranks = dist.get_world_size()

    hidden = torch.full((1, 5120), float(rank + 1), dtype=torch.bfloat16, device="cuda")
    dist.all_reduce(hidden)  # 10 KiB: shunted
    assert (hidden == ranks * (ranks + 1) / 2).all()

    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):
        dist.all_reduce(hidden)
    for replay in range(100):
        hidden.fill_(rank + replay)
        graph.replay()
        expected = sum(r + replay for r in range(ranks))
        assert (hidden == torch.tensor(expected, dtype=torch.bfloat16)).all(), replay

    large = torch.ones(64 * 1024 * 1024, device="cuda")
    dist.all_reduce(large)  # 256 MiB: NCCL's
    assert (large == ranks).all()
    if rank == 0:
        print("all right")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
