//! The service of one process: it exchanges control messages with other processes, for all
//! communicators of the process.
//!
//! Control messages arrive at any time. So progress looks for them every few turns, whether or not
//! the program is in a call that has to do with failures: a process that has ended its part of an
//! agreement still answers others.

use std::collections::BTreeSet;
use std::sync::Arc;

use tagmatch::TagLayout;

use super::agree::{AgreeMessage, Value};
use super::agreement_table::{AgreementName, Agreements, Vote};
use super::attempts::{Attempts, InvitationAnswer};
use super::comparison::Comparison;
use super::control::{Control, Invitation, JoinMessage};
use super::control_context::ControlContext;
use super::departures::Departures;
use super::doubts::Doubts;
use super::early::EarlyMessages;
use super::registry::Registry;
use super::rest::RestingIds;
use super::revocations::Revocations;
use super::service_io::ServiceIo;
use crate::alloc::Allocator;
use crate::error::Error;
use crate::group::Group;
use crate::ids::IdLayout;
use crate::life::{Key, Life};
use crate::mailbox::Mailboxes;
use crate::net::{Net, NetError, ProcessId};
use crate::settings::CommonSettings;

/// Turns of progress between two looks for messages while no machine waits for one. A look costs
/// about a fifth of a message, and usually finds nothing.
const TURNS_PER_LOOK: u32 = 32;

/// How many agreements on a communicator another member may begin before this process does.
/// Messages of later ones are kept as those that come early.
const AHEAD_MAX: u64 = 128;

/// A message of an agreement can't be taken in yet.
struct Unconfirmed;

pub(crate) struct Service<N: Net> {
    context: ControlContext<N>,
    registry: Registry,
    agreements: Agreements,
    attempts: Attempts,
    revocations: Revocations,
    comparison: Comparison,
    /// Set once this process has counted itself out.
    counted_out: Option<Error>,
    departures: Departures,
    resting: RestingIds,
    early: EarlyMessages,
    /// Messages of agreements that wait until the own transport has reported what they say.
    unconfirmed: EarlyMessages,
    doubts: Doubts,
    mailboxes: Arc<Mailboxes>,
    /// Turns since the last look.
    turns: u32,
    /// See [`take_news`](Self::take_news).
    is_news: bool,
    /// Whether a machine waits for a message.
    is_awaited: bool,
    /// Whether a machine waits for something that wakes no sleeping thread.
    is_polled: bool,
}

impl<N: Net> Service<N> {
    pub(crate) fn new(
        net: &N,
        settings: CommonSettings,
        (ids, tags): (IdLayout, TagLayout),
        allocator: &Allocator,
        mailboxes: &Arc<Mailboxes>,
    ) -> Self {
        Service {
            context: ControlContext::new(net.free_tag_bits()),
            registry: Registry::new(net.own()),
            agreements: Agreements::default(),
            attempts: Attempts::default(),
            revocations: Revocations::default(),
            comparison: Comparison::new(settings, net),
            counted_out: None,
            departures: Departures::default(),
            resting: RestingIds::new(allocator.clone(), ids, tags),
            early: EarlyMessages::default(),
            unconfirmed: EarlyMessages::default(),
            doubts: Doubts::new(net.own(), net.processes()),
            mailboxes: Arc::clone(mailboxes),
            turns: 0,
            is_news: false,
            is_awaited: false,
            is_polled: false,
        }
    }

    /// One turn of progress, which takes in messages every few turns. `is_last`: the next turn may
    /// be a long time away.
    pub(crate) fn progress(&mut self, net: &mut N, is_last: bool) {
        self.turns += 1;
        if self.turns >= TURNS_PER_LOOK || self.is_awaited || is_last {
            self.look(net);
        }
    }

    /// Whether machines have to be stepped before a thread sleeps: messages or deaths were taken in
    /// since the last call, or a machine has called [`step_again`](Self::step_again). To be asked
    /// at the end of a turn, since machines look, too.
    pub(crate) fn take_news(&mut self) -> bool {
        std::mem::take(&mut self.is_news)
    }

