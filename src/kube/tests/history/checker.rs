//! Compares scrapes with all states that the cluster ever had.
//!
//! A list/watch takes complete lists and then changes in order. Each scrape must therefore expose, for each scope,
//! exactly the state of one moment: no object that never existed, none twice, none missing, and none in the state of
//! another moment. From one scrape to the next that moment only moves forward (a restore from a backup is a later
//! moment), and it is the present unless a fault excuses it.

use std::collections::BTreeMap;
use std::sync::LazyLock;
use std::time::Duration;

use tokio::time::Instant;

use super::cluster::{Kind, NAMESPACES, Scope};
use super::limits::Fit;
use super::snapshot::{Selected, Shown, Snapshot};
use crate::tests::time_bound;

/// The maximum age of exposed states without faults: data in flight.
static MAX_DELAY: LazyLock<Duration> =
    LazyLock::new(|| time_bound("age of exposed states without faults"));

/// The maximum number of requests per second, once [`BURST`] has passed.
const REQUESTS: f64 = 3.0;
/// The time after the start and the end of a fault during which requests are not limited.
const BURST: Duration = Duration::from_secs(10);

/// Limits the number of requests.
pub struct RequestLimit {
    /// The time from which requests are limited.
    from: Instant,
    /// The time until which a silent fault may go unnoticed; all list/watches then recover at the same moment.
    unnoticed: Instant,
    /// The time and the number of requests when counting started.
    begun: Option<(Instant, u64)>,
    /// The number of list/watches. All may reopen their watches at the same moment, and retry once.
    pub watches: u64,
}

impl RequestLimit {
    pub fn new(watches: usize) -> Self {
        let now = Instant::now();
        Self { from: now + BURST, unnoticed: now, begun: None, watches: watches as u64 }
    }

    /// Restarts the count after the start or end of a fault, which may stay unnoticed until `unnoticed`.
    pub fn changed(&mut self, unnoticed: Instant) {
        (self.from, self.begun) = (Instant::now() + BURST, None);
        self.unnoticed = self.unnoticed.max(unnoticed);
    }

    /// Compares the number of requests with the limit.
    pub fn check(&mut self, requests: u64) -> Result<(), Violation> {
        let now = Instant::now();
        if now < self.from {
            return Ok(());
        }
        // A version check, the pages of a list and a watch.
        let each = if now < self.unnoticed { 6 } else { 2 };
        let (since, before) = *self.begun.get_or_insert((now, requests));
        let (seconds, made) = ((now - since).as_secs_f64(), requests.saturating_sub(before));
        if made as f64 > REQUESTS * seconds + (each * self.watches) as f64 {
            return Err(Violation(format!(
                "sends {made} requests in {seconds:.1} s, long after the last start or end of a fault"
            )));
        }
        Ok(())
    }
}

/// The state that a scrape must expose for a scope.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expectation {
    /// The present state of the scope.
    Present,
    /// The present state or one since the last scrape.
    Past,
    /// Like `Past`, or nothing, because the server has denied the scope for long.
    PastOrEmpty,
    /// No lines: the scope has been denied for longer than the staleness limit.
    Empty,
}

/// A description of what is wrong with a scope or a scrape.
#[derive(Debug, PartialEq, Eq)]
pub struct Violation(pub String);

#[derive(Default)]
pub struct Checker {
    /// The earliest moment that the last scrape of a scope can be of; unset before the first and after a scrape without
    /// lines.
    shown: BTreeMap<Scope, usize>,
    /// What is left out, in histories with budgets or a limit of objects.
    pub left_out: Option<LeftOut>,
    /// The objects that are shown.
    pub selected: Selected,
    /// The parts of the states that the last scrape did not show, because of budgets.
    pub fits: Fits,
}

/// The objects that a scrape lacks.
pub enum LeftOut {
    /// Budgets have left out this number of objects, by scope.
    Known(BTreeMap<Scope, u64>),
    /// The number of objects over a limit is unknown.
    Unknown,
}

impl LeftOut {
    /// Returns the number of objects that a scope lacks, if it is known.
    pub fn of(&self, scope: Scope) -> Option<u64> {
        match self {
            Self::Known(all) => Some(all.get(&scope).copied().unwrap_or_default()),
            Self::Unknown => None,
        }
    }
}

/// The parts of states that a scrape does not show, by scope.
pub type Fits = BTreeMap<Scope, Fit>;

pub type History = BTreeMap<Scope, Vec<Snapshot>>;

impl Checker {
    /// Checks the lines of a scrape and returns the age of the oldest exposed state, zero if all are current.
    pub fn check(
        &mut self,
        history: &History,
        body: &[&str],
        now: Instant,
        expectation: impl Fn(Scope) -> Expectation,
    ) -> Result<Duration, Violation> {
        self.fits.clear();
        let mut lines: BTreeMap<Scope, Vec<&str>> =
            history.keys().map(|scope| (*scope, Vec::new())).collect();
        for line in body {
            let scope = scope_of_line(line).and_then(|scope| lines.get_mut(&scope));
            scope.ok_or_else(|| Violation(format!("unknown series: {line}")))?.push(line);
        }
        let mut oldest = Duration::ZERO;
        for (scope, mut lines) in lines {
            lines.sort_unstable();
            let snapshots = &history[&scope];
            let old = self.scope(scope, snapshots, &Shown::new(lines), now, expectation(scope));
            oldest = oldest.max(old.map_err(|why| Violation(format!("{scope:?}: {why}")))?);
        }
        Ok(oldest)
    }

