//! Other processes of a test. Each runs this program again.

use std::ffi::OsStr;
use std::process::Command;

const ALONE: &str = "TAGMATCH_TEST_ALONE";

/// Runs the body of a test, which has this name, in a process of its own.
pub(crate) fn alone(test: &str, body: impl FnOnce()) {
    alone_with(test, &[], body);
}

/// Runs the body of a test, which has this name, in a process whose endpoints may have one-sided
/// operations.
pub(crate) fn alone_one_sided(test: &str, body: impl FnOnce()) {
    alone_with(test, &[("TAGMATCH_FI_ONE_SIDED", OsStr::new("on"))], body);
}

/// Runs the body of a test, which has this name, in a process of its own with these variables in
/// its environment. Gives what that process has said on standard error; in it, nothing.
pub(crate) fn alone_with(
    test: &str,
    variables: &[(&str, &OsStr)],
    body: impl FnOnce(),
) -> Option<String> {
    if std::env::var_os(ALONE).is_some() {
        body();
        return None;
    }
    let program = std::env::current_exe().expect("a path");
    let mut command = Command::new(program);
    command.args(["--exact", test, "--nocapture", "--test-threads=1"]).env(ALONE, "1");
    command.envs(variables.iter().copied());
    let output = command.output().expect("the program starts");
    let text = String::from_utf8_lossy(&output.stdout);
    let words = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}\n{text}\n{words}", output.status);
    assert!(text.contains("1 passed"), "there is no test {test}: {text}");
    Some(words.into_owned())
}
