//! Files of a command line: no file is written twice, and no input is overwritten.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use tagmatch_results::show::one_line;

use crate::failure::Failure;
use crate::output::is_dash;

/// As many symbolic links as the kernel follows.
const LINKS_MAX: usize = 40;

/// The file behind a path, however the path is spelt.
#[derive(PartialEq)]
enum FileIdentity {
    Stdout,
    /// An existing file: its device and inode.
    File(u64, u64),
    /// A file that does not exist yet: its canonical path.
    New(PathBuf),
}

/// Checks that no two outputs are one file, and that no output is an input. Each is named by its
/// option or argument. `-` is standard output; standard input can't be overwritten.
///
/// # Errors
///
/// [`Failure::Usage`] with both names.
pub(crate) fn check_distinct(
    inputs: &[(&str, &Path)],
    outputs: &[(&str, Option<&PathBuf>)],
) -> Result<(), Failure> {
    let inputs = inputs.iter().filter(|(_, path)| !is_dash(path));
    let read: Vec<_> = inputs.filter_map(|(name, path)| Some((*name, place(path)?))).collect();
    let mut written: Vec<(&str, FileIdentity)> = Vec::new();
    for (option, path) in outputs {
        let Some((path, place)) = path.and_then(|path| Some((path, place(path)?))) else {
            continue;
        };
        let same = |(_, other): &&(&str, FileIdentity)| *other == place;
        let shown = one_line(path.display());
        if let Some((input, _)) = read.iter().find(same) {
            let wrong = format!("{option}: {shown} is {input} itself");
            return Err(Failure::usage(wrong, "another file"));
        }
        if let Some((other, _)) = written.iter().find(same) {
            let wrong = format!("both {other} and {option} go to {shown}");
            return Err(Failure::usage(wrong, "another file for one of them"));
        }
        written.push((option, place));
    }
    Ok(())
}

/// The file behind a path. `None` for devices and pipes, which may be written to twice, and for
/// paths that can't be created.
fn place(path: &Path) -> Option<FileIdentity> {
    if is_dash(path) {
        return Some(FileIdentity::Stdout);
    }
    match path.metadata() {
        Ok(file) => file.is_file().then(|| FileIdentity::File(file.dev(), file.ino())),
        Err(_) => target(path).map(FileIdentity::New),
    }
}

/// The path of a new file; `path` may be a symbolic link to a file that does not exist.
fn target(path: &Path) -> Option<PathBuf> {
    let mut path = std::path::absolute(path).ok()?;
    for _ in 0..LINKS_MAX {
        let directory = fs::canonicalize(path.parent()?).ok()?;
        path = directory.join(path.file_name()?);
        match fs::read_link(&path) {
            Ok(to) => path = directory.join(to),
            Err(_) => return Some(path),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use tagmatch_testkit::scratch::Scratch;

    use super::*;

    #[test]
    fn one_file_has_many_names() {
        let scratch = Scratch::new("files");
        let at = |name: &str| scratch.join(name);
        fs::create_dir(at("deep")).unwrap();
        fs::write(at("there"), "").unwrap();
        fs::hard_link(at("there"), at("hard")).unwrap();
        for (to, from) in [("there", "soft"), ("new", "dangling"), ("dangling", "twice")] {
            std::os::unix::fs::symlink(to, at(from)).unwrap();
        }
        std::os::unix::fs::symlink("loop", at("loop")).unwrap();
        let refusal = |a: &Path, b: &Path| {
            let a = a.to_owned();
            let b = b.to_owned();
            let wrong =
                check_distinct(&[], &[("--a", Some(&a)), ("--none", None), ("--b", Some(&b))]);
            wrong.err().map(|failure| failure.to_string())
        };
        for (a, b) in [
            ("there", "there"),
            ("there", "deep/../there"),
            ("there", "./soft"),
            ("hard", "soft"),
            ("new", "new"),
            ("new", "deep/../new"),
            ("new", "dangling"),
            ("twice", "./new"),
        ] {
            let message = refusal(&at(a), &at(b)).unwrap_or_else(|| panic!("{a} {b}"));
            assert!(message.contains("both --a and --b go to"), "{message}");
            let a = at(a);
            let b = at(b);
            let message =
                check_distinct(&[("OLD", &a)], &[("--b", Some(&b))]).unwrap_err().to_string();
            assert!(message.contains(" is OLD itself"), "{message}");
        }
        for (a, b) in
            [("there", "new"), ("new", "newer"), ("there", "deep/there"), ("loop", "loop")]
        {
            assert_eq!(refusal(&at(a), &at(b)), None, "{a} {b}");
        }
        let dash = Path::new("-");
        let null = Path::new("/dev/null");
        assert!(
            refusal(dash, dash).unwrap().contains("both --a and --b go to -; use another file")
        );
        assert_eq!((refusal(null, null), refusal(dash, null)), (None, None));
        assert!(check_distinct(&[("OLD", dash)], &[("--b", Some(&dash.to_owned()))]).is_ok());
    }
}
