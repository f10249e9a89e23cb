//! Lines of a metric whose lines have several types.

use std::time::Duration;

use super::features::Feature;
use super::{CHANGING, History};
use crate::exposition::budget::BudgetMode;

impl History {
    /// Sends a line of a metric whose lines have several types: the first one counts until its series has expired.
    pub(super) fn line_of_changing_type(&mut self) -> Result<(), String> {
        let suffix = ["g", "h"][self.changes.usize(0..2)];
        let (reasons, _) = self.send(None, &[format!("{CHANGING}.x:1|{suffix}")])?;
        let known = self.changing.filter(|(_, life)| self.may_exist(Some(*life)));
        let life = known.map(|(_, life)| life);
        let may_be_new = !self.exists(life);
        let fits = known.is_none_or(|(known, _)| known == suffix);
        let is_budget = |reason: &&str| matches!(*reason, "series_limit" | "label_limit");
        let about = || format!("{suffix} after {known:?}: {reasons:?}");
        if reasons.is_empty() {
            if !fits && !may_be_new {
                return Err(format!("the type of a metric has changed: {}", about()));
            }
            let ttl = Duration::from_secs(self.mapping.ttl);
            self.changing = Some((suffix, self.prolonged(life, ttl)));
        } else if reasons.iter().all(is_budget) && self.mode == BudgetMode::Enforce {
            if fits && !may_be_new {
                return Err(format!("a series that exists has no room: {}", about()));
            }
        } else if fits {
            return Err(format!("a line of the right type is refused: {}", about()));
        } else {
            self.used(Feature::TypeConflict);
        }
        Ok(())
    }
}
