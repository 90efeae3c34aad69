//! A copy of the tracked files into which all slips and all starts are planted.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::planting::plant;
use crate::slips::{self, Edit, Slip};
use crate::starts::Starts;

/// The folder of all that is made, in the folder of the source.
pub const WORK: &str = "target/planted";
/// The slips.
const SLIPS: &str = "lab/planted/slips";
/// The crate that says which slip is chosen, and where counters start.
const SWITCH: &str = "lab/planted/switch";

/// The folder of the source. `ci/test --all` runs the tests of this crate in a copy, and names the
/// source.
#[must_use]
pub fn source() -> PathBuf {
    let own = || Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).map(Path::to_owned);
    let named = std::env::var_os("TAGMATCH_TREE").map(PathBuf::from);
    named.or_else(own).unwrap_or_default()
}

/// The slips, and the files that they and the starts change, with all of them planted. Fails with
/// everything that is wrong with them. Changes nothing.
pub fn check(source: &Path) -> Result<(Vec<Slip>, BTreeMap<String, String>), String> {
    let read = |path: &str| fs::read_to_string(source.join(path)).ok();
    let checked = || {
        let slips = slips::read(&source.join(SLIPS))?;
        let starts = Starts::read(source)?.starts;
        let of_slips = slips.iter().flat_map(|slip| named(&slip.name, &slip.edits));
        let of_starts = starts.iter().flat_map(|start| named(&start.name, &start.edits));
        let files = plant(of_slips.chain(of_starts), read)?;
        Ok((slips, files))
    };
    checked().map_err(|errors: Vec<String>| errors.join("\n"))
}

/// Edits behind the name of their slip or start.
fn named<'a>(name: &'a str, edits: &'a [Edit]) -> impl Iterator<Item = (&'a str, &'a Edit)> {
    edits.iter().map(move |edit| (name, edit))
}

/// Makes the copy, or brings it up to date, and returns the slips and the copy's folder. No slip
/// acts there unless `TAGMATCH_PLANTED` names it, and counters start as usual unless
/// `TAGMATCH_STARTS` is `late`. Only files that differ are written, so that the
/// next build builds little.
pub fn make(source: &Path) -> Result<(Vec<Slip>, PathBuf), String> {
    let (slips, mut planted) = check(source)?;
    let crates: BTreeSet<PathBuf> =
        planted.keys().filter_map(|path| crate_of(source, path)).collect();
    for folder in crates {
        let path = folder.join("Cargo.toml").to_string_lossy().into_owned();
        let read = fs::read_to_string(source.join(&path));
        let manifest = read.map_err(|error| format!("{path}: {error}"))?;
        planted.insert(path, with_switch(&manifest, &folder));
    }
    let tree = source.join(WORK).join("tree");
    let copied = listed(source).and_then(|paths| copy(source, &tree, &paths, &planted));
    copied.map_err(|error| format!("{}: {error}", tree.display()))?;
    lock(&tree)?;
    Ok((slips, tree))
}

/// The folder of the crate that a file belongs to.
#[must_use]
pub fn crate_of(source: &Path, path: &str) -> Option<PathBuf> {
    let mut folders = Path::new(path).ancestors().skip(1);
    folders.find(|folder| source.join(folder).join("Cargo.toml").exists()).map(Path::to_owned)
}

/// The manifest of the crate in this folder, with a dependency on the switch.
#[must_use]
pub fn with_switch(manifest: &str, folder: &Path) -> String {
    const LIST: &str = "\n[dependencies]\n";
    let up = "../".repeat(folder.components().count());
    let switch = format!("{LIST}planted = {{ path = \"{up}{SWITCH}\" }}\n");
    if manifest.contains(LIST) {
        manifest.replacen(LIST, &switch, 1)
    } else {
        format!("{manifest}{switch}")
    }
}

/// The paths of all files that are tracked, or may be. Fails if git does.
pub fn listed(source: &Path) -> io::Result<Vec<String>> {
    let listed = Command::new("git")
        .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
        .current_dir(source)
        .stderr(Stdio::inherit())
        .output()?;
    let paths = String::from_utf8_lossy(&listed.stdout);
    let paths: Vec<String> = paths.split_terminator('\0').map(str::to_owned).collect();
    if paths.is_empty() {
        return Err(io::Error::other("git lists no files of the source"));
    }
    Ok(paths)
}

