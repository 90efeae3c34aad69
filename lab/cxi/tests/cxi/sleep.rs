//! Sleeping on the descriptor of a completion queue.

use tagmatch_ofi_sys as sys;

use crate::client::{Context, Hints, Memory, Message, exactly};
use crate::messages::{pair, send};
use crate::process::alone;

/// The hints of a program that sleeps on the descriptor.
pub(crate) fn sleeping() -> Hints {
    Hints { wait: sys::FI_WAIT_FD, ..Hints::default() }
}

#[test]
fn a_packet_wakes_and_nobody_may_sleep_on_work() {
    alone("sleep::a_packet_wakes_and_nobody_may_sleep_on_work", &[], |_| {
        let (sender, to, receiver, from) = pair(&sleeping());
        assert!(receiver.may_sleep() && !receiver.is_woken(0));
        send(&sender, to, 1, b"x");
        assert!(receiver.is_woken(10_000));
        receiver.expect_silence(2);
        assert!(receiver.may_sleep() && !receiver.is_woken(0));
        // An answer of the NIC, a cancellation and an entry that wait.
        let context = Context::new();
        receiver.recvmsg(Message::new(&[], from, 1, context), sys::FI_PEEK).expect("accepted");
        assert!(!receiver.may_sleep());
        receiver.expect(context, 0);
        assert!(receiver.may_sleep());
        receiver.recv(Memory::new(1), exactly(from, 2), context).expect("posted");
        assert!(receiver.may_sleep());
        receiver.cancel(context).expect("it is posted");
        assert!(!receiver.may_sleep());
        receiver.expect(context, sys::FI_ECANCELED);
        receiver.recv(Memory::new(1), exactly(from, 1), context).expect("it is received at once");
        assert!(!receiver.may_sleep());
        receiver.expect(context, 0);
        assert!(receiver.may_sleep());
    });
}

#[test]
fn a_descriptor_can_be_deaf() {
    alone("sleep::a_descriptor_can_be_deaf", &[("TAGMATCH_CXI_WAKE", "off")], |_| {
        let (sender, to, receiver, _) = pair(&sleeping());
        send(&sender, to, 1, b"x");
        assert!(receiver.may_sleep() && !receiver.is_woken(0));
    });
}
