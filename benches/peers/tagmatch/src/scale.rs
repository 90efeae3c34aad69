//! A job of many ranks, as in `benches/peers/scale.c`: the same steps in the same order. Change
//! both together.

use std::time::{Duration, Instant, SystemTime};
use std::{env, fs};

use tagmatch_comm::Comm;
use tagmatch_comm::coll::{Op, from_bytes, to_bytes};
use tagperf::shared::World;

use crate::case::Outcome;
use crate::collective::join;

/// How often each operation but the first alltoall is measured; the median counts.
const ROUNDS: usize = 3;

/// Prints one line a figure at rank 0: its name and its value.
pub(crate) fn run() -> Outcome<()> {
    let begun: u64 = env::var("PEERS_BEGUN_US")?.parse()?;
    let (job, world) = join()?;
    world.barrier().wait()?;
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?;
    print(&world, "start_ms", (now.as_micros() - u128::from(begun)) as f64 / 1e3);

    let data = vec![1; 8 * world.size() as usize];
    let alltoall = || world.alltoall(data.clone()).wait().map(drop);
    let first = slowest(&world, alltoall)?;
    print(&world, "alltoall_first_us", first);
    median(&world, "barrier_us", || world.barrier().wait())?;
    median(&world, "alltoall_us", alltoall)?;
    median(&world, "dup_us", || world.dup().wait().map(Comm::free))?;
    let half = world.rank() % 2;
    let split = || world.split(Some(half), 0).wait().map(|part| part.map_or((), Comm::free));
    median(&world, "split_us", split)?;

    let pss = sum(&world, kilobytes("/proc/self/smaps_rollup", "Pss:")?)?;
    print(&world, "pss_kb", pss / f64::from(world.size()));
    print(&world, "shared_kb", kilobytes("/proc/meminfo", "Shmem:")?);
    let open = fs::read_dir("/proc/self/fd")?.count() - 1;
    print(&world, "descriptors", most(&world, open as f64)?);
    // No rank goes before all are done with each other.
    world.barrier().wait()?;
    job.leave()?;
    Ok(())
}

fn print(world: &World, name: &str, value: f64) {
    if world.rank() == 0 {
        println!("{name} {value:.1}");
    }
}

/// Microseconds of the rank for which the call takes longest.
fn slowest<E>(world: &World, mut call: impl FnMut() -> Result<(), E>) -> Outcome<f64>
where
    E: std::error::Error + 'static,
{
    world.barrier().wait()?;
    let start = Instant::now();
    call()?;
    most(world, micros(start.elapsed()))
}

fn median<E>(world: &World, name: &str, mut call: impl FnMut() -> Result<(), E>) -> Outcome<()>
where
    E: std::error::Error + 'static,
{
    let mut times = (0..ROUNDS).map(|_| slowest(world, &mut call)).collect::<Outcome<Vec<_>>>()?;
    times.sort_by(f64::total_cmp);
    print(world, name, times[ROUNDS / 2]);
    Ok(())
}

fn micros(time: Duration) -> f64 {
    time.as_nanos() as f64 / 1e3
}

fn most(world: &World, value: f64) -> Outcome<f64> {
    combine(world, value, &Op::max::<f64>())
}

fn sum(world: &World, value: f64) -> Outcome<f64> {
    combine(world, value, &Op::sum::<f64>())
}

fn combine(world: &World, value: f64, op: &Op) -> Outcome<f64> {
    let all = world.allreduce(to_bytes(&[value]), op).wait()?;
    from_bytes::<f64>(&all).first().copied().ok_or_else(|| "an allreduce without a result".into())
}

/// The number behind `name` in a file of /proc.
fn kilobytes(path: &str, name: &str) -> Outcome<f64> {
    let text = fs::read_to_string(path)?;
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    let number = line.and_then(|rest| rest.split_whitespace().next());
    Ok(number.ok_or_else(|| format!("{path} has no {name}"))?.parse()?)
}
