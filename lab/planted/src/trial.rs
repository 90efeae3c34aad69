//! Tests run in the copy: without a slip they pass, with a slip its tests fail.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::thread;

use serde_json::Value;

use crate::slips::{NamedTest, Slip};
use crate::tree;

/// What `timeout` ends with when a command took too long.
const TOO_LONG: i32 = 124;
/// The variable that names the chosen slip.
const CHOICE: &str = "TAGMATCH_PLANTED";

/// A program of tests.
struct Program {
    package: String,
    /// A file in `tests/`, or `lib`.
    name: String,
    folder: PathBuf,
    file: PathBuf,
}

/// What one run needs.
struct TestRuns {
    programs: Vec<Program>,
    logs: PathBuf,
}

/// Builds the tests that slips name, and runs them: all slips, or those with these names. If the
/// tests `have_passed` in the copy, they run with a slip alone. Returns how many slips were
/// noticed, or everything that is wrong.
pub fn run(source: &Path, names: &[String], have_passed: bool) -> Result<usize, Vec<String>> {
    let (slips, tree) = tree::make(source).map_err(|error| vec![error])?;
    let is_named = |slip: &&Slip| names.is_empty() || names.contains(&slip.name);
    let chosen: Vec<&Slip> = slips.iter().filter(is_named).collect();
    let unknown = names.iter().filter(|name| !chosen.iter().any(|slip| slip.name == **name));
    let unknown: Vec<_> = unknown.map(|name| format!("no slip is called {name}")).collect();
    if !unknown.is_empty() {
        return Err(unknown);
    }
    let tests: BTreeSet<&NamedTest> = chosen.iter().flat_map(|slip| &slip.tests).collect();
    let work = source.join(tree::WORK);
    let programs = build(&tree, &work.join("target"), &tests).map_err(|error| vec![error])?;
    let logs = work.join("logs");
    // There are none before the first run.
    let _ = fs::remove_dir_all(&logs);
    fs::create_dir_all(&logs).map_err(|error| vec![format!("{}: {error}", logs.display())])?;
    let runs = TestRuns { programs, logs };
    each(tests.into_iter().collect(), |test| runs.without_slip(test, have_passed))?;
    let with = chosen.iter().flat_map(|&slip| slip.tests.iter().map(move |test| (slip, test)));
    each(with.collect(), |(slip, test)| runs.with_slip(slip, test))?;
    Ok(chosen.len())
}

/// Builds the programs of these tests in the copy.
fn build(tree: &Path, target: &Path, tests: &BTreeSet<&NamedTest>) -> Result<Vec<Program>, String> {
    let mut cargo = Command::new("cargo");
    cargo.args(["test", "--workspace", "--locked", "--no-run", "--message-format=json"]);
    let names: BTreeSet<&str> = tests.iter().map(|test| test.program.as_str()).collect();
    for name in names {
        if name == "lib" {
            cargo.arg("--lib");
        } else {
            cargo.args(["--test", name]);
        }
    }
    cargo.current_dir(tree).env("CARGO_TARGET_DIR", target).env("CARGO_INCREMENTAL", "0");
    cargo.env("CARGO_PROFILE_DEV_DEBUG", "0").stderr(Stdio::inherit());
    let output = cargo.output().map_err(|error| format!("cargo: {error}"))?;
    let lines = String::from_utf8_lossy(&output.stdout);
    let messages = lines.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    if !output.status.success() {
        let errors: Vec<String> = messages
            .filter(|message| message["message"]["level"] == "error")
            .filter_map(|message| message["message"]["rendered"].as_str().map(str::to_owned))
            .collect();
        return Err(format!("{}the tests can't be built", errors.concat()));
    }
    Ok(messages.filter_map(|message| program(&message)).collect())
}

