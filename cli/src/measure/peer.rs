//! The other side: does what a client asks for, a measurement after the other, until it goes.
//!
//! It is a process of its own, in a local run as behind `serve`: nothing that a client can say, and
//! nothing that happens to a measurement, reaches whoever started it. It never outlives its client:
//! when the control channel closes it is gone at once, whatever it was doing.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use super::crew::Handle;
use super::drain::Drain;
use super::interrupt;
use super::lane::Role;
use super::pace::In;
use super::side::{MeasureError, Side};
use crate::args;
use crate::args::device::DeviceArg;
use crate::control::message::{Answer, Ask, Hello, Leg, Traffic};
use crate::control::{Control, ControlError};
use crate::device::Found;
use crate::failure::{Failure, one_line};
use crate::json::Matching;
use crate::link::{LinkError, Local, Shared, UnlinkedOf};
use crate::trust;

/// A client speaks at once, or is none.
const HELLO_TIME: Duration = Duration::from_secs(2);
/// Between measurements it may think for long.
const LEG_TIME: Duration = Duration::from_secs(3600);

/// Attention is asked for a moment before what was said can be taken.
const LAST_WORD_TIME: Duration = Duration::from_millis(100);

/// Exit statuses, by which `serve` tells what became of a client.
pub(super) const SERVED: u8 = 0;
pub(super) const FAILED: u8 = 1;
pub(super) const NO_CLIENT: u8 = 3;

/// What is known of the client when the channel closes.
#[derive(Default)]
struct Session {
    /// Whom to name in the log; nobody in a local run, where the client does the talking.
    client: Option<String>,
    greeted: AtomicBool,
    measuring: AtomicBool,
    legs: AtomicU64,
    /// Why the last measurement broke, which a client does not survive.
    broken: OnceLock<String>,
    /// Both threads may want to end the process; one does.
    ending: AtomicBool,
}

impl Session {
    /// Logs how it ended, and ends this process.
    fn end(&self, trouble: Option<&str>) -> ! {
        while self.ending.swap(true, Ordering::SeqCst) {
            std::thread::park();
        }
        let (status, said) = if !self.greeted.load(Ordering::SeqCst) {
            (NO_CLIENT, format!("no client of tagperf: {}", trouble.unwrap_or("it said nothing")))
        } else if let Some(trouble) = trouble {
            (FAILED, trouble.to_owned())
        } else if let Some(broken) = self.broken.get() {
            (FAILED, broken.clone())
        } else if self.measuring.load(Ordering::SeqCst) {
            (FAILED, "gone in the midst of a measurement".to_owned())
        } else {
            (SERVED, format!("served, {} measurements", self.legs.load(Ordering::SeqCst)))
        };
        if let Some(client) = &self.client {
            // In one piece: `serve` writes to the same place.
            let line = format!("tagperf serve: {client}: {}\n", one_line(said));
            let _ = std::io::stderr().write_all(line.as_bytes());
        }
        std::process::exit(status.into());
    }
}

/// The hidden command `peer`.
pub(crate) fn command(args: args::Peer) -> Result<(), Failure> {
    // Behind `serve` the channel does not close when `serve` is killed; the kernel tells us then.
    let signal = rustix::process::Signal::KILL;
    let _ = rustix::process::set_parent_process_death_signal(Some(signal));
    attend(std::io::stdin(), std::io::stdout(), args)
}

/// As a rank of a job, whose launcher ends it if need be.
pub(super) fn joined(stream: TcpStream) -> Result<(), Failure> {
    let reader = stream
        .try_clone()
        .map_err(|error| Failure::Measurement(format!("cannot listen to rank 0: {error}")))?;
    attend(reader, stream, args::Peer { client: None, device: None })
}

