//! The process on the other side: runs one measurement after the other as a client asks for them.
//!
//! It is a process of its own, in a local run as well as behind `serve`. So nothing that a client
//! sends, and no failure of a measurement, reaches the process that started it. It never outlives
//! its client: when the control channel closes, it exits at once.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tagmatch_results::Matching;
use tagmatch_results::show::one_line;

use super::drain::Drain;
use super::error::MeasureError;
use super::interrupt;
use super::one_sided::RegionOwner;
use super::open_loop::PlannedReceiver;
use super::participant::Participant;
use super::thread::Role;
use super::threads::RunThreads;
use crate::control::message::{Answer, Ask, Hello};
use crate::control::{Control, ControlError};
use crate::device::FoundDevice;
use crate::failure::Failure;
use crate::link::{LinkError, Local, Shared, UnlinkedOf};
use crate::secret;
use crate::spec::{Case, DeviceArg, HwTagsArg, Traffic};
use crate::{args, cpus};

/// The time that a client has for its first message.
const HELLO_TIME: Duration = Duration::from_secs(2);
/// A client behind `serve`, where others may wait for their turn, may be silent for this long:
/// between measurements, and within one while no request of it ends. The largest message may take a
/// while.
const SILENCE_TIME: Duration = Duration::from_secs(120);
/// The time between two measurements, for a client that has started this process.
const LEG_TIME: Duration = Duration::from_secs(3600);

/// The attention flag is raised a moment before the message can be received.
const LAST_WORD_TIME: Duration = Duration::from_millis(100);

/// Exit statuses that tell `serve` how a client was served.
pub(super) const SERVED: u8 = 0;
pub(super) const FAILED: u8 = 1;
/// It was no client, or every measurement that it asked for was refused.
pub(super) const UNSERVED: u8 = 3;

/// The state of the client's service when the channel closes.
#[derive(Default)]
struct ClientSession {
    /// The client's name in the log; `None` in a local run, where the client reports.
    client: Option<String>,
    greeted: AtomicBool,
    measuring: AtomicBool,
    /// Measurements that were completed.
    cases: AtomicU64,
    /// Why the last measurement broke, or was refused. Both end the service of a client.
    broken: OnceLock<String>,
    refused: OnceLock<String>,
    /// Both threads may want to end the process; the first one does.
    ending: AtomicBool,
}

impl ClientSession {
    /// Logs how it ended, and exits.
    fn end(&self, trouble: Option<&str>) -> ! {
        while self.ending.swap(true, Ordering::SeqCst) {
            std::thread::park();
        }
        let (status, said) = self.outcome(trouble);
        if let Some(client) = &self.client {
            // In one piece, since `serve` writes to the same place.
            let line = format!("tagperf serve: {client}: {}\n", one_line(said));
            let _ = std::io::stderr().write_all(line.as_bytes());
        }
        std::process::exit(status.into());
    }

    /// How the client was served: an exit status, and a sentence for the log.
    fn outcome(&self, trouble: Option<&str>) -> (u8, String) {
        let cases = self.cases.load(Ordering::SeqCst);
        let unserved = if cases == 0 { UNSERVED } else { FAILED };
        if !self.greeted.load(Ordering::SeqCst) {
            let why = trouble.unwrap_or("it said nothing");
            (UNSERVED, format!("no client of tagperf: {why}"))
        } else if let Some(broken) = self.broken.get() {
            (FAILED, broken.clone())
        } else if let Some(refused) = self.refused.get() {
            (unserved, format!("refused after {cases} measurements: {refused}"))
        } else if self.measuring.load(Ordering::SeqCst) {
            (FAILED, trouble.unwrap_or("gone during a measurement").to_owned())
        } else if let Some(trouble) = trouble {
            (unserved, trouble.to_owned())
        } else if cases == 0 {
            (UNSERVED, "it asked for no measurement".to_owned())
        } else {
            (SERVED, format!("served, {cases} measurements"))
        }
    }
}

/// The terms of a client: the device that it may use, and how long it may be silent.
struct Terms {
    /// The device that `serve` was started for.
    device: Option<DeviceArg>,
    /// Whether the client came through `serve`, and has not started this process itself.
    is_behind_serve: bool,
    silence: Duration,
}

