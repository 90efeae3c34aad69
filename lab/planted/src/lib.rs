//! Planted slips: mistakes that somebody could make, in a copy of the source, and the tests that
//! must notice them. `README.md` says what a slip looks like.
//!
//! A slip names a place: an item of a file ([`places`]), and text in it ([`planting`]). So it stays
//! right while the code around it changes. If the place or the text is gone, the test
//! `each_slip_has_its_place` of this crate says so.

#![forbid(unsafe_code)]

pub mod places;
pub mod planting;
pub mod slips;
pub mod starts;
pub mod tokens;
pub mod tree;
pub mod trial;
