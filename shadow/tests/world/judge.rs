//! A judge: MPI's matching rules on a plain list of receives and messages.

use tagmatch_soft::{Pattern, SourceId, Tag};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Pending,
    Matched(usize),
    Cancelled,
}

#[derive(Clone, Copy, Debug)]
struct Receive {
    pattern: Pattern,
    end: End,
    cancelling: bool,
    /// A younger receive got a message of the list that this one matches. That is right only if
    /// this receive turns out to have been cancelled, or taken by a message that arrived on another
    /// way.
    passed_over: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MessageState {
    InTransit,
    Stored,
    Done,
}

#[derive(Clone, Copy, Debug)]
struct Message {
    tag: Tag,
    source: SourceId,
    listed: bool,
    state: MessageState,
}

#[derive(Debug, Default)]
pub(crate) struct Judge {
    receives: Vec<Receive>,
    messages: Vec<Message>,
    /// Receives that a message which arrived on another way waits for.
    pub(crate) wanted: Vec<usize>,
}

impl Judge {
    pub(crate) fn posted(&mut self, pattern: Pattern) -> usize {
        let fresh = Receive { pattern, end: End::Pending, cancelling: false, passed_over: false };
        self.receives.push(fresh);
        self.receives.len() - 1
    }

    pub(crate) fn sent(&mut self, message: usize, tag: u64, source: SourceId, listed: bool) {
        assert_eq!(message, self.messages.len());
        self.messages.push(Message {
            tag: Tag(tag),
            source,
            listed,
            state: MessageState::InTransit,
        });
    }

    pub(crate) fn stored(&mut self, message: usize) {
        self.messages[message].state = MessageState::Stored;
    }

    pub(crate) fn cancel(&mut self, receive: usize) {
        self.receives[receive].cancelling = true;
    }

    pub(crate) fn cancelled(&mut self, receive: usize) -> Result<(), String> {
        self.end(receive, End::Cancelled)
    }

    pub(crate) fn receive_of(&self, message: usize) -> Option<usize> {
        self.receives.iter().position(|receive| receive.end == End::Matched(message))
    }

    /// The NIC gives a message to a receive. It compares tags only, so the sender may be any.
    pub(crate) fn matched(&mut self, receive: usize, message: usize) -> Result<(), String> {
        let Message { tag, source, .. } = self.messages[message];
        for (older, other) in self.receives.iter_mut().enumerate().take(receive) {
            if other.end != End::Pending || !other.pattern.matches(tag, source) {
                continue;
            }
            if !other.cancelling && !self.wanted.contains(&older) {
                return Err(format!(
                    "message {message} was given to receive {receive}, although {older} is older"
                ));
            }
            other.passed_over = true;
        }
        let pattern = self.receives[receive].pattern;
        let overtaken = self.messages[..message].iter().position(|other| {
            other.listed
                && other.state != MessageState::Done
                && pattern.matches(other.tag, other.source)
        });
        if let Some(overtaken) = overtaken {
            return Err(format!(
                "message {message} was given to receive {receive} before {overtaken}"
            ));
        }
        self.delivered(receive, message)
    }

    /// Software gives a message to a receive.
    pub(crate) fn delivered(&mut self, receive: usize, message: usize) -> Result<(), String> {
        let Message { listed, state, .. } = self.messages[message];
        if state == MessageState::Done {
            return Err(format!("message {message} was given to a second receive, {receive}"));
        }
        if listed && self.receives[receive].passed_over {
            return Err(format!(
                "receive {receive} gets {message}, but a younger one got an earlier message"
            ));
        }
        self.messages[message].state = MessageState::Done;
        self.end(receive, End::Matched(message))
    }

    fn end(&mut self, receive: usize, end: End) -> Result<(), String> {
        let was = &mut self.receives[receive].end;
        if *was != End::Pending {
            return Err(format!("receive {receive} was {was:?} and ends as {end:?}"));
        }
        *was = end;
        Ok(())
    }

    /// Checks that exactly the posted receives are pending, and that each message was stored or
    /// delivered.
    pub(crate) fn all_ended(&self, posted: impl Iterator<Item = usize>) -> Result<(), String> {
        let posted: Vec<usize> = posted.collect();
        for (number, receive) in self.receives.iter().enumerate() {
            if (receive.end == End::Pending) != posted.contains(&number) {
                return Err(format!("receive {number} is {:?} at the end", receive.end));
            }
        }
        match self.messages.iter().position(|message| message.state == MessageState::InTransit) {
            Some(message) => Err(format!("message {message} was lost")),
            None => Ok(()),
        }
    }
}
