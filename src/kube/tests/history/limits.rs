//! Budgets of series and label values in a history (`--limit.…`), which are reloaded while objects come and go.
//!
//! A scrape may lack objects and fold labels, so a state of the cluster [fits](Fit) it if the rest is the same and as many
//! objects are missing as the process counts. Then:
//!
//! - No kind has more series, and no label more values, than its budget.
//! - An object is only missing, and a label is only folded, if the objects at the time exceeded a budget, and the cause is
//!   counted.
//! - A new object, or a new state of one, is shown at once if it fits into the budget, and its label is not folded.
//! - Missing objects return in time once there is room for one of them, and all of them without a budget.
//! - A kind of which nothing is missing is not listed for room.
//!
//! If objects of several shards are not shown, those count that are followed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use fastrand::Rng;
use tokio::time::Instant;

use super::checker::Fits;
use super::cluster::{KINDS, Kind, Scope};
use super::forms;
use super::object_limit::{IN_FLIGHT, Period, has_had};
use super::object_shards::ObjectShards;
use super::server::Server;
use super::snapshot::{Selected, Shown, Snapshot};
use crate::exposition::budget::{Budget, BudgetMode};
use crate::exposition::{Format, ScrapeQuery};
use crate::telemetry::{KubeMetrics, Recorder};
use crate::tests::{hash, time_bound};

/// The time within which objects return that a budget has left out, once there is room.
static RETURN: LazyLock<Duration> =
    LazyLock::new(|| time_bound("objects return when a budget has room for them"));
/// The time within which a reload of the budgets takes effect.
static RELOAD: LazyLock<Duration> =
    LazyLock::new(|| time_bound("lists after a reload of the options"));

/// The longest time from the deletion of an object until its room is free, without faults: that of a list in progress.
const FREED: Duration = Duration::from_secs(4);

/// The replacement of folded values.
pub const FOLDED: &str = "label_state=\"other\"";
/// The label whose values have a budget.
pub const LABELLED: &str = "label_state=\"";

/// The part of a state of the cluster that a scrape does not show.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Fit {
    /// The series of the missing objects.
    pub missing: Vec<String>,
    /// The series whose label is folded.
    pub folded: Vec<String>,
}

/// Returns the labels of a series that identify its object.
pub fn identity(line: &str) -> &str {
    let labels = line.split_once('{').map_or(line, |(_, labels)| labels);
    let ends = [",key=", ",label_state=", ",phase=", ",type=", "}"];
    let end = ends.iter().filter_map(|end| labels.find(end)).min();
    &labels[..end.unwrap_or(labels.len())]
}

fn identities<'l>(lines: impl IntoIterator<Item = &'l String>) -> BTreeSet<&'l str> {
    lines.into_iter().map(|line| identity(line)).collect()
}

impl Fit {
    /// Compares a state with sorted lines of a scrape that lacks this number of the selected objects, or any if it is unknown;
    /// `None` if it does not fit.
    pub fn of(
        snapshot: &Snapshot,
        shown: &Shown<'_>,
        selected: Selected,
        missing: Option<u64>,
    ) -> Option<Self> {
        if !shown.may_be_of(snapshot) {
            return None;
        }
        let lines = &shown.lines[..];
        let (folded, exact): (Vec<&str>, Vec<&str>) =
            lines.iter().partition(|line| line.contains(FOLDED));
        let mut exact = exact.into_iter().peekable();
        let states = snapshot.series().map(|(line, owner)| (line, selected.shows(owner)));
        let wanted = states.filter(|(_, shows)| *shows != Some(false));
        let is_missing =
            |(line, _): &(&String, Option<bool>)| exact.next_if(|next| next == line).is_none();
        let mut rest: Vec<(&String, Option<bool>)> = wanted.filter(is_missing).collect();
        if exact.next().is_some() {
            return None;
        }
        let mut fit = Self::default();
        for line in folded {
            let (prefix, _) = line.split_once("other\"")?;
            let at = rest.iter().position(|(line, _)| line.starts_with(prefix))?;
            fit.folded.push(rest.remove(at).0.clone());
        }
        let shown: BTreeSet<&str> = lines.iter().map(|line| identity(line)).collect();
        if !identities(rest.iter().map(|(line, _)| *line)).is_disjoint(&shown) {
            return None;
        }
        // What need not be shown may have been left out before, but is not missing.
        let (wanted, optional): (Vec<_>, Vec<_>) =
            rest.into_iter().partition(|(_, shows)| *shows == Some(true));
        let count = |lines: &[(&String, Option<bool>)]| {
            identities(lines.iter().map(|(line, _)| *line)).len() as u64
        };
        let gone = count(&wanted);
        if missing.is_some_and(|missing| !(gone..=gone + count(&optional)).contains(&missing)) {
            return None;
        }
        fit.missing = wanted.into_iter().map(|(line, _)| line.clone()).collect();
        Some(fit)
    }
}

