//! The engine on a NIC that is driven by hand: the choices of a state, and carrying one out.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::ops::Range;

use tagmatch_device::tm::{Opcode, Tmh};
use tagmatch_device::{Buffer, DeviceError, Network, PeerId};
use tagmatch_fallback::{
    self as fallback, Amount, Completion, CreditConfig, Engine, EngineConfig, Fault, MatchEngine,
    RequestId,
};
use tagmatch_model::{Handle, Knobs, Model, ModelConfig, Nic, NicStep};
use tagmatch_routed::Routed;
use tagmatch_soft::{Pattern, Tag, TagMask};

use super::fold::Fold;
use super::scope::Scope;
use super::spec::{ReceiveEnd, ReceiveKind, SENDERS, ScopeMessage, Spec};
use super::wire::{Arriving, HandWire};
use crate::violation::{Rule, Verdict, Violation, ensure};

/// Bytes of payload: at least the minimum of a NIC's entry, and more than fits into one packet with
/// its header, so that a match and its data are separate events.
const PAYLOAD_BYTES: usize = 64;
const MESSAGE_BYTES: usize = 16 + PAYLOAD_BYTES;
/// The lowest bit of the tag's field that holds the sender's number plus one.
const SOURCE_SHIFT: u32 = 8;
const SOURCE_BITS: u64 = 0xff << SOURCE_SHIFT;
const TAG_BITS: u64 = 0xff;

/// A step that may come next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Choice {
    Post(ReceiveKind),
    Cancel(usize),
    /// The next message of a sender reaches the NIC's list, or reaches the engine past the list.
    Send {
        sender: u8,
        tag: u8,
    },
    Nic(NicStep),
}

impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Choice::Post(kind) => write!(f, "post {kind:?}"),
            Choice::Cancel(index) => write!(f, "cancel receive {index}"),
            Choice::Send { sender, tag } => write!(f, "message of sender {sender}, tag {tag}"),
            Choice::Nic(step) => write!(f, "NIC: {step:?}"),
        }
    }
}

/// Shared memory, and a network whose NIC has a list.
type ScopeDevice = Routed<HandWire, Model<HandWire>, ()>;

/// The most polls until a worker without peers looks at its networks.
const POLLS_MAX: u32 = 200;

/// The state of one run.
#[derive(Clone)]
pub(super) struct ScopeWorld {
    scope: Scope,
    engine: Engine<ScopeDevice>,
    spec: Spec,
    /// Receives that have not ended, by the order of posting.
    requests: Vec<Option<RequestId>>,
    /// Messages sent, by sender.
    sent: [u8; SENDERS as usize],
    cancels: u32,
    /// The NIC has done a step that software has not seen yet.
    is_nic_ahead: bool,
    /// Tags and senders that were named. All others are equivalent, so only the first of them is
    /// tried.
    tags_named: u8,
    senders_named: u8,
}

impl ScopeWorld {
    pub(super) fn new(scope: &Scope) -> Result<Self, DeviceError> {
        // The peers beyond the machine come first. The second one is near if its messages are to
        // arrive past the list.
        let split = if scope.second_passes { 2 } else { 1 + u32::from(SENDERS) };
        let near = HandWire::new(Network::Shm, split..1 + u32::from(SENDERS), MESSAGE_BYTES);
        let wire = HandWire::new(Network::Tcp, 1..split, MESSAGE_BYTES);
        // The counts wrap at the second message.
        let knobs = Knobs::default()
            .buffers_min(1)
            .packet_bytes(64)
            .first_count(u16::MAX - 1)
            .sync_limit(scope.sync_limit);
        let Scope { slots, operations, .. } = *scope;
        let mut model = Model::new(
            wire,
            &ModelConfig::default()
                .slots(slots)
                .operations(operations)
                .buffers(8)
                .seed(0)
                .knobs(knobs),
        )?;
        model.nic_mut().set_manual();
        let device = Routed::sleepless(near, vec![Box::new(model)])?;
        let mut engine = Engine::new(device, &engine_config(scope))?;
        for _ in 0..POLLS_MAX {
            engine.progress();
        }
        Ok(ScopeWorld {
            scope: *scope,
            engine,
            spec: Spec::new(),
            requests: Vec::new(),
            sent: [0; SENDERS as usize],
            cancels: 0,
            is_nic_ahead: false,
            tags_named: if scope.all_names { scope.tags } else { 0 },
            // A sender whose messages pass the list is not equivalent to the other one.
            senders_named: if scope.second_passes || scope.all_names { SENDERS } else { 0 },
        })
    }

