//! The processes of a test. Each runs this program again, with knobs in its environment.

use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use tagmatch_testkit::scratch::Scratch;

use crate::client::{installed, within_limit};

const ROLE: &str = "CXI_TEST_ROLE";
const FOLDER: &str = "CXI_TEST_FOLDER";

/// The knobs of a test.
pub(crate) type Knobs<'a> = &'a [(&'a str, &'a str)];

fn command(test: &str, role: &str, folder: &str, knobs: Knobs<'_>) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("a path"));
    command.args(["--exact", test, "--nocapture", "--test-threads=1"]);
    command.env("FI_PROVIDER_PATH", folder).env("TAGMATCH_CXI_NIC", "cxi0");
    command.env(ROLE, role).env(FOLDER, folder).envs(knobs.iter().copied());
    command
}

/// Runs the body of a test, which has this name, in a process of its own with these knobs. The
/// body is given its role: "", or that of [`start`].
pub(crate) fn alone(test: &str, knobs: Knobs<'_>, body: impl FnOnce(&str)) {
    if let Some((is_well, words)) = outcome(test, knobs, body) {
        assert!(is_well, "{words}");
    }
}

/// As [`alone`], for a process that may end badly. Gives whether it ended well, and its words; in
/// that process, and without libfabric, nothing.
pub(crate) fn outcome(
    test: &str,
    knobs: Knobs<'_>,
    body: impl FnOnce(&str),
) -> Option<(bool, String)> {
    if let Ok(role) = std::env::var(ROLE) {
        body(&role);
        return None;
    }
    installed()?;
    let folder = Scratch::new(&test.replace("::", "-"));
    tagmatch_cxi_fi::install(folder.path("").as_ref()).expect("the provider is built");
    let output = command(test, "", &folder.path(""), knobs).output().expect("the program starts");
    let [text, words] =
        [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes).into_owned());
    assert!(text.contains("running 1 test"), "there is no test {test}: {text}");
    Some((output.status.success(), format!("{}\n{text}\n{words}", output.status)))
}

/// Starts another process of the test, in a role.
pub(crate) fn start(test: &str, role: &str) -> Child {
    let folder = std::env::var(FOLDER).expect("this is a process of a test");
    let mut command = command(test, role, &folder, &[]);
    command.stdout(Stdio::null()).spawn().expect("the program starts")
}

fn path(name: &str) -> PathBuf {
    PathBuf::from(std::env::var_os(FOLDER).expect("this is a process of a test")).join(name)
}

/// Tells the other processes of the test.
pub(crate) fn publish(name: &str, bytes: &[u8]) {
    let new = path(&format!("{name}.new"));
    fs::write(&new, bytes).expect("a file");
    fs::rename(new, path(name)).expect("a file");
}

/// What another process has told, if it has.
pub(crate) fn published(name: &str) -> Option<Vec<u8>> {
    fs::read(path(name)).ok()
}

/// Waits for what another process tells.
pub(crate) fn wait_for(name: &str) -> Vec<u8> {
    within_limit(name, || published(name))
}
