#!/usr/bin/env bash
# Runs your own all_reduce_perf of nccl-tests without and with the library and prints both side by side.
#
#   nccl-tests.sh LIBRARY ALL_REDUCE_PERF [ARGUMENT...]
#   nccl-tests.sh /usr/lib/libnccl-shunt.so ./build/all_reduce_perf -g 2 -G 10
#
# Without arguments: -g 2 -b 256 -e 4M -f 2 -d bfloat16 -G 20. With an MPI build, put mpirun into LAUNCH:
#   LAUNCH='mpirun -n 2' nccl-tests.sh LIBRARY ./build/all_reduce_perf_mpi -g 1
# SHUNT_ENABLE=on is set unless you set it: without it, GPUs joined by NVLink stay with NCCL.
set -euo pipefail
[ $# -ge 2 ] || { sed -n '2,10s/^# \{0,1\}//p' "$0"; exit 2; }
library=$(readlink -f "$1")
perf=$2
shift 2
[ -f "$library" ] || { echo "no library $library" >&2; exit 2; }
[ -x "$perf" ] || { echo "no program $perf" >&2; exit 2; }
[ $# -gt 0 ] || set -- -g 2 -b 256 -e 4M -f 2 -d bfloat16 -G 20
read -ra launch <<<"${LAUNCH:-}"

out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
run() {  # NAME [VARIABLE=VALUE...]
  local name=$1
  shift
  "${launch[@]}" env "$@" "$perf" "${arguments[@]}" >"$out/$name" 2>&1 || {
    cat "$out/$name"
    echo "$perf failed ($name)" >&2
    exit 1
  }
}
arguments=("$@")
echo "all_reduce_perf $*"
run nccl -u LD_PRELOAD
run shunt "LD_PRELOAD=$library" "SHUNT_ENABLE=${SHUNT_ENABLE:-on}" SHUNT_STATS=1

grep -h 'nccl-shunt\[' "$out/shunt" || echo "the library said nothing: was it loaded?"
# Columns: size count type redop root, then time algbw busbw #wrong out of place and in place.
awk '
  FNR == 1 { ++file }
  /^ *[0-9]+ +[0-9]+ +[a-z]/ && NF >= 13 {
    key = $1 " " $3 " " $4
    if (file == 1) { outside[key] = $6; inside[key] = $10; wrong_nccl[key] = $9 + $13; next }
    if (!(key in outside)) next
    if (!rows++) {
      printf "%12s %10s %6s | %28s | %28s | %s\n", "", "", "", "out of place, us", "in place, us", "#wrong"
      printf "%12s %10s %6s | %9s %9s %8s | %9s %9s %8s | %5s %5s\n", "bytes", "type", "op",
             "NCCL", "shunt", "ratio", "NCCL", "shunt", "ratio", "NCCL", "shunt"
    }
    printf "%12s %10s %6s | %9s %9s %8.2f | %9s %9s %8.2f | %5d %5d\n", $1, $3, $4, outside[key], $6,
           $6 / outside[key], inside[key], $10, $10 / inside[key], wrong_nccl[key], $9 + $13
    bad += $9 + $13
  }
  END {
    if (!rows) { print "no results to compare" > "/dev/stderr"; exit 1 }
    exit bad ? 1 : 0
  }' "$out/nccl" "$out/shunt"
