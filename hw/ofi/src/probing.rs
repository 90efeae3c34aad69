//! Looks for messages that wait, and those that such a look has taken.
//!
//! A provider answers a look by a completion: most at once, `cxi` later. Whatever else has ended by
//! then is handled meanwhile, so its events wait for the next poll.

use std::time::{Duration, Instant};

use tagmatch_device::slab::Key;

use super::OfiTransport;
use super::carrier::TagBits;
use super::endpoint::{Begun, Completion};
use super::operations::{Kind, OfiOperation, WirePattern};

/// How long an answer is waited for. A look without one is given up: there is no message then. One
/// that takes a message is waited for longer, since its message was there a moment before.
const LOOK_MAX: Duration = Duration::from_millis(5);
const TAKE_MAX: Duration = Duration::from_secs(1);

impl OfiTransport {
    /// Asks the provider, and waits for its answer.
    pub(super) fn ask(&mut self, wire: WirePattern, takes: bool) -> Option<(Key, Completion)> {
        let from = wire.from?;
        let operation = OfiOperation { kind: Kind::Look, ..OfiOperation::default() };
        let key = self.core.operations.enter(operation).ok()?;
        let (operation, context) = self.core.operations.with_context(key)?;
        // SAFETY: the table keeps the context until the look has ended, and if it has taken a
        // message, until that was received or the endpoint is gone.
        match unsafe { self.endpoint.look(from, wire.bits, takes, context) } {
            Begun::Yes => operation.is_begun = true,
            Begun::Again | Begun::Failed(_) => {
                self.core.operations.remove(key);
                return None;
            }
        }
        let limit = if takes { TAKE_MAX } else { LOOK_MAX };
        let mut since = None;
        while self.answer.is_none_or(|(of, _)| of != key) {
            self.progress();
            if since.get_or_insert_with(Instant::now).elapsed() > limit {
                // Its answer drops it.
                if let Some(operation) = self.core.operations.at(key) {
                    operation.is_told = true;
                }
                return None;
            }
        }
        let (_, answer) = self.answer.take()?;
        if answer.errno != 0 {
            self.core.operations.remove(key);
            return None;
        }
        if let Some(operation) = self.core.operations.at(key) {
            operation.bits = TagBits { tag: answer.tag, ignored: 0 };
        }
        Some((key, answer))
    }

    /// A look has its answer.
    pub(super) fn look_ended(&mut self, key: Key, completion: &Completion) {
        self.answer = Some((key, *completion));
    }
}
