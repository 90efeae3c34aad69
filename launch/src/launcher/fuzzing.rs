//! The parsers of the frames between the launcher and its helpers, and of the bundles of an
//! exchange, for fuzzing. Not a part of the public API.

use super::frame::{self, FromHelper, ToHelper};
use super::remote::greet;
use crate::exchange::bundle;
use crate::spawn::request::PmiRequest;

/// Reads the bytes as what an agent prints, then as frames one after the other, and as the contents
/// of a frame, and as a bundle.
///
/// # Panics
/// If something that was accepted isn't read again as it was written.
pub fn read(data: &[u8]) {
    let mut from = data;
    let mut before = Vec::new();
    if greet(&mut from, &mut before).is_ok_and(|is_greeted| is_greeted) {
        assert!(before.len() + from.len() < data.len(), "the greeting is a part");
    }
    decode(data);
    if let Some(entries) = bundle::decode(data, 9) {
        let again = bundle::encode(entries.iter().cloned());
        assert_eq!(bundle::decode(&again, 9), Some(entries));
    }
    let mut from = data;
    while let Ok(Some(frame)) = frame::read(&mut from) {
        decode(&frame);
    }
}

fn decode(frame: &[u8]) {
    if let Some(written) = ToHelper::decode(frame).map(|frame| frame.encode()) {
        let again = ToHelper::decode(contents(&written)).map(|frame| frame.encode());
        assert_eq!(again.as_ref(), Some(&written));
        assert!(FromHelper::decode(contents(&written)).is_none(), "an echo");
    }
    let Some(read) = FromHelper::decode(frame) else { return };
    let written = read.encode();
    let again = FromHelper::decode(contents(&written)).map(|frame| frame.encode());
    assert_eq!(again, Some(written));
    if let FromHelper::Request(_, text) = read {
        // Text that is no request is an error.
        let _ = PmiRequest::read(&mut &*text);
    }
}

/// The contents of a frame that was written.
fn contents(mut written: &[u8]) -> &[u8] {
    let whole = written;
    assert!(matches!(frame::read(&mut written), Ok(Some(_))) && written.is_empty());
    &whole[4..]
}