/// Does what the client at the end of a channel asks for; ends this process.
fn attend(
    reader: impl Read + Send + 'static,
    writer: impl Write + Send + 'static,
    args: args::Peer,
) -> Result<(), Failure> {
    interrupt::ignore();
    let session = Arc::new(Session { client: args.client, ..Session::default() });
    let closing = Arc::clone(&session);
    let control = Control::new(reader, writer, move || closing.end(None));
    let mut control =
        control.map_err(|e| Failure::Measurement(format!("cannot start a thread: {e}")))?;
    match serve(&mut control, &session, args.device.as_ref()) {
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
    session: &Session,
    device: Option<&DeviceArg>,
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
        Ask::Leg(_) => return Err(ControlError::Garbage("no hello first".into())),
    }
    let mut here = Here { serves: device, found: None, pinned: None };
    loop {
        let leg = match control.receive(LEG_TIME)? {
            Ask::Leg(leg) => leg,
            Ask::Bye => return Ok(()),
            Ask::Hello(_) => return Err(ControlError::Garbage("a second hello".into())),
        };
        session.measuring.store(true, Ordering::SeqCst);
        let answer = match (here.prepare(&leg), leg.threads) {
            (Err(why), _) => Some(Answer::Refused { why }),
            (Ok(device), None) => measure::<Local>(control, &leg, device)?,
            (Ok(device), Some(_)) => measure::<Shared>(control, &leg, device)?,
        };
        let Some(answer) = answer else {
            session.measuring.store(false, Ordering::SeqCst);
            return Ok(());
        };
        if let Answer::Failed { why } = &answer {
            let _ = session.broken.set(why.clone());
        }
        session.measuring.store(false, Ordering::SeqCst);
        session.legs.fetch_add(1, Ordering::SeqCst);
        control.send(&answer)?;
    }
}

/// What this side has, and what of it is in use.
struct Here<'a> {
    /// The device that `serve` was started for.
    serves: Option<&'a DeviceArg>,
    /// What was asked for last, and what was found.
    found: Option<(DeviceArg, DeviceArg)>,
    pinned: Option<u32>,
}

impl Here<'_> {
    /// Everything about a leg that can be refused, but for what the system has to give. Gives the device
    /// to use.
    fn prepare(&mut self, leg: &Leg) -> Result<&DeviceArg, String> {
        leg.check()?;
        if let Some(cpu) = leg.pin
            && self.pinned != Some(cpu)
        {
            trust::pin(cpu).map_err(|failure| match failure {
                Failure::Usage(why) => why,
                other => other.to_string(),
            })?;
            self.pinned = Some(cpu);
        }
        let known = self.found.take().filter(|(asked, _)| *asked == leg.device);
        let found = match known {
            Some((_, found)) => found,
            None => self.look(&leg.device)?,
        };
        Ok(&self.found.insert((leg.device.clone(), found)).1)
    }

    fn look(&self, asked: &DeviceArg) -> Result<DeviceArg, String> {
        let device = match self.serves {
            Some(ours) => ours.serving(asked)?,
            None => asked.clone(),
        };
        match Found::look(&device) {
            Ok(found) => Ok(found.device),
            Err(why) => Err(format!("{device}: {why}")),
        }
    }
}

/// The answer at the end of a measurement; `None` if the client has said good-bye instead.
fn measure<A: Handle>(
    control: &mut Control,
    leg: &Leg,
    device: &DeviceArg,
) -> Result<Option<Answer>, ControlError> {
    let [_, ours] = leg.matchers();
    let unlinked = match UnlinkedOf::<A>::new(device, leg.needs(), ours) {
        Ok(unlinked) => unlinked,
        Err(error) => return Ok(Some(Answer::Refused { why: one_line(error) })),
    };
    control.send(&Answer::Ready { address: unlinked.address(), device: device.clone() })?;
    match run(control, leg, unlinked) {
        Ok(matching) => Ok(Some(Answer::Done { matching })),
        Err(MeasureError::Link(LinkError::Attention | LinkError::Interrupted)) => {
            match control.receive(LAST_WORD_TIME) {
                Ok(Ask::Bye) => Ok(None),
                // It is gone, or talks where it should not: either way there is nobody to answer.
                Ok(Ask::Hello(_) | Ask::Leg(_)) | Err(_) => Err(ControlError::Closed),
            }
        }
        Err(error) => Ok(Some(Answer::Failed { why: one_line(error) })),
    }
}

pub(super) fn run<A: Handle>(
    control: &Control,
    leg: &Leg,
    unlinked: UnlinkedOf<A>,
) -> Result<Matching, MeasureError> {
    let link = unlinked.connect(&leg.address, control.attention())?;
    let mut side = Side::new(link, leg, Role::Peer, &mut || !control.wants_attention())?;
    let mut drain = Drain::new(leg);
    let mut paced = matches!(leg.traffic, Traffic::Paced { .. }).then(|| In::new(leg));
    while let Some(batch) = side.await_batch()? {
        match (&mut drain, &mut paced) {
            (Some(drain), _) => drain.answer(&mut side, batch)?,
            (None, Some(paced)) => paced.answer(&mut side, batch)?,
            (None, None) => side.answer(batch)?,
        }
    }
    side.check_fillers("after the measurement")?;
    side.let_go()?;
    Ok(side.matched())
}