/// The budgets of a history.
pub struct Limits {
    rng: Rng,
    /// The limit of the values of a label is below this number.
    most_values: u64,
    /// All budgets so far, with the times from which they were configured.
    budgets: Vec<(Instant, Arc<Budget>)>,
    /// The periods in which scrapes may have been stale.
    stale: Vec<(Instant, Instant)>,
    /// The time since which there has been room for a missing object of a kind.
    room: BTreeMap<Kind, Instant>,
    /// The times since which the cluster has had the missing and the folded series, by their hashes.
    first_seen: BTreeMap<u64, Instant>,
    /// The time of the last scrape.
    last: Instant,
    /// The time in which a kind has been complete and within the limit.
    complete: BTreeMap<Kind, Period>,
    metrics: KubeMetrics,
}

impl Limits {
    /// A shard has few objects, so its budgets are small.
    pub fn new(seed: u64, metrics: &KubeMetrics, has_shards: bool) -> Self {
        let most_values = if has_shards { 12 } else { 30 };
        let rng = Rng::with_seed(seed ^ 0x510e_527f_ade6_82d1);
        let (budgets, stale, room, first_seen, complete) = Default::default();
        let (metrics, last) = (metrics.clone(), Instant::now());
        let mut limits =
            Self { rng, most_values, budgets, stale, room, first_seen, last, complete, metrics };
        limits.reload();
        limits
    }

    /// Changes the budgets.
    pub fn reload(&mut self) -> Arc<Budget> {
        let rng = &mut self.rng;
        let mode = match rng.u32(0..6) {
            0 => BudgetMode::Off,
            1 => BudgetMode::Track,
            _ => BudgetMode::Enforce,
        };
        let limit = |rng: &mut Rng, range| if rng.u32(0..3) == 0 { 0 } else { rng.u64(range) };
        let (series_per_kind, values_per_label) =
            (limit(rng, 8..160), limit(rng, 3..self.most_values));
        let budget = Budget { mode, series_per_kind, values_per_label, ..Budget::default() };
        let budget = Arc::new(budget);
        self.budgets.push((Instant::now(), Arc::clone(&budget)));
        self.room.clear();
        budget
    }

    pub fn current(&self) -> Arc<Budget> {
        let (_, budget) = self.budgets.last().expect("the first one");
        Arc::clone(budget)
    }

    /// Returns the enforced budgets that may have been in force since a time, and whether others may have been.
    fn enforced_since(&self, from: Instant) -> (Vec<&Budget>, bool) {
        let ends = self.budgets.iter().skip(1).map(|(from, _)| self.in_force_from(*from));
        let ends = ends.chain([Instant::now()]);
        let since = self.budgets.iter().zip(ends).filter(|(_, end)| *end >= from);
        let all: Vec<&Budget> = since.map(|((_, budget), _)| &**budget).collect();
        let enforced = all.iter().filter(|budget| budget.mode == BudgetMode::Enforce);
        let enforced: Vec<&Budget> = enforced.copied().collect();
        let has_others = enforced.len() < all.len();
        (enforced, has_others)
    }

    /// Returns the time from which budgets are certainly in force, which a fault delays.
    fn in_force_from(&self, configured: Instant) -> Instant {
        let delay = |at: Instant, (begin, end): &(Instant, Instant)| {
            if *begin <= at { at.max(*end + *RELOAD) } else { at }
        };
        self.stale.iter().fold(configured + *RELOAD, delay)
    }

