//! The ranks of a job, whichever launcher started them.

use std::ffi::OsString;
use std::time::Duration;

use tagmatch::{Config as WorkerConfig, TagLayout, Worker};
use tagmatch_comm::coll::{Op, from_bytes, to_bytes};
use tagmatch_comm::net::worker::WorkerNet;
use tagmatch_comm::{Comm, Config, Error, Runtime};
use tagmatch_launch::launcher::{self, Launch, Member};
use tagmatch_launch::{Job, Launcher};
use tagmatch_results::Environment;
use tagmatch_results::Matching;
use tagmatch_results::show::one_line;

use crate::args::{Common, RanksArgs};
use crate::cpus;
use crate::device::FoundDevice;
use crate::environment;
use crate::failure::Failure;
use crate::measure::interrupt;
use crate::measure::job::{Placement, exchange, failed};
use crate::secret;
use crate::spec::{DeviceArg, HwTagsArg};

/// A communicator of ranks.
pub type World = Comm<WorkerNet>;

/// Time for rank 0 to print its message before another rank fails.
const WORD_TIME: Duration = Duration::from_millis(500);
/// SIGKILL.
const KILLED: i32 = 9;

/// This process as a rank.
pub(super) struct Ranks {
    job: Job,
    pub(super) runtime: Runtime<WorkerNet>,
    pub(super) device: FoundDevice,
    pub(super) environment: Environment,
    /// Whether all ranks are on one machine, and read one clock.
    pub(super) are_here: bool,
    pub(super) by_messages: bool,
}

/// Joins the job that a launcher has made. Without a launcher this process becomes the launcher of
/// the ranks, waits for them and returns `None`. `dies`: the test kills ranks, so their deaths are
/// no failures.
pub(super) fn start(
    wanted: &RanksArgs,
    default: u32,
    common: &Common,
    dies: bool,
) -> Result<Option<Ranks>, Failure> {
    if !Job::is_launched() {
        // An error if a launcher has started several processes, each of which would do this.
        Job::join().map_err(failed)?;
        look(&common.device(), common.hw_tags)?;
        return launch(wanted.n.unwrap_or(default), dies).map(|()| None);
    }
    let job = Job::join().map_err(failed)?;
    let rank = job.rank();
    let size = job.size();
    let wrong = match wanted.n {
        Some(n) if n != size => format!("-n {n}: the launcher has started {size}; use no -n"),
        _ if size < 2 => {
            "one rank has nobody to wait for; use `mpiexec -n 2 tagperf ...`".to_owned()
        }
        _ => return Ranks::new(job, wanted, common).map(Some),
    };
    Err(refused(rank, wrong))
}

fn look(device: &DeviceArg, hw_tags: HwTagsArg) -> Result<FoundDevice, Failure> {
    FoundDevice::look(device, hw_tags)
        .map_err(|why| Failure::Usage(format!("--device {device}: {why}")))
}

/// Refuses options at all ranks: rank 0 returns the message, and the others wait before they fail,
/// since launchers end all ranks when one fails.
pub(super) fn refused(rank: u32, why: String) -> Failure {
    if rank == 0 {
        return Failure::Usage(why);
    }
    std::thread::sleep(WORD_TIME);
    Failure::Launched(2)
}

/// The sum of all ranks' counts.
pub(super) fn sum_over(world: &World, own: &Matching) -> Result<Matching, Error> {
    let sum = world.allreduce(to_bytes(&own.counts()), &Op::sum::<u64>()).wait()?;
    let counts = from_bytes::<u64>(&sum).try_into().unwrap_or_default();
    Ok(Matching::of_counts(counts))
}

/// Waits until no rank needs another one any more.
pub(super) fn last_barrier(world: &World) {
    // An error means that another rank has passed the barrier and left.
    let _ = world.barrier().wait();
}

