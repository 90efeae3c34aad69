//! What processes of different builds share has one layout. The compiler lays out a type as it
//! likes unless the type says how; its lint on the arguments of foreign functions looks at each
//! part of a type, down to the words, and refuses one that doesn't say it.

use super::doorbell::Page;
use super::ring::memory::Header;
use super::ring::slot::Slot;

const _: extern "C" fn(Header, Page, Slot) = {
    extern "C" fn shared(_: Header, _: Page, _: Slot) {}
    shared
};
