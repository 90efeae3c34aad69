//! Prints what this crate says of `infiniband/verbs.h`, one fact a line, for a C compiler to check
//! against the installed header (`ci/probes/verbs.c`).

use tagmatch_rdma_core_sys::{EXTENDED, constants, structures};

/// Structures that C gives no tag of their own; the probe names them.
const UNTAGGED: [&str; 9] = [
    "ibv_gid",
    "ibv_gid_global",
    "ibv_async_event_element",
    "ibv_send_wr_wr",
    "ibv_send_wr_rdma",
    "ibv_send_wr_atomic",
    "ibv_send_wr_ud",
    "ibv_ops_wr_tm",
    "ibv_ops_wr_add",
];

fn main() {
    for structure in structures() {
        let tag = if UNTAGGED.contains(&structure.name) { "" } else { "struct " };
        println!("SIZE({tag}{}, {})", structure.name, structure.size);
        for (field, offset, size) in structure.fields {
            // What would be a keyword of Rust.
            let field = field.strip_suffix('_').unwrap_or(field);
            println!("FIELD({tag}{}, {field}, {offset}, {size})", structure.name);
        }
    }
    for (name, value) in constants() {
        println!("VALUE({name}, {value})");
    }
    for (field, distance) in EXTENDED {
        println!("EXTENDED({field}, {distance})");
    }
}