    /// Returns a time since which every decision about objects was made about those of later times.
    fn window(&self, since: Instant) -> Instant {
        let mut from = since;
        for (begin, end) in self.stale.iter().rev() {
            if *end + Duration::from_secs(2) >= from {
                from = from.min(*begin - Duration::from_secs(2));
            }
        }
        from
    }

    /// Notes whether a scrape may be stale.
    pub fn observe(&mut self, may_be_stale: bool) {
        let now = Instant::now();
        if !may_be_stale {
            return;
        }
        self.room.clear();
        match self.stale.last_mut() {
            Some((_, end)) if now - *end < Duration::from_secs(1) => *end = now,
            _ => self.stale.push((now, now)),
        }
    }

    /// Compares what is missing and folded with the budgets.
    ///
    /// # Errors
    /// Describes the difference.
    pub fn check(
        &mut self,
        snapshots: &BTreeMap<Scope, Vec<Snapshot>>,
        lines: &[&str],
        fits: &Fits,
        (shards, is_applied, server): (Option<&ObjectShards>, bool, &Server),
    ) -> Result<(), String> {
        let now = Instant::now();
        let last = std::mem::replace(&mut self.last, now);
        let is_changing = shards.is_some_and(|shards| shards.is_changing);
        let is_stale = self.stale.last().is_some_and(|(_, end)| *end == now);
        if is_changing {
            // Objects that are not shown yet need room, too.
            self.room.clear();
        }
        let (configured, _) = self.budgets.last().expect("the first one");
        if is_changing || is_stale || !is_applied || self.in_force_from(*configured) > now {
            self.complete.clear();
        }
        for kind in KINDS {
            let shown: Vec<&str> =
                lines.iter().copied().filter(|line| Kind::of_line(line) == Some(kind)).collect();
            let of_kind = || fits.iter().filter(|(scope, _)| scope.kind == kind);
            let mut fit = Fit {
                missing: of_kind().flat_map(|(_, fit)| fit.missing.iter().cloned()).collect(),
                folded: of_kind().flat_map(|(_, fit)| fit.folded.iter().cloned()).collect(),
            };
            let history: Vec<&[Snapshot]> = snapshots
                .iter()
                .filter(|(scope, _)| scope.kind == kind)
                .map(|(_, snapshots)| &snapshots[..])
                .collect();
            if is_changing {
                // Their number is unknown, and others may be on their way.
                let arrived = now.checked_sub(IN_FLIGHT).unwrap_or(now);
                fit.missing.retain(|line| !is_stale && has_had(&history, line, arrived));
            }
            let history = History { snapshots: &history, shards };
            self.check_kind(kind, &history, (&shown, is_applied), &fit)
                .and_then(|()| self.check_lists(kind, &history, &fit, (server, last)))
                .map_err(|why| format!("{kind:?}: {why}"))?;
        }
        Ok(())
    }

