//! Prints what this crate says of libfabric's headers, one fact a line, for `ci/probes/fabric.c` to
//! print the headers' own facts: those of version 1.17, or with the argument `later` those that
//! later versions have added.

use tagmatch_ofi_sys::{Structure, constants, later_constants, later_structures, structures};

/// Fields of our own, which the headers don't have.
const OWN: [&str; 2] = ["common", "room"];

fn main() {
    match std::env::args().nth(1).as_deref() {
        Some("later") => print_later(),
        _ => print_first(),
    }
}

/// `ROOM` is the size that we allocate for a structure, so that the fields of later versions fit in.
fn print_first() {
    for structure in structures() {
        println!("SIZE({}, {})", structure.name, structure.size);
        for (field, offset, size) in structure.fields {
            let field = field.trim_start_matches("r#");
            println!("FIELD({}, {field}, {offset}, {size})", structure.name);
        }
    }
    for structure in later_structures().filter(|s| s.fields.iter().any(|f| f.0 == "room")) {
        println!("ROOM({}, {})", in_c(structure), structure.size);
    }
    for (name, value) in constants() {
        println!("VALUE({name}, {value})");
    }
}

fn print_later() {
    for structure in later_structures() {
        let name = in_c(structure);
        for (field, offset, size) in structure.fields.iter().filter(|f| !OWN.contains(&f.0)) {
            println!("FIELD({name}, {field}, {offset}, {size})");
        }
    }
    for (name, value) in later_constants() {
        println!("VALUE({name}, {value})");
    }
}

/// The name that the headers have for a structure of a later version.
fn in_c(structure: &Structure) -> &str {
    structure.name.trim_end_matches("_2")
}
