//! What a group of replicas must show at each moment.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tokio::time::Instant;

use super::network::{CONTAINER, Counts, Group, PLAIN, Process, Requests};

/// The time after which a process that runs must have decided, and the effects of a fault must be over: a start (1 s), a poll
/// without an answer (2 s), the pause after it and a look-up of names.
const SETTLED: Duration = Duration::from_secs(4);

/// The time after which a frozen process knows that it was stopped, and the others do not count on it.
const STOPPED: Duration = Duration::from_millis(2_500);

/// The time within which another replica exposes after one that ends says so: a few messages.
const HANDOVER: Duration = Duration::from_millis(50);

/// The time within which the other replicas have a line, if nothing is wrong.
const COPIED: Duration = Duration::from_millis(100);

/// The time before the start of a process from which lines of other ones may count: the longest time of a poll.
const BEFORE_START: Duration = Duration::from_millis(2_010);

/// The time after the start of a process for which it waits for its pods with the lines of others, and the time within which it
/// notices that it has them.
const POD_WAIT: Duration = Duration::from_secs(10);
const NOTICED: Duration = Duration::from_millis(600);

/// The number of polls in a second between two replicas that are idle, and those after a start.
const POLLS: (f64, u64) = (2.0, 2);

/// The end of a process.
struct End {
    /// The time when it was asked to end, or killed.
    asked: Instant,
    /// The time when it received its last lines.
    last: Instant,
    /// Lines from here on may be missing elsewhere.
    certain_until: Instant,
    /// The time since which it had been connected to all others.
    calm_since: Instant,
}

/// A time for which a process was frozen.
struct Stop {
    /// The time since which it had run.
    ran_since: Instant,
    from: Instant,
    /// `None` if it still is.
    until: Option<Instant>,
}

/// What a checker knows about the processes of a group.
pub(super) struct Checker {
    /// The times at which each process received a line.
    sent: BTreeMap<usize, Vec<Instant>>,
    /// The number of lines that each process received, by what all of them have relayed.
    relayed: BTreeMap<usize, usize>,
    /// The time since which each process runs without interruption.
    runs_since: BTreeMap<usize, Instant>,
    /// The time at which the first lists of each process are complete.
    synced_at: BTreeMap<usize, Instant>,
    ends: BTreeMap<usize, End>,
    /// The processes that are about to end, and those of them that receive no more lines.
    leaving: BTreeSet<usize>,
    stopped: BTreeSet<usize>,
    /// The time of the last change of processes or the network.
    changed: Instant,
    /// The time of the last request to end.
    left: Option<Instant>,
    /// The time until which a start takes.
    starting_until: Instant,
    /// The time since which nothing is wrong, unless something is.
    calm_since: Option<Instant>,
    /// The last time that each process was frozen for.
    stops: BTreeMap<usize, Stop>,
    /// The last change that was not the beginning or end of such a time.
    other_change: Instant,
    /// Some processes have another shard than others.
    are_different: bool,
    /// The process that exposed when nothing was wrong.
    active: Option<usize>,
    /// Lines get labels of the pod that sent them.
    is_enriched: bool,
    /// The processes that exposed before their first lists were complete.
    early: BTreeSet<usize>,
}

impl Checker {
    pub(super) fn new(is_enriched: bool) -> Self {
        let now = Instant::now();
        Self {
            sent: BTreeMap::new(),
            relayed: BTreeMap::new(),
            runs_since: BTreeMap::new(),
            synced_at: BTreeMap::new(),
            ends: BTreeMap::new(),
            leaving: BTreeSet::new(),
            stopped: BTreeSet::new(),
            changed: now,
            left: None,
            starting_until: now,
            calm_since: Some(now),
            stops: BTreeMap::new(),
            other_change: now,
            are_different: false,
            active: None,
            is_enriched,
            early: BTreeSet::new(),
        }
    }

    /// Notes a change of processes or the network.
    fn change(&mut self, group: &Group) {
        self.other_change = Instant::now();
        self.change_by_freezing(group);
    }

    fn change_by_freezing(&mut self, group: &Group) {
        let now = Instant::now();
        (self.changed, self.active) = (now, None);
        self.are_different = !group.outdated().is_empty();
        let is_frozen = |at: &usize| group.with(*at, Process::is_frozen) == Some(true);
        let is_calm = group.cuts().is_empty()
            && self.leaving.is_empty()
            && !self.are_different
            && !group.running().iter().any(is_frozen);
        self.calm_since = is_calm.then_some(now);
    }

    pub(super) fn started(&mut self, group: &Group, number: usize, sync: Duration) {
        let now = Instant::now();
        self.runs_since.insert(number, now);
        self.sent.insert(number, Vec::new());
        self.synced_at.insert(number, now + sync);
        self.starting_until = self.starting_until.max(now + sync);
        self.change(group);
    }