    fn check_kind(
        &mut self,
        kind: Kind,
        history: &History<'_>,
        (shown, is_applied): (&[&str], bool),
        fit: &Fit,
    ) -> Result<(), String> {
        let now = Instant::now();
        let (enforced, has_others) = self.enforced_since(now);
        let most = |limit: fn(&Budget) -> u64| {
            let limits = || enforced.iter().map(|budget| limit(budget));
            // Namespaces that still show the former configuration have budgets of their own.
            let is_limited = is_applied && !has_others && limits().all(|limit| limit > 0);
            limits().max().filter(|_| is_limited)
        };
        let values: BTreeSet<&str> = shown
            .iter()
            .filter(|line| !line.contains(FOLDED))
            .filter_map(|line| line.split_once(LABELLED)?.1.split_once('"'))
            .map(|(value, _)| value)
            .collect();
        for (what, count, most) in [
            ("series", shown.len(), most(|budget| budget.series_per_kind)),
            ("values", values.len(), most(|budget| budget.values_per_label)),
        ] {
            if most.is_some_and(|most| count as u64 > most) {
                return Err(format!("{count} {what}, limit {most:?}"));
            }
        }
        let most_series = most(|budget| budget.series_per_kind);
        if !fit.missing.is_empty() {
            // Each state of an object is decided about when it arrives, and again in each list.
            let arrived =
                newest_state(&fit.missing, |series| self.first_seen(series, history.snapshots));
            let decided = arrived.map_or(now, |arrived| arrived.min(now) - FREED);
            let from = self.window(decided.max(now - *RETURN));
            let (enforced, _) = self.enforced_since(from);
            let limit = smallest(&enforced, |budget| budget.series_per_kind);
            let demand = history.demand(from, limit);
            if demand <= limit {
                return Err(format!(
                    "{:?} is missing, although only {demand} series were wanted",
                    fit.missing
                ));
            }
            self.has_cause("refused", "series-per-kind", kind)
                .map_err(|why| format!("{:?} is missing, but {why}", fit.missing))?;
        }
        for line in &fit.folded {
            let since = self.first_seen(line, history.snapshots);
            let from = self.window(since - FREED);
            let (enforced, _) = self.enforced_since(from);
            let limit = smallest(&enforced, |budget| budget.values_per_label);
            let wanted = history.wanted_values(from, limit);
            if wanted <= limit {
                return Err(format!("{line} is folded, although there were only {wanted} values"));
            }
        }
        if !fit.folded.is_empty() {
            self.has_cause("folded", "values-per-label", kind)?;
        }
        let room = most_series.map(|limit| limit.saturating_sub(shown.len() as u64));
        match room {
            Some(room) if smallest_object(&fit.missing).is_some_and(|series| series <= room) => {
                let since = *self.room.entry(kind).or_insert(now);
                if now - since > *RETURN {
                    let seconds = (now - since).as_secs_f64();
                    return Err(format!(
                        "{:?} is missing, although there has been room for {seconds:.1} s",
                        fit.missing
                    ));
                }
            }
            _ => drop(self.room.remove(&kind)),
        }
        Ok(())
    }

    /// Checks that a complete kind is not listed for room.
    fn check_lists(
        &mut self,
        kind: Kind,
        history: &History<'_>,
        fit: &Fit,
        (server, last): (&Server, Instant),
    ) -> Result<(), String> {
        let (now, lists) = (Instant::now(), server.answered_lists(kind));
        let recent = last.checked_sub(IN_FLIGHT).unwrap_or(last);
        let (enforced, _) = self.enforced_since(recent);
        let limit = smallest(&enforced, |budget| budget.series_per_kind);
        if !fit.missing.is_empty() || history.demand(recent, limit) > limit {
            self.complete.remove(&kind);
            return Ok(());
        }
        let complete = *self.complete.entry(kind).or_insert(Period { since: now, lists });
        // A list/watch that has left objects out notices once that they are gone, or have changed and are shown.
        let more = lists - complete.lists;
        if more > history.snapshots.len() as u64 {
            let seconds = (now - complete.since).as_secs();
            return Err(format!("{more} lists in {seconds} s, although nothing is left out"));
        }
        Ok(())
    }

    /// Returns the time since which the cluster has had a series.
    fn first_seen(&mut self, line: &str, history: &[&[Snapshot]]) -> Instant {
        let series = hash(line.as_bytes());
        *self.first_seen.entry(series).or_insert_with(|| {
            let all = history.iter().flat_map(|snapshots| snapshots.iter());
            let mut having = all.filter(|snapshot| snapshot.has(series));
            having.next().map_or_else(Instant::now, |snapshot| snapshot.since)
        })
    }

    /// Checks that a cause has been counted for a kind.
    fn has_cause(&self, action: &str, limit: &str, kind: Kind) -> Result<(), String> {
        let mut recorder = Recorder::default();
        self.metrics.register(&mut recorder);
        let body = forms::text(&recorder.finish(), Format::Text, &ScrapeQuery::default());
        let values = [action, limit, &resource(kind)].map(|value| format!("\"{value}\""));
        let is_cause = |line: &str| {
            line.starts_with("kstatd_kubernetes_over_budget_total{")
                && values.iter().all(|value| line.contains(value))
        };
        if String::from_utf8_lossy(&body).lines().any(is_cause) {
            return Ok(());
        }
        Err(format!("{action} because of {limit} is not counted"))
    }
}

