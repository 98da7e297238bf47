"""A share of the distributed tests that PyTorch's own package brings (torch.testing._internal.distributed), on NCCL
with two ranks. Writes {test: outcome} as JSON. Started by pytorch_tests.py: pytorch_suite.py OUTCOMES SHARE SHARES PATTERN"""

import json
import os
import re
import sys
import unittest

import torch
from torch.testing._internal.distributed import distributed_test

import support

torch.backends.cuda.matmul.allow_tf32 = False


class Suite(distributed_test.TestDistBackend, distributed_test.DistributedTest._DistTestBase):
    @classmethod
    def _run(cls, rank, *arguments, **options):
        if support.one_gpu():  # tests that go by the table find their GPU; those that take their rank's do not
            os.environ.update(support.on_one_gpu(os.environ, rank))
            torch.cuda.init()
            torch.cuda.device_count, torch.cuda.set_device = lambda: 2, lambda device: None
            distributed_test.init_multigpu_helper = lambda world_size, backend: {r: [0] for r in range(world_size)}
        super()._run(rank, *arguments, **options)

    def setUp(self):
        super().setUp()
        self._spawn_processes()
        torch.backends.cudnn.flags(enabled=True, allow_tf32=False).__enter__()


class Outcomes(unittest.TextTestResult):
    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        self.path, self.outcomes = os.environ["OUTCOMES"], {}

    def note(self, test, outcome):
        self.outcomes[test.id().split(".")[-1]] = outcome
        with open(self.path + ".part", "w") as f:  # what is known if it does not come to an end
            json.dump(self.outcomes, f)
        os.rename(self.path + ".part", self.path)

    def startTest(self, test):
        super().startTest(test)
        self.note(test, "started")

    def addSuccess(self, test):
        super().addSuccess(test)
        self.note(test, "ok")

    def addError(self, test, error):
        super().addError(test, error)
        self.note(test, "error")

    def addFailure(self, test, error):
        super().addFailure(test, error)
        self.note(test, "failure")

    def addSkip(self, test, reason):
        super().addSkip(test, reason)
        self.note(test, "skip")

    def addExpectedFailure(self, test, error):
        super().addExpectedFailure(test, error)
        self.note(test, "expected failure")

    def addUnexpectedSuccess(self, test):
        super().addUnexpectedSuccess(test)
        self.note(test, "unexpected success")


def main():
    os.environ["OUTCOMES"], share, shares, pattern = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
    names = [name for name in unittest.TestLoader().getTestCaseNames(Suite) if re.search(pattern, name)]
    suite = unittest.TestSuite(Suite(name) for name in names[share::shares])
    unittest.TextTestRunner(resultclass=Outcomes, verbosity=2).run(suite)


if __name__ == "__main__":
    main()
