//! Prints what this crate says of `pmix_common.h`, one fact a line, for a C compiler to check against the installed
//! header (`ci/probes/pmix.c`).

fn main() {
    print!("{}", tagmatch_launch::pmix::facts());
}
