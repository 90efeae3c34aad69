//! The declarations of tagmatch agree with the installed C headers: the programs `*_layout` print
//! ours, one fact a line, and a C compiler prints or asserts the headers'.
//!
//! The types of `tagmatch-ofi-sys` are those of libfabric 1.17, and have to fit later versions,
//! too. They are compared with the installed headers, with those of a newer Debian, and with what
//! was written down of version 2.6.
//!
//! They need a C compiler, headers and the programs: `ci/test headers`, with `--ignored`.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use tagmatch_testkit::scratch::Scratch;

/// The folder of the build, in which `ci/parts/headers` unpacks the headers of Debian 13.
fn target() -> PathBuf {
    std::env::current_exe().unwrap().ancestors().nth(3).unwrap().to_owned()
}

/// What a program says of our declarations.
fn ours(program: &str, argument: Option<&str>) -> String {
    let path = target().join("debug/examples").join(program);
    let output = Command::new(&path).args(argument).output();
    let output = output.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    assert!(output.status.success(), "{program}");
    String::from_utf8(output.stdout).unwrap()
}

fn probe(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../ci/probes").join(name)
}

/// Compiles a probe; it finds facts in `scratch`.
fn compile(scratch: &Scratch, name: &str, options: &[&str]) -> Output {
    let mut cc = Command::new("cc");
    cc.arg("-I").arg(&**scratch).args(options).arg(probe(name));
    cc.output().expect("a C compiler")
}

/// What a probe prints of the headers.
fn theirs(scratch: &Scratch, name: &str, options: &[&str]) -> String {
    let program = scratch.path("probe");
    let output = compile(scratch, name, &[&["-o", &*program], options].concat());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let output = Command::new(&program).output().unwrap();
    assert!(output.status.success(), "{name}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
#[ignore = "needs C headers: ci/test headers"]
fn the_headers_on_the_wire_agree() {
    let scratch = Scratch::new("wire");
    let theirs = theirs(&scratch, "tm_types.c", &["-Wall", "-Werror"]);
    assert_eq!(ours("wire_layout", None), theirs);
    assert!(theirs.lines().count() == 5, "{theirs}");
}

/// A C compiler asserts all facts of `program`, and notices if the constant `wrong` has another
/// value.
fn asserted(program: &str, name: &str, include: &str, wrong: [&str; 2]) {
    let scratch = Scratch::new(program);
    let facts = ours(program, None);
    let options = ["-Wall", "-Werror", "-I", include, "-c", "-o", "/dev/null"];
    scratch.file("facts.inc", &facts);
    let output = compile(&scratch, name, &options);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let [constant, value] = wrong;
    let changed =
        replaced(&facts, &format!("VALUE({constant}, {value})"), &format!("VALUE({constant}, 99)"));
    scratch.file("facts.inc", changed);
    let output = compile(&scratch, name, &options);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && errors.contains(constant), "a wrong value passed");
}

#[test]
#[ignore = "needs C headers: ci/test headers"]
fn the_declarations_of_libibverbs_ucx_and_pmix_agree() {
    let usual = "/usr/include";
    asserted("verbs_layout", "verbs.c", usual, ["IBV_WC_TM_RECV", "133"]);
    asserted("ucp_layout", "ucp.c", usual, ["UCP_PARAM_FIELD_TAG_SENDER_MASK", "16"]);
    let machines = fs::read_dir("/usr/lib").unwrap().flatten();
    let pmix = machines.map(|machine| machine.path().join("pmix2/include"));
    let pmix = pmix.filter(|folder| folder.join("pmix.h").exists()).min().expect("pmix.h");
    asserted("pmix_layout", "pmix.c", pmix.to_str().unwrap(), ["PMIX_STRING", "3"]);
}

/// The text with another beginning of the one line that begins so.
fn replaced(text: &str, old: &str, new: &str) -> String {
    let count = text.lines().filter(|line| line.starts_with(old)).count();
    assert_eq!(count, 1, "no fact begins with {old}");
    let lines = text.lines().map(|line| match line.strip_prefix(old) {
        Some(rest) => format!("{new}{rest}\n"),
        None => format!("{line}\n"),
    });
    lines.collect()
}

/// Which facts may differ from ours.
#[derive(Clone, Copy)]
enum MayDiffer {
    /// Only what we allocate, which headers don't have.
    Room,
    /// Also the sizes of structures that have grown since version 1.17. Any table of functions may:
    /// it begins with its size.
    Grown,
}

impl MayDiffer {
    fn has(self, fact: &str) -> bool {
        let (kind, rest) = fact.split_once('(').unwrap_or_default();
        let name = rest.split(',').next().unwrap_or_default();
        let is_grown = name.starts_with("fi_ops_")
            || ["fi_domain_attr", "fi_cq_err_entry", "fi_mr_attr"].contains(&name);
        match self {
            MayDiffer::Room => kind == "ROOM",
            MayDiffer::Grown => matches!(kind, "SIZE" | "ROOM") && is_grown,
        }
    }
}

/// The sizes of one kind, by the names of their structures.
fn sizes<'a>(facts: &'a str, kind: &str) -> HashMap<&'a str, u64> {
    let sizes = facts.lines().filter_map(|fact| {
        let (name, size) = fact.strip_prefix(kind)?.strip_suffix(')')?.split_once(", ")?;
        Some((name, size.parse().unwrap()))
    });
    sizes.collect()
}