    /// The choices of this state, always in the same order.
    ///
    /// Unless all orders are [asked for](Scope::is_thorough), some equivalent orders are left out:
    ///
    /// - When the NIC takes up an operation or gets a message, the result depends only on what
    ///   software posted before. So software sees the result next. If software did something else
    ///   first, the state would be the same as if it had done so before the NIC's step.
    /// - Once all messages were sent, the NIC takes up each operation at once: the moment makes no
    ///   difference any more.
    /// - Data arrives at once if no receive could need the slot that it frees.
    pub(super) fn choices(&self) -> Vec<Choice> {
        let steps = self.nic().steps();
        let tries_all_orders = self.scope.is_thorough;
        let may_send = self.may_send();
        if !tries_all_orders {
            let is_first = |step: &&NicStep| match step {
                NicStep::Execute { .. } => !may_send,
                NicStep::Data(_) => self.has_slots_for_all(),
                NicStep::Answer | NicStep::Receive => false,
            };
            if let Some(step) = steps.iter().find(is_first) {
                return vec![Choice::Nic(*step)];
            }
        }
        let must_see = self.is_nic_ahead && !tries_all_orders;
        let is_next = |step: &NicStep| !must_see || !matches!(step, NicStep::Data(_));
        let mut choices: Vec<Choice> = steps.into_iter().filter(is_next).map(Choice::Nic).collect();
        if self.nic().completions_pending() >= self.scope.held_max {
            return choices;
        }
        if may_send {
            let sends = self.pairs().map(|(sender, tag)| Choice::Send { sender, tag });
            choices.extend(sends.filter(|send| !must_see || self.is_of_nic(*send)));
        }
        if must_see {
            return choices;
        }
        if self.requests.len() < self.scope.receives {
            choices.extend(self.kinds().map(Choice::Post));
        }
        if self.cancels < self.scope.cancels {
            let pending = (0..self.requests.len()).filter(|index| self.requests[*index].is_some());
            choices.extend(pending.map(Choice::Cancel));
        }
        choices
    }

    fn nic(&self) -> &Nic {
        let model = self.engine.device().networks().next();
        model.unwrap_or_else(|| unreachable!("there is one network")).nic()
    }

    fn model_mut(&mut self) -> &mut Model<HandWire> {
        let model = self.engine.device_mut().networks_mut().next();
        model.unwrap_or_else(|| unreachable!("there is one network"))
    }

    /// Whether the messages of a sender come over shared memory.
    fn is_near(&self, sender: u8) -> bool {
        sender == 1 && self.scope.second_passes
    }

    fn may_send(&self) -> bool {
        self.sent.iter().map(|sent| u32::from(*sent)).sum::<u32>() < self.scope.messages
    }

    /// Whether this is a step of the NIC that software doesn't see.
    fn is_of_nic(&self, choice: Choice) -> bool {
        match choice {
            Choice::Nic(step) => matches!(step, NicStep::Execute { .. }),
            Choice::Send { sender, .. } => !self.is_near(sender),
            Choice::Post(_) | Choice::Cancel(_) => false,
        }
    }

    /// Whether no receive has to wait for a slot from now on, even if no data comes.
    fn has_slots_for_all(&self) -> bool {
        let unposted = self.scope.receives - self.requests.len();
        let pending = self.requests.iter().flatten().count();
        unposted + pending + self.nic().slots_deleting() <= self.scope.slots as usize
    }

    /// Senders and tags that may be named.
    fn pairs(&self) -> impl Iterator<Item = (u8, u8)> + use<> {
        let tags = self.tags();
        self.senders().flat_map(move |sender| tags.clone().map(move |tag| (sender, tag)))
    }

    fn senders(&self) -> Range<u8> {
        0..SENDERS.min(self.senders_named + 1)
    }

    fn tags(&self) -> Range<u8> {
        0..self.scope.tags.min(self.tags_named + 1)
    }

    fn kinds(&self) -> impl Iterator<Item = ReceiveKind> + use<> {
        let exact = self.pairs().map(|(sender, tag)| ReceiveKind::Exact { sender, tag });
        let any_source = self.tags().map(|tag| ReceiveKind::AnySource { tag });
        exact.chain(any_source).chain(self.senders().map(|sender| ReceiveKind::AnyTag { sender }))
    }

    /// Whether the program has ended and no choice is left.
    pub(super) fn is_over(&self) -> bool {
        !self.may_send()
            && self.requests.len() == self.scope.receives
            && self.nic().steps().is_empty()
    }

    /// Carries out a choice, lets the engine react, and checks the results that can be seen.
    pub(super) fn step(&mut self, choice: Choice) -> Verdict {
        self.is_nic_ahead = self.is_of_nic(choice) && self.may_send();
        match choice {
            Choice::Post(kind) => self.post(kind)?,
            Choice::Cancel(index) => {
                self.cancels += 1;
                self.spec.cancel(index);
                if let Some(request) = self.requests[index] {
                    self.engine.cancel(request);
                }
            }
            Choice::Send { sender, tag } => self.send(sender, tag),
            Choice::Nic(step) => {
                if !self.model_mut().nic_mut().step(step) {
                    return Err(Violation::new(Rule::Fault, format!("the NIC can't do {step:?}")));
                }
            }
        }
        self.take_ends()?;
        self.check()
    }