    /// A machine has more to do, after other machines were stepped: no thread sleeps before.
    pub(crate) fn step_again(&mut self) {
        self.is_awaited = true;
        self.is_news = true;
    }

    /// A machine waits for a message: the next turn looks for it.
    pub(crate) fn expect(&mut self) {
        self.is_awaited = true;
    }

    /// A machine waits for something that wakes no sleeping thread: the next sleep is short.
    pub(crate) fn poll_soon(&mut self) {
        self.is_polled = true;
    }

    /// Whether the next sleep has to be short.
    pub(crate) fn take_polled(&mut self) -> bool {
        std::mem::take(&mut self.is_polled)
    }

    /// Takes in the deaths and messages that have arrived.
    #[inline(never)]
    pub(crate) fn look(&mut self, net: &mut N) {
        (self.turns, self.is_awaited) = (0, false);
        let down = net.take_down();
        // This comes first, so that a process which lacks a connection tells nobody that the other
        // end is dead.
        if self.counted_out.is_none()
            && let Some(why) = net.failure().or_else(|| self.context.failure())
        {
            self.count_out(net, why);
        }
        let has_lost = !down.is_empty();
        for process in down {
            self.is_news = true;
            self.learn(net, process);
            self.resting.lose(process);
            self.doubts.lose(process, net.has_left(process));
        }
        if has_lost {
            if self.agreements.is_open() {
                self.doubts.ask_about_left();
            }
            for (from, control) in self.unconfirmed.take(|_| true) {
                self.deliver(net, from, control);
            }
        }
        let (matched, messages) = self.context.receive(net);
        self.is_news |= matched > 0;
        for (from, control) in messages {
            self.deliver(net, from, control);
        }
        self.resting.look(&mut ServiceIo::new(net, &self.context, &self.registry));
        self.settle_doubts(net);
        if self.fault().is_some() {
            self.end_all(net);
        }
    }

    /// Sends the questions about processes that were lost, and the answers. If one of these lives,
    /// this process counts itself out.
    fn settle_doubts(&mut self, net: &mut N) {
        if self.counted_out.is_some() {
            return;
        }
        for (to, doubt) in self.doubts.take_messages() {
            self.context.send(net, to, &Control::Doubt(doubt));
        }
        if let Some(process) = self.doubts.goes_for() {
            let why = format!(
                "the connection to process {} was lost, and others say that this process lives",
                process.0
            );
            self.count_out(net, why);
        }
    }

    /// Gives up all other processes. So each of them learns from its transport that this one has
    /// failed, as it learns of a death, and nobody waits for this process.
    #[cold]
    fn count_out(&mut self, net: &mut N, why: String) {
        self.is_news = true;
        self.counted_out = Some(Error::CountedOut { why });
        let of_job = (0..net.processes()).map(ProcessId);
        let lives: Vec<_> = self.registry.lives().collect();
        let members = lives.iter().flat_map(|life| life.group.processes().iter().copied());
        let all: BTreeSet<_> = of_job.chain(members).collect();
        let own = self.registry.own;
        all.into_iter().filter(|process| *process != own).for_each(|other| net.give_up(other));
    }

    /// Ends all operations on communicators, once others were told of the fault.
    #[cold]
    fn end_all(&mut self, net: &mut N) {
        match self.told_fault(net) {
            Some(_) => self.registry.lives().for_each(|life| life.revoke()),
            None => self.is_awaited = true,
        }
    }

    /// Notes that this process sends to another one in a communicator. To be called before each
    /// message.
    #[inline]
    pub(crate) fn note_send(&mut self, net: &mut N, life: &Life, process: ProcessId) {
        if life.used().send_to(process) {
            self.greet(net, process);
        }
    }

    /// Sends this process's settings to another process, once. To be called before the first
    /// message to the process, and before a receive from it.
    #[inline]
    pub(crate) fn greet(&mut self, net: &mut N, process: ProcessId) {
        if !self.comparison.is_sent(process) {
            self.comparison.send(net, &self.context, process);
        }
    }

