//! What may join the registry: everything that could make the exposition invalid is refused here.

use super::{Members, NewSeries, Registry};
use crate::exposition::labels;
use crate::statsd::series::family::Kind;
use crate::statsd::series::rejection::Rejection;

impl Registry {
    /// Whether a new series may exist beside the present ones.
    pub(super) fn admit(
        &self,
        members: &Members,
        series: &NewSeries<'_>,
        known_family: bool,
    ) -> Result<(), Rejection> {
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
            if !is_label_name(name) {
                return Err(Rejection::InvalidLabel);
            }
        }
        if !known_family {
            if !is_metric_name(series.key.name) {
                return Err(Rejection::InvalidName);
            }
            self.admit_family(members, series.key.name, kind)?;
        }
        Ok(())
    }

    /// Whether a new family collides with another one or with a name derived from one.
    fn admit_family(&self, members: &Members, name: &str, kind: Kind) -> Result<(), Rejection> {
        if (self.reserved)(name) {
            return Err(Rejection::ReservedName);
        }
        for suffix in ["_sum", "_count", "_bucket"] {
            let base = name.strip_suffix(suffix);
            let Some(base) = base.and_then(|base| self.family(members, base)) else {
                continue;
            };
            let writes_it = suffix != "_bucket" || base.kind == Kind::Histogram;
            // As the original does, a counter or gauge may not take `x_bucket` beside a summary `x` either.
            if base.kind.is_observer() && (writes_it || !kind.is_observer()) {
                return Err(Rejection::DerivedName);
            }
        }
        let derived: &[&str] = match kind {
            Kind::Histogram => &["_sum", "_count", "_bucket"],
            Kind::Summary => &["_sum", "_count"],
            Kind::Counter | Kind::Gauge | Kind::Set => &[],
        };
        for suffix in derived {
            let derived = format!("{name}{suffix}");
            if self.family(members, &derived).is_some() {
                return Err(Rejection::DerivedName);
            }
            if (self.reserved)(&derived) {
                return Err(Rejection::ReservedName);
            }
        }
        Ok(())
    }
}

fn is_metric_name(name: &str) -> bool {
    let mut bytes = name.bytes();
    bytes.next().is_some_and(|first| first.is_ascii_alphabetic() || first == b'_' || first == b':')
        && bytes.all(|byte| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b':')
}

fn is_label_name(name: &[u8]) -> bool {
    !name.starts_with(b"__")
        && name.first().is_some_and(|first| first.is_ascii_alphabetic() || *first == b'_')
        && name.iter().all(|byte| byte.is_ascii_alphanumeric() || *byte == b'_')
}