/// The program of tests that a message of cargo is about.
fn program(message: &Value) -> Option<Program> {
    if message["profile"]["test"] != true {
        return None;
    }
    let folder = Path::new(message["manifest_path"].as_str()?).parent()?.to_owned();
    // `path+file:///FOLDER#NAME@VERSION`
    let package = message["package_id"].as_str()?.rsplit('#').next()?.split('@').next()?;
    let target = &message["target"];
    let is_lib = target["kind"][0] != "test";
    Some(Program {
        package: package.into(),
        name: if is_lib { "lib" } else { target["name"].as_str()? }.into(),
        folder,
        file: message["executable"].as_str()?.into(),
    })
}

/// Calls a function for each item, in many threads, and returns all errors. Most tests that take
/// long wait for something that a slip keeps from happening, so more run at a time than there are
/// processors.
fn each<T: Send>(
    items: Vec<T>,
    run: impl Fn(T) -> Result<(), String> + Sync,
) -> Result<(), Vec<String>> {
    let threads = 4 * thread::available_parallelism().map_or(1, usize::from);
    let items = Mutex::new(items.into_iter());
    let errors = Mutex::new(Vec::new());
    let next = || items.lock().expect("no thread panics with it").next();
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some(item) = next() {
                    if let Err(error) = run(item) {
                        errors.lock().expect("no thread panics with it").push(error);
                    }
                }
            });
        }
    });
    let errors = errors.into_inner().expect("no thread has panicked");
    if errors.is_empty() { Ok(()) } else { Err(errors) }
}

impl TestRuns {
    /// Runs a test that has to pass. If it has passed before, only whether its filter fits a test
    /// is seen, by a list.
    fn without_slip(&self, test: &NamedTest, has_passed: bool) -> Result<(), String> {
        // It has not passed with other settings.
        let is_list = has_passed && test.settings.is_empty();
        let log = self.log("-", test);
        let status = self.run("", test, is_list, &log)?;
        let output = fs::read_to_string(&log).unwrap_or_default();
        let NamedTest { package, program, filter, .. } = test;
        if status != 0 {
            let lines: Vec<&str> = output.lines().collect();
            let end = lines[lines.len().saturating_sub(20)..].join("\n");
            return Err(format!(
                "{end}\nwithout a slip {package} {program} {filter} fails ({status})"
            ));
        }
        if is_empty(&output) {
            return Err(format!("no test of {package} {program} is called {filter}"));
        }
        Ok(())
    }

    /// Runs a test that has to notice a slip.
    fn with_slip(&self, slip: &Slip, test: &NamedTest) -> Result<(), String> {
        let name = &slip.name;
        let status = self.run(name, test, false, &self.log(name, test))?;
        let NamedTest { package, program, filter, .. } = test;
        match status {
            0 => Err(format!("{name} is not noticed by {package} {program} {filter}")),
            TOO_LONG if !slip.hangs => {
                Err(format!("with {name} {package} {program} {filter} takes too long"))
            }
            _ => Ok(()),
        }
    }

    fn log(&self, slip: &str, test: &NamedTest) -> PathBuf {
        let is_plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
        let filter = test.filter.replace(|c| !is_plain(c), ".");
        self.logs.join(format!("{slip}.{}.{}.{filter}", test.package, test.program))
    }

    /// Runs a test for two minutes at most, and returns its exit status.
    fn run(&self, slip: &str, test: &NamedTest, is_list: bool, log: &Path) -> Result<i32, String> {
        let NamedTest { package, program, filter, settings } = test;
        let mut programs = self.programs.iter();
        let found = programs.find(|found| found.package == *package && found.name == *program);
        let found = found.ok_or(format!("no test program {program} of {package}"))?;
        let files = File::create(log).and_then(|file| Ok((file.try_clone()?, file)));
        let (out, error) = files.map_err(|error| format!("{}: {error}", log.display()))?;
        let mut command = Command::new("timeout");
        command.arg("120").arg(&found.file).arg(filter).current_dir(&found.folder);
        if is_list {
            command.arg("--list");
        }
        command.env(CHOICE, slip).env("RUST_TEST_THREADS", "1");
        // As cargo runs the tests: no safety timer rescues a wake-up that the slip has lost.
        command.env("TAGMATCH_TEST_SAFETY_TIMERS", "off");
        // A test program that leaves something open fails (`hw/os/src/exit_audit.rs`).
        command.env("CARGO_PKG_NAME", package).env("CARGO_MANIFEST_DIR", &found.folder);
        command.envs(settings.iter().map(|(name, value)| (name, value)));
        command.stdin(Stdio::null()).stdout(out).stderr(error);
        let status = command.status().map_err(|error| format!("timeout: {error}"))?;
        // A signal ends `timeout` itself only if somebody sends it one.
        Ok(status.code().unwrap_or(-1))
    }
}

