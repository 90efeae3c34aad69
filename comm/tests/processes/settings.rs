//! Processes with different settings: all of them get the error that names the setting.

use tagmatch::ofi::OfiConfig;
use tagmatch::ucx::UcxConfig;
use tagmatch::{Config as WorkerConfig, DeviceConfig, Local, Secret, TagLayout, TagMask, Worker};
use tagmatch_comm::net::worker::WorkerNet;
use tagmatch_comm::{Config, Error, PortName, Runtime, Uniformity};

use crate::common::settings::others;
use crate::job::{Job, say, told, transport};

type Process = Runtime<WorkerNet<Local>>;

/// A role is the number of a setting, and the rank that has another value of it; or the number
/// alone, in all ranks of a job.
pub(crate) fn play(role: &str) {
    let (number, odd) = role.split_once(" at ").unwrap_or((role, ""));
    let (name, other, values) = others().swap_remove(number.parse::<usize>().unwrap());
    let net = transport::<Local>();
    let has_other = odd.is_empty() || odd.parse() == Ok(tagmatch_comm::net::Directory::own(&net).0);
    let config = if has_other { other } else { Config::default() };
    let runtime = Process::new(net, config).unwrap();
    let world = runtime.world();
    let error = if !odd.is_empty() {
        // The barrier goes through memory that processes share, the other two by messages.
        let calls = || {
            world.barrier().wait()?;
            world.scan(vec![0; 8], &tagmatch_comm::coll::Op::sum::<u64>()).wait()?;
            world.dup().wait().map(drop)
        };
        calls().unwrap_err()
    } else {
        let name: Option<PortName> = (world.rank() == 0).then(|| told().parse().unwrap());
        world.connect(Uniformity::None, 0, name).wait().map(drop).unwrap_err()
    };
    let [default, other] = values;
    let (own, other) = if has_other { (other, default) } else { (default, other) };
    assert_eq!(error, Error::UnequalSetting { setting: name, own, other });
    say("refused", name);
}

/// No rank waits for another one before it leaves with the error.
#[test]
fn each_setting_that_differs_is_named_at_all_ranks() {
    for number in 0..others::<WorkerNet<Local>>().len() {
        Job::start(&format!("settings: {number} at {}", number % 3), 3).finish(&[]);
    }
}

#[test]
fn jobs_with_different_layouts_of_tags_get_the_error_at_a_port() {
    let mut accepting = Job::start("jobs: accepts once", 2);
    let mut connecting = Job::start("settings: 5", 2);
    let port = accepting.hear(1, "port");
    connecting.tell(0, port);
    for rank in 0..2 {
        let error = accepting.hear(rank, "error");
        assert!(error.starts_with("source_bits of tags is 24 here and 20 in another"), "{error}");
    }
    accepting.finish(&[]);
    connecting.finish(&[]);
}

/// UCX and libfabric keep a peer's number in the source field of the worker's layout.
#[test]
fn a_layout_that_the_device_cannot_carry_is_refused() {
    let provider = Some("tcp;ofi_rxm".to_owned());
    let ofi = OfiConfig::default().provider(provider);
    let narrow = TagLayout::new(16, 12, 19).unwrap();
    for device in [DeviceConfig::Ucx(UcxConfig::default()), DeviceConfig::Ofi(ofi)] {
        let join = |layout: TagLayout, tags: TagLayout| {
            let secret = Secret::from_bytes(b"the secret of these tests").ok();
            let device = device.clone();
            let config = WorkerConfig::default().device(device).layout(layout).secret(secret);
            let worker = Worker::new(config).map_err(|error| error.to_string())?;
            let addresses = vec![worker.address()];
            let net = WorkerNet::new(worker, addresses, 0).map_err(|error| error.to_string())?;
            Ok::<_, String>(Process::new(net, Config::default().tags(tags)))
        };
        let refused = match join(TagLayout::MPI, TagLayout::MPI) {
            Ok(joined) => joined.map(drop),
            Err(why) => {
                println!("SKIPPED: {why}");
                continue;
            }
        };
        let free = TagMask(!TagLayout::MPI.source_mask().0);
        assert_eq!(refused, Err(Error::NotCarried { tags: TagLayout::MPI, free }));
        let wide = TagLayout::new(0, 12, 47).unwrap();
        assert!(join(wide, TagLayout::new(17, 12, 19).unwrap()).unwrap().is_err());
        let world = join(wide, narrow).unwrap().unwrap().world();
        world.revoke();
        assert_eq!(world.shrink().wait().unwrap().size(), 1);
    }
}
