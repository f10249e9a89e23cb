//! One run of the command: what is gone through, under the mapping as it is or with rules in it.

use super::captured::{Captured, Form};
use super::count::Ledger;
use super::placing::Mapping;
use crate::config_file::Problem;
use crate::statsd::mapper::Mapper;

/// What is gone through, and the mapping in use.
pub(super) struct Session {
    pub captured: Captured,
    /// Its text.
    pub mapping: String,
}

impl Session {
    /// The mapping as it is. An exposition has been through it.
    ///
    /// # Errors
    /// It is none.
    pub(super) fn before(&self) -> Result<Mapping, String> {
        let in_use = match self.captured.form {
            Form::Lines(_) => &self.mapping,
            Form::Exposition => "",
        };
        let mapper = Mapper::from_yaml(in_use).map_err(|problems| Problem::list(&problems))?;
        Ok(Mapping::new(mapper, Mapper::default(), self.captured.form))
    }

    /// The mapping with these rules in it.
    ///
    /// # Errors
    /// It would be none.
    pub(super) fn after(&self, rules: &str) -> Result<Mapping, String> {
        let said = |problems: Vec<Problem>| Problem::list(&problems);
        let all = Mapper::pasted(rules, &self.mapping).map_err(said)?;
        let tried = Mapper::from_yaml(rules).map_err(said)?;
        Ok(Mapping::new(all, tried, self.captured.form))
    }

    /// All series under a mapping, and how many lines or samples lead to them.
    ///
    /// # Errors
    /// They cannot be read.
    pub(super) fn count(&mut self, mapping: &mut Mapping) -> Result<(Ledger, u64), String> {
        let mut ledger = Ledger::new();
        let seen = self.captured.replay(&mut |seen| {
            mapping.place(seen, &mut |placed| ledger.note(seen.name, placed));
        })?;
        Ok((ledger, seen))
    }
}
