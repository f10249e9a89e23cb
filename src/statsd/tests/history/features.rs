//! The features whose pairs the histories have to cover.

use super::{History, TOGETHER};
use crate::util::words::words;

words! {
    /// What a history may use.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
    pub(super) enum Feature {
        BudgetOff = "budget off",
        BudgetTrack = "budget track",
        BudgetEnforce = "budget enforce",
        RuleLimits = "rule limits",
        Folding = "folding",
        Reload = "reload",
        ReloadLowersLimits = "reload lowers limits",
        ReloadChangesLabels = "reload changes labels",
        BrokenReload = "broken reload",
        TimeToLive = "time to live",
        Expiry = "expiry",
        Reappearance = "reappearance",
        Counter = "counter",
        Sampled = "sampled",
        Gauge = "gauge",
        GaugeDelta = "gauge delta",
        Summary = "summary",
        Histogram = "histogram",
        NativeBuckets = "native buckets",
        Specificity = "rules by specificity",
        Set = "set",
        SetWindow = "members leave a set",
        ManyValues = "many values",
        ManySeries = "many series",
        StartTimes = "start times",
        TakenName = "taken name",
        NameReturned = "name given back",
        DerivedName = "name of a derived sample",
        Tags = "tags",
        DroppedByRule = "dropped by rule",
        Garbage = "garbage",
        TypeConflict = "type conflict",
        ManySenders = "many senders",
        Burst = "burst",
        Packed = "packed values",
        Scale = "scale",
        Unmapped = "no rule",
        TakenLabel = "tag with a label of the rule",
        Normalise = "normalised tag",
        UnreadTags = "tags that are not read",
        RandomRules = "random rules",
        Relay = "relay",
        RelayRefused = "relay target refuses",
        RelayMoved = "relay target moves",
        Udp = "UDP",
        Unixgram = "Unix socket",
        Tcp = "TCP",
        Workers = "several workers",
        NoKeyCache = "no key cache",
        OpenMetrics = "open metrics",
        Protobuf = "protobuf",
        ProtobufText = "protobuf text",
        ClockJump = "clock jump",
        Enriched = "enriched",
        UnknownSender = "unknown sender",
        SenderEnd = "end of a sender",
        UnreadableOrigin = "unreadable origin",
    }
}

/// Returns true if the histories without a cluster have the feature.
pub(super) fn is_of_lines(feature: Feature) -> bool {
    use Feature::{Enriched, SenderEnd, UnknownSender, UnreadableOrigin};
    !matches!(feature, Enriched | SenderEnd | UnknownSender | UnreadableOrigin)
}

/// Returns whether two features exclude each other.
pub(super) fn are_exclusive(one: Feature, other: Feature) -> bool {
    use Feature::{
        BudgetEnforce, BudgetOff, BudgetTrack, Folding, Histogram, ManySeries, NativeBuckets,
        Summary,
    };
    let modes = [BudgetOff, BudgetTrack, BudgetEnforce];
    let is_without = |feature| matches!(feature, BudgetOff | BudgetTrack);
    let is_limiting = |feature| matches!(feature, BudgetEnforce | Folding);
    [Summary, Histogram] == [one, other]
        || [Summary, NativeBuckets] == [one, other]
        || modes.contains(&one) && modes.contains(&other)
        || is_without(one) && other == Folding
        || is_without(other) && one == Folding
        || is_limiting(one) && other == ManySeries
        || is_limiting(other) && one == ManySeries
}

/// Returns the names of the features of histories with a cluster, whose lines come over UDP to one worker, or over TCP.
fn names_with_cluster() -> impl Iterator<Item = &'static str> {
    use Feature::{
        ClockJump, DerivedName, ManySeries, ManyValues, Relay, RelayMoved, RelayRefused,
        TypeConflict, Udp, Unixgram, UnreadTags, Workers,
    };
    let others = [
        Udp,
        Unixgram,
        Workers,
        ClockJump,
        TypeConflict,
        DerivedName,
        Relay,
        RelayRefused,
        RelayMoved,
        UnreadTags,
        ManySeries,
        ManyValues,
    ];
    Feature::ALL.into_iter().filter(move |one| !others.contains(one)).map(Feature::as_str)
}

impl History {
    pub(super) fn used(&mut self, feature: Feature) {
        self.active.insert(feature, self.now);
    }

    /// Returns the features that have been in use lately.
    pub(crate) fn recent_features(&self) -> impl Iterator<Item = &'static str> {
        let recent = self.active.iter().filter(|(_, at)| self.now - **at <= TOGETHER);
        recent.map(|(feature, _)| feature).chain(&self.always).map(|feature| feature.as_str())
    }

    /// Returns the names of the features that histories with senders may use.
    pub(crate) fn feature_names() -> impl Iterator<Item = &'static str> {
        names_with_cluster()
    }

    pub(super) fn count_pairs(&mut self) {
        if self.mapping.values.is_some() || self.mapping.series.is_some() {
            self.used(Feature::RuleLimits);
        }
        let recent = self.active.iter().filter(|(_, at)| self.now - **at <= TOGETHER);
        let mut together: Vec<Feature> = recent.map(|(feature, _)| *feature).collect();
        together.extend(&self.always);
        together.sort_unstable();
        for (at, one) in together.iter().enumerate() {
            self.outcome.pairs.extend(together[at + 1..].iter().map(|other| (*one, *other)));
        }
    }
}
