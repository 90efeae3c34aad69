//! What a device does to its process, and what is said where there is none. Each in a process of
//! its own, which loads libfabric anew.

use std::process::Command;

use tagmatch_device::DeviceError;
use tagmatch_ofi::{Ofi, OfiConfig};
use tagmatch_ofi_sys::signals::Signals;
use tagmatch_testkit::device::{again, role};
use tagmatch_testkit::matching::{Fixture, up};
use tagmatch_testkit::scratch::Scratch;

use crate::{Providers, config};

fn child(test: &str, variables: &[(&str, &str)]) -> String {
    again(&format!("ofi_parts::process::{test}"), variables)
}

#[test]
#[ignore = "needs libfabric1: ci/test ofi"]
fn signals_stay_as_they_are() {
    if role().is_some() {
        let before = Signals::now();
        for provider in Providers::ways_across() {
            drop(up::<Providers>(&provider));
            assert!(before.are_unchanged(), "{provider} has changed a signal's handler");
        }
        return;
    }
    child("signals_stay_as_they_are", &[]);
}

/// The error of a device without a libfabric, without a provider, or with one that is none.
#[test]
fn what_is_missing_is_one_line_with_what_to_type() {
    if role().is_some() {
        let provider = std::env::var("WANTED").ok();
        let error = Ofi::new(OfiConfig::default().provider(provider)).map(drop).unwrap_err();
        println!("child: {error}");
        return;
    }
    let missing = ("TAGMATCH_LIBFABRIC", "/nowhere/libfabric.so.1");
    let cases: [(&[(&str, &str)], &str); 2] = [
        (&[missing], "try: apt-get install libfabric1"),
        (&[("TAGMATCH_LIBFABRIC", "libc.so.6")], "lacks fi_version"),
    ];
    for (variables, wanted) in cases {
        let text = child("what_is_missing_is_one_line_with_what_to_type", variables);
        let line = text.lines().find(|line| line.contains("child: ")).unwrap();
        assert!(line.contains(wanted), "{line}");
    }
}

/// A library with libfabric's names, and of this version. Nothing but the version is asked of it.
fn library(folder: &Scratch, version: &str) -> String {
    let names = ["getinfo", "freeinfo", "dupinfo", "fabric", "strerror"];
    let others: String =
        names.iter().map(|name| format!("void fi_{name}(void) {{ abort(); }}\n")).collect();
    let source = folder.join("stub.c");
    let file = folder.join(format!("libfabric-{version}.so"));
    let text =
        format!("#include <stdlib.h>\nunsigned fi_version(void) {{ return {version}; }}\n{others}");
    std::fs::write(&source, text).unwrap();
    let mut compiler = Command::new("cc");
    let made = compiler.args(["-shared", "-fPIC", "-o"]).arg(&file).arg(&source).status();
    assert!(made.unwrap().success());
    file.to_str().unwrap().to_owned()
}

#[test]
#[ignore = "needs a C compiler: ci/test ofi"]
fn a_libfabric_that_is_too_old_or_too_new_is_named_with_its_version() {
    let folder = Scratch::new("ofi-versions");
    for (version, wanted) in [
        (
            "1 << 16 | 16",
            "is libfabric 1.16; 1.17 or later is needed; try: apt-get install libfabric1",
        ),
        (
            "3 << 16",
            "is libfabric 3.0, and this version is known up to 2.x; try: TAGMATCH_LIBFABRIC=",
        ),
    ] {
        let stub = library(&folder, version);
        let variables = [("TAGMATCH_LIBFABRIC", &*stub)];
        let text = child("what_is_missing_is_one_line_with_what_to_type", &variables);
        let line = text.lines().find(|line| line.contains("child: ")).unwrap();
        assert!(line.contains(wanted), "{line}");
    }
}

#[test]
#[ignore = "needs libfabric1: ci/test ofi"]
fn a_provider_that_cannot_be_used_is_named_with_the_reason() {
    for (name, wanted) in
        [("nonsense", "fi_info -l"), ("sockets", "cancelled"), ("udp;ofi_rxd", "truncated")]
    {
        let error = Ofi::new(config(name)).map(drop).unwrap_err();
        assert!(matches!(error, DeviceError::Unsupported { .. }), "{error}");
        assert!(error.to_string().contains(wanted), "{name}: {error}");
    }
    let narrow = config(&Providers::ways_across()[0]).used(!0).source(1);
    assert!(matches!(Ofi::new(narrow), Err(DeviceError::BadSetting { .. })));
}

#[test]
#[ignore = "needs libfabric1: ci/test ofi"]
fn the_probe_tells_what_was_taken_and_why_not_the_others() {
    for provider in Providers::ways_across() {
        let info = Ofi::probe(&config(&provider));
        assert!(info.library.is_available && info.device.is_available, "{info}");
        assert!(info.taken.as_ref().unwrap().starts_with(&provider), "{info}");
    }
    let info = Ofi::probe(&OfiConfig::default());
    for (name, reason) in &info.others {
        assert!(!reason.is_empty(), "{name}");
    }
    assert!(info.others.iter().any(|(name, _)| name == "sockets" || name == "shm"), "{info}");
    let none = Ofi::probe(&config("nonsense"));
    assert!(!none.device.is_available && none.to_string().contains("fi_info -l"), "{none}");
}
