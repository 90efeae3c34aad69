//! Tests of several files together.

mod long_lists;
