//! Holds what scrapes show against all that ever was.
//!
//! A list/watch takes whole lists and then changes in order, so each scrape shows of each scope exactly what the
//! cluster had of it at one moment: not an object that never was, none twice, none missing, none in a state of another moment.
//! From one scrape to the next that moment moves forward alone (a restore from a backup is a later moment), and it
//! is the present one unless a fault excuses it.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::Instant;

use super::cluster::{Kind, Moment, NAMESPACES, Scope};

/// How far behind the present a scrape may be without any fault: what is on its way.
const BEHIND: Duration = Duration::from_secs(1);

/// What is asked of a scope at a scrape.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Demand {
    /// What there is now.
    Present,
    /// What there is, or was at the last scrape or later.
    Past,
    /// The same, or nothing at all: the server has refused it for long.
    PastOrNothing,
    /// Nothing at all.
    Nothing,
}

/// What was wrong with a scope or a scrape, in words.
#[derive(Debug, PartialEq, Eq)]
pub struct Violation(pub String);

#[derive(Default)]
pub struct Checker {
    /// The earliest moment that the last scrape may have shown; none before the first, and after nothing was shown.
    shown: BTreeMap<Scope, usize>,
}

pub type History = BTreeMap<Scope, Vec<Moment>>;

impl Checker {
    /// Looks at a scrape; how old the oldest of what it shows is, zero if it is the present.
    pub fn check(
        &mut self,
        history: &History,
        body: &str,
        now: Instant,
        demand: impl Fn(Scope) -> Demand,
    ) -> Result<Duration, Violation> {
        let mut lines: BTreeMap<Scope, Vec<&str>> =
            history.keys().map(|scope| (*scope, Vec::new())).collect();
        for line in body.lines().filter(|line| !line.starts_with('#')) {
            let scope = scope(line).and_then(|scope| lines.get_mut(&scope));
            scope.ok_or_else(|| Violation(format!("a line of nobody: {line}")))?.push(line);
        }
        let mut oldest = Duration::ZERO;
        for (scope, mut lines) in lines {
            lines.sort_unstable();
            let moments = &history[&scope];
            let old = self.scope(scope, moments, &lines, now, demand(scope));
            oldest = oldest.max(old.map_err(|why| Violation(format!("{scope:?}: {why}")))?);
        }
        Ok(oldest)
    }

    fn scope(
        &mut self,
        scope: Scope,
        moments: &[Moment],
        lines: &[&str],
        now: Instant,
        demand: Demand,
    ) -> Result<Duration, String> {
        let before = self.shown.get(&scope).copied();
        let nothing = lines.is_empty();
        if nothing && (demand == Demand::Nothing || demand == Demand::PastOrNothing) {
            self.shown.remove(&scope);
            return Ok(Duration::ZERO);
        }
        // Nothing is known of it yet.
        if nothing && before.is_none() && demand == Demand::Past {
            return Ok(Duration::ZERO);
        }
        let is =
            |moment: &Moment| moment.lines.iter().map(String::as_str).eq(lines.iter().copied());
        let from = before.unwrap_or(0);
        let Some(earliest) = moments[from..].iter().position(is).map(|at| from + at) else {
            return Err(self.explain(moments, lines, from));
        };
        let latest = moments.iter().rposition(is).unwrap_or(earliest);
        self.shown.insert(scope, earliest);
        let old = moments.get(latest + 1).map_or(Duration::ZERO, |next| now - next.since);
        match demand {
            Demand::Nothing => {
                Err(format!("{} lines, although it has long been refused", lines.len()))
            }
            Demand::Present if old > BEHIND => Err(format!(
                "shows what was true until {:.1} s ago: {}",
                old.as_secs_f64(),
                difference(lines, &moments[moments.len() - 1])
            )),
            _ => Ok(if old > BEHIND { old } else { Duration::ZERO }),
        }
    }

    fn explain(&self, moments: &[Moment], lines: &[&str], from: usize) -> String {
        if let Some(twice) = lines.windows(2).find(|pair| pair[0] == pair[1]) {
            return format!("twice: {}", twice[0]);
        }
        let ever = |line: &str| {
            moments.iter().any(|moment| moment.lines.iter().any(|known| known == line))
        };
        if let Some(ghost) = lines.iter().find(|line| !ever(line)) {
            return format!("never was: {ghost}");
        }
        let is =
            |moment: &Moment| moment.lines.iter().map(String::as_str).eq(lines.iter().copied());
        if moments[..from].iter().any(is) {
            return format!("went back in time: {}", difference(lines, &moments[from]));
        }
        let least = moments[from..].iter().min_by_key(|moment| difference(lines, moment).len());
        let least = least.map(|moment| difference(lines, moment)).unwrap_or_default();
        format!("a state that never was, next to it is one with {least}")
    }
}