impl Terms {
    fn of(args: &args::Peer) -> Self {
        let is_behind_serve = args.client.is_some();
        let silence = if is_behind_serve { SILENCE_TIME } else { LEG_TIME };
        Self { device: args.device.clone(), is_behind_serve, silence }
    }

    /// The limit of a wait within a measurement; `None` where no other client waits for this
    /// process.
    fn wait_limit(&self) -> Option<Duration> {
        self.is_behind_serve.then_some(self.silence)
    }
}

/// The hidden command `peer`.
pub(crate) fn command(args: args::Peer) -> Result<(), Failure> {
    // Behind `serve` the channel does not close when `serve` is killed; this signal ends the
    // process then.
    let signal = rustix::process::Signal::KILL;
    let _ = rustix::process::set_parent_process_death_signal(Some(signal));
    attend(std::io::stdin(), std::io::stdout(), args)
}

/// Tells a client why it is not served.
pub(super) fn last_words(mut stream: &TcpStream, why: String) {
    let Ok(mut line) = serde_json::to_vec(&Answer::Refused { why }) else { return };
    line.push(b'\n');
    // The line fits into any socket's buffer, so this does not block. Closing the socket before the
    // client's first message is read would discard the answer.
    let _ = stream.write_all(&line).and_then(|()| stream.shutdown(Shutdown::Write));
    let _ = stream.set_read_timeout(Some(Duration::from_millis(100)));
    let _ = stream.read(&mut [0; 4096]);
}

/// Serves the other rank of a job. The launcher ends this process if need be.
pub(super) fn of_launched_job(stream: TcpStream) -> Result<(), Failure> {
    let reader = stream.try_clone().map_err(|error| Failure::system("listen to rank 0", &error))?;
    attend(reader, stream, args::Peer { client: None, device: None })
}

/// Runs the measurements that the client at the end of a channel asks for; exits this process.
fn attend(
    reader: impl Read + Send + 'static,
    writer: impl Write + Send + 'static,
    args: args::Peer,
) -> Result<(), Failure> {
    interrupt::ignore();
    let terms = Terms::of(&args);
    let session = Arc::new(ClientSession { client: args.client, ..ClientSession::default() });
    let closing = Arc::clone(&session);
    let control = Control::new(reader, writer, move || closing.end(None));
    let mut control = control.map_err(|error| Failure::system("start a thread", &error))?;
    match serve(&mut control, &session, &terms) {
        Ok(()) | Err(ControlError::Closed) => session.end(None),
        Err(error) => {
            let why = one_line(&error);
            let _ = control.send(&Answer::Refused { why: why.clone() });
            session.end(Some(&why))
        }
    }
}

fn serve(
    control: &mut Control,
    session: &ClientSession,
    terms: &Terms,
) -> Result<(), ControlError> {
    let ours = Hello::new();
    match control.receive(HELLO_TIME)? {
        Ask::Hello(theirs) => {
            session.greeted.store(true, Ordering::SeqCst);
            control.send(&Answer::Hello(ours.clone()))?;
            if let Err(why) = ours.understands(&theirs) {
                return Err(ControlError::Garbage(why));
            }
        }
        Ask::Bye => return Ok(()),
        Ask::Case(_) => return Err(ControlError::Garbage("no hello first".into())),
    }
    let mut here = PeerSetup { terms, found: None, pinned: None };
    let mut silence = terms.silence;
    loop {
        let case = match control.receive(silence)? {
            Ask::Case(case) => case,
            Ask::Bye => return Ok(()),
            Ask::Hello(_) => return Err(ControlError::Garbage("a second hello".into())),
        };
        session.measuring.store(true, Ordering::SeqCst);
        let answer = match (here.prepare(&case), case.threads) {
            (Err(why), _) => Some(Answer::Refused { why }),
            (Ok(device), None) => measure::<Local>(control, &case, device, terms)?,
            (Ok(device), Some(_)) => measure::<Shared>(control, &case, device, terms)?,
        };
        let Some(answer) = answer else {
            session.measuring.store(false, Ordering::SeqCst);
            return Ok(());
        };
        match &answer {
            Answer::Failed { why } => drop(session.broken.set(why.clone())),
            Answer::Refused { why } => drop(session.refused.set(why.clone())),
            _ => drop(session.cases.fetch_add(1, Ordering::SeqCst)),
        }
        if matches!(answer, Answer::Failed { .. } | Answer::Refused { .. }) {
            silence = HELLO_TIME;
        }
        session.measuring.store(false, Ordering::SeqCst);
        control.send(&answer)?;
    }
}

