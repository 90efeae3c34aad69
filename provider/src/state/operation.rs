//! Operations that are under way.

use tagmatch::{Buffer, QueuedRequest};
use tagmatch_ofi_provider::Failure;
use tagmatch_ofi_sys as sys;

/// Most operations that are under way on one endpoint.
pub(crate) const OPERATIONS_MAX: u32 = 1 << 30;

/// The contents of the entry that an operation will have in the completion queue.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Receive {
    /// The caller's context.
    pub(crate) context: usize,
    /// `FI_RECV` and `FI_TAGGED` or `FI_MSG`. Of a send: `FI_SEND`.
    pub(crate) kind: u64,
    /// Where the buffer starts; 0 of a send.
    pub(crate) start: usize,
    /// The buffer's length; 0 of a send.
    pub(crate) room: usize,
    /// Its success is an entry of the completion queue. A failure always is.
    pub(crate) tells: bool,
    /// The multi-receive buffer, or the one-sided operation, of which this is a part.
    pub(crate) multi: Option<u64>,
}

/// Bits of a word that stands for a receive. A key of the table of operations lacks the first two.
const IS_PLAIN: u64 = 1 << 63;
const TELLS: u64 = 1 << 62;
const TAGGED: u64 = 1 << 61;
/// The first context that has no room beside these bits. A pointer of a program is below.
const CONTEXT_END: u64 = TAGGED;

/// A word that stands for a receive into one piece of memory: the worker gives the word and the
/// buffer back at the receive's end. `None`: the context doesn't fit.
#[inline(always)]
pub(crate) fn word_of(context: usize, kind: u64, tells: bool) -> Option<u64> {
    let context = context as u64;
    let tells = if tells { TELLS } else { 0 };
    let tagged = if kind & sys::FI_TAGGED != 0 { TAGGED } else { 0 };
    (context < CONTEXT_END).then_some(IS_PLAIN | tells | tagged | context)
}

impl Receive {
    /// The receive that a word stands for, if its success is an entry. `None`: it isn't, or the
    /// word is a key of the table of operations.
    #[inline(always)]
    pub(crate) fn of_telling_word(word: u64, buffer: &Buffer) -> Option<Self> {
        if word & TELLS != 0 { Self::of_word(word, buffer) } else { None }
    }

    /// The receive that a word stands for. `None`: the word is a key of the table of operations.
    #[inline(always)]
    pub(crate) fn of_word(word: u64, buffer: &Buffer) -> Option<Self> {
        let kind = if word & TAGGED != 0 { sys::FI_TAGGED } else { sys::FI_MSG };
        (word & IS_PLAIN != 0).then(|| Receive {
            context: context_of(word),
            kind: sys::FI_RECV | kind,
            start: buffer.as_ptr() as usize,
            room: buffer.len(),
            tells: word & TELLS != 0,
            multi: None,
        })
    }
}

/// Whether a word stands for a receive with this context.
pub(crate) fn is_receive_of(word: u64, context: usize) -> bool {
    word & IS_PLAIN != 0 && context_of(word) == context
}

#[inline(always)]
fn context_of(word: u64) -> usize {
    (word & (CONTEXT_END - 1)) as usize
}

/// An operation that is under way on a worker, unless a word stands for it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OperationUnderWay {
    /// The contents of its entry.
    pub(crate) receive: Receive,
    /// Its name on the worker.
    pub(crate) request: QueuedRequest,
}

/// An operation on several places of a peer, whose parts are under way.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WholeOperation {
    /// The contents of its entry.
    pub(crate) receive: Receive,
    /// Parts that have not ended yet.
    pub(crate) left: usize,
    /// What the first part that failed tells.
    pub(crate) failure: Option<Failure>,
}

#[cfg(test)]
mod tests {
    use tagmatch_device::slab::Key;

    use super::*;

    #[test]
    fn a_word_stands_for_a_receive_that_has_nothing_else() {
        let buffer = Buffer::from(vec![0; 5]);
        let start = buffer.as_ptr() as usize;
        for kind in [sys::FI_TAGGED, sys::FI_MSG].map(|kind| sys::FI_RECV | kind) {
            for tells in [false, true] {
                for context in [0, 1, 0x7fff_ffff_ffff, (1 << 61) - 1] {
                    let receive = Receive { context, kind, start, room: 5, tells, multi: None };
                    let word = word_of(context, kind, tells).unwrap();
                    let back = Receive::of_word(word, &buffer).unwrap();
                    assert_eq!(format!("{back:?}"), format!("{receive:?}"));
                    assert_eq!(Receive::of_telling_word(word, &buffer).is_some(), tells);
                    assert!(is_receive_of(word, context) && !is_receive_of(word, context + 1));
                    for bit in [61, 62, 63] {
                        assert_eq!(word_of(context | 1 << bit, kind, tells), None);
                    }
                }
            }
        }
        let key = Key { index: OPERATIONS_MAX - 1, generation: 0 }.to_bits();
        assert!(Receive::of_word(key, &buffer).is_none() && !is_receive_of(key, 0));
        assert!(Receive::of_telling_word(key, &buffer).is_none());
    }
}