    fn name(&mut self, sender: Option<u8>, tag: Option<u8>) {
        self.senders_named = self.senders_named.max(sender.map_or(0, |sender| sender + 1));
        self.tags_named = self.tags_named.max(tag.map_or(0, |tag| tag + 1));
    }

    fn post(&mut self, kind: ReceiveKind) -> Verdict {
        let (sender, tag) = match kind {
            ReceiveKind::Exact { sender, tag } => (Some(sender), Some(tag)),
            ReceiveKind::AnySource { tag } => (None, Some(tag)),
            ReceiveKind::AnyTag { sender } => (Some(sender), None),
        };
        self.name(sender, tag);
        self.spec.post(kind);
        let mask = sender.map_or(0, |_| SOURCE_BITS) | tag.map_or(0, |_| TAG_BITS);
        let bits = sender.map_or(0, |sender| u64::from(sender + 1) << SOURCE_SHIFT)
            | tag.map_or(0, u64::from);
        let buffer = Buffer::zeroed(PAYLOAD_BYTES);
        let pattern = Pattern::new(Tag(bits), TagMask(mask));
        let index = self.requests.len();
        let context = is_queued(index).then_some(index as u64);
        match self.engine.receive_with(&pattern, buffer, false, context) {
            Ok(request) => self.requests.push(Some(request)),
            Err(refused) => {
                return Err(Violation::new(
                    Rule::Fault,
                    format!("a receive was refused: {refused:?}"),
                ));
            }
        }
        Ok(())
    }

    fn send(&mut self, sender: u8, tag: u8) {
        self.name(Some(sender), Some(tag));
        let sent = &mut self.sent[usize::from(sender)];
        let message = ScopeMessage::new(sender, *sent, tag);
        *sent += 1;
        self.spec.send(message);
        let tag = u64::from(sender + 1) << SOURCE_SHIFT | u64::from(tag);
        let mut bytes = Tmh { opcode: Opcode::Eager, app_ctx: 0, tag }.emit().to_vec();
        bytes.resize(MESSAGE_BYTES, message.number + 1);
        let peer = PeerId(u32::from(sender) + 1);
        let frame = Arriving { peer, immediate: message.number.into(), bytes };
        if self.is_near(sender) {
            self.engine.device_mut().local_mut().put(frame);
        } else {
            self.model_mut().inner_mut().put(frame);
        }
    }

    fn take_ends(&mut self) -> Verdict {
        let mut ends = Vec::new();
        self.engine.take_ends(&mut ends);
        let operation = |end| match end {
            fallback::End::Operation { context, completion } => Some((context, completion)),
            _ => None,
        };
        let mut ended: Vec<_> = ends.into_iter().filter_map(operation).collect();
        for (index, request) in self.requests.iter().enumerate() {
            let polled = request.filter(|_| !is_queued(index));
            let completion = polled.and_then(|request| self.engine.requests_mut().take(request));
            ended.extend(completion.map(|completion| (index as u64, completion)));
        }
        for (context, completion) in ended {
            let index = usize::try_from(context).unwrap_or(usize::MAX);
            let is_first = self.requests.get_mut(index).and_then(Option::take).is_some();
            ensure!(is_first, Twice, "receive {context} has ended again, or was never posted");
            let end = end_of(&completion)?;
            let may_end = self.spec.ended(index, end);
            ensure!(may_end, PostedOrder, "receive {index} can't have ended with {end:?}");
        }
        Ok(())
    }

    fn check(&self) -> Verdict {
        let nic = self.nic();
        if let Some(fault) = nic.faults().first() {
            return Err(Violation::new(
                Rule::Fault,
                format!("the NIC's rules were broken: {fault}"),
            ));
        }
        let counters = self.engine.counters();
        if counters.bugs > 0 {
            return Err(Violation::new(Rule::Fault, "the engine has met a state that can't be"));
        }
        if counters.list_faults > 0 {
            return Err(Violation::new(
                Rule::Fault,
                "the shadow reports an impossible event of the NIC",
            ));
        }
        if let Some(fault) =
            (1..=u32::from(SENDERS)).find_map(|p| self.engine.peer_fault(PeerId(p)))
        {
            return Err(Violation::new(
                Rule::Fault,
                format!("the engine reports a fault of a sender: {fault:?}"),
            ));
        }
        if nic.steps().is_empty() { self.check_settled() } else { Ok(()) }
    }

