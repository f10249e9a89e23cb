//! The series and label budgets of one kind (`--limit.…`).
//!
//! An object that would exceed `--limit.series-per-kind` is rejected: it has no series. User-defined labels and the
//! families of custom resources are limited by [`labels`](super::labels). Both budgets count current objects only, so that
//! deletions make room. Known objects take precedence over new ones, also during a relist.
//!
//! An object of a kind that is far below its budgets costs two comparisons. Label values are only counted when the kind
//! has more objects (or series, for custom resources) than the smallest label budget.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::handover::{CollectedObjects, CurrentObjects, ServedObjects};
use super::labels::{Exceeded, RejectedSeries, Room, Rules, Table, Wanted};
use super::rejected_set::RejectedSet;
use crate::cache::{ObjectView, Rendered};
use crate::exposition::budget::{self, Action, Budget, BudgetMode, Limit};
use crate::resources::Renderer;
use crate::telemetry::KubeMetrics;
use crate::util::lock::Lock;
use crate::util::log_limit::LogLimit;
use crate::util::work_counter;

#[cfg(test)]
mod tests;

/// The time after the beginning or end of a list for which the label value counts of a small kind are kept. The lists of many
/// namespaces follow each other, and each would have to visit all objects to count them again.
const TABLE_KEPT: Duration = Duration::from_secs(60);

/// The budgets of one kind, for all its list/watches together.
pub(crate) struct KindBudget {
    mode: BudgetMode,
    /// The maximum number of series of all objects; 0 means unlimited.
    max_series: u64,
    rules: Option<Rules>,
    /// The resource name in our own metrics.
    resource: String,
    metrics: KubeMetrics,
    state: Lock<State>,
}

struct State {
    members: Vec<Member>,
    /// The number of members with a list in progress.
    lists: usize,
    /// The total of `objects` of all members.
    objects: u64,
    series: u64,
    /// The total of what all members claim.
    claims: BTreeMap<Room, u64>,
    /// The label value counts; `None` while the kind is small enough to be within all budgets.
    table: Option<Table>,
    /// The table counts objects that are gone. It is dropped when no list is in progress.
    stale: bool,
    /// When the last list that needs the table began or ended.
    listed_at: Option<tokio::time::Instant>,
    /// Limits log lines about exceeded budgets.
    log_limit: LogLimit,
}

/// The budget state of one list/watch.
#[derive(Default)]
struct Member {
    /// The objects of the list/watch, once it has started.
    served: Option<Arc<ServedObjects>>,
    /// The number of objects served or collected by a list in progress, whichever is larger.
    objects: u64,
    series: u64,
    /// The list in progress.
    collecting: Option<Collecting>,
    rejected: RejectedSeries,
    /// The number of series of the smallest rejected object.
    smallest_rejected: Option<u64>,
    /// The room for which it lists again, and which the others leave to it.
    claim: Option<(Room, u64)>,
}

impl Member {
    /// Calls [`Rules::update_overlap`] if a list is in progress.
    fn update_overlap(
        &mut self,
        counts: (&[u64], &[u64]),
        is_there: bool,
        rules: &Rules,
        table: &mut Table,
    ) {
        if let Some(Collecting { overlap, .. }) = &mut self.collecting {
            rules.update_overlap(counts, is_there, overlap, table);
        }
    }
}

/// The budget state of a list in progress.
struct Collecting {
    /// The number of series of the old state.
    old: u64,
    /// The number of series in the old state of objects that have been listed again.
    known: u64,
    /// The number of series that are in both states, by family with a label budget.
    overlap: Vec<u64>,
}

impl Collecting {
    /// Notes an object before it is added to the new state.
    fn note(&mut self, uid: &[u8], current: &CurrentObjects) {
        let is_collected = |collected: &CollectedObjects| collected.contains(uid);
        if self.old > 0 && !current.collected.as_ref().is_some_and(is_collected) {
            self.known += current.served.look(uid, |object| object.series()).unwrap_or_default();
        }
    }
}

impl KindBudget {
    /// Creates the budget of a kind with `members` list/watches; `None` without a budget.
    pub(crate) fn new(
        budget: &Budget,
        renderer: &dyn Renderer,
        (resource, metrics): (String, &KubeMetrics),
        members: usize,
    ) -> Option<Arc<Self>> {
        if budget.mode == BudgetMode::Off || renderer.schema().families.is_empty() {
            return None;
        }
        let rules = Rules::new(budget, &renderer.schema(), renderer.user_labels());
        let members = std::iter::repeat_with(Member::default).take(members).collect();
        let (lists, objects, series, claims, table, stale, listed_at, log_limit) =
            Default::default();
        let state =
            State { members, lists, objects, series, claims, table, stale, listed_at, log_limit };
        let state = Lock::new(state);
        let (mode, max_series, metrics) = (budget.mode, budget.series_per_kind, metrics.clone());
        Some(Arc::new(Self { mode, max_series, rules, resource, metrics, state }))
    }