    /// Lets the next scrape show any state of a kind that there ever was.
    pub fn forget(&mut self, kind: Kind) {
        self.shown.retain(|scope, _| scope.kind != kind);
    }

    fn scope(
        &mut self,
        scope: Scope,
        snapshots: &[Snapshot],
        shown: &Shown<'_>,
        now: Instant,
        expectation: Expectation,
    ) -> Result<Duration, String> {
        let lines = &shown.lines[..];
        let before = self.shown.get(&scope).copied();
        let nothing = lines.is_empty();
        if nothing && (expectation == Expectation::Empty || expectation == Expectation::PastOrEmpty)
        {
            self.shown.remove(&scope);
            return Ok(Duration::ZERO);
        }
        // Nothing has been listed yet.
        if nothing && before.is_none() && expectation == Expectation::Past {
            return Ok(Duration::ZERO);
        }
        let left_out = self.left_out.as_ref().map(|left_out| left_out.of(scope));
        let selected = self.selected;
        let fit = |snapshot: &Snapshot| match left_out {
            None => shown.is_all_of(snapshot, selected).then(Fit::default),
            Some(left_out) => Fit::of(snapshot, shown, selected, left_out),
        };
        let matches = |snapshot: &Snapshot| fit(snapshot).is_some();
        let from = before.unwrap_or(0);
        let Some(earliest) = snapshots[from..].iter().position(matches).map(|at| from + at) else {
            let why = describe_violation(snapshots, shown, selected, from);
            return Err(format!("{selected:?}: {why}"));
        };
        let latest = snapshots.iter().rposition(matches).unwrap_or(earliest);
        self.shown.insert(scope, earliest);
        let age = |at: usize| snapshots.get(at + 1).map_or(Duration::ZERO, |next| now - next.since);
        // What has not arrived yet is not left out.
        let is_late = (earliest..=latest)
            .rev()
            .take_while(|at| age(*at) <= *MAX_DELAY)
            .any(|at| shown.is_all_of(&snapshots[at], selected));
        let fit = if is_late { Some(Fit::default()) } else { fit(&snapshots[latest]) };
        self.fits.extend(fit.map(|fit| (scope, fit)));
        let old = age(latest);
        match expectation {
            Expectation::Empty => Err(format!(
                "{} lines, although the server has denied the scope for long",
                lines.len()
            )),
            Expectation::Present if old > *MAX_DELAY => Err(format!(
                "stale for {:.1} s: {}",
                old.as_secs_f64(),
                difference(lines, &snapshots[snapshots.len() - 1])
            )),
            _ => Ok(if old > *MAX_DELAY { old } else { Duration::ZERO }),
        }
    }
}

/// Describes why no state since `from` is that of a scrape.
fn describe_violation(
    snapshots: &[Snapshot],
    shown: &Shown<'_>,
    selected: Selected,
    from: usize,
) -> String {
    let lines = &shown.lines[..];
    let snapshots: Vec<Snapshot> =
        snapshots.iter().map(|snapshot| snapshot.selected(selected, lines)).collect();
    if let Some(twice) = lines.windows(2).find(|pair| pair[0] == pair[1]) {
        return format!("duplicate series: {}", twice[0]);
    }
    let has_existed = |line: &str| {
        snapshots.iter().any(|snapshot| snapshot.lines.iter().any(|known| known == line))
    };
    if let Some(unknown) = lines.iter().find(|line| !has_existed(line)) {
        return format!("never existed: {unknown}");
    }
    if snapshots[..from].iter().any(|snapshot| shown.is_all_of(snapshot, Selected::default())) {
        return format!("older than the last scrape: {}", difference(lines, &snapshots[from]));
    }
    let least = snapshots[from..].iter().min_by_key(|snapshot| difference(lines, snapshot).len());
    let least = least.map(|snapshot| difference(lines, snapshot)).unwrap_or_default();
    format!("a state that never existed, the closest one has {least}")
}

/// Describes the lines that a moment has more and less than a scrape.
fn difference(lines: &[&str], snapshot: &Snapshot) -> String {
    let more = snapshot.lines.iter().filter(|line| !lines.contains(&line.as_str()));
    let less = lines.iter().filter(|line| !snapshot.lines.iter().any(|known| known == **line));
    let more: Vec<&str> = more.map(String::as_str).collect();
    let less: Vec<&str> = less.copied().collect();
    format!("more {more:?}, less {less:?}")
}

