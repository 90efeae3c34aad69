//! All mutants of a file in one text: each expression asks which of its mutants is chosen.

use std::ops::Range;

use crate::find::{Change, Mutant};

/// Some bytes of the text that came out, and the mutants that are blamed for an error there.
#[derive(Debug, Clone)]
pub struct Blame {
    pub range: Range<usize>,
    pub numbers: Vec<u32>,
}

/// A text with mutants, and whom errors in it are blamed on.
#[derive(Debug, Default)]
pub struct Embedded {
    pub text: String,
    blames: Vec<Blame>,
}

impl Embedded {
    /// The mutants to drop because of an error at these bytes: those of the smallest part around.
    #[must_use]
    pub fn blamed(&self, error: &Range<usize>) -> Option<&[u32]> {
        let around = self.blames.iter().filter(|blame| {
            blame.range.start <= error.start && error.start < blame.range.end.max(1)
        });
        around.min_by_key(|blame| blame.range.len()).map(|blame| blame.numbers.as_slice())
    }

    fn note(&mut self, start: usize, numbers: Vec<u32>) {
        if !numbers.is_empty() {
            self.blames.push(Blame { range: start..self.text.len(), numbers });
        }
    }
}

/// Puts these mutants with their numbers into the text of their file. Nested expressions have their
/// own mutants only where the outer expression is the original: one mutant is chosen at a time.
#[must_use]
pub fn embed(text: &str, mutants: &[(u32, &Mutant)]) -> Embedded {
    let mut sorted = mutants.to_vec();
    sorted.sort_by_key(|(number, mutant)| {
        let region = &mutant.region;
        let is_return = matches!(mutant.change, Change::Return(_));
        (region.start, std::cmp::Reverse(region.end), !is_return, *number)
    });
    let mut embedded = Embedded::default();
    emit(text, 0..text.len(), &sorted, &mut embedded);
    embedded
}

fn emit(text: &str, range: Range<usize>, mutants: &[(u32, &Mutant)], out: &mut Embedded) {
    let mut done = range.start;
    let mut rest = mutants;
    while let Some((_, first)) = rest.first() {
        let region = first.region.clone();
        let is_return = matches!(first.change, Change::Return(_));
        let same = rest.iter().take_while(|(_, mutant)| {
            mutant.region == region && matches!(mutant.change, Change::Return(_)) == is_return
        });
        let (here, after) = rest.split_at(same.count());
        let inner = after.iter().take_while(|(_, mutant)| mutant.region.start < region.end);
        let (inside, behind) = after.split_at(inner.count());
        out.text.push_str(&text[done..region.start]);
        let start = out.text.len();
        alternatives(text, here, inside, out);
        let all = || here.iter().map(|(number, _)| *number).collect();
        if is_return {
            // An error that no part of a function is blamed for ends all of its mutants.
            let numbers = here.iter().chain(inside).map(|(number, _)| *number).collect();
            out.note(start, numbers);
        } else {
            out.note(start, all());
        }
        done = region.end;
        rest = behind;
    }
    out.text.push_str(&text[done..range.end]);
}

/// One expression, arm or body with its mutants.
fn alternatives(
    text: &str,
    here: &[(u32, &Mutant)],
    inside: &[(u32, &Mutant)],
    out: &mut Embedded,
) {
    let region = here[0].1.region.clone();
    let mut is_choice = false;
    for &(number, mutant) in here {
        let start = out.text.len();
        let chosen = format!("::planted::mutant({number})");
        match &mutant.change {
            Change::Return(value) => {
                out.text.push_str(&format!("if {chosen} {{ return {value}; }} "));
            }
            Change::SkipArm => out.text.push_str(&format!(" if !{chosen}")),
            Change::Replace { cut, put } => {
                out.text.push_str(if is_choice { " else " } else { "(" });
                is_choice = true;
                let before = &text[region.start..cut.start];
                let after = &text[cut.end..region.end];
                out.text.push_str(&format!("if {chosen} {{ {before}{put}{after} }}"));
            }
        }
        out.note(start, vec![number]);
    }
    if is_choice {
        out.text.push_str(" else { ");
    }
    emit(text, region, inside, out);
    if is_choice {
        out.text.push_str(" })");
    }
}

#[cfg(test)]
mod tests {
    use super::embed;
    use crate::find::mutants;

    const TEXT: &str = "fn f(a: u8) -> bool {\n    !g(a + 1) && h()\n}\n\
                        #[cfg(test)]\nmod tests { fn t() { 1 + 1; } }\n\
                        fn m(a: u8) -> u8 { match a { 1 => 2, n if n < 3 => 4, _ => 5 } }\n\
                        const fn c() -> u8 { 1 + 2 }\n";

    #[test]
    fn names_are_those_of_cargo_mutants() {
        let found = mutants("a.rs", TEXT);
        let names: Vec<&str> = found.mutants.iter().map(|mutant| mutant.name.as_str()).collect();
        assert!(names.contains(&"a.rs:2:5: replace f -> bool with true"), "{names:?}");
        assert!(names.contains(&"a.rs:2:10: replace + with - in f"), "{names:?}");
        assert!(names.contains(&"a.rs:2:5: delete ! in f"), "{names:?}");
        assert!(names.contains(&"a.rs:6:31: delete match arm 1 in m"), "{names:?}");
        assert!(
            names.contains(&"a.rs:6:44: replace match guard n < 3 with true in m"),
            "{names:?}"
        );
        assert!(!names.iter().any(|name| name.contains("tests")), "{names:?}");
        assert_eq!(found.constant, 4);
    }

    #[test]
    fn the_text_with_all_mutants_is_rust_and_blames_the_innermost() {
        let found = mutants("a.rs", TEXT);
        let numbered: Vec<_> = (1_u32..).zip(&found.mutants).collect();
        let embedded = embed(TEXT, &numbered);
        syn::parse_file(&embedded.text).unwrap();
        for (number, mutant) in numbered {
            let chosen = format!("::planted::mutant({number})");
            let at = embedded.text.find(&chosen).expect(&mutant.name);
            assert_eq!(embedded.blamed(&(at..at + 1)), Some(&[number][..]), "{}", mutant.name);
        }
    }

    #[test]
    fn without_mutants_the_text_stays() {
        assert_eq!(embed(TEXT, &[]).text, TEXT);
    }
}