    /// Registers a (re)started list/watch, with the objects that it already has.
    pub(crate) fn allowance(
        self: &Arc<Self>,
        number: usize,
        served: &Arc<ServedObjects>,
        rejected: &Arc<RejectedSet>,
    ) -> Allowance {
        let mut state = self.state.lock();
        if let Some(member) = state.members.get_mut(number) {
            member.served = Some(Arc::clone(served));
            if member.collecting.take().is_some() {
                state.lists -= 1;
                // The table counts what the former task has collected.
                state.drop_table();
            }
        }
        drop(state);
        let kind = Arc::clone(self);
        let allowance = Allowance { kind, number, rejected: Arc::clone(rejected) };
        allowance.set_size(served.store.len() as u64, served.store.series());
        allowance
    }

    /// Drops the label value counts after objects have changed otherwise than through [`Allowance`]. They are rebuilt
    /// when needed.
    pub(crate) fn drop_counts(&self) {
        self.state.lock().drop_table();
    }

    fn enforces(&self) -> bool {
        self.mode == BudgetMode::Enforce
    }
}

impl State {
    /// Drops the table, or marks it as stale while a list is in progress: only the table has the counts of objects that
    /// other list/watches are collecting. A stale table counts too much rather than too little.
    fn drop_table(&mut self) {
        self.stale = self.lists > 0;
        if !self.stale {
            self.table = None;
        }
    }
}

/// The share of one list/watch in a [`KindBudget`].
pub(crate) struct Allowance {
    kind: Arc<KindBudget>,
    number: usize,
    rejected: Arc<RejectedSet>,
}

impl Allowance {
    /// Sets the counts of the list/watch: served or being collected, whichever is larger.
    pub(crate) fn set_size(&self, objects: u64, series: u64) {
        let mut state = self.kind.state.lock();
        let Some(member) = state.members.get_mut(self.number) else { return };
        let before = (
            std::mem::replace(&mut member.objects, objects),
            std::mem::replace(&mut member.series, series),
        );
        state.objects = (state.objects + objects).saturating_sub(before.0);
        state.series = (state.series + series).saturating_sub(before.1);
        if let Some(rules) = &self.kind.rules
            && state.table.is_some()
            && state.lists == 0
            && rules.population(state.objects, state.series) < rules.safe_population() / 2
            && state.listed_at.is_none_or(|at| at.elapsed() >= TABLE_KEPT)
        {
            state.drop_table();
        }
    }

    /// Starts a new list, which receives all objects again.
    pub(crate) fn begin_list(&self, current: &mut CurrentObjects) {
        self.rejected.collect();
        let mut state = self.kind.state.lock();
        // With several list/watches, each sees what the others collect only in the table. Series in both the old state and the new
        // one count once only if the table is there before they are collected.
        let is_needed = |rules: &&Rules| {
            state.members.len() > 1 || rules.counts_series() && current.served.len() > 0
        };
        if let Some(rules) = self.kind.rules.as_ref().filter(is_needed) {
            state.listed_at = Some(tokio::time::Instant::now());
            if state.table.is_none() {
                state.table = Some(self.count_labels(&state, rules, current));
            }
        }
        let Some(member) = state.members.get_mut(self.number) else { return };
        let old = current.served.series();
        let begun = Collecting { old, known: 0, overlap: Vec::new() };
        let is_first = member.collecting.replace(begun).is_none();
        (member.rejected, member.smallest_rejected) = (RejectedSeries::default(), None);
        state.lists += usize::from(is_first);
    }

    /// Ends a list, before the collected objects become the served state (`commits`) or are dropped.
    pub(crate) fn end_list(&self, current: &mut CurrentObjects, commits: bool) {
        self.rejected.settle(commits);
        let state = &mut *self.kind.state.lock();
        let Some(member) = state.members.get_mut(self.number) else { return };
        if let Some((room, claimed)) = member.claim.take() {
            let before = state.claims.remove(&room).unwrap_or_default();
            if before > claimed {
                state.claims.insert(room, before - claimed);
            }
        }
        let Some(collecting) = member.collecting.take() else { return };
        state.lists -= 1;
        state.listed_at = state.listed_at.map(|_| tokio::time::Instant::now());
        if let (Some(rules), Some(table)) = (&self.kind.rules, &mut state.table) {
            rules.end_overlap(&collecting.overlap, table);
            let remove = |object: ObjectView<'_>| rules.count(object, false, table);
            match &mut current.collected {
                _ if commits => current.served.each(remove),
                Some(collected) => collected.each(remove),
                None => {}
            }
        }
        // Objects that move between shards may be hidden or dropped on commit.
        if state.stale || current.collected.as_ref().is_some_and(|collected| collected.hidden() > 0)
        {
            state.drop_table();
        }
    }

