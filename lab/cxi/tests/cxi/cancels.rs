//! Cancelled receives.

use tagmatch_ofi_sys as sys;

use crate::client::{Context, Hints, Memory, exactly};
use crate::messages::{pair, send};
use crate::process::alone;

#[test]
fn a_cancelled_receive_ends_some_rounds_later() {
    let test = "cancels::a_cancelled_receive_ends_some_rounds_later";
    alone(test, &[("TAGMATCH_CXI_CANCEL", "10")], |_| {
        let (_, _, receiver, from) = pair(&Hints::default());
        let context = Context::new();
        let other = Context::new();
        receiver.recv(Memory::new(1), exactly(from, 1), context).expect("posted");
        assert_eq!(receiver.cancel(other), Err(sys::FI_ENOENT));
        assert_eq!(receiver.cancel(context), Ok(0));
        assert_eq!(receiver.cancel(context), Err(sys::FI_ENOENT));
        receiver.expect_silence(9);
        receiver.expect(context, sys::FI_ECANCELED);
        assert_eq!(receiver.cancel(context), Err(sys::FI_ENOENT));
    });
}

#[test]
fn a_message_that_is_faster_than_the_cancellation_is_received() {
    let test = "cancels::a_message_that_is_faster_than_the_cancellation_is_received";
    alone(test, &[("TAGMATCH_CXI_CANCEL", "10")], |_| {
        let (sender, to, receiver, from) = pair(&Hints::default());
        let into = Memory::new(4);
        let context = Context::new();
        receiver.recv(into, exactly(from, 1), context).expect("posted");
        assert_eq!(receiver.cancel(context), Ok(0));
        send(&sender, to, 1, b"fast");
        receiver.expect(context, 0);
        assert_eq!(into.bytes(), b"fast");
        receiver.expect_silence(30);
    });
}
