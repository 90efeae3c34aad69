//! Prints the sizes, offsets and constants of `pmix_common.h` that this crate declares, one per
//! line. A C compiler compares them with the installed header (`ci/probes/pmix.c`).

fn main() {
    print!("{}", tagmatch_launch::pmix::facts());
}