/// The state that was prepared for the last measurement.
struct PeerSetup<'a> {
    terms: &'a Terms,
    /// The device that was asked for last, and the one that was found for it.
    found: Option<(DeviceArg, DeviceArg)>,
    pinned: Option<u32>,
}

impl PeerSetup<'_> {
    /// Refuses a case that is out of bounds or needs a device that is not served; pins this
    /// process. Returns the device to use. What the system has to give is not known before the
    /// worker is made.
    fn prepare(&mut self, case: &Case) -> Result<&DeviceArg, String> {
        case.check()?;
        if let Some(cpu) = case.pin
            && self.pinned != Some(cpu)
        {
            cpus::pin(cpu).map_err(|failure| match failure {
                Failure::Usage(why) => why,
                other => other.to_string(),
            })?;
            self.pinned = Some(cpu);
        }
        let known = self.found.take().filter(|(asked, _)| *asked == case.device);
        let found = match known {
            Some((_, found)) => found,
            None => self.look(&case.device)?,
        };
        Ok(&self.found.insert((case.device.clone(), found)).1)
    }

    fn look(&self, asked: &DeviceArg) -> Result<DeviceArg, String> {
        let device = match &self.terms.device {
            Some(ours) => ours.serving(asked)?,
            None if self.terms.is_behind_serve => DeviceArg::served_unnamed(asked)?,
            None => asked.clone(),
        };
        secret::check(&device).map_err(|why| format!("{device}: {why}"))?;
        let found =
            FoundDevice::look(&device, HwTagsArg::Off).map_err(|why| format!("{device}: {why}"))?;
        Ok(found.device)
    }
}

/// The answer at the end of a measurement; `None` if the client has said good-bye instead.
fn measure<A: RunThreads>(
    control: &mut Control,
    case: &Case,
    device: &DeviceArg,
    terms: &Terms,
) -> Result<Option<Answer>, ControlError> {
    let [_, ours] = case.matchers();
    let unlinked = match UnlinkedOf::<A>::new(device, case.needs(), ours) {
        Ok(unlinked) => unlinked,
        Err(error) => return Ok(Some(Answer::Refused { why: one_line(error) })),
    };
    control.send(&Answer::Ready { address: unlinked.address(), device: device.clone() })?;
    match run(control, case, unlinked, terms.wait_limit()) {
        Ok(matching) => Ok(Some(Answer::Done { matching })),
        Err(MeasureError::Link(LinkError::Attention | LinkError::Interrupted)) => {
            match control.receive(LAST_WORD_TIME) {
                Ok(Ask::Bye) => Ok(None),
                // The client is gone, or speaks out of turn: nobody waits for an answer.
                Ok(Ask::Hello(_) | Ask::Case(_)) | Err(_) => Err(ControlError::Closed),
            }
        }
        Err(error) => Ok(Some(Answer::Failed { why: one_line(error) })),
    }
}

