//! The comparison of this process's settings with those of other processes.
//!
//! Processes with different settings read tags differently, or wait for messages that the other
//! one doesn't send. So they find out first:
//!
//! 1. Before a process first sends to another one or first receives from it by name, it sends its
//!    settings. They are a control message, which all processes can read, whatever their settings.
//! 2. Messages between two processes don't overtake each other. So a process that has received a
//!    message has the sender's settings, too. It compares them before it uses the message. If they
//!    differ, it answers with its own settings.
//! 3. If they differ and the other process is of the same job, this is a *fault* of the job. It is
//!    passed on in the job as a revocation is. Once the messages of a process have left that pass
//!    it on, all its operations end with the error, and so do all that begin later. So a process
//!    that leaves because of the error leaves nobody waiting.
//!    A process that gives false settings ends its job with that, as it can by revoking all
//!    communicators that it is in.
//! 4. If they differ and the other process is of another job, calls at ports between the two end
//!    with the error. In a communicator that has both, the other process counts as down.

use std::collections::HashMap;

use super::control::Control;
use super::control_context::ControlContext;
use super::revocations::neighbours;
use super::service_io::ServiceIo;
use crate::error::Error;
use crate::group::Group;
use crate::net::{Net, ProcessId};
use crate::settings::{CommonSettings, Difference};

/// Whether the settings of this process and of another one have been exchanged.
#[derive(Clone, Copy, Debug, Default)]
struct Exchanged {
    is_sent: bool,
    is_received: bool,
}

#[derive(Debug)]
struct UnequalValue {
    error: Error,
    difference: Difference,
}

#[derive(Debug)]
pub(super) struct Comparison {
    settings: CommonSettings,
    /// By process.
    exchanged: Vec<Exchanged>,
    /// The processes of other jobs with other settings.
    unequal: HashMap<ProcessId, Error>,
    fault: Option<UnequalValue>,
}

impl Comparison {
    pub(super) fn new<N: Net>(settings: CommonSettings, net: &N) -> Self {
        let mut exchanged = vec![Exchanged::default(); net.processes() as usize];
        if let Some(own) = exchanged.get_mut(net.own().0 as usize) {
            *own = Exchanged { is_sent: true, is_received: true };
        }
        Comparison { settings, exchanged, unequal: HashMap::new(), fault: None }
    }

    /// Whether this process has sent its settings to another one.
    #[inline]
    pub(super) fn is_sent(&self, to: ProcessId) -> bool {
        self.exchanged.get(to.0 as usize).is_some_and(|exchanged| exchanged.is_sent)
    }

    #[inline]
    pub(super) fn is_received(&self, from: ProcessId) -> bool {
        self.exchanged.get(from.0 as usize).is_some_and(|exchanged| exchanged.is_received)
    }

    fn exchanged(&mut self, with: ProcessId) -> &mut Exchanged {
        let at = with.0 as usize;
        if at >= self.exchanged.len() {
            self.exchanged.resize(at + 1, Exchanged::default());
        }
        &mut self.exchanged[at]
    }

    /// Sends the settings to a process, once.
    pub(super) fn send<N: Net>(&mut self, net: &mut N, context: &ControlContext<N>, to: ProcessId) {
        let exchanged = self.exchanged(to);
        if !std::mem::replace(&mut exchanged.is_sent, true) {
            context.send(net, to, &Control::Settings(self.settings.values().to_vec()));
        }
    }

    /// Compares the settings of another process with those of this one.
    pub(super) fn hear<N: Net>(
        &mut self,
        io: &mut ServiceIo<'_, N>,
        from: ProcessId,
        theirs: &[u64],
    ) {
        self.exchanged(from).is_received = true;
        let difference = self.settings.difference(theirs);
        if difference.is_some() {
            self.send(io.net, io.context, from);
        }
        if from.0 < io.net.processes() {
            match (&self.fault, difference) {
                (Some(fault), _) => fault.tell(io, from),
                (None, Some(difference)) => self.fail(io, difference),
                (None, None) => {}
            }
        } else if let Some(error) = difference.and_then(|found| self.settings.error_of(&found)) {
            self.unequal.insert(from, error);
            if io.registry.lives().any(|life| life.group.rank(from).is_some()) {
                io.net.give_up(from);
            }
        }
    }

    /// Takes note of a fault of this job, and passes it on if it is new.
    pub(super) fn fail<N: Net>(&mut self, io: &mut ServiceIo<'_, N>, difference: Difference) {
        let Some(error) = self.settings.error_of(&difference).filter(|_| self.fault.is_none())
        else {
            return;
        };
        let fault = UnequalValue { error, difference };
        fault.pass_on(io, true);
        self.fault = Some(fault);
    }

    /// A process is down: the fault is passed on to this process's new neighbours.
    pub(super) fn die<N: Net>(&self, io: &mut ServiceIo<'_, N>) {
        if let Some(fault) = &self.fault {
            fault.pass_on(io, false);
        }
    }

    /// The fault of this job, if there is one.
    #[inline]
    pub(super) fn fault(&self) -> Option<&Error> {
        self.fault.as_ref().map(|fault| &fault.error)
    }

    /// The fault of this job, once the messages that tell others have left.
    pub(super) fn told_fault<N: Net>(
        &self,
        net: &mut N,
        context: &ControlContext<N>,
    ) -> Option<&Error> {
        self.fault().filter(|_| !context.has_awaited(net))
    }

    /// Why calls between this process and one of another job are impossible.
    pub(super) fn unequal(&self, process: ProcessId) -> Option<&Error> {
        self.unequal.get(&process)
    }

    /// Gives up the members of a communicator that have other settings.
    pub(super) fn give_up_in<N: Net>(&self, net: &mut N, group: &Group) {
        self.unequal.keys().filter(|process| group.rank(**process).is_some()).for_each(|process| {
            net.give_up(*process);
        });
    }
}

impl UnequalValue {
    fn tell<N: Net>(&self, io: &mut ServiceIo<'_, N>, to: ProcessId) {
        io.context.send_awaited(io.net, to, &Control::Unequal(self.difference));
    }

    /// Tells the neighbours in this job, as for a revocation.
    fn pass_on<N: Net>(&self, io: &mut ServiceIo<'_, N>, everywhere: bool) {
        let job = Group::new((0..io.net.processes()).map(ProcessId));
        for process in neighbours(io.registry, &job, everywhere) {
            self.tell(io, process);
        }
    }
}