/// Makes the files of the copy what these files of the source are, but for the changed texts.
pub fn copy(
    source: &Path,
    tree: &Path,
    paths: &[String],
    changed: &BTreeMap<String, String>,
) -> io::Result<()> {
    let mut copied = BTreeSet::new();
    for path in paths {
        let from = source.join(path);
        let to = tree.join(path);
        // A file that is tracked may have been removed.
        let Ok(kind) = fs::symlink_metadata(&from) else { continue };
        copied.insert(to.clone());
        fs::create_dir_all(to.parent().unwrap_or(tree))?;
        if kind.is_symlink() {
            let target = fs::read_link(&from)?;
            if !fs::read_link(&to).is_ok_and(|link| link == target) {
                remove(&to)?;
                symlink(target, &to)?;
            }
            continue;
        }
        let bytes = match changed.get(path) {
            Some(text) => text.clone().into_bytes(),
            None => fs::read(&from)?,
        };
        if to.is_symlink() || !fs::read(&to).is_ok_and(|there| there == bytes) {
            remove(&to)?;
            fs::write(&to, bytes)?;
        }
        fs::set_permissions(&to, kind.permissions())?;
    }
    remove_others(tree, &copied)
}

fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Removes all files below a folder but these.
fn remove_others(folder: &Path, paths: &BTreeSet<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() && !path.is_symlink() {
            remove_others(&path, paths)?;
        } else if !paths.contains(&path) {
            remove(&path)?;
        }
    }
    Ok(())
}

/// Writes the dependencies on the switch into the copy's lock file, so that builds may be
/// `--locked`.
pub fn lock(tree: &Path) -> Result<(), String> {
    let run = |options: &[&str]| {
        let mut cargo = Command::new("cargo");
        cargo.args(["metadata", "--format-version", "1"]).args(options).current_dir(tree);
        cargo.stdout(Stdio::null()).output()
    };
    let is_done = run(&["--offline"]).is_ok_and(|output| output.status.success());
    if is_done {
        return Ok(());
    }
    match run(&[]) {
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
        Err(error) => Err(format!("cargo: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::{check, copy, source, with_switch};

    #[test]
    fn each_slip_has_its_place() {
        match check(&source()) {
            Ok((slips, _)) => assert!(!slips.is_empty()),
            Err(errors) => panic!("\n{errors}"),
        }
    }

    #[test]
    fn a_manifest_depends_on_the_switch() {
        let line = "planted = { path = \"../../lab/planted/switch\" }";
        let manifest = with_switch("a\n[dependencies]\nlibc = \"1\"\n", Path::new("hw/shm"));
        assert_eq!(manifest, format!("a\n[dependencies]\n{line}\nlibc = \"1\"\n"));
        assert!(with_switch("a\n", Path::new("hw/shm")).ends_with(&format!("{line}\n")));
    }

    #[test]
    fn only_files_that_differ_are_written_and_others_go() {
        let folder = std::env::temp_dir().join(format!("planted-{}", std::process::id()));
        let source = folder.join("source");
        let tree = folder.join("tree");
        fs::create_dir_all(source.join("a")).unwrap();
        let paths = ["a/same", "a/planted", "gone", "a/link"].map(str::to_owned);
        for name in ["a/same", "a/planted", "gone"] {
            fs::write(source.join(name), name).unwrap();
        }
        let changed = [("a/planted".to_owned(), "with a slip".to_owned())].into();
        copy(&source, &tree, &paths, &changed).unwrap();
        let written = |name: &str| fs::metadata(tree.join(name)).unwrap().modified().unwrap();
        let before = ["a/same", "a/planted"].map(written);
        fs::remove_file(source.join("gone")).unwrap();
        std::os::unix::fs::symlink("same", source.join("a/link")).unwrap();
        copy(&source, &tree, &paths, &changed).unwrap();
        assert_eq!(["a/same", "a/planted"].map(written), before);
        assert!(!tree.join("gone").exists());
        assert_eq!(fs::read_to_string(tree.join("a/link")).unwrap(), "a/same");
        assert_eq!(fs::read_to_string(tree.join("a/planted")).unwrap(), "with a slip");
        fs::remove_dir_all(folder).unwrap();
    }
}
