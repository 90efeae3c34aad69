//! What other processes send to communicators: control messages, descriptions of groups, beats.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tagmatch_comm::fuzzing::{hear_beats, read_control, read_description};

/// The codes of control messages, some of them with names of members.
const CODES: [u8; 27] = [
    0, 1, 2, 3, 4, 5, 6, 7, 9, 10, 11, 13, 16, 17, 18, 19, 21, 25, 26, 27, 29, 32, 33, 34, 35, 36,
    37,
];

fuzz_target!(|data: &[u8]| {
    read_control(data);
    read_description(data);
    let Some((first, rest)) = data.split_first() else { return };
    // A control message with a code, and small numbers, which random bytes seldom are.
    let mut control = vec![CODES[usize::from(*first) % CODES.len()], 0, 0, 0];
    control.extend(rest);
    read_control(&control);
    let words =
        |bytes: &[u8]| bytes.iter().flat_map(|byte| [byte % 16, 0, 0, 0]).collect::<Vec<_>>();
    control.truncate(4);
    control.extend(words(rest));
    read_control(&control);
    // The head of a description, whose last word is the length of the names.
    let names: Vec<u8> = rest.chunks(2).flat_map(|of| name(of[0])).collect();
    let mut description = words(&[*first % 2, 31 + first % 4, 7, 9, 0, first / 128]);
    description.extend(u32::try_from(names.len()).unwrap_or(0).to_le_bytes());
    description.extend(&names);
    read_description(&description);
    let size = 1 + u32::from(*first) % 40;
    let beats: Vec<&[u8]> = rest.chunks(1 + size.div_ceil(8) as usize).collect();
    hear_beats(size, &beats);
});

/// The name of a process of one of two jobs: a length, the job, and the rank.
fn name(of: u8) -> [u8; 9] {
    [8, of % 2, 0, 0, 0, of / 2 % 8, 0, 0, 0]
}
