//! tagperf
fn main() {}
