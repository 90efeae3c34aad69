//! The picture of the house, `docs/house.svg`, is drawn from the manifests. The product's rooms are
//! apart from the laboratory's, and arrows run down.
//!
//! `WRITE_PICTURE=1 cargo test -p tagmatch --test tidy picture` draws it anew.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use super::crates::{CrateRow, packages};

const PICTURE: &str = "docs/house.svg";
const BOXES_MAX: usize = 16;
const WIDTH: i32 = 148;
const HEIGHT: i32 = 46;
/// From one place to the next.
const ACROSS: i32 = 84;
const DOWN: i32 = 88;

/// A box: one folder at the top of the tree. `hw` is four.
struct Room {
    name: &'static str,
    what: &'static str,
    folders: &'static [&'static str],
    /// Half columns from the left, and rows from the top. Arrows run from a row to a lower one.
    place: [i32; 2],
    is_product: bool,
}

const fn room(
    name: &'static str,
    what: &'static str,
    folders: &'static [&'static str],
    place: [i32; 2],
) -> Room {
    Room { name, what, folders, place, is_product: true }
}

static ROOMS: [Room; 16] = [
    room("cli", "the command tagperf", &["cli"], [1, 0]),
    room("provider", "for libfabric, so for MPI", &["provider"], [4, 0]),
    room("results", "tables, charts", &["results"], [0, 1]),
    room("comm", "communicators", &["comm"], [2, 1]),
    room("trace", "recording, replaying", &["trace"], [4, 1]),
    room("launch", "starting jobs", &["launch"], [6, 1]),
    room("src", "tagmatch: workers", &["src"], [2, 2]),
    room("fallback", "the protocol", &["fallback"], [0, 3]),
    room(
        "hw: devices",
        "shm, verbs, tcp, ucx, ofi",
        &["hw/shm", "hw/verbs", "hw/tcp", "hw/ucx", "hw/ofi", "hw/fabric", "hw/routed"],
        [3, 3],
    ),
    room("shadow", "what a NIC holds", &["shadow"], [0, 4]),
    room(
        "hw: foreign",
        "C declarations, tables",
        &["hw/rdma-core-sys", "hw/ucx-sys", "hw/ofi-sys", "hw/ofi-provider"],
        [4, 4],
    ),
    room("soft", "matching", &["soft"], [0, 5]),
    room("hw: device", "traits, the model NIC", &["hw/device", "hw/model"], [2, 5]),
    room("hw: system", "system calls, secret", &["hw/os", "hw/secret", "hw/sys"], [5, 5]),
    Room { is_product: false, ..room("lab", "tests, and benches/", &["lab", "benches"], [9, 0]) },
    Room { is_product: false, ..room("emu", "a NIC behind verbs", &["emu"], [9, 3]) },
];
/// The one arrow from the product into the laboratory, until `emu/verbs` goes.
const EXCEPTION: [&str; 2] = ["src", "emu"];

/// The room of a package's folder.
fn room_of(folder: &str) -> Option<usize> {
    let is_in = |of: &str| folder == of || folder.starts_with(&format!("{of}/"));
    ROOMS.iter().position(|room| room.folders.iter().any(|of| is_in(of)))
}

/// What each room uses of others, and the folders that are in no room.
fn arrows(packages: &BTreeMap<String, CrateRow>) -> (BTreeSet<(usize, usize)>, Vec<String>) {
    let mut found = BTreeSet::new();
    let mut homeless = Vec::new();
    for (folder, package) in packages {
        let Some(from) = room_of(folder) else {
            homeless.push(format!("tests/tidy/house.rs: {folder} is in no room of the picture"));
            continue;
        };
        let uses = package.uses.iter().filter(|name| packages.contains_key(*name));
        found.extend(
            uses.filter_map(|name| room_of(name)).filter(|to| *to != from).map(|to| (from, to)),
        );
    }
    (found, homeless)
}

/// The arrows that break a rule.
fn forbidden(arrows: &BTreeSet<(usize, usize)>) -> Vec<String> {
    let mut found = Vec::new();
    for &(from, to) in arrows {
        let [from, to] = [from, to].map(|at| &ROOMS[at]);
        let is_exception = [from.name, to.name] == EXCEPTION;
        if from.is_product && to.place[1] <= from.place[1] && !is_exception {
            found.push(format!("{} uses {}, which is not below it", from.name, to.name));
        }
        if from.is_product && !to.is_product && !is_exception {
            found.push(format!("{} of the product uses {} of the laboratory", from.name, to.name));
        }
    }
    found
}

