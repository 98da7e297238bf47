#!/usr/bin/env python3
"""The programs of test/cases that need no fault and no more than two ranks, on two GPUs with the real driver and
NCCL: the same binaries, which then leave out what they ask of the emulator. On the emulator ctest runs them all.
"""

import os
import sys

import support
from support import Group, environment

# (program, test case, seconds). What is left out wants a fault, a trace of the emulator, or more ranks.
CASES = [
    ("mixed_cases", "mixed_program_of_two_ranks", 240),
    ("graphs_cases", "case_15_thousand_replays", 100),
    ("graphs_cases", "case_16_graphs_and_eager_calls_mixed", 100),
    ("graphs_cases", "case_18_first_call_captured_and_preparing_beside_a_capture", 70),
    ("concurrency_cases", "case_10_forked_child_shunts", 70),
    ("concurrency_cases", "case_22_two_streams", 70),
    ("concurrency_cases", "case_22_order_across_streams", 70),
    ("concurrency_cases", "case_23_two_communicators", 70),
    ("concurrency_cases", "case_26_groups", 70),
    ("shapes_cases", "case_31_shapes_of_two_ranks", 110),
    ("shapes_cases", "case_31_alignment_differs_between_ranks", 70),
    ("shapes_cases", "case_33_odd_values", 70),
    ("shapes_cases", "case_34_same_bits_and_small_errors", 70),
    ("shapes_cases", "case_34_row_does_not_depend_on_its_batch", 70),
    ("shapes_cases", "case_35_integers_and_what_is_not_ours", 130),
    ("shapes_cases", "case_36_numbers_of_ranks", 70),
    ("shapes_cases", "case_37_counters_and_cap_line", 190),
    ("shapes_cases", "case_37_default_caps", 70),
    ("life_cases", "case_29_skew_no_use_no_destroy", 70),
    ("life_cases", "case_29_a_peer_that_has_finished_may_be_gone", 130),
    ("life_cases", "case_29_dump_by_signal", 110),
    ("hosts_cases", "case_42_message_between_calls", 70),
    ("hosts_cases", "case_42_grouped_on_one_rank_only", 130),
]


def run(report, arguments, program, case, limit):
    path = os.path.join(arguments.build, "bin", program)
    if not os.path.exists(path):
        report.skip(case, f"{program} is not built")
        return
    on_gpus = {} if arguments.emulated else {"CASES_ON_GPUS": 1}
    env = environment(arguments.build, preload=False, emulated=arguments.emulated, **on_gpus)
    with Group() as group:
        process = group.start([path, case], env)
        problems = [] if group.wait(limit) else [f"not finished after {limit} s"]
        text = group.output()
        if process.returncode != 0:
            problems.append(f"exit status {process.returncode}")
        if "All tests passed" not in text:
            problems.append("no test case ran to its end")
        report.case(case, problems, text.strip().splitlines()[-1] if text.strip() else "", text)


def main():
    parser = support.parser(__doc__.splitlines()[0])
    parser.add_argument("cases", nargs="*", help="those whose names contain one of these words")
    arguments = parser.parse_args()
    support.require_two_gpus(arguments.emulated)
    report = support.Report(arguments, "cases")
    for program, case, limit in CASES:
        if not arguments.cases or any(word in case for word in arguments.cases):
            run(report, arguments, program, case, limit)
    return report.finish()


if __name__ == "__main__":
    sys.exit(main())
