//! Bytes of a peer, as a message. What is understood is written back to the same bytes.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tagmatch_device::{Address, Bytes};
use tagmatch_fallback::wire::{Control, Fragment, Tmh, WireMessage};

fuzz_target!(|data: &[u8]| {
    let bytes = Bytes::from_slice(data);
    match WireMessage::parse(&bytes) {
        Ok(WireMessage::Eager(tmh)) => {
            let again = Tmh::parse(&tmh.emit());
            assert_eq!(again, Ok(tmh));
        }
        Ok(WireMessage::Rendezvous(request)) => {
            let again = WireMessage::parse(&Bytes::from_slice(&request.emit())).unwrap();
            assert_eq!(again, WireMessage::Rendezvous(request));
        }
        Ok(WireMessage::Control(control)) => {
            assert_eq!(Control::parse(&Bytes::from_slice(&control.emit())), Ok(control));
        }
        Ok(WireMessage::Fragment(fragment)) => {
            assert_eq!(Fragment::parse(&Bytes::from_slice(&fragment.emit())), Ok(fragment));
        }
        Ok(WireMessage::Rma(header)) => {
            assert_eq!(header.emit()[..header.byte_len()], data[..header.byte_len()]);
        }
        Ok(WireMessage::Fin(_)) | Err(_) => {}
    }
    if let Ok(text) = std::str::from_utf8(data) {
        if let Ok(address) = text.parse::<Address>() {
            assert_eq!(address.to_string(), text.trim_end().to_ascii_lowercase());
        }
    }
});