/// The arrows without those that follow from others.
fn reduced(arrows: &BTreeSet<(usize, usize)>) -> Vec<(usize, usize)> {
    fn reaches(arrows: &BTreeSet<(usize, usize)>, from: usize, to: usize) -> bool {
        // Rooms form no circle, so this ends.
        arrows.iter().any(|&(a, b)| a == from && (b == to || reaches(arrows, b, to)))
    }
    let follows = |from, to| {
        arrows
            .iter()
            .any(|&(a, between)| a == from && between != to && reaches(arrows, between, to))
    };
    arrows.iter().copied().filter(|&(from, to)| !follows(from, to)).collect()
}

fn picture(arrows: &BTreeSet<(usize, usize)>) -> String {
    let middle =
        |at: usize| [20 + WIDTH / 2 + ROOMS[at].place[0] * ACROSS, 54 + ROOMS[at].place[1] * DOWN];
    let right = 20 + 7 * ACROSS + WIDTH / 2 + 10;
    let [width, height] = [right + WIDTH + 110, 54 + 5 * DOWN + HEIGHT + 20];
    let mut svg = format!(
        r##"<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" font-family="sans-serif" font-size="12">
<title>The folders of tagmatch, and which uses which</title>
<defs><marker id="tip" markerWidth="8" markerHeight="8" refX="7" refY="4" orient="auto"><path d="M0 0L8 4L0 8z" fill="#555"/></marker></defs>
<rect width="{width}" height="{height}" fill="#fff"/>
<rect x="8" y="8" width="{}" height="{}" rx="6" fill="#eef4fb"/><text x="18" y="26" font-weight="bold">the product</text>
<rect x="{right}" y="8" width="{}" height="{}" rx="6" fill="#f6f0e4"/><text x="{}" y="26" font-weight="bold">the laboratory</text>
"##,
        right - 16,
        height - 16,
        width - right - 8,
        height - 16,
        right + 10,
    );
    for (from, to) in reduced(arrows) {
        let ([x, y], [to_x, to_y]) = (middle(from), middle(to));
        let y = y + HEIGHT;
        let dashes = if ROOMS[from].is_product { "" } else { r#" stroke-dasharray="4 3""# };
        let _ = writeln!(
            svg,
            r##"<line x1="{x}" y1="{y}" x2="{to_x}" y2="{}" stroke="#555"{dashes} marker-end="url(#tip)"/>"##,
            to_y - 2
        );
    }
    for (at, room) in ROOMS.iter().enumerate() {
        let [x, y] = middle(at);
        let _ = writeln!(
            svg,
            r##"<rect x="{}" y="{y}" width="{WIDTH}" height="{HEIGHT}" rx="4" fill="#fff" stroke="#333"/><text x="{x}" y="{}" text-anchor="middle" font-weight="bold">{}</text><text x="{x}" y="{}" text-anchor="middle" font-size="11">{}</text>"##,
            x - WIDTH / 2,
            y + 19,
            room.name,
            y + 36,
            room.what,
        );
    }
    svg + "</svg>\n"
}

#[test]
fn arrows_of_the_picture_run_down_and_none_from_the_product_into_the_laboratory() {
    let (arrows, homeless) = arrows(&packages(&super::files()));
    super::assert_none(&[homeless, forbidden(&arrows)].concat());
}

#[test]
fn the_picture_of_the_house_is_drawn_from_the_manifests() {
    assert!(ROOMS.len() <= BOXES_MAX);
    let (arrows, _) = arrows(&packages(&super::files()));
    assert!(forbidden(&arrows).is_empty(), "no picture is drawn with arrows that run up");
    let path = super::root().join(PICTURE);
    let drawn = picture(&arrows);
    if std::env::var_os("WRITE_PICTURE").is_some() {
        std::fs::write(&path, &drawn).unwrap();
    }
    let is_same = std::fs::read_to_string(&path).is_ok_and(|text| text == drawn);
    assert!(is_same, "{PICTURE} isn't the manifests' house; WRITE_PICTURE=1 draws it anew");
}

#[test]
fn an_arrow_up_and_one_into_the_laboratory_are_found() {
    let at = |name: &str| ROOMS.iter().position(|room| room.name == name).unwrap();
    let found = |from, to| forbidden(&[(at(from), at(to))].into()).len();
    assert_eq!(found("src", "fallback") + found("lab", "cli") + found("src", "emu"), 0);
    assert_eq!((found("soft", "src"), found("results", "comm")), (1, 1));
    assert_eq!((found("cli", "emu"), found("fallback", "lab")), (1, 2));
    let three = [(0, 1), (1, 2), (0, 2)].into();
    assert_eq!(reduced(&three), [(0, 1), (1, 2)]);
}
