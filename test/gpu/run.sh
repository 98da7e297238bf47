#!/usr/bin/env bash
# Build, tests and benchmarks on a machine with two GPUs, in one go and in less than ten minutes:
#   test/gpu/run.sh [STEP...]        steps: build ctypes bench torch faults nccl-tests tests (all)
#                                    and tune, soak (ten million calls), killed (kill -9 at many places)
#                                    and cases (test/cases), minutes more, doctor, exits (ends of programs),
#                                    errors (of float sums) and pytorch (its own tests): only run when named
#
# OUT: folder of the logs, one a step, and of results.json (out). BUILD: build folder (build).
# ONE_GPU=1: two ranks share the first GPU (ctypes torch faults killed cases errors; no figures of time).
# NCCL_TESTS: folder with all_reduce_perf and all_reduce_perf_mpi; without it that step is skipped.
# KEEP: results.json of an earlier run of the same commit or another, for the steps that are not run now.
# LIMIT: seconds for everything (560). A step that is over its own limit is ended and counts as failed.
set -uo pipefail
cd "$(dirname "$(readlink -f "$0")")/../.."

OUT=${OUT:-out}
BUILD=$(readlink -m "${BUILD:-build}")
LIMIT=${LIMIT:-560}
JOBS=$(nproc)
STEPS=(build ctypes bench torch faults nccl-tests tests)
mkdir -p "$OUT" "$BUILD/gpu"
OUT=$(readlink -f "$OUT")
export PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
here=test/gpu
rows=()
failed=0

# step NAME SECONDS COMMAND...: the command under its limit, its output in OUT/NAME.log, one row.
step() {
  local name=$1 limit=$2 left code start=$SECONDS verdict
  shift 2
  left=$((LIMIT - SECONDS))
  [ "$limit" -le "$left" ] || limit=$left
  if [ "$limit" -lt 5 ]; then
    rows+=("$name|not run|0|no time left of $LIMIT s")
    failed=1
    return 1
  fi
  echo "== $name (at most $limit s)"
  timeout --kill-after=5 "$limit" "$@" >"$OUT/$name.log" 2>&1 </dev/null
  code=$?
  case $code in
    0) verdict=ok ;;
    77) verdict=skipped ;;
    124 | 137) verdict="over $limit s" ;;
    *) verdict="failed ($code)" ;;
  esac
  [ "$code" = 0 ] || [ "$code" = 77 ] || failed=1
  grep -E '^(FAIL|skip)' "$OUT/$name.log" | cut -c1-400
  [ "$code" = 0 ] || [ "$code" = 77 ] || tail -n "${TAIL:-25}" "$OUT/$name.log" | cut -c1-300
  rows+=("$name|$verdict|$((SECONDS - start))|$(grep -vE '^\s*$' "$OUT/$name.log" | tail -n 1 | cut -c1-110)")
  return "$code"
}

python_step() {  # NAME SECONDS SCRIPT [ARGUMENT...]
  local name=$1 limit=$2 script=$3
  shift 3
  rm -f "$BUILD/gpu/$name.json"
  step "$name" "$limit" python3 "$here/$script.py" --build "$BUILD" --json "$BUILD/gpu/$name.json" "$@"
}

build() {
  cmake -S . -B "$BUILD" -G Ninja -DCMAKE_BUILD_TYPE=Release && cmake --build "$BUILD" --parallel "$JOBS"
}
export -f build
export BUILD JOBS

run_step() {
  case $1 in
    build) step build 170 bash -c build ;;
    ctypes) python_step ctypes 60 ctypes_client ;;
    bench) python_step bench 240 bench ;;
    torch) python_step torch 100 torch_allreduce ;;
    faults) python_step faults 130 faults ;;
    nccl-tests) python_step nccl-tests 160 nccl_tests ;;
    tune) python_step tune 520 tune ;;
    soak) python_step soak 290 soak ;;
    killed) python_step killed 250 killed ;;
    cases) python_step cases 520 cases ;;
    pytorch) python_step pytorch 520 pytorch_tests ;;
    errors) python_step errors 150 errors ;;
    doctor) python_step doctor 120 doctor ;;
    exits) python_step exits 150 exits ;;
    tests) step tests 150 ctest --test-dir "$BUILD" -E '^gpu[.]' --output-on-failure --parallel "$JOBS" ;;
    *) echo "no step $1; there are: ${STEPS[*]} tune soak killed cases doctor exits errors pytorch" >&2; exit 2 ;;
  esac
}

COMMAND="${ONE_GPU:+ONE_GPU=1 }test/gpu/run.sh${*:+ $*}"
if [ $# -eq 0 ]; then
  rm -f "$BUILD"/gpu/*.json  # a part that is run again keeps the others' outcome
  set -- "${STEPS[@]}"
fi
for name in "$@"; do
  if ! run_step "$name" && [ "$name" = build ]; then
    break  # whatever follows would test an older build
  fi
done

COMMAND=$COMMAND python3 results/collect.py ${KEEP:+--keep "$KEEP"} "$BUILD"/gpu/*.json >"$OUT/results.json" 2>"$BUILD/gpu/collect.log" ||
  cat "$BUILD/gpu/collect.log"
echo
printf '%-12s %-14s %5s  %s\n' step outcome s 'last line'
for row in "${rows[@]}"; do
  IFS='|' read -r name verdict took last <<<"$row"
  printf '%-12s %-14s %5s  %s\n' "$name" "$verdict" "$took" "$last"
done
echo "$SECONDS s in all; logs and results.json in $OUT"
exit "$failed"
