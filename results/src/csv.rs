//! `--csv`: a heading, then a line for each result. Names and order of the columns stay; new ones
//! come last.

use super::columns as c;
use super::columns::{Column, fields};
use crate::{Document, Row};

/// The columns of a row. Before, between and after these three lists stand values that all rows of
/// a test share.
const FIGURES: [&[Column]; 3] = [
    &[c::SIZE, c::POSTED, c::UNEXPECTED, c::WILDCARD, c::ITERS, c::SAMPLES],
    &[c::MIN, c::P50, c::P90, c::P99, c::P999, c::MAX, c::MEAN],
    &[c::BANDWIDTH, c::MESSAGES_PER_S],
];
const PARAMETERS: [Column; 6] =
    [c::THREADS, c::QUEUE, c::ORDER, c::PLANNED_PER_S, c::INTERRUPTED, c::WINDOW];
const LAST: [Column; 5] =
    [c::RANKS, c::RANK_MEAN_MIN, c::RANK_MEAN_AVG, c::RANK_MEAN_MAX, c::COMPLETIONS];

/// Remembers whether the heading is out: several tests in one output share it.
pub struct Csv {
    headed: bool,
    hw_tags: String,
}

impl Csv {
    /// `hw_tags` is what `--hw-tags` was.
    pub fn new(hw_tags: String) -> Self {
        Self { headed: false, hw_tags }
    }

    /// The heading; empty if it is out.
    pub fn heading(&mut self) -> String {
        if std::mem::replace(&mut self.headed, true) {
            return String::new();
        }
        let of_test = ["test", "device", "validated", "hw_tags"].map(String::from);
        line(of_test, |column| column.name.to_owned())
    }

    /// A line. Nothing in it has to be quoted: all are numbers and names without commas. A value
    /// that the test does not have is empty.
    pub fn row(&self, document: &Document, row: &Row) -> String {
        let test = document.test().to_owned();
        let device = document.device.clone();
        let fields = fields(row);
        let hw_tags = self.hw_tags.clone();
        line([test, device, document.validated.to_string(), hw_tags], |column| column.raw(&fields))
    }
}

fn line(
    [test, device, validated, hw_tags]: [String; 4],
    cell: impl Fn(&Column) -> String,
) -> String {
    let mut cells = vec![test, device];
    cells.extend(FIGURES.concat().iter().map(&cell));
    cells.push(validated);
    cells.extend(PARAMETERS.iter().map(&cell));
    cells.push(hw_tags);
    cells.extend(LAST.iter().map(&cell));
    cells.join(",") + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Config;

    const HEADING: &str = "test,device,size_bytes,posted_depth,unexpected_depth,wildcard_percent,iters,\
                           samples,min_ns,p50_ns,p90_ns,p99_ns,p999_ns,max_ns,mean_ns,\
                           bandwidth_bytes_per_s,messages_per_s,validated,threads,queue,order,\
                           planned_per_s,interrupted,window,hw_tags,ranks,rank_mean_min_ns,\
                           rank_mean_avg_ns,rank_mean_max_ns,completions\n";

    #[test]
    fn each_figure_stands_under_its_name() {
        let document = Document::new("lat", "shm".into(), Config::default(), false);
        let mut csv = Csv::new("model:5".into());
        let line = csv.row(&document, &Row::sample());
        assert_eq!(
            line,
            "lat,shm,8,0,0,0,10,10,1.5,2,3,4,5,6,2.5,7,8,false,1,,,,false,,model:5,,,,,\n"
        );
        let stream = Row { latency_ns: None, samples: 0, ..Row::sample() };
        let line = Csv::new("off".into()).row(&document, &stream);
        assert_eq!(line, "lat,shm,8,0,0,0,10,0,,,,,,,,7,8,false,1,,,,false,,off,,,,,\n");
        assert_eq!((csv.heading().as_str(), csv.heading().as_str()), (HEADING, ""));
    }
}
