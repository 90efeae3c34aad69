//! Slips as the files in `slips/` describe them.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use toml::{Table, Value};

/// A mistake that somebody could make, and the tests that must notice it.
#[derive(Debug)]
pub struct Slip {
    /// What `TAGMATCH_PLANTED` calls it.
    pub name: String,
    /// The tests that must notice it.
    pub tests: Vec<NamedTest>,
    /// Whether a test may notice it by not ending.
    pub hangs: bool,
    /// Where it is planted.
    pub edits: Vec<Edit>,
}

/// Tests of one program.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct NamedTest {
    /// The package of the program.
    pub package: String,
    /// A file in `tests/`, or `lib`.
    pub program: String,
    /// A part of the tests' names.
    pub filter: String,
    /// Variables of the environment, and their values.
    pub settings: Vec<(String, String)>,
}

/// A change of one place.
#[derive(Debug)]
pub struct Edit {
    /// The path of the file in the tree.
    pub file: String,
    /// The path of an item in the file ([`Item::is_called`](crate::places::Item::is_called)).
    pub place: String,
    /// What is changed in the item.
    pub spot: Spot,
    /// Which one it is, if the item has the text several times. The first is 1.
    pub nth: Option<usize>,
    /// The new text.
    pub put: String,
}

/// Where in a place the new text goes. Texts are compared token by token.
#[derive(Debug)]
pub enum Spot {
    /// To the beginning of the body.
    Begin,
    /// In place of this text.
    Find(String),
    /// Before this text.
    Before(String),
    /// After this text.
    After(String),
}

/// Reads the slips of all files in a folder. Fails with all that is wrong in them.
pub fn read(folder: &Path) -> Result<Vec<Slip>, Vec<String>> {
    let mut slips: Vec<Slip> = Vec::new();
    let mut errors = Vec::new();
    let listed = fs::read_dir(folder).map_err(|error| vec![format!("{folder:?}: {error}")])?;
    let mut files: Vec<_> = listed.flatten().map(|entry| entry.path()).collect();
    files.sort();
    for file in files.iter().filter(|file| file.extension().is_some_and(|end| end == "toml")) {
        let text = fs::read_to_string(file).map_err(|error| error.to_string());
        let read = text.and_then(|text| parse(&text).map_err(|found| found.join("\n")));
        match read {
            Ok(read) => slips.extend(read),
            Err(error) => errors.push(format!("{}: {error}", file.display())),
        }
    }
    let mut names = BTreeSet::new();
    for slip in slips.iter().filter(|slip| !names.insert(&slip.name)) {
        errors.push(format!("two slips are called {}", slip.name));
    }
    if errors.is_empty() { Ok(slips) } else { Err(errors) }
}

/// The slips of one file.
fn parse(text: &str) -> Result<Vec<Slip>, Vec<String>> {
    let mut table: Table =
        text.parse().map_err(|error: toml::de::Error| vec![error.to_string()])?;
    let slips = entries(&mut table, "slip", slip)?;
    nothing_left(&table).map_err(|error| vec![error])?;
    Ok(slips)
}

/// Takes the entries of one kind out of a file's table.
pub(crate) fn entries<T>(
    table: &mut Table,
    kind: &str,
    entry: impl Fn(Table) -> Result<T, String>,
) -> Result<Vec<T>, Vec<String>> {
    let listed = table.remove(kind);
    let Some(Value::Array(listed)) = listed else {
        return Err(vec![format!("has no [[{kind}]]")]);
    };
    let mut entries = Vec::new();
    let mut errors = Vec::new();
    for (at, value) in listed.into_iter().enumerate() {
        let Value::Table(table) = value else { continue };
        let name = table.get("name").and_then(Value::as_str).unwrap_or("without a name").to_owned();
        match entry(table) {
            Ok(entry) => entries.push(entry),
            Err(error) => errors.push(format!("{kind} {} ({name}): {error}", at + 1)),
        }
    }
    if errors.is_empty() { Ok(entries) } else { Err(errors) }
}

fn slip(mut table: Table) -> Result<Slip, String> {
    let name = text(&mut table, "name")?;
    text(&mut table, "wrong")?;
    let tests = match table.remove("tests") {
        Some(Value::Array(tests)) if !tests.is_empty() => {
            tests.iter().map(test).collect::<Result<_, _>>()?
        }
        _ => return Err("it names no test".into()),
    };
    let hangs = match table.remove("hangs") {
        None => false,
        Some(value) => value.as_bool().ok_or("`hangs` is not true or false")?,
    };
    let edits = edits(&mut table)?;
    nothing_left(&table)?;
    let call = format!("planted::is(\"{name}\")");
    if !edits.iter().any(|edit| edit.put.contains(&call)) {
        return Err(format!("no `put` asks {call}"));
    }
    Ok(Slip { name, tests, hangs, edits })
}

/// Takes the edits out of a table.
pub(crate) fn edits(table: &mut Table) -> Result<Vec<Edit>, String> {
    match table.remove("edit") {
        None => Ok(vec![edit(table)?]),
        Some(Value::Array(edits)) => {
            // The keys of the table hold for all of its edits.
            let shared = std::mem::take(table);
            let whole = |edit: Value| {
                let mut whole = shared.clone();
                whole.extend(edit.as_table().cloned().unwrap_or_default());
                whole
            };
            let edits = edits.into_iter().map(whole).map(|mut table| edit(&mut table));
            edits.collect()
        }
        Some(_) => Err("`edit` isn't a list of tables".into()),
    }
}

