//! Words on standard error. A device goes on if nobody can read them.

use std::io::{self, Write};

/// Writes a line, if it can be written.
pub(crate) fn tell(line: &str) {
    let _ = writeln!(io::stderr(), "{line}");
}
