//! Disk usage figures: the measured object, the source and the time of measurement.

use crate::util::words::words;

words! {
    /// The kind of object that uses disk space.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
    pub(crate) enum PartKind {
        /// The writable layer of a container.
        Layer = "layer",
        /// The logs of a container.
        Logs = "logs",
        /// An `emptyDir`, or another volume on the node's disk.
        Volume = "volume",
        /// A path given with `--walk-path`.
        Path = "path",
    }
}

/// A part of a pod, or another object: the kind of object, and the name of the container, volume or path.
pub(super) type Part = (PartKind, Box<str>);

words! {
    /// The source of a figure, cheapest first.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
    pub(crate) enum Origin {
        Kubelet = "kubelet",
        Quota = "quota",
        Walk = "walk",
    }
}

/// A measured disk usage.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Figure {
    /// Bytes on disk.
    pub(crate) bytes: u64,
    pub(crate) inodes: Option<u64>,
    /// The time of measurement, in Unix seconds.
    pub(crate) at: f64,
    /// The fraction of the object that was measured; 1 means all of it.
    pub(crate) coverage: f64,
}

/// The age in seconds beyond which a figure is stale, so that a newer one of another source is
/// preferred.
const OLD: f64 = 600.0;

impl Figure {
    fn is_fresh(&self, now: f64) -> bool {
        now - self.at < OLD
    }
}

/// The figures of one object, one for each source.
#[derive(Clone, Debug, Default)]
pub(super) struct Figures([Option<Figure>; Origin::ALL.len()]);

impl Figures {
    pub(super) const fn set(&mut self, origin: Origin, figure: Option<Figure>) {
        self.0[origin as usize] = figure;
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.iter().all(Option::is_none)
    }

    pub(super) const fn has(&self, origin: Origin) -> bool {
        self.0[origin as usize].is_some()
    }

    /// Returns whether a cheaper source than `origin` has a fresh figure.
    pub(super) fn is_known_cheaper(&self, origin: Origin, now: f64) -> bool {
        self.0[..origin as usize].iter().flatten().any(|figure| figure.is_fresh(now))
    }

    /// Returns the figure to show: the cheapest fresh one, or the newest if all are stale.
    pub(super) fn chosen(&self, now: f64) -> Option<(Origin, Figure)> {
        let all =
            Origin::ALL.into_iter().zip(self.0).filter_map(|(origin, of)| Some((origin, of?)));
        let fresh = all.clone().find(|(_, figure)| figure.is_fresh(now));
        fresh.or_else(|| all.max_by(|(_, a), (_, b)| a.at.total_cmp(&b.at)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cheapest_source_counts_unless_it_is_old() {
        let figure = |at| Some(Figure { bytes: 1, inodes: None, at, coverage: 1.0 });
        let mut of = Figures::default();
        assert!(of.is_empty() && of.chosen(0.0).is_none());
        of.set(Origin::Walk, figure(1000.0));
        of.set(Origin::Kubelet, figure(900.0));
        let chosen = |of: &Figures, now| of.chosen(now).map(|(origin, _)| origin);
        assert_eq!(chosen(&of, 1000.0), Some(Origin::Kubelet));
        assert_eq!(chosen(&of, 1550.0), Some(Origin::Walk));
        let known = |now| of.is_known_cheaper(Origin::Walk, now);
        assert!(known(1000.0) && !known(1550.0), "what is old begins a walk");
        assert_eq!(chosen(&of, 9000.0), Some(Origin::Walk), "all are old: the newest");
    }
}
