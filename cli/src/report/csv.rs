//! `--csv`: a heading, then a line for each result. Names and order of the columns stay; new ones
//! come last.

use serde::Serialize;

use super::columns as c;
use super::columns::Column;
use crate::result::{Document, Row};
use crate::spec::HwTagsArg;

/// A column of CSV.
enum CsvColumn {
    /// A value that all rows of a test share.
    OfTest(&'static str),
    OfRow(Column),
}

use CsvColumn::{OfRow, OfTest};

const COLUMNS: [CsvColumn; 29] = [
    OfTest("test"),
    OfTest("device"),
    OfRow(c::SIZE),
    OfRow(c::POSTED),
    OfRow(c::UNEXPECTED),
    OfRow(c::WILDCARD),
    OfRow(c::ITERS),
    OfRow(c::SAMPLES),
    OfRow(c::MIN),
    OfRow(c::P50),
    OfRow(c::P90),
    OfRow(c::P99),
    OfRow(c::P999),
    OfRow(c::MAX),
    OfRow(c::MEAN),
    OfRow(c::BANDWIDTH),
    OfRow(c::MESSAGES_PER_S),
    OfTest("validated"),
    OfRow(c::THREADS),
    OfRow(c::QUEUE),
    OfRow(c::ORDER),
    OfRow(c::PLANNED_PER_S),
    OfRow(c::INTERRUPTED),
    OfRow(c::WINDOW),
    OfTest("hw_tags"),
    OfRow(c::RANKS),
    OfRow(c::RANK_MEAN_MIN),
    OfRow(c::RANK_MEAN_AVG),
    OfRow(c::RANK_MEAN_MAX),
];

/// Remembers whether the heading is out: several tests in one output share it.
pub(super) struct Csv {
    headed: bool,
    hw_tags: HwTagsArg,
}

impl Csv {
    pub(super) fn new(hw_tags: HwTagsArg) -> Self {
        Self { headed: false, hw_tags }
    }

    pub(super) fn heading(&mut self) -> String {
        if std::mem::replace(&mut self.headed, true) {
            return String::new();
        }
        line(|column| match column {
            OfTest(name) => (*name).to_owned(),
            OfRow(column) => column.name.to_owned(),
        })
    }

    /// A line. Nothing in it has to be quoted: all are numbers and names without commas. A value
    /// that the test does not have is empty.
    pub(super) fn row(&self, document: &Document<impl Serialize>, row: &Row) -> String {
        line(|column| match column {
            OfTest("test") => document.test().to_owned(),
            OfTest("device") => document.device().to_owned(),
            OfTest("validated") => document.validated().to_string(),
            OfTest(_) => self.hw_tags.to_string(),
            OfRow(column) => column.raw(row),
        })
    }
}

fn line(cell: impl Fn(&CsvColumn) -> String) -> String {
    COLUMNS.iter().map(cell).collect::<Vec<_>>().join(",") + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADING: &str = "test,device,size_bytes,posted_depth,unexpected_depth,wildcard_percent,iters,\
                           samples,min_ns,p50_ns,p90_ns,p99_ns,p999_ns,max_ns,mean_ns,\
                           bandwidth_bytes_per_s,messages_per_s,validated,threads,queue,order,\
                           planned_per_s,interrupted,window,hw_tags,ranks,rank_mean_min_ns,\
                           rank_mean_avg_ns,rank_mean_max_ns\n";

    #[test]
    fn each_figure_stands_under_its_name() {
        let document = Document::new("lat", "shm".into(), (), false);
        let mut csv = Csv::new(HwTagsArg::Model { slots: 5 });
        let line = csv.row(&document, &Row::sample());
        assert_eq!(
            line,
            "lat,shm,8,0,0,0,10,10,1.5,2,3,4,5,6,2.5,7,8,false,1,,,,false,,model:5,,,,\n"
        );
        let stream = Row { latency_ns: None, samples: 0, ..Row::sample() };
        let line = Csv::new(HwTagsArg::Off).row(&document, &stream);
        assert_eq!(line, "lat,shm,8,0,0,0,10,0,,,,,,,,7,8,false,1,,,,false,,off,,,,\n");
        assert_eq!((csv.heading().as_str(), csv.heading().as_str()), (HEADING, ""));
    }
}