/// All facts are the same but for those that may differ. There, a structure isn't smaller than
/// ours, nor larger than what we allocate for it.
fn fits(ours: &str, theirs: &str, may_differ: MayDiffer) -> Result<(), String> {
    let fixed = |facts: &str| -> Vec<_> {
        facts.lines().filter(|fact| !may_differ.has(fact)).map(str::to_owned).collect()
    };
    let fixed = [fixed(ours), fixed(theirs)];
    if let Some((our, their)) = fixed[0].iter().zip(&fixed[1]).find(|(our, their)| our != their) {
        return Err(format!("ours: {our}; the header's: {their}"));
    }
    if fixed[0].len() != fixed[1].len() {
        return Err("one has more facts".into());
    }
    let least = sizes(ours, "SIZE(");
    let room = sizes(ours, "ROOM(");
    for (name, size) in sizes(theirs, "SIZE(") {
        let is_small = least.get(name).is_some_and(|least| size < *least);
        if is_small || room.get(name).is_some_and(|room| size > *room) {
            return Err(format!("{name} has {size} bytes"));
        }
    }
    Ok(())
}

/// Our facts fit the headers' facts, and wrong facts don't: a value, an offset, three sizes.
fn agree(ours: &str, theirs: &str, may_differ: MayDiffer) {
    assert_eq!(fits(ours, theirs, may_differ), Ok(()));
    for (right, wrong) in [
        ("VALUE(FI_CLASS_CQ, 14)", "VALUE(FI_CLASS_CQ, 99)"),
        ("FIELD(fid_ep, tagged, 56", "FIELD(fid_ep, tagged, 48"),
        ("SIZE(fi_info, 120)", "SIZE(fi_info, 112)"),
        ("SIZE(fi_ops_av, 64)", "SIZE(fi_ops_av, 96)"),
        ("ROOM(fi_domain_attr, 256)", "ROOM(fi_domain_attr, 184)"),
    ] {
        let changed = replaced(ours, right, wrong);
        assert!(fits(&changed, theirs, may_differ).is_err(), "a wrong fact passed: {wrong}");
    }
}

/// The name that a fact of a later version is about.
fn name_of(fact: &str) -> &str {
    let (kind, rest) = fact.split_once('(').unwrap();
    let at = usize::from(kind == "FIELD");
    rest.split(", ").nth(at).unwrap()
}

fn has_word(text: &str, word: &str) -> bool {
    let mut words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    words.any(|it| it == word)
}

/// Our facts agree with the headers of libfabric in `include`. Facts of later versions count if
/// their name is there.
fn fabric(include: &Path) {
    let rdma = |name: &str| fs::read_to_string(include.join("rdma").join(name)).unwrap();
    let version = |part: &str| {
        let text = rdma("fabric.h");
        let define = format!("#define FI_{part}_VERSION ");
        let line = text.lines().find_map(|line| line.strip_prefix(&define)).unwrap();
        line.trim().parse::<u32>().unwrap()
    };
    let mut facts = ours("fabric_layout", None);
    let mut may_differ = MayDiffer::Room;
    if (version("MAJOR"), version("MINOR")) != (1, 17) {
        may_differ = MayDiffer::Grown;
        let folders = ["rdma", "rdma/providers"].map(|folder| include.join(folder));
        let files = folders.iter().flat_map(|folder| fs::read_dir(folder).unwrap().flatten());
        let files = files.filter(|file| file.path().is_file());
        let all: String = files.map(|file| fs::read_to_string(file.path()).unwrap()).collect();
        let later = ours("fabric_layout", Some("later"));
        let known = later.lines().filter(|fact| has_word(&all, name_of(fact)));
        facts.extend(known.map(|fact| format!("{fact}\n")));
    }
    let scratch = Scratch::new("fabric");
    scratch.file("facts.inc", &facts);
    let options = ["-w", "-I", include.to_str().unwrap()];
    agree(&facts, &theirs(&scratch, "fabric.c", &options), may_differ);
    let signal = facts.lines().find(|fact| fact.starts_with("FIELD(fi_ops_cq, signal,")).unwrap();
    scratch.file("facts.inc", facts.replace(signal, &signal.replace("int", "long")));
    let wrong = theirs(&scratch, "fabric.c", &options);
    assert!(wrong.contains("\nFIELD(fi_ops_cq, signal, 48, 8, not long"), "a wrong type passed");
}

#[test]
#[ignore = "needs C headers: ci/test headers"]
fn the_declarations_of_the_installed_libfabric_agree() {
    fabric(Path::new("/usr/include"));
}

#[test]
#[ignore = "needs the headers of Debian 13: ci/test headers"]
fn the_declarations_of_the_libfabric_of_debian_13_agree() {
    fabric(&target().join("debian-13/usr/include"));
}

/// Its facts are what `ci/probes/fabric.c` printed with its own headers.
#[test]
#[ignore = "needs C headers: ci/test headers"]
fn the_declarations_of_libfabric_2_6_agree() {
    let facts = ours("fabric_layout", None) + &ours("fabric_layout", Some("later"));
    let theirs = fs::read_to_string(probe("fabric-2.6.0.facts")).unwrap();
    agree(&facts, &theirs, MayDiffer::Grown);
}
