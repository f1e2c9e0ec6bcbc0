#!/bin/sh
# Real MPI programs under `viaduct mpirun`: each must end well, and its own checks must pass.
#
#   mpi.sh COMMAND [RANKS]     COMMAND: the viaduct command, such as build/release/bin/viaduct
#
# NetPIPE, the HPC Challenge, LAMMPS (a melt, whose thermodynamics must be those of plain Open MPI), mpi4py. Exit code 0:
# all that are installed passed; 1: one did not; 77: none is installed. What this machine lacks is said aloud.
set -u

command=${1:?usage: mpi.sh COMMAND [RANKS]}
ranks=${2:-2}
command=$(cd "$(dirname "$command")" && pwd)/$(basename "$command")
limit=${VIADUCT_EXTERNAL_SECONDS:-300}
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1

command -v mpirun >/dev/null 2>&1 || { echo "SKIPPED: no mpirun here (openmpi-bin)"; exit 77; }
work=$(mktemp -d) || exit 2
trap 'rm -rf "$work"' EXIT
trap 'exit 2' INT TERM
cd "$work" || exit 2

passed=0
failed=0
verdict() { # name, whether it is good
  if [ "$2" = 0 ]; then
    echo "passed: $1"
    passed=$((passed + 1))
  else
    echo "FAILED: $1"
    tail -20 "$work/out"
    failed=$((failed + 1))
  fi
}
ours() {
  timeout "$limit" "$command" mpirun --oversubscribe -n "$@" >"$work/out" 2>&1
}

if command -v NPopenmpi >/dev/null 2>&1; then
  ours 2 NPopenmpi -u 200000 && [ "$(grep -c Mbps out)" -gt 60 ]
  verdict NetPIPE $?
else
  echo "SKIPPED: NetPIPE (netpipe-openmpi)"
fi

if command -v hpcc >/dev/null 2>&1; then
  sed 's/^1000 .*Ns/400 Ns/' /usr/share/doc/hpcc/examples/_hpccinf.txt >hpccinf.txt
  ours 4 hpcc && grep -q '1 tests completed and passed residual checks' hpccoutf.txt && ! grep -q 'FAILED' hpccoutf.txt &&
    grep -q 'Success=1' hpccoutf.txt
  good=$?
  [ $good = 0 ] || cp hpccoutf.txt out
  verdict "HPC Challenge" $good
else
  echo "SKIPPED: HPC Challenge (hpcc)"
fi

if command -v lmp >/dev/null 2>&1; then
  cat >melt <<'MELT'
units lj
atom_style atomic
lattice fcc 0.8442
region box block 0 8 0 8 0 8
create_box 1 box
create_atoms 1 box
mass 1 1.0
velocity all create 3.0 87287 loop geom
pair_style lj/cut 2.5
pair_coeff 1 1 1.0 1.0 2.5
neighbor 0.3 bin
neigh_modify every 20 delay 0 check no
fix 1 all nve
thermo 20
run 100
MELT
  numbers() { sed -n '/^ *Step/,/^Loop/p' "$1" | grep -v '^Loop'; }
  timeout "$limit" mpirun --oversubscribe -n "$ranks" lmp -in melt >plain 2>&1
  ours "$ranks" lmp -in melt && numbers plain >plain.numbers && numbers out >out.numbers &&
    [ -s plain.numbers ] && diff plain.numbers out.numbers
  verdict LAMMPS $?
else
  echo "SKIPPED: LAMMPS (lammps)"
fi

python=python3
"$python" -c 'import mpi4py' 2>/dev/null || python=/usr/bin/python3 # Debian's, where another comes first
if "$python" -c 'import mpi4py' 2>/dev/null; then
  cat >program.py <<'PYTHON'
import threading

import mpi4py
mpi4py.rc.thread_level = 'multiple'
from mpi4py import MPI

world = MPI.COMM_WORLD
assert MPI.Query_thread() == MPI.THREAD_MULTIPLE
told = world.bcast({'numbers': [1, 2], 'text': 'x' * 100000} if world.rank == 0 else None)
assert len(told['text']) == 100000
assert world.allgather(world.rank) == list(range(world.size))

def talk(tag):
    for i in range(200):
        if world.rank == 0:
            world.send(('message', tag, i), dest=1, tag=tag)
        elif world.rank == 1:
            assert world.mprobe(source=0, tag=tag).recv() == ('message', tag, i)

threads = [threading.Thread(target=talk, args=(tag,)) for tag in range(4)]
for thread in threads: thread.start()
for thread in threads: thread.join()

memory = bytearray(8 * world.size)
window = MPI.Win.Create(memory, comm=world)
window.Fence()
window.Put(bytes([world.rank + 1] * 8), (world.rank + 1) % world.size, world.rank * 8)
window.Fence()
left = (world.rank - 1) % world.size
assert memory[left * 8:left * 8 + 8] == bytes([left + 1] * 8)
window.Free()
if world.rank == 0:
    print('good')
PYTHON
  ours "$ranks" "$python" program.py && grep -q '^good' out
  verdict "mpi4py, four threads, one-sided" $?
else
  echo "SKIPPED: mpi4py (python3-mpi4py)"
fi

[ $failed = 0 ] || exit 1
[ $passed != 0 ] || exit 77