    pub(super) fn frozen(&mut self, group: &Group, number: usize) {
        let ran_since = self.runs_since.remove(&number).expect("it ran");
        let from = Instant::now();
        self.stops.insert(number, Stop { ran_since, from, until: None });
        self.change_by_freezing(group);
    }

    pub(super) fn thawed(&mut self, group: &Group, number: usize) {
        let now = Instant::now();
        self.runs_since.insert(number, now);
        self.stops.get_mut(&number).expect("it was frozen").until = Some(now);
        self.change_by_freezing(group);
    }

    /// Notes the beginning or end of a cut.
    pub(super) fn network_changed(&mut self, group: &Group) {
        self.change(group);
    }

    /// Notes that all processes are to have another shard, or that one of them has got it. Those of different shards may not know
    /// each other.
    pub(super) fn reloaded(&mut self, group: &Group) {
        self.change(group);
    }

    /// Notes that a process is asked to end. Its lines are passed on.
    pub(super) fn leaves(&mut self, group: &Group, number: usize) {
        let now = Instant::now();
        let calm_since = self.calm_since.unwrap_or(now).max(self.starting_until.min(now));
        let (asked, last, certain_until) = (now, now, now);
        self.ends.insert(number, End { asked, last, certain_until, calm_since });
        self.leaving.insert(number);
        self.left = Some(now);
        self.change(group);
    }

    pub(super) fn is_leaving(&self, number: usize) -> bool {
        self.leaving.contains(&number)
    }

    /// Notes that a process receives no more lines.
    pub(super) fn stops(&mut self, number: usize) {
        self.stopped.insert(number);
    }

    pub(super) fn has_stopped(&self, number: usize) -> bool {
        self.stopped.contains(&number)
    }

    /// Notes the end of a process, asked for or not.
    pub(super) fn ended(&mut self, group: &Group, number: usize) {
        let now = Instant::now();
        let calm_since = self.calm_since.unwrap_or(now).max(self.starting_until.min(now));
        self.leaving.remove(&number);
        self.runs_since.remove(&number);
        self.stops.remove(&number);
        let certain_until = now - COPIED;
        match self.ends.get_mut(&number) {
            // It waits for the others that answer.
            Some(end) if self.changed > end.asked => end.certain_until = end.asked - COPIED,
            Some(_) => {}
            None => {
                let (asked, last) = (now, now);
                self.ends.insert(number, End { asked, last, certain_until, calm_since });
            }
        }
        self.change(group);
    }

    /// Notes lines that a process received.
    pub(super) fn received(&mut self, number: usize, count: usize) {
        let now = Instant::now();
        let sent = self.sent.get_mut(&number).expect("it was started");
        sent.extend(std::iter::repeat_n(now, count));
        if let Some(end) = self.ends.get_mut(&number) {
            (end.last, end.certain_until) = (now, now);
        }
    }

    /// Returns true if nothing has been wrong for so long that its effects are over.
    pub(super) fn is_settled(&self) -> bool {
        let calm = self.calm_since.is_some_and(|since| since.elapsed() >= SETTLED);
        calm && self.starting_until + SETTLED <= Instant::now()
    }

    /// Checks a scrape that began at a time: the processes that answered, and whether they exposed.
    pub(super) fn scraped(
        &mut self,
        began: Instant,
        answers: &BTreeMap<usize, bool>,
    ) -> Result<(), String> {
        let active: Vec<usize> =
            answers.iter().filter_map(|(number, active)| active.then_some(*number)).collect();
        let now = Instant::now();
        let lists = |number: &usize| self.synced_at[number] + NOTICED > now;
        self.early.extend(active.iter().copied().filter(lists));
        let has_changed = self.changed >= began;
        let hands_over = self.left.is_some_and(|left| left + HANDOVER >= began);
        let has_decided = |since: &Instant| *since + SETTLED <= began;
        let is_one_certain = self.runs_since.values().any(has_decided);
        if active.is_empty() && is_one_certain && !has_changed && !hands_over {
            return Err("no replica exposes".to_owned());
        }
        let has_returned = |number: &&usize| self.has_been_replaced(**number, &active);
        if let Some(number) = active.iter().find(has_returned) {
            return Err(format!(
                "process {number} of {active:?} exposes although it was stopped and replaced"
            ));
        }
        let is_calm = self.calm_since.is_some_and(|since| since + SETTLED <= began);
        let lists = |number: &usize| self.synced_at[number] > Instant::now();
        let has_listed = |number: &usize| self.synced_at[number] + SETTLED <= began;
        if is_calm && active.first().is_some_and(lists) && self.runs_since.keys().any(has_listed) {
            return Err(format!(
                "{active:?} exposes, which lists, although another one has listed"
            ));
        }
        if !self.is_settled() || self.calm_since.is_some_and(|since| since + SETTLED > began) {
            return Ok(());
        }
        if active.len() > 1 {
            return Err(format!("processes {active:?} expose the same metrics"));
        }
        if let Some(former) = self.active
            && active != [former]
        {
            return Err(format!(
                "{active:?} exposes instead of {former} although nothing is wrong"
            ));
        }
        self.active = active.first().copied();
        Ok(())
    }

