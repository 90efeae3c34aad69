//! Prints what this crate says of libfabric's headers, one fact a line, for `ci/probes/fabric.c` to
//! print the headers' own facts: those of version 1.17, or with the argument `later` those that
//! later versions have added.

use tagmatch_ofi_sys::{
    OPAQUE, Structure, constants, later_constants, later_structures, structures,
};

fn main() {
    match std::env::args().nth(1).as_deref() {
        Some("later") => print_later(),
        _ => print_first(),
    }
}

fn print_first() {
    for structure in structures() {
        println!("SIZE({}, {})", structure.name, structure.size);
        print_fields(structure);
    }
    for structure in later_structures().filter(|s| s.fields.iter().any(|f| f.0 == "room")) {
        // The size that we allocate, so that the fields of later versions fit in.
        println!("ROOM({}, {})", name(structure), structure.size);
    }
    for (name, value) in constants() {
        println!("VALUE({name}, {value})");
    }
}

fn print_later() {
    later_structures().for_each(print_fields);
    for (name, value) in later_constants() {
        println!("VALUE({name}, {value})");
    }
}

fn print_fields(structure: &Structure) {
    let name = name(structure);
    for ((field, offset, size), declared) in structure.fields.iter().zip(structure.types) {
        let c_type = match (name, *field) {
            // Fields of our own, which the headers don't have.
            (_, "common" | "room") => continue,
            // A union, whose offset and size are all that we know.
            ("fi_mr_attr", "device") => "typeof(((struct fi_mr_attr *)0)->device)".into(),
            // The compiler has broken long types into lines.
            _ => in_c(&declared.split_whitespace().collect::<Vec<_>>().join(" ")),
        };
        let field = field.trim_start_matches("r#");
        println!("FIELD({name}, {field}, {offset}, {size}, {c_type})");
    }
}

/// The name that the headers have for a structure.
fn name(structure: &Structure) -> &'static str {
    structure.name.trim_end_matches("_2")
}

/// A type of a field in C. Functions have no arguments that are functions.
fn in_c(declared: &str) -> String {
    let function = |abi| declared.strip_prefix(&format!("Option<unsafe extern {abi} fn("));
    if let Some(call) = function("\"C\"").or_else(|| function("\"C-unwind\"")) {
        let (arguments, result) = call.trim_end_matches('>').rsplit_once(')').unwrap();
        let arguments: Vec<String> = arguments.split(", ").map(in_c).collect();
        let result = result.strip_prefix(" -> ").map_or("void".into(), in_c);
        return format!("{result} (*)({})", arguments.join(", "));
    }
    if let Some((element, count)) = declared.strip_prefix('[').and_then(|a| a.split_once("; ")) {
        return format!("{} [{count}", in_c(element));
    }
    if let Some(target) = declared.strip_prefix("*mut ") {
        return format!("{} *", in_c(target));
    }
    if let Some(target) = declared.strip_prefix("*const ") {
        return format!("{} const *", in_c(target));
    }
    let is_structure =
        |name: &str| OPAQUE.contains(&name) || structures().any(|structure| structure.name == name);
    match declared {
        "" | "c_void" => "void".into(),
        "c_int" => "int".into(),
        "c_char" => "char".into(),
        "u8" => "uint8_t".into(),
        "u32" => "uint32_t".into(),
        "u64" => "uint64_t".into(),
        "usize" => "size_t".into(),
        "isize" => "ssize_t".into(),
        "libc::iovec" => "struct iovec".into(),
        "fi_addr_t" | "fid_t" => declared.into(),
        name if is_structure(name) => format!("struct {name}"),
        name => format!("enum {name}"),
    }
}