    /// Compares settings with the sender of a message. To be called before the message is used.
    ///
    /// # Errors
    /// The settings of two processes of the job differ.
    #[inline]
    pub(crate) fn compare(&mut self, net: &mut N, from: Option<ProcessId>) -> Result<(), Error> {
        if let Some(from) = from
            && !self.comparison.is_received(from)
        {
            self.look(net);
        }
        self.fault().map_or(Ok(()), |error| Err(error.clone()))
    }

    /// The error that ends all operations of this process: it has counted itself out, or the
    /// settings of two processes of the job differ.
    #[inline]
    pub(crate) fn fault(&self) -> Option<&Error> {
        self.counted_out.as_ref().or(self.comparison.fault())
    }

    /// The error of [`Service::fault`], once this process has told the other processes of it. The
    /// operations of this process end no sooner.
    pub(crate) fn told_fault(&mut self, net: &mut N) -> Option<Error> {
        let fault = || self.comparison.told_fault(net, &self.context).cloned();
        self.counted_out.clone().or_else(fault)
    }

    /// The difference between the settings of this process and one of another job.
    pub(crate) fn unequal(&self, process: ProcessId) -> Option<Error> {
        self.comparison.unequal(process).cloned()
    }

    /// Takes note that a message was not sent. If its receiver may wait for it, this process leaves
    /// its job at the next [`look`](Self::look): see [`Error::CountedOut`].
    pub(crate) fn note_unsent(&mut self, net: &mut N, to: ProcessId, error: &NetError) {
        self.context.note_unsent(net, to, error);
        self.step_again();
    }

    /// An operation that has to go on after failures can't, because the transport of this process
    /// has failed. This process leaves its job at the next [`look`](Self::look).
    pub(crate) fn lack(&mut self, error: &Error) {
        self.context.lack(|| error.to_string());
        self.step_again();
    }

    /// Sends the letters of this turn of progress. Whether there were any.
    pub(crate) fn post(&mut self, net: &mut N) -> bool {
        let letters = self.mailboxes.take_outgoing();
        let has_letters = !letters.is_empty();
        for (to, letter) in letters {
            self.greet(net, to);
            self.context.send(net, to, &Control::Letter(letter));
        }
        has_letters
    }

    fn deliver(&mut self, net: &mut N, from: ProcessId, control: Control) {
        match control {
            Control::Revoke { key, group } => self.revoke(net, key, group),
            Control::Left { key, rounds } => {
                let io = &mut ServiceIo::new(net, &self.context, &self.registry);
                self.departures.hear(io, from, key, rounds);
            }
            Control::Letter(letter) => self.mailboxes.hear(from, letter),
            Control::Settings(values) => {
                let io = &mut ServiceIo::new(net, &self.context, &self.registry);
                self.comparison.hear(io, from, &values);
            }
            Control::Unequal(difference) if from.0 < net.processes() => {
                let io = &mut ServiceIo::new(net, &self.context, &self.registry);
                self.comparison.fail(io, difference);
            }
            Control::Unequal(_) => {}
            Control::Agree { key, number, message } => {
                self.hear_agreement(net, from, (key, number), message);
            }
            Control::Ask { number, asked } => {
                let io = &mut ServiceIo::new(net, &self.context, &self.registry);
                self.resting.answer(io, from, number, &asked);
            }
            Control::Answer { number, done } => self.resting.hear(from, number, &done),
            Control::Closing { uses } => self.resting.hear_closing(from, &uses),
            Control::Join(join) => self.hear_invitation(net, from, join),
            Control::Doubt(doubt) if self.counted_out.is_none() => self.doubts.hear(from, doubt),
            Control::Doubt(_) => {}
        }
    }

    /// Delivers messages that arrived before this process knew what they are about.
    fn deliver_early(&mut self, net: &mut N, is_known: impl Fn(&Control) -> bool) {
        for (from, control) in self.early.take(is_known) {
            self.deliver(net, from, control);
        }
    }

    /// Adds a communicator of this process.
    pub(crate) fn register(&mut self, net: &mut N, life: &Arc<Life>) {
        self.registry.register(life);
        self.comparison.give_up_in(net, &life.group);
        if self.fault().is_some() {
            self.end_all(net);
        }
        if self.revocations.contains(life) {
            life.revoke();
            self.resting.revoke(life);
        }
        self.deliver_early(
            net,
            |control| matches!(control, Control::Agree { key, .. } if *key == life.key),
        );
    }

