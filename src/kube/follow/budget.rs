//! The budgets of a kind: which of its objects have series, and with which labels.
//!
//! An object that would take its kind beyond `--limit.series-per-kind` has no series at all; of labels that people chose
//! and of families of custom resources decides the [table](super::labels). Both look at what is there at that moment, so
//! that what goes makes room. What is there already goes before what is new, also when a kind is listed anew.
//!
//! Within the budgets an object costs two comparisons: text is only looked at for kinds that are as large as a label may
//! have values, and objects are only looked for where they may not fit.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::handover::{Handover, Passing};
use super::labels::{Beyond, Missed, Rules, Table};
use super::left_out::LeftOut;
use crate::cache::{Kept, Rendered, Replacement, Store};
use crate::exposition::budget::{Action, Budget, BudgetMode, Limit};
use crate::resources::Renderer;
use crate::telemetry::KubeMetrics;

/// How often the log tells of a kind.
const TELL_EVERY: Duration = Duration::from_secs(60);

/// The budgets of one kind, for all its list/watches together.
pub(crate) struct KindBudget {
    mode: BudgetMode,
    /// Most series of all objects, 0 for any number.
    most: u64,
    rules: Option<Rules>,
    /// As own metrics call it.
    resource: String,
    metrics: KubeMetrics,
    state: Mutex<State>,
}

struct State {
    members: Vec<Member>,
    /// What they have together.
    objects: u64,
    series: u64,
    /// Of kinds that are large enough for it.
    table: Option<Table>,
    /// Whether the table has what is there no more: it goes when nobody collects.
    stale: bool,
    told: Option<Instant>,
}

#[derive(Default)]
struct Member {
    /// Where its objects are, once it has begun.
    kept: Option<(Arc<Store>, Arc<Handover>)>,
    /// Shown or being collected, whichever is more.
    objects: u64,
    series: u64,
    /// While a new state is collected.
    collecting: Option<Collecting>,
    missed: Missed,
    /// Series of the smallest object that was left out.
    least: Option<u64>,
}

impl Member {
    /// As [`Rules::came`], while a new state is collected.
    fn came(&mut self, counts: (&[u64], &[u64]), is_there: bool, rules: &Rules, table: &mut Table) {
        if let Some(Collecting { again, .. }) = &mut self.collecting {
            rules.came(counts, is_there, again, table);
        }
    }
}

struct Collecting {
    /// Series of the old state.
    old: u64,
    /// Whether both states together may be too many, so that it matters which objects are known.
    near: bool,
    /// Series of known objects that came.
    known: u64,
    /// Series of open families that are in both states.
    again: Vec<u64>,
}

/// The state that objects of a list/watch belong to at a moment.
pub(crate) struct Present<'p> {
    pub(crate) collected: Option<&'p mut Replacement>,
    pub(crate) passing: &'p mut Passing,
    pub(crate) store: &'p Store,
    pub(crate) handover: &'p Handover,
}

