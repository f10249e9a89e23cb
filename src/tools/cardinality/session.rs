//! A session of the command: the input, under the current mapping or with additional rules.

use super::captured::{Captured, Form};
use super::count::SeriesCounts;
use super::mapped_sample::Mapping;
use crate::config_file::Problem;
use crate::mapper::Mapper;
use crate::tools::CommandError;

/// The input and the current mapping.
pub(super) struct Session {
    pub captured: Captured,
    /// The text of the current mapping.
    pub mapping: String,
}

impl Session {
    /// Returns the current mapping, which an exposition has passed already.
    ///
    /// # Errors
    /// When it is invalid.
    pub(super) fn before(&self) -> Result<Mapping, CommandError> {
        let in_use = match self.captured.form {
            Form::Lines(_) => &self.mapping,
            Form::Exposition => "",
        };
        let mapper = Mapper::from_yaml(in_use).map_err(|problems| Problem::list(&problems))?;
        Ok(Mapping::new(mapper, Mapper::default(), self.captured.form))
    }

    /// Returns the mapping with these rules added.
    ///
    /// # Errors
    /// When the result is invalid.
    pub(super) fn after(&self, rules: &str) -> Result<Mapping, CommandError> {
        let said = |problems: Vec<Problem>| Problem::list(&problems);
        let all = Mapper::combined(rules, &self.mapping).map_err(said)?;
        let tried = Mapper::from_yaml(rules).map_err(said)?;
        Ok(Mapping::new(all, tried, self.captured.form))
    }

    /// Counts the series under a mapping; also returns the number of lines or samples.
    ///
    /// # Errors
    /// When the input cannot be read.
    pub(super) fn count(
        &mut self,
        mapping: &mut Mapping,
    ) -> Result<(SeriesCounts, u64), CommandError> {
        let mut ledger = SeriesCounts::new();
        let seen = self.captured.replay(&mut |seen| {
            mapping.place(seen, &mut |placed| ledger.note(seen.name, placed));
        })?;
        Ok((ledger, seen))
    }
}