    /// Resets the counts after all objects were removed.
    pub(crate) fn clear(&self) {
        self.rejected.clear();
        self.kind.drop_counts();
    }

    /// Returns whether there is room for a rejected object. The list/watch is then to list again, and the others leave the room
    /// to it until its list ends.
    pub(crate) fn claim_room(&self) -> bool {
        let state = &mut *self.kind.state.lock();
        let Some(member) = state.members.get_mut(self.number) else { return false };
        if member.claim.is_none() {
            let of_kind = member.smallest_rejected.map(|least| Wanted {
                room: Room::Kind,
                least,
                used: state.series,
                limit: self.kind.max_series,
            });
            let rules = self.kind.rules.iter();
            let of_labels =
                rules.flat_map(|rules| rules.wanted(&member.rejected, state.table.as_ref()));
            let mut wanted = of_kind.into_iter().chain(of_labels);
            let is_free = |wanted: &Wanted| {
                let claimed = state.claims.get(&wanted.room).copied().unwrap_or_default();
                wanted.used + claimed + wanted.least <= wanted.limit
            };
            if let Some(Wanted { room, least, .. }) = wanted.find(is_free) {
                member.claim = Some((room, least));
                *state.claims.entry(room).or_default() += least;
            }
        }
        member.claim.is_some()
    }

    /// Removes an object from the counts.
    pub(crate) fn remove(&self, uid: &[u8], current: &mut CurrentObjects) {
        self.rejected.remove(current.served.store.key(uid));
        let state = &mut *self.kind.state.lock();
        let (Some(rules), Some(table)) = (&self.kind.rules, &mut state.table) else { return };
        let mut now = None;
        current.look(uid, |object| {
            now = Some(rules.counts(object));
            rules.count(object, false, table);
        });
        let member = state.members.get_mut(self.number);
        if let (Some(member), Some(now)) = (member, now) {
            let before = current.served.look(uid, |object| rules.counts(object));
            member.update_overlap((&before.unwrap_or_default(), &now), false, rules, table);
        }
    }

    /// Applies the budgets to an object; false if it is rejected.
    pub(crate) fn admit(&self, object: &mut Rendered, current: &mut CurrentObjects) -> bool {
        let mut state = self.kind.state.lock();
        if self.is_within_budgets(&state, object, current) {
            let member = state.members.get_mut(self.number);
            if let Some(collecting) = member.and_then(|member| member.collecting.as_mut()) {
                collecting.note(&object.uid, current);
            }
            drop(state);
            self.rejected.remove(current.served.store.key(&object.uid));
            return true;
        }
        let mut exceeded = Vec::new();
        let has_series = self.apply_budgets(&mut state, object, current, &mut exceeded);
        let key = current.served.store.key(&object.uid);
        if has_series {
            self.rejected.remove(key);
        } else {
            self.rejected.insert(key, &object.namespace);
        }
        if !exceeded.is_empty() {
            self.report(&mut state, object, &exceeded);
        }
        has_series
    }

    /// Returns whether the object is within all budgets by counts alone.
    fn is_within_budgets(
        &self,
        state: &State,
        object: &Rendered,
        current: &CurrentObjects,
    ) -> bool {
        let series = u64::from(object.series);
        let Some(member) = state.members.get(self.number) else { return true };
        if self.kind.max_series > 0 {
            let old = member.collecting.as_ref().map_or(0, |collecting| collecting.old);
            let others = state.series - member.series;
            if others + old + current.series() + series > self.kind.max_series {
                return false;
            }
        }
        let Some(rules) = &self.kind.rules else { return true };
        state.table.is_none()
            && self.population(state, rules, object, current) <= rules.safe_population()
            && !rules.may_be_long(object)
    }

    /// Returns the population with the object. During a list the values of the old state keep their places, so it counts
    /// the old state and the new one; `state` has the larger of both.
    fn population(
        &self,
        state: &State,
        rules: &Rules,
        object: &Rendered,
        current: &CurrentObjects,
    ) -> u64 {
        let (objects, series) = match current.collected {
            Some(_) => (current.served.len() as u64, current.served.series()),
            None => (0, 0),
        };
        let added = u64::from(object.series);
        rules.population(state.objects + objects + 1, state.series + series + added)
    }

