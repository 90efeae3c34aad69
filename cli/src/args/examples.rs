//! The ends of the help pages: examples, and rules that no single option has.

pub(super) const OVERVIEW_EXAMPLES: &str = "\
Measuring, with their own --help: tagperf lat | bw | bibw | rate | depth | put | get | fadd, and at
N ranks barrier | bcast | allreduce | alltoall | dup | agree | shrink
Exit status: 0 good, 1 a measurement or verification failed, 2 bad usage or input, 130 ^C
Fields of the JSON output: cli/JSON.md in the source tree

Examples:
  tagperf                                         all tests, briefly: under 30 seconds
  tagperf lat --sizes 8 --json -                  one size, one line of JSON, nothing else
  tagperf depth                                   does depth cost anything?
  tagperf serve --once                            one side ...
  TAGMATCH_SECRET=... tagperf bw 127.0.0.1        ... and the other, with the secret printed
  tagperf replay app.trace --matches -            your application's own matching";

pub(super) const MEASURE_EXAMPLES: &str = "\
N may end in K, M or G, binary as sizes: 4K is 4096

Examples:
  tagperf lat --sizes 0..4M --duration 500ms
  tagperf lat --sizes 8 --iters 100000 --pin 0,1 --json lat.json
  tagperf bw --sizes 4K,64K,1M --window 32
  tagperf rate --posted-depth 1024 --wildcard-recv
  tagperf lat 127.0.0.1:13338 --unexpected-depth 256
  tagperf lat --sizes 8 --rate 100k --duration 5s
  tagperf rate --self --threads 1,2
  tagperf lat --sizes 4K --hw-tags model          a NIC matches: a model of one, here
  tagperf lat node7 --device verbs                RDMA to `tagperf serve --bind ADDRESS` there";

pub(super) const DEPTH_EXAMPLES: &str = "\
N may end in K, M or G, binary as sizes: 4K is 4096

Examples:
  tagperf depth
  tagperf depth --queue posted --depths 0,1K,64K --wildcard 0,100 --json -
  tagperf depth --drain --order forward,reverse,random,adversarial --depths 1K,16K";

pub(super) const ONE_SIDED_EXAMPLES: &str = "\
An operation has ended when the other side's processors see its bytes. N may end in K, M or G

Examples:
  tagperf put                                     as ib_write_lat and osu_put_latency
  tagperf put --window 64 --sizes 8,4K,64K,1M     as ib_write_bw and osu_put_bw
  tagperf get --device tcp --json -               as ib_read_lat and osu_get_latency
  tagperf fadd --window 64                        as ib_atomic_bw and osu_fop_latency";

pub(super) const RUN_EXAMPLES: &str = "\
Exit status: that of the first process that failed, 128 and the signal's number if one killed it

Examples:
  tagperf run -n 2 -- tagperf lat                 as `mpiexec -n 2 tagperf lat`
  tagperf run -n 4 --label -- ./app               which rank printed what?
  tagperf run -n 4 --keep-going -- ./app          the others survive a rank that is killed
  tagperf run -n 4 --hosts node7,node8 -- ./app   ranks 0 and 1 there, 2 and 3 there, through ssh
  tagperf run -n 6 --hosts node7:4,node8:4 -- tagperf barrier --device tcp";

pub(super) const COLLECTIVE_EXAMPLES: &str = "\
Each rank times each call, after a barrier that keeps the ranks together. avg, min and max are over
the ranks' means, p50 and p99 of rank 0's times. bcast: from the last rank; dup: with the free

Examples:
  tagperf allreduce -n 4                          starts 4 ranks here
  mpiexec -n 4 tagperf barrier                    as ranks of any job: MPICH's ...
  mpirun -n 4 --oversubscribe tagperf dup         ... Open MPI's (root: --allow-run-as-root) ...
  tagperf run -n 4 -- tagperf alltoall            ... and our own";

pub(super) const SHRINK_EXAMPLES: &str = "\
Rank after rank kills itself (SIGKILL), the last one first, until one is left: one row each.
The survivors time: noticed, from their last message to it until a barrier fails because of its
death; then revoke, agree, shrink, and the first barrier of the new communicator. avg, min and max
are over the survivors, of these four together

Examples:
  tagperf shrink                                  starts 4 ranks here
  tagperf run -n 8 --keep-going -- tagperf shrink
  mpirun -n 4 --oversubscribe --enable-recovery tagperf shrink
  mpiexec.hydra -n 4 -disable-auto-cleanup sh -c 'trap \"\" USR1; tagperf shrink || exit 0'";

pub(super) const REPLAY_EXAMPLES: &str = "\
Examples:
  tagperf replay app.trace
  tagperf replay app.trace --matches app.matches
  tagperf replay - --matches - < app.trace 2> report.txt
  tagperf replay app.trace --hw-tags model        how much of it would a NIC match?";

pub(super) const COMPARE_EXAMPLES: &str = "\
Exit status: 0  no result is slower by more than --fail-if-slower, beyond noise
             1  at least one is, or the output could not be written
             2  bad usage or input, or the runs have no result in common

Examples:
  tagperf lat --json old.json; ...; tagperf lat --json new.json
  tagperf compare old.json new.json --fail-if-slower 3
  cat monday*.json | tagperf compare - tuesday.json     runs merged: noise between runs too";
