//! Admission of new series: rejects everything that would make the exposition invalid.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::{Absent, Members, NameChanges, NewSeries, Registry, Reserved};
use crate::exposition::{labels, names};
use crate::statsd::series::family::Kind;
use crate::statsd::series::rejection::Rejection;

impl Registry {
    /// Replaces the reserved names. Families with such names are hidden but still updated; families whose
    /// names are free again are shown. Returns both.
    pub(crate) fn reserve(&self, reserved: Reserved) -> NameChanges {
        // From here on, new families are admitted by the new names, so the lock is not needed to check the present
        // ones. There may be a million, and new series would wait.
        let (pages, was_hidden) = {
            let members = self.write();
            self.reserved.store(Arc::new(Arc::clone(&reserved)));
            (members.tree.snapshot(), Arc::clone(&members.hidden))
        };
        let mut renamed = NameChanges::default();
        let mut hidden = HashSet::new();
        for (family, _) in pages.families() {
            let (is, was) = (
                is_reserved(&reserved, &family.name, family.kind),
                was_hidden.contains(&family.id),
            );
            if is {
                hidden.insert(family.id);
            }
            match (is, was) {
                (true, false) => renamed.hidden.insert(family.name.to_string()),
                (false, true) => renamed.shown.insert(family.name.to_string()),
                _ => continue,
            };
        }
        self.counts.hidden.fetch_add(renamed.hidden.len() as u64, Ordering::Relaxed);
        self.write().hidden = Arc::new(hidden);
        renamed
    }

    /// Checks that a new series would keep the exposition valid.
    pub(super) fn admit(
        &self,
        members: &Members,
        series: &NewSeries<'_>,
        absent: &Absent,
    ) -> Result<(), Rejection> {
        if absent.family.as_ref().is_some_and(|family| family.first_set == absent.names) {
            // Its first series, with the same label names, was admitted.
            return Ok(());
        }
        let kind = series.aggregation.kind();
        let own_label: &[u8] = match kind {
            Kind::Summary => b"quantile",
            Kind::Histogram => b"le",
            Kind::Counter | Kind::Gauge | Kind::Set => b"",
        };
        for (name, _) in labels::iter(series.key.labels) {
            if name == own_label {
                return Err(Rejection::ReservedLabel);
            }
            if name.starts_with(b"__") || !names::is_label(name) {
                return Err(Rejection::InvalidLabel);
            }
        }
        if absent.family.is_none() {
            if !names::is_metric(series.key.name.as_bytes()) {
                return Err(Rejection::InvalidName);
            }
            self.admit_family(members, series.key.name, kind)?;
        }
        Ok(())
    }

    /// Checks that a new family does not conflict with another one or with a derived name.
    fn admit_family(&self, members: &Members, name: &str, kind: Kind) -> Result<(), Rejection> {
        if is_reserved(&self.reserved.load(), name, kind) {
            return Err(Rejection::ReservedName);
        }
        for suffix in ["_sum", "_count", "_bucket"] {
            let base = name.strip_suffix(suffix);
            let Some(base) = base.and_then(|base| self.family(members, base)) else {
                continue;
            };
            let writes_it = suffix != "_bucket" || base.kind == Kind::Histogram;
            // As in statsd_exporter, a counter or gauge cannot be named `x_bucket` if there is a summary `x`.
            if base.kind.is_observer() && (writes_it || !kind.is_observer()) {
                return Err(Rejection::DerivedName);
            }
        }
        let mut derived = derived(name, kind);
        if derived.any(|derived| self.family(members, &derived).is_some()) {
            return Err(Rejection::DerivedName);
        }
        Ok(())
    }
}

/// Returns the derived names of the series of a family.
fn derived(name: &str, kind: Kind) -> impl Iterator<Item = String> {
    let suffixes: &[&str] = match kind {
        Kind::Histogram => &["_sum", "_count", "_bucket"],
        Kind::Summary => &["_sum", "_count"],
        Kind::Counter | Kind::Gauge | Kind::Set => &[],
    };
    suffixes.iter().map(move |suffix| format!("{name}{suffix}"))
}

/// Returns true if the name of a family or a derived name is reserved.
fn is_reserved(reserved: &Reserved, name: &str, kind: Kind) -> bool {
    reserved(name) || derived(name, kind).any(|derived| reserved(&derived))
}
