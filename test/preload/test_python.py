"""Python's start methods: the parent never uses NCCL, the children do."""
import unittest

from harness import *

SCRIPT = """
import ctypes, multiprocessing, sys

def work(queue):
    library = ctypes.CDLL({library!r})
    queue.put((library.use_nccl(), library.ncclGroupStart()))

if __name__ == "__main__":
    context = multiprocessing.get_context({method!r})
    queue = context.Queue()
    children = [context.Process(target=work, args=(queue,)) for _ in range(3)]
    for child in children:
        child.start()
    results = [queue.get(timeout=60) for _ in children]
    for child in children:
        child.join()
    print(results, [child.exitcode for child in children])
"""
PER_CHILD = A_CALLS + ["engine libnccl.so.2:ncclGroupStart", "nccl A:ncclGroupStart"]


class StartMethods(Case):
    def start(self, method):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "start.py")
            with open(path, "w") as file:
                file.write(SCRIPT.format(library=user("libuser_a.so"), method=method))
            result = run([PYTHON, path], [BESIDE])
        self.check(result, stdout="[(0, 0), (0, 0), (0, 0)] [0, 0, 0]\n")
        self.assertEqual(sorted(result.trace), sorted(3 * PER_CHILD))

    def test_fork(self):
        self.start("fork")

    def test_spawn(self):
        self.start("spawn")

    def test_forkserver(self):
        self.start("forkserver")

    def test_fork_while_other_threads_make_their_first_call(self):
        script = f"""
import ctypes, os, threading, warnings
warnings.simplefilter("ignore", DeprecationWarning)  # of Python 3.12, about just this
library = ctypes.CDLL({user('libuser_a.so')!r})
threads = [threading.Thread(target=library.use_nccl) for _ in range(4)]
for thread in threads: thread.start()
children = []
for _ in range(8):
    child = os.fork()
    if child == 0: os._exit(library.use_nccl())
    children.append(child)
for thread in threads: thread.join()
print({{os.waitpid(child, 0)[1] for child in children}})
"""
        for _ in range(5):
            self.check(python(script, timeout=60), stdout="{0}\n")


if __name__ == "__main__":
    unittest.main()
