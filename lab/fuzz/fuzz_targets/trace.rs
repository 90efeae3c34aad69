//! Parses any bytes as a trace, of text or of records, and as the records of a file whose header
//! and blocks are right. An error names a line or a record; a trace is replayed through two kinds
//! of lists, which must agree.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tagmatch_trace::fuzzing::records;
use tagmatch_trace::{Trace, check};

fuzz_target!(|data: &[u8]| {
    read(data);
    // A file of records takes a hundred times as long as a short text.
    if !data.starts_with(b"tagtrace") {
        read(&records(data));
    }
});

fn read(data: &[u8]) {
    match Trace::parse(data) {
        Ok(trace) => check(&trace),
        Err(error) => {
            let lines = data.iter().filter(|&&b| b == b'\n').count() as u64;
            assert!(error.line().is_none_or(|line| (1..=lines + 1).contains(&line)));
            assert!(!error.to_string().contains('\n'));
        }
    }
}
