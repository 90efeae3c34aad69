//! Slips and starts are planted into the text of a file.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use crate::places::{Item, items};
use crate::slips::{Edit, Spot};
use crate::tokens::{Lexeme, tokens};

/// Some bytes of a file, and what replaces them.
struct Replacement {
    range: Range<usize>,
    put: String,
    /// Between two tokens, what is put before the second is behind what is put after the first.
    is_before: bool,
}

/// The files that edits change, by path, with all of them made. Each edit stands behind the name of
/// its slip or start. `read` gives the text of a file. Fails with everything that can't be planted:
/// each line begins with a name.
pub fn plant<'a>(
    edits: impl IntoIterator<Item = (&'a str, &'a Edit)>,
    read: impl Fn(&str) -> Option<String>,
) -> Result<BTreeMap<String, String>, Vec<String>> {
    let mut by_file: BTreeMap<&str, Vec<(&str, &Edit)>> = BTreeMap::new();
    for (name, edit) in edits {
        by_file.entry(&edit.file).or_default().push((name, edit));
    }
    let mut files = BTreeMap::new();
    let mut errors = Vec::new();
    for (path, edits) in by_file {
        let Some(text) = read(path) else {
            errors.extend(edits.iter().map(|(name, _)| format!("{name}: there is no {path}")));
            continue;
        };
        match plant_file(&text, &edits) {
            Ok(text) => drop(files.insert(path.to_owned(), text)),
            Err(found) => errors.extend(found),
        }
    }
    if errors.is_empty() { Ok(files) } else { Err(errors) }
}

fn plant_file(text: &str, edits: &[(&str, &Edit)]) -> Result<String, Vec<String>> {
    let tokens = tokens(text);
    let items = items(&tokens);
    let mut cuts = Vec::new();
    let mut errors = Vec::new();
    for &(slip, edit) in edits {
        match cut(&tokens, &items, edit) {
            Ok(cut) => cuts.push((slip, cut)),
            Err(error) => errors.push(format!("{slip}: {} {error}", edit.file)),
        }
    }
    cuts.sort_by_key(|(_, cut)| (cut.range.start, cut.range.end, cut.is_before));
    for pair in cuts.windows(2) {
        let [(other, first), (slip, second)] = pair else { continue };
        if second.range.start < first.range.end {
            let advice = "insert `before` or `after` it instead";
            errors.push(format!("{slip}: {other} replaces the same text; {advice}"));
        }
    }
    if !errors.is_empty() {
        return Err(errors);
    }
    let mut planted = String::new();
    let mut done = 0;
    for (_, cut) in cuts {
        planted.push_str(&text[done..cut.range.start]);
        planted.push_str(&cut.put);
        done = cut.range.end;
    }
    Ok(planted + &text[done..])
}

