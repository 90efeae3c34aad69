//! Programs that must not compile: an operation that would outlive its memory, and a worker for one
//! thread that two threads would use.
//!
//! `tests/ui/NAME.stderr` has the compiler's errors in its short form.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Compiles a program of `tests/ui` as far as errors are found, with this library.
fn compile(program: &Path, library: &Path) -> Output {
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    Command::new(rustc)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .args(["--edition=2024", "--crate-type=bin", "--emit=metadata", "--error-format=short"])
        .arg(format!("--out-dir={}", env!("CARGO_TARGET_TMPDIR")))
        .arg(format!("--extern=tagmatch={}", library.display()))
        .arg(format!("-Ldependency={}", library.parent().expect("a folder").display()))
        .arg(program)
        .output()
        .expect("rustc runs")
}

/// The newest library beside this program. cargo builds the library before the program; an older
/// library has other features, or other sources.
fn library() -> PathBuf {
    let program = std::env::current_exe().expect("this program");
    let folder = program.parent().expect("a folder");
    fs::read_dir(folder)
        .expect("the folder of this program")
        .map(|entry| entry.expect("an entry").path())
        .filter(|path| {
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            name.starts_with("libtagmatch-") && name.ends_with(".rlib")
        })
        .max_by_key(|path| fs::metadata(path).and_then(|data| data.modified()).expect("a time"))
        .unwrap_or_else(|| panic!("no library of tagmatch in {}", folder.display()))
}

#[test]
fn unsound_programs_do_not_compile() {
    let library = library();
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut count = 0;
    for entry in fs::read_dir(root.join("tests/ui")).expect("tests/ui") {
        let path = entry.expect("an entry").path();
        if path.extension().is_none_or(|extension| extension != "rs") {
            continue;
        }
        let program = path.strip_prefix(root).expect("in the tree");
        let output = compile(program, &library);
        let errors = String::from_utf8_lossy(&output.stderr);
        let expected = path.with_extension("stderr");
        assert_eq!(
            errors,
            fs::read_to_string(&expected).expect("a file .stderr"),
            "{}",
            program.display()
        );
        assert!(!output.status.success(), "{} compiles", program.display());
        count += 1;
    }
    assert_eq!(count, 6, "programs in tests/ui");
}

/// Without this, programs could fail because of how they are compiled here.
#[test]
fn a_sound_program_compiles() {
    let output = compile(Path::new("tests/ui/sound/scoped_request_ends.rs"), &library());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}