    /// Returns true if a process was frozen for so long that another one replaced it, which it knew and which exposes.
    fn has_been_replaced(&self, number: usize, active: &[usize]) -> bool {
        let Some(Stop { ran_since, from, until: Some(until) }) = self.stops.get(&number) else {
            return false;
        };
        let settled = ran_since.max(&self.other_change).max(&self.starting_until);
        let knew = |other: &usize| self.runs_since.get(other).is_some_and(|since| since <= settled);
        !self.are_different
            && *until - *from >= STOPPED
            && *settled + SETTLED <= *from
            && active.iter().any(|other| *other != number && knew(other))
    }

    /// Checks the counters of lines of each process. Nothing has been wrong for long, and no line is on its way.
    pub(super) fn check_lines(&self, group: &Group) -> Result<(), String> {
        for at in group.running() {
            let checked = group.with(at, |process| self.check_lines_of(process));
            checked.unwrap_or(Ok(()))?;
        }
        Ok(())
    }

    fn check_lines_of(&self, process: &Process) -> Result<(), String> {
        let (number, counts) = (process.number, process.counts());
        if process.has_invented_sender() {
            return Err(format!("process {number} has labels for lines without a sender"));
        }
        for (source, sent) in &self.sent {
            let none = Counts::default();
            let Counts { all: count, unlabelled } = *counts.get(source).unwrap_or(&none);
            let since = |from: Instant, until: Instant| {
                sent.iter().filter(|at| (from..=until).contains(at)).count() as u64
            };
            let (start, now) = (process.started, Instant::now());
            // Until then it may wait for its pods.
            let synced = self.synced_at[&number] + NOTICED;
            let from = if self.is_enriched { synced.min(start + POD_WAIT) } else { start };
            let (least, most) = if *source == number {
                (sent.len() as u64, sent.len() as u64)
            } else {
                let until = match self.ends.get(source) {
                    None => Some(now),
                    Some(end) => {
                        let known = end.calm_since.max(from) + SETTLED <= end.last;
                        known.then_some(end.certain_until)
                    }
                };
                let least = until.map_or(0, |until| since(from, until));
                (least, since(start - BEFORE_START, now))
            };
            if count < least || count > most {
                return Err(format!(
                    "process {number} has {count} lines of process {source}, not {least} to {most}"
                ));
            }
            let is_leaving = self.ends.get(source).is_some_and(|end| end.asked <= synced);
            let knows_pods = *source == number
                || synced <= start + POD_WAIT && !self.early.contains(&number) && !is_leaving;
            let before = since(start - BEFORE_START, self.synced_at[source] + NOTICED);
            if self.is_enriched && knows_pods && unlabelled > before {
                return Err(format!(
                    "process {number} has {unlabelled} lines of process {source} without labels, \
                     which received {before} before it knew its pods"
                ));
            }
        }
        Ok(())
    }

    /// Checks that each line that a process received was relayed at once, by that one alone. Copies of lines are not relayed.
    pub(super) fn check_relayed(&mut self, group: &Group) -> Result<(), String> {
        let Some(text) = group.take_relayed() else { return Ok(()) };
        let text = String::from_utf8_lossy(&text);
        for line in text.lines().filter(|line| *line != PLAIN.trim_end()) {
            let rest = format!(":1|c|c:{CONTAINER}");
            let number = line.strip_prefix("lines_of_").and_then(|line| line.strip_suffix(&*rest));
            let number = number.and_then(|number| number.parse().ok());
            let number = number.ok_or_else(|| format!("relayed {line:?}, which was never sent"))?;
            *self.relayed.entry(number).or_default() += 1;
        }
        for (number, sent) in &self.sent {
            let relayed = self.relayed.get(number).copied().unwrap_or(0);
            if relayed != sent.len() {
                return Err(format!(
                    "{relayed} of {} lines of process {number} are relayed",
                    sent.len()
                ));
            }
        }
        Ok(())
    }

    /// Checks the number of requests during a time in which nothing happened.
    pub(super) fn check_requests(requests: &Requests, during: Duration) -> Result<(), String> {
        let most = (POLLS.0 * during.as_secs_f64()) as u64 + POLLS.1;
        match requests.iter().find(|(_, count)| **count > most) {
            None => Ok(()),
            Some(((from, to), count)) => {
                Err(format!("{count} requests from address {from} to {to} in {during:?}"))
            }
        }
    }
}
