//! Malformed lines among others, in the same datagrams and connections: each has its cause, and the others lose nothing.

use std::collections::BTreeMap;

use fastrand::Rng;

use super::History;
use super::features::Feature;

/// Malformed lines and their causes. Events and service checks are also counted as the original counts them. Lines with a rate that is
/// no number are valid without it; a rule drops these.
const LINES: [(&str, &[&str]); 15] = [
    ("bad", &["malformed_line"]),
    ("c.v0.u1", &["malformed_line"]),
    (":1|c", &["malformed_line"]),
    ("c.v0.u1:1", &["not_enough_parts_after_colon"]),
    ("c.v0.u1:|c", &["malformed_value"]),
    ("g.v0.u1:x|g|#sender:s1", &["malformed_value"]),
    ("c.v0.u1:1|c|@0.5|#a:b|", &["malformed_component"]),
    ("c.v0.u1:1|zz", &["illegal_event"]),
    ("g.v0.u1:1:2|g", &["invalid_extended_aggregate_type"]),
    ("c.v0.u1:-1|c", &["illegal_negative_counter"]),
    ("o.v0.u1:1|ms|@9", &["no_event"]),
    ("_e{1,1}:a|b|#sender:s1", &["dogstatsd_event", "malformed_value"]),
    ("drop.x:1|c|@x", &["invalid_sample_factor"]),
    ("drop.y:1|ms|@x|#sender:s1", &["invalid_sample_factor"]),
    ("_sc|c.v0.u1|0", &["dogstatsd_service_check", "malformed_line"]),
];

impl History {
    /// Sends a line that is no metric, alone.
    pub(super) fn line_of_garbage(&mut self) -> Result<(), String> {
        let garbage = ["a", "a:b|c", ":1|c", "a:1|", "a:1|zz", "a:|g"];
        let line = garbage[self.rng.usize(0..garbage.len())];
        self.used(Feature::Garbage);
        let (reasons, _) = self.send(None, &[line.to_owned()])?;
        if reasons.is_empty() { Err(format!("{line} has no cause")) } else { Ok(()) }
    }
}

/// The malformed lines of a history.
pub(super) struct Spoiled {
    rng: Rng,
    /// The number of the last ones by cause.
    last: BTreeMap<&'static str, u64>,
}

/// Returns the number of rejections by cause.
fn by_cause(rejections: &[(&'static str, u64)]) -> BTreeMap<&'static str, u64> {
    let mut all = BTreeMap::new();
    rejections.iter().for_each(|(cause, count)| *all.entry(*cause).or_default() += count);
    all
}

impl Spoiled {
    pub(super) fn new(seed: u64) -> Self {
        Self { rng: Rng::with_seed(seed ^ 0x243f_6a88_85a3_08d3), last: BTreeMap::new() }
    }

    /// Returns these lines with malformed ones among them; nothing if there are to be none.
    pub(super) fn among(&mut self, lines: &[String]) -> Vec<String> {
        let rng = &mut self.rng;
        self.last.clear();
        if rng.u32(0..3) > 0 {
            return Vec::new();
        }
        let mut all = lines.to_vec();
        for _ in 0..rng.usize(1..4) {
            let (line, causes) = LINES[rng.usize(0..LINES.len())];
            all.insert(rng.usize(0..=all.len()), line.to_owned());
            causes.iter().for_each(|cause| *self.last.entry(*cause).or_default() += 1);
        }
        all
    }

    /// Returns true if a rejection with this cause is that of one of the last malformed lines. The name of an event has a comma, so that
    /// it is also counted as a wrong tag.
    pub(super) fn explains(&self, cause: &str) -> bool {
        let cause = match cause {
            "tag_error" => "dogstatsd_event",
            "dropped_by_rule" | "dropped" => "invalid_sample_factor",
            _ => cause,
        };
        self.last.contains_key(cause)
    }

    /// Checks that each of the last malformed lines was counted with its causes: as a line, and often as a sample, too.
    pub(super) fn check(
        &self,
        before: &[(&'static str, u64)],
        after: &[(&'static str, u64)],
    ) -> Result<(), String> {
        let (before, after) = (by_cause(before), by_cause(after));
        for cause in LINES.iter().flat_map(|(_, causes)| *causes) {
            let counted = after.get(cause).unwrap_or(&0) - before.get(cause).unwrap_or(&0);
            let wanted = self.last.get(cause).copied().unwrap_or_default();
            if counted < wanted || counted > 2 * wanted {
                return Err(format!("{cause} is counted {counted} times for {wanted} lines"));
            }
        }
        Ok(())
    }
}