pub(super) fn run<A: RunThreads>(
    control: &Control,
    case: &Case,
    unlinked: UnlinkedOf<A>,
    wait_limit: Option<Duration>,
) -> Result<Matching, MeasureError> {
    let mut link = unlinked.connect(&case.address, control.attention())?;
    if let Some(limit) = wait_limit {
        link.set_wait_limit(limit);
    }
    link.await_peer(|| !control.wants_attention())?;
    let mut participant =
        Participant::new(link, case, Role::Peer, &mut || !control.wants_attention())?;
    let mut drain = Drain::new(case);
    let mut planned =
        matches!(case.traffic, Traffic::Planned { .. }).then(|| PlannedReceiver::new(case));
    let mut owner = RegionOwner::new(&participant)?;
    while let Some(batch) = participant.await_batch()? {
        match (&mut drain, &mut planned, &mut owner) {
            (Some(drain), ..) => drain.answer(&mut participant, batch)?,
            (_, Some(planned), _) => planned.answer(&mut participant, batch)?,
            (_, _, Some(owner)) => owner.answer(&mut participant, batch)?,
            (None, None, None) => participant.answer(batch)?,
        }
    }
    participant.check_fillers("after the measurement")?;
    participant.let_go()?;
    Ok(participant.matched())
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;
    use crate::link::Unlinked;
    use crate::spec::{HwTagsArg, WorkerNeeds};

    const SOON: Duration = Duration::from_secs(10);

    fn behind_serve(device: Option<&str>) -> Terms {
        Terms::of(&peer(device.map(|text| text.parse().unwrap())))
    }

    fn peer(device: Option<DeviceArg>) -> args::Peer {
        args::Peer { client: Some("somebody".into()), device }
    }

    /// Serves a client that behaves as `client` does and then hangs up; returns how it was served.
    fn served(terms: &Terms, client: impl FnOnce(&mut Control) + Send) -> (u8, String) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let ends = [&ours, &theirs].map(|end| end.try_clone().unwrap());
        let channel = |end: UnixStream| Control::new(end.try_clone().unwrap(), end, || ()).unwrap();
        let mut control = channel(ours);
        let session = ClientSession::default();
        std::thread::scope(|scope| {
            let [our_end, their_end] = &ends;
            scope.spawn(move || {
                let mut control = channel(theirs);
                control.send(&Ask::Hello(Hello::new())).unwrap();
                control.receive::<Answer>(SOON).unwrap();
                client(&mut control);
                // The thread that reads holds this end as well.
                let _ = their_end.shutdown(Shutdown::Both);
            });
            let trouble = match serve(&mut control, &session, terms) {
                Ok(()) | Err(ControlError::Closed) => None,
                Err(error) => Some(error.to_string()),
            };
            let _ = our_end.shutdown(Shutdown::Both);
            session.outcome(trouble.as_deref())
        })
    }

    #[test]
    fn a_silent_client_behind_serve_loses_its_turn() {
        assert_eq!(behind_serve(None).wait_limit(), Some(SILENCE_TIME));
        let impatient = Terms { silence: Duration::from_millis(500), ..behind_serve(None) };
        let wait = |control: &mut Control| drop(control.receive::<Answer>(SOON));
        let (status, said) = served(&impatient, wait);
        assert_eq!((status, &said[..]), (UNSERVED, "the other side has been silent for 0.5 s"));
        // The client asks for a measurement, and then doesn't begin it.
        let worker =
            Unlinked::new(&DeviceArg::Shm, WorkerNeeds::default(), HwTagsArg::Off).unwrap();
        let case = Case { address: worker.address(), ..Case::sample() };
        let (status, said) = served(&impatient, |control| {
            control.send(&Ask::Case(case)).unwrap();
            let ready = control.receive::<Answer>(SOON).unwrap();
            assert!(matches!(ready, Answer::Ready { .. }), "{ready:?}");
            let failed = control.receive::<Answer>(SOON).unwrap();
            assert!(matches!(failed, Answer::Failed { .. }), "{failed:?}");
        });
        assert_eq!((status, &said[..]), (FAILED, "no progress for 0.5 s"));
    }

    #[test]
    fn a_client_that_is_refused_is_not_served() {
        let ask = |case: Case| {
            move |control: &mut Control| {
                control.send(&Ask::Case(case)).unwrap();
                let answer = control.receive::<Answer>(SOON).unwrap();
                assert!(matches!(answer, Answer::Refused { .. }), "{answer:?}");
            }
        };
        let (status, said) = served(&behind_serve(None), ask(Case { window: 0, ..Case::sample() }));
        assert_eq!(status, UNSERVED);
        assert!(said.starts_with("refused after 0 measurements: invalid window `0`"), "{said}");
        assert_eq!(served(&behind_serve(None), |_| ()).0, UNSERVED, "it only greets");
        for (serves, asks) in [(None, "ucx"), (None, "ofi"), (Some("shm"), "ucx")] {
            let case = Case { device: asks.parse().unwrap(), ..Case::sample() };
            let (status, said) = served(&behind_serve(serves), ask(case));
            assert_eq!(status, UNSERVED, "{said}");
            assert!(said.contains(&format!("{asks} is not served here")), "{said}");
        }
    }
}