    /// Applies the budgets to an object whose counts need a closer look; false if it is rejected.
    fn apply_budgets(
        &self,
        state: &mut State,
        object: &mut Rendered,
        current: &mut CurrentObjects,
        exceeded: &mut Vec<Exceeded>,
    ) -> bool {
        let uid = object.uid.clone();
        let rules = self.kind.rules.as_ref();
        if let Some(rules) = rules.filter(|_| state.table.is_none())
            && self.population(state, rules, object, current) > rules.safe_population()
        {
            state.table = Some(self.count_labels(state, rules, current));
        }
        let State { members, table, series, .. } = state;
        let Some(member) = members.get_mut(self.number) else { return true };
        let mut labels = rules.zip(table.as_mut());
        let (mut old, mut counts) = (0, Vec::new());
        current.look(&uid, |kept| {
            old = kept.series();
            if let Some((rules, table)) = &mut labels {
                counts = rules.counts(kept);
                rules.count(kept, false, table);
            }
        });
        let known = member.collecting.is_some() && current.served.contains(&uid);
        let mut before = Vec::new();
        if let Some((rules, table)) = &mut labels {
            let look = |kept: ObjectView<'_>| rules.counts(kept);
            before = current.served.look(&uid, look).filter(|_| known).unwrap_or_default();
            member.update_overlap((&before, &counts), false, rules, table);
            counts = rules.counts(ObjectView::from(&*object));
            member.update_overlap((&before, &counts), true, rules, table);
        }
        let mut rejected = RejectedSeries::default();
        if let Some(rules) = rules {
            let table = labels.as_mut().map(|(_, table)| &mut **table);
            rules.apply_budgets(object, table, &mut rejected, exceeded);
        }
        if let Some((rules, table)) = &mut labels {
            member.update_overlap((&before, &counts), false, rules, table);
            counts = rules.counts(ObjectView::from(&*object));
            member.update_overlap((&before, &counts), true, rules, table);
        }
        let new = u64::from(object.series);
        let others = *series - member.series;
        // Room is reserved for known objects that the list has not reached yet.
        let kept = member.collecting.as_ref().filter(|_| !known);
        let kept = kept.map_or(0, |collecting| collecting.old.saturating_sub(collecting.known));
        let fits = self.kind.max_series == 0
            || others + (current.series() + new).saturating_sub(old) + kept <= self.kind.max_series;
        if !fits {
            let (limit, action) = (Limit::SeriesPerKind, Action::Refused);
            exceeded.push(Exceeded { family: None, label: String::new(), limit, action });
        }
        if fits || !self.kind.enforces() {
            member.rejected.merge(rejected);
            if let Some(collecting) = &mut member.collecting {
                collecting.note(&uid, current);
            }
            return true;
        }
        member.smallest_rejected =
            Some(member.smallest_rejected.map_or(new, |smallest| smallest.min(new)));
        if let Some((rules, table)) = &mut labels {
            member.update_overlap((&before, &counts), false, rules, table);
            rules.count(ObjectView::from(&*object), false, table);
        }
        false
    }

    /// Counts the label values of all objects of the kind.
    fn count_labels(&self, state: &State, rules: &Rules, current: &mut CurrentObjects) -> Table {
        let mut table = rules.table();
        let mut see = |object: ObjectView<'_>| {
            work_counter::add(1);
            rules.count(object, true, &mut table);
        };
        for served in state.members.iter().filter_map(|member| member.served.as_ref()) {
            work_counter::add(1);
            served.each(&mut see);
        }
        if let Some(collected) = &mut current.collected {
            collected.each(see);
        }
        table
    }

    /// Counts exceeded budgets in the metrics and logs them at most once a minute.
    #[cold]
    fn report(&self, state: &mut State, object: &Rendered, exceeded: &[Exceeded]) {
        let kind = &self.kind;
        let name = |exceeded: &Exceeded| {
            let rules = exceeded.family.and_then(|family| Some((kind.rules.as_ref()?, family)));
            rules.map_or("", |(rules, family)| rules.name(family))
        };
        let action = |exceeded: &Exceeded| match exceeded.action {
            _ if !kind.enforces() => Action::Tracked,
            action => action,
        };
        let mut times: BTreeMap<[&str; 4], u64> = BTreeMap::new();
        for exceeded in exceeded {
            let labels = [
                action(exceeded).as_str(),
                &*exceeded.label,
                exceeded.limit.as_str(),
                name(exceeded),
            ];
            *times.entry(labels).or_default() += 1;
        }
        for (labels, times) in times {
            kind.metrics.over_budget(labels, &kind.resource, times);
        }
        let Some(first) = exceeded.first() else { return };
        if state.log_limit.add(1, Instant::now()).is_none() {
            return;
        }
        tracing::warn!(
            resource = kind.resource,
            metric = name(first),
            label = first.label,
            limit = first.limit.as_str(),
            action = action(first).as_str(),
            object = %String::from_utf8_lossy(object.identity.strip_prefix(b"{").unwrap_or_default()),
            left_out = self.rejected.len(),
            "Objects go beyond a budget ({})",
            budget::displayed(first.limit.as_str())
        );
    }
}
