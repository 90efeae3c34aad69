//! The counts and times of a replay, which the report shows and the verdict depends on.

use serde::Serialize;
use tagmatch_trace::{
    Census, Cost, DepthCounter, DepthSummary, MatchCounts, OperationCounts, PatternCounts, Peak,
    Timeline, Walks,
};

use super::wording::percent;

/// Everything that was counted, in the order of the JSON's keys.
#[derive(Serialize)]
pub(super) struct TraceFacts {
    pub(super) operations: OperationCounts,
    pub(super) posted_depth: DepthSummary,
    pub(super) unexpected_depth: DepthSummary,
    pub(super) matches: MatchCounts,
    pub(super) unexpected_percent: f64,
    pub(super) patterns: PatternCounts,
    pub(super) wildcard_percent: f64,
    pub(super) mask_classes: usize,
    pub(super) envelopes: usize,
    pub(super) left_posted: u64,
    pub(super) left_unexpected: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) cost: Option<Cost>,
    pub(super) posted_peak: Peak,
    pub(super) unexpected_peak: Peak,
    pub(super) unexpected_bytes_max: u64,
    pub(super) probes: u64,
    pub(super) probes_missed: u64,
    pub(super) plain_walks: Walks,
    pub(super) depth_over_time: Timeline,
}

impl TraceFacts {
    pub(super) fn new(
        census: &Census,
        counter: DepthCounter<'_>,
        plain_walks: Walks,
        cost: Option<Cost>,
    ) -> Self {
        let &Census { operations, patterns, mask_classes, envelopes } = census;
        let (posted_depth, unexpected_depth) = counter.summaries();
        let (left_posted, left_unexpected) = counter.depths();
        let unexpected_bytes_max = counter.unexpected_bytes_max();
        let DepthCounter { matches, probes, probes_missed, timeline, .. } = counter;
        Self {
            operations,
            posted_depth,
            unexpected_depth,
            matches,
            unexpected_percent: percent(matches.unexpected, matches.posted + matches.unexpected),
            patterns,
            wildcard_percent: percent(patterns.wildcards(), patterns.total()),
            mask_classes,
            envelopes,
            left_posted: left_posted as u64,
            left_unexpected: left_unexpected as u64,
            cost,
            posted_peak: timeline.posted,
            unexpected_peak: timeline.unexpected,
            unexpected_bytes_max,
            probes,
            probes_missed,
            plain_walks,
            depth_over_time: timeline,
        }
    }
}
