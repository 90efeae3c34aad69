//! The secret that the environment gives. Each case runs in a process of its own.

use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::PathBuf;
use std::process::Command;
use std::{env, fs, process};

use tagmatch_secret::{SECRET, SECRET_FILE, Secret};

const OF_FILE: &str = "the secret of the file";
const OF_VARIABLE: &str = "the secret of the variable";
const ASKED: &str = "TAGMATCH_TEST_ASKED";

/// A private file with [`OF_FILE`].
fn file(test: &str) -> PathBuf {
    let path = env::temp_dir().join(format!("tagmatch-secret-{test}-{}", process::id()));
    fs::write(&path, OF_FILE).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    path
}

/// Whether a process with these variables finds the secret; `None`: it finds that there is none.
fn finds(variables: &[(&str, &str)], secret: Option<&str>) -> bool {
    let test = "the_file_counts_before_the_variable_and_what_is_configured_before_both";
    let mut command = Command::new(env::current_exe().unwrap());
    command.args([test, "--exact"]).env_remove(SECRET).env_remove(SECRET_FILE);
    command.env(ASKED, secret.unwrap_or_default()).envs(variables.iter().copied());
    command.output().unwrap().status.success()
}

#[test]
fn the_file_counts_before_the_variable_and_what_is_configured_before_both() {
    if let Ok(asked) = env::var(ASKED) {
        let bytes = |found: Option<Secret>| found.map_or(Vec::new(), |found| found.expose().into());
        assert_eq!(bytes(Secret::from_environment().unwrap()), asked.as_bytes());
        assert_eq!(bytes(Secret::or_from_environment(None).unwrap()), asked.as_bytes());
        let own = Secret::from_bytes(b"a secret that was configured").unwrap();
        assert_eq!(bytes(Secret::or_from_environment(Some(&own)).unwrap()), own.expose());
        return;
    }
    let path = file("order");
    let name = path.to_str().unwrap();
    assert!(finds(&[], None));
    assert!(finds(&[(SECRET, OF_VARIABLE)], Some(OF_VARIABLE)));
    assert!(finds(&[(SECRET_FILE, name)], Some(OF_FILE)));
    assert!(finds(&[(SECRET, OF_VARIABLE), (SECRET_FILE, name)], Some(OF_FILE)));
    assert!(!finds(&[(SECRET, OF_VARIABLE)], Some(OF_FILE)), "the comparison compares");
    // A file that can't be used is an error, and no reason to take the variable.
    fs::remove_file(&path).unwrap();
    assert!(!finds(&[(SECRET, OF_VARIABLE), (SECRET_FILE, name)], Some(OF_VARIABLE)));
}

/// Only root can give a file away.
#[test]
fn a_file_of_another_user_is_refused() {
    let path = file("owner");
    assert!(Secret::from_file(&path).is_ok());
    let another = fs::metadata(&path).unwrap().uid() ^ 1;
    if chown(&path, Some(another), None).is_ok() {
        let error = Secret::from_file(&path).unwrap_err().to_string();
        assert!(error.contains("belongs to another user"), "{error}");
    }
    fs::remove_file(&path).unwrap();
}