    /// Notes that a process is down.
    fn learn(&mut self, net: &mut N, process: ProcessId) {
        if self.registry.learn(process) {
            let io = &mut ServiceIo::new(net, &self.context, &self.registry);
            self.agreements.die(io, process);
            self.revocations.die(io, process);
            self.comparison.die(io);
        }
    }

    /// Ends all that is under way on a communicator, here and at all members.
    pub(crate) fn revoke(&mut self, net: &mut N, key: Key, group: Group) {
        if self.revocations.knows(key, &group) {
            return;
        }
        for life in self.registry.lives().filter(|life| life.key == key && *life.group == group) {
            life.revoke();
            self.resting.revoke(&life);
        }
        for life in self.registry.lives().filter(|life| life.is_given_up()) {
            self.agreements.drop_below(life.key, u64::MAX);
        }
        self.revocations.add(&mut ServiceIo::new(net, &self.context, &self.registry), key, group);
    }

    /// This process takes part in an allocation.
    pub(crate) fn enter(&mut self, key: Key) {
        self.departures.enter(key);
    }

    /// This process no longer takes part in an allocation. `has_left`: it has told its partners.
    pub(crate) fn exit(&mut self, net: &mut N, key: Key, has_left: bool) {
        self.departures.exit(net, &self.context, key, has_left);
    }

    /// Tells a partner that this process leaves an allocation, and how many rounds it had begun.
    pub(crate) fn leave(&self, net: &mut N, to: ProcessId, key: Key, rounds: u32) {
        self.context.send(net, to, &Control::Left { key, rounds });
    }

    /// The members that have left an allocation, and how many rounds each of them had begun.
    pub(crate) fn left(&self, key: Key) -> &[(ProcessId, u32)] {
        self.departures.left(key)
    }

    /// Begins this process's part of an agreement.
    pub(crate) fn vote(&mut self, net: &mut N, life: &Arc<Life>, vote: Vote) {
        let io = &mut ServiceIo::new(net, &self.context, &self.registry);
        self.agreements.ensure(io, (life.key, vote.number), &life.group, None);
        self.doubts.ask_about_left();
        self.agreements.vote(io, life.key, vote, &life.acknowledged());
        let known = life.begun().saturating_add(AHEAD_MAX);
        self.deliver_early(net, |control| {
            matches!(control, Control::Agree { key, number, .. } if *key == life.key && *number < known)
        });
    }

    /// The errors in the books, once all communicators are freed. `is_idle`: no operation was under
    /// way.
    pub(crate) fn audit(&self, is_idle: bool) -> Vec<String> {
        // A fault ends operations at any step.
        let have_ended = is_idle && self.fault().is_none();
        let left = [
            (self.registry.lives().count(), "communicators are not freed"),
            (self.departures.count() * usize::from(have_ended), "allocations were not left"),
            (self.agreements.surplus(), "agreements too many are kept"),
            (self.revocations.surplus(), "revocations too many are remembered"),
        ];
        let left = left.iter().filter(|(count, _)| *count > 0);
        left.map(|(count, what)| format!("{count} {what}")).collect()
    }

    /// How many agreements are kept.
    pub(crate) fn kept_agreements(&self) -> usize {
        self.agreements.count()
    }

    /// The decision of an agreement. All members that have not contributed are known to be down.
    pub(crate) fn decision(&mut self, key: Key, number: u64) -> Option<Value> {
        let value = self.agreements.decision((key, number))?;
        // All contributors have seen the end of the agreements below this number.
        let low = value.low.min(number);
        if let Some(life) = self.registry.life(key) {
            life.pass(low);
        }
        self.agreements.drop_below(key, low);
        Some(value)
    }