/// Whether a program has run, or listed, no test.
fn is_empty(output: &str) -> bool {
    let mut lines = output.lines();
    lines.any(|line| line.starts_with("running 0 tests") || line.starts_with("0 tests, "))
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::{Program, TestRuns, each, program};
    use crate::slips::{NamedTest, Slip};

    #[test]
    fn all_errors_are_said() {
        let odd = |n: u8| if n.is_multiple_of(2) { Ok(()) } else { Err(n.to_string()) };
        assert_eq!(each((0..100).collect(), odd).map_err(|errors| errors.len()), Err(50));
        assert_eq!(each(vec![2, 4], odd), Ok(()));
    }

    #[test]
    fn programs_of_tests_are_found_in_what_cargo_prints() {
        let message = |kind: &str, test: bool| {
            serde_json::json!({
                "reason": "compiler-artifact", "package_id": "path+file:///x/cli#tagperf@0.1.0",
                "manifest_path": "/x/cli/Cargo.toml", "profile": {"test": test},
                "target": {"kind": [kind], "name": "tcp"}, "executable": "/x/target/tcp-1",
            })
        };
        let found = program(&message("test", true)).unwrap();
        assert_eq!((found.package.as_str(), found.name.as_str()), ("tagperf", "tcp"));
        assert_eq!(found.folder, PathBuf::from("/x/cli"));
        assert_eq!(program(&message("lib", true)).unwrap().name, "lib");
        assert!(program(&message("bin", false)).is_none());
    }

    /// A shell stands for the program of tests: the filter is its script.
    #[test]
    fn a_slip_that_is_not_noticed_and_a_filter_that_fits_no_test_are_errors() {
        let logs = std::env::temp_dir().join(format!("planted-logs-{}", std::process::id()));
        std::fs::create_dir_all(&logs).unwrap();
        let program = logs.join("program");
        std::fs::write(&program, "#!/bin/sh\neval \"$1\"\n").unwrap();
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(&program, mode).unwrap();
        let runs = TestRuns {
            programs: vec![Program {
                package: "p".into(),
                name: "lib".into(),
                folder: logs.clone(),
                file: program,
            }],
            logs: logs.clone(),
        };
        let test = |script: &str| NamedTest {
            package: "p".into(),
            program: "lib".into(),
            filter: script.into(),
            settings: vec![("VALUE".into(), "3".into())],
        };
        let slip = |hangs| Slip { name: "A".into(), tests: vec![], hangs, edits: vec![] };
        let with = |script: &str, hangs| runs.with_slip(&slip(hangs), &test(script));
        let without = |script: &str| runs.without_slip(&test(script), false);
        assert_eq!(with("[ $TAGMATCH_PLANTED$VALUE != A3 ]", false), Ok(()));
        assert!(with("true", false).unwrap_err().contains("is not noticed"));
        assert!(with("exit 124", false).unwrap_err().contains("too long"));
        assert_eq!(with("exit 124", true), Ok(()));
        assert_eq!(without("echo running 1 test; [ -z \"$TAGMATCH_PLANTED\" ]"), Ok(()));
        assert!(without("echo why; exit 3").unwrap_err().contains("why\nwithout a slip p lib"));
        assert!(
            without("echo running 0 tests").unwrap_err().contains("no test of p lib is called")
        );
        let stranger = NamedTest { package: "q".into(), ..test("true") };
        assert!(runs.without_slip(&stranger, false).unwrap_err().contains("no test program"));
        std::fs::remove_dir_all(logs).unwrap();
    }
}
