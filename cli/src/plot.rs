//! `--plot`: the file, and what stands above the charts.

use std::path::Path;

use tagmatch_results::show::one_line;

use crate::failure::Failure;
use crate::output::Output;

/// Creates the file. Only SVG is written, so another ending is a mistake.
pub(crate) fn create(path: &Path) -> Result<Output, Failure> {
    if path.extension().is_none_or(|ending| !ending.eq_ignore_ascii_case("svg")) {
        let wrong = format!("--plot: {} is no SVG file", one_line(path.display()));
        return Err(Failure::usage(wrong, "a file whose name ends in .svg"));
    }
    Output::create("--plot", path)
}

/// The command line of this process, for a chart's heading.
pub(crate) fn command_line() -> String {
    let words = std::env::args_os().skip(1).map(|word| one_line(word.display()));
    std::iter::once("tagperf".to_owned()).chain(words).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_svg_is_written() {
        for wrong in ["x.png", "x", "-", ".svg"] {
            let failure = create(Path::new(wrong)).map(drop).unwrap_err();
            assert!(failure.to_string().contains("ends in .svg"), "{failure}");
        }
    }
}