/// What an edit replaces, or what its file lacks.
fn cut(tokens: &[Lexeme<'_>], items: &[Item], edit: &Edit) -> Result<Replacement, String> {
    let place = &edit.place;
    let mut places: Vec<&Item> = items.iter().filter(|item| item.is_called(place)).collect();
    // The whole path names no item of a longer one.
    if places.iter().any(|item| item.path == *place) {
        places.retain(|item| item.path == *place);
    }
    if places.is_empty() {
        return Err(format!("has no `{place}`"));
    }
    let put = edit.put.trim();
    let (text, found) = match &edit.spot {
        Spot::Begin => {
            let bodies = places.iter().filter_map(|item| item.body).map(|body| body..body + 1);
            ("{", bodies.collect())
        }
        Spot::Find(text) | Spot::Before(text) | Spot::After(text) => {
            (text.as_str(), occurrences(tokens, &places, text))
        }
    };
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let range = match (edit.nth, found.as_slice()) {
        (_, []) => return Err(format!("has no `{text}` in `{place}`")),
        (None, [range]) => range,
        (None, _) => {
            let count = found.len();
            return Err(format!("has `{text}` {count} times in `{place}`; name more, or `nth`"));
        }
        (Some(nth), _) => {
            let count = found.len();
            let range = found.get(nth - 1).filter(|_| count > 1);
            range.ok_or(format!("has `{text}` {count} times in `{place}`, and `nth` is {nth}"))?
        }
    };
    let end_of = |index: usize| tokens.get(index).map_or(0, Lexeme::end);
    let end = end_of(range.end - 1);
    let is_before = matches!(edit.spot, Spot::Before(_));
    Ok(match edit.spot {
        Spot::Find(_) => {
            Replacement { range: tokens[range.start].at..end, put: put.to_owned(), is_before }
        }
        Spot::Begin | Spot::After(_) => {
            Replacement { range: end..end, put: format!(" {put}"), is_before }
        }
        // A comment between stays with what it is about.
        Spot::Before(_) => {
            let end = end_of(range.start.wrapping_sub(1));
            Replacement { range: end..end, put: format!(" {put} "), is_before }
        }
    })
}

/// Where some of the items have this text, as ranges of tokens.
fn occurrences(all: &[Lexeme<'_>], places: &[&Item], text: &str) -> Vec<Range<usize>> {
    let wanted = tokens(text);
    let fits = |at: &usize| {
        let here = all.iter().skip(*at).map(|token| token.text);
        !wanted.is_empty() && here.take(wanted.len()).eq(wanted.iter().map(|token| token.text))
    };
    // Items of one name may be in each other.
    let starts: BTreeSet<usize> = places
        .iter()
        .flat_map(|item| item.tokens.start..(item.tokens.end + 1).saturating_sub(wanted.len()))
        .collect();
    starts.into_iter().filter(fits).map(|at| at..at + wanted.len()).collect()
}

#[cfg(test)]
mod tests {
    use super::{Edit, Spot, plant_file};

    const TEXT: &str = "impl A { fn f(&self) -> bool {\n    // why\n    self.a  &&\n self.b } }\n\
                        fn f() { g(1); g(1); }\nimpl B { fn f(&self) {} }\n";

    fn edit(place: &str, spot: Spot, nth: Option<usize>, put: &str) -> Edit {
        Edit { file: "a.rs".into(), place: place.into(), spot, nth, put: put.into() }
    }

    fn planted(edits: &[Edit]) -> Result<String, Vec<String>> {
        let edits: Vec<_> = edits.iter().map(|edit| ("Slip", edit)).collect();
        plant_file(TEXT, &edits)
    }

    fn find(text: &str) -> Spot {
        Spot::Find(text.into())
    }

    #[test]
    fn slips_of_one_file_are_planted_together() {
        let edits = [
            edit("A::f", find("self.a && self.b"), None, "true"),
            edit("A::f", Spot::Before("self.a".into()), None, "x();"),
            edit("A::f", Spot::After("self . b".into()), None, "|| y"),
            edit("A::f", Spot::Begin, None, "z();"),
            edit("f", Spot::Before("g(1);".into()), Some(2), "h();"),
            edit("B", Spot::Begin, None, "const X: u8 = 1;"),
        ];
        let expected = "impl A { fn f(&self) -> bool { z(); x(); \n    // why\n    true || y } }\n\
                        fn f() { g(1); h();  g(1); }\nimpl B { const X: u8 = 1; fn f(&self) {} }\n";
        assert_eq!(planted(&edits).as_deref(), Ok(expected));
    }

    #[test]
    fn what_is_gone_or_ambiguous_is_said() {
        let error = |place: &str, spot: Spot, nth| {
            planted(&[edit(place, spot, nth, "x")]).expect_err("it can't be planted").join("\n")
        };
        assert_eq!(error("A::g", find("x"), None), "Slip: a.rs has no `A::g`");
        assert_eq!(error("A::f", find("c"), None), "Slip: a.rs has no `c` in `A::f`");
        let twice = "Slip: a.rs has `g(1);` 2 times in `f`";
        assert_eq!(error("f", find("g(1);"), None), format!("{twice}; name more, or `nth`"));
        assert_eq!(error("f", find("g(1);"), Some(3)), format!("{twice}, and `nth` is 3"));
        let same = "impl A { fn f() {} }\nimpl B { fn f() {} }\n";
        let begin = edit("f", Spot::Begin, None, "x");
        let errors = plant_file(same, &[("Slip", &begin)]).expect_err("there are two");
        assert!(errors[0].contains("2 times"), "{errors:?}");
        let needless = error("A::f", find("self.a"), Some(1));
        assert!(needless.contains("1 times"), "{needless}");
    }

    #[test]
    fn two_slips_do_not_replace_the_same_text() {
        let edits = [
            edit("A::f", find("self.a && self.b"), None, "x"),
            edit("A::f", find("self.b"), None, "y"),
        ];
        let errors = planted(&edits).expect_err("they meet");
        assert!(errors[0].contains("replaces the same text"), "{errors:?}");
        let inside = Spot::Before("self.b".into());
        let edits =
            [edit("A::f", find("self.a && self.b"), None, "x"), edit("A::f", inside, None, "y")];
        assert!(planted(&edits).is_err());
    }
}