/// What a moment has beside these lines, and what not.
fn difference(lines: &[&str], moment: &Moment) -> String {
    let more = moment.lines.iter().filter(|line| !lines.contains(&line.as_str()));
    let less = lines.iter().filter(|line| !moment.lines.iter().any(|known| known == **line));
    let more: Vec<&str> = more.map(String::as_str).collect();
    let less: Vec<&str> = less.copied().collect();
    format!("more {more:?}, less {less:?}")
}

/// Whose line this is.
fn scope(line: &str) -> Option<Scope> {
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

    /// A history of many changes, a second between each two.
    async fn history() -> History {
        let mut rng = fastrand::Rng::with_seed(7);
        let mut cluster = Cluster::new(&KINDS, &mut rng);
        for _ in 0..400 {
            tokio::time::advance(Duration::from_secs(1)).await;
            cluster.change(&mut rng);
        }
        cluster.moments
    }

    /// What a scrape says so many moments of each scope before the last.
    fn body(history: &History, back: usize) -> String {
        let moments = history.values().map(|moments| &moments[moments.len() - 1 - back]);
        let lines = moments.flat_map(|moment| moment.lines.iter().map(String::as_str));
        ["# HELP x y"].into_iter().chain(lines).collect::<Vec<_>>().join("\n")
    }

    fn check(history: &History, bodies: &[&str], demand: Demand) -> Result<Duration, String> {
        let mut checker = Checker::default();
        let mut last = Ok(Duration::ZERO);
        for body in bodies {
            let checked = checker.check(history, body, Instant::now(), |_| demand);
            last = checked.map_err(|violation| violation.0);
        }
        last
    }

    #[tokio::test(start_paused = true)]
    async fn every_state_in_order_is_taken() {
        let history = history().await;
        let bodies: Vec<String> = (0..10).rev().map(|back| body(&history, back)).collect();
        let bodies: Vec<&str> = bodies.iter().map(String::as_str).collect();
        assert_eq!(check(&history, &bodies, Demand::Past), Ok(Duration::ZERO));
        assert_eq!(check(&history, &bodies[9..], Demand::Present), Ok(Duration::ZERO));
        let old = check(&history, &bodies[..1], Demand::Past).expect("a state that was");
        assert!(old > Duration::from_secs(9), "{old:?}");
        assert_eq!(check(&history, &[""], Demand::Nothing), Ok(Duration::ZERO));
        assert_eq!(check(&history, &[bodies[9], ""], Demand::PastOrNothing), Ok(Duration::ZERO));
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_not_a_state_of_the_cluster_is_refused() {
        let history = history().await;
        let good = body(&history, 0);
        let refused = |bodies: &[&str], demand: Demand, why: &[&str]| {
            let error = check(&history, bodies, demand).expect_err(why[0]);
            assert!(why.iter().any(|why| error.contains(why)), "{error}");
        };
        // It may have been so once, but not since.
        let not_since = ["a state that never was", "went back in time"];
        let lines: Vec<&str> = good.lines().collect();
        for (at, line) in lines.iter().enumerate().skip(1) {
            let mut without = lines.clone();
            without.remove(at);
            refused(&[&good, &without.join("\n")], Demand::Past, &not_since);
            let twice = format!("{good}\n{line}");
            refused(&[&twice], Demand::Past, &["twice: "]);
            let (name, value) = line.rsplit_once(' ').expect("a value");
            let other = good.replace(line, &format!("{name} {value}7"));
            refused(&[&other], Demand::Past, &["never was: "]);
            let ghost = line.replace("=\"o", "=\"ghost-o");
            refused(&[&format!("{good}\n{ghost}")], Demand::Past, &["never was: "]);
        }
        refused(&[&good, ""], Demand::Past, &not_since);
        let old = body(&history, 3);
        refused(&[&good, &old], Demand::Past, &not_since[1..]);
        refused(&[&old], Demand::Present, &["shows what was true until"]);
        refused(&[&good], Demand::Nothing, &["long been refused"]);
        refused(&["other{} 1"], Demand::Past, &["a line of nobody"]);
    }

    /// Half of one moment and half of another is a state of neither.
    #[tokio::test(start_paused = true)]
    async fn a_mixture_of_two_states_is_refused() {
        let history = history().await;
        let (last, before) = {
            let moments = &history[&NODES];
            (&moments[moments.len() - 1].lines, &moments[moments.len() - 30].lines)
        };
        assert_eq!(scopes(&KINDS).len(), 9);
        let mut mixed: Vec<&str> = last.iter().chain(before.iter()).map(String::as_str).collect();
        mixed.sort_unstable();
        mixed.dedup();
        let error = check(&history, &[&mixed.join("\n")], Demand::Past).expect_err("no state");
        assert!(error.contains("a state that never was"), "{error}");
    }
}
