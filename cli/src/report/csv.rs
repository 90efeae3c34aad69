//! `--csv`: a heading, then a row a result. Names and order of the columns stay; new ones come last.

use serde::Serialize;

use crate::result::{Document, Row};
use crate::spec::HwTagsArg;
use crate::units::name;

const HEADING: &str = "test,device,size_bytes,posted_depth,unexpected_depth,wildcard_percent,iters,\
                       samples,min_ns,p50_ns,p90_ns,p99_ns,p999_ns,max_ns,mean_ns,\
                       bandwidth_bytes_per_s,messages_per_s,validated,threads,queue,order,\
                       planned_per_s,interrupted,window,hw_tags,ranks,rank_mean_min_ns,\
                       rank_mean_avg_ns,rank_mean_max_ns\n";

/// Remembers whether the heading is out: a tour has one for all its tests.
pub(super) struct Csv {
    headed: bool,
    hw_tags: HwTagsArg,
}

impl Csv {
    pub(super) fn new(hw_tags: HwTagsArg) -> Self {
        Self { headed: false, hw_tags }
    }

    pub(super) fn heading(&mut self) -> String {
        if std::mem::replace(&mut self.headed, true) { String::new() } else { HEADING.to_owned() }
    }

    pub(super) fn row(&self, document: &Document<impl Serialize>, row: &Row) -> String {
        let mut cells = cells(document, row);
        cells.push(self.hw_tags.to_string());
        cells.push(row.more.ranks.map_or(String::new(), |ranks| ranks.to_string()));
        match row.more.rank_means_ns {
            Some(m) => cells.extend([m.min, m.avg, m.max].map(|ns| ns.to_string())),
            None => cells.extend(std::iter::repeat_n(String::new(), 3)),
        }
        cells.join(",") + "\n"
    }
}

/// Nothing in it has to be quoted: names of ours, and numbers. What a test has not is empty.
fn cells(document: &Document<impl Serialize>, row: &Row) -> Vec<String> {
    let or_empty = |value: Option<u64>| value.map_or(String::new(), |value| value.to_string());
    let mut cells = vec![document.test().to_owned(), document.device().to_owned()];
    cells.extend([row.size, row.posted_depth, row.unexpected_depth].map(|n| n.to_string()));
    cells.push(row.wildcard_percent.to_string());
    cells.extend([row.iters, row.samples].map(|n| n.to_string()));
    match row.latency_ns {
        Some(l) => cells
            .extend([l.min, l.p50, l.p90, l.p99, l.p999, l.max, l.mean].map(|ns| ns.to_string())),
        None => cells.extend(std::iter::repeat_n(String::new(), 7)),
    }
    cells.push(or_empty(row.bandwidth_bytes_per_s));
    cells.push(or_empty(row.messages_per_s));
    cells.push(document.validated().to_string());
    cells.push(row.more.threads.unwrap_or(1).to_string());
    let queue = row.more.drain.as_ref().map(|drain| drain.queue).or(row.more.queue);
    cells.push(queue.map_or(String::new(), |queue| name(&queue)));
    cells.push(row.more.drain.as_ref().map_or(String::new(), |drain| name(&drain.order)));
    cells.push(row.more.pace.map_or(String::new(), |pace| pace.planned_per_s.to_string()));
    cells.push(row.more.interrupted.to_string());
    cells.push(or_empty(row.more.window));
    cells
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::result::Row;

    #[test]
    fn each_figure_stands_under_its_name() {
        let document = Document::new("lat", "shm".into(), (), false);
        let mut csv = Csv::new(HwTagsArg::Model { slots: 5 });
        let line = csv.row(&document, &Row::sample());
        assert_eq!(
            line,
            "lat,shm,8,0,0,0,10,10,1.5,2,3,4,5,6,2.5,7,8,false,1,,,,false,,model:5,,,,\n"
        );
        assert_eq!(line.split(',').count(), HEADING.split(',').count());
        let stream = Row { latency_ns: None, samples: 0, ..Row::sample() };
        let line = Csv::new(HwTagsArg::Off).row(&document, &stream);
        assert_eq!(line, "lat,shm,8,0,0,0,10,0,,,,,,,,7,8,false,1,,,,false,,off,,,,\n");
        assert_eq!((csv.heading().as_str(), csv.heading().as_str()), (HEADING, ""));
    }
}
