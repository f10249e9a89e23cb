//! The words: what something holds, who says so, and of when that is.

/// What holds something.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum What {
    /// What a container has written into its own root.
    Layer,
    /// What it has logged.
    Logs,
    /// An `emptyDir`, or another volume that lies on the node.
    Volume,
    /// A path that was named.
    Path,
}

impl What {
    /// The value of the label.
    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::Layer => "layer",
            Self::Logs => "logs",
            Self::Volume => "volume",
            Self::Path => "path",
        }
    }
}

/// Who says so, the cheapest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Origin {
    Kubelet,
    Quota,
    Walk,
}

/// How many there are.
pub(super) const ORIGINS: usize = 3;

impl Origin {
    /// The value of the label.
    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::Kubelet => "kubelet",
            Self::Quota => "quota",
            Self::Walk => "walk",
        }
    }
}

/// A figure.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Figure {
    /// Bytes on the disk.
    pub(crate) bytes: u64,
    pub(crate) inodes: Option<u64>,
    /// Unix seconds of the moment that it is of.
    pub(crate) at: f64,
    /// The part that was looked at; 1 is all.
    pub(crate) coverage: f64,
}

/// After how many seconds a figure is old: another source that has a newer one is believed instead.
const OLD: f64 = 600.0;

impl Figure {
    fn is_fresh(&self, now: f64) -> bool {
        now - self.at < OLD
    }
}

/// What the same thing holds, as each source says it.
#[derive(Clone, Debug, Default)]
pub(super) struct Figures([Option<Figure>; ORIGINS]);

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

    /// Whether a cheaper source than this one has a figure that is not old.
    pub(super) fn is_known_cheaper(&self, origin: Origin, now: f64) -> bool {
        self.0[..origin as usize].iter().flatten().any(|figure| figure.is_fresh(now))
    }

    /// The one that counts: of the cheapest source that has one that is not old, the newest if all are.
    pub(super) fn chosen(&self, now: f64) -> Option<(Origin, Figure)> {
        let all = [Origin::Kubelet, Origin::Quota, Origin::Walk];
        let all = all.into_iter().zip(self.0).filter_map(|(origin, of)| Some((origin, of?)));
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
