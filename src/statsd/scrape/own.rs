//! Our own families in a body, written in steps.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::iter::Peekable;
use std::time::{Duration, Instant};
use std::vec::IntoIter;

use super::writer::Writer;
use crate::exposition::family::{Family, Series};
use crate::exposition::frames::FRAME;
use crate::statsd::metrics::{CONFLICTS, ConflictSnapshot};
use crate::statsd::series::registry::View;

/// The families that are left, and the position in the first one.
pub(super) struct OwnFamilies {
    families: Peekable<IntoIter<OwnFamily>>,
    pass: u8,
    /// The next series of this pass.
    at: usize,
}

/// A family with its series, or with a snapshot from which they are rendered.
struct OwnFamily {
    family: Family,
    conflicts: Option<ConflictSnapshot>,
}

impl OwnFamily {
    fn len(&self) -> usize {
        self.conflicts.as_ref().map_or(self.family.series.len(), ConflictSnapshot::len)
    }

    fn get(&self, at: usize) -> Option<Cow<'_, Series>> {
        match &self.conflicts {
            Some(conflicts) => conflicts.get(at).map(Cow::Owned),
            None => self.family.series.get(at).map(Cow::Borrowed),
        }
    }
}

impl OwnFamilies {
    /// Returns the wanted families by name, without empty ones. The series of [`CONFLICTS`] are those of `conflicts`.
    pub(super) fn new(
        families: Vec<Family>,
        mut conflicts: Option<ConflictSnapshot>,
        wanted: Option<&BTreeSet<String>>,
    ) -> Self {
        let families = families.into_iter().map(|family| {
            let conflicts = if family.name == CONFLICTS { conflicts.take() } else { None };
            OwnFamily { family, conflicts }
        });
        let mut families: Vec<_> = families
            .filter(|own| own.len() > 0)
            .filter(|own| wanted.is_none_or(|wanted| wanted.contains(own.family.name)))
            .collect();
        families.sort_by_key(|own| own.family.name);
        Self { families: families.into_iter().peekable(), pass: 0, at: 0 }
    }

    /// Writes the families that come before `name`, or all that are left, until the end of the piece that was started
    /// at `started`. Returns false if some are left.
    pub(super) fn write_before(
        &mut self,
        name: Option<&str>,
        view: &View,
        writer: &mut impl Writer,
        out: &mut Vec<u8>,
        (started, time): (Instant, Duration),
    ) -> bool {
        let is_before = |own: &&mut OwnFamily| name.is_none_or(|name| own.family.name < name);
        while let Some(own) = self.families.peek_mut().filter(is_before) {
            if self.at == 0 {
                writer.begin_own(view, &own.family, self.pass, out);
            }
            while let Some(series) = own.get(self.at) {
                writer.own(&own.family, &series, out);
                self.at += 1;
                if out.len() >= FRAME || started.elapsed() >= time {
                    break;
                }
            }
            if self.at < own.len() {
                return false;
            }
            writer.end(out);
            (self.pass, self.at) = (self.pass + 1, 0);
            if self.pass >= writer.own_passes() {
                self.pass = 0;
                self.families.next();
            }
            if out.len() >= FRAME || started.elapsed() >= time {
                return self.families.peek_mut().filter(is_before).is_none();
            }
        }
        true
    }
}
