//! Prints what this crate says of `ucp/api/ucp.h`, one fact a line, for a C compiler to check
//! against the installed header (`ci/probes/ucp.c`).

use tagmatch_ucx_sys::{constants, structures};

fn main() {
    for structure in structures() {
        println!("SIZE({}, {})", structure.name, structure.size);
        for (field, offset, size) in structure.fields {
            println!("FIELD({}, {field}, {offset}, {size})", structure.name);
        }
    }
    for (name, value) in constants() {
        println!("VALUE({name}, {value})");
    }
}