/// Takes one edit out of a table.
fn edit(table: &mut Table) -> Result<Edit, String> {
    let file = text(table, "file")?;
    let place = text(table, "place")?;
    let put = text(table, "put")?;
    let nth = match table.remove("nth") {
        None => None,
        Some(value) => {
            let nth = value.as_integer().and_then(|nth| usize::try_from(nth).ok());
            Some(nth.filter(|nth| *nth > 0).ok_or("`nth` is not a number from 1 on")?)
        }
    };
    let mut spots = Vec::new();
    for (key, spot) in [
        ("find", Spot::Find as fn(String) -> Spot),
        ("before", Spot::Before),
        ("after", Spot::After),
        ("at", |_| Spot::Begin),
    ] {
        if table.contains_key(key) {
            let text = text(table, key)?;
            if key == "at" && text != "begin" {
                return Err(format!("invalid `at` \"{text}\": expected \"begin\""));
            }
            spots.push(spot(text));
        }
    }
    nothing_left(table)?;
    let spot = spots.pop().filter(|_| spots.is_empty());
    let spot = spot.ok_or("expected one of `find`, `before`, `after`, and `at`")?;
    Ok(Edit { file, place, spot, nth, put })
}

/// A test: `PACKAGE PROGRAM FILTER [VARIABLE=VALUE]...`.
fn test(value: &Value) -> Result<NamedTest, String> {
    let text = value.as_str().unwrap_or_default();
    let mut words = text.split_whitespace().map(str::to_owned);
    let words = words.by_ref();
    let (Some(package), Some(program), Some(filter)) = (words.next(), words.next(), words.next())
    else {
        return Err(format!("invalid test `{text}`: expected PACKAGE PROGRAM FILTER"));
    };
    let setting = |word: String| {
        let pair = word.split_once('=').map(|(name, value)| (name.to_owned(), value.to_owned()));
        pair.ok_or(format!("invalid setting `{word}` of a test: expected VARIABLE=VALUE"))
    };
    let settings = words.map(setting).collect::<Result<_, _>>()?;
    Ok(NamedTest { package, program, filter, settings })
}

/// Takes a text that has to be there.
pub(crate) fn text(table: &mut Table, key: &str) -> Result<String, String> {
    match table.remove(key) {
        Some(Value::String(text)) if !text.trim().is_empty() => Ok(text),
        Some(_) => Err(format!("`{key}` is not a text, or is empty")),
        None => Err(format!("it lacks `{key}`")),
    }
}

pub(crate) fn nothing_left(table: &Table) -> Result<(), String> {
    table.keys().next().map_or(Ok(()), |key| Err(format!("unknown key `{key}`")))
}

#[cfg(test)]
mod tests {
    use super::{Spot, parse};

    const SLIP: &str = r#"
        [[slip]]
        name = "A"
        wrong = "It is wrong."
        tests = ["p lib tests:: SEEDS=3 X=y"]
        file = "a.rs"
        place = "f"
        after = "x"
        put = '|| planted::is("A")'
    "#;

    #[test]
    fn a_slip_has_one_edit_or_several_that_share_keys() {
        let slips = parse(SLIP).unwrap();
        let test = &slips[0].tests[0];
        assert_eq!((test.package.as_str(), test.filter.as_str()), ("p", "tests::"));
        assert_eq!(test.settings, [("SEEDS", "3"), ("X", "y")].map(|(a, b)| (a.into(), b.into())));
        assert!(matches!(&slips[0].edits[0].spot, Spot::After(text) if text == "x"));

        let more = "[[slip.edit]]\nplace = 'g'\nnth = 2\n[[slip.edit]]\nfind = 'y'";
        let two = SLIP.replace("after = \"x\"", "").replace("put = ", "put = 'x'\n#");
        let two = format!("{two}{more}\nput = '''planted::is(\"A\")'''\n");
        let two = two.replace("nth = 2", "nth = 2\nat = 'begin'");
        let slips = parse(&two).unwrap();
        let edits: Vec<_> = slips[0].edits.iter().map(|e| (e.place.as_str(), e.nth)).collect();
        assert_eq!(edits, [("g", Some(2)), ("f", None)]);
        assert_eq!(slips[0].edits[0].put, "x");
    }

    #[test]
    fn what_is_wrong_with_a_slip_is_said() {
        for (from, to, error) in [
            ("after", "behind", "unknown key `behind`"),
            ("after = \"x\"", "", "expected one of `find`"),
            ("after = \"x\"", "after = \"x\"\nfind = \"y\"", "expected one of `find`"),
            ("after = \"x\"", "at = \"end\"", "invalid `at` \"end\""),
            ("place = \"f\"", "", "it lacks `place`"),
            ("wrong = ", "wrong = 1 #", "`wrong` is not a text"),
            ("p lib tests:: SEEDS=3 X=y", "p lib", "invalid test `p lib`"),
            ("X=y", "y", "invalid setting `y`"),
            ("tests = ", "#", "it names no test"),
            ("is(\"A\")", "is(\"B\")", "no `put` asks planted::is(\"A\")"),
            ("put = ", "nth = 0\nput = ", "`nth` is not a number from 1 on"),
            ("put = ", "hangs = \"yes\"\nput = ", "`hangs` is not true or false"),
            ("[[slip]]", "[slip]", "has no [[slip]]"),
        ] {
            let errors = parse(&SLIP.replace(from, to)).expect_err(to).join("\n");
            assert!(errors.contains(error), "{errors}");
        }
    }
}