/// Returns the scope that a line belongs to.
fn scope_of_line(line: &str) -> Option<Scope> {
    let kind = Kind::of_line(line)?;
    if !kind.namespaced() {
        return Some(Scope { kind, namespace: "" });
    }
    let (_, rest) = line.split_once("namespace=\"")?;
    let (name, _) = rest.split_once('"')?;
    let namespace = NAMESPACES.into_iter().find(|namespace| *namespace == name)?;
    Some(Scope { kind, namespace })
}

#[cfg(test)]
mod tests {
    use super::super::cluster::{Cluster, KINDS, scopes};
    use super::*;

    const NODES: Scope = Scope { kind: Kind::Node, namespace: "" };

    /// Returns the history of a cluster that changes every second.
    async fn history() -> History {
        let mut rng = fastrand::Rng::with_seed(7);
        let mut cluster = Cluster::new(&KINDS, &mut rng);
        for _ in 0..400 {
            tokio::time::advance(Duration::from_secs(1)).await;
            cluster.change(&mut rng);
        }
        cluster.snapshots
    }

    /// Returns the scrape of this many moments before the last of each scope.
    fn body(history: &History, back: usize) -> String {
        let snapshots = history.values().map(|snapshots| &snapshots[snapshots.len() - 1 - back]);
        let lines = snapshots.flat_map(|snapshot| snapshot.lines.iter().map(String::as_str));
        lines.collect::<Vec<_>>().join("\n")
    }

    fn check(
        history: &History,
        bodies: &[&str],
        expectation: Expectation,
    ) -> Result<Duration, String> {
        let mut checker = Checker::default();
        let mut last = Ok(Duration::ZERO);
        for body in bodies {
            let lines: Vec<&str> = body.lines().collect();
            let checked = checker.check(history, &lines, Instant::now(), |_| expectation);
            last = checked.map_err(|violation| violation.0);
        }
        last
    }

    #[tokio::test(start_paused = true)]
    async fn states_in_order_are_accepted() {
        let history = history().await;
        let bodies: Vec<String> = (0..10).rev().map(|back| body(&history, back)).collect();
        let bodies: Vec<&str> = bodies.iter().map(String::as_str).collect();
        assert_eq!(check(&history, &bodies, Expectation::Past), Ok(Duration::ZERO));
        assert_eq!(check(&history, &bodies[9..], Expectation::Present), Ok(Duration::ZERO));
        let old = check(&history, &bodies[..1], Expectation::Past).expect("a state that was");
        assert!(old > Duration::from_secs(9), "{old:?}");
        assert_eq!(check(&history, &[""], Expectation::Empty), Ok(Duration::ZERO));
        assert_eq!(check(&history, &[bodies[9], ""], Expectation::PastOrEmpty), Ok(Duration::ZERO));
    }

    #[tokio::test(start_paused = true)]
    async fn states_that_never_existed_are_rejected() {
        let history = history().await;
        let good = body(&history, 0);
        let refused = |bodies: &[&str], expectation: Expectation, why: &[&str]| {
            let error = check(&history, bodies, expectation).expect_err(why[0]);
            assert!(why.iter().any(|why| error.contains(why)), "{error}");
        };
        // The state may have existed before the last scrape.
        let not_since = ["a state that never existed", "older than the last scrape"];
        let lines: Vec<&str> = good.lines().collect();
        for (at, line) in lines.iter().enumerate() {
            let mut without = lines.clone();
            without.remove(at);
            refused(&[&good, &without.join("\n")], Expectation::Past, &not_since);
            let twice = format!("{good}\n{line}");
            refused(&[&twice], Expectation::Past, &["duplicate series: "]);
            let (name, value) = line.rsplit_once(' ').expect("a value");
            let other = good.replace(line, &format!("{name} {value}7"));
            refused(&[&other], Expectation::Past, &["never existed: "]);
            let unknown = line.replace("=\"o", "=\"unknown-o");
            refused(&[&format!("{good}\n{unknown}")], Expectation::Past, &["never existed: "]);
        }
        refused(&[&good, ""], Expectation::Past, &not_since);
        let old = body(&history, 3);
        refused(&[&good, &old], Expectation::Past, &not_since[1..]);
        refused(&[&old], Expectation::Present, &["stale for"]);
        refused(&[&good], Expectation::Empty, &["denied the scope for long"]);
        refused(&["other{} 1"], Expectation::Past, &["unknown series"]);
    }

    /// A mixture of two moments is not a state of the cluster.
    #[tokio::test(start_paused = true)]
    async fn mixed_states_are_rejected() {
        let history = history().await;
        let (last, before) = {
            let snapshots = &history[&NODES];
            (&snapshots[snapshots.len() - 1].lines, &snapshots[snapshots.len() - 30].lines)
        };
        assert_eq!(scopes(&KINDS).len(), 11);
        let mut mixed: Vec<&str> = last.iter().chain(before.iter()).map(String::as_str).collect();
        mixed.sort_unstable();
        mixed.dedup();
        let error = check(&history, &[&mixed.join("\n")], Expectation::Past).expect_err("no state");
        assert!(error.contains("a state that never existed"), "{error}");
    }
}