    fn hear_agreement(
        &mut self,
        net: &mut N,
        from: ProcessId,
        name: AgreementName,
        message: AgreeMessage,
    ) {
        if !self.agreements.contains(name) {
            let (key, number) = name;
            let Some(life) = self.registry.life(key) else {
                return self.early.keep(from, Control::Agree { key, number, message });
            };
            let is_over = life.is_over(number) || life.is_given_up();
            let is_of_all = message.dead.size() == life.group.size();
            if is_over || !is_of_all || life.group.rank(from).is_none() {
                return;
            }
            if number >= life.begun().saturating_add(AHEAD_MAX) {
                return self.early.keep(from, Control::Agree { key, number, message });
            }
            let io = &mut ServiceIo::new(net, &self.context, &self.registry);
            self.agreements.ensure(io, name, &life.group, None);
        }
        if self.receive(net, from, name, &message).is_err() {
            let (key, number) = name;
            self.unconfirmed.keep(from, Control::Agree { key, number, message });
        }
    }

    /// Takes in a message of an agreement.
    ///
    /// # Errors
    /// The message says that processes of the job are dead, and the own transport has not reported
    /// all of them. No member is believed about that: it may have lost a process that lives.
    fn receive(
        &mut self,
        net: &mut N,
        from: ProcessId,
        name: AgreementName,
        message: &AgreeMessage,
    ) -> Result<(), Unconfirmed> {
        let Some(dead) = self.agreements.dead_in(name, from, message) else { return Ok(()) };
        // A message that counts out this process itself is never confirmed.
        if dead.contains(&self.registry.own) {
            return Ok(());
        }
        let (of_job, foreign): (Vec<_>, Vec<_>) =
            dead.into_iter().partition(|process| process.0 < net.processes());
        let unknown: Vec<_> =
            of_job.into_iter().filter(|process| !self.registry.is_down(*process)).collect();
        if !unknown.is_empty() {
            for process in unknown {
                net.watch(process);
            }
            return Err(Unconfirmed);
        }
        for process in foreign {
            self.learn(net, process);
        }
        let io = &mut ServiceIo::new(net, &self.context, &self.registry);
        self.agreements.receive(io, name, from, message);
        Ok(())
    }

    /// This process knows the other group, and joins the agreement of both groups on an
    /// intercommunicator.
    pub(crate) fn join(&mut self, net: &mut N, life: &Arc<Life>, invitation: Invitation) {
        let attempt = invitation.attempt(life.own);
        self.attempts.end(attempt, Some(life.key));
        let io = &mut ServiceIo::new(net, &self.context, &self.registry);
        self.agreements.ensure(io, (life.key, 0), &life.group, Some(invitation));
        self.deliver_invitations(net, attempt);
    }

    /// This process does not know another group. If it is invited, it contributes a 0.
    pub(crate) fn refuse(&mut self, net: &mut N, attempt: Key) {
        self.attempts.end(attempt, None);
        self.deliver_invitations(net, attempt);
    }

    fn deliver_invitations(&mut self, net: &mut N, attempt: Key) {
        self.deliver_early(net, |control| {
            matches!(control, Control::Join(join) if join.invitation.attempts.contains(&attempt))
        });
    }

    fn hear_invitation(&mut self, net: &mut N, from: ProcessId, join: JoinMessage) {
        let members = Arc::clone(&join.invitation.members);
        let name = (join.key, 0);
        let own = members.rank(self.registry.own);
        let (Some(own), Some(_)) = (own, members.rank(from)) else { return };
        if !self.agreements.contains(name) {
            match self.attempts.answer(join.invitation.attempt(own), join.key) {
                InvitationAnswer::Later => return self.early.keep(from, Control::Join(join)),
                InvitationAnswer::Ignore => return,
                InvitationAnswer::Refuse => {
                    let io = &mut ServiceIo::new(net, &self.context, &self.registry);
                    self.agreements.ensure(io, name, &members, Some(join.invitation.clone()));
                    members.processes().iter().for_each(|process| io.net.watch(*process));
                    self.agreements.vote(io, join.key, Vote { number: 0, low: 0, flags: 0 }, &[]);
                }
            }
        }
        if self.receive(net, from, name, &join.message).is_err() {
            self.unconfirmed.keep(from, Control::Join(join));
        }
    }
}

#[cfg(test)]
mod hostile;
