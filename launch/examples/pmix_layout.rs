//! Prints the sizes, offsets and constants of `pmix_common.h` that this crate declares, one per
//! line. A C compiler compares them with the installed header (`ci/probes/pmix.c`).

fn main() {
    let (structures, constants, texts) = tagmatch_launch::pmix::facts();
    for structure in structures {
        println!("SIZE({}, {})", structure.name, structure.size);
        for (field, offset, size) in structure.fields {
            // `type` is a keyword of Rust.
            let field = field.trim_end_matches('_');
            println!("FIELD({}, {field}, {offset}, {size})", structure.name);
        }
    }
    for (name, value) in constants {
        println!("VALUE({name}, {value})");
    }
    for (name, text) in texts {
        println!("TEXT({name}, \"{text}\")");
    }
}
