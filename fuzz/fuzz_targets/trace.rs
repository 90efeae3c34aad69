//! A trace file with anything in it: parsed or refused with the line to blame, and what is parsed is
//! replayed.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tagperf::trace::Trace;

fuzz_target!(|data: &[u8]| {
    match Trace::parse(data) {
        Ok(trace) => tagperf::replay::check(&trace),
        Err(error) => {
            let lines = data.iter().filter(|&&b| b == b'\n').count() as u64;
            assert!((1..=lines + 1).contains(&error.line()));
            assert!(!error.to_string().contains('\n'));
        }
    }
});