/// Starts this command line as the ranks of a job, and waits for their end.
fn launch(size: u32, dies: bool) -> Result<(), Failure> {
    let program =
        std::env::current_exe().map_err(|error| Failure::system("start ranks", &error))?;
    let arguments = std::env::args_os().skip(1);
    let command = std::iter::once(OsString::from(program)).chain(arguments).collect();
    let launch = Launch::new(command, size).keep_going(dies);
    let mut status = None;
    let report = |member: Member, failure: &launcher::Failure| {
        if dies && member.rank > 0 && *failure == launcher::Failure::Killed(KILLED) {
            return;
        }
        status.get_or_insert(failure.status());
        // A rank that exits has printed its error.
        if !matches!(failure, launcher::Failure::Exited(_)) {
            let line = one_line(format!("tagperf: rank {member} {failure}")) + "\n";
            let _ = std::io::Write::write_all(&mut std::io::stderr(), line.as_bytes());
        }
    };
    launcher::run(&launch, report).map_err(|error| Failure::Measurement(error.to_string()))?;
    status.map_or(Ok(()), |status| Err(Failure::Launched(status)))
}

impl Ranks {
    fn new(mut job: Job, wanted: &RanksArgs, common: &Common) -> Result<Self, Failure> {
        if job.rank() > 0 {
            // Rank 0 watches for ^C once all ranks have come here, and tells the others when to
            // stop.
            interrupt::ignore();
        }
        let places = Placement::exchange(&mut job)?;
        let are_here = places.is_one_machine();
        let common = &common.for_ranks(places.is_one_network());
        let device = look(&common.device(), common.hw_tags)?;
        if device.device.may_use_tcp() {
            secret::adopt(job.secret().map_err(failed)?);
        }
        if !places.is_one_network() && device.device == DeviceArg::Shm {
            let why = "the ranks are not all in one network namespace of one machine; use \
                       --device auto, verbs, tcp, ucx or ofi"
                .to_owned();
            return Err(refused(job.rank(), why));
        }
        let cpu = places.own_cpu(cpus::possible(common.pin, cpus::is_pinning_refused));
        if let Some(cpu) = cpu {
            cpus::pin(cpu)?;
        }
        let all_cpus =
            exchange(&mut job, cpu.map_or(String::new(), |cpu| cpu.to_string()).as_bytes())?;
        let cpus = all_cpus.iter().map(|cpu| std::str::from_utf8(cpu).ok()?.parse().ok()).collect();
        let environment = environment::gather_ranks(places.processes(), places.cores(), cpus);
        let (carried, tags) = layouts(&device.device)?;
        let worker = WorkerConfig::default()
            .hw_tags(common.hw_tags.config(None))
            .device(device.device.config())
            .layout(carried)
            .secret(secret::known().map_err(|why| refused(job.rank(), why))?);
        let worker = Worker::new(worker).map_err(failed)?;
        let rank = job.rank();
        let net = WorkerNet::meet(worker, rank, |own| job.exchange(own)).map_err(failed)?;
        let shared_memory = !wanted.by_messages;
        let runtime = Runtime::new(net, Config::default().tags(tags).shared_memory(shared_memory))
            .map_err(failed)?;
        Ok(Self { job, runtime, device, environment, are_here, by_messages: wanted.by_messages })
    }

    /// The communicator of all ranks.
    pub(super) fn world(&self) -> World {
        self.runtime.world()
    }

    /// How the receives of this rank were matched so far.
    pub(super) fn matching(&self) -> Matching {
        self.runtime.with_net(|net| net.worker().counters()).into()
    }

    pub(super) fn launcher(&self) -> Launcher {
        self.job.launcher()
    }

    pub(super) fn leave(self) -> Result<(), Failure> {
        self.job.leave().map_err(failed)
    }
}

/// The device's layout of tags, and that of communicators. UCX and libfabric keep peers' numbers in
/// tag bits of their own. `cxi` leaves 47 bits to the rest, which has room for 4096 ranks.
fn layouts(device: &DeviceArg) -> Result<(TagLayout, TagLayout), Failure> {
    let layout = |context, source, tag| TagLayout::new(context, source, tag).map_err(failed);
    match device {
        DeviceArg::Ucx { .. } | DeviceArg::Ofi { .. } => {
            Ok((layout(0, 12, 47)?, layout(16, 12, 19)?))
        }
        DeviceArg::Shm | DeviceArg::Auto | DeviceArg::Verbs { .. } | DeviceArg::Tcp { .. } => {
            Ok((TagLayout::MPI, TagLayout::MPI))
        }
    }
}