impl Present<'_> {
    /// Shows the object with this uid, if it is there.
    fn look(&mut self, uid: &[u8], see: &mut dyn FnMut(Kept<'_>)) {
        match &mut self.collected {
            Some(collected) => {
                if collected.look(uid, &mut *see).is_none() {
                    self.passing.look(uid, see);
                }
            }
            None => {
                if self.store.look(uid, &mut *see).is_none() {
                    self.handover.look(uid, see);
                }
            }
        }
    }

    /// Shows all objects of the state that is being collected, or of the old one.
    fn each(&mut self, collected: bool, mut see: impl FnMut(Kept<'_>)) {
        match (&mut self.collected, collected) {
            (Some(collected), true) => {
                collected.each(&mut see);
                self.passing.each(see);
            }
            (None, true) => {}
            (_, false) => {
                self.store.each(&mut see);
                self.handover.each(see);
            }
        }
    }

    /// Whether the old state has an object.
    fn is_known(&self, uid: &[u8]) -> bool {
        self.store.contains(uid) || self.handover.hides(uid)
    }

    fn series(&self) -> u64 {
        match &self.collected {
            Some(collected) => collected.series() + self.passing.series(),
            None => self.old_series(),
        }
    }

    fn old_series(&self) -> u64 {
        self.store.series() + self.handover.hidden_series()
    }
}

impl KindBudget {
    /// For so many list/watches; `None` where there is no budget.
    pub(crate) fn new(
        budget: &Budget,
        renderer: &dyn Renderer,
        (resource, metrics): (String, &KubeMetrics),
        members: usize,
    ) -> Option<Arc<Self>> {
        if budget.mode == BudgetMode::Off || renderer.follower().is_some() {
            return None;
        }
        let rules = Rules::new(budget, &renderer.schema(), renderer.open());
        let members = std::iter::repeat_with(Member::default).take(members).collect();
        let (objects, series, table, stale, told) = (0, 0, None, false, None);
        let state = Mutex::new(State { members, objects, series, table, stale, told });
        let (mode, most, metrics) = (budget.mode, budget.series_per_kind, metrics.clone());
        Some(Arc::new(Self { mode, most, rules, resource, metrics, state }))
    }

    /// The part of one list/watch.
    pub(crate) fn allowance(
        self: &Arc<Self>,
        number: usize,
        (store, handover): (&Arc<Store>, &Arc<Handover>),
        left_out: &Arc<LeftOut>,
    ) -> Allowance {
        let mut state = self.lock();
        if let Some(member) = state.members.get_mut(number) {
            member.kept = Some((Arc::clone(store), Arc::clone(handover)));
            member.collecting = None;
        }
        drop(state);
        let kind = Arc::clone(self);
        let allowance = Allowance { kind, number, left_out: Arc::clone(left_out) };
        let (objects, series) = (store.len(), store.series());
        allowance.keeps(objects as u64, series);
        allowance
    }

    /// What is shown has changed by itself: what is counted of labels is counted anew when it is needed.
    pub(crate) fn forget(&self) {
        self.lock().drop_table();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn enforces(&self) -> bool {
        self.mode == BudgetMode::Enforce
    }
}

impl State {
    /// Values are to be counted anew when it matters. What others are collecting stands in the table alone, so that it
    /// stays as long as they do, and counts too much rather than too little.
    fn drop_table(&mut self) {
        self.stale = self.members.iter().any(|member| member.collecting.is_some());
        if !self.stale {
            self.table = None;
        }
    }
}

/// What one list/watch has of a [`KindBudget`].
pub(crate) struct Allowance {
    kind: Arc<KindBudget>,
    number: usize,
    left_out: Arc<LeftOut>,
}

impl Allowance {
    /// Notes what there is: shown or being collected, whichever is more.
    pub(crate) fn keeps(&self, objects: u64, series: u64) {
        let mut state = self.kind.lock();
        let Some(member) = state.members.get_mut(self.number) else { return };
        let before = (
            std::mem::replace(&mut member.objects, objects),
            std::mem::replace(&mut member.series, series),
        );
        state.objects = (state.objects + objects).saturating_sub(before.0);
        state.series = (state.series + series).saturating_sub(before.1);
        if let Some(rules) = &self.kind.rules
            && state.table.is_some()
            && state.members.iter().all(|member| member.collecting.is_none())
            && rules.population(state.objects, state.series) < rules.harmless() / 2
        {
            state.drop_table();
        }
    }

    /// A new list begins, which sees everything again.
    pub(crate) fn begins(&self, present: &mut Present<'_>) {
        self.left_out.collect();
        let mut state = self.kind.lock();
        // What one of several collects the others do not see but in the table.
        if let Some(rules) = self.kind.rules.as_ref().filter(|_| state.members.len() > 1)
            && state.table.is_none()
        {
            state.table = Some(self.gather(&state, rules, present));
        }
        let (series, old) = (state.series, present.old_series());
        let near = self.kind.most > 0 && series + old > self.kind.most;
        let Some(member) = state.members.get_mut(self.number) else { return };
        member.collecting = Some(Collecting { old, near, known: 0, again: Vec::new() });
        (member.missed, member.least) = (Missed::default(), None);
    }

    /// What was collected is about to become the state, or to be dropped.
    pub(crate) fn settles(&self, present: &mut Present<'_>, commits: bool) {
        self.left_out.settle(commits);
        let mut state = self.kind.lock();
        let Some(member) = state.members.get_mut(self.number) else { return };
        let Some(collecting) = member.collecting.take() else { return };
        if let (Some(rules), Some(table)) = (&self.kind.rules, &mut state.table) {
            rules.replaced(&collecting.again, table);
            let part = |object: Kept<'_>| rules.part(object, table);
            present.each(!commits, part);
        }
        // What passes is not all shown or not all kept.
        if state.stale || !present.passing.is_empty() {
            state.drop_table();
        }
    }

    /// Everything that is shown is gone.
    pub(crate) fn clears(&self) {
        self.left_out.clear();
        self.kind.forget();
    }

    /// Whether there is room for something that was left out.
    pub(crate) fn wants_list(&self) -> bool {
        let state = self.kind.lock();
        let Some(member) = state.members.get(self.number) else { return false };
        let fits = |least: u64| state.series + least <= self.kind.most;
        let rules = self.kind.rules.as_ref();
        member.least.is_some_and(fits)
            || rules.is_some_and(|rules| rules.has_room(&member.missed, state.table.as_ref()))
    }

    /// An object goes.
    pub(crate) fn goes(&self, uid: &[u8], present: &mut Present<'_>) {
        self.left_out.forget(present.store.key(uid));
        let state = &mut *self.kind.lock();
        let (Some(rules), Some(table)) = (&self.kind.rules, &mut state.table) else { return };
        let mut now = None;
        present.look(uid, &mut |object| {
            now = Some(rules.counts(object));
            rules.part(object, table);
        });
        let member = state.members.get_mut(self.number);
        if let (Some(member), Some(now)) = (member, now) {
            let before = present.store.look(uid, |object| rules.counts(object));
            member.came((&before.unwrap_or_default(), &now), false, rules, table);
        }
    }

    /// Brings an object within the budgets; tells whether it has series.
    pub(crate) fn admits(&self, object: &mut Rendered, present: &mut Present<'_>) -> bool {
        let mut state = self.kind.lock();
        if self.is_harmless(&state, object, present) {
            drop(state);
            self.left_out.forget(present.store.key(&object.uid));
            return true;
        }
        let mut beyond = Vec::new();
        let has_series = self.contain(&mut state, object, present, &mut beyond);
        let key = present.store.key(&object.uid);
        if has_series {
            self.left_out.forget(key);
        } else {
            self.left_out.note(key, &object.namespace);
        }
        if !beyond.is_empty() {
            self.tell(&mut state, object, &beyond);
        }
        has_series
    }

    /// Whether the object is within all budgets, without a look at anything but numbers.
    fn is_harmless(&self, state: &State, object: &Rendered, present: &Present<'_>) -> bool {
        let series = u64::from(object.series);
        let Some(member) = state.members.get(self.number) else { return true };
        if self.kind.most > 0 {
            let old = member.collecting.as_ref().map_or(0, |collecting| collecting.old);
            let others = state.series - member.series;
            let near = member.collecting.as_ref().is_some_and(|collecting| collecting.near);
            if near || others + old + present.series() + series > self.kind.most {
                return false;
            }
        }
        let Some(rules) = &self.kind.rules else { return true };
        // Of both states, of which either may be the larger.
        let population = rules.population(state.objects + 1, state.series + series);
        state.table.is_none() && population <= rules.harmless() && !rules.may_be_long(object)
    }

    fn contain(
        &self,
        state: &mut State,
        object: &mut Rendered,
        present: &mut Present<'_>,
        beyond: &mut Vec<Beyond>,
    ) -> bool {
        let uid = object.uid.clone();
        let rules = self.kind.rules.as_ref();
        if let Some(rules) = rules.filter(|_| state.table.is_none()) {
            let series = state.series + u64::from(object.series);
            if rules.population(state.objects + 1, series) > rules.harmless() {
                state.table = Some(self.gather(state, rules, present));
            }
        }
        let State { members, table, series, .. } = state;
        let Some(member) = members.get_mut(self.number) else { return true };
        let mut labels = rules.zip(table.as_mut());
        let (mut old, mut counts) = (0, Vec::new());
        present.look(&uid, &mut |kept| {
            old = kept.series();
            if let Some((rules, table)) = &mut labels {
                counts = rules.counts(kept);
                rules.part(kept, table);
            }
        });
        let known = member.collecting.is_some() && present.is_known(&uid);
        let mut before = Vec::new();
        if let Some((rules, table)) = &mut labels {
            let look = |kept: Kept<'_>| rules.counts(kept);
            before = present.store.look(&uid, look).filter(|_| known).unwrap_or_default();
            member.came((&before, &counts), false, rules, table);
            counts = rules.counts(Kept::from(&*object));
            member.came((&before, &counts), true, rules, table);
        }
        if let Some(rules) = rules {
            let table = labels.as_mut().map(|(_, table)| &mut **table);
            rules.contain(object, table, &mut member.missed, beyond);
        }
        if let Some((rules, table)) = &mut labels {
            member.came((&before, &counts), false, rules, table);
            counts = rules.counts(Kept::from(&*object));
            member.came((&before, &counts), true, rules, table);
        }
        let new = u64::from(object.series);
        let others = *series - member.series;
        // Known objects that a list has not come to yet have their places.
        let kept = member.collecting.as_ref().filter(|_| !known);
        let kept = kept.map_or(0, |collecting| collecting.old.saturating_sub(collecting.known));
        let fits = self.kind.most == 0
            || others + (present.series() + new).saturating_sub(old) + kept <= self.kind.most;
        if !fits {
            let (limit, action) = (Limit::SeriesPerKind, Action::Refused);
            beyond.push(Beyond { family: None, label: String::new(), limit, action });
        }
        if fits || !self.kind.enforces() {
            if let Some(collecting) = member.collecting.as_mut().filter(|_| known && old == 0) {
                collecting.known += new;
            }
            return true;
        }
        member.least = Some(member.least.map_or(new, |least| least.min(new)));
        if let Some((rules, table)) = &mut labels {
            member.came((&before, &counts), false, rules, table);
            rules.part(Kept::from(&*object), table);
        }
        false
    }

    /// Counts the labels of everything that there is.
    fn gather(&self, state: &State, rules: &Rules, present: &mut Present<'_>) -> Table {
        let mut table = rules.table();
        let mut see = |object: Kept<'_>| rules.join(object, &mut table);
        for (store, handover) in state.members.iter().filter_map(|member| member.kept.as_ref()) {
            store.each(&mut see);
            handover.each(&mut see);
        }
        present.each(true, see);
        table
    }

    /// Counts what is beyond, and tells the log once a minute.
    #[cold]
    fn tell(&self, state: &mut State, object: &Rendered, beyond: &[Beyond]) {
        let kind = &self.kind;
        let name = |beyond: &Beyond| {
            let rules = beyond.family.and_then(|family| Some((kind.rules.as_ref()?, family)));
            rules.map_or("", |(rules, family)| rules.name(family))
        };
        let action = |beyond: &Beyond| match beyond.action {
            _ if !kind.enforces() => Action::Tracked,
            action => action,
        };
        let mut times: BTreeMap<[&str; 4], u64> = BTreeMap::new();
        for beyond in beyond {
            let labels =
                [action(beyond).as_str(), &*beyond.label, beyond.limit.as_str(), name(beyond)];
            *times.entry(labels).or_default() += 1;
        }
        for (labels, times) in times {
            kind.metrics.over_budget(labels, &kind.resource, times);
        }
        let due = state.told.is_none_or(|told| told.elapsed() >= TELL_EVERY);
        let (Some(first), true) = (beyond.first(), due) else { return };
        state.told = Some(Instant::now());
        tracing::warn!(
            resource = kind.resource,
            metric = name(first),
            label = first.label,
            limit = first.limit.as_str(),
            action = action(first).as_str(),
            object = %String::from_utf8_lossy(object.identity.strip_prefix(b"{").unwrap_or_default()),
            left_out = self.left_out.len(),
            "objects go beyond a budget (--limit.{})",
            first.limit.as_str()
        );
    }
}