/// Returns the time since which the cluster has had the present state of the object that changed last, by the time since
/// which it has had each series; `None` without objects.
fn newest_state(lines: &[String], mut first_seen: impl FnMut(&str) -> Instant) -> Option<Instant> {
    let mut states: BTreeMap<&str, Instant> = BTreeMap::new();
    for line in lines {
        let since = first_seen(line);
        let state = states.entry(identity(line)).or_insert(since);
        *state = since.max(*state);
    }
    states.into_values().max()
}

/// Returns the limit of the series of totals and workloads, 0 for none.
pub fn max_rows(seed: u64) -> u64 {
    let mut rng = Rng::with_seed(seed ^ 0x2f42_d3c8_71e6_40a9);
    if rng.bool() { 0 } else { rng.u64(10..60) }
}

/// Returns the number of series of the object with the fewest; `None` without objects.
fn smallest_object(lines: &[String]) -> Option<u64> {
    let mut objects: BTreeMap<&str, u64> = BTreeMap::new();
    for line in lines {
        *objects.entry(identity(line)).or_default() += 1;
    }
    objects.into_values().min()
}

/// Returns the smallest limit of these budgets.
fn smallest(budgets: &[&Budget], limit: fn(&Budget) -> u64) -> u64 {
    let limits = budgets.iter().map(|budget| limit(budget)).filter(|limit| *limit > 0);
    limits.min().unwrap_or(u64::MAX)
}

/// Returns the name of a kind in the own metrics.
pub fn resource(kind: Kind) -> String {
    match kind {
        Kind::Widget => "widgets.v1.example.com".to_owned(),
        kind => format!("*v1.{}", kind.name()),
    }
}

/// Returns all states since a time.
pub fn states_since<'h>(
    history: &[&'h [Snapshot]],
    from: Instant,
) -> impl Iterator<Item = &'h Snapshot> {
    let since = move |snapshots: &&'h [Snapshot]| {
        let end = snapshots.partition_point(|snapshot| snapshot.since <= from);
        &snapshots[end.saturating_sub(1)..]
    };
    history.iter().flat_map(since)
}

/// The states of a kind, and the shards whose objects are followed, if not all are.
struct History<'h> {
    snapshots: &'h [&'h [Snapshot]],
    shards: Option<&'h ObjectShards>,
}

impl History<'_> {
    /// Returns whether objects have been followed since a time, by the hashes of their UIDs.
    fn followed_since(&self, from: Instant) -> impl Fn(u64) -> bool {
        let is_of_shards = self.shards.map(|shards| shards.followed_since(from));
        move |uid| is_of_shards.as_ref().is_none_or(|is_of_shards| is_of_shards(uid))
    }

    /// Returns the number of values of the label with a budget in all states since a time, or one that exceeds the limit.
    fn wanted_values(&self, from: Instant, limit: u64) -> u64 {
        let is_followed = self.followed_since(from);
        let mut wanted: BTreeSet<u64> = BTreeSet::new();
        for snapshot in states_since(self.snapshots, from) {
            let labelled = snapshot.labelled.iter().filter(|(uid, _)| is_followed(*uid));
            wanted.extend(labelled.map(|(_, value)| value));
            if wanted.len() as u64 > limit {
                break;
            }
        }
        wanted.len() as u64
    }

    /// Returns the sum of the largest numbers of series that each object had since a time, or one that exceeds the limit. An
    /// object that replaces another one of the same name is counted in addition to it, because the process keeps both until a list
    /// shows that the other one is gone.
    fn demand(&self, from: Instant, limit: u64) -> u64 {
        let is_followed = self.followed_since(from);
        let (mut largest, mut sum): (BTreeMap<u64, u64>, u64) = (BTreeMap::new(), 0);
        let states = states_since(self.snapshots, from).flat_map(|state| state.objects.iter());
        for (object, series) in states.filter(|(uid, _)| is_followed(*uid)) {
            let known = largest.entry(*object).or_default();
            sum += series.saturating_sub(*known);
            *known = (*known).max(*series);
            if sum > limit {
                break;
            }
        }
        sum
    }
}
