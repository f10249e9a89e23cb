//! Tests of the counts that a budget keeps.

use super::*;
use crate::cache::Store;
use crate::kube::WatchedResource;
use crate::kube::shard::Shard;
use crate::resources::select::selection::Selection;
use crate::resources::{RenderOptions, find};

impl KindBudget {
    /// Compares the counts of series and label values with those of the objects, if there are any and no list is in progress.
    pub(crate) fn assert_exact(&self) {
        let state = self.state.lock();
        let (Some(rules), Some(table)) = (&self.rules, &state.table) else { return };
        let is_collecting = |member: &Member| member.collecting.is_some();
        assert_eq!(
            state.lists,
            state.members.iter().filter(|member| is_collecting(member)).count()
        );
        if state.stale || state.lists > 0 {
            return;
        }
        let mut exact = rules.table();
        for served in state.members.iter().filter_map(|member| member.served.as_ref()) {
            served.each(|object| rules.count(object, true, &mut exact));
        }
        assert_eq!(*table, exact);
    }
}

/// Returns the budget of pods with two list/watches, and the objects of one.
fn pods(values_per_label: u64) -> (Arc<KindBudget>, Arc<ServedObjects>) {
    let labels = Selection::new(&["app".to_owned()]);
    let options = RenderOptions { labels, ..RenderOptions::default() };
    let watched = WatchedResource::built_in(find("pods").expect("a kind"), &options);
    let budget = Budget { mode: BudgetMode::Enforce, values_per_label, ..Budget::default() };
    let about = (String::new(), &KubeMetrics::default());
    let kind = KindBudget::new(&budget, &*watched.renderer, about, 2).expect("a budget");
    let store = Arc::new(Store::new(watched.renderer.schema()));
    (kind, Arc::new(ServedObjects::new(None, store, Shard::ALL)))
}

/// The label values of a kind are only counted while it is too large to be within its budgets anyway.
#[test]
fn a_kind_that_has_shrunk_is_counted_no_more() {
    let (kind, served) = pods(10);
    let allowance = kind.allowance(0, &served, &Arc::default());
    allowance.set_size(20, 20);
    kind.state.lock().table = kind.rules.as_ref().map(Rules::table);
    for (objects, is_counted) in [(11, true), (5, true), (4, false)] {
        allowance.set_size(objects, objects);
        assert_eq!(kind.state.lock().table.is_some(), is_counted, "{objects} objects");
    }
}

/// A list/watch that ends by a fault during a list leaves no counts of what it has collected.
#[test]
fn a_list_that_is_not_continued_is_counted_no_more() {
    // Any number of objects is too large to be within the budget anyway.
    let (kind, served) = pods(1);
    let allowance = kind.allowance(0, &served, &Arc::default());
    allowance.begin_list(&mut CurrentObjects::new(Arc::clone(&served)));
    kind.state.lock().table = kind.rules.as_ref().map(Rules::table);
    allowance.set_size(0, 0);
    assert!(kind.state.lock().table.is_some());
    kind.allowance(0, &served, &Arc::default());
    assert!(kind.state.lock().table.is_none());
}

/// The lists of many namespaces, one after the other, do not each visit the objects of all.
#[test]
fn lists_of_many_namespaces_count_labels_once() {
    const NAMESPACES: usize = 100;
    let labels = Selection::new(&["app".to_owned()]);
    let options = RenderOptions { labels, ..RenderOptions::default() };
    let watched = WatchedResource::built_in(find("pods").expect("a kind"), &options);
    let budget = Budget { mode: BudgetMode::Enforce, values_per_label: 5000, ..Budget::default() };
    let about = (String::new(), &KubeMetrics::default());
    let kind = KindBudget::new(&budget, &*watched.renderer, about, NAMESPACES).expect("a budget");
    let members: Vec<_> = (0..NAMESPACES)
        .map(|number| {
            let store = Arc::new(Store::new(watched.renderer.schema()));
            let served = Arc::new(ServedObjects::new(None, store, Shard::ALL));
            (kind.allowance(number, &served, &Arc::default()), served)
        })
        .collect();
    work_counter::take();
    for (allowance, served) in &members {
        let mut current = CurrentObjects::new(Arc::clone(served));
        allowance.begin_list(&mut current);
        allowance.end_list(&mut current, true);
        allowance.set_size(10, 10);
    }
    assert_eq!(work_counter::take(), NAMESPACES as u64);
}

/// Several list/watches that wait for room do not all list again for one free place.
#[test]
fn room_is_claimed_once() {
    let (kind, served) = pods(2);
    let [one, two] = [0, 1].map(|number| kind.allowance(number, &served, &Arc::default()));
    let mut table = kind.rules.as_ref().expect("rules").table();
    table.values.add(7, 1);
    {
        let mut state = kind.state.lock();
        state.table = Some(table);
        state.members.iter_mut().for_each(|member| member.rejected.labels = [7].into());
    }
    assert!(one.claim_room() && one.claim_room() && !two.claim_room());
    one.end_list(&mut CurrentObjects::new(Arc::clone(&served)), false);
    assert!(two.claim_room() && !one.claim_room());
}
