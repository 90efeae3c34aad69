//! All figures by distance, as JSON.

use serde_json::{Map, Value, json};
use tagmatch_results::{ONE_CACHE_BELOW_NS, ONE_CORE_BELOW_NS};

use super::aims::aims;
use super::record::{Distance, Record};
use super::rows::{OURS, Row, Stat, rows};
use super::table::floor_ns;

pub(crate) fn document(record: &Record, stat: Stat) -> Value {
    let named = |pairs: &[(String, String)]| -> Map<String, Value> {
        pairs.iter().map(|(name, value)| (name.clone(), value.clone().into())).collect()
    };
    let failure = |[program, group, reason]: &[String; 3]| json!({ "program": program, "group": group, "reason": reason });
    let at = |distance: &Distance| {
        let rows = rows(record, *distance, stat);
        (!rows.is_empty()).then(|| at_distance(record, *distance, &rows))
    };
    json!({
        "run": named(&record.settings),
        "versions": named(&record.versions),
        "not_measured": record.failures.iter().map(failure).collect::<Vec<_>>(),
        "unit": "nanoseconds per operation; memory: bytes",
        "one_core_below_ns": ONE_CORE_BELOW_NS,
        "one_cache_below_ns": ONE_CACHE_BELOW_NS,
        "distances": Distance::ALL.iter().filter_map(at).collect::<Vec<_>>(),
        "samples": record.samples,
    })
}

fn at_distance(record: &Record, distance: Distance, rows: &[Row<'_>]) -> Value {
    let row = |row: &Row<'_>| {
        let figures: Vec<_> = row
            .cells
            .iter()
            .map(|cell| {
                json!({
                    "program": cell.program,
                    "median": (cell.samples > 0).then_some(cell.median),
                    "quartiles": (cell.samples > 0).then_some(cell.quartiles),
                    "samples": cell.samples,
                    "is_short": cell.samples < cell.enough,
                })
            })
            .collect();
        let best = row.best_peer();
        let ratio = best.and_then(|best| row.cell(OURS)?.ratio_to(best));
        json!({
            "group": row.group,
            "case": row.case.name,
            "figures": figures,
            "best_peer": best.map(|best| &best.program),
            "ratio": ratio.map(|ratio| ratio.median),
            "ratio_low": ratio.map(|ratio| ratio.low),
            "ratio_high": ratio.map(|ratio| ratio.high),
        })
    };
    let aims = aims(rows);
    let aim = |aim: &super::aims::Aim| {
        json!({
            "what": aim.what,
            "at_most": aim.at_most,
            "reached": aim.reached.as_ref().map(|reached| reached.ratio.median),
            "is_met": aim.is_met(),
            "to": aim.reached.as_ref().map(|reached| &reached.other),
        })
    };
    json!({
        "distance": distance.to_string(),
        "floor_ns": floor_ns(record, distance),
        "rows": rows.iter().map(row).collect::<Vec<_>>(),
        "aims": aims.iter().map(aim).collect::<Vec<_>>(),
    })
}