    /// Checks a state in which nothing moves by itself any more.
    fn check_settled(&self) -> Verdict {
        let pending = self.requests.iter().flatten().count();
        let counters = self.engine.counters();
        if counters.posted_now != pending as u64 {
            let what = format!("{pending} receives are pending, {} posted", counters.posted_now);
            return Err(Violation::new(Rule::Lost, what));
        }
        let waiting = usize::try_from(counters.unexpected_now).unwrap_or(usize::MAX);
        if !self.spec.may_be_settled(pending, waiting) {
            let what = format!(
                "settled with {pending} receives pending and {waiting} messages waiting, which can't be: \
                 a message or a cancel is lost, or a pair that matches is left"
            );
            return Err(Violation::new(Rule::Unmatched, what));
        }
        let held = self.engine.credit().held.messages;
        if held != counters.unexpected_now {
            let what = format!("settled: {waiting} messages wait, and {held} hold credit");
            return Err(Violation::new(Rule::Credit, what));
        }
        let slots = self.nic().slots_taken();
        // Messages that arrive past the list decide which receives may be in the NIC.
        let is_full = slots == pending.min(self.scope.slots as usize) || self.scope.second_passes;
        if slots > pending || !is_full {
            let what = format!("settled: the NIC has {slots} entries for {pending} receives");
            return Err(Violation::new(Rule::Leak, what));
        }
        Ok(())
    }

    /// The digest of this state.
    pub(super) fn digest(&self) -> u64 {
        let state = &mut Fold::default();
        self.requests_by_index().hash(state);
        self.engine.hash_state(state, |handle| Handle(handle).slot());
        self.nic().hash_state(state);
        (self.sent, self.cancels, self.is_nic_ahead, self.tags_named, self.senders_named)
            .hash(state);
        self.spec.hash_state(state);
        state.finish()
    }

    /// The digest of the outcome: the requests and messages that are left, and the number of
    /// receives in the NIC.
    pub(super) fn digest_of_end(&self) -> u64 {
        let state = &mut Fold::default();
        let requests = self.requests.iter().enumerate();
        let pending = requests.filter(|(_, request)| request.is_some());
        pending.for_each(|(index, _)| self.spec.kind(index).hash(state));
        self.engine.hash_unexpected(state);
        self.nic().slots_taken().hash(state);
        state.finish()
    }

    /// The engine's requests of the receives, in the order of posting.
    fn requests_by_index(&self) -> Vec<Option<u32>> {
        self.requests.iter().map(|request| Some(request.as_ref()?.index())).collect()
    }
}

/// Whether the end of a receive is told by the completion queue, with the receive's index as the
/// context. The other receives are asked.
fn is_queued(index: usize) -> bool {
    index.is_multiple_of(2)
}

fn engine_config(scope: &Scope) -> EngineConfig {
    let plenty = Amount { messages: 64, bytes: 1 << 16 };
    let pool = Amount { messages: 1024, bytes: 1 << 20 };
    EngineConfig {
        eager_max: PAYLOAD_BYTES,
        fragmented_max: 0,
        operations_max: 1,
        credit: CreditConfig { pool, first: plenty, peer_max: plenty },
        nic_threshold: 0,
        // If all messages come through the list, nothing depends on their senders.
        source_bits: TagMask(if scope.second_passes { SOURCE_BITS } else { 0 }),
        departed_max: 1024,
        seed: 0,
    }
}

/// Checks how a receive ended, and all facts of its envelope.
fn end_of(completion: &Completion) -> Result<ReceiveEnd, Violation> {
    let status = match &completion.result {
        Err(Fault::Cancelled) => return Ok(ReceiveEnd::Cancelled),
        Err(fault) => {
            return Err(Violation::new(Rule::Fault, format!("a receive failed: {fault}")));
        }
        Ok(status) => status,
    };
    let number = status.immediate.and_then(|number| u8::try_from(number).ok());
    let Some(number) = number else {
        return Err(Violation::new(Rule::Status, format!("no such immediate data: {status:?}")));
    };
    let message = ScopeMessage { number, tag: (status.tag.0 & TAG_BITS) as u8 };
    let from = u32::from(message.sender()) + 1;
    let source = status.tag.0 >> SOURCE_SHIFT;
    if from > u32::from(SENDERS)
        || status.source != PeerId(from)
        || source != u64::from(from)
        || status.truncated
    {
        return Err(Violation::new(Rule::Status, format!("{status:?} of message {number}")));
    }
    let is_complete =
        status.length == PAYLOAD_BYTES as u64 && completion.buffer.len() == PAYLOAD_BYTES;
    if !is_complete || completion.buffer.iter().any(|byte| *byte != number + 1) {
        return Err(Violation::new(Rule::Payload, format!("wrong bytes of message {number}")));
    }
    Ok(ReceiveEnd::Got(number))
}
